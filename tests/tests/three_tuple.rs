//! `three-tuple`: the host's own stack and another one on the same address, each in a namespace, and a host outside.
//! The other stack is a kernel's too, with the host's addresses, which it does not know that it shares.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use e2e::{Daemon, Netns, Running, binary, config, output, ping_all, unique, until};
use reservation::{Protocol, Reservations};

const LIMIT: Duration = Duration::from_secs(20);
/// Address of the host and of the stack; the address outside.
const HOST: &str = "192.0.2.1";
const OUTSIDE: &str = "192.0.2.9";
const HOST6: &str = "2001:db8::1";
/// A user without any rights, and a user whom a rule names.
const NOBODY: u32 = 65_534;
const CLIENT: u32 = 65_533;

struct Rig {
    // Dropped in this order: the daemon, then namespaces.
    daemon: Daemon,
    outside: Netns,
    host: Netns,
    stack: Netns,
}

impl Rig {
    /// The stack is a kernel's, in a namespace.
    fn start() -> Rig {
        let interface = unique("t");
        let rig = Rig::with_stack(|stack| {
            config::tap("stack1", &interface, stack.name(), &["192.0.2.1/24", "2001:db8::1/64"], "")
        });
        let mac = rig.daemon.run(&["logic", "call", "br0", "mac"]).unwrap();
        rig.stack.run(&["ip", "link", "set", "dev", &interface, "address", mac.trim()]).unwrap();
        rig.daemon.wait_up("br0", "stack1").unwrap();
        rig
    }

    fn with_stack(port: impl FnOnce(&Netns) -> String) -> Rig {
        let [outside, host, stack] = std::array::from_fn(|_| Netns::new().unwrap());
        for netns in [&outside, &host, &stack] {
            // Addresses can be used at once: duplicates are what this is about.
            netns.run(&["sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0"]).unwrap();
        }
        let params = format!(
            "params = {{ host = \"host\", uplink = \"uplink\", netns = \"{}\", socket = \"{{dir}}/reserve\", \
             allow = \"uid={CLIENT} port=stack1 protocol=udp ports=7000-7999\" }}\n\n",
            host.name()
        );
        let text = config::bridge("br0", "three-tuple")
            + &params
            + &config::tap("uplink", &unique("t"), outside.name(), &["192.0.2.9/24", "2001:db8::9/64"], "")
            + &config::tap("host", &unique("t"), host.name(), &["192.0.2.1/24", "2001:db8::1/64"], "")
            + &port(&stack);
        let rig = Rig { daemon: Daemon::start(&text).unwrap(), outside, host, stack };
        for port in ["uplink", "host"] {
            rig.daemon.wait_up("br0", port).unwrap();
        }
        // The host speaks, and so shows its MAC address.
        ping_all(&rig.host, OUTSIDE, 1, "0.01").unwrap();
        rig
    }

    fn connect(&self) -> Reservations {
        Reservations::connect(self.daemon.path("reserve")).unwrap()
    }

    /// Packets of the stack that were refused.
    fn refused(&self) -> u64 {
        let port = self.daemon.port("br0", "stack1").unwrap();
        port.json()["totals"]["rx"]["drops"]["unreserved-source"].as_u64().unwrap_or(0)
    }

    /// Rows of a table of the logic.
    fn table(&self, name: &str) -> Vec<Vec<String>> {
        let shown = self.daemon.json(&["logic", "show", "br0", "--table", name]).unwrap();
        let text = |cell: &serde_json::Value| cell.as_str().unwrap().to_owned();
        let rows = shown["tables"][0]["rows"].as_array().unwrap().iter();
        rows.map(|row| row["cells"].as_array().unwrap().iter().map(text).collect()).collect()
    }

    /// Starts the example in C as a user; it prints a line.
    fn client(&self, user: u32, words: &[&str]) -> CClient {
        let program = self.daemon.path("example");
        if !Path::new(&program).exists() {
            let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
            let [include, example, library] =
                ["sdk/c", "examples/three-tuple/reserve.c", "sdk/c/mswitch_reservation.c"]
                    .map(|path| repository.join(path).display().to_string());
            let flags = ["-Wall", "-Wextra", "-Werror", "-I", &include, "-o", &program];
            output("cc", &[&flags[..], &[example.as_str(), &library]].concat()).unwrap();
            // Its folder is the test's own.
            output("chmod", &["a+rx", self.daemon.folder().to_str().unwrap()]).unwrap();
        }
        let mut command = Command::new(&program);
        command.arg(self.daemon.path("reserve")).args(words).uid(user).gid(user);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        CClient(command.spawn().unwrap())
    }
}

/// The example, running. Drop kills it.
struct CClient(Child);

impl CClient {
    /// Waits for its line.
    fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        line
    }

    /// Waits for its end; returns its error.
    fn error(mut self) -> String {
        let mut text = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(self.0.wait().unwrap().code(), Some(1), "{text}");
        text
    }
}

impl Drop for CClient {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn address() -> IpAddr {
    HOST.parse().unwrap()
}

/// Answers one connection with a name, then echoes until its end.
fn serve(listener: TcpListener, name: &'static [u8]) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(name).unwrap();
        std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
    })
}

/// Sends a megabyte and reads it back.
fn exchange(stream: &mut TcpStream) {
    let sent: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    let mut back = vec![0; sent.len()];
    std::thread::scope(|scope| {
        let mut out = stream.try_clone().unwrap();
        let sent = &sent;
        scope.spawn(move || out.write_all(sent).unwrap());
        stream.read_exact(&mut back).unwrap();
    });
    assert!(sent == back);
}

fn in_use<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
}

#[test]
fn two_stacks_serve_on_one_address() {
    let rig = Rig::start();
    let mut client = rig.connect();
    client.reserve("stack1", Protocol::Tcp, address(), 8080..=8080).unwrap();
    client.reserve("stack1", Protocol::Tcp, HOST6.parse().unwrap(), 8080..=8080).unwrap();
    let mut connections = Vec::new();
    let mut servers = Vec::new();
    for (netns, port, name) in [(&rig.stack, 8080, b"stack"), (&rig.host, 8081, b"host!")] {
        for address in [HOST, HOST6] {
            servers.push(serve(netns.enter(|| TcpListener::bind((address, port)).unwrap()).unwrap(), name));
            let mut stream = rig.outside.enter(|| TcpStream::connect((address, port)).unwrap()).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let mut told = [0; 5];
            stream.read_exact(&mut told).unwrap();
            assert_eq!(&told, name, "{address}");
            exchange(&mut stream);
            connections.push(stream);
        }
    }

    // With other parameters of the logic, reservations, their sockets and connections stay.
    let param = |name: &str, value: &str| ["--param".to_owned(), format!("{name}={value}")];
    let socket = rig.daemon.path("reserve");
    let params = [("host", "host"), ("uplink", "uplink"), ("netns", rig.host.name()), ("socket", &socket)];
    let words: Vec<_> = params.iter().flat_map(|(name, value)| param(name, value)).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    rig.daemon.run(&[&["logic", "set", "br0", "three-tuple"], &words[..]].concat()).unwrap();
    connections.iter_mut().for_each(exchange);
    assert!(in_use(rig.host.enter(|| TcpListener::bind((HOST, 8080))).unwrap()));
    let mac = rig.daemon.run(&["logic", "call", "br0", "mac"]).unwrap();
    let bytes = client.mac().unwrap().map(|byte| format!("{byte:02x}"));
    assert_eq!(mac.trim(), bytes.join(":"));
    drop(connections);
    servers.into_iter().for_each(|server| server.join().unwrap());

    // The host gets the port back with the end of the connection.
    drop(client);
    until("the reservation to end", LIMIT, || Ok(rig.table("reservations").is_empty().then_some(())))
        .unwrap();
    rig.host.enter(|| TcpListener::bind((HOST, 8080)).unwrap()).unwrap();
}

#[test]
fn neither_the_host_nor_other_clients_get_what_is_reserved() {
    let rig = Rig::start();
    let mut client = rig.connect();
    let taken = rig.host.enter(|| TcpListener::bind("0.0.0.0:9000").unwrap()).unwrap();
    let error = client.reserve("stack1", Protocol::Tcp, address(), 8999..=9000).unwrap_err().to_string();
    let expected = format!("the host uses tcp {HOST} port 9000 already: ");
    let this = format!("(pid {})", std::process::id());
    assert!(error.starts_with(&expected) && error.contains(&this), "{error}");
    drop(taken);
    // A process that another test is starting may have the socket open for a moment.
    until("the port to be free", LIMIT, || {
        Ok(client.reserve("stack1", Protocol::Tcp, address(), 8999..=9000).ok())
    })
    .unwrap();
    client.reserve("stack1", Protocol::Udp, address(), 9000..=9000).unwrap();
    for local in [HOST, "0.0.0.0"] {
        assert!(in_use(rig.host.enter(|| TcpListener::bind((local, 9000))).unwrap()), "{local}");
        assert!(in_use(rig.host.enter(|| UdpSocket::bind((local, 9000))).unwrap()), "{local}");
    }
    // Another client, the command line.
    let error = rig.client(0, &["stack1", "tcp", HOST, "9000"]).error();
    let holder = format!("tcp {HOST} 8999-9000 is reserved for port `stack1` by ");
    assert!(error.starts_with(&holder) && error.contains(&this), "{error}");
    let words = ["logic", "call", "br0", "reserve", "stack1", "tcp", HOST, "9000"];
    let refused = String::from_utf8(rig.daemon.cli(&words).unwrap().stderr).unwrap();
    assert!(refused.contains(&holder) && refused.contains(&this), "{refused}");
    let rows = rig.table("reservations");
    assert_eq!(rows[0][..4], ["stack1", "tcp", HOST, "8999-9000"]);
    assert!(rows[0][4].contains(&this), "{rows:?}");

    // The command line's own reservations are released by it or with the port.
    let call =
        |verb: &str, port: &str| rig.daemon.run(&["logic", "call", "br0", verb, "stack1", "udp", HOST, port]);
    call("reserve", "53").unwrap();
    call("release", "53").unwrap();
    call("reserve", "54").unwrap();
    rig.daemon.run(&["port", "del", "br0", "stack1"]).unwrap();
    assert!(rig.table("reservations").is_empty());
    rig.host.enter(|| UdpSocket::bind((HOST, 54)).unwrap()).unwrap();
}

#[test]
fn a_stack_sends_from_its_reservations_only() {
    let rig = Rig::start();
    let mut client = rig.connect();
    client.reserve("stack1", Protocol::Udp, address(), 7000..=7000).unwrap();
    let sink = rig.outside.enter(|| UdpSocket::bind((OUTSIDE, 9)).unwrap()).unwrap();
    sink.set_read_timeout(Some(LIMIT)).unwrap();
    let [own, foreign] =
        [7000u16, 7001].map(|port| rig.stack.enter(|| UdpSocket::bind((HOST, port)).unwrap()).unwrap());
    let mut buffer = [0; 4000];
    own.send_to(b"mine", (OUTSIDE, 9)).unwrap();
    assert_eq!(sink.recv_from(&mut buffer).unwrap().1.port(), 7000);
    let before = rig.refused();
    for _ in 0..100 {
        foreign.send_to(b"spoofed", (OUTSIDE, 9)).unwrap();
    }
    until("spoofed packets to be counted", LIMIT, || Ok((rig.refused() >= before + 100).then_some(())))
        .unwrap();
    assert!(rig.table("stacks")[0][2].parse::<u64>().unwrap() >= 100);
    // Fragments go with the first one, in both directions.
    let whole: Vec<u8> = (0..4000u32).map(|n| n as u8).collect();
    own.send_to(&whole, (OUTSIDE, 9)).unwrap();
    assert_eq!(sink.recv_from(&mut buffer).unwrap().1.port(), 7000);
    assert!(buffer[..] == whole[..]);
    own.set_read_timeout(Some(LIMIT)).unwrap();
    sink.send_to(&whole, (HOST, 7000)).unwrap();
    assert_eq!(own.recv_from(&mut buffer).unwrap().0, whole.len());
    assert!(buffer[..] == whole[..]);
    // Nothing of the spoofed packets has arrived before or since.
    sink.set_nonblocking(true).unwrap();
    assert_eq!(sink.recv_from(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn rules_decide_about_clients_and_death_releases() {
    let rig = Rig::start();
    let error = rig.client(NOBODY, &["stack1", "udp", HOST, "7000"]).error();
    assert!(error.contains("user 65534 with group 65534 may reserve nothing"), "{error}");
    for words in
        [["stack1", "udp", HOST, "8000"], ["stack1", "tcp", HOST, "7000"], ["host", "udp", HOST, "7000"]]
    {
        let error = rig.client(CLIENT, &words).error();
        let expected = format!("may not reserve {} {HOST} {} for port `{}`", words[1], words[3], words[0]);
        assert!(error.contains(&expected), "{error}");
    }
    let mut client = rig.client(CLIENT, &["stack1", "udp", HOST, "7000"]);
    let line = client.line();
    assert!(line.starts_with("reserved; the host is "), "{line}");
    assert!(in_use(rig.host.enter(|| UdpSocket::bind((HOST, 7000))).unwrap()));
    let rows = rig.table("reservations");
    let holder = format!("example (pid {}) of user {CLIENT}", client.0.id());
    assert_eq!(rows, [["stack1", "udp", HOST, "7000", &holder, "yes"].map(String::from)].map(Vec::from));
    client.0.kill().unwrap();
    until("the reservation to end", LIMIT, || Ok(rig.table("reservations").is_empty().then_some(())))
        .unwrap();
    rig.host.enter(|| UdpSocket::bind((HOST, 7000)).unwrap()).unwrap();
}

/// Starts the example in Rust at a port of the switch: `option` names the port's kind, `socket` its socket. It listens on
/// the TCP port `port`.
fn http_server(rig: &Rig, option: &str, socket: &str, port: &str) -> Running {
    let mut command = Command::new(binary("mswitch-http-server", "MSWITCH_HTTP_SERVER_BIN").unwrap());
    command.args([option, &rig.daemon.path(socket), "--reserve", &rig.daemon.path("reserve")]);
    command.args(["--port", "stack1", "--address", "192.0.2.1/24", "--listen", port, "--connections", "48"]);
    let server = Running::start(command.stdin(Stdio::null()).stdout(Stdio::null())).unwrap();
    until("the reservation", LIMIT, || Ok((!rig.table("reservations").is_empty()).then_some(()))).unwrap();
    server
}

/// Asks for `length` bytes; returns the number that came.
fn fetch(stream: &mut TcpStream, length: usize) -> usize {
    stream.write_all(format!("GET /{length} HTTP/1.1\r\nHost: {HOST}\r\n\r\n").as_bytes()).unwrap();
    let mut stream = BufReader::new(stream);
    let mut announced = None;
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0);
        match line.trim_end() {
            "" => break,
            line => announced = line.strip_prefix("Content-Length: ").map(str::to_owned).or(announced),
        }
    }
    let mut body = vec![0; announced.unwrap().parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    body.len()
}

#[test]
fn a_user_level_http_server_serves_beside_the_hosts() {
    let rig = Rig::with_stack(|_| config::memif("stack1", 0, ""));
    serves_beside_the_hosts(&rig, "--memif", "memif");
}

#[test]
fn a_user_level_http_server_serves_at_a_vhost_user_port() {
    let rig = Rig::with_stack(|_| config::vhost_user("stack1", ""));
    serves_beside_the_hosts(&rig, "--vhost-user", "stack1.sock");
}

#[test]
fn ten_thousand_connections_cost_others_nothing() {
    let rig = Rig::with_stack(|_| config::memif("stack1", 0, ""));
    let server = http_server(&rig, "--memif", "memif", "8080");
    let of_host = serve(rig.host.enter(|| TcpListener::bind((HOST, 8081)).unwrap()).unwrap(), b"host!");
    let connect = |port: u16| {
        let stream = TcpStream::connect((HOST, port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok::<_, std::io::Error>(stream)
    };
    // Memory that has been used, and memory that could be.
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        ["VmHWM:", "VmData:"].map(|name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_end_matches(" kB").trim().parse::<u64>().unwrap()
        })
    };
    let before = memory();
    rig.outside
        .enter(|| {
            let (mut first, mut host) = (connect(8080).unwrap(), connect(8081).unwrap());
            host.read_exact(&mut [0; 5]).unwrap();
            let (mut open, mut refused) = (Vec::new(), 0);
            for number in 0..10_000 {
                match connect(8080) {
                    Ok(stream) => open.push(stream),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
                        refused += 1;
                    }
                }
                if number % 500 == 0 {
                    assert_eq!(fetch(&mut first, 65_536), 65_536);
                    exchange(&mut host);
                }
            }
            // The first is one of the 48 that the server takes.
            assert_eq!((open.len(), refused), (47, 9_953));
            // Those that go make room.
            drop(open);
            until("a new connection", LIMIT, || Ok(connect(8080).ok())).unwrap();
        })
        .unwrap();
    // 48 connections with 136 KiB of buffers each are 6.4 MiB.
    let grown: Vec<_> = memory().iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect();
    assert!(grown.iter().all(|kilobytes| *kilobytes < 16 << 10), "{grown:?} KiB more than {before:?}");
    of_host.join().unwrap();
}

fn serves_beside_the_hosts(rig: &Rig, option: &str, socket: &str) {
    let mut server = http_server(rig, option, socket, "8080");
    let of_host = serve(rig.host.enter(|| TcpListener::bind((HOST, 8081)).unwrap()).unwrap(), b"host!");
    let connect = |port: u16| {
        let stream = rig.outside.enter(|| TcpStream::connect((HOST, port)).unwrap()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    };
    let url = format!("http://{HOST}:8080/");
    assert_eq!(rig.outside.run(&["curl", "-sS", &url]).unwrap(), "served by a stack in user space\n");
    // Clients that say nothing, stop in the middle of a request, or read nothing.
    let silent = [(); 4].map(|()| connect(8080));
    let mut half = connect(8080);
    half.write_all(b"GET / HT").unwrap();
    let mut greedy = connect(8080);
    greedy.write_all(b"GET /60000000 HTTP/1.1\r\n\r\n").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            let mut stream = connect(8080);
            scope.spawn(move || {
                for length in [1, 65_536, 20, 1460, 0, 100_000] {
                    assert_eq!(fetch(&mut stream, length), length);
                }
            });
        }
    });
    let mut host = connect(8081);
    host.read_exact(&mut [0; 5]).unwrap();
    exchange(&mut host);
    drop((silent, half, greedy, host));
    of_host.join().unwrap();
    let error = rig.client(0, &["stack1", "tcp", HOST, "8080"]).error();
    assert!(error.contains("is reserved for port `stack1` by mswitch-http-se (pid "), "{error}");
    server.kill().unwrap();
    until("the reservation to end", LIMIT, || Ok(rig.table("reservations").is_empty().then_some(())))
        .unwrap();
    rig.host.enter(|| TcpListener::bind((HOST, 8080)).unwrap()).unwrap();
}
