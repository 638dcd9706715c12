//! `mswitch port`.

use std::time::Duration;

use control::client::Client;
use control::{drops, proto, suggest};

use super::{answer, print, single, unique};
use crate::cli::{Admin, Output, PortAdd, PortCommand, PortSet, PortStats};
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(client: &mut Client, command: PortCommand) -> Result<(), Failure> {
    match command {
        PortCommand::Add(args) => add(client, *args).await,
        PortCommand::Set(args) => set(client, *args).await,
        PortCommand::Del(port) => {
            client.delete_port(proto::DeletePortRequest { bridge: port.bridge, name: port.port }).await?;
            Ok(())
        }
        PortCommand::Show { port, output } => {
            let ports = list(client, Some(port.bridge), Some(port.port)).await?.ports;
            answer(output, &single(ports)?, render::port::show)
        }
        PortCommand::List { bridge, output } => {
            let ports = list(client, bridge, None).await?;
            answer(output, &ports, |ports| render::port::list(&ports.ports))
        }
        PortCommand::Stats(args) if args.watch => watch(client, args).await,
        PortCommand::Stats(args) => {
            let ports = list(client, args.bridge, args.port).await?;
            answer(args.output, &ports, |ports| render::port::explained_stats(&ports.ports, args.queues))
        }
        // Needs no daemon: see `super::run`.
        PortCommand::Reasons { .. } => Ok(()),
    }
}

/// Explains one reason for drops, or all.
pub(super) fn reasons(wanted: Option<&str>, markdown: bool, output: Output) -> Result<(), Failure> {
    if markdown {
        return print(&drops::reference());
    }
    let mut reasons = drops::all();
    if let Some(wanted) = wanted {
        let known: Vec<_> = reasons.iter().map(|reason| reason.name).collect();
        if !known.contains(&wanted) {
            let instead = suggest::instead(wanted, &known);
            return Err(Failure::new(format_args!("unknown reason `{wanted}`; {instead}")));
        }
        reasons.retain(|reason| reason.name == wanted);
    }
    answer(output, &reasons, |reasons| render::port::reasons(reasons))
}

async fn list(
    client: &mut Client,
    bridge: Option<String>,
    name: Option<String>,
) -> Result<proto::Ports, Failure> {
    let request =
        proto::ListPortsRequest { bridge: bridge.unwrap_or_default(), name: name.unwrap_or_default() };
    Ok(client.list_ports(request).await?.into_inner())
}

fn admin(admin: Admin) -> String {
    control::model::format_admin(matches!(admin, Admin::Up)).into()
}

async fn add(client: &mut Client, args: PortAdd) -> Result<(), Failure> {
    let mut options = args.options.given();
    options.extend(args.others);
    let request = proto::AddPortRequest {
        bridge: args.port.bridge,
        name: args.port.port,
        r#type: args.kind,
        options: unique(options)?,
        admin: args.settings.admin.map(admin).unwrap_or_default(),
        mtu: args.settings.mtu,
        vlan: args.settings.vlan.unwrap_or_default(),
        protection: args.settings.protection.given(),
    };
    client.add_port(request).await?;
    Ok(())
}

async fn set(client: &mut Client, args: PortSet) -> Result<(), Failure> {
    let settings = args.settings;
    let request = proto::SetPortRequest {
        bridge: args.port.bridge,
        name: args.port.port,
        admin: settings.admin.map(admin),
        mtu: settings.mtu,
        vlan: settings.vlan,
        protection: settings.protection.given(),
    };
    client.set_port(request).await?;
    Ok(())
}

/// Rates each second, until interrupted or counted out.
async fn watch(client: &mut Client, args: PortStats) -> Result<(), Failure> {
    let mut interval = tokio::time::interval(Duration::from_secs(1));
    interval.tick().await;
    let mut before = list(client, args.bridge.clone(), args.port.clone()).await?;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        tokio::select! {
            _ = interval.tick() => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
        let now = list(client, args.bridge.clone(), args.port.clone()).await?;
        let rates = render::rates::between(&before, &now, args.queues);
        answer(args.output, &rates, |rates| separated(render::rates::show(rates), left))?;
        before = now;
        left -= 1;
    }
    Ok(())
}

/// An empty line between one second's table and the next.
fn separated(table: String, left: u64) -> String {
    if left > 1 { table + "\n" } else { table }
}
