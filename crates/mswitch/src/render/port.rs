//! Ports: settings, state and counters.

use std::time::SystemTime;

use control::drops::Reason;
use control::proto::{self, Port};
use control::{queueing, rate};

use super::table::{Column, table};
use super::{drops, units};

/// `mswitch port list`.
pub(crate) fn list(ports: &[proto::Port]) -> String {
    let columns = [
        Column::Left("BRIDGE"),
        Column::Left("PORT"),
        Column::Left("TYPE"),
        Column::Left("LINK"),
        Column::Left("VLAN"),
        Column::Left("REASON"),
    ];
    let row = |port: &proto::Port| {
        let target = (!port.mirror.is_empty()).then(|| format!("mirror target of {}", port.mirror));
        let port = port.clone();
        let reasons = [Some(port.reason).filter(|reason| !reason.is_empty()), target];
        let reasons: Vec<_> = reasons.into_iter().flatten().collect();
        vec![port.bridge, port.name, port.r#type, port.link, port.vlan, reasons.join("; ")]
    };
    let nothing = "no ports; `mswitch port add BRIDGE PORT --type TYPE` adds one";
    table(&columns, ports.iter().map(row).collect(), nothing)
}

/// `mswitch port show`.
pub(crate) fn show(port: &proto::Port) -> String {
    // The MTU of the port, or else that which its type gives to the client's end.
    let mtu = match (port.mtu, port.options.get("mtu")) {
        (0, None) => "the type's maximum".into(),
        (0, Some(mtu)) => format!("{mtu} bytes"),
        (mtu, _) => format!("{mtu} bytes"),
    };
    let is_shown = |name: &str, value: &str| name == "mtu" && mtu == format!("{value} bytes");
    let mut lines = vec![
        ("port".to_owned(), format!("{} of bridge {}, index {}", port.name, port.bridge, port.index)),
        ("type".into(), port.r#type.clone()),
        ("link".into(), link(port)),
        ("admin".into(), port.admin.clone()),
        ("mtu".into(), mtu.clone()),
        ("vlan".into(), port.vlan.clone()),
    ];
    let options_at = lines.len();
    let options = port.options.iter().filter(|(key, value)| !is_shown(key, value));
    lines.extend(options.map(|(key, value)| (format!("  {key}"), value.clone())));
    let is_queueing = |key: &String| queueing::KEYS.contains(&key.as_str());
    for (title, of_title) in [("protection", false), ("quality of service", true)] {
        let mut its = port.protection.iter().filter(|(key, _)| is_queueing(key) == of_title).peekable();
        if its.peek().is_some() {
            lines.push((title.into(), String::new()));
        }
        lines.extend(its.map(|(key, value)| (format!("  {key}"), protection(key, value))));
    }
    if !port.details.is_empty() {
        lines.push(("details".into(), String::new()));
        let details = port.details.iter().filter(|detail| !is_shown(&detail.name, &detail.value));
        lines.extend(details.map(|detail| (format!("  {}", detail.name), detail.value.clone())));
    }
    if let Some(faults) = &port.faults {
        lines.push(("faults".into(), units::count(faults.total)));
        lines.push(("  last".into(), units::time_and_age(faults.at_unix_nanoseconds, SystemTime::now())));
        lines.push(("  kind".into(), faults.kind.clone()));
        lines.push(("  client".into(), faults.client.clone()));
        lines.push(("  reason".into(), faults.reason.clone()));
        if !faults.limit.is_empty() {
            lines.push(("  limit".into(), faults.limit.clone()));
        }
        if faults.hold_off_seconds > 0.0 {
            let (seconds, Port { bridge, name, .. }) = (faults.hold_off_seconds, port);
            let text = format!("{seconds:.1} s more; `mswitch port set {bridge} {name} --admin up` ends it");
            lines.push(("  hold-off".into(), text));
        }
    }
    // The type's options follow the settings, with a title.
    lines.insert(options_at, ("options".into(), String::new()));
    if !port.mirror.is_empty() {
        let text =
            format!("target of {}: only its copies are sent, received packets are dropped", port.mirror);
        lines.insert(options_at, ("mirror".into(), text));
    }
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut out: String = lines
        .iter()
        .map(|(name, value)| format!("{name:<width$}  {value}").trim_end().to_owned() + "\n")
        .collect();
    out.push('\n');
    out + &stats(std::slice::from_ref(port), true) + &classes(std::slice::from_ref(port))
}

/// The classes of ports that have some: what has left, waits and was dropped, and how long packets wait.
fn classes(ports: &[proto::Port]) -> String {
    let columns = [
        Column::Left("BRIDGE"),
        Column::Left("PORT"),
        Column::Right("CLASS"),
        Column::Right("PACKETS"),
        Column::Right("BYTES"),
        Column::Right("WAITING"),
        Column::Right("WAITED"),
        Column::Right("MEAN WAIT"),
        Column::Right("LONGEST"),
        Column::Right("DROPPED"),
        Column::Right("MARKED"),
    ];
    let mut rows = Vec::new();
    for port in ports {
        for class in &port.classes {
            let waiting = class.waiting.unwrap_or_default();
            let time = |seconds: f64| match waiting.waited {
                0 => "-".to_owned(),
                _ => units::delay(seconds),
            };
            rows.push(vec![
                port.bridge.clone(),
                port.name.clone(),
                class.class.to_string(),
                units::count(class.packets),
                units::bytes(class.bytes),
                units::count(waiting.packets),
                units::count(waiting.waited),
                time(waiting.waited_seconds / waiting.waited as f64),
                time(waiting.longest_seconds),
                units::count(class.policed + waiting.queue_full + waiting.early_drop),
                units::count(waiting.marked),
            ]);
        }
    }
    if rows.is_empty() { String::new() } else { format!("\n{}", table(&columns, rows, "")) }
}

/// The value of a protection; of a rate, with the burst in effect.
fn protection(key: &str, value: &str) -> String {
    let is_rate = key == "police" || key.starts_with("storm-");
    match rate::parse(value) {
        Ok(Some(limit)) if is_rate => rate::describe(&limit),
        _ => value.to_owned(),
    }
}

fn link(port: &proto::Port) -> String {
    if port.reason.is_empty() { port.link.clone() } else { format!("{}: {}", port.link, port.reason) }
}

/// `mswitch port stats`: one row per direction or queue.
pub(crate) fn stats(ports: &[proto::Port], queues: bool) -> String {
    let columns = [
        Column::Left("BRIDGE"),
        Column::Left("PORT"),
        Column::Left(if queues { "QUEUE" } else { "DIR" }),
        Column::Right("PACKETS"),
        Column::Right("BYTES"),
        Column::Right("BATCHES"),
        Column::Right("DROPPED"),
        Column::Left("REASONS"),
    ];
    let mut rows = Vec::new();
    for port in ports {
        let mut row = |name: String, counters: &proto::QueueCounters| {
            rows.push(vec![
                port.bridge.clone(),
                port.name.clone(),
                name,
                units::count(counters.packets),
                units::bytes(counters.bytes),
                units::count(counters.batches),
                units::count(counters.dropped),
                drops(&counters.drops),
            ]);
        };
        for (direction, counters) in directions(port, queues) {
            row(direction, counters);
        }
    }
    table(&columns, rows, if queues { "no queues: no client has connected yet" } else { "no ports" })
}

/// [`stats`], followed by the command that explains drop reasons if packets were dropped.
pub(crate) fn explained_stats(ports: &[proto::Port], queues: bool) -> String {
    let dropped = |port: &proto::Port| {
        let counters = directions(port, false);
        counters.iter().any(|(_, counters)| counters.dropped > 0)
    };
    let hint = match ports.iter().any(dropped) {
        true => "\n`mswitch port reasons` explains the reasons for drops.\n",
        false => "",
    };
    let classes = if queues { classes(ports) } else { String::new() };
    stats(ports, queues) + &classes + hint
}

/// `mswitch port reasons`: each with its meaning and the next step.
pub(crate) fn reasons(reasons: &[Reason]) -> String {
    let paragraph = |Reason { name, counted, meaning, advice }: &Reason| {
        format!("{name} (counted in {counted})\n  {meaning}\n  {advice}\n")
    };
    reasons.iter().map(paragraph).collect::<Vec<_>>().join("\n")
}

/// The counters of a port: `rx` and `tx`, or `rx0`, `rx1`, … `tx0`, …
pub(crate) fn directions(port: &proto::Port, queues: bool) -> Vec<(String, &proto::QueueCounters)> {
    let mut found = Vec::new();
    if queues {
        let numbered = |name: &'static str, list: &'_ [proto::QueueCounters]| {
            (0..list.len()).map(|i| format!("{name}{i}")).collect::<Vec<_>>()
        };
        found.extend(numbered("rx", &port.rx_queues).into_iter().zip(&port.rx_queues));
        found.extend(numbered("tx", &port.tx_queues).into_iter().zip(&port.tx_queues));
    } else if let Some(totals) = &port.totals {
        found.extend(totals.rx.iter().map(|counters| ("rx".to_owned(), counters)));
        found.extend(totals.tx.iter().map(|counters| ("tx".to_owned(), counters)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port() -> proto::Port {
        let rx = proto::QueueCounters {
            packets: 1500,
            bytes: 90_000,
            batches: 30,
            dropped: 2,
            drops: [("vlan".to_owned(), 2)].into(),
        };
        proto::Port {
            bridge: "br0".into(),
            name: "vm1".into(),
            r#type: "memif".into(),
            admin: "up".into(),
            link: "down".into(),
            reason: "no client".into(),
            vlan: "access:10".into(),
            options: [("path".to_owned(), "/a".to_owned())].into(),
            details: vec![proto::Detail { name: "peer".into(), value: "x".into() }],
            totals: Some(proto::PortTotals { rx: Some(rx.clone()), tx: Some(Default::default()) }),
            rx_queues: vec![rx],
            ..Default::default()
        }
    }

    #[test]
    fn a_row_per_direction() {
        let text = stats(&[port()], false);
        let rows: Vec<_> = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            rows,
            [
                "BRIDGE PORT DIR PACKETS BYTES BATCHES DROPPED REASONS",
                "br0 vm1 rx 1,500 87.9 KiB 30 2 2 vlan",
                "br0 vm1 tx 0 0 B 0 0"
            ]
        );
    }

    #[test]
    fn classes_are_shown_with_their_queues() {
        let mut port = port();
        let waiting = proto::WaitingCounters {
            packets: 12,
            queue_full: 3,
            early_drop: 4,
            marked: 5,
            waited: 1000,
            waited_seconds: 1.5,
            longest_seconds: 0.02,
        };
        let class = |class, waiting| proto::ClassCounters {
            class,
            packets: 2000,
            bytes: 90_000,
            policed: 1,
            waiting,
        };
        port.classes = vec![class(0, Some(waiting)), class(7, None)];
        let text = stats(std::slice::from_ref(&port), true) + &classes(std::slice::from_ref(&port));
        assert_eq!(explained_stats(&[port], true).split_once("\n\n`").unwrap().0, text.trim_end());
        let rows: Vec<_> = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            rows[rows.len() - 3..],
            [
                "BRIDGE PORT CLASS PACKETS BYTES WAITING WAITED MEAN WAIT LONGEST DROPPED MARKED",
                "br0 vm1 0 2,000 87.9 KiB 12 1,000 1.50 ms 20.0 ms 8 5",
                "br0 vm1 7 2,000 87.9 KiB 0 0 - - 1 0"
            ]
        );
    }

    #[test]
    fn drops_lead_to_their_explanation() {
        let text = explained_stats(&[port()], false);
        assert!(text.ends_with("2 vlan\nbr0     vm1   tx         0       0 B        0        0\n\n`mswitch port reasons` explains the reasons for drops.\n"), "{text}");
        let mut quiet = port();
        quiet.totals = Some(proto::PortTotals { rx: Some(Default::default()), tx: Some(Default::default()) });
        assert_eq!(explained_stats(std::slice::from_ref(&quiet), false), stats(&[quiet], false));
    }

    #[test]
    fn reasons_are_explained() {
        let all = control::drops::all();
        let vlan: Vec<_> = all.into_iter().filter(|reason| reason.name == "vlan").collect();
        assert_eq!(
            reasons(&vlan),
            "vlan (counted in rx)\n  \
             The VLAN setting of the port where it came in, or was to leave, does not allow its VLAN.\n  \
             `mswitch trace` names the port and its setting; `mswitch port set --vlan` changes it.\n"
        );
    }

    #[test]
    fn a_port_is_shown_with_all_settings() {
        let text = show(&port());
        assert!(
            text.starts_with(
                "port     vm1 of bridge br0, index 0\n\
             type     memif\n\
             link     down: no client\n\
             admin    up\n\
             mtu      the type's maximum\n\
             vlan     access:10\n\
             options\n\
             \u{20} path   /a\n\
             details\n\
             \u{20} peer   x\n\
             \n\
             BRIDGE"
            ),
            "{text}"
        );
        assert!(text.contains("rx0"), "{text}");
        assert!(!text.contains("faults"), "{text}");
    }

    #[test]
    fn the_mtu_is_shown_once() {
        let mut tap = port();
        tap.options.insert("mtu".into(), "1500".into());
        tap.details.push(proto::Detail { name: "mtu".into(), value: "1500".into() });
        let text = show(&tap);
        assert_eq!(text.matches("mtu").count(), 1, "{text}");
        assert!(text.contains("\nmtu      1500 bytes\n"), "{text}");
        // An interface of the host may have another one.
        tap.details[1].value = "9000".into();
        let text = show(&tap);
        assert!(text.contains("\n  mtu    9000\n"), "{text}");
    }

    #[test]
    fn the_burst_in_effect() {
        let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let protection = [text("police", "20Mbit"), text("sticky", "on"), text("max-stations", "3")].into();
        let text = show(&proto::Port { protection, ..port() });
        let lines = "protection\n  max-stations  3\n  police        20Mbit (burst 625kB, default)\n  sticky        on\n";
        assert!(text.contains(lines), "{text}");
    }

    #[test]
    fn queueing_is_shown_beside_protection() {
        let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let protection = [text("shape", "1Gbit"), text("sticky", "on"), text("queueing", "strict")].into();
        let text = show(&proto::Port { protection, ..port() });
        let lines = "protection\n  sticky            on\nquality of service\n  queueing          strict\n  shape             1Gbit\n";
        assert!(text.contains(lines), "{text}");
    }

    #[test]
    fn faults_of_clients_are_shown() {
        let faults = proto::PortFaults {
            total: 3,
            at_unix_nanoseconds: 1_700_000_000_123_456_789,
            client: "process 7 (x), user 0".into(),
            kind: "limit".into(),
            reason: "too much".into(),
            limit: "message-rate = 1600".into(),
            hold_off_seconds: 2.25,
        };
        let text = show(&proto::Port { faults: Some(faults), ..port() });
        let lines: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let first = lines.iter().position(|line| line == "faults 3").unwrap_or_else(|| panic!("{text}"));
        assert!(lines[first + 1].starts_with("last 22:13:20.123 UTC, "), "{text}");
        assert!(lines[first + 1].ends_with(" ago"), "{text}");
        assert_eq!(
            lines[first + 2..first + 7],
            [
                "kind limit",
                "client process 7 (x), user 0",
                "reason too much",
                "limit message-rate = 1600",
                "hold-off 2.2 s more; `mswitch port set br0 vm1 --admin up` ends it",
            ]
        );
    }
}
