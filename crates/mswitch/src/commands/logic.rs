//! `mswitch logic`.

use std::collections::BTreeMap;
use std::path::Path;

use control::client::Client;
use control::proto;

use super::{absolute, answer, note, unique};
use crate::cli::LogicCommand;
use crate::failure::Failure;
use crate::render;

/// Returns the name of a logic, with the absolute path of a module.
pub(super) fn located(name: &str) -> Result<String, Failure> {
    match name.split_once(':') {
        Some((kind @ ("wasm" | "native" | "p4"), file)) if !file.is_empty() => {
            Ok(format!("{kind}:{}", absolute(Path::new(file))?.display()))
        }
        _ => Ok(name.to_owned()),
    }
}

/// Makes the paths of modules in the stages of a chain absolute.
pub(super) fn stages(
    logic: &str,
    mut params: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Failure> {
    for stage in params.values_mut().filter(|_| logic == "chain") {
        // The daemon reports mistakes in a stage.
        let Ok(words) = shell_words::split(stage) else { continue };
        let Some(name) = words.first() else { continue };
        let found = located(name)?;
        if found != *name {
            let rest = behind_first_word(stage, &words);
            *stage = format!("{}{rest}", shell_words::quote(&found));
        }
    }
    Ok(params)
}

/// Returns the part of a line behind its first word, as it was written. `words` are those of the line.
fn behind_first_word<'a>(line: &'a str, words: &[String]) -> &'a str {
    let Some((first, others)) = words.split_first() else { return "" };
    let mut spaces = line.char_indices().filter(|(_, c)| c.is_ascii_whitespace());
    let splits = |(at, _): (usize, char)| {
        let (before, behind) = line.split_at(at);
        let is = |part: &str, words: &[String]| shell_words::split(part).is_ok_and(|found| found == words);
        (is(before, std::slice::from_ref(first)) && is(behind, others)).then_some(behind)
    };
    spaces.find_map(splits).unwrap_or("")
}

pub(super) async fn run(client: &mut Client, command: LogicCommand) -> Result<(), Failure> {
    match command {
        LogicCommand::Set { bridge, logic, params } => {
            let params = stages(&logic, unique(params.params)?)?;
            let request = proto::SetLogicRequest { bridge: bridge.clone(), logic: located(&logic)?, params };
            // The port may be added later, or its name may be a mistake.
            let set = client.set_logic(request).await?.into_inner();
            for port in set.missing_ports {
                note(render::logic::missing(&port, &bridge));
            }
            for table in set.not_taken_over {
                note(render::logic::printable(&table));
            }
            for stuck in set.stuck {
                note(render::logic::printable(&stuck.text()));
            }
            Ok(())
        }
        LogicCommand::Show { bridge, table, output } => {
            let rows = (table.is_none() && !output.json).then_some(render::logic::ROWS);
            let table = table.unwrap_or_default();
            let request = proto::GetLogicRequest { bridge: bridge.clone(), table, rows };
            let logic = client.get_logic(request).await?.into_inner();
            answer(output, &logic, |logic| render::logic::show(logic, &bridge))
        }
        LogicCommand::Call { bridge, command, output } => {
            let reply = client.call_logic(proto::CallLogicRequest { bridge, command }).await?.into_inner();
            answer(output, &reply, render::logic::reply)
        }
        LogicCommand::List { name, output } => {
            let request = proto::ListLogicsRequest { name: located(&name.unwrap_or_default())? };
            let logics = client.list_logics(request).await?.into_inner();
            answer(output, &logics, |logics| render::logic::list(&logics.logics))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_path_of_a_stage_is_rewritten() {
        let folder = std::env::current_dir().unwrap().display().to_string();
        for (written, expected) in [
            ("wasm:a.wasm inside=in", format!("wasm:{folder}/a.wasm inside=in")),
            (
                "wasm:a.wasm  text=\"a b\"\t'c=d e' x=a\\ b ",
                format!("wasm:{folder}/a.wasm  text=\"a b\"\t'c=d e' x=a\\ b "),
            ),
            ("'wasm:my file.wasm' inside=in", format!("'wasm:{folder}/my file.wasm' inside=in")),
            ("wasm:my\\ file.wasm a='1 2'", format!("'wasm:{folder}/my file.wasm' a='1 2'")),
            (" native:a.so", format!("native:{folder}/a.so")),
            ("wasm:/a.wasm 'inside=in'", "wasm:/a.wasm 'inside=in'".into()),
            ("learning  ageing=60", "learning  ageing=60".into()),
            ("wasm:a.wasm 'open", "wasm:a.wasm 'open".into()),
        ] {
            let params = stages("chain", [("1".to_owned(), written.to_owned())].into()).unwrap();
            assert_eq!(params["1"], expected, "{written}");
        }
        let other: BTreeMap<_, _> = [("1".to_owned(), "wasm:a.wasm".to_owned())].into();
        assert_eq!(stages("static", other.clone()).unwrap(), other);
    }
}
