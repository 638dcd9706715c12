//! The Unix socket where clients reserve endpoints: one thread serves all connections of a bridge.
//!
//! The kernel says who a client is (`SO_PEERCRED`), the policy what it may reserve; a reservation ends with its
//! connection. The thread ends when the [`Server`] is dropped.
//!
//! Clients are hostile. Invariants: connections, reservations of a connection, bytes of a request and the rates of
//! requests and connections are bounded; the thread waits for no client, and a client that does not read its answers
//! is disconnected.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use socket_file::{Peer, SocketAccess, SocketFile};

use super::holder::describe;
use super::ledger::{Client, Ledger};
use super::policy::{Credentials, Policy};
use super::request::{Lines, MAX_LINE, Request};

/// Connections at a time.
const MAX_CONNECTIONS: usize = 64;
/// Connections of one user at a time, root excepted.
const MAX_PER_USER: usize = 16;
/// Reservations of one connection.
const MAX_RESERVATIONS: usize = 64;
/// Requests of a connection, and new connections: so many at once, then one each [`PACE`].
const BURST: i64 = 32;
const PACE: Duration = Duration::from_millis(10);
/// Local ports that count as a request of their own, as each of them takes system calls.
const PORTS_PER_REQUEST: usize = 64;

/// A socket with its thread. Dropping it removes the file and ends the connections.
pub(super) struct Server {
    path: PathBuf,
    stop: Arc<OwnedFd>,
    _file: SocketFile,
}

impl Server {
    /// Listens at `path`.
    pub(super) fn start(path: &Path, policy: &Policy, ledger: Arc<Ledger>) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("socket {}: {error}", path.display());
        let access = SocketAccess { mode: mode(policy), ..SocketAccess::default() };
        let (file, listener) = SocketFile::listen(path, access).map_err(|error| error.to_string())?;
        let stop =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| failed(&error))?;
        let stop = Arc::new(stop);
        let stopped = stop.clone();
        std::thread::Builder::new()
            .name("mswitch-reserve".into())
            .spawn(move || Desk::new(listener, ledger).serve(&stopped))
            .map_err(|error| failed(&error))?;
        Ok(Self { path: path.into(), stop, _file: file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adapts the file's mode to another policy.
    pub(super) fn set_policy(&self, policy: &Policy) {
        // Best effort: connections are checked in any case.
        let _ = std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(mode(policy)));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A counter of 0 takes 1 without waiting.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
    }
}

/// Everyone may connect where rules decide about clients; else only root.
fn mode(policy: &Policy) -> u32 {
    if policy.is_empty() { 0o600 } else { 0o666 }
}

/// Tokens for events, so many at once and one more each [`PACE`]; negative after an event that costs more than there are.
struct Bucket {
    tokens: i64,
    filled: Instant,
}

impl Bucket {
    fn new(now: Instant) -> Self {
        Self { tokens: BURST, filled: now }
    }

    fn fill(&mut self, now: Instant) {
        let earned = now.saturating_duration_since(self.filled).as_nanos() / PACE.as_nanos().max(1);
        if earned > 0 {
            self.tokens = self.tokens.saturating_add(i64::try_from(earned).unwrap_or(i64::MAX)).min(BURST);
            self.filled = now;
        }
    }

    fn has_some(&self) -> bool {
        self.tokens > 0
    }

    fn take(&mut self, tokens: i64) {
        self.tokens = self.tokens.saturating_sub(tokens);
    }
}

struct Connection {
    stream: UnixStream,
    client: Client,
    credentials: Credentials,
    lines: Lines,
    bucket: Bucket,
    /// Tokens that its last requests cost beyond one each, for the other connections of its user.
    surcharge: i64,
}

/// The state of the thread.
struct Desk {
    listener: UnixListener,
    ledger: Arc<Ledger>,
    connections: Vec<Connection>,
    arrivals: Bucket,
}

impl Desk {
    fn new(listener: UnixListener, ledger: Arc<Ledger>) -> Self {
        Self { listener, ledger, connections: Vec::new(), arrivals: Bucket::new(Instant::now()) }
    }

    /// Serves until `stop` is readable.
    fn serve(mut self, stop: &OwnedFd) {
        while let Some((has_arrivals, ready)) = self.wait(stop) {
            let now = Instant::now();
            self.arrivals.fill(now);
            let Self { connections, ledger, .. } = &mut self;
            let mut ready = ready.into_iter();
            connections.retain_mut(|connection| {
                connection.bucket.fill(now);
                let goes_on = connection.serve(ledger, ready.next().unwrap_or(PollFlags::empty()));
                if !goes_on {
                    ledger.release_client(connection.client.id);
                }
                goes_on
            });
            self.spread_surcharges();
            if has_arrivals {
                self.welcome(now);
            }
        }
        self.connections.iter().for_each(|connection| self.ledger.release_client(connection.client.id));
    }

    /// Lets all connections of a user pay for expensive requests of one, root excepted.
    fn spread_surcharges(&mut self) {
        for at in 0..self.connections.len() {
            let Some(spender) = self.connections.get_mut(at) else { return };
            let (tokens, uid) = (std::mem::take(&mut spender.surcharge), spender.credentials.uid);
            if tokens > 0 && uid != 0 {
                let of_user = self.connections.iter_mut().enumerate();
                let others = of_user.filter(|(other, it)| *other != at && it.credentials.uid == uid);
                others.for_each(|(_, it)| it.bucket.take(tokens));
            }
        }
    }

    /// Waits for something to do. Returns whether clients have arrived, and the events of each connection; `None`: the
    /// thread has to end.
    fn wait(&self, stop: &OwnedFd) -> Option<(bool, Vec<PollFlags>)> {
        let watched = |is_on| if is_on { PollFlags::IN } else { PollFlags::empty() };
        let mut files = vec![
            PollFd::new(stop, PollFlags::IN),
            PollFd::new(&self.listener, watched(self.arrivals.has_some())),
        ];
        let streams = self.connections.iter();
        files.extend(streams.map(|it| PollFd::from_borrowed_fd(it.stream.as_fd(), watched(it.may_read()))));
        let is_paused = !self.arrivals.has_some() || self.connections.iter().any(|it| !it.bucket.has_some());
        let pause = Timespec { tv_sec: 0, tv_nsec: PACE.subsec_nanos().into() };
        if let Err(error) = poll(&mut files, is_paused.then_some(&pause))
            && error != rustix::io::Errno::INTR
        {
            return None;
        }
        let mut events = files.iter().map(|file| file.revents());
        if !events.next()?.is_empty() {
            return None;
        }
        Some((!events.next()?.is_empty(), events.collect()))
    }

    /// Takes new connections.
    fn welcome(&mut self, now: Instant) {
        while self.arrivals.has_some() {
            self.arrivals.take(1);
            // Nobody waits, or the process has no more files: then the client waits for its turn.
            let Ok((stream, _)) = self.listener.accept() else { return };
            if let Err((mut stream, reason)) = self.admit(stream, now) {
                // Best effort: the client may be gone.
                let _ = stream.write(format!("error {reason}\n").as_bytes());
            }
        }
    }

    fn admit(&mut self, stream: UnixStream, now: Instant) -> Result<(), (UnixStream, String)> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        if stream.set_nonblocking(true).is_err() {
            return Err((stream, "the connection cannot be used".into()));
        }
        let Some(Peer { pid, uid, gid }) = Peer::of(&stream) else {
            return Err((stream, "the kernel does not tell who the client is".into()));
        };
        let credentials = Credentials { uid, gid };
        if !self.ledger.terms().policy.knows(credentials) {
            let reason =
                format!("user {uid} with group {gid} may reserve nothing: no rule of `allow` names them");
            return Err((stream, reason));
        }
        let of_user = self.connections.iter().filter(|it| it.credentials.uid == uid).count();
        if self.connections.len() >= MAX_CONNECTIONS || (uid != 0 && of_user >= MAX_PER_USER) {
            let reason = format!(
                "too many connections: {} of {MAX_CONNECTIONS}, {of_user} of them by user {uid}; a user other than \
                 root may have {MAX_PER_USER}",
                self.connections.len()
            );
            return Err((stream, reason));
        }
        let process = pid.map_or("a process in another PID namespace".into(), describe);
        let name = format!("{process} of user {uid}");
        let client = Client { id: NUMBERS.fetch_add(1, Relaxed), name };
        let (lines, bucket) = (Lines::default(), Bucket::new(now));
        self.connections.push(Connection { stream, client, credentials, lines, bucket, surcharge: 0 });
        Ok(())
    }
}

impl Connection {
    fn may_read(&self) -> bool {
        self.bucket.has_some() && self.lines.room() > 0
    }

    /// Reads if there is something, and answers requests. Returns whether the connection goes on.
    fn serve(&mut self, ledger: &Ledger, events: PollFlags) -> bool {
        // Requests that a client left behind have no one to answer to.
        if events.intersects(PollFlags::HUP | PollFlags::ERR) || !self.answer_all(ledger) {
            return false;
        }
        if !events.contains(PollFlags::IN) || self.lines.room() == 0 {
            return true;
        }
        let mut bytes = [0; MAX_LINE + 1];
        let room = self.lines.room().min(bytes.len());
        match self.stream.read(bytes.get_mut(..room).unwrap_or_default()) {
            Ok(0) => false,
            Ok(read) => {
                self.lines.push(bytes.get(..read).unwrap_or_default());
                self.answer_all(ledger)
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Answers complete requests as long as there are tokens.
    fn answer_all(&mut self, ledger: &Ledger) -> bool {
        while self.bucket.has_some() {
            let answer = match self.lines.next_line() {
                Ok(None) => return true,
                Ok(Some(line)) => {
                    self.bucket.take(1);
                    self.answer(ledger, &line)
                }
                Err(error) => {
                    let _ = self.stream.write(format!("error {error}\n").as_bytes());
                    return false;
                }
            };
            let answer = match answer {
                Ok(value) if value.is_empty() => "ok\n".into(),
                Ok(value) => format!("ok {value}\n"),
                Err(reason) => format!("error {reason}\n"),
            };
            if self.stream.write(answer.as_bytes()).ok() != Some(answer.len()) {
                return false;
            }
        }
        true
    }

    fn answer(&mut self, ledger: &Ledger, line: &[u8]) -> Result<String, String> {
        let (uid, gid) = (self.credentials.uid, self.credentials.gid);
        match Request::parse(line).map_err(|error| error.to_string())? {
            Request::Mac => match ledger.mac() {
                Some(mac) => Ok(mac.to_string()),
                None => Err("the host's MAC address is not known yet: its port has sent nothing".into()),
            },
            Request::Reserve { port, endpoints } => {
                if !ledger.terms().policy.allows(self.credentials, &port, &endpoints) {
                    return Err(format!(
                        "user {uid} with group {gid} may not reserve {endpoints} for port `{port}`: no rule of \
                         `allow` covers that"
                    ));
                }
                if ledger.count_of(self.client.id) >= MAX_RESERVATIONS {
                    return Err(format!(
                        "this client has {MAX_RESERVATIONS} reservations, as many as it may have"
                    ));
                }
                let surcharge = (endpoints.ports.count() / PORTS_PER_REQUEST) as i64;
                self.bucket.take(surcharge);
                self.surcharge += surcharge;
                let done = ledger.reserve(&self.client, &port, endpoints);
                done.map(|()| String::new()).map_err(|error| error.to_string())
            }
            Request::Release { port, endpoints } => {
                let done = ledger.release(&self.client, &port, endpoints);
                done.map(|()| String::new()).map_err(|error| error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_a_user_pay_together() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let mut desk = Desk::new(listener, Arc::new(Ledger::new()));
        let now = Instant::now();
        for (uid, surcharge) in [(7, 40), (7, 0), (8, 0), (0, 40), (0, 0)] {
            desk.connections.push(Connection {
                stream: UnixStream::pair().unwrap().0,
                client: Client::operator(),
                credentials: Credentials { uid, gid: uid },
                lines: Lines::default(),
                bucket: Bucket::new(now),
                surcharge,
            });
        }
        let tokens = |desk: &Desk| desk.connections.iter().map(|it| it.bucket.tokens).collect::<Vec<_>>();
        for _ in 0..2 {
            desk.spread_surcharges();
            assert_eq!(tokens(&desk), [BURST, BURST - 40, BURST, BURST, BURST]);
        }
        assert!(!desk.connections[1].may_read() && desk.connections[2].may_read());
        desk.connections[1].bucket.fill(now + PACE * 8);
        assert!(!desk.connections[1].bucket.has_some());
        desk.connections[1].bucket.fill(now + PACE * 9);
        assert!(desk.connections[1].bucket.has_some());
    }
}
