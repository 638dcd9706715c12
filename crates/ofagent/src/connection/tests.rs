//! Connections over pipes in memory, with the clock of the tests: it jumps to the next deadline when all tasks wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ofswitch::{ConnectionKind, PortInfo, Settings, Switch};
use openflow::message::{Header, Hello, Versions};
use openflow::{PortNo, Version};
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;

use super::*;
use crate::shared::SharedSwitch;

const VERSION: Version = Version::V1_3;
const SECOND: Duration = Duration::from_secs(1);
const BACKLOG: usize = 64 << 10;

fn policy() -> Policy {
    let probe = Some(SECOND * 5);
    Policy { kind: ConnectionKind::Controller, probe, handshake: SECOND * 10, stall: SECOND * 15 }
}

fn shared() -> Arc<SharedSwitch> {
    let mut settings = Settings::default();
    settings.limits.backlog = BACKLOG;
    SharedSwitch::new(Switch::new(settings), |_| ())
}

/// The other end of a connection.
struct Peer {
    stream: DuplexStream,
    served: JoinHandle<(End, Duration)>,
    stop: watch::Sender<()>,
}

impl Peer {
    fn new(shared: &Arc<SharedSwitch>, policy: Policy, pipe: usize) -> Self {
        let (stream, ours) = duplex(pipe);
        let (stop, receiver) = watch::channel(());
        let connected = shared.connect(policy.kind, "unix#0").unwrap();
        let served = tokio::spawn(async move {
            let start = Instant::now();
            let end = serve(&connected, ours, &policy, receiver).await;
            (end, start.elapsed())
        });
        Peer { stream, served, stop }
    }

    async fn greeted(shared: &Arc<SharedSwitch>, policy: Policy, pipe: usize) -> Self {
        let mut peer = Peer::new(shared, policy, pipe);
        assert!(matches!(peer.read().await.unwrap().body, Body::Hello(_)));
        peer.send(1, Body::Hello(Hello::new(Versions::from_iter([VERSION])))).await;
        peer
    }

    async fn send(&mut self, xid: u32, body: Body) {
        let bytes = Message::new(VERSION, xid, body).encode().unwrap();
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// The next message; `None` at the end.
    async fn read(&mut self) -> Option<Message> {
        let mut bytes = vec![0; 8];
        self.stream.read_exact(&mut bytes).await.ok()?;
        bytes.resize(usize::from(Header::peek(&bytes).unwrap().length), 0);
        self.stream.read_exact(&mut bytes[8..]).await.unwrap();
        // The first hello is in the switch's newest version.
        Some(Message::decode(&bytes).unwrap())
    }
}

/// Port-status messages, enough to fill a connection's queue several times.
fn change_ports(shared: &SharedSwitch) {
    for number in 1..=4000 {
        let name = format!("p{number}");
        let info = PortInfo::new(PortNo(number), name, [2; 6]);
        shared.with(|switch, now| switch.set_port(info, now)).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_asked_for_an_echo_and_disconnected() {
    let shared = shared();
    let mut peer = Peer::greeted(&shared, policy(), 1024).await;
    let start = Instant::now();
    assert_eq!(peer.read().await.unwrap().body, Body::EchoRequest(vec![]));
    assert_eq!(start.elapsed().as_secs(), 5);
    let (end, lasted) = peer.served.await.unwrap();
    assert!(matches!(end, End::Inactive(_)), "{end}");
    assert_eq!(lasted.as_secs(), 10);
    assert!(shared.without_controller().is_some_and(|without| without < SECOND));
}

#[tokio::test(start_paused = true)]
async fn echo_replies_keep_a_peer() {
    let shared = shared();
    let mut peer = Peer::greeted(&shared, policy(), 1024).await;
    let start = Instant::now();
    for _ in 0..10 {
        let request = peer.read().await.unwrap();
        assert_eq!(request.body, Body::EchoRequest(vec![]));
        peer.send(request.xid, Body::EchoReply(vec![])).await;
    }
    assert_eq!(start.elapsed().as_secs(), 50);
    assert!(!peer.served.is_finished() && shared.without_controller().is_none());
}

#[tokio::test(start_paused = true)]
async fn echo_requests_after_long_silence_have_time_to_leave() {
    let shared = shared();
    let policy = Policy { probe: Some(SECOND * 30), ..policy() };
    let mut peer = Peer::greeted(&shared, policy, 1024).await;
    for _ in 0..50 {
        let request = peer.read().await.unwrap();
        assert_eq!(request.body, Body::EchoRequest(vec![]));
        peer.send(request.xid, Body::EchoReply(vec![])).await;
    }
    assert!(!peer.served.is_finished());
}

#[tokio::test(start_paused = true)]
async fn half_a_message_is_not_activity() {
    let shared = shared();
    let mut peer = Peer::greeted(&shared, policy(), 1024).await;
    let mut writes = 0;
    while !peer.served.is_finished() {
        // The header promises far more than ever comes.
        let bytes: &[u8] = if writes == 0 { &[4, 2, 0xff, 0xff, 0, 0, 0, 1] } else { &[0] };
        if peer.stream.write_all(bytes).await.is_err() {
            break;
        }
        writes += 1;
        tokio::time::sleep(SECOND).await;
    }
    let (end, lasted) = peer.served.await.unwrap();
    assert!(matches!(end, End::Inactive(_)), "{end}");
    assert_eq!(lasted.as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_peer_says_hello_in_time() {
    let peer = Peer::new(&shared(), policy(), 1024);
    let (end, lasted) = peer.served.await.unwrap();
    assert!(matches!(end, End::NoHello(_)), "{end}");
    assert_eq!(lasted.as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn without_a_common_version_an_error_is_the_last_message() {
    let mut peer = Peer::new(&shared(), policy(), 1024);
    peer.read().await.unwrap();
    peer.stream.write_all(&[0x99, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 0]).await.unwrap();
    let Some(Message { body: Body::Error(error), version, .. }) = peer.read().await else { panic!() };
    assert_eq!(error.code(version), Some(ErrorCode::HfcIncompatible));
    assert_eq!(peer.read().await, None);
    drop(peer.stream);
    assert!(matches!(peer.served.await.unwrap().0, End::NoVersion));
}

#[tokio::test(start_paused = true)]
async fn a_short_length_is_refused_after_earlier_replies() {
    let shared = shared();
    let mut peer = Peer::greeted(&shared, policy(), 1024).await;
    peer.send(7, Body::BarrierRequest).await;
    peer.stream.write_all(&[4, 2, 0, 3, 0, 0, 0, 9, 1, 2, 3]).await.unwrap();
    assert_eq!(peer.read().await.unwrap(), Message::new(VERSION, 7, Body::BarrierReply));
    let Some(Message { body: Body::Error(error), xid: 9, .. }) = peer.read().await else { panic!() };
    assert_eq!(error.code(VERSION), Some(ErrorCode::BrcBadLen));
    assert_eq!(peer.read().await, None);
    drop(peer.stream);
    assert!(matches!(peer.served.await.unwrap().0, End::BadLength));
}

#[tokio::test(start_paused = true)]
async fn notices_to_a_peer_that_reads_nothing_are_dropped_then_it_is_cut() {
    let shared = shared();
    let policy = Policy { probe: None, ..policy() };
    let peer = Peer::greeted(&shared, policy, 1024).await;
    let id = shared.leading_controller();
    assert_eq!(id, None, "its hello has not been processed");
    while shared.leading_controller().is_none() {
        tokio::task::yield_now().await;
    }
    let id = shared.leading_controller().unwrap();
    change_ports(&shared);
    let dropped = shared.with(|switch, _| switch.dropped_messages(id));
    // A message of this version has 80 bytes; a second one says that the port is live.
    let kept = 2 * 4000 - dropped;
    assert!((BACKLOG as u64 / 80..=BACKLOG as u64 / 80 + 2).contains(&kept), "{kept} kept");
    let (end, lasted) = peer.served.await.unwrap();
    assert!(matches!(end, End::Stalled(_)), "{end}");
    assert_eq!(lasted.as_secs(), 15);
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_peer_that_reads_nothing_wait_in_its_own_memory() {
    let shared = shared();
    let policy = Policy { probe: None, ..policy() };
    let mut peer = Peer::greeted(&shared, policy, 1024).await;
    let request = Message::new(VERSION, 1, Body::EchoRequest(vec![7; 1000])).encode().unwrap();
    let mut accepted = 0;
    while accepted < 4 * BACKLOG && peer.stream.write_all(&request).await.is_ok() {
        accepted += request.len();
    }
    // The queue, what is on its way out, one read, the pipes, a message here and there.
    assert!(accepted > BACKLOG && accepted < BACKLOG + WRITE + READ + 8 * 1024, "{accepted}");
    assert!(matches!(peer.served.await.unwrap().0, End::Stalled(_)));
}

#[tokio::test(start_paused = true)]
async fn a_slow_but_steady_reader_is_kept() {
    let shared = shared();
    let mut peer = Peer::greeted(&shared, policy(), 64).await;
    while shared.leading_controller().is_none() {
        tokio::task::yield_now().await;
    }
    for xid in 0..51 {
        peer.send(xid, Body::EchoRequest(vec![7; 1000])).await;
    }
    for _ in 0..51 {
        tokio::time::sleep(SECOND).await;
        let reply = peer.read().await.unwrap();
        assert!(matches!(reply.body, Body::EchoReply(_) | Body::EchoRequest(_)));
        if matches!(reply.body, Body::EchoRequest(_)) {
            peer.send(reply.xid, Body::EchoReply(vec![])).await;
        }
    }
    assert!(!peer.served.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_flood_leaves_others_their_turns() {
    const FLOOD: usize = 100_000;
    let shared = shared();
    let flooding = Peer::greeted(&shared, policy(), 8 * FLOOD + 64).await;
    let mut other = Peer::greeted(&shared, policy(), 1024).await;
    let barrier = Message::new(VERSION, 1, Body::BarrierRequest).encode().unwrap();
    let (mut read, mut write) = tokio::io::split(flooding.stream);
    let answered = Arc::new(AtomicUsize::new(0));
    let counter = answered.clone();
    let reader = tokio::spawn(async move {
        let mut reply = [0; 8];
        while counter.load(Ordering::Relaxed) < FLOOD && read.read_exact(&mut reply).await.is_ok() {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    // All at once: the pipe has room for it.
    write.write_all(&barrier.repeat(FLOOD)).await.unwrap();
    for xid in 0..10 {
        other.send(xid, Body::BarrierRequest).await;
        assert_eq!(other.read().await.unwrap().xid, xid);
    }
    let before = answered.load(Ordering::Relaxed);
    // A few turns for each round trip; a read alone brings 8192 requests.
    assert!(before <= 10 * 4 * TURN, "{before} were answered first");
    reader.await.unwrap();
    assert_eq!(answered.load(Ordering::Relaxed), FLOOD);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_stream_is_met_after_the_replies() {
    let shared = shared();
    let mut peer = Peer::greeted(&shared, policy(), 1024).await;
    peer.send(5, Body::BarrierRequest).await;
    peer.stream.shutdown().await.unwrap();
    assert_eq!(peer.read().await.unwrap().xid, 5);
    assert_eq!(peer.read().await, None);
    assert!(matches!(peer.served.await.unwrap().0, End::Closed));
}

#[tokio::test(start_paused = true)]
async fn replies_leave_before_the_agent_stops() {
    let shared = shared();
    let mut peer = Peer::greeted(&shared, policy(), 64).await;
    for xid in 0..5 {
        peer.send(xid, Body::EchoRequest(vec![7; 1000])).await;
    }
    drop(peer.stop);
    let (mut next, start) = (0, Instant::now());
    let mut bytes = vec![];
    peer.stream.read_to_end(&mut bytes).await.unwrap();
    // The pipe may hold the end of the last request. Whole replies, and all of them in order, leave.
    for reply in bytes.chunks(1008) {
        let reply = Message::decode(reply).unwrap();
        assert_eq!((reply.xid, reply.body), (next, Body::EchoReply(vec![7; 1000])));
        next += 1;
    }
    assert!(next == 4 || next == 5, "{next}");
    assert!(start.elapsed() < SECOND);
    drop(peer.stream);
    assert!(matches!(peer.served.await.unwrap().0, End::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_nothing_delays_the_end_by_a_second_at_most() {
    let shared = shared();
    let mut peer = Peer::greeted(&shared, policy(), 64).await;
    peer.send(1, Body::EchoRequest(vec![7; 1000])).await;
    // The reply is on its way, and does not fit the pipe.
    peer.stream.read_u8().await.unwrap();
    let start = Instant::now();
    drop(peer.stop);
    assert!(matches!(peer.served.await.unwrap().0, End::Stopped));
    assert_eq!(start.elapsed(), SECOND);
}
