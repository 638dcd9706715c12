//! Listening memif sockets, with limits on pending connections and on the time of a handshake.
//!
//! One socket serves several ports, told apart by interface id. A client costs little until it has shown that it
//! belongs to a port: at most [`MOST_PENDING`] connections of a socket may be shaking hands, each has [`HANDSHAKE`] for
//! it, and one that fails is held for [`PENALTY`], so that a flood of connections meets a full backlog instead of the
//! switch's CPU.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use clientmem::{ClientFd, Closer};
use memif::message::Message;
use memif::server::{Interface, Limits, Refusal, Session, Step};
use memif::socket::{Address, Listener, send};
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::link::{Lease, LocalRole, PortState, receive};
use super::options::Options;
use crate::faults::Faults;
use crate::guard::{await_closed, client, off_thread};
use crate::log_limit::{Admitted, LogLimit};
use crate::pace::CONNECTION;
use crate::watch::watch;
use crate::{Access, Environment, OpenError, Port, Status};

/// Connections of one socket that may be shaking hands.
const MOST_PENDING: usize = 64;
/// Time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time for which a failed connection keeps its place among the pending.
const PENALTY: Duration = Duration::from_millis(100);

/// The listening sockets of a daemon, by address.
#[derive(Clone, Default)]
pub struct Sockets(Arc<Mutex<HashMap<String, Weak<Socket>>>>);

struct Socket {
    address: Address,
    access: Access,
    ports: Mutex<HashMap<u32, Arc<PortState>>>,
    accepting: Mutex<Option<JoinHandle<()>>>,
    /// Closes descriptors that clients sent before they had a port. Clients should send none, so a full one harms no
    /// other client.
    unassigned: Closer,
    /// Limits lines about connections without a port.
    log: LogLimit,
}

impl Drop for Socket {
    fn drop(&mut self) {
        let task = self.accepting.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

struct ServerPort {
    port: Arc<PortState>,
    socket: Mutex<Option<Arc<Socket>>>,
    env: Environment,
}

pub(super) fn open(
    options: &Options,
    port: Arc<PortState>,
    env: &Environment,
) -> Result<Box<dyn Port>, OpenError> {
    let access = options.access()?;
    let address = port.settings.address.clone();
    let id = port.settings.id;
    let mut sockets = env.sockets.0.lock().unwrap_or_else(PoisonError::into_inner);
    sockets.retain(|_, socket| socket.strong_count() > 0);
    let socket = match sockets.get(&address.to_string()).and_then(Weak::upgrade) {
        Some(socket) if access != Access::default() && access != socket.access => {
            return Err(OpenError(format!(
                "path: {address} is shared with another port that sets another mode, owner or group"
            )));
        }
        Some(socket) => socket,
        None => {
            let socket = listen(address.clone(), access, env)?;
            sockets.insert(address.to_string(), Arc::downgrade(&socket));
            socket
        }
    };
    drop(sockets);
    let mut ports = socket.ports.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(other) = ports.get(&id) {
        return Err(OpenError(format!(
            "id: interface {id} of {address} is port {:?} already; choose another id",
            other.name()
        )));
    }
    ports.insert(id, port.clone());
    drop(ports);
    Ok(Box::new(ServerPort { port, socket: Mutex::new(Some(socket)), env: env.clone() }))
}

fn listen(address: Address, access: Access, env: &Environment) -> Result<Arc<Socket>, OpenError> {
    let listener =
        Listener::bind(&address).map_err(|e| OpenError(format!("path: cannot listen at {address}: {e}")))?;
    if let Address::Path(path) = &address {
        access.apply(path).map_err(|e| {
            OpenError(format!("path: cannot set mode, owner or group of {}: {e}", path.display()))
        })?;
    }
    let _runtime = env.runtime.enter();
    let listener = watch(listener)
        .map_err(|e| OpenError(format!("path: cannot wait for connections at {address}: {e}")))?;
    let socket = Arc::new(Socket {
        address,
        access,
        ports: Mutex::default(),
        accepting: Mutex::new(None),
        unassigned: Closer::default(),
        log: LogLimit::default(),
    });
    let task = env.runtime.spawn(accept(listener, Arc::downgrade(&socket)));
    *socket.accepting.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    Ok(socket)
}

async fn accept(listener: AsyncFd<Listener>, socket: Weak<Socket>) {
    let pending = Arc::new(Semaphore::new(MOST_PENDING));
    loop {
        // The semaphore is never closed, so a permit comes in the end.
        let Ok(permit) = pending.clone().acquire_owned().await else { return };
        let Ok(mut ready) = listener.readable().await else { return };
        match listener.get_ref().accept() {
            Ok(connection) => {
                if let Ok(connection) = watch(connection) {
                    tokio::spawn(shake_hands(connection, socket.clone(), permit));
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => ready.clear_ready(),
            Err(error) => {
                // Out of descriptors or memory: other code must free some first.
                let line = socket.upgrade().and_then(|socket| socket.log.admit());
                if let Some(Admitted { suppressed }) = line {
                    tracing::warn!(%error, suppressed, "cannot accept a memif connection");
                }
                tokio::time::sleep(PENALTY).await;
            }
        }
    }
}

/// A client that completed the handshake.
struct Accepted {
    lease: Lease,
    port: Arc<PortState>,
    connection: memif::Connection,
    client: String,
    /// Reply for the client, sent once its packets pass.
    reply: Message,
}

/// A client that requested a port.
struct Candidate {
    port: Arc<PortState>,
    /// Its lease of the port. Work that the client's memory blocks holds it meanwhile, so that no other client gets the
    /// port.
    lease: Option<Lease>,
    /// Whether it ever had a lease.
    had_lease: bool,
    client: String,
}

async fn shake_hands(control: AsyncFd<ClientFd>, socket: Weak<Socket>, permit: OwnedSemaphorePermit) {
    let mut candidate = None;
    let outcome = tokio::time::timeout(HANDSHAKE, handshake(&control, &socket, &mut candidate)).await;
    let refused = match outcome {
        Ok(Ok(Some(accepted))) => {
            drop(permit);
            let Accepted { lease, port, connection, client, reply } = accepted;
            let end = port.serve(connection, LocalRole::Server, &control, &client, Some(reply)).await;
            port.ended(end, control.get_ref());
            drop(lease);
            return;
        }
        Ok(Ok(None)) => None,
        Ok(Err(reason)) => Some(reason),
        Err(_) => {
            let reason = format!("no complete handshake within {} s", HANDSHAKE.as_secs());
            if let Some(Candidate { port, had_lease: true, client, .. }) = &candidate {
                port.guard.faults.refused(client, &reason);
            }
            Some(reason)
        }
    };
    if let Some(reason) = refused {
        let _ = send(control.get_ref().as_fd(), &Message::disconnect(reason.as_str()), None);
        match &candidate {
            Some(Candidate { port, had_lease, .. }) => {
                if let Some(Admitted { suppressed }) = port.log.admit() {
                    tracing::info!(
                        bridge = port.bridge(),
                        port = port.name(),
                        reason,
                        suppressed,
                        "memif client refused"
                    );
                }
                // A stranger's failure says nothing about a port whose client is connected.
                if *had_lease || !port.is_taken() {
                    port.set_down(format!("a client was refused: {reason}"));
                }
            }
            None => {
                let line = socket.upgrade().and_then(|socket| socket.log.admit());
                if let Some(Admitted { suppressed }) = line {
                    tracing::info!(reason, suppressed, "memif client refused");
                }
            }
        }
    }
    drop(candidate);
    drop(control);
    tokio::time::sleep(PENALTY).await;
    drop(permit);
}

async fn handshake(
    control: &AsyncFd<ClientFd>,
    socket: &Weak<Socket>,
    candidate: &mut Option<Candidate>,
) -> Result<Option<Accepted>, String> {
    let fd = control.get_ref().as_fd();
    let (most, unassigned) = match socket.upgrade() {
        Some(socket) => {
            let ports = socket.ports.lock().unwrap_or_else(PoisonError::into_inner);
            (ports.values().map(|port| port.settings.queues).max().unwrap_or(1), socket.unassigned.clone())
        }
        None => return Ok(None),
    };
    let mut session = Session::new(Limits { max_rings: most, ..Limits::default() }, "mswitch");
    send(fd, &session.hello(), None).map_err(|e| e.to_string())?;
    loop {
        let received = match candidate {
            Some(Candidate { port, lease, .. }) => tokio::select! {
                received = receive(control, if lease.is_some() { &port.guard.closer } else { &unassigned }) => received,
                () = port.closing() => return Err("the port is being removed".into()),
            },
            None => receive(control, &unassigned).await,
        };
        let received = received.map_err(|error| {
            if let Some(Candidate { port, lease: Some(_), client, .. }) = candidate {
                port.bad_message(client, &error);
            }
            error.to_string()
        })?;
        let Some((message, descriptor)) = received else { return Ok(None) };
        let peer = match &message {
            Message::Init(init) => Some(init.name.clone()),
            _ => None,
        };
        let (step, found);
        (session, step, found) = handle(session, message, descriptor, socket, candidate).await?;
        if let Some(port) = found {
            let client = client(control.get_ref(), &peer.unwrap_or_default());
            *candidate = Some(Candidate { port, lease: None, had_lease: false, client });
        }
        let step = step.map_err(|refusal| {
            let reason = refusal.to_string();
            // A stranger's message says nothing about the port's clients.
            if let Some(Candidate { port, had_lease: true, client, .. }) = candidate {
                port.guard.faults.refused(client, &reason);
            }
            reason
        })?;
        match step {
            Step::Reply(reply) => {
                // Only a client that knew the secret may keep others out.
                if let Some(Candidate { port, had_lease: false, .. }) = candidate {
                    let Some(lease) = port.take() else {
                        let id = port.settings.id;
                        *candidate = None;
                        return Err(Refusal::AlreadyConnected { id }.to_string());
                    };
                    session.count_first_touch(port.first_touch.next_client());
                    enter(candidate, lease).await?;
                }
                send(fd, &reply, None).map_err(|e| e.to_string())?;
            }
            Step::Connected { reply, connection } => {
                let Some(Candidate { port, lease, client, .. }) = candidate else {
                    return Err("no interface was requested".into());
                };
                let most = usize::from(port.settings.queues);
                if connection.s2m.len() > most || connection.m2s.len() > most {
                    return Err(format!("more than {most} queues"));
                }
                let Some(lease) = lease.take() else { return Err("no interface was requested".into()) };
                let (port, client) = (port.clone(), client.clone());
                return Ok(Some(Accepted { lease, port, connection, client, reply }));
            }
            Step::PeerDisconnected(_) => return Ok(None),
        }
    }
}

/// Leases the port to a client, at the port's pace and not during a hold-off.
async fn enter(candidate: &mut Option<Candidate>, lease: Lease) -> Result<(), String> {
    let Some(candidate) = candidate else { return Ok(()) };
    (candidate.lease, candidate.had_lease) = (Some(lease), true);
    let Candidate { port, client, .. } = candidate;
    tokio::select! {
        admitted = port.guard.faults.admit() => admitted?,
        () = port.closing() => return Err("the port is being removed".into()),
    }
    port.guard.room(client).await;
    port.guard.pace.spend(CONNECTION);
    Ok(())
}

/// Passes a message to the session, on a thread of its own: this maps regions and reads rings from memory that the
/// client can make slow. Also returns the port, if the client requested one with this message.
async fn handle(
    mut session: Session,
    message: Message,
    descriptor: Option<ClientFd>,
    socket: &Weak<Socket>,
    candidate: &mut Option<Candidate>,
) -> Result<(Session, Result<Step, Refusal>, Option<Arc<PortState>>), String> {
    let (port, lease) = match candidate {
        Some(candidate) => (Some(candidate.port.clone()), candidate.lease.take()),
        None => (None, None),
    };
    let closing = async {
        match &port {
            Some(port) => port.closing().await,
            None => std::future::pending().await,
        }
    };
    let socket = socket.clone();
    let handled = off_thread(closing, move || {
        let found = Mutex::new(None);
        let lookup = |id: u32| {
            let socket = socket.upgrade().ok_or(Refusal::UnknownInterface { id })?;
            let ports = socket.ports.lock().unwrap_or_else(PoisonError::into_inner);
            let port = ports.get(&id).ok_or(Refusal::UnknownInterface { id })?;
            *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(port.clone());
            Ok(Interface { name: port.name(), secret: port.settings.secret })
        };
        let step = session.handle(message, descriptor, &lookup);
        (session, step, found.into_inner().unwrap_or_else(PoisonError::into_inner), lease)
    });
    let (session, step, found, lease) = handled.await.ok_or("the port is being removed")?;
    if let Some(candidate) = candidate {
        candidate.lease = lease;
    }
    Ok((session, step, found))
}

impl Port for ServerPort {
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
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(socket) = socket else { return };
        socket.ports.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.port.settings.id);
        let since = self.port.begin_close();
        let _ = await_closed(&self.env.runtime, since, self.port.closed());
        let mut sockets = self.env.sockets.0.lock().unwrap_or_else(PoisonError::into_inner);
        let address = socket.address.to_string();
        if let Some(socket) = Arc::into_inner(socket) {
            let task = socket.accepting.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(task) = task {
                task.abort();
                // The listener and its file go with the task.
                let _ = self.env.runtime.block_on(task);
            }
            sockets.remove(&address);
        }
    }
}

impl Drop for ServerPort {
    fn drop(&mut self) {
        self.close();
    }
}
