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
use ovsdb::typed::Table;
use ovsdb::vswitch::{self, OpenVSwitch};
use ovsdb::{Change, ChangeKind, Event, Operation, Remote, Session, Settings};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use unixctl::Server;

use crate::answer;
use crate::bonds::Bonds;
use crate::commands::{self, Subjects};
use crate::controllers;
use crate::detach::Readiness;
use crate::dummy::Types;
use crate::facts::{self, Facts};
use crate::link_watch::LinkWatch;
use crate::log::Log;
use crate::mirrors;
use crate::plan::{LastNumbers, Plan};

/// The lock that Open vSwitch's daemon holds.
const LOCK: &str = "ovs_vswitchd";

/// Interval at which counters are written.
const STATISTICS_INTERVAL: Duration = Duration::from_secs(5);

/// Columns that only this daemon writes: their changes are not configuration.
const OWN: [&str; 22] = [
    "admin_state",
    "bond_active_slave",
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
    "statistics",
    "status",
];

/// OpenFlow numbers of ports, by bridge and name.
pub(crate) type Numbers = BTreeMap<(String, String), i64>;

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
    last: LastNumbers,
    refused: Refused,
    /// `next_cfg` of the configuration.
    number: i64,
    /// What was last found of the plan's interfaces.
    facts: Vec<Facts>,
    /// Warnings that are in the log.
    warned: BTreeSet<String>,
}

/// What is to be done once the database can be written.
#[derive(Debug, Default)]
struct Due {
    configuration: bool,
    state: bool,
    statistics: bool,
}

impl Follower {
    /// Runs until `exit` is requested.
    pub(crate) async fn run(self, desired: Arc<Desired>) {
        let numbers = Arc::new(Mutex::new(Numbers::new()));
        let bonds = Bonds::new(desired.clone());
        let (exit, log) = (self.exit.clone(), self.log.clone());
        let subjects = Subjects {
            desired: desired.clone(),
            numbers: numbers.clone(),
            bonds: bonds.clone(),
            types: self.types,
            exit,
            log,
        };
        let commands = commands::commands(subjects);
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
            () = self.follow(&desired, &bonds, &numbers) => {}
        }
    }

    async fn follow(&self, desired: &Arc<Desired>, bonds: &Arc<Bonds>, numbers: &Mutex<Numbers>) {
        let watch = LinkWatch::new();
        let mut links = watch.inspect_err(|error| tracing::warn!("interfaces are not watched: {error}")).ok();
        let mut settings = Settings::new(self.remote.clone(), vswitch::DATABASE, vswitch::TABLES.to_vec());
        settings.lock = Some(LOCK.into());
        let mut session = Session::new(settings);
        let mut changes = desired.state().changes();
        let mut ticks = tokio::time::interval(STATISTICS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut applied = Applied::default();
        let mut due = Due::default();
        loop {
            if session.is_connected() && session.holds_lock() {
                let now = std::mem::take(&mut due);
                // Without notifications, devices are read at each tick.
                let reread = now.state || links.is_none();
                let done = match now {
                    Due { configuration: true, .. } => {
                        self.apply(desired, bonds, &mut session, &mut applied, numbers).await
                    }
                    Due { state: true, .. } | Due { statistics: true, .. } => {
                        self.refresh(desired, bonds, &mut session, &mut applied, reread, now.statistics).await
                    }
                    _ => true,
                };
                // Tried again after the next event, at the latest at the next tick.
                due.configuration |= !done;
            }
            tokio::select! {
                event = session.next() => match event {
                    Event::Connected => {
                        tracing::info!("{}: connected", self.remote);
                        due.configuration = true;
                        if !session.holds_lock() {
                            tracing::warn!("another process holds the lock `{LOCK}`; waiting for it");
                            self.readiness.ready();
                        }
                    }
                    Event::Changed(changes) => due.configuration |= changes.iter().any(is_configuration),
                    Event::Lock(true) => due.configuration = true,
                    Event::Lock(false) => tracing::warn!("the lock `{LOCK}` was lost"),
                    Event::Reply(..) => {}
                    Event::Disconnected(error) => tracing::warn!("{error}; connecting again"),
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
                _ = ticks.tick() => due.statistics = true,
            }
        }
    }

    /// Applies the configuration in the replica and answers it. Returns whether the answer is in the database.
    async fn apply(
        &self,
        desired: &Arc<Desired>,
        bonds: &Arc<Bonds>,
        session: &mut Session,
        applied: &mut Applied,
        numbers: &Mutex<Numbers>,
    ) -> bool {
        let plan = match Plan::new(session.replica(), &self.rundir, self.types, &mut applied.last) {
            Ok(plan) => plan,
            Err(error) => {
                tracing::error!("the configuration is not applied: {error}");
                return true;
            }
        };
        if OpenVSwitch::only(session.replica()).is_ok_and(|root| root.is_none()) {
            tracing::info!("the table `{}` is empty; waiting for a row", OpenVSwitch::INFO.name);
        }
        let warnings: BTreeSet<_> = plan.warnings.iter().cloned().collect();
        for warning in warnings.difference(&applied.warned) {
            tracing::warn!("{warning}");
        }
        applied.warned = warnings;
        let bridges: Vec<_> = plan.bridges.iter().filter_map(|bridge| bridge.config()).collect();
        let subject = desired.clone();
        let set = tokio::task::spawn_blocking(move || subject.set_database(bridges)).await;
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
        *numbers.lock().unwrap_or_else(PoisonError::into_inner) = plan
            .bridges
            .iter()
            .flat_map(|bridge| {
                let its = bridge.interfaces.iter();
                its.map(|it| ((bridge.name.clone(), it.name.clone()), it.number))
            })
            .collect();
        applied.number = plan.root.map_or(0, |(_, number)| number);
        applied.refused = reasons(&plan, refused);
        tokio::task::block_in_place(|| bonds.configure(&plan));
        applied.plan = plan;
        let answered = self.refresh(desired, bonds, session, applied, true, true).await;
        if answered {
            self.readiness.ready();
        }
        answered
    }

    /// Writes the state of the running configuration; `reread`: network devices may have changed. Returns whether it is in
    /// the database.
    async fn refresh(
        &self,
        desired: &Arc<Desired>,
        bonds: &Bonds,
        session: &mut Session,
        applied: &mut Applied,
        reread: bool,
        statistics: bool,
    ) -> bool {
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
        let Applied { plan, facts, number, .. } = applied;
        let mut transaction =
            answer::operations(session.replica(), plan, self.types, facts, &controllers, *number, statistics);
        if let Some(copied) = copied {
            mirrors::write(session.replica(), &copied, &mut transaction);
        }
        bonds.write(session.replica(), plan, &bonded, &mut transaction);
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
