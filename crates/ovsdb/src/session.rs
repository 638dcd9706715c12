//! A session: a connection that is made again when it ends, with a replica of tables, a lock and transactions.
//!
//! The caller drives it: [`Session::next`] connects, reads, answers echoes and returns what happened.
//!
//! Invariants:
//! - [`Event::Connected`] comes once the replica has the server's contents; from then on it follows the server.
//! - While disconnected, the replica keeps its last contents.
//! - Each transaction that was sent has exactly one [`Event::Reply`], before [`Event::Disconnected`] at the latest.
//! - [`Session::holds_lock`] is false while disconnected: a lock ends with the connection of its owner.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::time::{Instant, sleep_until, timeout};

use crate::backoff::Backoff;
use crate::connection::{Connection, Turn};
use crate::message::{Message, MessageError};
use crate::remote::{Remote, Stream};
use crate::replica::{Change, Format, Replica, UpdateError};
use crate::schema::{Schema, SchemaError, TableInfo};
use crate::splitter::SplitError;
use crate::transaction::{OperationResult, TransactError, Transaction, decode_results};
use crate::value::shortened;

/// Time limit for connecting.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Bytes of replies that may wait for a server that sends requests and does not read.
const REPLY_BACKLOG: usize = 1 << 20;

/// Settings of a session.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The server.
    pub remote: Remote,
    /// The database, such as `Open_vSwitch`.
    pub database: String,
    /// The tables and columns to replicate.
    pub tables: Vec<TableInfo>,
    /// A lock to request at each connection (RFC 7047 §4.1.8).
    pub lock: Option<String>,
    /// Silence after which the server is asked for an echo, and after as much again the connection ends; `None`: never.
    pub probe: Option<Duration>,
    /// The shortest delay before connecting again.
    pub shortest_delay: Duration,
    /// The longest delay before connecting again.
    pub longest_delay: Duration,
    /// The largest message accepted, in bytes.
    pub max_message: usize,
}

impl Settings {
    /// Creates settings without a lock. A TCP connection is probed after 5 s; the kernel tells when the server at a
    /// Unix socket is gone.
    pub fn new(remote: Remote, database: &str, tables: Vec<TableInfo>) -> Self {
        let probe = matches!(remote, Remote::Tcp { .. }).then_some(Duration::from_secs(5));
        Self {
            remote,
            database: database.into(),
            tables,
            lock: None,
            probe,
            shortest_delay: Duration::from_millis(100),
            longest_delay: Duration::from_secs(8),
            // The replica of a row takes some KiB as text: more than 50,000 of them.
            max_message: 1 << 28,
        }
    }
}

/// Identifies a transaction in [`Event::Reply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The connection is made, and the replica has the server's contents.
    Connected,
    /// Rows changed.
    Changed(Vec<Change>),
    /// The lock was acquired, or was lost to another client.
    Lock(bool),
    /// A transaction was answered. Its changes are in the replica already.
    Reply(Ticket, Result<Vec<OperationResult>, TransactError>),
    /// The connection ended, or an attempt failed. The session goes on.
    Disconnected(SessionError),
}

/// Reasons for the end of a connection.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// An attempt to connect failed.
    #[error("cannot connect to {remote}: {error}")]
    Connect {
        /// The server.
        remote: Remote,
        /// The cause.
        error: io::Error,
    },
    /// The server closed the connection.
    #[error("the database server closed the connection")]
    Closed,
    /// The system ended the connection.
    #[error("connection to the database server: {0}")]
    Io(#[from] io::Error),
    /// The stream cannot be split into messages.
    #[error("invalid stream from the database server: {0}")]
    Split(#[from] SplitError),
    /// A message has another form.
    #[error("invalid message from the database server: {0}")]
    Message(#[from] MessageError),
    /// The schema cannot be used.
    #[error("database `{database}`: {error}")]
    Schema {
        /// The database.
        database: String,
        /// The cause.
        error: SchemaError,
    },
    /// The server refused a request of the session.
    #[error("database `{database}`: the server refused `{method}`: {error}")]
    Refused {
        /// The database.
        database: String,
        /// The request.
        method: &'static str,
        /// The server's error.
        error: String,
    },
    /// The server ended the monitoring, since the database was removed or got another schema.
    #[error("database `{0}` was removed or converted")]
    Canceled(String),
    /// An update cannot be applied.
    #[error(transparent)]
    Update(#[from] UpdateError),
    /// The server was silent for too long.
    #[error("no reply from the database server within {0:?}")]
    Silent(Duration),
    /// The server sends requests and does not read the replies.
    #[error("the database server does not read replies")]
    Backlog,
}

type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

enum Phase {
    Waiting(Instant),
    Connecting(Connecting),
    Live(Box<Live>),
}

/// A connection and the requests without a reply.
struct Live {
    connection: Connection,
    pending: BTreeMap<u64, Pending>,
    next_id: u64,
    /// The form of updates, once monitoring has begun.
    format: Option<Format>,
    /// The selection of the server's schema, until the replica is made from it.
    schema: Option<Schema>,
    probing: bool,
}

enum Pending {
    Schema,
    Monitor(Format),
    Lock,
    Transaction { ticket: Ticket, operations: usize },
    Ignored,
}

impl Live {
    fn request(&mut self, method: &str, params: Vec<Json>, pending: Pending) {
        let id = self.next_id;
        self.next_id += 1;
        self.pending.insert(id, pending);
        self.connection.send(&Message::Request { id: json!(id), method: method.into(), params });
    }
}

/// A session. See the module.
pub struct Session {
    settings: Settings,
    phase: Phase,
    backoff: Backoff,
    events: VecDeque<Event>,
    replica: Replica,
    locked: bool,
    last_ticket: u64,
}

impl Session {
    /// Creates a session, which connects in [`Session::next`].
    pub fn new(settings: Settings) -> Self {
        let backoff = Backoff::new(settings.shortest_delay, settings.longest_delay);
        let phase = Phase::Waiting(Instant::now());
        let (events, replica, locked, last_ticket) = Default::default();
        Self { settings, phase, backoff, events, replica, locked, last_ticket }
    }

    /// Returns the replica: with the last contents while disconnected, empty before the first connection.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Returns whether the session has the lock of its settings.
    pub fn holds_lock(&self) -> bool {
        self.locked
    }

    /// Returns whether transactions can be sent.
    pub fn is_connected(&self) -> bool {
        matches!(&self.phase, Phase::Live(live) if live.format.is_some())
    }

    /// Returns the next event. May be dropped before it is ready: nothing is lost.
    pub async fn next(&mut self) -> Event {
        loop {
            match self.events.pop_front() {
                Some(event) => return event,
                None => self.turn().await,
            }
        }
    }

    /// Sends a transaction; [`Event::Reply`] has the result.
    pub fn send(&mut self, transaction: &Transaction) -> Result<Ticket, TransactError> {
        let Phase::Live(live) = &mut self.phase else { return Err(TransactError::NotConnected) };
        if live.format.is_none() {
            return Err(TransactError::NotConnected);
        }
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let pending = Pending::Transaction { ticket, operations: transaction.operations.len() };
        live.request("transact", transaction.params(&self.settings.database), pending);
        Ok(ticket)
    }

    /// Sends a transaction and returns its result. Other events wait for [`Session::next`].
    pub async fn transact(
        &mut self,
        transaction: &Transaction,
    ) -> Result<Vec<OperationResult>, TransactError> {
        let ticket = self.send(transaction)?;
        loop {
            self.turn().await;
            let is_reply = |event: &Event| matches!(event, Event::Reply(other, _) if *other == ticket);
            let at = self.events.iter().position(is_reply);
            if let Some(Event::Reply(_, result)) = at.and_then(|at| self.events.remove(at)) {
                return result;
            }
        }
    }

    /// Takes the lock of the settings from its owner (RFC 7047 §4.1.8).
    pub fn steal_lock(&mut self) {
        if let (Phase::Live(live), Some(lock)) = (&mut self.phase, &self.settings.lock) {
            // A client must take its request back first.
            live.request("unlock", vec![json!(lock)], Pending::Ignored);
            live.request("steal", vec![json!(lock)], Pending::Lock);
        }
    }

    /// Gives the lock of the settings back, and takes back a request for it. The next connection requests it again.
    pub fn unlock(&mut self) {
        if let (Phase::Live(live), Some(lock)) = (&mut self.phase, &self.settings.lock) {
            live.request("unlock", vec![json!(lock)], Pending::Ignored);
        }
        self.set_locked(false);
    }

    fn set_locked(&mut self, locked: bool) {
        if std::mem::replace(&mut self.locked, locked) != locked {
            self.events.push_back(Event::Lock(locked));
        }
    }

    /// Takes one step: waits, connects, or moves bytes.
    async fn turn(&mut self) {
        let done = match &mut self.phase {
            Phase::Waiting(until) => {
                sleep_until(*until).await;
                let connecting = timeout(CONNECT_LIMIT, self.settings.remote.clone().connect());
                self.phase = Phase::Connecting(Box::pin(async move { connecting.await? }));
                Ok(())
            }
            Phase::Connecting(connecting) => match connecting.await {
                Ok(stream) => {
                    self.start(stream);
                    Ok(())
                }
                Err(error) => Err(SessionError::Connect { remote: self.settings.remote.clone(), error }),
            },
            Phase::Live(live) => {
                let deadline = self.settings.probe.and_then(|probe| {
                    let silence = if live.probing { probe.saturating_mul(2) } else { probe };
                    live.connection.heard.checked_add(silence)
                });
                let turn = live.connection.turn(deadline).await;
                turn.map_err(SessionError::Io).and_then(|turn| self.after(&turn))
            }
        };
        if let Err(error) = done {
            self.disconnect(error);
        }
    }

    /// Begins a connection.
    fn start(&mut self, stream: Box<dyn Stream>) {
        let connection = Connection::new(stream, self.settings.max_message);
        let (pending, next_id, format, schema, probing) = Default::default();
        let mut live = Live { connection, pending, next_id, format, schema, probing };
        live.request("get_schema", vec![json!(self.settings.database)], Pending::Schema);
        self.phase = Phase::Live(Box::new(live));
    }

    fn disconnect(&mut self, error: SessionError) {
        if let Phase::Live(live) = &mut self.phase {
            for pending in std::mem::take(&mut live.pending).into_values() {
                if let Pending::Transaction { ticket, .. } = pending {
                    self.events.push_back(Event::Reply(ticket, Err(TransactError::Disconnected)));
                }
            }
        }
        self.set_locked(false);
        self.phase = Phase::Waiting(Instant::now() + self.backoff.delay());
        self.events.push_back(Event::Disconnected(error));
    }

    /// Handles the end of a turn.
    fn after(&mut self, turn: &Turn) -> Result<(), SessionError> {
        let Phase::Live(live) = &mut self.phase else { return Ok(()) };
        match turn {
            Turn::Closed => return Err(SessionError::Closed),
            Turn::Deadline if live.probing => {
                return Err(SessionError::Silent(self.settings.probe.unwrap_or_default()));
            }
            Turn::Deadline => {
                live.probing = true;
                live.request("echo", vec![], Pending::Ignored);
            }
            Turn::Moved => {}
        }
        loop {
            let Phase::Live(live) = &mut self.phase else { return Ok(()) };
            let Some(bytes) = live.connection.next_message()? else { return Ok(()) };
            let message = Message::decode(bytes)?;
            live.probing = false;
            match message {
                Message::Request { id, method, params } => {
                    // Only `echo` goes both ways (RFC 7047 §4.1.11).
                    let outcome = match method.as_str() {
                        "echo" => Ok(Json::Array(params)),
                        _ => Err(json!("unknown method")),
                    };
                    if live.connection.backlog() > REPLY_BACKLOG {
                        return Err(SessionError::Backlog);
                    }
                    live.connection.send(&Message::Reply { id, outcome });
                }
                Message::Notification { method, params } => self.notified(&method, &params)?,
                Message::Reply { id, outcome } => {
                    let pending = id.as_u64().and_then(|id| live.pending.remove(&id));
                    if let Some(pending) = pending {
                        self.replied(pending, outcome)?;
                    }
                }
            }
        }
    }

    fn notified(&mut self, method: &str, params: &[Json]) -> Result<(), SessionError> {
        let Phase::Live(live) = &mut self.phase else { return Ok(()) };
        let is_ours = |id: &Json| Some(id) == self.settings.lock.as_ref().map(|lock| json!(lock)).as_ref();
        match (method, params) {
            ("update" | "update2", [id, updates]) if *id == monitor_id(&self.settings) => {
                let expected = if method == "update" { Format::OldAndNew } else { Format::Differences };
                if live.format == Some(expected) {
                    let changes = self.replica.apply(expected, updates)?;
                    if !changes.is_empty() {
                        self.events.push_back(Event::Changed(changes));
                    }
                }
            }
            ("monitor_canceled", _) => return Err(SessionError::Canceled(self.settings.database.clone())),
            ("locked", [id]) if is_ours(id) => self.set_locked(true),
            ("stolen", [id]) if is_ours(id) => self.set_locked(false),
            // Notifications of newer servers.
            _ => {}
        }
        Ok(())
    }

    fn replied(&mut self, pending: Pending, outcome: Result<Json, Json>) -> Result<(), SessionError> {
        let database = || self.settings.database.clone();
        let refused = |method, error: &Json| SessionError::Refused {
            database: database(),
            method,
            error: error_text(error),
        };
        match (pending, outcome) {
            (Pending::Schema, Ok(json)) => {
                let schema = Schema::decode(&json).and_then(|schema| schema.select(&self.settings.tables));
                let schema = schema.map_err(|error| SessionError::Schema { database: database(), error })?;
                self.monitor(schema);
            }
            (Pending::Schema, Err(error)) => return Err(refused("get_schema", &error)),
            (Pending::Monitor(format), Ok(updates)) => self.begin(format, &updates)?,
            (Pending::Monitor(Format::Differences), Err(error))
                if error_text(&error).starts_with("unknown method") =>
            {
                // A server before Open vSwitch 2.6, or of another make.
                self.request_monitor(Format::OldAndNew);
            }
            (Pending::Monitor(_), Err(error)) => return Err(refused("monitor", &error)),
            (Pending::Lock, Ok(reply)) => {
                if reply.get("locked").and_then(Json::as_bool) == Some(true) {
                    self.set_locked(true);
                }
            }
            (Pending::Lock, Err(error)) => return Err(refused("lock", &error)),
            (Pending::Transaction { ticket, operations }, outcome) => {
                let results = match outcome {
                    Ok(results) => decode_results(&results, operations),
                    Err(error) => Err(TransactError::Refused(error_text(&error))),
                };
                self.events.push_back(Event::Reply(ticket, results));
            }
            (Pending::Ignored, _) => {}
        }
        Ok(())
    }

    /// Requests the lock and the contents of the tables.
    fn monitor(&mut self, schema: Schema) {
        let Phase::Live(live) = &mut self.phase else { return };
        if let Some(lock) = &self.settings.lock {
            live.request("lock", vec![json!(lock)], Pending::Lock);
        }
        live.schema = Some(schema);
        self.request_monitor(Format::Differences);
    }

    fn request_monitor(&mut self, format: Format) {
        let Phase::Live(live) = &mut self.phase else { return };
        let tables = live.schema.iter().flat_map(|schema| &schema.tables).map(|(table, columns)| {
            let columns: Vec<_> = columns.keys().collect();
            // `monitor_cond` takes a list of requests, `monitor` as well (RFC 7047 §4.1.5).
            (table.clone(), json!([{"columns": columns}]))
        });
        let tables = Json::Object(tables.collect());
        let method = match format {
            Format::Differences => "monitor_cond",
            Format::OldAndNew => "monitor",
        };
        let params = vec![json!(self.settings.database), monitor_id(&self.settings), tables];
        live.request(method, params, Pending::Monitor(format));
    }

    /// Takes over the initial contents.
    fn begin(&mut self, format: Format, updates: &Json) -> Result<(), SessionError> {
        let Phase::Live(live) = &mut self.phase else { return Ok(()) };
        let mut replica = Replica::new(live.schema.take().unwrap_or_default());
        replica.apply(format, updates)?;
        self.replica = replica;
        live.format = Some(format);
        self.backoff.reset();
        self.events.push_back(Event::Connected);
        Ok(())
    }
}

fn monitor_id(settings: &Settings) -> Json {
    json!(settings.database)
}

/// Returns a server's error as text (`<error>`, RFC 7047 §4).
fn error_text(error: &Json) -> String {
    let text = |key: &str| error.get(key).and_then(Json::as_str);
    match (error.as_str(), text("error"), text("details")) {
        (Some(text), _, _) | (None, Some(text), None) => text.into(),
        (None, Some(text), Some(details)) => format!("{text}: {details}"),
        (None, None, _) => shortened(error),
    }
}

#[cfg(test)]
mod tests;
