//! Flags of a port's protections. The daemon parses their values, as it does in the file.

use std::collections::BTreeMap;

use clap::Args;

/// Protection of a port, and of other ports from it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Protection")]
pub(crate) struct Protection {
    /// Forward no packets between this port and other isolated ports: on or off
    #[arg(long, value_name = "ON|OFF")]
    isolated: Option<String>,
    /// Limit received traffic to a rate, such as 100Mbit or 1000pps; without --police-burst the burst is the default
    #[arg(long, value_name = "RATE|OFF")]
    police: Option<String>,
    /// Burst of --police or of the present rate, such as 64KiB; with a rate in pps, a number of packets [default: 250 ms
    /// of the rate]
    #[arg(long, value_name = "SIZE")]
    police_burst: Option<String>,
    /// Limit received broadcasts to a rate, such as 1000pps
    #[arg(long, value_name = "RATE|OFF")]
    storm_broadcast: Option<String>,
    /// Limit received multicasts to a rate
    #[arg(long, value_name = "RATE|OFF")]
    storm_multicast: Option<String>,
    /// Limit received packets to unknown stations, which are flooded, to a rate
    #[arg(long, value_name = "RATE|OFF")]
    storm_unknown: Option<String>,
    /// Maximum number of stations behind the port
    #[arg(long, value_name = "N|OFF")]
    max_stations: Option<String>,
    /// Allowed stations: MAC addresses, separated by commas
    #[arg(long, value_name = "MACS|OFF")]
    stations: Option<String>,
    /// Keep learned stations at this port: on or off
    #[arg(long, value_name = "ON|OFF")]
    sticky: Option<String>,
    /// Allowed source addresses, such as 10.0.0.5,fe80::/64@52:54:00:12:34:56
    #[arg(long, value_name = "ADDRESSES|OFF")]
    sources: Option<String>,
    /// Headers that give incoming packets their class: pcp, dscp or dscp-pcp
    #[arg(long, value_name = "HEADERS|OFF", help_heading = "Quality of service")]
    trust: Option<String>,
    /// Class of other incoming packets, 0 to 7
    #[arg(long, value_name = "CLASS", help_heading = "Quality of service")]
    class: Option<String>,
    /// Classes of the priority code points 0 to 7, such as 1,0,2,3,4,5,6,7
    #[arg(long, value_name = "CLASSES|OFF", help_heading = "Quality of service")]
    pcp_classes: Option<String>,
    /// Classes of code points, such as 46:7,8-15:0
    #[arg(long, value_name = "CODES|OFF", help_heading = "Quality of service")]
    dscp_classes: Option<String>,
    /// Order of outgoing packets, which wait in classes: strict, drr, or a weight or strict for each class
    #[arg(long, value_name = "ORDER|OFF", help_heading = "Quality of service")]
    queueing: Option<String>,
    /// Rate of outgoing packets, which wait, such as 100Mbit
    #[arg(long, value_name = "RATE|OFF", help_heading = "Quality of service")]
    shape: Option<String>,
    /// Rates that outgoing classes do not exceed, such as 0:50Mbit,5-7:1Gbit
    #[arg(long, value_name = "RATES|OFF", help_heading = "Quality of service")]
    class_max: Option<String>,
    /// Parts of the shaped rate that outgoing classes have first, such as 6:10Mbit,7:1Mbit
    #[arg(long, value_name = "RATES|OFF", help_heading = "Quality of service")]
    class_min: Option<String>,
    /// Room of each outgoing class, in buffers of 2 KiB
    #[arg(long, value_name = "N|OFF", help_heading = "Quality of service")]
    queue_buffers: Option<String>,
    /// Early detection of congestion, such as '100..300 10% ecn'
    #[arg(long, value_name = "RANGE|OFF", help_heading = "Quality of service")]
    early_drop: Option<String>,
}

impl Protection {
    /// Returns the settings that were given, by their keys in the file.
    pub(crate) fn given(self) -> BTreeMap<String, String> {
        let police = match (self.police, self.police_burst) {
            (Some(rate), Some(burst)) => Some(format!("{rate} burst {burst}")),
            (None, Some(burst)) => Some(format!("burst {burst}")),
            (rate, None) => rate,
        };
        [
            ("isolated", self.isolated),
            ("police", police),
            ("storm-broadcast", self.storm_broadcast),
            ("storm-multicast", self.storm_multicast),
            ("storm-unknown", self.storm_unknown),
            ("max-stations", self.max_stations),
            ("stations", self.stations),
            ("sticky", self.sticky),
            ("sources", self.sources),
            ("trust", self.trust),
            ("class", self.class),
            ("pcp-classes", self.pcp_classes),
            ("dscp-classes", self.dscp_classes),
            ("queueing", self.queueing),
            ("shape", self.shape),
            ("class-max", self.class_max),
            ("class-min", self.class_min),
            ("queue-buffers", self.queue_buffers),
            ("early-drop", self.early_drop),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        protection: Protection,
    }

    fn given(line: &[&str]) -> BTreeMap<String, String> {
        Line::parse_from([&["x"], line].concat()).protection.given()
    }

    /// Each protection can be set by command, and each flag sets one.
    #[test]
    fn every_protection_has_a_flag() {
        let names = control::protection::names();
        let line: Vec<_> = names.iter().flat_map(|name| [format!("--{name}"), "x".into()]).collect();
        let found = given(&line.iter().map(String::as_str).collect::<Vec<_>>());
        let mut sorted = names;
        sorted.sort_unstable();
        assert_eq!(found.keys().collect::<Vec<_>>(), sorted);
    }

    #[test]
    fn the_burst_belongs_to_the_rate() {
        let found = given(&["--police", "100Mbit", "--police-burst", "64KiB"]);
        assert_eq!(found["police"], "100Mbit burst 64KiB");
        assert_eq!(given(&["--police-burst", "64KiB"])["police"], "burst 64KiB");
    }
}
