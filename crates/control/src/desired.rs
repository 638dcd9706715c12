//! The configuration that the switch is to match, and the one way to change it.
//!
//! File, command line and API all end here: an [`Edit`] or a whole [`Config`] changes what is wanted, and a
//! [reconcile](crate::reconcile) pass makes the switch match. An edit by itself is made whole or not at all: when the
//! switch cannot follow, it is taken back and refused. A whole configuration stays wanted even if part of it cannot be
//! done yet; what failed is reported and tried again until its cause goes.
//!
//! Calls block: see [`crate::state`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::author::Author;
use crate::check::{self, Ours};
use crate::diff::{self, Difference, Object};
use crate::edit::Edit;
use crate::events::Events;
use crate::file::{self, FileError, Parsed};
use crate::limits;
use crate::model::{Config, DaemonConfig};
use crate::reconcile::{Effort, Outcome, SLOWEST_RETRY};
use crate::refusal::Refusal;
use crate::state::{State, every};

/// See the module.
pub struct Desired {
    state: Arc<State>,
    events: Arc<Events>,
    wanted: Mutex<Config>,
    socket: PathBuf,
    /// Something may be due for another try sooner than thought.
    wake: Notify,
}

/// What a whole configuration changed.
#[derive(Debug, Clone, Default)]
pub struct Applied {
    /// What differs from what was wanted before.
    pub differences: Vec<Difference>,
    /// What was done about it.
    pub outcomes: Vec<Outcome>,
}

impl Applied {
    /// What could not be done.
    pub fn troubles(&self) -> impl Iterator<Item = (&Object, &str)> {
        self.outcomes.iter().filter_map(|outcome| Some((&outcome.object, outcome.trouble.as_deref()?)))
    }

    /// What takes effect only when the daemon starts again.
    pub fn notes(&self) -> Vec<String> {
        let daemon = self.differences.iter().find(|difference| difference.object == Object::Daemon);
        let keys = daemon.into_iter().flat_map(|difference| &difference.keys);
        keys.map(|change| format!("`{}` of the daemon takes effect at its next start", change.key)).collect()
    }
}

impl Desired {
    /// Nothing wanted yet but the daemon's own settings, those of the command line excepted; the control socket is
    /// at `socket`.
    pub fn new(state: Arc<State>, daemon: DaemonConfig, socket: PathBuf) -> Self {
        let wanted = Mutex::new(Config { daemon, ..Config::default() });
        Self { state, events: Arc::default(), wanted, socket, wake: Notify::new() }
    }

    /// What runs.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What happens.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// The configuration that is wanted.
    pub fn wanted(&self) -> Config {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Config> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change, whole or not at all. Returns the objects that it changed.
    pub fn edit(&self, edit: Edit, author: &Author) -> Result<Vec<Difference>, Refusal> {
        let mut wanted = self.lock();
        let mut next = wanted.clone();
        self.check_machine(&edit)?;
        if let Edit::SetLogic { bridge, .. } = &edit {
            self.state.renew_logic(bridge);
        }
        if let Edit::SetPort { bridge, port, .. } = &edit {
            // Who sees to a port has seen to its client.
            self.state.lift_hold_off(bridge, port);
        }
        edit.apply(&mut next)?;
        limits::raise_for(next.ports())?;
        let before = self.state.in_trouble();
        let outcomes = self.state.reconcile(&next, Effort::Changes);
        // What failed before and fails still is not the edit's fault.
        let failed = |outcome: &&Outcome| outcome.trouble.is_some() && !before.contains(&outcome.object);
        if let Some(failed) = outcomes.iter().find(failed) {
            let refusal = refusal(failed);
            // What was made for the change goes again. Nobody has seen it, so nobody is told.
            self.state.reconcile(&wanted, Effort::Changes);
            return Err(refusal);
        }
        let differences = diff::between(&wanted, &next);
        *wanted = next;
        drop(wanted);
        self.tell(author, &differences, &outcomes);
        Ok(differences)
    }

    /// Logs a change and tells of it as events.
    fn tell(&self, author: &Author, differences: &[Difference], outcomes: &[Outcome]) {
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
            // A logic whose file has changed is made anew though its configuration is the same.
            let differs = |object: &Object| differences.iter().any(|difference| difference.object == *object);
            for Outcome { object, action, trouble } in outcomes {
                if trouble.is_none() && !differs(object) {
                    tracing::info!(by = %author, "{object} {}", action.past());
                }
            }
        }
        self.events.changes(author, differences, outcomes);
    }

    /// Whether somebody else uses what a new port wants to make.
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

    /// Reads a configuration meant for this daemon from `text`; messages name `name`.
    pub fn read(&self, text: &str, name: &Path) -> Result<Parsed, FileError> {
        file::parse_for(text, name, file::Depth::Machine, Some(&self.socket))
    }

    /// What would change if `config` were wanted.
    pub fn compare(&self, config: &Config) -> Vec<Difference> {
        diff::between(&self.lock(), config)
    }

    /// The number of objects that differ from `file`, the daemon's own settings not counted: those wait for its next
    /// start. `None` if the file cannot be read.
    pub fn unsaved(&self, file: &Path) -> Option<usize> {
        let saved = file::parse(&file::text_of(file).ok()?, file, file::Depth::Form).ok()?;
        Some(self.compare(&saved).iter().filter(|difference| difference.object != Object::Daemon).count())
    }

    /// Makes `config` wanted in place of what was, the daemon's own settings excepted.
    pub fn replace(&self, config: Config, author: &Author) -> Result<Applied, Refusal> {
        limits::raise_for(config.ports())?;
        let mut wanted = self.lock();
        let differences = diff::between(&wanted, &config);
        wanted.bridges = config.bridges;
        wanted.sflow = config.sflow;
        let outcomes = self.state.reconcile(&wanted, Effort::All);
        drop(wanted);
        self.tell(author, &differences, &outcomes);
        self.wake.notify_one();
        Ok(Applied { differences, outcomes })
    }

    /// Tries again what is due. Returns when the next is.
    fn retry(&self) -> Option<Instant> {
        let wanted = self.lock();
        let outcomes = self.state.reconcile(&wanted, Effort::Due);
        drop(wanted);
        for outcome in &outcomes {
            match &outcome.trouble {
                None => tracing::info!("{} {}", outcome.object, outcome.action.past()),
                Some(trouble) => tracing::debug!("{}: {trouble}", outcome.object),
            }
        }
        self.events.retries(&outcomes);
        self.state.next_retry()
    }

    /// Looks again soon: a port may have lost what it had opened.
    pub fn look(&self) {
        self.wake.notify_one();
    }

    /// Tries again what failed, for ever, and looks from time to time whether a port has lost what it had opened: an interface can be
    /// deleted without a word to those who have it open.
    pub async fn keep(self: Arc<Self>) {
        loop {
            let this = self.clone();
            let next = match tokio::task::spawn_blocking(move || this.retry()).await {
                Ok(next) => next,
                Err(error) => {
                    tracing::error!("reconciling failed: {error}; this is a bug in mswitch");
                    Some(Instant::now() + Duration::from_secs(10))
                }
            };
            self.clone().rest(next).await;
        }
    }

    /// Returns when it is time, when somebody calls, or when a port has lost what it had opened.
    async fn rest(self: Arc<Self>, until: Option<Instant>) {
        loop {
            let look = Instant::now() + SLOWEST_RETRY;
            let over = until.filter(|until| *until <= look);
            tokio::select! {
                () = tokio::time::sleep_until(over.unwrap_or(look).into()) => {}
                () = self.wake.notified() => return,
            }
            let this = self.clone();
            // What cannot be found out so, a whole pass finds.
            let lost = tokio::task::spawn_blocking(move || this.state.has_lost()).await.unwrap_or(true);
            if over.is_some() || lost {
                return;
            }
        }
    }
}

/// Why an edit was taken back.
fn refusal(failed: &Outcome) -> Refusal {
    let message = failed.trouble.clone().unwrap_or_default();
    match &failed.object {
        Object::Port { bridge, port } => {
            Refusal::Port { bridge: bridge.clone(), port: port.clone(), message }
        }
        object => Refusal::Other(format!("{object}: {message}")),
    }
}
