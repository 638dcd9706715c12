//! A flood of flow-mods, without a barrier, from a controller that reads nothing, and later reads all.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use e2e::{ping_all, until};
use openflow::message::{Body, FlowModCommand};
use openflow::{Message, text};

use super::{LIMIT, Rig, SECURE, Switch, VERSION, exclusive_rig};

/// Flow-mods of the flood.
const FLOOD: u32 = 1_000_000;
/// Flows that the bridge takes.
const MAX_FLOWS: u32 = 20_000;
/// Flows that carry the pings.
const FLOWS: [&str; 3] = [
    "priority=100,arp,actions=FLOOD",
    "priority=100,in_port=1,ip,actions=output:2",
    "priority=100,in_port=2,ip,actions=output:1",
];
/// Number of the first flow-mod that finds the table full.
const REFUSED: u32 = MAX_FLOWS - FLOWS.len() as u32;
/// Memory that a flow may take, its part of the messages and of the machine code's tables included.
const MEMORY_OF_FLOW: u64 = 4 << 10;
/// Memory that a connection may take, whatever it sends. Errors for the whole flood would take several times as much.
const MEMORY_OF_CONNECTION: u64 = 32 << 20;
/// Time in which other connections get their answers.
const PROMPT: Duration = Duration::from_secs(2);
/// Flow-mods of one write.
const CHUNK: u32 = 512;

/// Resident memory of the daemon, in bytes.
fn memory(rig: &Rig) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", rig.daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Use and size of a limit that `mswitch openflow controllers` shows.
fn limit(rig: &Rig, name: &str, per: &str) -> (u64, u64) {
    let limits = rig.connections()["limits"].clone();
    let found = limits.as_array().unwrap().iter().find(|limit| limit["name"] == name && limit["per"] == per);
    let number =
        |key: &str| found.and_then(|limit| limit[key].as_u64()).unwrap_or_else(|| panic!("{limits}"));
    (number("used"), number("most"))
}

/// A connection to the management socket.
fn connect(rig: &Rig) -> Switch {
    Switch::greet(UnixStream::connect(rig.daemon.path("br0.mgmt")).unwrap())
}

/// Sends the flood and an echo request, and counts what the socket has taken.
fn send_flood(mut stream: UnixStream, sent: &AtomicU64) {
    let flow = "priority=1,dl_dst=02:5a:5a:5a:5a:5a,actions=output:3";
    let flow = text::parse_flow(flow, FlowModCommand::Add, VERSION).unwrap();
    let flow = Message::new(VERSION, 0, Body::FlowMod(Box::new(flow))).encode().unwrap();
    let address = flow.windows(6).position(|bytes| bytes == [2, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a]).unwrap();
    for first in (0..FLOOD).step_by(CHUNK as usize) {
        let numbers = first..FLOOD.min(first + CHUNK);
        let mut chunk = Vec::new();
        for number in numbers.clone() {
            let mut flow = flow.clone();
            flow[4..8].copy_from_slice(&number.to_be_bytes());
            flow[address + 2..address + 6].copy_from_slice(&number.to_be_bytes());
            chunk.extend(flow);
        }
        stream.write_all(&chunk).unwrap();
        sent.store(numbers.end.into(), Relaxed);
    }
    let end = Message::new(VERSION, FLOOD, Body::EchoRequest(vec![]));
    stream.write_all(&end.encode().unwrap()).unwrap();
}

/// Reads the replies to a flood: an error for each flow-mod that finds the table full, in order, then the echo reply.
fn read_replies(switch: &mut Switch) {
    for number in REFUSED..FLOOD {
        let message = switch.read();
        let Body::Error(error) = &message.body else { panic!("{message:?} instead of error {number}") };
        let code = error.code(VERSION).map(|code| code.name());
        assert_eq!((message.xid, code), (number, Some("OFPFMFC_TABLE_FULL")));
    }
    let end = switch.read();
    assert!(matches!(end.body, Body::EchoReply(_)) && end.xid == FLOOD, "{end:?}");
}

/// Exchanges echo messages until told to stop, and returns the number; each reply is prompt.
fn echo(switch: &mut Switch, ends: &AtomicBool) -> u32 {
    let mut count = 0;
    while !ends.load(Relaxed) {
        count += 1;
        let begin = Instant::now();
        switch.send(count, Body::EchoRequest(vec![7]));
        let reply = switch.read();
        assert!(reply.xid == count && matches!(reply.body, Body::EchoReply(_)), "{reply:?}");
        assert!(begin.elapsed() < PROMPT, "echo {count} took {:?}", begin.elapsed());
    }
    count
}

/// Asks for a description with `ovs-ofctl`.
fn describe(rig: &Rig) {
    let begin = Instant::now();
    assert!(rig.ofctl(&["dump-desc", "br0"]).contains("DP Description: br0"));
    assert!(begin.elapsed() < PROMPT, "dump-desc took {:?}", begin.elapsed());
}

#[test]
fn a_flood_of_flow_mods_costs_bounded_memory_and_nobody_else() {
    let rig = exclusive_rig("openflow", &format!("{SECURE}max-flows = {MAX_FLOWS}\n"));
    for flow in FLOWS {
        rig.ofctl(&["add-flow", "br0", flow]);
    }
    rig.until_pings(2, true);
    let (flooder, mut other) = (connect(&rig), connect(&rig));
    let stream = || flooder.stream.try_clone().unwrap();
    let (sent, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let idle = memory(&rig);
    std::thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let mut count = 0;
            while !ends.load(Relaxed) {
                ping_all(&rig.guests[0], "10.79.0.2", 50, "0.01").unwrap();
                count += 50;
            }
            count
        });
        let echoes = scope.spawn(|| echo(&mut other, &ends));
        let writing = stream();
        scope.spawn(|| send_flood(writing, &sent));
        // A failed assertion ends the threads, too.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // Errors pile up to the limit; then the bridge reads no more of the flood.
            until("errors up to the limit", LIMIT, || {
                let (used, most) = limit(&rig, "messages waiting", "connection");
                Ok((used > most).then_some(()))
            })
            .unwrap();
            assert_eq!(limit(&rig, "flows", "bridge"), (MAX_FLOWS.into(), MAX_FLOWS.into()));
            let (used, most) = limit(&rig, "messages waiting", "connection");
            assert!(used < most + (64 << 10), "{used} of {most} bytes wait");
            let taken = sent.load(Relaxed);
            assert!(taken < u64::from(FLOOD) / 2, "{taken} flow-mods were read without room for errors");
            describe(&rig);
            let full = memory(&rig);
            let most = idle + u64::from(MAX_FLOWS) * MEMORY_OF_FLOW + MEMORY_OF_CONNECTION;
            assert!(full < most, "{full} bytes of memory instead of {most}; {idle} before");
            // The flood goes on as fast as its errors are read.
            let mut reader = Switch { stream: stream() };
            let reading = scope.spawn(move || read_replies(&mut reader));
            let mut largest = full;
            while !reading.is_finished() {
                describe(&rig);
                largest = largest.max(memory(&rig));
            }
            reading.join().unwrap();
            assert!(largest < most, "{largest} bytes of memory instead of {most}; {idle} before");
        }));
        ends.store(true, Relaxed);
        if outcome.is_err() {
            let _ = flooder.stream.shutdown(std::net::Shutdown::Both);
        }
        let (pings, echoes) = (pings.join().unwrap(), echoes.join().unwrap());
        assert!(pings > 0 && echoes > 100, "{pings} pings, {echoes} echoes");
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    // Nothing has changed but the flows.
    assert!(rig.pings(2));
    assert_eq!(limit(&rig, "messages waiting", "connection").0, 0);
    rig.ofctl(&["del-flows", "br0", "dl_dst=02:5a:00:00:00:00/ff:ff:00:00:00:00"]);
    assert_eq!(limit(&rig, "flows", "bridge").0, FLOWS.len() as u64);
}
