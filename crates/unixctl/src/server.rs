//! The control socket: JSON-RPC 1.0 with string parameters and a string as result or error.
//!
//! Invariants:
//! - Connections are served side by side, each with one request at a time.
//! - A request that has begun is answered before [`Server::serve`] returns, so that a daemon can be told to exit.
//! - Above the greatest number of connections, others wait to be accepted.
//! - A client that sends no whole request in time is disconnected: idle ones do not keep others out.
//! - The socket's file goes with [`Server`].

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ovsdb::{Message, Splitter};
use serde_json::{Value as Json, json};
use socket_file::{SocketAccess, SocketError, SocketFile};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{RwLock, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::command::{Commands, Reply};

const MAX_CONNECTIONS: usize = 64;
const MAX_REQUEST: usize = 1 << 20;

/// Time for a client to send a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// Time for a client to read a reply.
const REPLY_LIMIT: Duration = Duration::from_secs(30);

/// Time for requests that have begun to be answered at the end.
const END_LIMIT: Duration = Duration::from_secs(1);

/// Back-off after a failed `accept`: file descriptors must be freed first.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// A control socket. See the module.
#[derive(Debug)]
pub struct Server {
    listener: StdListener,
    _file: SocketFile,
}

impl Server {
    /// Listens at `path`, for the user and the group of this process. Requests wait until [`Server::serve`].
    pub fn listen(path: &Path) -> Result<Self, SocketError> {
        let (file, listener) = SocketFile::listen(path, SocketAccess::default())?;
        Ok(Self { listener, _file: file })
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

async fn converse(mut stream: UnixStream, commands: Arc<Commands>, begun: Arc<RwLock<()>>) -> io::Result<()> {
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut splitter = Splitter::new(MAX_REQUEST);
    let mut read = vec![0; 4096];
    let mut deadline = Instant::now() + REQUEST_LIMIT;
    loop {
        while let Some(bytes) = splitter.next_message().map_err(|error| invalid(error.to_string()))? {
            match Message::decode(bytes).map_err(|error| invalid(error.to_string()))? {
                Message::Request { id, method, params } => {
                    let _begun = begun.read().await;
                    let reply = run(commands.clone(), method, params).await;
                    let outcome = reply.map(|text| json!(lines(text))).map_err(|text| json!(lines(text)));
                    let reply = Message::Reply { id, outcome }.encode().to_string();
                    timeout(REPLY_LIMIT, stream.write_all(reply.as_bytes())).await??;
                    deadline = Instant::now() + REQUEST_LIMIT;
                }
                Message::Notification { .. } | Message::Reply { .. } => {
                    return Err(invalid("expected a request".into()));
                }
            }
        }
        let count = timeout_at(deadline, stream.read(&mut read)).await??;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_no_request_is_disconnected() {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"{\"id\":1,").await.unwrap();
        let (commands, begun) = (Arc::new(Commands::new("test")), Arc::new(RwLock::new(())));
        let begin = Instant::now();
        let error = converse(server, commands, begun).await.unwrap_err();
        assert_eq!((error.kind(), begin.elapsed()), (io::ErrorKind::TimedOut, REQUEST_LIMIT));
    }
}
