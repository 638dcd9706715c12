//! Established connections survive attaching, detaching and the death of the daemon.
//!
//! The kernel's bridge plays the switch: it takes all packets that `eth0` receives and passes them to the host port.
#![allow(clippy::unwrap_used, clippy::panic)]

mod lab;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::{Lab, PATIENCE, until};

/// Longest interruption of a connection when nothing crashes: one retransmission, on a machine under load.
const PLANNED: Duration = Duration::from_secs(1);
/// Longest interruption by a crash: the guardian's second, and a retransmission that was due to come later.
const CRASH: Duration = Duration::from_secs(3);

const BLOCK: usize = 4096;

/// A connection from the neighbour to the host over which blocks go back and forth, or only from the host.
struct Flow {
    name: &'static str,
    blocks: Arc<AtomicU64>,
    /// Longest time between two blocks since it was last asked for.
    gap: Arc<Mutex<Duration>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

fn block(number: u64) -> Vec<u8> {
    (0..BLOCK as u64 / 8)
        .flat_map(|at| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at).to_ne_bytes())
        .collect()
}

impl Flow {
    /// Starts a connection to `address` of the host.
    fn start(lab: &Lab, name: &'static str, address: &str, echo: bool) -> Self {
        let address: IpAddr = address.parse().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, at) = std::sync::mpsc::channel();
        let (host, peer) = (lab.host.0.clone(), lab.peer.0.clone());
        let ended = stop.clone();
        let server = std::thread::spawn(move || {
            enter(&host);
            let listener = TcpListener::bind(SocketAddr::new(address, 0)).unwrap();
            ready.send(listener.local_addr().unwrap()).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut number = 0;
            let mut buffer = vec![0; BLOCK];
            while !ended.load(Relaxed) {
                if echo {
                    if !read_block(&mut stream, &mut buffer) {
                        return;
                    }
                    assert!(buffer == block(number), "a block was damaged on its way to the host");
                }
                if stream.write_all(&block(number)).is_err() {
                    return;
                }
                number += 1;
            }
        });
        let to = at.recv().unwrap();
        let (blocks, gap) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Duration::ZERO)));
        let (counted, longest, ended) = (blocks.clone(), gap.clone(), stop.clone());
        let client = std::thread::spawn(move || {
            enter(&peer);
            let mut stream = TcpStream::connect(to).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut buffer = vec![0; BLOCK];
            let mut last = Instant::now();
            let mut number = 0;
            while !ended.load(Relaxed) {
                if echo {
                    assert!(
                        stream.write_all(&block(number)).is_ok() || ended.load(Relaxed),
                        "the connection ended"
                    );
                }
                if !read_block(&mut stream, &mut buffer) {
                    assert!(ended.load(Relaxed), "the connection ended");
                    return;
                }
                assert!(buffer == block(number), "a block was damaged on its way from the host");
                number += 1;
                counted.store(number, Relaxed);
                let now = Instant::now();
                let mut longest = longest.lock().unwrap();
                *longest = (*longest).max(now - last);
                last = now;
            }
        });
        let flow = Self { name, blocks, gap, stop, threads: vec![server, client] };
        flow.progress();
        flow
    }

    /// Waits until blocks have passed that were not on their way before.
    fn progress(&self) {
        let before = self.blocks.load(Relaxed);
        until(&format!("{} goes on", self.name), || {
            assert!(self.threads.iter().all(|thread| !thread.is_finished()), "{} has failed", self.name);
            self.blocks.load(Relaxed) > before + 100
        });
    }

    /// Returns the longest gap since the last call.
    fn gap(&self) -> Duration {
        std::mem::take(&mut self.gap.lock().unwrap())
    }

    fn end(self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

fn enter(netns: &str) {
    use std::os::fd::AsFd;
    let file = std::fs::File::open(format!("/run/netns/{netns}")).unwrap();
    let kind = Some(rustix::thread::LinkNameSpaceType::Network);
    rustix::thread::move_into_link_name_space(file.as_fd(), kind).unwrap();
}

fn read_block(stream: &mut TcpStream, buffer: &mut [u8]) -> bool {
    match stream.read_exact(buffer) {
        Ok(()) => true,
        Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => false,
        Err(error) => panic!("{error}"),
    }
}

fn flows(lab: &Lab) -> Vec<Flow> {
    vec![
        Flow::start(lab, "IPv4, back and forth", "10.0.0.1", true),
        Flow::start(lab, "IPv6, back and forth", "2001:db8::1", true),
        Flow::start(lab, "IPv4, from the host", "10.0.0.1", false),
        Flow::start(lab, "IPv6, from the host", "2001:db8::1", false),
    ]
}

/// Prints and checks how long the connections were interrupted.
fn check(flows: &[Flow], what: &str, limit: Duration) {
    for flow in flows {
        flow.progress();
    }
    for flow in flows {
        let gap = flow.gap();
        println!("{what}: {}: longest gap {gap:?}", flow.name);
        assert!(gap < limit, "{what}: {}: {gap:?}", flow.name);
    }
}

/// Makes the switch, with the host port attached.
fn switch(lab: &Lab) {
    lab.host.sh("ip link add name switch address 02:00:00:00:00:50 type bridge mcast_snooping 0
         ip link set switch addrgenmode none
         ip link set hostp master switch
         ip link set switch up");
}

/// Attaches `eth0` to the switch. The kernel's bridge would keep packets for the interface's MAC address for itself.
fn attach(lab: &Lab) {
    lab.host.sh("ip link set eth0 master switch; bridge fdb del 02:00:00:00:00:01 dev eth0 master");
}

fn detach(lab: &Lab) {
    lab.host.sh("ip link set eth0 nomaster");
}

/// Attaches and detaches `eth0` a few times while connections are in use.
fn attach_and_detach(lab: &Lab) {
    switch(lab);
    let flows = flows(lab);
    check(&flows, "quiet", PLANNED);
    for _ in 0..3 {
        let mut daemon = lab.daemon();
        attach(lab);
        assert_eq!(daemon.say("commit"), ["done commit"]);
        check(&flows, "attach", PLANNED);
        let new = Flow::start(lab, "new", "10.0.0.1", true);
        new.end();
        assert_eq!(daemon.say("release"), ["done release"]);
        detach(lab);
        daemon.say("finish");
        assert_eq!(daemon.errors(), "");
        check(&flows, "detach", PLANNED);
    }
    flows.into_iter().for_each(Flow::end);
}

#[test]
fn connections_survive_attaching_and_detaching() {
    attach_and_detach(&Lab::plain());
}

#[test]
fn connections_survive_a_strict_reverse_path_filter() {
    let lab = Lab::plain();
    lab.host.sh("echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter");
    attach_and_detach(&lab);
}

#[test]
fn connections_survive_the_death_of_the_daemon() {
    let lab = Lab::plain();
    switch(&lab);
    let flows = flows(&lab);
    let mut daemon = lab.daemon();
    attach(&lab);
    assert_eq!(daemon.say("commit"), ["done commit"]);
    check(&flows, "attach", PLANNED);
    // With the daemon, its TAP interface vanishes, and the interface leaves the switch.
    lab.host.sh(&format!("ip link del host0; ip link set eth0 nomaster; kill -9 {}", daemon.inner()));
    check(&flows, "crash", CRASH);
    until("the journal is removed", || !lab.has_files());
    daemon.child.wait().unwrap();
    flows.into_iter().for_each(Flow::end);
}
