//! Listening memif sockets: who may connect, how many at a time, and for how long without a word.
//!
//! One socket serves several ports, told apart by interface id. A client costs little until it has shown
//! that it belongs to a port: at most [`MOST_PENDING`] connections of a socket may be before the end of their
//! handshake, each has [`HANDSHAKE`] for it, and one that fails is held for [`PENALTY`], so that a
//! flood of connections meets a full backlog instead of our CPU.

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

use super::link::{Mine, PortState, Turn, receive};
use super::options::Options;
use crate::log_limit::{Admitted, LogLimit};
use crate::watch::watch;
use crate::{Access, Environment, OpenError, Port, Status};

/// Connections of one socket that may be shaking hands.
const MOST_PENDING: usize = 64;
/// Time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a failed connection keeps its place among the pending.
const PENALTY: Duration = Duration::from_millis(100);

/// The listening sockets of a daemon, by address.
#[derive(Clone, Default)]
pub struct Sockets(Arc<Mutex<HashMap<String, Weak<Socket>>>>);

struct Socket {
    address: Address,
    access: Access,
    ports: Mutex<HashMap<u32, Arc<PortState>>>,
    accepting: Mutex<Option<JoinHandle<()>>>,
    /// Closes what clients sent before they had a port. They should send nothing, so that this is full harms no other.
    strays: Closer,
    /// Of what nobody knows which port it is about.
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
                "socket: {address} is shared with another port that sets another mode, owner or group"
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
    let listener = Listener::bind(&address)
        .map_err(|e| OpenError(format!("socket: cannot listen at {address}: {e}")))?;
    if let Address::Path(path) = &address {
        access.apply(path).map_err(|e| {
            OpenError(format!("socket: cannot set mode, owner or group of {}: {e}", path.display()))
        })?;
    }
    let _runtime = env.runtime.enter();
    let listener = watch(listener)
        .map_err(|e| OpenError(format!("socket: cannot wait for connections at {address}: {e}")))?;
    let socket = Arc::new(Socket {
        address,
        access,
        ports: Mutex::default(),
        accepting: Mutex::new(None),
        strays: Closer::default(),
        log: LogLimit::default(),
    });
    let task = env.runtime.spawn(accept(listener, Arc::downgrade(&socket)));
    *socket.accepting.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    Ok(socket)
}

async fn accept(listener: AsyncFd<Listener>, socket: Weak<Socket>) {
    let pending = Arc::new(Semaphore::new(MOST_PENDING));
    loop {
        // Nobody closes the semaphore, so there is always a permit in the end.
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
                // Out of descriptors or memory: others must free some first.
                let line = socket.upgrade().and_then(|socket| socket.log.admit());
                if let Some(Admitted { suppressed }) = line {
                    tracing::warn!(%error, suppressed, "cannot accept a memif connection");
                }
                tokio::time::sleep(PENALTY).await;
            }
        }
    }
}

/// A client that got through the handshake, or why it did not.
struct Accepted {
    turn: Turn,
    port: Arc<PortState>,
    connection: memif::Connection,
    /// What tells the client so, once its packets pass.
    reply: Message,
}

async fn shake_hands(control: AsyncFd<ClientFd>, socket: Weak<Socket>, permit: OwnedSemaphorePermit) {
    let mut asked = None;
    let outcome = tokio::time::timeout(HANDSHAKE, handshake(&control, &socket, &mut asked)).await;
    let refused = match outcome {
        Ok(Ok(Some(accepted))) => {
            drop(permit);
            let Accepted { turn, port, connection, reply } = accepted;
            let end = port.serve(connection, Mine::Server, &control, Some(reply)).await;
            port.ended(end, control.get_ref());
            drop(turn);
            return;
        }
        Ok(Ok(None)) => None,
        Ok(Err(reason)) => Some(reason),
        Err(_) => Some(format!("no complete handshake within {} s", HANDSHAKE.as_secs())),
    };
    if let Some(reason) = refused {
        let _ = send(control.get_ref().as_fd(), &Message::disconnect(reason.as_str()), None);
        match &asked {
            Some((port, turn)) => {
                if let Some(Admitted { suppressed }) = port.log.admit() {
                    tracing::info!(port = port.name(), reason, suppressed, "memif client refused");
                }
                // A stranger's failure says nothing about the port of a client that is connected.
                if turn.is_some() || !port.is_taken() {
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
    drop(asked);
    drop(control);
    tokio::time::sleep(PENALTY).await;
    drop(permit);
}

/// Which port a client asked for, and its turn there.
type Asked = Option<(Arc<PortState>, Option<Turn>)>;

async fn handshake(
    control: &AsyncFd<ClientFd>,
    socket: &Weak<Socket>,
    asked: &mut Asked,
) -> Result<Option<Accepted>, String> {
    let fd = control.get_ref().as_fd();
    let (most, strays) = match socket.upgrade() {
        Some(socket) => {
            let ports = socket.ports.lock().unwrap_or_else(PoisonError::into_inner);
            (ports.values().map(|port| port.settings.queues).max().unwrap_or(1), socket.strays.clone())
        }
        None => return Ok(None),
    };
    let mut session = Session::new(Limits { max_rings: most, ..Limits::default() }, "mswitch");
    send(fd, &session.hello(), None).map_err(|e| e.to_string())?;
    loop {
        let received = match asked {
            Some((port, turn)) => tokio::select! {
                received = receive(control, if turn.is_some() { &port.closer } else { &strays }) => received,
                () = port.closing() => return Err("the port is being removed".into()),
            },
            None => receive(control, &strays).await,
        };
        let Some((message, descriptor)) = received.map_err(|e| e.to_string())? else {
            return Ok(None);
        };
        let asked_now = Mutex::new(None);
        let lookup = |id: u32| {
            let socket = socket.upgrade().ok_or(Refusal::UnknownInterface { id })?;
            let ports = socket.ports.lock().unwrap_or_else(PoisonError::into_inner);
            let port = ports.get(&id).ok_or(Refusal::UnknownInterface { id })?;
            *asked_now.lock().unwrap_or_else(PoisonError::into_inner) = Some(port.clone());
            Ok(Interface { name: port.name(), secret: port.settings.secret })
        };
        let step = session.handle(message, descriptor, &lookup);
        if let Some(port) = asked_now.into_inner().unwrap_or_else(PoisonError::into_inner) {
            *asked = Some((port, None));
        }
        match step.map_err(|refusal| refusal.to_string())? {
            Step::Reply(reply) => {
                // Only a client that knew the secret may keep others out.
                if let Some((port, turn @ None)) = asked {
                    match port.take() {
                        Some(mine) => *turn = Some(mine),
                        None => {
                            let id = port.settings.id;
                            *asked = None;
                            return Err(Refusal::AlreadyConnected { id }.to_string());
                        }
                    }
                }
                send(fd, &reply, None).map_err(|e| e.to_string())?;
            }
            Step::Connected { reply, connection } => {
                let Some((port, turn)) = asked else { return Err("no interface was asked for".into()) };
                let most = usize::from(port.settings.queues);
                if connection.s2m.len() > most || connection.m2s.len() > most {
                    return Err(format!("more than {most} queues"));
                }
                let Some(turn) = turn.take() else { return Err("no interface was asked for".into()) };
                return Ok(Some(Accepted { turn, port: port.clone(), connection, reply }));
            }
            Step::PeerDisconnected(_) => return Ok(None),
        }
    }
}

impl Port for ServerPort {
    fn status(&self) -> Status {
        self.port.status()
    }

    fn close(&self) {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(socket) = socket else { return };
        socket.ports.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.port.settings.id);
        self.env.runtime.block_on(self.port.close());
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
