use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::*;
use crate::schema::{AtomType, ColumnInfo, ColumnType};
use crate::typed::{Column, Datum};
use crate::uuid::Uuid;

const COLUMNS: &[ColumnInfo] = &[
    ColumnInfo {
        name: "name",
        column_type: ColumnType { key: AtomType::String, value: None, min: 1, max: Some(1) },
    },
    ColumnInfo {
        name: "missing",
        column_type: ColumnType { key: AtomType::String, value: None, min: 1, max: Some(1) },
    },
];
const NAME: Column<String> = Column::new("T", "name");
const A: &str = "00000000-0000-0000-0000-00000000000a";

/// A server at a Unix socket, whose messages the test writes.
struct Server {
    _folder: tempfile::TempDir,
    listener: UnixListener,
}

struct Peer {
    stream: UnixStream,
    splitter: crate::Splitter,
}

impl Server {
    /// Returns a server, and a session that shall use it.
    fn new(change: impl FnOnce(&mut Settings)) -> (Self, Session) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let tables = vec![TableInfo { name: "T", columns: COLUMNS }];
        let mut settings = Settings::new(Remote::Unix(path), "D", tables);
        settings.shortest_delay = Duration::from_millis(1);
        change(&mut settings);
        (Server { _folder: folder, listener }, Session::new(settings))
    }

    async fn accept(&self) -> Peer {
        let (stream, _) = self.listener.accept().await.unwrap();
        Peer { stream, splitter: crate::Splitter::new(1 << 20) }
    }

    /// Accepts a connection, and gives it a table with these rows.
    async fn serve(&self, rows: Json) -> Peer {
        let mut peer = self.accept().await;
        peer.schema("string").await;
        let (id, _) = peer.expect("monitor_cond").await;
        peer.reply(id, json!({"T": rows})).await;
        peer
    }
}

impl Peer {
    async fn receive(&mut self) -> Message {
        loop {
            if let Some(bytes) = self.splitter.next_message().unwrap() {
                return Message::decode(bytes).unwrap();
            }
            let mut read = [0; 4096];
            let count = self.stream.read(&mut read).await.unwrap();
            assert_ne!(count, 0, "the session closed the connection");
            self.splitter.push(&read[..count]);
        }
    }

    async fn expect(&mut self, wanted: &str) -> (Json, Vec<Json>) {
        match self.receive().await {
            Message::Request { id, method, params } if method == wanted => (id, params),
            other => panic!("expected {wanted}, received {other:?}"),
        }
    }

    async fn send(&mut self, message: Message) {
        self.stream.write_all(message.encode().to_string().as_bytes()).await.unwrap();
    }

    async fn reply(&mut self, id: Json, result: Json) {
        self.send(Message::Reply { id, outcome: Ok(result) }).await;
    }

    async fn notify(&mut self, method: &str, params: Json) {
        let params = params.as_array().unwrap().clone();
        self.send(Message::Notification { method: method.into(), params }).await;
    }

    /// Answers `get_schema`; the column `name` has this type.
    async fn schema(&mut self, column_type: &str) {
        let (id, params) = self.expect("get_schema").await;
        assert_eq!(params, [json!("D")]);
        let columns = json!({"name": {"type": column_type}});
        self.reply(id, json!({"name": "D", "version": "1.0.0", "tables": {"T": {"columns": columns}}})).await;
    }
}

async fn connected(session: &mut Session) {
    let event = session.next().await;
    assert!(matches!(event, Event::Connected), "{event:?}");
}

async fn disconnected(session: &mut Session) -> String {
    match session.next().await {
        Event::Disconnected(error) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn names(session: &Session) -> Vec<String> {
    session.replica().rows("T").map(|(_, row)| NAME.get(row).unwrap()).collect()
}

#[tokio::test]
async fn a_server_without_conditions_is_monitored_as_the_rfc_says() {
    let (server, mut session) = Server::new(|_| {});
    let serve = async {
        let mut peer = server.accept().await;
        peer.schema("string").await;
        let (id, params) = peer.expect("monitor_cond").await;
        let monitor = vec![json!("D"), json!("D"), json!({"T": [{"columns": ["name"]}]})];
        assert_eq!(params, monitor, "columns that the server lacks are left out");
        peer.send(Message::Reply { id, outcome: Err(json!("unknown method")) }).await;
        let (id, params) = peer.expect("monitor").await;
        assert_eq!(params, monitor);
        peer.reply(id, json!({"T": {A: {"new": {"name": "a"}}}})).await;
        peer
    };
    let (mut peer, ()) = tokio::join!(serve, connected(&mut session));
    assert_eq!(names(&session), ["a"]);
    peer.notify("update", json!(["D", {"T": {A: {"old": {"name": "a"}, "new": {"name": "b"}}}}])).await;
    assert!(matches!(session.next().await, Event::Changed(changes) if changes.len() == 1));
    assert_eq!(names(&session), ["b"]);
}

#[tokio::test]
async fn echoes_are_answered() {
    let (server, mut session) = Server::new(|_| {});
    let (mut peer, ()) = tokio::join!(server.serve(json!({})), connected(&mut session));
    let ask = async {
        for method in ["echo", "other"] {
            let params = vec![json!("x")];
            peer.send(Message::Request { id: json!("i"), method: method.into(), params }).await;
        }
        (peer.receive().await, peer.receive().await)
    };
    let (echo, other) = tokio::select! {
        answers = ask => answers,
        event = session.next() => panic!("{event:?}"),
    };
    assert_eq!(echo, Message::Reply { id: json!("i"), outcome: Ok(json!(["x"])) });
    assert_eq!(other, Message::Reply { id: json!("i"), outcome: Err(json!("unknown method")) });
}

#[tokio::test]
async fn a_cut_in_a_transaction_is_reported_and_the_contents_follow_the_next_connection() {
    let (server, mut session) = Server::new(|_| {});
    let row = json!({A: {"initial": {"name": "a"}}});
    let (mut peer, ()) = tokio::join!(server.serve(row), connected(&mut session));
    assert!(session.is_connected());
    let mut transaction = Transaction::new();
    transaction.push(crate::Operation::Comment("x".into()));
    let cut = async {
        peer.expect("transact").await;
        drop(peer);
    };
    let (result, ()) = tokio::join!(session.transact(&transaction), cut);
    assert_eq!(result, Err(TransactError::Disconnected));
    assert_eq!(disconnected(&mut session).await, "the database server closed the connection");
    assert_eq!(session.send(&transaction), Err(TransactError::NotConnected));
    assert_eq!(names(&session), ["a"], "the last contents stay");
    let (_peer, ()) = tokio::join!(server.serve(json!({})), connected(&mut session));
    assert!(names(&session).is_empty());
}

#[tokio::test]
async fn results_come_after_their_changes() {
    let (server, mut session) = Server::new(|_| {});
    let (mut peer, ()) = tokio::join!(server.serve(json!({})), connected(&mut session));
    let mut transaction = Transaction::new();
    transaction.insert("T", None, [("name".to_owned(), "n".into())].into());
    let serve = async {
        let (id, _) = peer.expect("transact").await;
        peer.notify("update2", json!(["D", {"T": {A: {"insert": {"name": "n"}}}}])).await;
        peer.reply(id, json!([{"uuid": ["uuid", A]}])).await;
    };
    let (result, ()) = tokio::join!(session.transact(&transaction), serve);
    let uuid: Uuid = A.parse().unwrap();
    assert_eq!(result, Ok(vec![OperationResult::Inserted(uuid)]));
    assert_eq!(names(&session), ["n"]);
    assert!(matches!(session.next().await, Event::Changed(_)));
}

#[tokio::test]
async fn a_lock_comes_and_goes() {
    let (server, mut session) = Server::new(|settings| settings.lock = Some("l".into()));
    let serve = async {
        let mut peer = server.accept().await;
        peer.schema("string").await;
        let (id, params) = peer.expect("lock").await;
        assert_eq!(params, [json!("l")]);
        peer.reply(id, json!({"locked": false})).await;
        let (id, _) = peer.expect("monitor_cond").await;
        peer.reply(id, json!({})).await;
        for method in ["locked", "stolen"] {
            peer.notify(method, json!(["other"])).await;
            peer.notify(method, json!(["l"])).await;
        }
        peer
    };
    let (mut peer, ()) = tokio::join!(serve, connected(&mut session));
    assert!(matches!(session.next().await, Event::Lock(true)));
    assert!(matches!(session.next().await, Event::Lock(false)));
    session.steal_lock();
    let steal = async {
        peer.expect("unlock").await;
        let (id, _) = peer.expect("steal").await;
        peer.reply(id, json!({"locked": true})).await;
    };
    let (event, ()) = tokio::join!(session.next(), steal);
    assert!(matches!(event, Event::Lock(true)) && session.holds_lock());
    drop(peer);
    assert!(matches!(session.next().await, Event::Lock(false)), "the end of a connection loses the lock");
}

#[tokio::test]
async fn a_server_that_breaks_the_protocol_is_left() {
    let (server, mut session) = Server::new(|settings| settings.max_message = 1000);
    for (sent, reason) in [
        (
            json!({"id": null, "method": "update2", "params": ["D", {"U": {}}]}).to_string(),
            "update of the table `U`, which is not monitored",
        ),
        (
            json!({"id": null}).to_string(),
            "invalid message from the database server: not a JSON-RPC message: \
             expected a `method`, or an `id` that is not null, found {}",
        ),
        (
            "x".into(),
            "invalid stream from the database server: expected a message that begins with `{`, found byte 0x78",
        ),
        (
            format!("{{{}", " ".repeat(1000)),
            "invalid stream from the database server: a message has more than 1000 bytes",
        ),
        (
            json!({"id": null, "method": "monitor_canceled", "params": ["D"]}).to_string(),
            "database `D` was removed or converted",
        ),
    ] {
        let (mut peer, ()) = tokio::join!(server.serve(json!({})), connected(&mut session));
        peer.stream.write_all(sent.as_bytes()).await.unwrap();
        assert_eq!(disconnected(&mut session).await, reason);
    }
    let serve = async {
        let mut peer = server.accept().await;
        peer.schema("integer").await;
        peer
    };
    let (_peer, reason) = tokio::join!(serve, disconnected(&mut session));
    assert_eq!(
        reason,
        "database `D`: schema 1.0.0: column `T.name` holds 1 of integer, expected 1 of string"
    );
    let serve = async {
        let mut peer = server.accept().await;
        let (id, _) = peer.expect("get_schema").await;
        peer.send(Message::Reply { id, outcome: Err(json!({"error": "unknown database"})) }).await;
        peer
    };
    let (_peer, reason) = tokio::join!(serve, disconnected(&mut session));
    assert_eq!(reason, "database `D`: the server refused `get_schema`: unknown database");
}

#[tokio::test]
async fn a_silent_server_is_left() {
    let probe = Duration::from_millis(20);
    let (server, mut session) = Server::new(|settings| settings.probe = Some(probe));
    let silent = async {
        let mut peer = server.accept().await;
        peer.expect("get_schema").await;
        peer.expect("echo").await;
        peer
    };
    let (_peer, reason) = tokio::join!(silent, disconnected(&mut session));
    assert_eq!(reason, "no reply from the database server within 20ms");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let remote = Remote::Unix("/nonexistent/db.sock".into());
    let mut session = Session::new(Settings::new(remote, "D", vec![]));
    assert_eq!(
        disconnected(&mut session).await,
        "cannot connect to unix:/nonexistent/db.sock: No such file or directory (os error 2)"
    );
}

#[test]
fn columns_have_rust_types() {
    assert_eq!(String::from_value(&"x".into()).as_deref(), Some("x"));
}
