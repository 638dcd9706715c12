//! The gRPC server for the calls of [`crate::proto`].
//!
//! Each call runs on a thread for blocking work, see [`crate::state`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use fabric::counters::QueueSnapshot;
use fabric::{Mirror, PortIndex, PortSettings, VlanMode};
use logic::MacTable;
use packet::ether::MacAddr;
use ports::Spec;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::author::Author;
use crate::desired::Desired;
use crate::diff::{Difference, KeyChange, Kind, Object};
use crate::edit::{Edit, PortChange};
use crate::events;
use crate::file::{self, Depth, Edited, Secrets};
use crate::logic_state::LogicView;
use crate::model::{
    BridgeConfig, DaemonConfig, LogicConfig, PortConfig, StationConfig, check_mtu, check_openflow_port,
    check_p4_port, check_vlan, parse_admin,
};
use crate::openflow::settings::{
    OpenFlowChange, SettingError, parse_controllers, parse_datapath_id, parse_fail_mode, parse_versions,
};
use crate::proto::switch_server::Switch;
use crate::refusal::Refusal;
use crate::sflow::SflowChange;
use crate::sflow::settings::{check_header, check_polling, check_sampling, parse_agent};
use crate::state::{Bridge, Bridges, State, every, find, find_port};
use crate::{capture, convert, cpulist, logic_state, options, protection, proto, suggest, trace, vlan};

/// The gRPC service.
#[derive(Clone)]
pub struct Server {
    desired: Arc<Desired>,
    config_file: Option<PathBuf>,
    started: Instant,
    observers: Arc<Semaphore>,
}

/// Maximum number of concurrent captures and live traces: each needs packet memory and a thread.
const MAX_OBSERVERS: usize = 64;

type Reply<T> = Result<Response<T>, Status>;

impl Server {
    /// Serves a switch that was started with `config_file`.
    pub fn new(desired: Arc<Desired>, config_file: Option<PathBuf>) -> Self {
        let observers = Arc::new(Semaphore::new(MAX_OBSERVERS));
        Self { desired, config_file, started: Instant::now(), observers }
    }

    /// Runs a call that reads the running state.
    async fn read<T: Send + 'static>(
        &self,
        call: impl FnOnce(&State) -> Result<T, Refusal> + Send + 'static,
    ) -> Reply<T> {
        self.call(move |desired| call(desired.state())).await
    }

    /// Runs a call that makes a single change.
    async fn edit(
        &self,
        by: Author,
        edit: impl FnOnce() -> Result<Edit, Refusal> + Send + 'static,
    ) -> Reply<proto::Done> {
        self.edit_noting(by, edit, |_, _| None).await
    }

    /// Makes a change and notes some of the objects that it changed.
    async fn edit_noting(
        &self,
        by: Author,
        edit: impl FnOnce() -> Result<Edit, Refusal> + Send + 'static,
        note: impl Fn(&State, &Difference) -> Option<String> + Send + 'static,
    ) -> Reply<proto::Done> {
        self.call(move |desired| {
            let done = edit().and_then(|edit| desired.edit(edit, &by));
            let done = done.inspect_err(|refusal| tracing::debug!(%by, "refused: {refusal}"))?;
            let notes = done.iter().filter_map(|changed| note(desired.state(), changed)).collect();
            Ok(proto::Done { notes })
        })
        .await
    }

    /// Runs `call` on a thread for blocking work.
    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Desired) -> Result<T, Refusal> + Send + 'static,
    ) -> Reply<T> {
        let desired = self.desired.clone();
        match tokio::task::spawn_blocking(move || {
            call(&desired).map_err(|refusal| desired.state().explain(refusal))
        })
        .await
        {
            Ok(Ok(reply)) => Ok(Response::new(reply)),
            Ok(Err(refusal)) => Err(status(&refusal)),
            Err(error) => {
                Err(Status::internal(format!("the call failed: {error}; this is a bug in mswitch")))
            }
        }
    }
}

/// Returns the note about a static station that is at another port, or that another port lists.
fn elsewhere_note(state: &State, bridge: &str, station: &StationConfig) -> Option<String> {
    let bridges = state.bridges();
    let bridge = bridges.get(bridge)?;
    let StationConfig { mac, vlan, port } = station;
    let entry = bridge.logic.views().stations.and_then(|table| table.entry(*vlan, *mac));
    let here = bridge.ports.get(port)?.at.port;
    let name = |at| bridge.ports.iter().find(|(_, port)| port.at.port == at).map(|(name, _)| name);
    if let Some(entry) = entry.filter(|entry| entry.port != here)
        && let Some(other) = name(entry.port)
    {
        let state = match (entry.is_static, entry.is_sticky) {
            (true, _) => "had a static entry".to_owned(),
            (_, true) => "was sticky".into(),
            _ => format!("was heard {} s ago", entry.age_seconds),
        };
        return Some(format!("station {mac} {state} at port {other}; its packets now go to port {port}"));
    }
    let lists = |port: &crate::state::Port| port.config.settings.security.stations.contains(mac);
    let (other, _) = bridge.ports.iter().find(|(name, other)| *name != port && lists(other))?;
    let lists_too = bridge.ports.get(port).is_some_and(lists);
    (!lists_too).then(|| {
        format!("port {other} lists station {mac} in `stations`; the static entry at port {port} comes first")
    })
}

/// Returns the note about a mirror's target that has stations or counted packets and will belong to the mirror.
fn target_note(state: &State, bridge: &str, mirror: &Mirror) -> Option<String> {
    let bridges = state.bridges();
    let port = find_port(&bridges, bridge, &mirror.to).ok().filter(|_| mirror.owns(&mirror.to))?;
    let table = bridges.get(bridge).and_then(|bridge| bridge.logic.views().stations);
    let has_stations = table.is_some_and(|table| table.stations_at(port.at.port) > 0);
    let counters = state.switch().counters(port.at).unwrap_or_default();
    let is_used = counters.rx.iter().chain(&counters.tx).any(|queue| *queue != QueueSnapshot::default());
    let to = &mirror.to;
    (has_stations || is_used).then(|| {
        format!("port {to} now receives only the mirror's copies; its own traffic is dropped (`mirror-port`)")
    })
}

/// Reserves a place for a capture or live trace.
fn reserve_observer(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Status> {
    places.clone().try_acquire_owned().map_err(|_| {
        Status::resource_exhausted(format!(
            "the maximum of {MAX_OBSERVERS} captures and live traces are running; end one of them first"
        ))
    })
}

fn status(refusal: &Refusal) -> Status {
    let message = refusal.to_string();
    match refusal {
        Refusal::NoBridge(_) | Refusal::NoPort { .. } => Status::not_found(message),
        Refusal::BridgeExists(_) | Refusal::PortExists { .. } | Refusal::Shared { .. } => {
            Status::already_exists(message)
        }
        Refusal::Value(_)
        | Refusal::Logic(_)
        | Refusal::File(_)
        | Refusal::Mirror { .. }
        | Refusal::Sflow(_) => Status::invalid_argument(message),
        Refusal::Limit(_) => Status::resource_exhausted(message),
        Refusal::NotOpenFlow { .. }
        | Refusal::Database(_)
        | Refusal::Unmet { .. }
        | Refusal::Port { .. }
        | Refusal::Switch(_)
        | Refusal::Trace(_)
        | Refusal::Other(_) => Status::failed_precondition(message),
    }
}

/// Notes that a port that was added uses an interface which existed, or waits for one: its name may be mistyped.
fn says_of_interface(state: &State, added: &Difference) -> Option<String> {
    let Object::Port { bridge, port: name } = &added.object else { return None };
    let bridges = state.bridges();
    let port = find_port(&bridges, bridge, name).ok()?;
    let notice = port.open.as_ref().and_then(|open| open.notice());
    let has_interface = matches!(port.config.spec, Spec::Netdev(_) | Spec::Tap(_));
    let down = convert::down_reason(port).filter(|_| has_interface && port.config.settings.admin_up);
    let down = down.map(|reason| format!("port `{name}` is down: {reason}"));
    let all: Vec<String> = notice.into_iter().chain(down).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Returns a queue's number in a request.
fn queue_number(queue: u32) -> Result<u16, Refusal> {
    u16::try_from(queue)
        .map_err(|_| other(format!("queue {queue} is out of range; expected 0 to {}", u16::MAX)))
}

fn other(error: impl std::fmt::Display) -> Refusal {
    Refusal::Other(error.to_string())
}

fn logic_config(name: String, params: BTreeMap<String, String>) -> LogicConfig {
    let default = LogicConfig::default();
    LogicConfig {
        name: if name.is_empty() { default.name } else { name },
        params: params.into_iter().collect(),
    }
}

fn port_config(request: &proto::AddPortRequest) -> Result<PortConfig, Refusal> {
    let refused = |message: String| Refusal::Port {
        bridge: request.bridge.clone(),
        port: request.name.clone(),
        message,
    };
    let mut settings = PortSettings::new(&request.name);
    if !request.admin.is_empty() {
        settings.admin_up = parse_admin(&request.admin)?;
    }
    if !request.vlan.is_empty() {
        settings.vlan = vlan::parse(&request.vlan).map_err(|error| refused(error.to_string()))?;
    }
    protection::apply(&mut settings, &request.protection).map_err(|error| refused(error.to_string()))?;
    if let Some(mtu) = request.mtu {
        settings.mtu = check_mtu(mtu.into())?;
    }
    let spec =
        options::from_text(&request.r#type, &request.options).map_err(|error| refused(error.to_string()))?;
    let openflow_port = request.openflow_port.map(|number| check_openflow_port(number.into())).transpose()?;
    let p4_port = request.p4_port.map(|number| check_p4_port(number.into())).transpose()?;
    Ok(PortConfig { openflow_port, p4_port, ..PortConfig::new(settings, spec) })
}

fn mac_table<'a>(bridge: &'a Bridge, name: &str) -> Result<&'a dyn MacTable, Refusal> {
    bridge.logic.views().stations.ok_or_else(|| {
        other(format!(
            "the logic of bridge \"{name}\", `{}`, has no MAC table; `mswitch logic set {name} learning` sets one that has",
            bridge.logic.name()
        ))
    })
}

fn vid(vlan: u32) -> Result<u16, Refusal> {
    Ok(check_vlan(vlan.into())?)
}

fn mac(text: &str) -> Result<MacAddr, Refusal> {
    text.parse().map_err(other)
}

#[tonic::async_trait]
impl Switch for Server {
    async fn get_status(&self, _: Request<proto::GetStatusRequest>) -> Reply<proto::Status> {
        let config_file = self.config_file.as_ref().map(|path| path.display().to_string());
        let uptime_seconds = self.started.elapsed().as_secs();
        let file = self.config_file.clone();
        self.call(move |desired| {
            let status = convert::status(desired.state(), &desired.state().bridges())?;
            let unsaved = file.map_or(Ok(0), |file| desired.unsaved(&file));
            let config_error = unsaved.as_ref().err().map(|error| error.first());
            let unsaved = unsaved.unwrap_or_default() as u32;
            Ok(proto::Status { uptime_seconds, config_file, unsaved, config_error, ..status })
        })
        .await
    }

    async fn add_bridge(&self, request: Request<proto::AddBridgeRequest>) -> Reply<proto::Done> {
        let by = Author::of(&request);
        let proto::AddBridgeRequest { name, logic, params } = request.into_inner();
        let config = BridgeConfig { logic: logic_config(logic, params), ..BridgeConfig::new(&name) };
        self.edit(by, move || Ok(Edit::AddBridge(Box::new(config)))).await
    }

    async fn delete_bridge(&self, request: Request<proto::DeleteBridgeRequest>) -> Reply<proto::Done> {
        let (by, name) = (Author::of(&request), request.into_inner().name);
        self.edit(by, move || Ok(Edit::RemoveBridge(name))).await
    }

    async fn list_bridges(&self, request: Request<proto::ListBridgesRequest>) -> Reply<proto::Bridges> {
        let wanted = request.into_inner().name;
        self.read(move |state| {
            let all = state.bridges();
            if !wanted.is_empty() {
                find(&all, &wanted)?;
            }
            let bridges = all
                .iter()
                .filter(|(name, _)| wanted.is_empty() || **name == wanted)
                .map(|(name, bridge)| convert::bridge(state, name, bridge))
                .collect::<Result<_, _>>()?;
            Ok(proto::Bridges { bridges })
        })
        .await
    }

    async fn add_port(&self, request: Request<proto::AddPortRequest>) -> Reply<proto::Done> {
        let (by, request) = (Author::of(&request), request.into_inner());
        let edit = move || {
            let port = Box::new(port_config(&request)?);
            Ok(Edit::AddPort { bridge: request.bridge, port })
        };
        self.edit_noting(by, edit, says_of_interface).await
    }

    async fn set_port(&self, request: Request<proto::SetPortRequest>) -> Reply<proto::Done> {
        let (by, request) = (Author::of(&request), request.into_inner());
        self.edit(by, move || {
            let change = PortChange {
                admin_up: request.admin.as_deref().map(parse_admin).transpose()?,
                mtu: request.mtu.map(|mtu| check_mtu(mtu.into())).transpose()?,
                vlan: request.vlan.as_deref().map(vlan::parse).transpose().map_err(other)?,
                protection: request.protection,
            };
            Ok(Edit::SetPort { bridge: request.bridge, port: request.name, change })
        })
        .await
    }

    async fn delete_port(&self, request: Request<proto::DeletePortRequest>) -> Reply<proto::Done> {
        let by = Author::of(&request);
        let proto::DeletePortRequest { bridge, name } = request.into_inner();
        let port = name.clone();
        let edit = move || Ok(Edit::RemovePort { bridge, port });
        self.edit_noting(by, edit, move |_, changed| gone_with(&name, changed)).await
    }

    async fn list_ports(&self, request: Request<proto::ListPortsRequest>) -> Reply<proto::Ports> {
        let wanted = request.into_inner();
        let started = self.started;
        self.read(move |state| {
            let bridges = state.bridges();
            if !wanted.bridge.is_empty() {
                find(&bridges, &wanted.bridge)?;
                if !wanted.name.is_empty() {
                    find_port(&bridges, &wanted.bridge, &wanted.name)?;
                }
            }
            let matches = |wanted: &str, name: &str| wanted.is_empty() || wanted == name;
            let at_nanoseconds = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let ports = every(&bridges)
                .filter(|(bridge, name, _)| matches(&wanted.bridge, bridge) && matches(&wanted.name, name))
                .map(|(bridge, name, port)| convert::port(state, &bridges, bridge, name, port))
                .collect::<Result<_, _>>()?;
            Ok(proto::Ports { ports, at_nanoseconds })
        })
        .await
    }

    async fn list_workers(&self, _: Request<proto::ListWorkersRequest>) -> Reply<proto::Workers> {
        self.read(|state| {
            let workers = convert::workers(state, &state.bridges());
            let stuck = convert::stuck(state, None);
            Ok(proto::Workers { workers, cycles_per_second: fabric::clock::frequency(), stuck })
        })
        .await
    }

    async fn add_workers(&self, request: Request<proto::AddWorkersRequest>) -> Reply<proto::Done> {
        let (by, cpus) = (Author::of(&request), request.into_inner().cpus);
        let edit = move || {
            let added = cpulist::parse_listed(&cpus).map_err(other)?;
            let cpus: Vec<_> = added.iter().map(|listed| listed.cpu).collect();
            cpulist::check_online(&cpus).map_err(other)?;
            Ok(Edit::AddWorkers(added))
        };
        self.edit_noting(by, edit, |_, changed| replaces_unpinned(changed)).await
    }

    async fn remove_workers(&self, request: Request<proto::RemoveWorkersRequest>) -> Reply<proto::Done> {
        let (by, cpus) = (Author::of(&request), request.into_inner().cpus);
        self.edit(by, move || Ok(Edit::RemoveWorkers(cpulist::parse_workers(&cpus).map_err(other)?))).await
    }

    async fn pin_queue(&self, request: Request<proto::PinQueueRequest>) -> Reply<proto::Done> {
        let by = Author::of(&request);
        let proto::PinQueueRequest { bridge, port, queue, cpu } = request.into_inner();
        self.call(move |desired| {
            let before = desired.state().pin(&bridge, &port, queue_number(queue)?, cpu as usize)?;
            let (from, to) = (convert::cpu_name(before), convert::cpu_name(Some(cpu as usize)));
            let keys = vec![KeyChange { key: format!("queue {queue}"), from, to, default: None }];
            let object = Object::Port { bridge, port };
            command(desired, &by, "pin", Difference { object, kind: Kind::Changed, keys });
            Ok(proto::Done::default())
        })
        .await
    }

    async fn unpin_queue(&self, request: Request<proto::UnpinQueueRequest>) -> Reply<proto::Done> {
        let by = Author::of(&request);
        let proto::UnpinQueueRequest { bridge, port, queue } = request.into_inner();
        self.call(move |desired| {
            let cpu = desired.state().unpin(&bridge, &port, queue_number(queue)?)?;
            // Its worker may be about to be removed.
            desired.wake();
            let (key, from) = (format!("queue {queue}"), convert::cpu_name(cpu));
            let keys = vec![KeyChange { key, from, to: "any".into(), default: None }];
            let object = Object::Port { bridge, port };
            command(desired, &by, "unpin", Difference { object, kind: Kind::Changed, keys });
            Ok(proto::Done::default())
        })
        .await
    }

    async fn set_logic(&self, request: Request<proto::SetLogicRequest>) -> Reply<proto::LogicSet> {
        let by = Author::of(&request);
        let proto::SetLogicRequest { bridge, logic, params } = request.into_inner();
        let logic = logic_config(logic, params);
        self.call(move |desired| {
            desired.edit(Edit::SetLogic { bridge: bridge.clone(), logic }, &by)?;
            let state = desired.state();
            // The bridge may have been removed since.
            let view = find(&state.bridges(), &bridge).map(|found| LogicView::of(found, state.switch()));
            let missing_ports = view.map(|view| view.missing_ports()).unwrap_or_default();
            // Taken, so that a repeated command does not repeat them.
            let notes =
                state.bridges().get_mut(&bridge).map(|found| std::mem::take(&mut found.not_taken_over));
            let not_taken_over = notes.unwrap_or_default();
            Ok(proto::LogicSet { missing_ports, stuck: convert::stuck(state, Some(&bridge)), not_taken_over })
        })
        .await
    }

    async fn get_logic(&self, request: Request<proto::GetLogicRequest>) -> Reply<proto::Logic> {
        let proto::GetLogicRequest { bridge, table, rows } = request.into_inner();
        let rows = rows.map_or(usize::MAX, |rows| rows as usize);
        self.read(move |state| {
            let view = LogicView::of(find(&state.bridges(), &bridge)?, state.switch());
            view.show(&bridge, Some(table.as_str()).filter(|table| !table.is_empty()), rows)
        })
        .await
    }

    async fn call_logic(&self, request: Request<proto::CallLogicRequest>) -> Reply<proto::LogicReply> {
        let by = Author::of(&request);
        let proto::CallLogicRequest { bridge, command: words } = request.into_inner();
        self.call(move |desired| {
            // The lock on the bridges is released: the command may take long.
            let logic = find(&desired.state().bridges(), &bridge)?.logic.clone();
            let message = logic.call(&words)?;
            let (object, from, to) = (Object::Bridge(bridge), String::new(), shell_words::join(&words));
            let keys = vec![KeyChange { key: "command".into(), from, to, default: None }];
            command(desired, &by, "call", Difference { object, kind: Kind::Added, keys });
            Ok(proto::LogicReply { message })
        })
        .await
    }

    async fn list_logics(&self, request: Request<proto::ListLogicsRequest>) -> Reply<proto::LogicTypes> {
        let name = request.into_inner().name;
        // Describing a logic may read a file.
        self.call(move |_| logic_state::types(&name)).await
    }

    async fn get_open_flow(&self, request: Request<proto::GetOpenFlowRequest>) -> Reply<proto::OpenFlow> {
        let wanted = request.into_inner();
        self.read(move |state| {
            let bridges = state.bridges();
            let bridge = find(&bridges, &wanted.bridge)?;
            let openflow = bridge.openflow.clone().ok_or_else(|| Refusal::NotOpenFlow {
                bridge: wanted.bridge.clone(),
                logic: bridge.config.name.clone(),
            })?;
            drop(bridges);
            Ok(openflow.report())
        })
        .await
    }

    async fn set_open_flow(&self, request: Request<proto::SetOpenFlowRequest>) -> Reply<proto::Done> {
        let (by, request) = (Author::of(&request), request.into_inner());
        self.edit(by, move || {
            let refused =
                |key: &'static str| move |error: SettingError| Refusal::Other(format!("`{key}`: {error}"));
            let texts = |list: &'_ proto::OpenFlowList| list.items.clone();
            let controllers = request.controllers.as_ref().map(texts).map(|texts| {
                parse_controllers(texts.iter().map(String::as_str)).map_err(refused("controllers"))
            });
            let versions =
                request.versions.as_ref().map(texts).map(|texts| {
                    parse_versions(texts.iter().map(String::as_str)).map_err(refused("versions"))
                });
            let fail_mode = request.fail_mode.as_deref().map(parse_fail_mode);
            let datapath_id = request.datapath_id.as_deref().map(parse_datapath_id);
            let change = OpenFlowChange {
                controllers: controllers.transpose()?,
                fail_mode: fail_mode.transpose().map_err(refused("fail-mode"))?,
                versions: versions.transpose()?,
                datapath_id: datapath_id.transpose().map_err(refused("datapath-id"))?,
                tls: [request.private_key, request.certificate, request.ca_cert]
                    .map(|file| file.map(Into::into)),
            };
            Ok(Edit::SetOpenFlow { bridge: request.bridge, change })
        })
        .await
    }

    async fn list_groups(&self, request: Request<proto::ListGroupsRequest>) -> Reply<proto::Groups> {
        let name = request.into_inner().bridge;
        self.read(move |state| convert::groups(&name, find(&state.bridges(), &name)?)).await
    }

    async fn list_fdb(&self, request: Request<proto::ListFdbRequest>) -> Reply<proto::Fdb> {
        let proto::ListFdbRequest { bridge: name, port, vlan, mac: address } = request.into_inner();
        self.read(move |state| {
            let bridges = state.bridges();
            let bridge = find(&bridges, &name)?;
            let mut found = mac_table(bridge, &name)?.entries();
            let at = port_index(&bridges, &name, &port)?;
            let vlan = vlan.map(vid).transpose()?;
            let address = if address.is_empty() { None } else { Some(mac(&address)?) };
            found.retain(|entry| {
                at.is_none_or(|port| entry.port == port)
                    && vlan.is_none_or(|vlan| entry.vid == vlan)
                    && address.is_none_or(|address| entry.mac == address)
            });
            found.sort_by_key(|entry| (entry.vid, entry.mac));
            let entries = found.into_iter().filter_map(|entry| {
                // Skip an entry whose port was just removed: the entry is about to be removed too.
                let (port, _) = bridge.ports.iter().find(|(_, port)| port.at.port == entry.port)?;
                Some(proto::FdbEntry {
                    mac: entry.mac.to_string(),
                    vlan: entry.vid.into(),
                    port: port.clone(),
                    age_seconds: entry.age_seconds,
                    r#static: entry.is_static,
                    sticky: entry.is_sticky,
                })
            });
            Ok(proto::Fdb { entries: entries.collect() })
        })
        .await
    }

    async fn flush_fdb(&self, request: Request<proto::FlushFdbRequest>) -> Reply<proto::Flushed> {
        let by = Author::of(&request);
        let proto::FlushFdbRequest { bridge: name, port, vlan } = request.into_inner();
        self.call(move |desired| {
            let vlan = vlan.map(vid).transpose()?;
            let bridges = desired.state().bridges();
            let table = mac_table(find(&bridges, &name)?, &name)?;
            let at = port_index(&bridges, &name, &port)?;
            let stations = || at.map_or_else(|| table.len(), |port| table.stations_at(port) as usize);
            let from = stations().to_string();
            let entries = match vlan {
                None => table.flush(at, true),
                Some(vlan) => table.flush_vlan(vlan, at),
            } as u64;
            let to = stations().to_string();
            drop(bridges);
            let object = match at {
                Some(_) => Object::Port { bridge: name, port },
                None => Object::Bridge(name),
            };
            let keys = vec![KeyChange { key: "stations".into(), from, to, default: None }];
            command(desired, &by, "flush", Difference { object, kind: Kind::Changed, keys });
            Ok(proto::Flushed { entries })
        })
        .await
    }

    async fn add_fdb_entry(&self, request: Request<proto::AddFdbEntryRequest>) -> Reply<proto::Done> {
        let by = Author::of(&request);
        let proto::AddFdbEntryRequest { bridge, mac: address, vlan, port } = request.into_inner();
        self.call(move |desired| {
            mac_table(find(&desired.state().bridges(), &bridge)?, &bridge)?;
            let mode = find_port(&desired.state().bridges(), &bridge, &port)?.config.settings.vlan.clone();
            let vlan = match (vlan, &mode) {
                (Some(vlan), _) => vid(vlan)?,
                (None, VlanMode::Access(vid) | VlanMode::Tunnel(vid)) => vid.get(),
                (None, _) => 0,
            };
            let note = vlan::station_note(&port, &mode, vlan);
            let station = StationConfig { mac: mac(&address)?, vlan, port };
            let elsewhere = elsewhere_note(desired.state(), &bridge, &station);
            desired.edit(Edit::AddStation { bridge, station }, &by)?;
            Ok(proto::Done { notes: note.into_iter().chain(elsewhere).collect() })
        })
        .await
    }

    async fn delete_fdb_entry(&self, request: Request<proto::DeleteFdbEntryRequest>) -> Reply<proto::Done> {
        let (by, request) = (Author::of(&request), request.into_inner());
        self.call(move |desired| {
            let (bridge, mac) = (request.bridge, mac(&request.mac)?);
            let wanted = request.vlan.map(vid).transpose()?;
            let vlan = vlan_of(desired.state(), &bridge, mac, wanted, &request.port)?;
            desired.edit(Edit::RemoveStation { bridge: bridge.clone(), mac, vlan }, &by)?;
            // A learned address is not part of the configuration.
            let learned = mac_table(find(&desired.state().bridges(), &bridge)?, &bridge)?.remove(vlan, mac);
            if learned {
                let object = Object::Station { bridge, vlan, mac };
                command(desired, &by, "forget", Difference { object, kind: Kind::Removed, keys: Vec::new() });
            }
            Ok(proto::Done::default())
        })
        .await
    }

    async fn set_sflow(&self, request: Request<proto::SetSflowRequest>) -> Reply<proto::Done> {
        let (by, request) = (Author::of(&request), request.into_inner());
        self.edit(by, move || {
            let named = !request.collectors.is_empty();
            let collectors: Result<Vec<_>, _> = request.collectors.iter().map(|text| text.parse()).collect();
            Ok(Edit::SetSflow(SflowChange {
                collectors: named.then_some(collectors?),
                agent: request.agent.as_deref().map(parse_agent).transpose()?,
                sampling: request.sampling.map(|rate| check_sampling(rate.into())).transpose()?,
                polling: request.polling.map(|seconds| check_polling(seconds.into())).transpose()?,
                header: request.header.map(|bytes| check_header(bytes.into())).transpose()?,
            }))
        })
        .await
    }

    async fn delete_sflow(&self, request: Request<proto::DeleteSflowRequest>) -> Reply<proto::Done> {
        self.edit(Author::of(&request), || Ok(Edit::RemoveSflow)).await
    }

    async fn get_sflow(&self, _: Request<proto::GetSflowRequest>) -> Reply<proto::Sflow> {
        self.read(|state| Ok(convert::sflow(state.sflow().report()))).await
    }

    type CaptureStream = capture::Batches;

    async fn capture(&self, request: Request<proto::CaptureRequest>) -> Reply<Self::CaptureStream> {
        let request = request.into_inner();
        let place = reserve_observer(&self.observers)?;
        let started = self.read(move |state| capture::start(state, &request)).await?;
        Ok(started.map(|capture| capture::stream(capture, place)))
    }

    async fn trace_packet(&self, request: Request<proto::TracePacketRequest>) -> Reply<proto::Trace> {
        let request = request.into_inner();
        self.read(move |state| trace::once(state, &request)).await
    }

    type TraceLiveStream = trace::Traces;

    async fn trace_live(&self, request: Request<proto::TraceLiveRequest>) -> Reply<Self::TraceLiveStream> {
        let request = request.into_inner();
        let place = reserve_observer(&self.observers)?;
        let started = self.read(move |state| trace::start(state, &request)).await?;
        Ok(started.map(|trace| trace::stream(trace, place, self.desired.clone())))
    }

    async fn add_mirror(&self, request: Request<proto::AddMirrorRequest>) -> Reply<proto::Done> {
        let by = Author::of(&request);
        let requested = request.into_inner().mirror.unwrap_or_default();
        self.call(move |desired| {
            let bridge = requested.bridge.clone();
            let mirror = convert::requested_mirror(requested)
                .map_err(|error| Refusal::Mirror { bridge: bridge.clone(), error })?;
            let note = target_note(desired.state(), &bridge, &mirror);
            desired
                .edit(Edit::AddMirror { bridge, mirror }, &by)
                .inspect_err(|refusal| tracing::debug!(%by, "refused: {refusal}"))?;
            Ok(proto::Done { notes: note.into_iter().collect() })
        })
        .await
    }

    async fn delete_mirror(&self, request: Request<proto::DeleteMirrorRequest>) -> Reply<proto::Done> {
        let by = Author::of(&request);
        let proto::DeleteMirrorRequest { bridge, name } = request.into_inner();
        self.edit(by, move || Ok(Edit::RemoveMirror { bridge, name })).await
    }

    async fn list_mirrors(&self, request: Request<proto::ListMirrorsRequest>) -> Reply<proto::Mirrors> {
        let wanted = request.into_inner().bridge;
        self.read(move |state| {
            let all = state.bridges();
            if !wanted.is_empty() {
                find(&all, &wanted)?;
            }
            let mut mirrors = Vec::new();
            for (name, bridge) in all.iter().filter(|(name, _)| wanted.is_empty() || **name == wanted) {
                let there = state.switch().mirrors(bridge.id)?;
                mirrors
                    .extend(there.into_iter().map(|(mirror, copied)| convert::mirror(name, mirror, copied)));
            }
            mirrors.sort_by(|a, b| (&a.bridge, &a.name).cmp(&(&b.bridge, &b.name)));
            Ok(proto::Mirrors { mirrors })
        })
        .await
    }

    async fn apply_config(&self, request: Request<proto::ApplyConfigRequest>) -> Reply<proto::Applied> {
        let by = Author::of(&request);
        let proto::ApplyConfigRequest { toml, name, dry_run } = request.into_inner();
        let own = self.config_file.clone();
        self.call(move |desired| {
            let name = Path::new(&name);
            let parsed = desired.read(&toml, name)?;
            let file_notes = parsed.note_lines(name);
            let is_own = || own.as_ref().is_some_and(|own| file::text_of(own).is_ok_and(|text| text == toml));
            let applied = match dry_run {
                true => desired.preview(&parsed.config),
                false if is_own() => desired.load(parsed.config, &by)?,
                false => desired.replace(parsed.config, &by)?,
            };
            Ok(convert::applied(&applied, file_notes))
        })
        .await
    }

    async fn get_config(&self, request: Request<proto::GetConfigRequest>) -> Reply<proto::Config> {
        let proto::GetConfigRequest { secrets, text, keep_daemon } = request.into_inner();
        let secrets = if secrets { Secrets::Written } else { Secrets::Hidden };
        let file = self.config_file.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        self.call(move |desired| {
            let mut config = desired.config();
            let mut overwritten = Vec::new();
            if keep_daemon
                && let Some(text) = &text
                && let Ok(there) = file::parse(text, Path::new(""), Depth::Form)
            {
                // Of the daemon's settings, only the workers change at run time.
                let workers = match desired.state().workers.command_line() {
                    None => config.daemon.workers,
                    Some(_) => there.daemon.workers.clone(),
                };
                config.daemon = DaemonConfig { workers, ..there.daemon.clone() };
                overwritten = convert::differences(&desired.overwritten(&there, &config));
            }
            Ok(match text {
                Some(text) => {
                    let Edited { text: toml, rewritten } = file::edit(&text, &config);
                    proto::Config { toml, file, rewritten, overwritten }
                }
                None => proto::Config { toml: file::write(&config, secrets), file, ..Default::default() },
            })
        })
        .await
    }

    async fn report_saved(&self, request: Request<proto::ReportSavedRequest>) -> Reply<proto::Done> {
        let toml = request.into_inner().toml;
        self.call(move |desired| {
            desired.set_saved(file::parse(&toml, Path::new(""), Depth::Form)?);
            Ok(proto::Done::default())
        })
        .await
    }

    async fn diff_config(&self, request: Request<proto::DiffConfigRequest>) -> Reply<proto::Applied> {
        let proto::DiffConfigRequest { toml, name } = request.into_inner();
        let started_with = self.config_file.clone();
        self.call(move |desired| {
            let (text, path) = match (toml, started_with) {
                (Some(text), _) => (text, PathBuf::from(name)),
                (None, Some(path)) => (file::text_of(&path)?, path),
                (None, None) => {
                    return Err(other(
                        "the daemon was started without a configuration file; name a file to compare",
                    ));
                }
            };
            let parsed = desired.read(&text, &path)?;
            let preview = desired.preview(&parsed.config);
            let mut notes = parsed.note_lines(&path);
            let unmet = desired.state().unmet();
            notes.extend(
                unmet.iter().map(|(object, reason)| format!("{object} does not run as configured: {reason}")),
            );
            Ok(convert::applied(&preview, notes))
        })
        .await
    }

    type WatchEventsStream = Pin<Box<dyn Stream<Item = Result<proto::Event, Status>> + Send>>;

    async fn watch_events(
        &self,
        request: Request<proto::WatchEventsRequest>,
    ) -> Reply<Self::WatchEventsStream> {
        let proto::WatchEventsRequest { bridge, kinds } = request.into_inner();
        if let Some(kind) = kinds.iter().find(|kind| !events::KINDS.contains(&kind.as_str())) {
            let expected = suggest::instead(kind, events::KINDS);
            return Err(Status::invalid_argument(format!("unknown kind of events `{kind}`; {expected}")));
        }
        if !bridge.is_empty() {
            let name = bridge.clone();
            self.read(move |state| find(&state.bridges(), &name).map(|_| ())).await?;
        }
        let events = BroadcastStream::new(self.desired.events().listen());
        let wanted = move |event: &proto::Event| {
            let here = bridge.is_empty() || event.bridge == bridge || event.bridge.is_empty();
            here && (kinds.is_empty() || event.kind == "lost" || kinds.contains(&event.kind))
        };
        let stream = events.filter_map(move |received| match received {
            Ok(event) => wanted(&event).then_some(Ok(event)),
            Err(BroadcastStreamRecvError::Lagged(count)) => Some(Ok(events::lost(count))),
        });
        Ok(Response::new(Box::pin(stream)))
    }
}

/// Returns the note about the worker that the first ones with a CPU replace.
fn replaces_unpinned(Difference { object, keys, .. }: &Difference) -> Option<String> {
    let replaces = *object == Object::Workers && keys.iter().any(|change| change.from.is_empty());
    replaces.then(|| "the worker that was not pinned to a CPU is replaced".into())
}

/// Returns the note about a station or mirror that was removed or changed with a port.
fn gone_with(port: &str, Difference { object, kind, .. }: &Difference) -> Option<String> {
    Some(match (object, kind) {
        (Object::Station { vlan: 0, mac, .. }, _) => format!("static station {mac} went with port {port}"),
        (Object::Station { vlan, mac, .. }, _) => {
            format!("static station {mac}, VLAN {vlan}, went with port {port}")
        }
        (Object::Mirror { name, .. }, Kind::Removed) => format!("mirror {name} went with port {port}"),
        (Object::Mirror { name, .. }, _) => format!("mirror {name} no longer copies from port {port}"),
        _ => return None,
    })
}

/// Logs a change of state that is not configuration, and sends its event.
fn command(desired: &Desired, by: &Author, action: &str, done: Difference) {
    match done.keys.is_empty() {
        true => tracing::info!(%by, "{}: {action}", done.object),
        false => tracing::info!(%by, "{}: {action} ({})", done.object, done.values()),
    }
    desired.events().command(by, &done.object, action, &done.keys);
}

/// Returns the index of a port, `None` for an empty name.
fn port_index(bridges: &Bridges, bridge: &str, port: &str) -> Result<Option<PortIndex>, Refusal> {
    match port {
        "" => Ok(None),
        port => Ok(Some(find_port(bridges, bridge, port)?.at.port)),
    }
}

/// Returns the VLAN of a station to delete: `wanted`, or without it the only one in which the station is. `port`, unless
/// empty, is the port behind which it must be.
fn vlan_of(
    state: &State,
    bridge: &str,
    mac: MacAddr,
    wanted: Option<u16>,
    port: &str,
) -> Result<u16, Refusal> {
    let bridges = state.bridges();
    let table = mac_table(find(&bridges, bridge)?, bridge)?;
    let only = port_index(&bridges, bridge, port)?;
    let mut vlans: Vec<u16> = table
        .entries()
        .into_iter()
        .filter(|entry| entry.mac == mac && only.is_none_or(|port| entry.port == port))
        .map(|entry| entry.vid)
        .collect();
    vlans.sort_unstable();
    vlans.dedup();
    let at = if port.is_empty() { String::new() } else { format!(" at port \"{port}\"") };
    let missing = match wanted {
        Some(vlan) if vlans.contains(&vlan) => return Ok(vlan),
        Some(vlan) => format!(" in VLAN {vlan}"),
        None => String::new(),
    };
    let listed = vlans.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    Err(other(match (wanted, vlans.as_slice()) {
        (None, [vlan]) => return Ok(*vlan),
        (_, []) => format!(
            "bridge \"{bridge}\" has no address {mac}{missing}{at}; `mswitch fdb show {bridge}` lists its addresses"
        ),
        (Some(_), [vlan]) => {
            format!(
                "bridge \"{bridge}\" has no address {mac}{missing}{at}; it is in VLAN {vlan}: add `--vlan {vlan}`"
            )
        }
        (Some(_), _) => format!(
            "bridge \"{bridge}\" has no address {mac}{missing}{at}; it is in the VLANs {listed}: name one with `--vlan`"
        ),
        (None, _) => {
            format!("bridge \"{bridge}\" has address {mac}{at} in the VLANs {listed}; name one with `--vlan`")
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observers_are_limited() {
        let places = Arc::new(Semaphore::new(2));
        let (first, _second) = (reserve_observer(&places).unwrap(), reserve_observer(&places).unwrap());
        let refused = reserve_observer(&places).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(refused.message().contains("captures and live traces are running"), "{refused}");
        drop(first);
        assert!(reserve_observer(&places).is_ok());
    }
}
