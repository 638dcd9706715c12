//! The desired configuration, and the only way to change it.
//!
//! File, command line, API and database all end here: an [`Edit`] or a whole [`Config`] changes the desired
//! configuration, and a [reconcile](crate::reconcile) pass makes the switch match. A single edit is atomic: if the
//! switch cannot apply it, it is rolled back and refused. A whole configuration remains desired even if parts of it
//! fail; failures are reported and retried until they succeed. Each bridge has an [`Owner`]; a change from elsewhere is
//! refused, or leaves the bridge as it is.
//!
//! Calls block, see [`crate::state`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::author::Author;
use crate::check::{self, Ours};
use crate::database;
use crate::diff::{self, Difference, Kind, Object};
use crate::edit::Edit;
use crate::events::Events;
use crate::file::{self, FileError, Parsed};
use crate::limits;
use crate::model::{BridgeConfig, Config, DaemonConfig, Owner};
use crate::reconcile::{Outcome, Retries, SLOWEST_RETRY};
use crate::refusal::Refusal;
use crate::state::{State, every};

/// The desired configuration. See the module.
pub struct Desired {
    state: Arc<State>,
    events: Arc<Events>,
    config: Mutex<Config>,
    /// The contents of the daemon's file when the daemon last read or saved it.
    saved: Mutex<Option<Config>>,
    socket: PathBuf,
    /// Wakes [`Desired::maintain`] before its next scheduled pass.
    wake: Notify,
}

/// Result of applying a whole configuration.
#[derive(Debug, Clone, Default)]
pub struct Applied {
    /// The differences from the previous desired configuration.
    pub differences: Vec<Difference>,
    /// The results for the objects.
    pub outcomes: Vec<Outcome>,
    /// Whether the command line's list of workers is in effect.
    pub workers_overridden: bool,
}

impl Applied {
    /// Returns the objects that failed, with the reasons.
    pub fn troubles(&self) -> impl Iterator<Item = (&Object, &str)> {
        self.outcomes.iter().filter_map(|outcome| Some((&outcome.object, outcome.trouble.as_deref()?)))
    }

    /// Returns notes on changes that take effect only after a restart.
    pub fn notes(&self) -> Vec<String> {
        let daemon = self.differences.iter().find(|difference| difference.object == Object::Daemon);
        let keys = daemon.into_iter().flat_map(|difference| &difference.keys);
        let notes =
            keys.map(|change| format!("`{}` of the daemon takes effect at its next start", change.key));
        let workers = self.differences.iter().any(|difference| difference.object == Object::Workers);
        let overridden = (workers && self.workers_overridden).then(|| {
            "`workers` of the daemon has no effect: it was started with --workers, which takes precedence"
                .into()
        });
        notes.chain(overridden).collect()
    }
}

impl Desired {
    /// Starts with an empty configuration. `daemon` is the `[daemon]` section without the overrides of the command
    /// line; the control socket is at `socket`. The switch has the section's workers already.
    pub fn new(state: Arc<State>, daemon: DaemonConfig, socket: PathBuf) -> Self {
        let config = Mutex::new(Config { daemon, ..Config::default() });
        let (events, saved, wake) = Default::default();
        Self { state, events, config, saved, socket, wake }
    }

    /// Returns the running state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the source of events.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// Returns the operator's part of the desired configuration.
    pub fn config(&self) -> Config {
        self.lock().of(Owner::Operator)
    }

    fn lock(&self) -> MutexGuard<'_, Config> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a single change, atomically. Returns the objects that it changed.
    pub fn edit(&self, edit: Edit, author: &Author) -> Result<Vec<Difference>, Refusal> {
        let mut config = self.lock();
        let mut next = config.clone();
        self.check_machine(&edit)?;
        if let Edit::SetLogic { bridge, .. } = &edit {
            self.state.rebuild_logic(bridge);
        }
        if let Edit::SetPort { bridge, port, .. } = &edit {
            // An operator who sets a port has dealt with its client.
            self.state.lift_hold_off(bridge, port);
        }
        let removes_workers = matches!(edit, Edit::RemoveWorkers(_));
        // The command line's list of workers is changed in place of the file's.
        let command_line = self.state.workers.command_line();
        let mut shown = config.clone();
        if let Some(cpus) = &command_line {
            shown.daemon.workers.clone_from(cpus);
            next.daemon.workers.clone_from(cpus);
        }
        edit.apply(&mut next)?;
        let differences = diff::between(&shown, &next);
        limits::raise_for(&next)?;
        // Before any queue moves.
        let gone = shown.daemon.workers.iter().filter(|cpu| !next.daemon.workers.contains(cpu)).copied();
        if removes_workers && let Some(reason) = self.state.pinned_to(gone) {
            return Err(Refusal::Other(format!("{}: {reason}", Object::Workers)));
        }
        if command_line.is_some() {
            let cpus = std::mem::replace(&mut next.daemon.workers, config.daemon.workers.clone());
            self.state.workers.set_command_line(cpus);
        }
        let before = self.state.failed_ports();
        let workers_before = self.state.workers.unmet();
        let outcomes = self.state.reconcile(&next, Retries::None);
        // An object that failed before the edit does not cause a refusal, nor does a worker that did.
        let failed = outcomes.iter().find_map(|outcome| match (&outcome.object, &outcome.trouble) {
            (_, None) => None,
            (Object::Workers, Some(_)) => {
                let new = self.state.workers.new_trouble(workers_before.clone())?;
                Some(refusal(&Outcome { trouble: Some(new), ..outcome.clone() }))
            }
            (object, Some(_)) => (!before.contains(object)).then(|| refusal(outcome)),
        });
        if let Some(refusal) = failed {
            // Roll back. Neither the change nor the rollback is logged or sent as an event.
            if let Some(cpus) = command_line {
                self.state.workers.set_command_line(cpus);
            }
            self.state.reconcile(&config, Retries::None);
            return Err(refusal);
        }
        *config = next;
        drop(config);
        self.report(author, &differences, &outcomes);
        Ok(differences)
    }

    /// Logs a change and sends its events.
    fn report(&self, author: &Author, differences: &[Difference], outcomes: &[Outcome]) {
        if *author != Author::Start {
            for difference in differences {
                match difference.object {
                    Object::Daemon => {
                        let values = difference.values();
                        tracing::info!(by = %author, "daemon: takes effect at the next start: {values}");
                    }
                    _ => tracing::info!(by = %author, "{difference}"),
                }
            }
            // A logic whose file has changed is rebuilt without a difference in the configuration.
            let differs = |object: &Object| differences.iter().any(|difference| difference.object == *object);
            for Outcome { object, action, trouble } in outcomes {
                if trouble.is_none() && !differs(object) {
                    tracing::info!(by = %author, "{object} {}", action.past());
                }
            }
        }
        self.events.changes(author, differences, outcomes);
    }

    /// Checks that no other process uses the socket that a new port is to create.
    fn check_machine(&self, edit: &Edit) -> Result<(), Refusal> {
        let Edit::AddPort { bridge, port } = edit else { return Ok(()) };
        let bridges = self.state.bridges();
        let sockets = every(&bridges).filter_map(|(_, _, port)| check::listens_on(&port.config.spec));
        let ours = Ours { sockets: sockets.map(Into::into).collect(), process: Some(std::process::id()) };
        drop(bridges);
        check::in_use(&port.spec, &ours).map_err(|fault| Refusal::Port {
            bridge: bridge.clone(),
            port: port.settings.name.clone(),
            message: fault.message,
        })
    }

    /// Parses a configuration for this daemon from `text`. Messages refer to it as `name`.
    pub fn read(&self, text: &str, name: &Path) -> Result<Parsed, FileError> {
        file::parse_for(text, name, file::Depth::Machine, Some(&self.socket))
    }

    /// Returns what [`replace`](Self::replace) would do.
    pub fn preview(&self, config: &Config) -> Applied {
        let workers_overridden = self.state.workers.command_line().is_some();
        Applied { differences: self.compare(config), workers_overridden, ..Applied::default() }
    }

    /// Returns the changes that [`replace`](Self::replace) would make.
    pub fn compare(&self, config: &Config) -> Vec<Difference> {
        diff::between(&self.config(), config)
    }

    /// Returns the number of objects that differ from `file`. The daemon's own settings do not count: they wait for its
    /// next start. Fails if the file cannot be read or has mistakes of form.
    pub fn unsaved(&self, file: &Path) -> Result<usize, FileError> {
        let saved = file::parse(&file::text_of(file)?, file, file::Depth::Form)?;
        Ok(self.compare(&saved).iter().filter(|difference| difference.object != Object::Daemon).count())
    }

    /// Notes that the daemon's file has these contents, which the daemon has read or saved.
    pub fn set_saved(&self, config: Config) {
        *self.saved.lock().unwrap_or_else(PoisonError::into_inner) = Some(config);
    }

    /// Returns the changes from `there`, the contents of the daemon's file, to `wanted` that revert edits of the file
    /// since the daemon last read or saved it.
    pub fn overwritten(&self, there: &Config, wanted: &Config) -> Vec<Difference> {
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(saved) = saved.as_ref() else { return Vec::new() };
        let edits = diff::between(saved, there);
        let mut reverted = diff::between(there, wanted);
        reverted.retain_mut(|change| {
            let Some(edit) = edits.iter().find(|edit| edit.object == change.object) else { return false };
            if (edit.kind, change.kind) == (Kind::Changed, Kind::Changed) {
                change.keys.retain(|key| edit.keys.iter().any(|edited| edited.key == key.key));
            }
            !change.keys.is_empty()
        });
        reverted
    }

    /// Replaces the operator's part of the desired configuration by `config`, except for the daemon's own settings other
    /// than its workers.
    pub fn replace(&self, config: Config, author: &Author) -> Result<Applied, Refusal> {
        limits::raise_for(&config)?;
        let mut desired = self.lock();
        let databases = desired.of(Owner::Database).bridges;
        if let Some(bridge) = databases.iter().find(|bridge| config.bridge(&bridge.name).is_some()) {
            return Err(Refusal::Database(bridge.name.clone()));
        }
        let differences = diff::between(&desired.of(Owner::Operator), &config);
        desired.bridges = config.bridges;
        desired.bridges.extend(databases);
        desired.sflow = config.sflow;
        desired.daemon.workers = config.daemon.workers;
        let workers_overridden = self.state.workers.command_line().is_some();
        let outcomes = self.state.reconcile(&desired, Retries::All);
        drop(desired);
        let took_effect = |it: &&Difference| it.object != Object::Workers || !workers_overridden;
        let effective: Vec<_> = differences.iter().filter(took_effect).cloned().collect();
        self.report(author, &effective, &outcomes);
        self.wake.notify_one();
        Ok(Applied { differences, outcomes, workers_overridden })
    }

    /// Replaces the database's part of the desired configuration by `bridges`. Bridges and ports that cannot be
    /// configured are left out; returns them with the reasons.
    pub fn set_database(&self, bridges: Vec<BridgeConfig>) -> Result<Vec<(Object, Refusal)>, Refusal> {
        let mut desired = self.lock();
        let mut next = desired.of(Owner::Operator);
        let refused = database::add(&mut next, bridges);
        if next == *desired {
            return Ok(refused);
        }
        limits::raise_for(&next)?;
        let differences = diff::between(&desired, &next);
        let outcomes = self.state.reconcile(&next, Retries::None);
        *desired = next;
        drop(desired);
        self.report(&Author::Database, &differences, &outcomes);
        self.wake.notify_one();
        Ok(refused)
    }

    /// Sets the CPUs of the workers, as the database lists them; without any, one worker runs that is not pinned. Workers
    /// that cannot be added or removed now are tried again later; returns the reasons.
    pub fn set_workers(&self, cpus: Vec<usize>) -> Result<(), String> {
        let mut desired = self.lock();
        let mut next = desired.clone();
        next.daemon.workers = cpus;
        let differences = diff::between(&desired, &next);
        if differences.is_empty() {
            return Ok(());
        }
        let outcomes = self.state.reconcile(&next, Retries::None);
        *desired = next;
        drop(desired);
        self.report(&Author::Database, &differences, &outcomes);
        let its = outcomes.into_iter().find(|outcome| outcome.object == Object::Workers);
        its.and_then(|outcome| outcome.trouble).map_or(Ok(()), Err)
    }

    /// [`replace`](Self::replace) with the contents of the daemon's file.
    pub fn load(&self, config: Config, author: &Author) -> Result<Applied, Refusal> {
        let saved = config.clone();
        let applied = self.replace(config, author)?;
        self.set_saved(saved);
        Ok(applied)
    }

    /// Retries the failed ports that are due. Returns the time of the next retry.
    fn retry(&self) -> Option<Instant> {
        let config = self.lock();
        let outcomes = self.state.reconcile(&config, Retries::Due);
        drop(config);
        for outcome in &outcomes {
            match &outcome.trouble {
                None => tracing::info!("{} {}", outcome.object, outcome.action.past()),
                Some(trouble) => tracing::debug!("{}: {trouble}", outcome.object),
            }
        }
        self.events.retries(&outcomes);
        self.state.next_retry()
    }

    /// Requests a pass soon: a port may have lost its backing resource.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Retries failed ports, and checks periodically for ports that lost their backing resource: the deletion of an
    /// interface does not notify the processes that have it open. Never returns.
    pub async fn maintain(self: Arc<Self>) {
        loop {
            let this = self.clone();
            let next = match tokio::task::spawn_blocking(move || this.retry()).await {
                Ok(next) => next,
                Err(error) => {
                    tracing::error!("reconciliation failed: {error}; this is a bug in mswitch");
                    Some(Instant::now() + Duration::from_secs(10))
                }
            };
            self.clone().wait(next).await;
        }
    }

    /// Returns at `until`, after [`wake`](Self::wake), or when a port has lost its backing resource.
    async fn wait(self: Arc<Self>, until: Option<Instant>) {
        loop {
            let check = Instant::now() + SLOWEST_RETRY;
            let due = until.filter(|until| *until <= check);
            tokio::select! {
                () = tokio::time::sleep_until(due.unwrap_or(check).into()) => {}
                () = self.wake.notified() => return,
            }
            let this = self.clone();
            // If the check fails, a whole pass is made.
            let lost = tokio::task::spawn_blocking(move || this.state.has_lost()).await.unwrap_or(true);
            if due.is_some() || lost {
                return;
            }
        }
    }
}

/// Builds the reason for rolling back an edit.
fn refusal(failed: &Outcome) -> Refusal {
    let message = failed.trouble.clone().unwrap_or_default();
    match &failed.object {
        Object::Port { bridge, port } => {
            Refusal::Port { bridge: bridge.clone(), port: port.clone(), message }
        }
        object => Refusal::Other(format!("{object}: {message}")),
    }
}
