//! `mswitch status`.

use std::time::Duration;

use control::client::Client;
use control::proto;

use super::answer;
use crate::cli::Output;
use crate::failure::Failure;
use crate::render;

/// Interval over which the load of workers is measured.
const INTERVAL: Duration = Duration::from_millis(100);

pub(super) async fn run(client: &mut Client, output: Output) -> Result<(), Failure> {
    let status = client.get_status(proto::GetStatusRequest {}).await?.into_inner();
    let mut recent = Vec::new();
    if !output.json {
        tokio::time::sleep(INTERVAL).await;
        let now = client.list_workers(proto::ListWorkersRequest {}).await?.into_inner();
        recent = now.workers.iter().map(|now| now.since(status.workers.get(now.index as usize))).collect();
    }
    answer(output, &status, |status| render::status::status(status, &recent))
}
