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
        Some((kind @ ("wasm" | "native"), file)) if !file.is_empty() => {
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
        let Ok(mut words) = shell_words::split(stage) else { continue };
        let Some(name) = words.first_mut() else { continue };
        let found = located(name)?;
        if found != *name {
            *name = found;
            *stage = shell_words::join(&words);
        }
    }
    Ok(params)
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
