//! Events, one line each.

use control::proto::{Event, KeyChange};

use super::logic::printable;
use super::units;

/// One event: time (UTC), object, event.
pub(crate) fn line(event: &Event) -> String {
    let when = units::time_of_day(event.at_unix_nanoseconds);
    let text = match event.kind.as_str() {
        "config" => {
            let done = match (event.reason.as_str(), event.action.as_str()) {
                ("", "add") => "added".into(),
                ("", "remove") => "removed".into(),
                ("", "change") => "changed".into(),
                ("", "reopen") => "reopened".into(),
                ("", action) => format!("{action} done"),
                (reason, action) => format!("{action} failed: {reason}"),
            };
            format!("{}: {done}{}{}", event.object, author(event), values(event))
        }
        "command" => format!("{}: {}{}{}", event.object, event.action, author(event), values(event)),
        "queue-moved" => {
            format!("{} {}: queue-moved{}: {}", event.bridge, event.port, values(event), event.reason)
        }
        "port-security" => {
            let vlan = if event.vlan == 0 { String::new() } else { format!(" VLAN {}", event.vlan) };
            let dropped = units::count(event.dropped);
            let address =
                if event.address.is_empty() { String::new() } else { format!(" as {}", event.address) };
            format!(
                "{} {}: port-security: {}{vlan}{address}: {} ({dropped} dropped so far)",
                event.bridge, event.port, event.mac, event.reason
            )
        }
        "storm-control" | "policed" => {
            let (kind, dropped) = (&event.kind, units::count(event.dropped));
            format!("{} {}: {kind}: {} ({dropped} dropped so far)", event.bridge, event.port, event.limit)
        }
        "port-fault" => {
            let limit = if event.limit.is_empty() { String::new() } else { format!(" ({})", event.limit) };
            format!(
                "{} {}: port-fault by {}: {}{limit}",
                event.bridge, event.port, event.client, event.reason
            )
        }
        "logic-stuck" | "logic-resumed" => format!("{}: {}", event.kind, printable(&event.reason)),
        "logic-fault" => {
            let noun = if event.faults == 1 { "fault" } else { "faults" };
            let (reason, faults) = (printable(&event.reason), units::count(event.faults));
            format!("{}: logic-fault: {reason} ({faults} {noun} so far)", event.bridge)
        }
        "lost" => format!("{} events lost", units::count(event.lost)),
        kind if event.mac.is_empty() => {
            let reason = if event.reason.is_empty() { String::new() } else { format!(": {}", event.reason) };
            format!("{} {}: {kind}{reason}", event.bridge, event.port)
        }
        kind => {
            let vlan = if event.vlan == 0 { String::new() } else { format!(" VLAN {}", event.vlan) };
            let more = match (kind, event.reason.as_str()) {
                ("fdb-moved", _) if !event.from.is_empty() => format!(", from {}", event.from),
                ("fdb-conflict", "static") => format!(": it has a static entry at {}", event.owner),
                ("fdb-conflict", "sticky") => format!(": it is sticky at {}", event.owner),
                ("fdb-conflict", _) => format!(": it is among the `stations` of {}", event.owner),
                _ => String::new(),
            };
            format!("{} {}: {kind} {}{vlan}{more}", event.bridge, event.port, event.mac)
        }
    };
    format!("{when} {text}\n")
}

/// ` by process 812 (mswitch), user 0`, unless the daemon is the author.
fn author(event: &Event) -> String {
    if event.by.is_empty() { String::new() } else { format!(" by {}", event.by) }
}

/// `: mtu: 1500 -> 9000, vlan: not set -> access:7`.
fn values(event: &Event) -> String {
    let change = |change: &KeyChange| {
        let value = |text: &str| super::config::value(text, change.default.as_deref());
        match (event.action.as_str(), &change.from, &change.to) {
            ("add" | "call", _, to) => format!("{}: {}", change.key, value(to)),
            ("remove", from, _) => format!("{}: {}", change.key, value(from)),
            (_, from, to) => format!("{}: {} -> {}", change.key, value(from), value(to)),
        }
    };
    let changes: Vec<_> = event.changes.iter().map(change).collect();
    if changes.is_empty() { String::new() } else { format!(": {}", changes.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_format() {
        let event = |kind: &str| Event {
            at_unix_nanoseconds: 1_700_000_000_123_456_789,
            kind: kind.into(),
            bridge: "br0".into(),
            port: "vm1".into(),
            ..Event::default()
        };
        assert_eq!(line(&event("port-up")), "22:13:20.123 br0 vm1: port-up\n");
        let down = Event { reason: "the client left".into(), ..event("port-down") };
        assert_eq!(line(&down), "22:13:20.123 br0 vm1: port-down: the client left\n");
        let change =
            KeyChange { key: "queue 1".into(), from: "CPU 0".into(), to: "CPU 2".into(), default: None };
        let reason = "the worker was 97 % busy".into();
        let moved = Event { reason, changes: vec![change], ..event("queue-moved") };
        assert_eq!(
            line(&moved),
            "22:13:20.123 br0 vm1: queue-moved: queue 1: CPU 0 -> CPU 2: the worker was 97 % busy\n"
        );
        let fault = Event {
            reason: "ring 1: wrong".into(),
            client: "process 7 (x), user 0".into(),
            ..event("port-fault")
        };
        assert_eq!(
            line(&fault),
            "22:13:20.123 br0 vm1: port-fault by process 7 (x), user 0: ring 1: wrong\n"
        );
        let limited = Event { limit: "message-rate = 1600".into(), ..fault };
        assert!(line(&limited).ends_with("ring 1: wrong (message-rate = 1600)\n"));
        let learned = Event { mac: "02:00:00:00:00:01".into(), vlan: 7, ..event("fdb-learned") };
        assert_eq!(line(&learned), "22:13:20.123 br0 vm1: fdb-learned 02:00:00:00:00:01 VLAN 7\n");
        let moved = Event { from: "vm2".into(), kind: "fdb-moved".into(), ..learned.clone() };
        assert_eq!(line(&moved), "22:13:20.123 br0 vm1: fdb-moved 02:00:00:00:00:01 VLAN 7, from vm2\n");
        for (reason, text) in [
            ("stations", "it is among the `stations` of vm2"),
            ("static", "it has a static entry at vm2"),
            ("sticky", "it is sticky at vm2"),
        ] {
            let (kind, reason, owner) = ("fdb-conflict".into(), reason.into(), "vm2".into());
            assert_eq!(
                line(&Event { kind, reason, owner, ..learned.clone() }),
                format!("22:13:20.123 br0 vm1: fdb-conflict 02:00:00:00:00:01 VLAN 7: {text}\n")
            );
        }
        let stuck = Event { reason: "native:/m.so does not return".into(), ..event("logic-stuck") };
        assert_eq!(line(&stuck), "22:13:20.123 logic-stuck: native:/m.so does not return\n");
        let failed =
            Event { reason: "wasm:/m.wasm: it ran for too long".into(), faults: 1, ..event("logic-fault") };
        assert_eq!(
            line(&failed),
            "22:13:20.123 br0: logic-fault: wasm:/m.wasm: it ran for too long (1 fault so far)\n"
        );
        assert!(line(&Event { faults: 1234, ..failed }).ends_with("(1,234 faults so far)\n"));
        let object = "bridge \"br0\", port \"vm1\"".to_owned();
        let config = Event { object, action: "add".into(), ..event("config") };
        assert_eq!(line(&config), "22:13:20.123 bridge \"br0\", port \"vm1\": added\n");
        let change = |key: &str, from: &str, to: &str| KeyChange {
            key: key.into(),
            from: from.into(),
            to: to.into(),
            default: None,
        };
        let changes = vec![change("mtu", "", "9000"), change("vlan", "access:7", "access:8")];
        let (action, by) = ("change".into(), "process 7 (x), user 0".into());
        let changed = Event { action, by, changes, ..config.clone() };
        assert_eq!(
            line(&changed),
            "22:13:20.123 bridge \"br0\", port \"vm1\": changed by process 7 (x), user 0: \
             mtu: not set -> 9000, vlan: access:7 -> access:8\n"
        );
        let (action, changes) = ("call".into(), vec![change("command", "", "allow 7")]);
        let called = Event { kind: "command".into(), action, changes, ..changed };
        assert!(line(&called).ends_with("port \"vm1\": call by process 7 (x), user 0: command: allow 7\n"));
        let (mac, reason) = ("02:00:00:00:00:01".into(), "station-limit".into());
        let violation = Event { mac, reason, vlan: 7, dropped: 1234, ..event("port-security") };
        assert_eq!(
            line(&violation),
            "22:13:20.123 br0 vm1: port-security: 02:00:00:00:00:01 VLAN 7: station-limit (1,234 dropped so far)\n"
        );
        let guarded =
            Event { address: "10.0.0.6".into(), reason: "source-guard".into(), vlan: 0, ..violation };
        assert!(line(&guarded).ends_with(
            "port-security: 02:00:00:00:00:01 as 10.0.0.6: source-guard (1,234 dropped so far)\n"
        ));
        let storm =
            Event { limit: "storm-broadcast = 500pps".into(), dropped: 1234, ..event("storm-control") };
        assert_eq!(
            line(&storm),
            "22:13:20.123 br0 vm1: storm-control: storm-broadcast = 500pps (1,234 dropped so far)\n"
        );
        let failed = Event { reason: "no such namespace".into(), ..config };
        assert!(line(&failed).ends_with("add failed: no such namespace\n"));
        assert!(line(&Event { lost: 3, ..event("lost") }).ends_with("3 events lost\n"));
    }
}
