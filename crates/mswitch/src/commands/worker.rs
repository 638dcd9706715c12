//! `mswitch worker`.

use std::time::Duration;

use control::client::Client;
use control::proto;

use super::{answer, note};
use crate::cli::WorkerCommand;
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(client: &mut Client, command: WorkerCommand) -> Result<(), Failure> {
    match command {
        WorkerCommand::Show { interval, output } => {
            let mut reply = list(client).await?;
            if let Some(seconds) = interval {
                tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
                let now = list(client).await?;
                reply.workers = now.since(&reply);
            }
            answer(output, &reply, render::worker::show)
        }
        WorkerCommand::Add { cpus } => {
            let done = client.add_workers(proto::AddWorkersRequest { cpus }).await?;
            done.into_inner().notes.iter().for_each(note);
            Ok(())
        }
        WorkerCommand::Remove { cpus } => {
            client.remove_workers(proto::RemoveWorkersRequest { cpus }).await?;
            Ok(())
        }
        WorkerCommand::Pin { port, queue, cpu } => {
            client
                .pin_queue(proto::PinQueueRequest { bridge: port.bridge, port: port.port, queue, cpu })
                .await?;
            Ok(())
        }
        WorkerCommand::Unpin { port, queue } => {
            client
                .unpin_queue(proto::UnpinQueueRequest { bridge: port.bridge, port: port.port, queue })
                .await?;
            Ok(())
        }
    }
}

async fn list(client: &mut Client) -> Result<proto::Workers, Failure> {
    Ok(client.list_workers(proto::ListWorkersRequest {}).await?.into_inner())
}
