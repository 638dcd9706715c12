//! Commands of the real `ovs-appctl`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::Notify;
use unixctl::{Commands, Pidfile, Server, SocketError};

/// A daemon in this process: `d.pid` and its socket, served by a task.
struct Daemon {
    folder: tempfile::TempDir,
    pidfile: Pidfile,
    server: Arc<Server>,
    serving: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Daemon {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pidfile = Pidfile::create(&folder.path().join("d.pid"), false).unwrap();
        let socket = folder.path().join(format!("d.{}.ctl", std::process::id()));
        let server = Arc::new(Server::listen(&socket).unwrap());
        let exit = Arc::new(Notify::new());
        let mut commands = Commands::new("ovs-vswitchd (test) 3.1.0");
        let (notify, end) = (exit.clone(), async move { exit.notified().await });
        commands.add("exit", "[--cleanup]", 0..=1, move |_| {
            notify.notify_one();
            Ok(String::new())
        });
        commands.add("test/echo", "text...", 1..=9, |arguments| Ok(arguments.join("|")));
        let serving = server.clone();
        let serving = tokio::spawn(async move { serving.serve(commands, end).await });
        Daemon { folder, pidfile, server, serving }
    }

    /// Returns the exit code, standard output and standard error.
    async fn appctl(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new("ovs-appctl");
        command.args(["-T", "20", "-t", "d"]).args(arguments).env("OVS_RUNDIR", self.folder.path());
        let output = command.output().await.expect("ovs-appctl is installed (openvswitch-common)");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

#[tokio::test]
async fn commands_are_answered() {
    let daemon = Daemon::start();
    let ok = |text: &str| (0, text.to_owned(), String::new());
    assert_eq!(daemon.appctl(&["version"]).await, ok("ovs-vswitchd (test) 3.1.0\n"));
    assert_eq!(daemon.appctl(&["test/echo", "a b", "\"ü\\"]).await, ok("a b|\"ü\\\n"));
    let (code, list, _) = daemon.appctl(&["list-commands"]).await;
    assert_eq!(code, 0);
    assert!(list.contains("\n  exit                    [--cleanup]\n"), "{list}");
    for (arguments, error) in [
        (&["frobnicate"][..], "\"frobnicate\" is not a valid command"),
        (&["version", "x"], "\"version\" command takes at most 0 arguments"),
        (&["test/echo"], "\"test/echo\" command requires at least 1 argument"),
    ] {
        let (code, output, message) = daemon.appctl(arguments).await;
        assert_eq!((code, output.as_str()), (2, ""), "{message}");
        assert!(message.starts_with(error), "{message}");
        assert!(message.ends_with("ovs-appctl: d: server returned an error\n"), "{message}");
    }
    // The request that ends the daemon is answered, too.
    assert_eq!(daemon.appctl(&["exit"]).await, ok(""));
    daemon.serving.await.unwrap().unwrap();
    drop((daemon.pidfile, daemon.server));
    assert_eq!(std::fs::read_dir(daemon.folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_client_that_breaks_the_protocol_loses_its_connection_only() {
    let daemon = Daemon::start();
    let path = daemon.folder.path().join(format!("d.{}.ctl", std::process::id()));
    for bad in ["x", "{}", "[]", r#"{"id":null,"method":"version","params":[]}"#, r#"{"id":1,"result":1}"#] {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(bad.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        // Closed, or reset where the rest of the input was not read.
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "{bad}");
    }
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(br#"{"id":1,"method":"version","params":[5]}"#).await.unwrap();
    let mut reply = [0; 200];
    let count = stream.read(&mut reply).await.unwrap();
    let reply = String::from_utf8_lossy(&reply[..count]);
    assert!(
        reply.contains(r#""error":"arguments of \"version\": expected strings, found [5]\n""#),
        "{reply}"
    );
    // As many idle connections as there may be, but one.
    let mut idle = vec![stream];
    for _ in 0..60 {
        idle.push(UnixStream::connect(&path).await.unwrap());
    }
    assert_eq!(daemon.appctl(&["version"]).await.0, 0);
}

#[tokio::test]
async fn a_socket_in_use_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = Server::listen(&path).expect("a stale socket is replaced");
    assert!(matches!(Server::listen(&path), Err(SocketError::InUse(_))));
    drop(server);
    assert!(!path.exists());
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(Server::listen(&path), Err(SocketError::OtherFile(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

/// Locks a pidfile in another process, and waits until its standard input ends.
const HOLDER: &str = "import fcntl,os,sys
f = open(sys.argv[1], 'w')
fcntl.lockf(f, fcntl.LOCK_EX)
f.write(str(os.getpid()) + '\\n')
f.flush()
print('locked', flush=True)
sys.stdin.read()";

#[tokio::test]
async fn a_pidfile_of_a_running_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.pid");
    let mut command = Command::new("python3");
    command.args(["-c", HOLDER]).arg(&path).kill_on_drop(true);
    let mut holder =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = [0; 7];
    let output = holder.stdout.as_mut().unwrap();
    tokio::time::timeout(Duration::from_secs(20), output.read_exact(&mut line)).await.unwrap().unwrap();
    let refused = |path: &Path| Pidfile::create(path, false).unwrap_err().to_string();
    let pid = holder.id().unwrap();
    assert_eq!(refused(&path), format!("{}: already running as pid {pid}, aborting", path.display()));
    drop(Pidfile::create(&path, true).expect("it is overwritten on request"));
    drop(holder.stdin.take());
    holder.wait().await.unwrap();
}
