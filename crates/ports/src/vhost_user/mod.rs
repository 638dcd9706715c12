//! vhost-user ports: network devices of virtual machines, and of programs that play one (DPDK's virtio-user).
//!
//! `options` says what a user can set, `listener` waits for front-ends and `dialer` connects to them, `link` serves one,
//! `device` plugs the rings that it starts into the switch, `rx` and `tx` are what the data plane sees,
//! `further` is what `tx` keeps of long chains.

mod device;
mod dialer;
mod further;
mod link;
mod listener;
mod options;
mod rx;
mod tx;

use std::sync::{Arc, Mutex, PoisonError};

use fabric::switch::PortRef;
use tokio::task::JoinHandle;

pub use options::{Options, Role};

use crate::faults::Faults;
use crate::guard::await_closed;
use crate::{Environment, OpenError, Port, Status};
use link::PortState;

/// Opens a vhost-user port.
pub fn open(options: &Options, at: PortRef, env: &Environment) -> Result<Box<dyn Port>, OpenError> {
    let access = options.checked()?;
    let port = Arc::new(PortState::new(at, env.switch.clone(), options.clone(), env.alarm.clone()));
    let task = match options.role {
        Role::Server => listener::start(access, &port, env)?,
        Role::Client => env.runtime.spawn(dialer::run(port.clone())),
    };
    Ok(Box::new(VhostUserPort { port, task: Mutex::new(Some(task)), env: env.clone() }))
}

struct VhostUserPort {
    port: Arc<PortState>,
    task: Mutex<Option<JoinHandle<()>>>,
    env: Environment,
}

impl Port for VhostUserPort {
    fn status(&self) -> Status {
        self.port.status()
    }

    fn set_admin(&self, up: bool) {
        self.port.set_admin(up);
    }

    fn faults(&self) -> Option<&Faults> {
        Some(&self.port.guard.faults)
    }

    fn begin_close(&self) {
        self.port.begin_close();
    }

    fn close(&self) {
        let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let since = self.port.begin_close();
        // It ends as soon as it sees that the port closes, its front-end detached and its socket removed.
        let _ = await_closed(&self.env.runtime, since, task);
    }
}

impl Drop for VhostUserPort {
    fn drop(&mut self) {
        self.close();
    }
}
