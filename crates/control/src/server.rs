//! Answers the calls of [`crate::proto`].
//!
//! Each call runs on a thread for blocking work: see [`crate::state`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use fabric::PortSettings;
use logic::Fdb;
use packet::ether::MacAddr;
use tonic::{Request, Response, Status};

use crate::model::{BridgeConfig, LogicConfig, PortConfig, check_mtu, parse_admin};
use crate::proto::switch_server::Switch;
use crate::state::{Bridge, PortChange, Refusal, State, every, find, find_port};
use crate::{convert, options, proto, vlan};

/// The service.
#[derive(Clone)]
pub struct Server {
    state: Arc<State>,
    config_file: Option<PathBuf>,
    started: Instant,
}

type Reply<T> = Result<Response<T>, Status>;

impl Server {
    /// Serves `state`, which came from `config_file`.
    pub fn new(state: Arc<State>, config_file: Option<PathBuf>) -> Self {
        Self { state, config_file, started: Instant::now() }
    }

    async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&State) -> Result<T, Refusal> + Send + 'static,
    ) -> Reply<T> {
        let state = self.state.clone();
        match tokio::task::spawn_blocking(move || call(&state)).await {
            Ok(Ok(reply)) => Ok(Response::new(reply)),
            Ok(Err(refusal)) => Err(status(&refusal)),
            Err(error) => {
                Err(Status::internal(format!("the call failed: {error}; this is a bug in mswitch")))
            }
        }
    }
}

fn status(refusal: &Refusal) -> Status {
    let message = refusal.to_string();
    match refusal {
        Refusal::NoBridge(_) | Refusal::NoPort { .. } => Status::not_found(message),
        Refusal::BridgeExists(_) | Refusal::PortExists { .. } | Refusal::Shared { .. } => {
            Status::already_exists(message)
        }
        Refusal::Value(_) | Refusal::Logic(_) => Status::invalid_argument(message),
        Refusal::Limit(_) => Status::resource_exhausted(message),
        Refusal::Port { .. } | Refusal::Switch(_) | Refusal::Other(_) => Status::failed_precondition(message),
    }
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
    let mut own = request.options.clone();
    if let Some(mtu) = request.mtu {
        settings.mtu = check_mtu(mtu.into())?;
        // A type whose clients have an MTU to set is told.
        if options::known(&request.r#type).is_ok_and(|known| known.contains(&"mtu")) {
            own.insert("mtu".into(), mtu.to_string());
        }
    }
    let spec = options::from_text(&request.r#type, &own).map_err(|error| refused(error.to_string()))?;
    Ok(PortConfig { settings, spec })
}

fn fdb<'a>(bridge: &'a Bridge, name: &str) -> Result<&'a Fdb, Refusal> {
    bridge.logic.fdb().ok_or_else(|| {
        other(format!(
            "the logic of bridge \"{name}\", `{}`, has no MAC table; `mswitch logic set {name} learning` has one",
            bridge.logic.name()
        ))
    })
}

fn vid(vlan: u32) -> Result<u16, Refusal> {
    u16::try_from(vlan)
        .ok()
        .filter(|vid| *vid <= 4094)
        .ok_or_else(|| other(format!("{vlan} is not a VLAN; expected 1 to 4094, or 0 for none")))
}

fn mac(text: &str) -> Result<MacAddr, Refusal> {
    text.parse().map_err(other)
}

#[tonic::async_trait]
impl Switch for Server {
    async fn get_status(&self, _: Request<proto::GetStatusRequest>) -> Reply<proto::Status> {
        let config_file = self.config_file.as_ref().map(|path| path.display().to_string());
        let uptime_seconds = self.started.elapsed().as_secs();
        self.run(move |state| {
            let status = convert::status(state, &state.bridges())?;
            Ok(proto::Status { uptime_seconds, config_file, ..status })
        })
        .await
    }

    async fn add_bridge(&self, request: Request<proto::AddBridgeRequest>) -> Reply<proto::Done> {
        let proto::AddBridgeRequest { name, logic, params } = request.into_inner();
        let config = BridgeConfig { name, logic: logic_config(logic, params), ports: Vec::new() };
        self.run(move |state| state.add_bridge(&config).map(|()| proto::Done {})).await
    }

    async fn delete_bridge(&self, request: Request<proto::DeleteBridgeRequest>) -> Reply<proto::Done> {
        let name = request.into_inner().name;
        self.run(move |state| state.remove_bridge(&name).map(|()| proto::Done {})).await
    }

    async fn list_bridges(&self, request: Request<proto::ListBridgesRequest>) -> Reply<proto::Bridges> {
        let wanted = request.into_inner().name;
        self.run(move |state| {
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
        let request = request.into_inner();
        self.run(move |state| {
            let config = port_config(&request)?;
            state.add_port(&request.bridge, &config).map(|()| proto::Done {})
        })
        .await
    }

    async fn set_port(&self, request: Request<proto::SetPortRequest>) -> Reply<proto::Done> {
        let request = request.into_inner();
        self.run(move |state| {
            let change = PortChange {
                admin_up: request.admin.as_deref().map(parse_admin).transpose()?,
                mtu: request.mtu.map(|mtu| check_mtu(mtu.into())).transpose()?,
                vlan: request.vlan.as_deref().map(vlan::parse).transpose().map_err(other)?,
            };
            state.set_port(&request.bridge, &request.name, change).map(|()| proto::Done {})
        })
        .await
    }

    async fn delete_port(&self, request: Request<proto::DeletePortRequest>) -> Reply<proto::Done> {
        let proto::DeletePortRequest { bridge, name } = request.into_inner();
        self.run(move |state| state.remove_port(&bridge, &name).map(|()| proto::Done {})).await
    }

    async fn list_ports(&self, request: Request<proto::ListPortsRequest>) -> Reply<proto::Ports> {
        let wanted = request.into_inner();
        let started = self.started;
        self.run(move |state| {
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
                .map(|(bridge, name, port)| convert::port(state, bridge, name, port))
                .collect::<Result<_, _>>()?;
            Ok(proto::Ports { ports, at_nanoseconds })
        })
        .await
    }

    async fn list_workers(&self, _: Request<proto::ListWorkersRequest>) -> Reply<proto::Workers> {
        self.run(|state| {
            let workers = convert::workers(state, &state.bridges());
            Ok(proto::Workers { workers, cycles_per_second: fabric::clock::frequency() })
        })
        .await
    }

    async fn pin_queue(&self, request: Request<proto::PinQueueRequest>) -> Reply<proto::Done> {
        let proto::PinQueueRequest { bridge, port, queue, cpu } = request.into_inner();
        self.run(move |state| {
            let queue = u16::try_from(queue).map_err(|_| other(format!("there is no queue {queue}")))?;
            state.pin(&bridge, &port, queue, cpu as usize).map(|()| proto::Done {})
        })
        .await
    }

    async fn set_logic(&self, request: Request<proto::SetLogicRequest>) -> Reply<proto::Done> {
        let proto::SetLogicRequest { bridge, logic, params } = request.into_inner();
        let config = logic_config(logic, params);
        self.run(move |state| state.set_logic(&bridge, &config).map(|()| proto::Done {})).await
    }

    async fn list_logics(&self, _: Request<proto::ListLogicsRequest>) -> Reply<proto::LogicTypes> {
        let param = |param: &logic::ParamInfo| proto::LogicParam {
            name: param.name.into(),
            summary: param.help.into(),
            default: param.default.into(),
        };
        let logics = logic::LIST.iter().map(|info| proto::LogicType {
            name: info.name.into(),
            summary: info.summary.into(),
            params: info.params.iter().map(param).collect(),
        });
        Ok(Response::new(proto::LogicTypes { logics: logics.collect() }))
    }

    async fn list_fdb(&self, request: Request<proto::ListFdbRequest>) -> Reply<proto::Fdb> {
        let name = request.into_inner().bridge;
        self.run(move |state| {
            let bridges = state.bridges();
            let bridge = find(&bridges, &name)?;
            let mut found = fdb(bridge, &name)?.snapshot();
            found.sort_by_key(|entry| (entry.vid, entry.mac));
            let entries = found.into_iter().filter_map(|entry| {
                // An entry whose port was just removed is about to go as well.
                let (port, _) = bridge.ports.iter().find(|(_, port)| port.at.port == entry.port)?;
                Some(proto::FdbEntry {
                    mac: entry.mac.to_string(),
                    vlan: entry.vid.into(),
                    port: port.clone(),
                    age_seconds: entry.age_seconds,
                    r#static: entry.is_static,
                })
            });
            Ok(proto::Fdb { entries: entries.collect() })
        })
        .await
    }

    async fn flush_fdb(&self, request: Request<proto::FlushFdbRequest>) -> Reply<proto::Flushed> {
        let proto::FlushFdbRequest { bridge: name, port } = request.into_inner();
        self.run(move |state| {
            let bridges = state.bridges();
            let table = fdb(find(&bridges, &name)?, &name)?;
            let port = match port.as_str() {
                "" => None,
                port => Some(find_port(&bridges, &name, port)?.at.port),
            };
            Ok(proto::Flushed { entries: table.flush(port, true) as u64 })
        })
        .await
    }

    async fn add_fdb_entry(&self, request: Request<proto::AddFdbEntryRequest>) -> Reply<proto::Done> {
        let request = request.into_inner();
        self.run(move |state| {
            let bridges = state.bridges();
            let table = fdb(find(&bridges, &request.bridge)?, &request.bridge)?;
            let port = find_port(&bridges, &request.bridge, &request.port)?.at.port;
            table.add_static(vid(request.vlan)?, mac(&request.mac)?, port).map_err(other)?;
            Ok(proto::Done {})
        })
        .await
    }

    async fn delete_fdb_entry(&self, request: Request<proto::DeleteFdbEntryRequest>) -> Reply<proto::Done> {
        let request = request.into_inner();
        self.run(move |state| {
            let bridges = state.bridges();
            let table = fdb(find(&bridges, &request.bridge)?, &request.bridge)?;
            let (vid, mac) = (vid(request.vlan)?, mac(&request.mac)?);
            let only = match request.port.as_str() {
                "" => None,
                port => Some(find_port(&bridges, &request.bridge, port)?.at.port),
            };
            let there = only.is_none_or(|port| {
                table.snapshot().iter().any(|e| e.vid == vid && e.mac == mac && e.port == port)
            });
            if there && table.remove(vid, mac) {
                return Ok(proto::Done {});
            }
            let bridge = &request.bridge;
            Err(other(format!(
                "bridge \"{bridge}\" has no such address: {mac}, VLAN {vid}; `mswitch fdb show {bridge}` shows those it has"
            )))
        })
        .await
    }
}
