//! `mswitch sflow show`.

use std::fmt::Write;
use std::time::Duration;

use control::proto;

use super::table::{Column, table};
use super::units;

/// Settings, counters, collectors and interface indices.
pub(crate) fn show(sflow: &proto::Sflow) -> String {
    if !sflow.enabled {
        return "sFlow is off; `mswitch sflow set --collectors ADDRESS` switches it on\n".into();
    }
    let mut out = String::new();
    let mut line = |name: &str, text: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name:<9}{text}");
    };
    let agent = match (sflow.agent.as_str(), sflow.agent_set) {
        ("", _) => "unknown: no collector can be reached yet".into(),
        (agent, true) => agent.into(),
        (agent, false) => format!("{agent}, the source address of datagrams"),
    };
    line("agent", agent);
    line(
        "sampling",
        format!("1 packet in {}, {} bytes each", units::count(sflow.sampling.into()), sflow.header),
    );
    line(
        "counters",
        match sflow.polling {
            0 => "none".into(),
            seconds => format!("every {seconds} s"),
        },
    );
    let sent =
        format!("{} packets, {} counters", units::count(sflow.samples), units::count(sflow.counter_samples));
    line("samples", sent);
    line("dropped", format!("{} samples", units::count(sflow.dropped)));
    out + "\n" + &collectors(&sflow.collectors) + "\n" + &ports(&sflow.ports)
}

fn collectors(collectors: &[proto::SflowCollector]) -> String {
    let columns = [
        Column::Left("COLLECTOR"),
        Column::Right("DATAGRAMS"),
        Column::Right("ERRORS"),
        Column::Left("LAST ERROR"),
    ];
    let row = |collector: &proto::SflowCollector| {
        let ago = units::duration(Duration::from_secs(collector.seconds_since_error.unwrap_or_default()));
        vec![
            collector.address.clone(),
            units::count(collector.datagrams),
            units::count(collector.errors),
            match collector.last_error.as_str() {
                "" => "-".into(),
                error => format!("{ago} ago: {error}"),
            },
        ]
    };
    table(&columns, collectors.iter().map(row).collect(), "no collectors")
}

fn ports(ports: &[proto::SflowPort]) -> String {
    let columns = [Column::Right("IFINDEX"), Column::Left("BRIDGE"), Column::Left("PORT")];
    let row =
        |port: &proto::SflowPort| vec![port.if_index.to_string(), port.bridge.clone(), port.port.clone()];
    table(&columns, ports.iter().map(row).collect(), "no ports")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_names_the_command_that_switches_sflow_on() {
        assert!(show(&proto::Sflow::default()).starts_with("sFlow is off; `mswitch sflow set --collectors"));
    }

    #[test]
    fn settings_and_statistics_are_shown() {
        let collector =
            |address: &str| proto::SflowCollector { address: address.into(), ..Default::default() };
        let sflow = proto::Sflow {
            enabled: true,
            collectors: vec![
                proto::SflowCollector { datagrams: 1200, ..collector("192.0.2.9:6343") },
                proto::SflowCollector {
                    errors: 3,
                    last_error: "no process listens there".into(),
                    seconds_since_error: Some(65),
                    ..collector("192.0.2.10:6343")
                },
            ],
            agent: "192.0.2.1".into(),
            sampling: 1000,
            polling: 20,
            header: 128,
            samples: 5000,
            counter_samples: 12,
            ports: vec![proto::SflowPort { if_index: 4097, bridge: "br1".into(), port: "a".into() }],
            ..Default::default()
        };
        assert_eq!(
            show(&sflow),
            "agent    192.0.2.1, the source address of datagrams\n\
             sampling 1 packet in 1,000, 128 bytes each\n\
             counters every 20 s\n\
             samples  5,000 packets, 12 counters\n\
             dropped  0 samples\n\n\
             COLLECTOR        DATAGRAMS  ERRORS  LAST ERROR\n\
             192.0.2.9:6343       1,200       0  -\n\
             192.0.2.10:6343          0       3  1 min 5 s ago: no process listens there\n\n\
             IFINDEX  BRIDGE  PORT\n   4097  br1     a\n"
        );
        let unknown = proto::Sflow { agent: String::new(), polling: 0, ports: Vec::new(), ..sflow };
        let text = show(&unknown);
        assert!(
            text.starts_with("agent    unknown: no collector") && text.contains("counters none\n"),
            "{text}"
        );
        assert!(text.ends_with("\nno ports\n"), "{text}");
    }
}
