//! The agent: a switch's controllers, its management socket, its snoop socket and its clock.
//!
//! Every task ends when the sender of its `Stop` is dropped, and within a second.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ofswitch::{Limit, PerWhat};
use socket_file::{SocketError, SocketFile};
use tokio::net::UnixListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::connection::{Stop, stopped};
use crate::passive::{Door, Listener, Service};
use crate::settings::{FailMode, Settings};
use crate::shared::SharedSwitch;
use crate::state::{ControllerState, TargetState};
use crate::target::Target;
use crate::timers::Policy;
use crate::{active, passive};

/// Period in which flows' timeouts are looked at.
const TICK: Duration = Duration::from_secs(1);

/// Reasons why an agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There are more controllers than [`crate::Limits::controllers`].
    #[error("{count} controllers (at most {most})")]
    TooManyControllers {
        /// Controllers asked for.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// The management or the snoop socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// A task, ended by dropping `stop`.
#[derive(Debug)]
struct Running {
    stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    fn new<F: Future<Output = ()> + Send + 'static>(runtime: &Handle, run: impl FnOnce(Stop) -> F) -> Self {
        let (stop, receiver) = watch::channel(());
        Running { stop, task: runtime.spawn(run(receiver)) }
    }
}

#[derive(Debug)]
struct Controller {
    target: Target,
    state: Arc<TargetState>,
    running: Running,
}

/// The connections of a switch. Dropping it ends them in the background.
#[derive(Debug)]
pub struct Agent {
    runtime: Handle,
    shared: Arc<SharedSwitch>,
    settings: Arc<Settings>,
    controllers: Vec<Controller>,
    /// Connections that passive targets may still accept.
    passive: Arc<Semaphore>,
    /// Connections that the management and the snoop socket may still accept.
    management: Arc<Semaphore>,
    snoop: Arc<Semaphore>,
    /// The clock and the sockets.
    services: Vec<Running>,
}

impl Agent {
    /// Starts the connections of a switch on a runtime. A switch has one agent.
    ///
    /// A controller that cannot be reached, or a passive target that cannot listen, is tried again and shown in
    /// [`Agent::controllers`].
    ///
    /// # Errors
    /// There are too many controllers, or the management or snoop socket cannot be made.
    pub fn start(
        runtime: &Handle,
        shared: Arc<SharedSwitch>,
        settings: Settings,
    ) -> Result<Self, StartError> {
        let settings = Arc::new(settings);
        let limits = settings.limits;
        let mut agent = Agent {
            runtime: runtime.clone(),
            shared: shared.clone(),
            controllers: vec![],
            passive: Arc::new(Semaphore::new(limits.passive)),
            management: Arc::new(Semaphore::new(limits.management)),
            snoop: Arc::new(Semaphore::new(limits.snoop)),
            services: vec![],
            settings: settings.clone(),
        };
        if let Some(path) = &settings.management {
            let slots = agent.management.clone();
            agent.serve(path, slots, Service::Switch(Policy::management(&settings)))?;
        }
        if let Some(path) = &settings.snoop {
            let slots = agent.snoop.clone();
            agent.serve(path, slots, Service::Snoop(limits.controller_stall))?;
        }
        agent.set_controllers(settings.controllers.clone())?;
        agent.services.push(Running::new(runtime, |stop| tick(shared, stop)));
        Ok(agent)
    }

    /// Serves a socket that the agent always has.
    fn serve(&mut self, path: &Path, slots: Arc<Semaphore>, service: Service) -> Result<(), SocketError> {
        let (file, listener) = SocketFile::listen(path, self.settings.access)?;
        let context = self.runtime.enter();
        let listener =
            UnixListener::from_std(listener).map_err(|error| SocketError::Io { path: path.into(), error })?;
        drop(context);
        let door = Door { shared: self.shared.clone(), state: Arc::new(TargetState::new()), slots, service };
        let listener = Listener::Unix { listener, _file: file };
        self.services.push(Running::new(&self.runtime, |stop| passive::accept(listener, door, stop)));
        Ok(())
    }

    /// Replaces the controllers. Connections to those that stay are left as they are.
    ///
    /// # Errors
    /// There are too many: nothing is changed.
    pub fn set_controllers(&mut self, mut targets: Vec<Target>) -> Result<(), StartError> {
        targets.sort();
        targets.dedup();
        let (count, most) = (targets.len(), self.settings.limits.controllers);
        if count > most {
            return Err(StartError::TooManyControllers { count, most });
        }
        self.controllers.retain(|controller| targets.contains(&controller.target));
        for target in targets {
            if !self.controllers.iter().any(|controller| controller.target == target) {
                let controller = self.start_controller(target);
                self.controllers.push(controller);
            }
        }
        Ok(())
    }

    fn start_controller(&self, target: Target) -> Controller {
        let (shared, settings) = (self.shared.clone(), self.settings.clone());
        let state = Arc::new(TargetState::new());
        let named = target.clone();
        let running = if target.is_passive() {
            let service = Service::Switch(Policy::passive(&settings));
            let door = Door { shared, state: state.clone(), slots: self.passive.clone(), service };
            Running::new(&self.runtime, |stop| passive::run(named, door, settings, stop))
        } else {
            let state = state.clone();
            Running::new(&self.runtime, |stop| active::run(named, shared, settings, state, stop))
        };
        Controller { target, state, running }
    }

    /// Controllers and their connections.
    pub fn controllers(&self) -> Vec<ControllerState> {
        self.controllers
            .iter()
            .map(|controller| controller.state.show(&controller.target, &self.shared))
            .collect()
    }

    /// Limits of connections, with their use.
    pub fn limits(&self) -> Vec<Limit> {
        let limits = &self.settings.limits;
        let slots = |name, slots: &Semaphore, most: usize| {
            Limit::count(name, PerWhat::Bridge, most.saturating_sub(slots.available_permits()), most)
        };
        vec![
            Limit::count("controllers", PerWhat::Bridge, self.controllers.len(), limits.controllers),
            slots("accepted connections", &self.passive, limits.passive),
            slots("management connections", &self.management, limits.management),
            slots("observers", &self.snoop, limits.snoop),
        ]
    }

    /// Sets what a lack of controllers means. Connections are left as they are.
    pub fn set_fail_mode(&mut self, fail_mode: FailMode) {
        Arc::make_mut(&mut self.settings).fail_mode = fail_mode;
    }

    /// Whether there is a controller to connect to.
    pub fn has_active(&self) -> bool {
        self.controllers.iter().any(|controller| !controller.target.is_passive())
    }

    /// Whether the bridge is to forward on its own: its fail mode is standalone, and it has no active controller, or
    /// none has been connected for three probe intervals.
    ///
    /// As in Open vSwitch, connections that passive targets accept do not count.
    pub fn is_standalone(&self) -> bool {
        if self.settings.fail_mode == FailMode::Secure {
            return false;
        }
        let grace = self.settings.grace();
        !self.has_active() || self.shared.without_controller().is_some_and(|without| without >= grace)
    }

    /// Ends all connections, after what waits for them has left or a second has passed, and removes the sockets.
    pub async fn shutdown(self) {
        let running = self.controllers.into_iter().map(|controller| controller.running);
        let tasks: Vec<JoinHandle<()>> = running
            .chain(self.services)
            .map(|Running { stop, task }| {
                drop(stop);
                task
            })
            .collect();
        for task in tasks {
            // A task that has panicked has ended, too.
            let _ = task.await;
        }
    }
}

/// Looks after timeouts while there are some.
async fn tick(shared: Arc<SharedSwitch>, mut stop: Stop) {
    let mut needs_ticks = shared.needs_ticks();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ticks = async {
        // The sender is in `shared`.
        while needs_ticks.wait_for(|needs_ticks| *needs_ticks).await.is_ok() {
            ticks.tick().await;
            shared.with(|switch, now| switch.tick(now));
        }
    };
    tokio::select! {
        () = ticks => {}
        () = stopped(&mut stop) => {}
    }
}
