//! `mswitch logic`.

use control::client::Client;
use control::proto;

use super::{answer, unique};
use crate::cli::LogicCommand;
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(client: &mut Client, command: LogicCommand) -> Result<(), Failure> {
    match command {
        LogicCommand::Set { bridge, logic, params } => {
            let request =
                proto::SetLogicRequest { bridge: bridge.clone(), logic, params: unique(params.params)? };
            // A port may come later; or it is a slip.
            let set = client.set_logic(request).await?.into_inner();
            for port in set.missing_ports {
                eprintln!("mswitch: note: {}", render::logic::missing(&port, &bridge));
            }
            for stuck in set.stuck {
                eprintln!("mswitch: note: {}", render::logic::printable(&stuck.text()));
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
            answer(output, &reply, render::logic::said)
        }
        LogicCommand::List { name, output } => {
            let request = proto::ListLogicsRequest { name: name.unwrap_or_default() };
            let logics = client.list_logics(request).await?.into_inner();
            answer(output, &logics, |logics| render::logic::list(&logics.logics))
        }
    }
}
