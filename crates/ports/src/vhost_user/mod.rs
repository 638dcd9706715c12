//! vhost-user ports: network devices of virtual machines, and of programs in their place (DPDK's virtio-user).
//!
//! `options` holds the user's options, `listener` waits for front-ends and `dialer` connects to them, `link` serves
//! one, `device` attaches the rings that it starts to the switch, `rx` and `tx` are the queues of the data plane,
//! `segment_arena` stores the further segments of long chains for `tx`.

mod device;
mod dialer;
mod link;
mod listener;
mod options;
mod rx;
mod segment_arena;
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

    fn speed(&self) -> Option<u32> {
        Some(crate::VIRTUAL_SPEED)
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
        // It ends once it sees that the port closes, with its front-end detached and its socket removed.
        let _ = await_closed(&self.env.runtime, since, task);
    }
}

impl Drop for VhostUserPort {
    fn drop(&mut self) {
        self.close();
    }
}
