//! The instructions for libvirt and Podman in docs/virtual-machines.md, run verbatim.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::pace::Rate;
use bench::session::{Options, Session, Traffic};
use e2e::{Daemon, Netns, Running, boot_files, config, exclusive, ping_all, seconds, until};
use tempfile::TempDir;

/// Time allowed for a guest; QEMU translates its instructions, which is slow on a busy machine.
const BOOT: Duration = Duration::from_secs(150);
/// QEMU reconnects once a second, later on a busy machine.
const RESUME: Duration = Duration::from_secs(30);
/// DPDK checks its link for some seconds first.
const FORWARDS: Duration = Duration::from_secs(30);

const DOCUMENTATION: &str = include_str!("../../docs/virtual-machines.md");
/// Folder of sockets in the documentation.
const SOCKETS: &str = "/run/mswitch";

/// Block of this language that contains `text`, in this section of the documentation, with another folder of sockets.
fn documented(section: &str, language: &str, text: &str, sockets: &Path) -> String {
    let section = DOCUMENTATION
        .split("\n### ")
        .find(|found| found.starts_with(section))
        .expect("a section of that name");
    let mut blocks = section.split("\n```").skip(1).step_by(2);
    let block = blocks.find(|block| block.starts_with(language) && block.contains(text));
    let block = block.expect("a block with this text").strip_prefix(language).unwrap();
    block.replace(&format!("{SOCKETS}/"), &format!("{}/", sockets.display()))
}

/// A world-readable folder.
fn open_folder() -> TempDir {
    let folder = tempfile::Builder::new().prefix("mswitch-open-").tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A daemon with the bridge br0 and the port of a documented `mswitch port add`.
fn daemon_with(port_add: &str, more: &str) -> Daemon {
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + more)).unwrap();
    let words: Vec<&str> = port_add.split_whitespace().collect();
    assert_eq!(words[0], "mswitch");
    daemon.run(&words[1..]).unwrap();
    daemon
}

/// A libvirt guest with the address 10.92.0.1; drop ends it. `lines` is the documented configuration of memory and
/// device.
fn libvirt_guest(folder: &Path, lines: &str) -> Running {
    let script = "ip addr add 10.92.0.1/24 dev eth0; ip link set eth0 up; sleep 1000";
    let (kernel, disk) = boot_files(folder, script).unwrap();
    // QEMU's user may not read the kernel's folder.
    fs::copy(kernel, folder.join("vmlinuz")).unwrap();
    let (memory, device) = lines.trim().split_once('\n').unwrap();
    // Without KVM, QEMU 7.2 crashes on the device's MSI-X.
    let domain = format!(
        "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
           <name>guest</name><memory unit='MiB'>128</memory>{memory}
           <os><type arch='x86_64'>hvm</type><kernel>{folder}/vmlinuz</kernel><initrd>{disk}</initrd>
             <cmdline>panic=-1 quiet</cmdline></os>
           <cpu mode='maximum'/>
           <devices>{device}<memballoon model='none'/></devices>
           <qemu:override><qemu:device alias='net0'><qemu:frontend>
             <qemu:property name='vectors' type='unsigned' value='0'/>
           </qemu:frontend></qemu:device></qemu:override>
         </domain>",
        folder = folder.display(),
        disk = disk.display(),
    );
    fs::write(folder.join("guest.xml"), domain).unwrap();
    // A private libvirt: no daemons, and no folders of the machine.
    fs::create_dir_all(folder.join("libvirt/etc")).unwrap();
    fs::write(folder.join("libvirt/etc/qemu.conf"), "stdio_handler = \"file\"\n").unwrap();
    let log = File::create(folder.join("libvirt.log")).unwrap();
    let mut run = Command::new("virt-qemu-run");
    run.arg("--root").arg(folder.join("libvirt")).arg(folder.join("guest.xml"));
    run.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Running::start(&mut run).unwrap()
}

/// Pings from a namespace until the guest answers.
fn wait_for_answer(from: &Netns, guest: &mut Running, folder: &Path, limit: Duration) {
    until("the guest to answer", limit, || match guest.ended()? {
        Some(status) => Err(e2e::Error(format!("the guest ended, {status}"))),
        None => Ok(from.run(&["ping", "-q", "-c", "1", "-W", "0.1", "10.92.0.1"]).ok().map(drop)),
    })
    .unwrap_or_else(|error| panic!("{error}: {}", fs::read_to_string(folder.join("libvirt.log")).unwrap()));
}

/// Asserts that a guest answers pings without loss, also after the switch was killed and restarted.
fn check_libvirt_guest(port: &str, lines: &str, folder: &Path) {
    let _machine = exclusive();
    let blue = Netns::new().unwrap();
    let tap = config::tap("blue", "eth0", blue.name(), &["10.92.0.9/24"], "");
    let mut daemon = daemon_with(port, &tap);
    let mut guest = libvirt_guest(folder, lines);
    wait_for_answer(&blue, &mut guest, folder, BOOT);
    ping_all(&blue, "10.92.0.1", 100, "0.01").unwrap();
    daemon.run(&["config", "save", &daemon.path("config.toml")]).unwrap();
    daemon.kill().unwrap();
    daemon.restart().unwrap();
    wait_for_answer(&blue, &mut guest, folder, RESUME);
    ping_all(&blue, "10.92.0.1", 100, "0.01").unwrap();
}

#[test]
fn libvirt_as_client_works_as_documented() {
    let folder = open_folder();
    let port = documented("libvirt", "sh", "--owner libvirt-qemu", folder.path());
    let lines = documented("libvirt", "xml", "mode='client'", folder.path());
    check_libvirt_guest(&port, &lines, folder.path());
}

#[test]
fn libvirt_as_server_works_as_documented() {
    let folder = open_folder();
    // QEMU creates the socket.
    std::os::unix::fs::chown(folder.path(), Some(user("libvirt-qemu")), None).unwrap();
    let port = documented("libvirt", "sh", "--owner libvirt-qemu", folder.path());
    let port = port.replace("--owner libvirt-qemu", "--role client");
    let lines = documented("libvirt", "xml", "mode='client'", folder.path());
    let reconnect = "mode='client'><reconnect enabled='yes' timeout='1'/></source>";
    assert!(lines.contains(reconnect));
    check_libvirt_guest(&port, &lines.replace(reconnect, "mode='server'/>"), folder.path());
}

/// Id of a user.
fn user(name: &str) -> u32 {
    let number = e2e::output("id", &["-u", name]).unwrap();
    number.trim().parse().unwrap()
}

/// Root folder of a container with the machine's programs.
fn container() -> TempDir {
    let root = open_folder();
    for folder in ["usr", "proc", "sys", "dev", "etc", "tmp", "run", "var"] {
        fs::create_dir(root.path().join(folder)).unwrap();
    }
    let links = [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("var/run", "/run")];
    for (link, to) in links {
        std::os::unix::fs::symlink(to, root.path().join(link)).unwrap();
    }
    root
}

#[test]
fn podman_with_dpdk_works_as_documented() {
    let _machine = exclusive();
    let (sockets, root, store) = (open_folder(), container(), open_folder());
    let port = format!(
        "mswitch port add br0 guest --type vhost-user --path {}/guest.sock",
        sockets.path().display()
    );
    let daemon = daemon_with(&port, &config::memif("check", 0, ""));
    // The folder of sockets has another path outside the container.
    let inside = documented("Podman", "sh", "podman run", Path::new(SOCKETS));
    let line = inside.replace("--volume /run/mswitch:", &format!("--volume {}:", sockets.path().display()));
    assert_ne!(line, inside);
    // For containers that may not raise limits or create cgroups.
    let options =
        "--volume /usr:/usr:ro --cgroups=disabled --ulimit nofile=1024:1024 --ulimit nproc=1024:1024";
    let line = line.replace("IMAGE", &format!("{options} --rootfs {}", root.path().display()));
    let line = line.replacen("podman", "podman --root \"$STORE/root\" --runroot \"$STORE/run\"", 1);
    // crun requires control groups of version 2 only.
    let line = format!("umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; exec {line}");
    let log = sockets.path().join("log");
    let output = File::create(&log).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &line]).env("STORE", store.path());
    command.stdin(Stdio::piped()).stdout(output.try_clone().unwrap()).stderr(output);
    let mut podman = Running::start(&mut command).unwrap();
    let podman_log = || fs::read_to_string(&log).unwrap();
    daemon.wait_up("br0", "guest").unwrap_or_else(|error| panic!("{error}: {}", podman_log()));

    let mut options = Options::new(vec![daemon.memif("memif", 0)]);
    options.traffic = Traffic::Reflected("52:54:00:00:00:01".parse().unwrap());
    options.sizes = "60-1514".parse().unwrap();
    options.rate = Rate::Pps(10_000.0);
    let run = |options| {
        let report = Session::connect(options).unwrap().run(&AtomicBool::new(false)).unwrap();
        daemon.wait_down("br0", "check", "").unwrap();
        report
    };
    // testpmd connects some seconds before it forwards.
    until("testpmd to forward", FORWARDS, || {
        let mut probe = options.clone();
        (probe.allow_loss, probe.duration) = (true, Duration::from_millis(100));
        Ok((run(probe).received() > 0).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error}: {}", podman_log()));
    options.duration = seconds(2, 10);
    let report = run(options);
    assert!(report.ok, "{report}\n{}", podman_log());
    // testpmd ends at the end of its standard input.
    drop(podman.stdin().map(|stdin| std::io::Write::write_all(stdin, b"\n")));
    let status = podman.wait(Duration::from_secs(30)).unwrap();
    assert!(status.success(), "{status}: {}", podman_log());
    daemon.wait_down("br0", "guest", "").unwrap();
}
