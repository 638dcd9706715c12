//! Sessions with the real `ovsdb-server` and its stock schema.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ovsdb::typed::Table;
use ovsdb::vswitch::{self, Bridge, Interface, OpenVSwitch, Port};
use ovsdb::{Atom, Mutation, Mutator, OperationResult, Row, Session, Settings, TransactError, Transaction};

const LIMIT: Duration = Duration::from_secs(20);
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// A server with a database in a folder of its own.
struct Server {
    folder: tempfile::TempDir,
    process: Option<Child>,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let created =
            Command::new("ovsdb-tool").arg("create").arg(folder.path().join("db")).arg(SCHEMA).status();
        assert!(created.expect("ovsdb-tool is installed (openvswitch-common)").success());
        let mut server = Server { folder, process: None };
        server.restart();
        server
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("db.sock")
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn restart(&mut self) {
        self.stop();
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let mut command = Command::new("ovsdb-server");
        command.args([
            "--no-chdir".into(),
            format!("--remote=punix:{}", at("db.sock")),
            format!("--unixctl={}", at("ctl")),
            at("db"),
        ]);
        self.process = Some(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    }

    fn session(&self, lock: Option<&str>) -> Session {
        let remote = ovsdb::Remote::Unix(self.socket());
        let mut settings = Settings::new(remote, vswitch::DATABASE, vswitch::TABLES.to_vec());
        settings.lock = lock.map(Into::into);
        settings.longest_delay = Duration::from_millis(200);
        Session::new(settings)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Handles events until the session is in a state.
async fn until(session: &mut Session, wanted: impl Fn(&Session) -> bool) {
    let reached = tokio::time::timeout(LIMIT, async {
        while !wanted(session) {
            session.next().await;
        }
    });
    reached.await.expect("the session reaches the state");
}

async fn until_connected(session: &mut Session) {
    until(session, Session::is_connected).await;
}

fn row(entries: &[(&str, ovsdb::Value)]) -> Row {
    entries.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

fn named(name: &str) -> ovsdb::Value {
    Atom::NamedUuid(name.into()).into()
}

/// Adds a bridge with a port as `ovs-vsctl` does.
async fn add_bridge(session: &mut Session, name: &str) {
    let mut transaction = Transaction::new();
    transaction
        .insert("Interface", Some("interface"), row(&[("name", name.into()), ("type", "internal".into())]))
        .insert("Port", Some("port"), row(&[("name", name.into()), ("interfaces", named("interface"))]))
        .insert("Bridge", Some("bridge"), row(&[("name", name.into()), ("ports", named("port"))]));
    match OpenVSwitch::only(session.replica()).unwrap() {
        None => {
            transaction.insert("Open_vSwitch", None, row(&[("bridges", named("bridge"))]));
        }
        Some(root) => {
            transaction.mutate(
                "Open_vSwitch",
                root.uuid,
                Mutation::new("bridges", Mutator::Insert, named("bridge")),
            );
        }
    }
    let results = session.transact(&transaction).await.unwrap();
    assert!(matches!(results[2], OperationResult::Inserted(_)), "{results:?}");
}

#[tokio::test]
async fn rows_are_replicated_and_changed() {
    let server = Server::start();
    let (mut one, mut other) = (server.session(None), server.session(None));
    until_connected(&mut one).await;
    until_connected(&mut other).await;
    assert_eq!(OpenVSwitch::only(one.replica()).unwrap(), None);
    add_bridge(&mut one, "br0").await;
    add_bridge(&mut one, "br1").await;
    until(&mut other, |other| Bridge::all(other.replica()).unwrap().len() == 2).await;
    let bridges = Bridge::all(other.replica()).unwrap();
    let root = OpenVSwitch::only(other.replica()).unwrap().unwrap();
    assert_eq!(root.bridges, bridges.iter().map(|bridge| bridge.uuid).collect());
    assert_eq!(Port::all(other.replica()).unwrap().len(), 2);
    let interface = Interface::all(other.replica()).unwrap().remove(0);
    assert_eq!((interface.type_.as_str(), interface.ofport), ("internal", None));

    // Columns of every kind change: an optional one, a map, and a number.
    let mut changed = Row::new();
    Interface::OFPORT.set(&mut changed, Some(5));
    Interface::OPTIONS.set(&mut changed, [("a".to_owned(), "1".to_owned()), ("b".into(), "2".into())].into());
    let mut transaction = Transaction::new();
    transaction.update("Interface", interface.uuid, changed);
    transaction.mutate("Open_vSwitch", root.uuid, Mutation::new("next_cfg", Mutator::Add, 1i64));
    let results = other.transact(&transaction).await.unwrap();
    assert_eq!(results, [OperationResult::Count(1), OperationResult::Count(1)]);
    let mut transaction = Transaction::new();
    let key = Mutation::new("options", Mutator::Delete, "a");
    transaction.mutate("Interface", interface.uuid, key);
    other.transact(&transaction).await.unwrap();
    for session in [&mut other, &mut one] {
        let seen = |session: &Session| {
            let found = Interface::all(session.replica()).unwrap();
            let found = found.into_iter().find(|it| it.uuid == interface.uuid).unwrap();
            let next = OpenVSwitch::only(session.replica()).unwrap().unwrap().next_cfg;
            (found.ofport, found.options, next)
        };
        let wanted = (Some(5), [("b".to_owned(), "2".to_owned())].into(), 1);
        until(session, |session| seen(session) == wanted).await;
    }

    // Rows without a reference go with it.
    let mut transaction = Transaction::new();
    let set = ovsdb::Value::Set([Atom::Uuid(bridges[1].uuid)].into());
    transaction.update("Open_vSwitch", root.uuid, row(&[("bridges", set)]));
    one.transact(&transaction).await.unwrap();
    assert_eq!(Port::all(one.replica()).unwrap().len(), 1);
}

#[tokio::test]
async fn mistakes_are_named_and_have_no_effect() {
    let server = Server::start();
    let mut session = server.session(None);
    until_connected(&mut session).await;
    let mut transaction = Transaction::new();
    transaction.insert("Bridge", None, row(&[("fail_mode", "other".into())]));
    let error = session.transact(&transaction).await.unwrap_err().to_string();
    assert!(
        error.starts_with("operation 0: constraint violation: other is not one of the allowed values"),
        "{error}"
    );
    let mut transaction = Transaction::new();
    transaction.insert("Open_vSwitch", None, Row::new()).insert("Open_vSwitch", None, Row::new());
    let error = session.transact(&transaction).await.unwrap_err();
    assert!(matches!(error, TransactError::Failed { operation: None, .. }), "{error}");
    assert_eq!(OpenVSwitch::only(session.replica()).unwrap(), None);
}

#[tokio::test]
async fn one_of_two_clients_holds_the_lock() {
    let server = Server::start();
    let (mut first, mut second) = (server.session(Some("l")), server.session(Some("l")));
    until(&mut first, Session::holds_lock).await;
    until_connected(&mut first).await;
    until_connected(&mut second).await;
    assert!(!second.holds_lock());
    let mut transaction = Transaction::new();
    transaction.assert("l").insert("Open_vSwitch", None, Row::new());
    let error = second.transact(&transaction).await.unwrap_err().to_string();
    assert!(error.starts_with("operation 0: not owner"), "{error}");
    first.transact(&transaction).await.unwrap();

    second.steal_lock();
    until(&mut second, Session::holds_lock).await;
    until(&mut first, |session| !session.holds_lock()).await;
    // The lock passes on when its owner goes: the first client still waits for it.
    drop(second);
    until(&mut first, Session::holds_lock).await;
}

#[tokio::test]
async fn a_restarted_server_is_found_again_without_ephemeral_columns() {
    let mut server = Server::start();
    let mut session = server.session(Some("l"));
    until_connected(&mut session).await;
    add_bridge(&mut session, "br0").await;
    let bridge = Bridge::all(session.replica()).unwrap().remove(0);
    let mut changed = Row::new();
    Bridge::DATAPATH_ID.set(&mut changed, Some("0000000000000001".into()));
    session.transact(Transaction::new().update("Bridge", bridge.uuid, changed)).await.unwrap();
    for _ in 0..3 {
        server.stop();
        until(&mut session, |session| !session.is_connected()).await;
        assert_eq!(Bridge::all(session.replica()).unwrap().len(), 1, "the last contents stay");
        server.restart();
        until_connected(&mut session).await;
        until(&mut session, Session::holds_lock).await;
        let again = Bridge::all(session.replica()).unwrap().remove(0);
        assert_eq!((again.uuid, again.datapath_id), (bridge.uuid, None));
    }
}

#[tokio::test]
async fn a_big_database_arrives_whole() {
    let server = Server::start();
    let mut session = server.session(None);
    until_connected(&mut session).await;
    add_bridge(&mut session, "br0").await;
    let bridge = Bridge::all(session.replica()).unwrap().remove(0);
    let mut transaction = Transaction::new();
    let mut ports = std::collections::BTreeSet::new();
    for number in 0..2000 {
        let (name, interface, port) = (format!("p{number}"), format!("i{number}"), format!("n{number}"));
        transaction.insert("Interface", Some(&interface), row(&[("name", name.as_str().into())])).insert(
            "Port",
            Some(&port),
            row(&[("name", name.into()), ("interfaces", named(&interface))]),
        );
        ports.insert(Atom::NamedUuid(port));
    }
    transaction.mutate(
        "Bridge",
        bridge.uuid,
        Mutation::new("ports", Mutator::Insert, ovsdb::Value::Set(ports)),
    );
    session.transact(&transaction).await.unwrap();
    let mut other = server.session(None);
    until_connected(&mut other).await;
    assert_eq!(Port::all(other.replica()).unwrap(), Port::all(session.replica()).unwrap());
    assert_eq!(Bridge::all(other.replica()).unwrap().remove(0).ports.len(), 2001);
}

/// Columns that came after Open vSwitch 3.1.
const LATER: [(&str, &str); 2] = [("IPFIX", "stats_interval"), ("IPFIX", "template_interval")];

#[tokio::test]
async fn the_types_of_all_columns_are_those_of_the_stock_schema() {
    let text = std::fs::read_to_string(Path::new(SCHEMA)).unwrap();
    let schema = ovsdb::Schema::decode(&serde_json::from_str(&text).unwrap()).unwrap();
    let selected = schema.select(vswitch::TABLES).unwrap();
    for table in vswitch::TABLES {
        for column in table.columns {
            let is_later = LATER.contains(&(table.name, column.name));
            assert!(selected.has(table.name, column.name) || is_later, "{}.{}", table.name, column.name);
        }
    }
}
