//! `mswitch sflow`.

use control::client::Client;
use control::proto;

use super::answer;
use crate::cli::SflowCommand;
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(client: &mut Client, command: SflowCommand) -> Result<(), Failure> {
    match command {
        SflowCommand::Set { collectors, agent, sampling, polling, header } => {
            let request = proto::SetSflowRequest { collectors, agent, sampling, polling, header };
            client.set_sflow(request).await?;
            Ok(())
        }
        SflowCommand::Show(output) => {
            let sflow = client.get_sflow(proto::GetSflowRequest {}).await?.into_inner();
            answer(output, &sflow, render::sflow::show)
        }
        SflowCommand::Off => {
            client.delete_sflow(proto::DeleteSflowRequest {}).await?;
            Ok(())
        }
    }
}
