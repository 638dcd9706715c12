//! `iperf3` between two namespaces, with as many senders at a time as wanted.

use std::time::Duration;

use serde_json::Value;

use crate::{Error, Netns, Result, until};

/// Time allowed for servers to listen.
const LIMIT: Duration = Duration::from_secs(20);

/// What arrived of a sender's traffic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrived {
    /// Rate in Mbit/s, without headers.
    pub mbits: f64,
    /// Datagrams that did not arrive; 0 with TCP.
    pub lost: u64,
}

/// Sends from `from` to `address` in `to`, to each of the ports at once, with further arguments of the client.
pub fn measure(from: &Netns, to: &Netns, address: &str, senders: &[(u16, &[&str])]) -> Result<Vec<Arrived>> {
    wait_until_quiet(to)?;
    let mut servers = Vec::new();
    for (port, _) in senders {
        let port = port.to_string();
        servers.push(to.start(&["iperf3", "-s", "-1", "-p", &port])?);
        let listens = || Ok(to.run(&["ss", "-Hltn"])?.contains(&format!(":{port}")).then_some(()));
        until("iperf3 to listen", LIMIT, listens)?;
    }
    let mut clients = Vec::new();
    for (port, arguments) in senders {
        let port = port.to_string();
        clients.push(from.start(&[&["iperf3", "-J", "-c", address, "-p", &port], *arguments].concat())?);
    }
    let reports = clients.into_iter().map(|client| client.output()).collect::<Result<Vec<_>>>()?;
    for server in servers {
        server.output()?;
    }
    reports.iter().map(|report| arrived(report)).collect()
}

/// Waits until nothing arrives any more. A server of UDP takes the first datagram for its client's, also one that a
/// former client has sent and that has waited in the switch since.
fn wait_until_quiet(netns: &Netns) -> Result<()> {
    let received = || netns.run(&["grep", "-v", "^ *lo:", "/proc/net/dev"]);
    let mut before = received()?;
    until("the network to be quiet", LIMIT, || {
        std::thread::sleep(Duration::from_millis(100));
        let now = received()?;
        let is_quiet = now == before;
        before = now;
        Ok(is_quiet.then_some(()))
    })
}

fn arrived(report: &str) -> Result<Arrived> {
    let parsed: Value =
        serde_json::from_str(report).map_err(Error::while_doing("reading iperf3's report"))?;
    let end = &parsed["end"];
    let rate =
        end["sum_received"]["bits_per_second"].as_f64().or_else(|| end["sum"]["bits_per_second"].as_f64());
    let rate = rate.ok_or_else(|| Error::new(format!("iperf3 reported no rate: {report}")))?;
    let lost = end["sum"]["lost_packets"].as_f64().unwrap_or(0.0);
    Ok(Arrived { mbits: rate / 1e6, lost: lost.max(0.0) as u64 })
}
