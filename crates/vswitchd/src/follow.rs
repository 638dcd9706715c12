//! The session with the database, and what happens on its events.
//!
//! - A change of the configuration is planned, applied and answered in one transaction with `cur_cfg`, which the lock
//!   guards.
//! - A change of an interface's state is written when it happens, counters every five seconds.
//! - While the database is away, or another daemon has the lock, everything stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use control::desired::Desired;
use control::diff::Object;
use control::model::PortConfig;
use ovsdb::typed::Table;
use ovsdb::vswitch::{self, OpenVSwitch};
use ovsdb::{Change, ChangeKind, Event, Operation, Remote, Session, Settings};
use ports::Spec;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior};
use unixctl::Server;

use crate::answer;
use crate::bonds::Bonds;
use crate::commands::{self, Subjects};
use crate::controllers;
use crate::datapath;
use crate::detach::Readiness;
use crate::dummy::{Level, Types};
use crate::facts::{self, Facts};
use crate::fdb::Departed;
use crate::link_watch::LinkWatch;
use crate::log::Log;
use crate::mirrors;
use crate::monitor::{self, Monitor};
use crate::plan::{GivenNumbers, Plan, PlannedInterface};
use crate::pulse::Pulse;
use crate::qos;
use crate::seen::Seen;
use crate::trees::Trees;

/// The lock that Open vSwitch's daemon holds.
const LOCK: &str = "ovs_vswitchd";

/// Interval at which what failed is tried again, and devices are looked at that are not watched.
const TICK: Duration = Duration::from_secs(5);

/// Shortest wait for the next time at which counters are written.
const SHORTEST: Duration = Duration::from_millis(10);

/// Time between two writes of the status of monitoring, at least.
const MONITORED_PAUSE: Duration = Duration::from_millis(100);

/// Columns that only this daemon writes: their changes are not configuration.
const OWN: [&str; 31] = [
    "admin_state",
    "bfd_status",
    "bond_active_slave",
    "cfm_fault",
    "cfm_fault_status",
    "cfm_flap_count",
    "cfm_health",
    "cfm_remote_mpids",
    "cfm_remote_opstate",
    "cur_cfg",
    "datapath_id",
    "datapath_types",
    "datapath_version",
    "db_version",
    "dpdk_initialized",
    "error",
    "iface_types",
    "ifindex",
    "is_connected",
    "lacp_current",
    "link_speed",
    "link_state",
    "mac_in_use",
    "mtu",
    "ofport",
    "ovs_version",
    "role",
    "rstp_statistics",
    "rstp_status",
    "statistics",
    "status",
];

/// Numbers of ports, by bridge and name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers {
    pub(crate) openflow: BTreeMap<(String, String), i64>,
    pub(crate) datapath: datapath::Given,
}

/// Reasons for ports that the model left out, by bridge and name.
type Refused = BTreeMap<(String, String), String>;

/// Follows the database until it is told to exit.
pub(crate) struct Follower {
    pub(crate) remote: Remote,
    /// The directory of sockets.
    pub(crate) rundir: PathBuf,
    pub(crate) readiness: Readiness,
    pub(crate) types: Types,
    pub(crate) exit: Arc<Notify>,
    pub(crate) server: Option<Arc<Server>>,
    pub(crate) log: Log,
}

/// What the running configuration came from.
#[derive(Default)]
struct Applied {
    plan: Plan,
    given: GivenNumbers,
    refused: Refused,
    /// `next_cfg` of the configuration.
    number: i64,
    /// Time on OpenFlow's clock at which counters are written next, nanoseconds.
    next_statistics: u64,
    /// What was last found of the plan's interfaces.
    facts: Vec<Facts>,
    /// Errors, warnings and notes that are in the log.
    said: BTreeSet<String>,
}

/// What is to be done once the database can be written.
#[derive(Debug, Default)]
struct Due {
    configuration: bool,
    state: bool,
    statistics: bool,
    /// The status of monitoring has changed.
    monitored: bool,
    /// Some time has passed.
    tick: bool,
}

/// What runs besides the session with the database.
#[derive(Clone, Copy)]
struct Parts<'a> {
    desired: &'a Arc<Desired>,
    bonds: &'a Arc<Bonds>,
    trees: &'a Arc<Trees>,
    monitor: &'a Arc<Monitor>,
    qos: &'a qos::Shown,
}

impl Follower {
    /// Runs until `exit` is requested.
    pub(crate) async fn run(self, desired: Arc<Desired>) {
        let numbers = Arc::new(Mutex::new(Numbers::default()));
        let bonds = Bonds::new(desired.clone());
        let trees = Trees::new(desired.clone());
        let monitor = match Monitor::start(desired.clone()) {
            Ok(monitor) => monitor,
            Err(error) => return tracing::error!("monitoring of interfaces does not start: {error}"),
        };
        let pulse = Arc::new(Pulse::new());
        let has_dummies = self.types.level > Level::Off;
        let datapath = if has_dummies { "dummy@ovs-dummy" } else { "system@ovs-system" };
        let seen = Seen::new(&desired, &numbers, datapath);
        let dummies = desired.state().dummies();
        if has_dummies {
            let subject = seen.clone();
            dummies.observe(Some(Arc::new(move |interface, packet| subject.note(interface, packet))));
        }
        let (exit, log, qos) = (self.exit.clone(), self.log.clone(), qos::Shown::default());
        let subjects = Subjects {
            desired: desired.clone(),
            numbers: numbers.clone(),
            bonds: bonds.clone(),
            trees: trees.clone(),
            types: self.types,
            exit,
            log,
            monitor: monitor.clone(),
            pulse: pulse.clone(),
            seen: seen.clone(),
            qos: qos.clone(),
            datapath,
        };
        let commands = commands::commands(subjects);
        let parts = Parts { desired: &desired, bonds: &bonds, trees: &trees, monitor: &monitor, qos: &qos };
        let until_exit = async {
            match &self.server {
                Some(server) => {
                    if let Err(error) = server.serve(commands, self.exit.notified()).await {
                        tracing::error!("control socket: {error}");
                        std::future::pending().await
                    }
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = until_exit => {}
            () = self.follow(parts, &numbers, &pulse) => {}
            () = seen.log(), if has_dummies => {}
        }
        dummies.observe(None);
        monitor.end();
    }

    async fn follow(&self, parts: Parts<'_>, numbers: &Mutex<Numbers>, pulse: &Pulse) {
        let Parts { desired, monitor, .. } = parts;
        let watch = LinkWatch::new();
        let mut links = watch.inspect_err(|error| tracing::warn!("interfaces are not watched: {error}")).ok();
        let mut settings = Settings::new(self.remote.clone(), vswitch::DATABASE, vswitch::TABLES.to_vec());
        settings.lock = Some(LOCK.into());
        let mut session = Session::new(settings);
        let mut changes = desired.state().changes();
        let (mut monitored, mut pulses) = (monitor.changes(), pulse.requests());
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut applied = Applied::default();
        let mut due = Due::default();
        let mut followed = 0;
        let mut quiet_until = Instant::now();
        loop {
            let pulsed = *pulses.borrow_and_update();
            due.state |= pulsed > followed;
            due.statistics |= ofagent::clock::now() >= applied.next_statistics;
            if session.is_connected() && session.holds_lock() {
                let now = std::mem::take(&mut due);
                // Without notifications, devices are read at each tick.
                let reread = now.state || links.is_none();
                let done = match now {
                    Due { configuration: true, .. } => {
                        self.apply(parts, &mut session, &mut applied, numbers).await
                    }
                    Due { state: true, .. }
                    | Due { statistics: true, .. }
                    | Due { monitored: true, .. }
                    | Due { tick: true, .. } => {
                        let counts = now.statistics;
                        self.refresh(parts, &mut session, &mut applied, reread, counts).await
                    }
                    _ => true,
                };
                due.configuration |= now.state && !now.configuration && applied.plan.is_outdated();
                // Tried again after the next event, at the latest at the next tick.
                due.configuration |= !done;
            }
            pulse.follow(pulsed);
            followed = pulsed;
            // The clock may be moved while this waits: see `Pulse`. What is overdue cannot be written now.
            let until_statistics = match applied.next_statistics.saturating_sub(ofagent::clock::now()) {
                0 => TICK,
                nanoseconds => Duration::from_nanos(nanoseconds).clamp(SHORTEST, TICK),
            };
            tokio::select! {
                event = session.next() => match event {
                    Event::Connected => {
                        tracing::info!("{}: connected", self.remote);
                        due.configuration = true;
                        if !session.holds_lock() {
                            let me = std::process::id();
                            tracing::error!(
                                "another ovs-vswitchd process is running, disabling this process (pid {me}) until it \
                                 goes away"
                            );
                            self.readiness.ready();
                        }
                    }
                    Event::Changed(changes) => due.configuration |= changes.iter().any(is_configuration),
                    Event::Lock(true) => due.configuration = true,
                    Event::Lock(false) => tracing::info!("the lock `{LOCK}` was lost"),
                    Event::Reply(..) => {}
                    // A server that is restarted, or starts later, is no fault.
                    Event::Disconnected(error) => tracing::info!("{error}; connecting again"),
                },
                change = changed(links.as_ref()) => match change {
                    Ok(()) => due.state = true,
                    Err(error) => {
                        tracing::warn!("interfaces are no longer watched: {error}");
                        links = None;
                    }
                },
                change = changes.changed() => match change {
                    Ok(()) => due.state = true,
                    Err(_) => return,
                },
                // Peers decide how often the status of monitoring changes: the latest one is written, at intervals.
                _ = changed_after(&mut monitored, quiet_until) => {
                    due.monitored = true;
                    quiet_until = Instant::now() + MONITORED_PAUSE;
                }
                _ = pulses.changed() => {}
                _ = ticks.tick() => due.tick = true,
                () = tokio::time::sleep(until_statistics) => {}
            }
        }
    }

    /// Applies the configuration in the replica and answers it. Returns whether the answer is in the database.
    async fn apply(
        &self,
        parts: Parts<'_>,
        session: &mut Session,
        applied: &mut Applied,
        numbers: &Mutex<Numbers>,
    ) -> bool {
        let Parts { desired, bonds, trees, monitor, qos } = parts;
        let plan = match Plan::new(session.replica(), &self.rundir, self.types, &mut applied.given) {
            Ok(plan) => plan,
            Err(error) => {
                tracing::error!("the configuration is not applied: {error}");
                return true;
            }
        };
        if OpenVSwitch::only(session.replica()).is_ok_and(|root| root.is_none()) {
            tracing::info!("the table `{}` is empty; waiting for a row", OpenVSwitch::INFO.name);
        }
        let said: BTreeSet<_> =
            plan.warnings.iter().chain(&plan.errors).chain(&plan.notes).cloned().collect();
        for text in said.difference(&applied.said) {
            if plan.errors.contains(text) {
                tracing::error!("{text}");
            } else if plan.warnings.contains(text) {
                tracing::warn!("{text}");
            } else {
                tracing::info!("{text}");
            }
        }
        applied.said = said;
        let bridges: Vec<_> = plan.bridges.iter().filter_map(|bridge| bridge.config()).collect();
        if plan.workers != applied.plan.workers {
            let (subject, cpus) = (desired.clone(), plan.workers.clone());
            match tokio::task::spawn_blocking(move || subject.set_workers(cpus)).await {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => tracing::warn!("pmd-cpu-mask: {reason}"),
                Err(error) => tracing::error!("pmd-cpu-mask: {error}; this is a bug in mswitch"),
            }
        }
        tokio::task::block_in_place(|| monitor.prepare(&plan));
        let (subject, its) = (desired.clone(), monitor.clone());
        let owned = applied.plan.ports();
        let planned = plan.ports();
        let set = tokio::task::spawn_blocking(move || {
            its.tell();
            let stays = |bridge: &str, port: &str| {
                let at = (bridge.to_owned(), port.to_owned());
                planned.contains(&at) || !owned.contains(&at)
            };
            let departed = Departed::list(&subject, stays);
            let set = subject.set_database(bridges);
            departed.forget(&subject);
            its.join();
            set
        });
        let set = set.await;
        let refused = match set {
            Ok(Ok(refused)) => refused.into_iter().map(|(at, why)| (at, why.to_string())).collect(),
            // Tools wait for an answer: each bridge has the reason.
            Ok(Err(refusal)) => plan
                .bridges
                .iter()
                .map(|bridge| (Object::Bridge(bridge.name.clone()), refusal.to_string()))
                .collect(),
            Err(error) => {
                tracing::error!("the configuration is not applied: {error}; this is a bug in mswitch");
                return true;
            }
        };
        note_numbers(&plan, &mut numbers.lock().unwrap_or_else(PoisonError::into_inner));
        tell_added(&applied.plan, &plan);
        applied.number = plan.root.map_or(0, |(_, number)| number);
        applied.refused = reasons(&plan, refused);
        tokio::task::block_in_place(|| {
            bonds.configure(&plan);
            trees.configure(&plan);
        });
        qos.follow(&plan);
        applied.plan = plan;
        let answered = self.refresh(parts, session, applied, true, true).await;
        if answered {
            self.readiness.ready();
        }
        answered
    }

    /// Writes the state of the running configuration; `reread`: network devices may have changed. Returns whether it is
    /// in the database.
    async fn refresh(
        &self,
        parts: Parts<'_>,
        session: &mut Session,
        applied: &mut Applied,
        reread: bool,
        statistics: bool,
    ) -> bool {
        let Parts { desired, bonds, trees, monitor, .. } = parts;
        let known = (!reread).then_some(applied.facts.as_slice());
        // A short lock and some small files: no thread of its own.
        let (facts, controllers, copied, bonded) = tokio::task::block_in_place(|| {
            let (plan, state) = (&applied.plan, desired.state());
            let facts = facts::of(plan, state, &applied.refused, known);
            (
                facts,
                controllers::of(plan, state),
                statistics.then(|| mirrors::copied(plan, state)),
                bonds.facts(plan),
            )
        });
        applied.facts = facts;
        if statistics {
            let interval = u64::try_from(applied.plan.statistics_interval.as_nanos()).unwrap_or(u64::MAX);
            applied.next_statistics = ofagent::clock::now().saturating_add(interval);
        }
        let Applied { plan, facts, number, .. } = applied;
        let mut transaction =
            answer::operations(session.replica(), plan, self.types, facts, &controllers, *number, statistics);
        monitor::columns::write(session.replica(), plan, &monitor.statuses(), &mut transaction);
        if let Some(copied) = copied {
            mirrors::write(session.replica(), &copied, &mut transaction);
        }
        bonds.write(session.replica(), plan, &bonded, &mut transaction);
        trees.write(session.replica(), plan, statistics, &mut transaction);
        if transaction.is_empty() {
            return true;
        }
        transaction.operations.insert(0, Operation::Assert(LOCK.into()));
        match session.transact(&transaction).await {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!("the state is not written: {error}");
                false
            }
        }
    }
}

/// Notes the numbers of a plan's ports.
fn note_numbers(plan: &Plan, numbers: &mut Numbers) {
    let all = plan.bridges.iter().flat_map(|bridge| {
        let its = bridge.interfaces.iter();
        its.map(|it| ((bridge.name.clone(), it.name.clone()), it))
    });
    numbers.openflow = all.clone().map(|(port, it)| (port, it.number)).collect();
    let is_patch = |config: &PortConfig| matches!(config.spec, Spec::Patch(_));
    let counted = all.filter(|(_, it)| it.port.as_ref().is_ok_and(|config| !is_patch(config)));
    datapath::give(&mut numbers.datapath, &counted.map(|(port, _)| port).collect::<Vec<_>>());
}

/// Logs new interfaces and bridges in the words that Open vSwitch has for it.
fn tell_added(before: &Plan, plan: &Plan) {
    for bridge in plan.bridges.iter().filter(|bridge| bridge.error.is_none()) {
        let known = before.bridges.iter().find(|other| other.uuid == bridge.uuid && other.error.is_none());
        let name = &bridge.name;
        let is_known = |port: &PlannedInterface| {
            let mut others = known.iter().flat_map(|known| &known.interfaces);
            others.any(|other| other.uuid == port.uuid && other.number == port.number && other.port.is_ok())
        };
        for port in bridge.interfaces.iter().filter(|port| port.port.is_ok() && !is_known(port)) {
            tracing::info!("bridge {name}: added interface {} on port {}", port.name, port.number);
        }
        if known.is_none_or(|known| known.datapath_id != bridge.datapath_id) {
            tracing::info!("bridge {name}: using datapath ID {}", bridge.datapath_id);
        }
    }
}

/// Waits until a time, then for a change since the last one that was seen.
async fn changed_after(changes: &mut watch::Receiver<()>, time: Instant) {
    tokio::time::sleep_until(time).await;
    // Without a sender, nothing changes any more.
    if changes.changed().await.is_err() {
        std::future::pending().await
    }
}

/// Waits for a change of the host's interfaces; forever if they are not watched.
async fn changed(links: Option<&LinkWatch>) -> std::io::Result<()> {
    match links {
        Some(links) => links.changed().await,
        None => std::future::pending().await,
    }
}

/// Returns whether a change may concern the configuration.
fn is_configuration(change: &Change) -> bool {
    match &change.kind {
        ChangeKind::Modified { columns } => columns.iter().any(|column| !OWN.contains(&column.as_str())),
        ChangeKind::Inserted | ChangeKind::Deleted => true,
    }
}

/// Returns the reasons by port: what a bridge is left out for is said of its ports.
fn reasons(plan: &Plan, refused: Vec<(Object, String)>) -> Refused {
    let mut reasons = Refused::new();
    for (object, reason) in refused {
        tracing::warn!("{object}: {reason}");
        match object {
            Object::Port { bridge, port } => {
                reasons.insert((bridge, port), reason);
            }
            Object::Bridge(name) => {
                let bridge = plan.bridges.iter().find(|bridge| bridge.name == name);
                for interface in bridge.into_iter().flat_map(|bridge| &bridge.interfaces) {
                    reasons.insert((name.clone(), interface.name.clone()), reason.clone());
                }
            }
            _ => {}
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changes_that_come_too_soon_are_seen_as_one() {
        let sender = watch::Sender::new(());
        let mut changes = sender.subscribe();
        let start = Instant::now();
        let later = start + MONITORED_PAUSE;
        sender.send_replace(());
        changed_after(&mut changes, start).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "the first is seen at once");
        (0..1000).for_each(|_| sender.send_replace(()));
        changed_after(&mut changes, later).await;
        assert_eq!(start.elapsed(), MONITORED_PAUSE);
        let again = tokio::time::timeout(MONITORED_PAUSE, changed_after(&mut changes, later)).await;
        assert!(again.is_err(), "nothing more has changed");
    }
}
