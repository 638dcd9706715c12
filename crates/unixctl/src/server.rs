//! The control socket: JSON-RPC 1.0 with string parameters and a string as result or error.
//!
//! Invariants:
//! - Connections are served side by side, each with one request at a time.
//! - A request that has begun is answered before [`Server::serve`] returns, so that a daemon can be told to exit.
//! - Above the greatest number of connections, others wait to be accepted.
//! - The socket's file is removed when [`Server`] is dropped, unless another one has taken its place.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ovsdb::{Message, Splitter};
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{RwLock, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::command::{Commands, Reply};

const BACKLOG: i32 = 64;
const MAX_CONNECTIONS: usize = 64;
const MAX_REQUEST: usize = 1 << 20;

/// Time for a client to read a reply.
const REPLY_LIMIT: Duration = Duration::from_secs(30);

/// Time for requests that have begun to be answered at the end.
const END_LIMIT: Duration = Duration::from_secs(1);

/// Back-off after a failed `accept`: file descriptors must be freed first.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Reasons why a control socket cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A process listens there.
    #[error("{0}: another process listens on this socket")]
    InUse(PathBuf),
    /// The system refuses it.
    #[error("{path}: {error}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

/// A control socket. See the module.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    listener: StdListener,
    /// Device and inode.
    identity: (u64, u64),
}

impl Server {
    /// Listens at `path`, for the user and the group of this process. Requests wait until [`Server::serve`].
    pub fn listen(path: &Path) -> Result<Self, ServerError> {
        let failed = |error: io::Error| ServerError::Io { path: path.into(), error };
        let socket = socket().map_err(|error| failed(error.into()))?;
        let address = SocketAddrUnix::new(path).map_err(|error| failed(error.into()))?;
        // The mode of the socket becomes that of the file: no other user gets in meanwhile.
        fchmod(&socket, Mode::from_raw_mode(0o660)).map_err(|error| failed(error.into()))?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if is_stale(&address) => {
                std::fs::remove_file(path).map_err(failed)?;
                bind(&socket, &address).map_err(|error| failed(error.into()))?;
            }
            Err(Errno::ADDRINUSE) => return Err(ServerError::InUse(path.into())),
            other => other.map_err(|error| failed(error.into()))?,
        }
        listen(&socket, BACKLOG).map_err(|error| failed(error.into()))?;
        let meta = std::fs::symlink_metadata(path).map_err(failed)?;
        Ok(Self { path: path.into(), listener: socket.into(), identity: (meta.dev(), meta.ino()) })
    }

    /// Answers requests until `end` is ready, and then those that have begun.
    pub async fn serve(&self, commands: Commands, end: impl Future<Output = ()>) -> io::Result<()> {
        // Read by each request that has begun.
        let begun = Arc::new(RwLock::new(()));
        let mut connections = JoinSet::new();
        tokio::select! {
            result = self.accept(commands, begun.clone(), &mut connections) => return result,
            () = end => {}
        }
        // A client that does not read its reply does not delay the end for long.
        let _ = timeout(END_LIMIT, begun.write()).await;
        Ok(())
    }

    async fn accept(
        &self,
        commands: Commands,
        begun: Arc<RwLock<()>>,
        connections: &mut JoinSet<()>,
    ) -> io::Result<()> {
        let listener = UnixListener::from_std(self.listener.try_clone()?)?;
        let (commands, places) = (Arc::new(commands), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
        loop {
            // The semaphore is never closed.
            let Ok(place) = places.clone().acquire_owned().await else { return Ok(()) };
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (commands, begun) = (commands.clone(), begun.clone());
                    connections.spawn(async move {
                        // What a client does to its connection concerns only itself.
                        let _ = converse(stream, commands, begun).await;
                        drop(place);
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_BACKOFF).await,
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let meta = std::fs::symlink_metadata(&self.path);
        if meta.is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn socket() -> rustix::io::Result<rustix::fd::OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Returns whether a file is a socket on which no process listens.
fn is_stale(address: &SocketAddrUnix) -> bool {
    let is_socket = address.path().and_then(|path| rustix::fs::lstat(path).ok()).is_some_and(|meta| {
        rustix::fs::FileType::from_raw_mode(meta.st_mode) == rustix::fs::FileType::Socket
    });
    is_socket && socket().and_then(|socket| connect(&socket, address)) == Err(Errno::CONNREFUSED)
}

async fn converse(mut stream: UnixStream, commands: Arc<Commands>, begun: Arc<RwLock<()>>) -> io::Result<()> {
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut splitter = Splitter::new(MAX_REQUEST);
    let mut read = vec![0; 4096];
    loop {
        while let Some(bytes) = splitter.next_message().map_err(|error| invalid(error.to_string()))? {
            match Message::decode(bytes).map_err(|error| invalid(error.to_string()))? {
                Message::Request { id, method, params } => {
                    let _begun = begun.read().await;
                    let reply = run(commands.clone(), method, params).await;
                    let outcome = reply.map(|text| json!(lines(text))).map_err(|text| json!(lines(text)));
                    let reply = Message::Reply { id, outcome }.encode().to_string();
                    timeout(REPLY_LIMIT, stream.write_all(reply.as_bytes())).await??;
                }
                Message::Notification { .. } | Message::Reply { .. } => {
                    return Err(invalid("expected a request".into()));
                }
            }
        }
        let count = stream.read(&mut read).await?;
        if count == 0 {
            return Ok(());
        }
        splitter.push(read.get(..count).unwrap_or_default());
    }
}

/// Ends a text with a newline, as clients print it.
fn lines(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

async fn run(commands: Arc<Commands>, method: String, params: Vec<Json>) -> Reply {
    let arguments: Option<Vec<String>> =
        params.iter().map(|param| param.as_str().map(str::to_owned)).collect();
    let Some(arguments) = arguments else {
        return Err(format!("arguments of \"{method}\": expected strings, found {}", Json::Array(params)));
    };
    let done = tokio::task::spawn_blocking(move || commands.call(&method, &arguments)).await;
    done.unwrap_or_else(|error| Err(format!("the command failed: {error}; this is a bug in mswitch")))
}
