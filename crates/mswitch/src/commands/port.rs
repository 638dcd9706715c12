//! `mswitch port`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use control::client::Client;
use control::options::{self, OptionError};
use control::{drops, proto, suggest};
use tonic::Code;

use super::{absolute, answer, note, note_former, print, single, unique};
use crate::cli::{Admin, Output, PortAdd, PortCommand, PortSet, PortStats};
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(client: &mut Client, command: PortCommand) -> Result<(), Failure> {
    match command {
        PortCommand::Add(args) => add(client, *args).await,
        PortCommand::Set(args) => set(client, *args).await,
        PortCommand::Del { port, if_exists } => {
            let request = proto::DeletePortRequest { bridge: port.bridge, name: port.port };
            match client.delete_port(request).await {
                Err(status) if if_exists && status.code() == Code::NotFound => {}
                deleted => deleted?.into_inner().notes.iter().for_each(note),
            }
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

/// Reports mistakes that need no daemon, by the names of flags. `socket`: `--socket` is given.
pub(super) fn check(command: &PortCommand, socket: bool) -> Result<(), Failure> {
    match command {
        PortCommand::Add(args) => check_options(args, socket),
        PortCommand::Set(args) if args.settings.is_empty() => Err(Failure::usage(
            "nothing to set; name a setting, such as `--admin up` (`mswitch port set --help` lists them)",
        )),
        _ => Ok(()),
    }
}

/// Checks the options of a port that is to be added.
fn check_options(args: &PortAdd, socket: bool) -> Result<(), Failure> {
    let flags = args.options.clone().given();
    let is_flag = |key: &str| flags.iter().any(|(flag, _)| flag == key);
    let all = unique(flags.iter().chain(&args.others).cloned().collect())?;
    let refused = match options::from_text(&args.kind, &all) {
        Ok(_) => return Ok(()),
        Err(refused) => refused,
    };
    let kind = &args.kind;
    Err(Failure::new(match refused {
        OptionError::Key { key, known } if is_flag(&key) => {
            let common = control::keys::names(control::keys::PORT);
            let own = known.iter().filter(|key| !common.contains(key));
            let flags: Vec<String> = own.map(|key| format!("--{key}")).collect();
            format!("`--{key}`: a {kind} port has no such option; expected {}", suggest::one_of(&flags))
        }
        OptionError::Missing(key) if key == "path" && socket => {
            format!(
                "`--path` is missing: the socket of a {kind} port (`--socket` is the daemon's control socket)"
            )
        }
        OptionError::Missing(key) => format!("`--{key}` is missing: required for a {kind} port"),
        OptionError::Value(message) => match message.split_once("`: ") {
            Some((key, rest)) if key.strip_prefix('`').is_some_and(is_flag) => {
                format!("`--{}`: {rest}", key.trim_start_matches('`'))
            }
            _ => message,
        },
        other => other.to_string(),
    }))
}

/// Options whose values are paths.
const PATHS: [&str; 3] = ["path", "read", "write"];

/// Prepares options for the daemon: current names, absolute paths.
fn prepared(args: &mut PortAdd) -> Result<BTreeMap<String, String>, Failure> {
    for (old, new) in args.options.former() {
        note_former(old, new);
    }
    let mut all = args.options.clone().given();
    for (key, value) in std::mem::take(&mut args.others) {
        match options::renamed(&args.kind, &key) {
            Some((old, new)) => {
                note_former(old, new);
                all.push((new.into(), value));
            }
            None => all.push((key, value)),
        }
    }
    for (key, value) in &mut all {
        // A leading @ marks an abstract socket.
        if PATHS.contains(&key.as_str()) && !value.is_empty() && !value.starts_with('@') {
            *value = absolute(Path::new(value))?.display().to_string();
        }
    }
    unique(all)
}

async fn add(client: &mut Client, mut args: PortAdd) -> Result<(), Failure> {
    let options = prepared(&mut args)?;
    let request = proto::AddPortRequest {
        bridge: args.port.bridge,
        name: args.port.port,
        r#type: args.kind,
        options,
        admin: args.settings.admin.map(admin).unwrap_or_default(),
        mtu: args.settings.mtu,
        vlan: args.settings.vlan.unwrap_or_default(),
        openflow_port: args.openflow_port,
        p4_port: args.p4_port,
        protection: args.settings.protection.given(),
    };
    let (bridge, name, kind) = (request.bridge.clone(), request.name.clone(), request.r#type.clone());
    let status = match client.add_port(request).await {
        Ok(done) => {
            done.into_inner().notes.iter().for_each(note);
            return Ok(());
        }
        Err(status) => status,
    };
    if args.may_exist && status.code() == Code::AlreadyExists {
        // Another port may have the resource of the new one.
        let there = list(client, Some(bridge.clone()), Some(name.clone())).await.unwrap_or_default().ports;
        match there.first() {
            Some(port) if port.r#type == kind => return Ok(()),
            Some(port) => {
                return Err(Failure::new(format_args!(
                    "bridge \"{bridge}\" has a port \"{name}\" of type {}, not {kind}; remove it with `mswitch port \
                     del {bridge} {name}`, or choose another name",
                    port.r#type
                )));
            }
            None => {}
        }
    }
    Err(status.into())
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

/// Prints rates each second, until interrupted or for the given number of times.
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

/// Adds an empty line unless the table is the last one.
fn separated(table: String, left: u64) -> String {
    if left > 1 { table + "\n" } else { table }
}
