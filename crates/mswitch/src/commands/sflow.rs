//! `mswitch sflow`.

use control::client::Client;
use control::proto;

use super::{answer, note_former};
use crate::cli::SflowCommand;
use crate::failure::Failure;
use crate::render;

/// Refuses a `set` that sets nothing.
pub(super) fn check(command: &SflowCommand) -> Result<(), Failure> {
    let SflowCommand::Set { collectors, former_collector, agent, sampling, polling, header } = command else {
        return Ok(());
    };
    let numbers = [sampling, polling, header];
    if collectors.is_empty()
        && former_collector.is_empty()
        && agent.is_none()
        && numbers.iter().all(|number| number.is_none())
    {
        return Err(Failure::usage(
            "nothing to set; name a setting, such as `--collectors 192.0.2.9` (`mswitch sflow set --help` lists them)",
        ));
    }
    Ok(())
}

pub(super) async fn run(client: &mut Client, command: SflowCommand) -> Result<(), Failure> {
    match command {
        SflowCommand::Set { mut collectors, former_collector, agent, sampling, polling, header } => {
            if !former_collector.is_empty() {
                note_former("--collector", "--collectors");
                collectors.extend(former_collector);
            }
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
