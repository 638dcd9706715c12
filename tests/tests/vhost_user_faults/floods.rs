//! Floods of a socket: messages that stop and start rings, requests, connections.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::{exclusive, seconds};
use vhost_user::frontend::{Connection, DeviceConfig, NetDevice};
use vhost_user::message::{Region, Request, RingNumber};

use crate::rig::{BASIC, Rig};

/// Sends message number n. Returns false if the connection is closed.
type Flood = fn(&mut NetDevice, u32) -> bool;

/// Sends messages as fast as the switch accepts them. Returns their number and the longest duration of `port list`
/// meanwhile.
fn flood(rig: &Rig, mut device: NetDevice, send: Flood) -> (u32, Duration) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) && send(&mut device, count) {
                count += 1;
            }
            (count, device)
        });
        let (end, mut longest) = (Instant::now() + seconds(1, 20), Duration::ZERO);
        while Instant::now() < end {
            let start = Instant::now();
            assert!(rig.daemon.port("br1", "peer").unwrap().is_up());
            longest = longest.max(start.elapsed());
            rig.wait_bystanders();
        }
        stop.store(true, Ordering::Relaxed);
        // The end of the connection releases a blocked write.
        let (count, device) = flood.join().unwrap();
        drop(device);
        (count, longest)
    })
}

fn send_request(device: &mut NetDevice, request: &Request) -> bool {
    device.connection().tell(request, &[]).is_ok()
}

#[test]
fn floods_of_messages() {
    let _machine = exclusive();
    let mut rig = Rig::start();
    let floods: [(&str, Flood); 3] = [
        ("a ring enabled and disabled", |device, count| {
            send_request(device, &Request::SetVringEnable(RingNumber { ring: 1, number: count % 2 }))
        }),
        ("the memory table again", |device, _| {
            let memory = device.memory().clone();
            let spec = memory.specs().unwrap().pop().unwrap();
            let region =
                Region { guest: spec.guest_address, size: spec.size, user: spec.user_address, offset: 0 };
            device.connection().tell(&Request::SetMemTable(vec![region]), &[memory.fd().as_fd()]).is_ok()
        }),
        ("unchanged features", |device, _| send_request(device, &Request::SetFeatures(BASIC))),
    ];
    for (messages, flood_with) in floods {
        let device = rig.good(DeviceConfig::default());
        let (count, longest) = flood(&rig, device, flood_with);
        assert!(count > 200, "{messages}: only {count} messages");
        assert!(longest < Duration::from_secs(5), "{messages}: the control socket took {longest:?}");
        rig.assert_down("the front-end closed the connection");
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
        let flood = |sends: bool| {
            let (stop, socket) = (&stop, &socket);
            move || {
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    // The switch may delay accepting.
                    let Ok(mut connection) = Connection::dial(socket) else {
                        std::thread::yield_now();
                        continue;
                    };
                    count += 1;
                    if sends {
                        let _ = connection.tell(&Request::SetFeatures(BASIC), &[]);
                    }
                }
                count
            }
        };
        let floods = [scope.spawn(flood(true)), scope.spawn(flood(false))];
        let end = Instant::now() + seconds(2, 20);
        while Instant::now() < end {
            rig.wait_bystanders();
        }
        stop.store(true, Ordering::Relaxed);
        floods.map(|flood| flood.join().unwrap()).iter().sum()
    });
    // The switch accepts a thousand at once and then a hundred a second.
    assert!(connections > 300, "only {connections} connections");
    rig.finish();
}
