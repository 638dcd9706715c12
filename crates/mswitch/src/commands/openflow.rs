//! `mswitch openflow`: flows, groups and meters of a bridge, over OpenFlow.
//!
//! The daemon says where the bridge's management socket is; all else is asked there, in the syntax of `ovs-ofctl`.

mod connection;
mod differences;
mod shown;
mod tables;

use std::path::{Path, PathBuf};

use control::client::Client;
use control::proto;
use openflow::message::{Body, FlowMod, FlowModCommand, GroupModCommand, MeterModCommand};
use openflow::multipart::{FlowStatsRequest, GroupDescRequest, IdRequest, PortDescRequest, Reply, Request};
use openflow::version::{group, meter};
use openflow::{Version, text};
use serde::Serialize;

use super::{absolute, answer};
use crate::cli::{Changes, OpenFlowCommand, OpenFlowSet, Output};
use crate::failure::Failure;
use crate::render;
use connection::{Change, Connection};
use differences::{Differences, Wanted};
use shown::{Flow, FlowTable, Group, Meter, OpenFlowPort, Shown};
use tables::TableNames;

/// Version for flows: that of bundles, and the last one with `load`.
const FLOWS: Version = Version::V1_4;

/// Version for groups: that of their selection methods and of their buckets' ids.
const GROUPS: Version = Version::V1_5;

pub(super) async fn run(client: &mut Client, command: OpenFlowCommand) -> Result<(), Failure> {
    match command {
        OpenFlowCommand::Flows { bridge, filter, stats, output } => {
            let (mut connection, names) = connect(client, &bridge, FLOWS).await?;
            let version = connection.version();
            let filter = filter.join(",");
            let resolved =
                names.resolve(&filter).map_err(|failure| failure.about(format_args!("`{filter}`")))?;
            let flow = text::parse_flow(&resolved, FlowModCommand::Delete, version);
            let flow = flow.map_err(|error| Failure::usage(format_args!("`{filter}`: {error}")))?;
            let parts = connection.list(Request::Flow(request(flow))).await?;
            let entries = parts.into_iter().flat_map(|part| match part {
                Reply::Flow(flows) => flows,
                _ => Vec::new(),
            });
            let mut flows = Vec::new();
            for flow in entries {
                let mut shown = Flow::new(&flow, version)?;
                if stats.no_stats {
                    shown.forget_statistics();
                }
                shown.name_tables(&names);
                flows.push(shown);
            }
            list(output, &flows, "no flows")
        }
        OpenFlowCommand::Groups { bridge, stats, output } => {
            let (mut connection, names) = connect(client, &bridge, GROUPS).await?;
            let request = match stats {
                true => Request::Group(IdRequest(group::ALL)),
                false => Request::GroupDesc(GroupDescRequest::default()),
            };
            let parts = connection.list(request).await?;
            let version = connection.version();
            let groups = parts.iter().flat_map(|part| match part {
                Reply::Group(groups) => groups.iter().map(Group::counted).collect(),
                Reply::GroupDesc(groups) => {
                    groups.iter().map(|group| Group::new(group, version, &names)).collect()
                }
                _ => Vec::<Group>::new(),
            });
            list(output, &groups.collect::<Vec<_>>(), "no groups")
        }
        OpenFlowCommand::Meters { bridge, stats, output } => {
            let (mut connection, _) = connect(client, &bridge, GROUPS).await?;
            let all = IdRequest(meter::ALL);
            let parts =
                connection.list(if stats { Request::Meter(all) } else { Request::MeterConfig(all) }).await?;
            let meters = parts.iter().flat_map(|part| match part {
                Reply::Meter(meters) => meters.iter().map(Meter::counted).collect(),
                Reply::MeterConfig(meters) => meters.iter().map(Meter::new).collect(),
                _ => Vec::<Meter>::new(),
            });
            list(output, &meters.collect::<Vec<_>>(), "no meters")
        }
        OpenFlowCommand::Tables { bridge, all, output } => {
            let (mut connection, names) = connect(client, &bridge, FLOWS).await?;
            let parts = connection.list(Request::Table).await?;
            let tables = parts.iter().flat_map(|part| match part {
                Reply::Table(tables) => tables.iter().map(|table| FlowTable::new(table, &names)).collect(),
                _ => Vec::<FlowTable>::new(),
            });
            let tables: Vec<_> = tables.filter(|table| all || table.is_used()).collect();
            answer(output, &tables, |tables| shown::tables(tables))
        }
        OpenFlowCommand::Ports { bridge, output } => {
            let request = Request::PortDesc(PortDescRequest::default());
            let (mut connection, _) = connect(client, &bridge, FLOWS).await?;
            let parts = connection.list(request).await?;
            let ports = parts.iter().flat_map(|part| match part {
                Reply::PortDesc(ports) => ports.iter().map(OpenFlowPort::new).collect(),
                _ => Vec::<OpenFlowPort>::new(),
            });
            answer(output, &ports.collect::<Vec<_>>(), |ports| shown::ports(ports))
        }
        OpenFlowCommand::Controllers { bridge, output } => {
            let openflow = client.get_open_flow(proto::GetOpenFlowRequest { bridge }).await?.into_inner();
            answer(output, &openflow, render::openflow::controllers)
        }
        OpenFlowCommand::Set(set) => set_connections(client, set).await,
        OpenFlowCommand::AddFlow(changes) => flows(client, changes, FlowModCommand::Add).await,
        OpenFlowCommand::ModFlows { changes, strict } => {
            let command = if strict { FlowModCommand::ModifyStrict } else { FlowModCommand::Modify };
            flows(client, changes, command).await
        }
        OpenFlowCommand::DelFlows { changes, strict } => {
            let command = if strict { FlowModCommand::DeleteStrict } else { FlowModCommand::Delete };
            flows(client, or_all(changes), command).await
        }
        OpenFlowCommand::ReplaceFlows(changes) => {
            let (mut connection, differences) = compare(client, &changes).await?;
            connection.change(differences.changes()).await
        }
        OpenFlowCommand::DiffFlows(changes) => {
            let compared = compare(client, &changes).await;
            let (_, differences) = compared.map_err(Failure::of_comparison)?;
            match differences.text() {
                text if text.is_empty() => Ok(()),
                text => {
                    super::print(&text)?;
                    Err(Failure::differs())
                }
            }
        }
        OpenFlowCommand::PacketOut(changes) => {
            change(client, changes, FLOWS, |line, version| {
                Ok(Body::PacketOut(text::parse_packet_out(line, version)?))
            })
            .await
        }
        OpenFlowCommand::AddGroup(changes) => groups(client, changes, GroupModCommand::Add).await,
        OpenFlowCommand::ModGroup(changes) => groups(client, changes, GroupModCommand::Modify).await,
        OpenFlowCommand::DelGroups(changes) => groups(client, or_all(changes), GroupModCommand::Delete).await,
        OpenFlowCommand::InsertBuckets(changes) => {
            groups(client, changes, GroupModCommand::InsertBucket).await
        }
        OpenFlowCommand::RemoveBuckets(changes) => {
            groups(client, changes, GroupModCommand::RemoveBucket).await
        }
        OpenFlowCommand::AddMeter(changes) => meters(client, changes, MeterModCommand::Add).await,
        OpenFlowCommand::ModMeter(changes) => meters(client, changes, MeterModCommand::Modify).await,
        OpenFlowCommand::DelMeters(changes) => meters(client, or_all(changes), MeterModCommand::Delete).await,
    }
}

/// Connects to a bridge. Returns the names of its tables, too.
async fn connect(
    client: &mut Client,
    bridge: &str,
    newest: Version,
) -> Result<(Connection, TableNames), Failure> {
    let request = proto::GetOpenFlowRequest { bridge: bridge.to_owned() };
    let proto::OpenFlow { management, tables, .. } = client.get_open_flow(request).await?.into_inner();
    if management.is_empty() {
        return Err(Failure::new(format_args!(
            "bridge \"{bridge}\" has no management socket; remove `management` from its `[bridge.openflow]`"
        )));
    }
    Ok((Connection::open(Path::new(&management), newest).await?, TableNames::new(tables)))
}

/// Compares the flows of a bridge with those of a command.
async fn compare(client: &mut Client, changes: &Changes) -> Result<(Connection, Differences), Failure> {
    if changes.changes.is_empty() && changes.file.is_none() {
        return Err(Failure::usage("no flow is named; name the wanted ones, or a file with `--file`"));
    }
    let lines = lines(changes)?;
    let (mut connection, names) = connect(client, &changes.bridge, FLOWS).await?;
    let version = connection.version();
    let mut wanted = Vec::new();
    for (place, line) in lines {
        let text = format!("{place}`{line}`");
        let resolved = names.resolve(&line).map_err(|failure| failure.about(&text))?;
        let flow = text::parse_flow(&resolved, FlowModCommand::Add, version);
        let flow = flow.map_err(|error| Failure::usage(format_args!("{text}: {error}")))?;
        wanted.push(Wanted { flow, line, text });
    }
    let all = text::parse_flow("", FlowModCommand::Delete, version).map_err(Failure::new)?;
    let parts = connection.list(Request::Flow(request(all))).await?;
    let there = parts.into_iter().flat_map(|part| match part {
        Reply::Flow(flows) => flows,
        _ => Vec::new(),
    });
    let differences = Differences::new(&there.collect::<Vec<_>>(), wanted, version, &names)?;
    Ok((connection, differences))
}

/// Asks for the flows that a deletion would remove.
fn request(flow: FlowMod) -> FlowStatsRequest {
    FlowStatsRequest {
        table_id: flow.table_id,
        out_port: flow.out_port,
        out_group: flow.out_group,
        cookie: flow.cookie,
        cookie_mask: flow.cookie_mask,
        matching: flow.matching,
    }
}

fn list<T: Shown + Serialize>(output: Output, list: &[T], nothing: &str) -> Result<(), Failure> {
    answer(output, &list, |list| match list.is_empty() {
        true => format!("{nothing}\n"),
        false => list.iter().map(|item| format!("{}\n", item.text())).collect(),
    })
}

async fn flows(client: &mut Client, changes: Changes, command: FlowModCommand) -> Result<(), Failure> {
    change(client, changes, FLOWS, |line, version| {
        Ok(Body::FlowMod(Box::new(text::parse_flow(line, command, version)?)))
    })
    .await
}

async fn groups(client: &mut Client, changes: Changes, command: GroupModCommand) -> Result<(), Failure> {
    change(client, changes, GROUPS, |line, version| {
        Ok(Body::GroupMod(text::parse_group(line, command, version)?))
    })
    .await
}

async fn meters(client: &mut Client, changes: Changes, command: MeterModCommand) -> Result<(), Failure> {
    change(client, changes, GROUPS, |line, _| Ok(Body::MeterMod(text::parse_meter(line, command)?))).await
}

/// Makes changes of one kind, all or none.
async fn change(
    client: &mut Client,
    changes: Changes,
    newest: Version,
    parse: impl Fn(&str, Version) -> Result<Body, text::ParseError>,
) -> Result<(), Failure> {
    let lines = lines(&changes)?;
    let (mut connection, names) = connect(client, &changes.bridge, newest).await?;
    let version = connection.version();
    let parsed = lines.into_iter().map(|(place, line)| {
        let text = format!("{place}`{line}`");
        let resolved = names.resolve(&line).map_err(|failure| failure.about(&text))?;
        match parse(&resolved, version) {
            Ok(body) => Ok(Change { body, text }),
            Err(error) => Err(Failure::usage(format_args!("{text}: {error}"))),
        }
    });
    connection.change(parsed.collect::<Result<_, _>>()?).await
}

/// Returns the changes of the command line and of the file, those of the file with their place.
fn lines(changes: &Changes) -> Result<Vec<(String, String)>, Failure> {
    let mut lines: Vec<_> = changes.changes.iter().map(|line| (String::new(), line.clone())).collect();
    let Some(file) = &changes.file else { return Ok(lines) };
    let read = match file.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin().lock()),
        false => std::fs::read_to_string(file),
    };
    let read = read.map_err(|error| Failure::new(format_args!("{}: {error}", file.display())))?;
    for (number, line) in read.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            lines.push((format!("{}:{}: ", file.display(), number + 1), line.to_owned()));
        }
    }
    Ok(lines)
}

/// A deletion without a text deletes everything.
fn or_all(mut changes: Changes) -> Changes {
    if changes.changes.is_empty() && changes.file.is_none() {
        changes.changes.push(String::new());
    }
    changes
}

async fn set_connections(client: &mut Client, set: OpenFlowSet) -> Result<(), Failure> {
    let path = |file: Option<PathBuf>| {
        file.map(|file| absolute(&file).map(|file| file.display().to_string())).transpose()
    };
    let list = |items: Vec<String>| (!items.is_empty()).then_some(proto::OpenFlowList { items });
    let controllers = match set.no_controllers {
        true => Some(proto::OpenFlowList::default()),
        false => list(set.controllers),
    };
    let request = proto::SetOpenFlowRequest {
        bridge: set.bridge,
        controllers,
        fail_mode: set.fail_mode,
        versions: list(set.versions),
        datapath_id: set.datapath_id,
        private_key: path(set.private_key)?,
        certificate: path(set.certificate)?,
        ca_cert: path(set.ca_cert)?,
    };
    client.set_open_flow(request).await?;
    Ok(())
}
