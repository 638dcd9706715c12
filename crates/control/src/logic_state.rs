//! Logics as replies: those there are, and what the one of a bridge knows.

use logic::{LogicDescription, ParamDefault, ParamDescription, ParamKind};

use crate::refusal::Refusal;
use crate::{logics, proto};

/// The logic of this name, or all if it is empty.
pub(crate) fn types(name: &str) -> Result<proto::LogicTypes, Refusal> {
    if !name.is_empty() {
        let found = logics::describe(name)?;
        return Ok(proto::LogicTypes { logics: vec![described(found)] });
    }
    let ours = logic::LIST.iter().map(|info| described(info.describe()));
    let outside = logics::KINDS.iter().map(|kind| proto::LogicType {
        name: format!("{}:FILE", kind.prefix),
        summary: kind.summary.into(),
        from_file: true,
        ..proto::LogicType::default()
    });
    Ok(proto::LogicTypes { logics: ours.chain(outside).collect() })
}

fn described(logic: LogicDescription) -> proto::LogicType {
    proto::LogicType {
        from_file: logic.name.contains(':'),
        name: logic.name,
        summary: logic.summary,
        params: logic.params.into_iter().map(param).collect(),
        commands: logic.commands.into_iter().map(command).collect(),
    }
}

fn command(command: logic::CommandInfo) -> proto::LogicCommand {
    proto::LogicCommand { name: command.name, usage: command.usage, summary: command.help }
}

fn param(param: ParamDescription) -> proto::LogicParam {
    let expected = param.kind.to_string();
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (min, max) = match &param.kind {
        ParamKind::Number { min, max, .. } => (Some(*min), Some(*max)),
        ParamKind::Duration { min, max } => (Some(ms(*min)), Some(ms(*max))),
        ParamKind::Text { max } => (None, Some(*max)),
        _ => (None, None),
    };
    proto::LogicParam {
        r#type: param.kind.name().into(),
        default: param.default.to_string(),
        required: param.default == ParamDefault::Required,
        unit: if let ParamKind::Number { unit, .. } = &param.kind { unit.clone() } else { String::new() },
        choices: if let ParamKind::Choice(words) = param.kind { words } else { Vec::new() },
        name: param.name,
        summary: param.help,
        any_name: param.any_name,
        expected,
        min,
        max,
    }
}
