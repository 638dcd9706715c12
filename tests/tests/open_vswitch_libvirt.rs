//! A guest of libvirt on a bridge of Open vSwitch's database: one interface of `<virtualport type='openvswitch'/>`, one of
//! vhost-user, and the counters that `virsh domifstat` reads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File};
use std::time::Duration;

use e2e::open_vswitch::{Host, LIMIT};
use e2e::{Netns, Running, boot_files, ping_all, until};

/// Time allowed for a guest; QEMU translates its instructions, which is slow on a busy machine.
const BOOT: Duration = Duration::from_secs(150);

/// libvirt's daemon in a host, with folders of its own.
struct Libvirt<'a> {
    host: &'a Host,
    daemon: Running,
}

impl<'a> Libvirt<'a> {
    fn start(host: &'a Host) -> Self {
        let settings = host.path("qemu.conf");
        fs::write(&settings, "stdio_handler = \"file\"\nuser = \"root\"\ngroup = \"root\"\n").unwrap();
        let line = format!(
            "for folder in /etc/libvirt /run/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt; do \
               mkdir -p $folder && mount -t tmpfs tmpfs $folder || exit 1; \
             done; cp {} /etc/libvirt/qemu.conf; exec libvirtd",
            settings.display()
        );
        let log = File::create(host.path("libvirt.log")).unwrap();
        let mut command = host.command("unshare");
        command.args(["--mount", "sh", "-c", &line]).stdout(log.try_clone().unwrap()).stderr(log);
        let libvirt = Libvirt { host, daemon: Running::start(&mut command).unwrap() };
        until("libvirt", LIMIT, || Ok((libvirt.virsh(&["version"]).0 == Some(0)).then_some(())))
            .unwrap_or_else(|error| panic!("{error}: {}", libvirt.log()));
        libvirt
    }

    fn virsh(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let pid = self.daemon.pid().to_string();
        let virsh = ["--target", &pid, "--mount", "virsh", "-c", "qemu:///system"];
        self.host.tool("nsenter", &[&virsh, arguments].concat())
    }

    /// Waits until a counter of an interface is at least this.
    fn until_counted(&self, interface: &str, counter: &str, least: u64) {
        let mut last = String::new();
        until(&format!("{counter} of {interface}"), LIMIT, || {
            last = self.virsh(&["domifstat", "guest", interface]).1;
            let line = last.lines().find_map(|line| line.strip_prefix(&format!("{interface} {counter} ")));
            Ok(line.and_then(|count| count.trim().parse::<u64>().ok()).filter(|count| *count >= least))
        })
        .unwrap_or_else(|error| panic!("{error}: {last}"));
    }

    fn log(&self) -> String {
        fs::read_to_string(self.host.path("libvirt.log")).unwrap_or_default()
    }
}

impl Drop for Libvirt<'_> {
    fn drop(&mut self) {
        // Guests outlive the daemon. Best effort: a guest that has ended is no failure.
        let _ = self.virsh(&["destroy", "guest"]);
    }
}

/// Writes the domain's description: `eth0` is an interface of the bridge in VLAN 5, `eth1` a vhost-user one.
fn describe(host: &Host) -> String {
    let script = "ip addr add 10.92.0.1/24 dev eth0; ip link set eth0 up
while [ ! -e /sys/class/net/eth1 ]; do sleep 0.1; done
ip addr add 10.93.0.1/24 dev eth1; ip link set eth1 up; sleep 1000";
    let folder = host.path("");
    let (kernel, disk) = boot_files(&folder, script).unwrap();
    // Without KVM, QEMU 7.2 crashes on the devices' MSI-X.
    let without_vectors = |alias: &str| {
        format!(
            "<qemu:device alias='{alias}'><qemu:frontend>
               <qemu:property name='vectors' type='unsigned' value='0'/>
             </qemu:frontend></qemu:device>"
        )
    };
    let domain = format!(
        "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
           <name>guest</name><memory unit='MiB'>128</memory>
           <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>
           <os><type arch='x86_64'>hvm</type><kernel>{kernel}</kernel><initrd>{disk}</initrd>
             <cmdline>panic=-1 quiet</cmdline></os>
           <cpu mode='maximum'/>
           <devices>
             <interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br0'/>
               <vlan><tag id='5'/></vlan><virtualport type='openvswitch'/><target dev='tap0'/>
               <model type='virtio'/></interface>
             <interface type='vhostuser'><mac address='52:54:00:00:00:02'/>
               <source type='unix' path='{socket}' mode='server'/><model type='virtio'/></interface>
             <memballoon model='none'/>
           </devices>
           <qemu:override>{net0}{net1}</qemu:override>
         </domain>",
        kernel = kernel.display(),
        disk = disk.display(),
        socket = host.path("vm1.sock").display(),
        net0 = without_vectors("net0"),
        net1 = without_vectors("net1"),
    );
    let file = host.path("guest.xml");
    fs::write(&file, domain).unwrap();
    file.display().to_string()
}

fn until_answered(from: &Netns, address: &str, libvirt: &Libvirt<'_>) {
    until(&format!("an answer of {address}"), BOOT, || {
        Ok(from.run(&["ping", "-q", "-c", "1", "-W", "0.2", address]).ok())
    })
    .unwrap_or_else(|error| panic!("{error}: {}\n{}", libvirt.log(), libvirt.host.log()));
}

#[test]
fn a_guest_has_an_interface_of_the_bridge_and_a_vhost_user_one() {
    let host = Host::new();
    let blue = host.guest("va", "10.92.0.9/24");
    let _daemon = host.start();
    host.vsctl(&["add-br", "br0", "--", "set", "open_vswitch", ".", "other_config:dpdk-init=true"]);
    host.vsctl(&["add-port", "br0", "va", "tag=5"]);
    let path = format!("options:vhost-server-path={}", host.path("vm1.sock").display());
    let kind = ["type=dpdkvhostuserclient", &path];
    host.vsctl(&[&["add-port", "br0", "vm1", "--", "set", "interface", "vm1"], &kind[..]].concat());
    host.netns.run(&["ip", "address", "add", "10.93.0.9/24", "dev", "br0"]).unwrap();

    let libvirt = Libvirt::start(&host);
    let (code, _, error) = libvirt.virsh(&["create", &describe(&host)]);
    assert_eq!(code, Some(0), "{error}: {}", libvirt.log());
    host.until_is("tap0", "link_state", "up");
    assert_eq!(host.get("Port", "tap0", "tag"), "5");
    assert!(host.get("Interface", "tap0", "external_ids").contains("attached-mac=\"52:54:00:00:00:01\""));
    until_answered(&blue, "10.92.0.1", &libvirt);
    ping_all(&blue, "10.92.0.1", 20, "0.05").unwrap();
    host.until_is("vm1", "status:status", "connected");
    until("an answer through vhost-user", BOOT, || {
        Ok(host.netns.run(&["ping", "-q", "-c", "1", "-W", "0.2", "10.93.0.1"]).ok())
    })
    .unwrap();
    ping_all(&host.netns, "10.93.0.1", 20, "0.05").unwrap();
    for interface in ["tap0", "vm1"] {
        libvirt.until_counted(interface, "rx_packets", 20);
        libvirt.until_counted(interface, "tx_packets", 20);
    }

    let (code, _, error) = libvirt.virsh(&["destroy", "guest"]);
    assert_eq!(code, Some(0), "{error}");
    host.until_is("vm1", "status:status", "disconnected");
    assert!(!host.vsctl(&["list-ports", "br0"]).contains("tap0"), "libvirt removes its port");
}
