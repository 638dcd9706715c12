//! `mswitch logic`.

use control::client::Client;
use control::proto;

use super::{answer, single, unique};
use crate::cli::LogicCommand;
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(client: &mut Client, command: LogicCommand) -> Result<(), Failure> {
    match command {
        LogicCommand::Set { bridge, logic, params } => {
            client
                .set_logic(proto::SetLogicRequest { bridge, logic, params: unique(params.params)? })
                .await?;
            Ok(())
        }
        LogicCommand::Show { bridge, output } => {
            let bridges = client.list_bridges(proto::ListBridgesRequest { name: bridge }).await?;
            let logic = single(bridges.into_inner().bridges)?.logic.unwrap_or_default();
            answer(output, &logic, render::logic::show)
        }
        LogicCommand::List { name, output } => {
            let request = proto::ListLogicsRequest { name: name.unwrap_or_default() };
            let logics = client.list_logics(request).await?.into_inner();
            answer(output, &logics, |logics| render::logic::list(&logics.logics))
        }
    }
}
