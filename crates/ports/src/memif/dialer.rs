//! memif ports in the client role: the switch connects to another server, and reconnects when it is gone.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use memif::client::{Advance, Attached, Attaching, ClientConfig};
use tokio::task::JoinHandle;

use super::link::{LocalRole, PortState};
use crate::faults::Faults;
use crate::guard::{await_closed, client};
use crate::watch::watch_copy;
use crate::{Environment, Port, Status};

/// First pause between attempts; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

struct ClientPort {
    port: Arc<PortState>,
    task: Mutex<Option<JoinHandle<()>>>,
    env: Environment,
}

pub(super) fn open(port: Arc<PortState>, env: &Environment) -> Box<dyn Port> {
    port.set_down(format!("connecting to {}", port.settings.address));
    let task = env.runtime.spawn(run(port.clone()));
    Box::new(ClientPort { port, task: Mutex::new(Some(task)), env: env.clone() })
}

async fn run(port: Arc<PortState>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let attempt = tokio::select! {
            attempt = connect(&port) => attempt,
            () = port.closing() => return,
        };
        match attempt {
            Ok(Attached { connection, control }) => {
                pause = FIRST_PAUSE;
                let layout = *control.layout();
                match watch_copy(control.as_fd(), &port.guard.closer) {
                    Ok(watched) => {
                        let client = client(watched.get_ref(), &connection.peer_name);
                        port.guard.room(&client).await;
                        let end =
                            port.serve(connection, LocalRole::Client(layout), &watched, &client, None).await;
                        port.ended(end, &control);
                    }
                    Err(error) => port.set_down(error.to_string()),
                }
            }
            Err(reason) => port.set_down(reason),
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            () = port.closing() => return,
        }
        tokio::select! {
            () = port.guard.faults.hold_off_ends() => {}
            () = port.closing() => return,
        }
    }
}

async fn connect(port: &PortState) -> Result<Attached, String> {
    let settings = &port.settings;
    let config = ClientConfig {
        secret: settings.secret,
        name: "mswitch".into(),
        if_name: port.name(),
        tx_queues: settings.queues,
        rx_queues: settings.queues,
        log2_ring_size: settings.log2_ring_size,
        buffer_size: settings.buffer_size,
        closer: port.guard.closer.clone(),
        ..ClientConfig::new(settings.address.clone(), settings.id)
    };
    let attaching = Attaching::start(config).map_err(|e| e.to_string())?;
    tokio::time::timeout(HANDSHAKE, drive(attaching))
        .await
        .unwrap_or_else(|_| Err(format!("no complete handshake within {} s", HANDSHAKE.as_secs())))
}

async fn drive(mut attaching: Attaching) -> Result<Attached, String> {
    let watched = watch_copy(attaching.as_fd(), &attaching.config().closer).map_err(|e| e.to_string())?;
    loop {
        attaching = match attaching.advance().map_err(|e| e.to_string())? {
            Advance::Done(attached) => return Ok(attached),
            Advance::Waiting(attaching) => attaching,
        };
        // `advance` drained the socket after the last wait.
        watched.readable().await.map_err(|e| e.to_string())?.clear_ready();
    }
}

impl Port for ClientPort {
    fn status(&self) -> Status {
        self.port.status()
    }

    fn speed(&self) -> Option<u32> {
        Some(crate::VIRTUAL_SPEED)
    }

    fn faults(&self) -> Option<&Faults> {
        Some(&self.port.guard.faults)
    }

    fn begin_close(&self) {
        self.port.begin_close();
    }

    fn close(&self) {
        let since = self.port.begin_close();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // It ends once it sees that the port closes, with its connection detached.
            let _ = await_closed(&self.env.runtime, since, task);
        }
    }
}

impl Drop for ClientPort {
    fn drop(&mut self) {
        self.close();
    }
}
