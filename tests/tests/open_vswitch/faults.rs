//! Faults of the database, and rows that contradict each other: the error is where users look for it, and traffic goes
//! on.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use e2e::open_vswitch::{Host, LIMIT};
use e2e::{Netns, ping_all, until};
use serde_json::{Value, json};

/// A host with two guests on br0, and an empty bridge br1.
fn pinging(host: &Host) -> (Netns, Netns) {
    let guests = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    host.vsctl(&["add-br", "br0", "--", "add-port", "br0", "va", "--", "add-port", "br0", "vb"]);
    host.vsctl(&["add-br", "br1"]);
    ping_all(&guests.0, "10.80.0.2", 1, "0.1").unwrap();
    guests
}

/// The control socket of the database server, whose name has its pid.
fn control_of_server(host: &Host) -> PathBuf {
    let names = std::fs::read_dir(host.path("")).unwrap().map(|entry| entry.unwrap().path());
    let is_control = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("ovsdb-server.") && name.ends_with(".ctl")
    };
    names.filter(is_control).max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap()
}

#[test]
fn what_is_in_the_database_twice_has_an_error_and_the_rest_works() {
    let host = Host::new();
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0", "--", "add-port", "br0", "va", "--", "add-port", "br0", "vb"]);
    let internal = ["--", "set", "interface", "other", "type=internal"];
    host.vsctl(&[&["add-br", "br1", "--", "add-port", "br1", "other"], &internal[..]].concat());
    let error = "interface other is in the database more than once";

    let port = host.get("Port", "other", "_uuid");
    host.vsctl(&["add", "bridge", "br0", "ports", &port]);
    host.until_is("other", "error", error);
    ping_all(&a, "10.80.0.2", 3, "0.02").unwrap();
    host.vsctl(&["remove", "bridge", "br0", "ports", &port]);
    host.until_is("other", "error", "[]");

    let interface = format!("interfaces={}", host.get("Interface", "other", "_uuid"));
    let (code, ..) = host.tool(
        "ovs-vsctl",
        &[
            "-t", "20", "--id=@p", "create", "port", "name=p", &interface, "--", "add", "bridge", "br1",
            "ports", "@p",
        ],
    );
    assert_eq!(code, Some(0));
    host.until_is("other", "error", error);
    ping_all(&a, "10.80.0.2", 3, "0.02").unwrap();
    assert_eq!(host.get("Interface", "va", "error"), "[]");
}

/// Open vSwitch's schema as a later version: some columns have gone, one has come.
fn later_schema(from: &Path, to: &Path) {
    let mut schema: Value = serde_json::from_slice(&std::fs::read(from).unwrap()).unwrap();
    let gone =
        [("Interface", "cfm_fault_status"), ("Port", "rstp_statistics"), ("Bridge", "datapath_version")];
    for (table, column) in gone {
        let columns = schema["tables"][table]["columns"].as_object_mut().unwrap();
        assert!(columns.remove(column).is_some(), "{table}.{column}");
    }
    schema["tables"]["Bridge"]["columns"]["novelty"] = json!({ "type": "string" });
    schema["version"] = "8.99.0".into();
    schema.as_object_mut().unwrap().remove("cksum");
    std::fs::write(to, schema.to_string()).unwrap();
}

#[test]
fn a_database_is_compacted_and_gets_another_schema_while_packets_flow() {
    let host = Host::new();
    let _daemon = host.start();
    let (a, _b) = pinging(&host);
    let server = control_of_server(&host);
    let compacted = host.tool("ovs-appctl", &["-t", server.to_str().unwrap(), "ovsdb-server/compact"]);
    assert_eq!(compacted.0, Some(0), "{compacted:?}");
    ping_all(&a, "10.80.0.2", 3, "0.02").unwrap();
    host.vsctl(&["add-br", "br2"]);

    let schema = host.path("later.ovsschema");
    later_schema(Path::new("/usr/share/openvswitch/vswitch.ovsschema"), &schema);
    let remote = format!("unix:{}", host.path("db.sock").display());
    let converted = host.tool("ovsdb-client", &["convert", &remote, schema.to_str().unwrap()]);
    assert_eq!(converted.0, Some(0), "{converted:?}");
    ping_all(&a, "10.80.0.2", 3, "0.02").unwrap();
    // The tool says that it misses the columns.
    let (code, _, error) = host.tool("ovs-vsctl", &["-t", "20", "add-br", "br3"]);
    assert_eq!(code, Some(0), "{error}");
    let number = host.tool("ovs-vsctl", &["--no-wait", "get", "interface", "br3", "ofport"]).1;
    assert_eq!(number, "65534\n");
    ping_all(&a, "10.80.0.2", 3, "0.02").unwrap();
}

/// A small file system, mounted at a folder.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn at(folder: PathBuf) -> Self {
        std::fs::create_dir(&folder).unwrap();
        let path = folder.to_str().unwrap();
        e2e::output("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", path]).unwrap();
        Self(folder)
    }

    /// Fills it with a file.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("fill")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The database server may still have the file.
        let _ = e2e::output("umount", &["-l", self.0.to_str().unwrap_or_default()]);
    }
}

#[test]
fn traffic_goes_on_while_the_disk_of_the_database_is_full() {
    let mut host = Host::new();
    host.stop_server();
    let disk = SmallDisk::at(host.path("disk"));
    std::fs::copy(host.path("conf.db"), disk.0.join("conf.db")).unwrap();
    std::fs::remove_file(host.path("conf.db")).unwrap();
    std::os::unix::fs::symlink(disk.0.join("conf.db"), host.path("conf.db")).unwrap();
    host.start_server();
    let _daemon = host.start();
    let (a, _b) = pinging(&host);
    disk.fill();
    let long = format!("external_ids:x={}", "y".repeat(8192));
    let (code, _, error) = host.tool("ovs-vsctl", &["-t", "20", "set", "bridge", "br0", &long]);
    assert!(code == Some(1) && error.contains("No space left on device"), "{error}");
    ping_all(&a, "10.80.0.2", 3, "0.02").unwrap();
    // An address is kept on disk.
    host.netns.run(&["ip", "link", "set", "vb", "address", "02:00:00:00:00:99"]).unwrap();
    ping_all(&a, "10.80.0.2", 3, "0.02").unwrap();

    std::fs::remove_file(disk.0.join("fill")).unwrap();
    host.until_is("vb", "mac_in_use", "02:00:00:00:00:99");
    host.vsctl(&["add-br", "br2"]);
    ping_all(&a, "10.80.0.2", 3, "0.02").unwrap();
    drop(disk);
}

/// Passes connections on to a server, and cuts some within a request to change the database: half of them before the
/// server has the request, half before its answer is back.
struct Cutter {
    cuts: Arc<AtomicUsize>,
}

impl Cutter {
    fn start(at: &Path, server: PathBuf, most: usize) -> Self {
        let (listener, cuts) = (UnixListener::bind(at).unwrap(), Arc::<AtomicUsize>::default());
        let count = cuts.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, UnixStream::connect(&server)) else { continue };
                let count = count.clone();
                std::thread::spawn(move || pass(client, server, &count, most));
            }
        });
        Self { cuts }
    }
}

/// Passes bytes on until either end closes, or the connection is cut.
fn pass(mut client: UnixStream, mut server: UnixStream, cuts: &AtomicUsize, most: usize) -> Option<()> {
    let (mut back, mut answers) = (client.try_clone().ok()?, server.try_clone().ok()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Both);
    });
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = client.read(&mut buffer).ok().filter(|length| *length > 0);
        let request = length.and_then(|length| buffer.get(..length)).unwrap_or_default();
        let is_change = request.windows(10).any(|word| word == b"\"transact\"");
        let cut = is_change.then(|| cuts.fetch_add(1, SeqCst)).filter(|cut| *cut < most);
        let passed = match cut {
            Some(cut) if cut % 2 == 0 => request.get(..request.len() / 2).unwrap_or_default(),
            _ => request,
        };
        let written = server.write_all(passed);
        if cut.is_some() || length.is_none() || written.is_err() {
            let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Write));
            return None;
        }
    }
}

#[test]
fn a_connection_that_is_cut_within_a_change_costs_nothing_but_time() {
    /// One of each kind; the daemon waits longer from one to the next.
    const CUTS: usize = 2;
    let host = Host::new();
    let (a, _b) = (host.guest("va", "10.80.0.1/24"), host.guest("vb", "10.80.0.2/24"));
    let cutter = Cutter::start(&host.path("cut.sock"), host.path("db.sock"), CUTS);
    let mut command = host.vswitchd();
    command.arg(format!("unix:{}", host.path("cut.sock").display()));
    let _daemon = e2e::Running::start(command.args(["--pidfile", "--log-file", "-vconsole:off"])).unwrap();
    let add = ["add-br", "br0", "--", "add-port", "br0", "va", "--", "add-port", "br0", "vb"];
    host.vsctl(&[&["--no-wait"], &add[..]].concat());
    until("the cuts", LIMIT, || Ok((cutter.cuts.load(SeqCst) > CUTS).then_some(()))).unwrap();
    host.until_is("va", "link_state", "up");
    host.vsctl(&["add-br", "br1"]);
    for (interface, number) in [("br0", "65534"), ("va", "1"), ("vb", "2"), ("br1", "65534")] {
        assert_eq!(host.get("Interface", interface, "ofport"), number, "{interface}");
    }
    assert_eq!(host.get("Open_vSwitch", ".", "cur_cfg"), host.get("Open_vSwitch", ".", "next_cfg"));
    ping_all(&a, "10.80.0.2", 3, "0.02").unwrap();
}
