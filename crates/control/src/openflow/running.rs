//! A bridge with the logic `openflow`: the logic, its controllers and its sockets, as configured.
//!
//! Invariants:
//! - A change of controllers, of the fail mode, of tables' names or of `keep-flows` leaves the other connections as
//!   they are; any other change ends all connections and keeps flows, groups and meters.
//! - While the bridge has no controller to connect to and its fail mode is `standalone`, it has forwarded like a
//!   learning switch since: a visible flow of priority 0 does that, as in Open vSwitch.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use fabric::switch::{BridgeId, PortRef};
use fabric::{Switch, SwitchError};
use ofagent::{Agent, ControllerState, FailMode, SharedSwitch, SocketAccess};
use oflogic::OpenFlow;
use ofswitch::{ConnectionKind, Limit};
use openflow::message::{Body, FlowMod, FlowModCommand, GroupModCommand, Hello, MeterModCommand, Versions};
use openflow::{Message, PortNo, Version, text};
use ports::XdpInterfaces;
use tokio::runtime::Handle;
use tokio::sync::watch::Sender;
use tokio::task::JoinHandle;

use super::identity::datapath_id;
use super::kept::Kept;
use super::settings::{DatapathId, OpenFlowConfig};

/// Interval at which lost controllers are looked at.
const TICK: Duration = Duration::from_secs(1);

/// The place of a daemon's bridges.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) runtime: Handle,
    pub(crate) switch: Arc<Switch>,
    /// Interfaces whose packets XDP programs get first.
    pub(crate) interfaces: XdpInterfaces,
    /// The control socket; other sockets are beside it.
    pub(crate) control: PathBuf,
    pub(crate) access: SocketAccess,
    /// Told when controllers come, go, or change roles.
    pub(crate) changed: Sender<()>,
}

/// A running bridge.
pub(crate) struct Running {
    name: String,
    place: Place,
    logic: Arc<OpenFlow>,
    state: Mutex<State>,
    /// Whether time alone changes something: a lost controller, or flows to save.
    needs_ticks: Sender<bool>,
    /// The file of its flows; taken after `state`, and held while it is written.
    kept: Mutex<Option<Kept>>,
    /// Its path.
    kept_in: Option<PathBuf>,
}

/// What becomes of flows when a bridge stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flows {
    /// The daemon ends: they stay, if the configuration says so.
    Stay,
    /// The bridge is removed, or gets another logic.
    Go,
}

#[derive(Default)]
struct State {
    /// `None` after a failure to start it.
    agent: Option<Agent>,
    /// The settings in effect; `None` after a failure.
    applied: Option<OpenFlowConfig>,
    /// The flow of a bridge without controllers was added, or such a bridge's flows were restored.
    has_normal_flow: bool,
    /// The end of the agent.
    stopping: Option<JoinHandle<()>>,
}

impl Running {
    /// Makes the logic, with sockets and without controllers: those come with the first call of [`Running::follow`],
    /// when the ports are known.
    pub(crate) fn start(place: &Place, name: &str, config: &OpenFlowConfig) -> Result<Arc<Self>, String> {
        let logic = OpenFlow::with_stations(settings(place, name, config), config.stations)
            .map_err(|error| error.to_string())?;
        let kept = Kept::new(name, datapath_id(&place.control, name));
        let kept_in = kept.as_ref().map(|kept| kept.path().to_owned());
        let kept = Mutex::new(kept);
        let state = Mutex::default();
        let (name, place, needs_ticks) = (name.into(), place.clone(), Sender::new(false));
        let running = Self { name, place, logic, state, needs_ticks, kept, kept_in };
        let first = OpenFlowConfig { controllers: Vec::new(), has_unusable: false, ..config.clone() };
        let mut state = running.lock();
        if let Some(kept) = &mut *running.lock_kept() {
            match config.keep_flows {
                true => state.has_normal_flow = kept.restore(running.logic.switch()),
                // Flows from before would be a surprise later.
                false => kept.remove(),
            }
        }
        running.learn(&first)?;
        state.agent = Some(running.start_agent(&first)?);
        state.applied = Some(first);
        if !config.has_active() {
            // The bridge's packets meet the logic before the next step.
            running.update_fail_mode(&mut state);
        }
        running.set_needs_ticks(&state);
        drop(state);
        let running = Arc::new(running);
        running.place.runtime.spawn(watch(Arc::downgrade(&running)));
        Ok(running)
    }

    /// Returns the logic.
    pub(crate) fn logic(&self) -> &Arc<OpenFlow> {
        &self.logic
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_kept(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the settings. Returns the result if anything changed. Blocks for up to a second while connections end.
    pub(crate) fn follow(&self, wanted: &OpenFlowConfig) -> Option<Result<(), String>> {
        let mut state = self.lock();
        if state.applied.as_ref() == Some(wanted) {
            // The bridge may be new, and configured like a bridge without controllers.
            self.update_fail_mode(&mut state);
            return None;
        }
        let done = self.apply(&mut state, wanted);
        state.applied = done.is_ok().then(|| wanted.clone());
        self.set_needs_ticks(&state);
        self.update_fail_mode(&mut state);
        Some(done)
    }

    fn set_needs_ticks(&self, state: &State) {
        let needs = |config: &OpenFlowConfig| {
            config.keep_flows || config.fail_mode == FailMode::Standalone && config.has_active()
        };
        self.needs_ticks.send_replace(state.applied.as_ref().is_some_and(needs));
    }

    fn apply(&self, state: &mut State, wanted: &OpenFlowConfig) -> Result<(), String> {
        let live = |config: &OpenFlowConfig| OpenFlowConfig {
            controllers: wanted.controllers.clone(),
            has_unusable: wanted.has_unusable,
            fail_mode: wanted.fail_mode,
            tables: wanted.tables.clone(),
            keep_flows: wanted.keep_flows,
            flush_flows: wanted.flush_flows,
            table_limits: wanted.table_limits.clone(),
            bundle_idle: wanted.bundle_idle,
            ageing: wanted.ageing,
            stations: wanted.stations,
            snooping: wanted.snooping,
            ..config.clone()
        };
        let is_live = state.agent.is_some() && state.applied.as_ref().is_some_and(|it| live(it) == *wanted);
        if !wanted.keep_flows {
            self.lock_kept().iter_mut().for_each(Kept::remove);
        }
        let flushes = state.applied.as_ref().is_some_and(|applied| flushes(applied, wanted));
        self.learn(wanted)?;
        let settings = settings(&self.place, &self.name, wanted);
        if is_live {
            self.logic.switch().with(|switch, now| switch.configure(settings, now));
        } else {
            if let Some(agent) = state.agent.take() {
                self.place.runtime.block_on(agent.shutdown());
            }
            self.logic.switch().with(|switch, now| switch.configure(settings, now));
            state.agent = Some(self.start_agent(wanted)?);
        }
        if flushes {
            flush(self.logic.switch());
            state.has_normal_flow = false;
        }
        let Some(agent) = &mut state.agent else { return Ok(()) };
        agent.set_fail_mode(wanted.fail_mode);
        agent.set_controllers(wanted.controllers.clone()).map_err(|error| format!("`controllers`: {error}"))
    }

    /// Has `NORMAL` learn as the settings say.
    fn learn(&self, config: &OpenFlowConfig) -> Result<(), String> {
        let room = self.logic.set_stations(config.stations);
        if let Some(wanted) = config.stations.filter(|wanted| *wanted > room) {
            tracing::info!(
                "bridge {}: its MAC table has room for {room} stations; the {wanted} that are configured take effect \
                 when the bridge or the daemon starts again",
                self.name
            );
        }
        self.logic.set_learning(config.ageing, config.snooping)
    }

    fn start_agent(&self, config: &OpenFlowConfig) -> Result<Agent, String> {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let backoff = seconds(config.max_backoff);
        let place = &self.place;
        let settings = ofagent::Settings {
            controllers: config.controllers.clone(),
            management: config.management.path(&place.control, &self.name, "mgmt"),
            snoop: config.snoop.path(&place.control, &self.name, "snoop"),
            access: place.access,
            tls: config.tls_files(),
            fail_mode: config.fail_mode,
            probe: (config.probe > 0).then(|| seconds(config.probe)),
            backoff_min: Duration::from_secs(1).min(backoff),
            backoff_max: backoff,
            limits: ofagent::Limits::default(),
        };
        Agent::start(&place.runtime, self.logic.switch().clone(), settings).map_err(|error| {
            format!("{error}; `management` and `snoop` of `[bridge.openflow]` name other sockets")
        })
    }

    /// Begins [`Running::stop`], so that several bridges stop in the time of one.
    pub(crate) fn begin_stop(&self) {
        let mut state = self.lock();
        if let Some(agent) = state.agent.take() {
            state.stopping = Some(self.place.runtime.spawn(agent.shutdown()));
        }
    }

    /// Ends all connections and removes the sockets, then saves flows. Blocks for up to a second, and while it saves.
    pub(crate) fn stop(&self, flows: Flows) {
        self.begin_stop();
        let stopping = self.lock().stopping.take();
        if let Some(stopping) = stopping {
            // A task that has panicked has ended, too.
            let _ = self.place.runtime.block_on(stopping);
        }
        match flows {
            Flows::Stay if self.applied().keep_flows => self.save(Kept::save),
            Flows::Stay => {}
            // What looks after the bridge may be about to save.
            Flows::Go => self.lock_kept().take().iter_mut().for_each(Kept::remove),
        }
    }

    /// Returns the bridge's id.
    pub(crate) fn datapath_id(&self) -> DatapathId {
        let state = self.lock();
        let configured = state.applied.as_ref().and_then(|config| config.datapath_id);
        configured.unwrap_or_else(|| datapath_id(&self.place.control, &self.name))
    }

    /// Returns the settings in effect; the defaults after a failure.
    pub(super) fn applied(&self) -> OpenFlowConfig {
        self.lock().applied.clone().unwrap_or_default()
    }

    /// Returns the controllers.
    pub(crate) fn controllers(&self) -> Vec<ControllerState> {
        self.lock().agent.as_ref().map(Agent::controllers).unwrap_or_default()
    }

    /// Returns the limits of what controllers may cost, with their use.
    pub(super) fn limits(&self) -> Vec<Limit> {
        let mut limits = self.logic.limits();
        limits.extend(self.lock().agent.iter().flat_map(Agent::limits));
        limits
    }

    /// Returns the path of the management socket, if there is one.
    pub(super) fn management(&self) -> Option<PathBuf> {
        self.lock().applied.as_ref()?.management.path(&self.place.control, &self.name, "mgmt")
    }

    /// Returns the path of the snoop socket, if there is one.
    pub(super) fn snoop(&self) -> Option<PathBuf> {
        self.lock().applied.as_ref()?.snoop.path(&self.place.control, &self.name, "snoop")
    }

    /// Returns the path of the file that keeps flows, if they are kept.
    pub(super) fn kept(&self) -> Option<PathBuf> {
        self.kept_in.clone().filter(|_| self.applied().keep_flows)
    }

    fn save(&self, save: impl FnOnce(&mut Kept, &SharedSwitch)) {
        if let Some(kept) = &mut *self.lock_kept() {
            save(kept, self.logic.switch());
        }
    }

    /// Joins the logic to its bridge in the fabric: packets of controllers, and counters of ports.
    pub(crate) fn join(&self, bridge: BridgeId) -> Result<(), SwitchError> {
        self.logic.set_injector(self.place.switch.injector(bridge)?);
        // The switch owns its logics.
        let switch = Arc::downgrade(&self.place.switch);
        self.logic.set_statistics(move |port| switch.upgrade()?.try_counters(PortRef { bridge, port }));
        Ok(())
    }

    fn update_fail_mode(&self, state: &mut State) {
        let Some(agent) = &state.agent else { return };
        let standalone = state.applied.as_ref().is_some_and(|it| it.fail_mode == FailMode::Standalone);
        let has_active = state.applied.as_ref().is_some_and(OpenFlowConfig::has_active);
        self.logic.set_standalone(has_active && agent.is_standalone());
        let wants_flow = standalone && !has_active;
        if wants_flow != state.has_normal_flow {
            state.has_normal_flow = wants_flow;
            let is_empty = self.logic.switch().with(|switch, _| switch.flow_count() == 0);
            if is_empty || !wants_flow {
                set_normal_flow(self.logic.switch(), wants_flow);
            }
        }
    }
}

/// Looks after a bridge as long as it exists: when connections or settings change, and at each tick while there is
/// something that time changes.
async fn watch(bridge: Weak<Running>) {
    let Some(running) = bridge.upgrade() else { return };
    let mut changes = running.logic.switch().changes();
    let mut settings = running.needs_ticks.subscribe();
    drop(running);
    loop {
        let needs_ticks = *settings.borrow_and_update();
        let tick = async {
            match needs_ticks {
                true => tokio::time::sleep(TICK).await,
                false => std::future::pending().await,
            }
        };
        // The senders go with the bridge.
        let is_change = tokio::select! {
            () = tick => false,
            changed = changes.changed() => match changed {
                Ok(()) => true,
                Err(_) => return,
            },
            changed = settings.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        let Some(bridge) = bridge.upgrade() else { return };
        if is_change {
            bridge.place.changed.send_replace(());
        }
        // Another thread may hold the lock while connections end.
        let looked = tokio::task::spawn_blocking(move || {
            let keeps = {
                let mut state = bridge.lock();
                bridge.update_fail_mode(&mut state);
                state.applied.as_ref().is_some_and(|config| config.keep_flows) && state.agent.is_some()
            };
            if keeps {
                bridge.save(Kept::save_if_due);
            }
        });
        if looked.await.is_err() {
            tracing::error!("looking after an OpenFlow bridge failed; this is a bug in mswitch");
        }
    }
}

fn settings(place: &Place, bridge: &str, config: &OpenFlowConfig) -> ofswitch::Settings {
    let id = config.datapath_id.unwrap_or_else(|| datapath_id(&place.control, bridge));
    let flows = config.max_flows;
    let limits = ofswitch::Limits::default();
    let flows_per_table = limits.flows_per_table.min(flows);
    let buffers = if config.buffers { limits.buffers } else { 0 };
    ofswitch::Settings {
        datapath_id: id.0,
        versions: config.versions.clone(),
        name: bridge.into(),
        limits: ofswitch::Limits { flows, flows_per_table, buffers, ..limits },
        tables: config.tables.clone(),
        table_limits: config.table_limits.clone(),
        bundle_idle: Duration::from_secs(config.bundle_idle.into()),
        seed: fastrand::u64(..),
    }
}

/// Returns whether a change of settings removes all flows.
fn flushes(before: &OpenFlowConfig, wanted: &OpenFlowConfig) -> bool {
    let has_other_mode = before.fail_mode != wanted.fail_mode && !wanted.has_active();
    wanted.flush_flows && (before.has_active() != wanted.has_active() || has_other_mode)
}

/// Adds or removes the flow with which a bridge without controllers forwards like a learning switch. A flow in its
/// place that does something else stays.
fn set_normal_flow(shared: &SharedSwitch, there: bool) {
    match there {
        true => change_flow(shared, FlowModCommand::Add, "priority=0,actions=NORMAL", PortNo::ANY),
        false => change_flow(shared, FlowModCommand::DeleteStrict, "priority=0", PortNo::NORMAL),
    }
}

/// Makes a change of flows that no controller asks for. `line` has it in `ovs-ofctl`'s syntax; flows without an output
/// to `out_port` stay.
fn change_flow(shared: &SharedSwitch, command: FlowModCommand, line: &str, out_port: PortNo) {
    change(shared, |version| {
        let flow = text::parse_flow(line, command, version).ok();
        flow.map(|flow| Body::FlowMod(Box::new(FlowMod { out_port, ..flow }))).into_iter().collect()
    });
}

/// Removes all flows, groups and meters.
fn flush(shared: &SharedSwitch) {
    change(shared, |version| {
        let flows = text::parse_flow("", FlowModCommand::Delete, version);
        let groups = text::parse_group("", GroupModCommand::Delete, version);
        let meters = text::parse_meter("", MeterModCommand::Delete);
        let flows = flows.map(|flows| Body::FlowMod(Box::new(flows)));
        let all = [flows, groups.map(Body::GroupMod), meters.map(Body::MeterMod)];
        all.into_iter().flatten().collect()
    });
}

/// Makes changes that no controller asks for. `bodies` has them in a version; what that version cannot express is left
/// out.
fn change(shared: &SharedSwitch, bodies: impl FnOnce(Version) -> Vec<Body>) {
    shared.with(|switch, now| {
        // A switch with too many connections has controllers that do this.
        let Some(connection) = switch.connect(ConnectionKind::Service) else { return };
        let hello = switch.next_message(connection);
        let newest = hello.and_then(|hello| Version::from_number(*hello.first()?));
        if let Some(version) = newest {
            let hello = Body::Hello(Hello::new(Versions::from_iter([version])));
            let messages = std::iter::once(hello).chain(bodies(version));
            for message in messages.filter_map(|body| Message::new(version, 1, body).into_bytes().ok()) {
                switch.receive(connection, &message, now);
            }
        }
        switch.disconnect(connection);
    });
}
