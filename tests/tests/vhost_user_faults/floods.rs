//! Sockets that are flooded: with messages that have rings stopped and started, with questions, with connections.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::{exclusive, seconds};
use vhost_user::frontend::{Connection, DeviceConfig, NetDevice};
use vhost_user::message::{Region, Request, RingNumber};

use crate::rig::{BASIC, Rig};

/// Says something, for the so manieth time. False when nobody listens any more.
type Flood = fn(&mut NetDevice, u32) -> bool;

/// Says something again and again as fast as it is taken. Returns how often it was, and the longest that `port list` took
/// meanwhile.
fn flooded(rig: &Rig, mut device: NetDevice, say: Flood) -> (u32, Duration) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) && say(&mut device, count) {
                count += 1;
            }
            (count, device)
        });
        let (end, mut longest) = (Instant::now() + seconds(1, 20), Duration::ZERO);
        while Instant::now() < end {
            let asked = Instant::now();
            assert!(rig.daemon.port("br1", "peer").unwrap().is_up());
            longest = longest.max(asked.elapsed());
            rig.bystanders_go_on();
        }
        stop.store(true, Ordering::Relaxed);
        // Whoever waits in a write is let go with the end of the connection.
        let (count, device) = flood.join().unwrap();
        drop(device);
        (count, longest)
    })
}

fn tell(device: &mut NetDevice, request: &Request) -> bool {
    device.connection().tell(request, &[]).is_ok()
}

#[test]
fn floods_of_messages() {
    let _machine = exclusive();
    let mut rig = Rig::start();
    let floods: [(&str, Flood); 3] = [
        ("a ring on and off", |device, count| {
            tell(device, &Request::SetVringEnable(RingNumber { ring: 1, number: count % 2 }))
        }),
        ("all memory anew", |device, _| {
            let memory = device.memory().clone();
            let spec = memory.specs().unwrap().pop().unwrap();
            let region =
                Region { guest: spec.guest_address, size: spec.size, user: spec.user_address, offset: 0 };
            device.connection().tell(&Request::SetMemTable(vec![region]), &[memory.fd().as_fd()]).is_ok()
        }),
        ("what changes nothing", |device, _| tell(device, &Request::SetFeatures(BASIC))),
    ];
    for (what, flood) in floods {
        let device = rig.good(DeviceConfig::default());
        let (count, longest) = flooded(&rig, device, flood);
        assert!(count > 200, "{what}: {count} messages are no flood");
        assert!(longest < Duration::from_secs(5), "{what}: the control socket took {longest:?}");
        rig.down("the front-end closed the connection");
    }
    rig.finish();
}

#[test]
fn floods_of_connections() {
    let _machine = exclusive();
    let mut rig = Rig::start();
    drop(rig.good(DeviceConfig::default()));
    let (stop, socket) = (AtomicBool::new(false), rig.socket());
    let connections: u32 = std::thread::scope(|scope| {
        let flood = |speaks: bool| {
            let (stop, socket) = (&stop, &socket);
            move || {
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    // The switch may take its time to accept.
                    let Ok(mut connection) = Connection::dial(socket) else {
                        std::thread::yield_now();
                        continue;
                    };
                    count += 1;
                    if speaks {
                        let _ = connection.tell(&Request::SetFeatures(BASIC), &[]);
                    }
                }
                count
            }
        };
        let floods = [scope.spawn(flood(true)), scope.spawn(flood(false))];
        let end = Instant::now() + seconds(2, 20);
        while Instant::now() < end {
            rig.bystanders_go_on();
        }
        stop.store(true, Ordering::Relaxed);
        floods.map(|flood| flood.join().unwrap()).iter().sum()
    });
    // The switch takes a thousand at once and then a hundred a second.
    assert!(connections > 300, "{connections} connections are no flood");
    rig.finish();
}
