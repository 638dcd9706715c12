//! `mswitch bridge`.

use control::client::Client;
use control::proto;
use tonic::Code;

use super::logic::{located, stages};
use super::{answer, single, unique};
use crate::cli::BridgeCommand;
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(client: &mut Client, command: BridgeCommand) -> Result<(), Failure> {
    match command {
        BridgeCommand::Add { name, logic, params, may_exist } => {
            let params = stages(&logic, unique(params.params)?)?;
            let request = proto::AddBridgeRequest { name, logic: located(&logic)?, params };
            match client.add_bridge(request).await {
                Err(status) if may_exist && status.code() == Code::AlreadyExists => Ok(()),
                added => Ok(added.map(|_| ())?),
            }
        }
        BridgeCommand::Del { name, if_exists } => {
            match client.delete_bridge(proto::DeleteBridgeRequest { name }).await {
                Err(status) if if_exists && status.code() == Code::NotFound => Ok(()),
                deleted => Ok(deleted.map(|_| ())?),
            }
        }
        BridgeCommand::Show { name, output } => {
            let bridges = client.list_bridges(proto::ListBridgesRequest { name: name.clone() }).await?;
            let bridge = single(bridges.into_inner().bridges)?;
            let request = proto::ListPortsRequest { bridge: name, name: String::new() };
            let ports = client.list_ports(request).await?.into_inner().ports;
            answer(output, &bridge, |bridge| render::bridge::show(bridge, &ports))
        }
        BridgeCommand::Groups { name, output } => {
            let groups = client.list_groups(proto::ListGroupsRequest { bridge: name }).await?.into_inner();
            answer(output, &groups, |groups| render::bridge::groups(&groups.entries))
        }
        BridgeCommand::List(output) => {
            let bridges = client.list_bridges(proto::ListBridgesRequest::default()).await?.into_inner();
            answer(output, &bridges, |bridges| render::bridge::list(&bridges.bridges))
        }
    }
}
