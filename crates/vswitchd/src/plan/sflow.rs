//! From rows of the table `sFlow` to the export of a bridge.

use std::collections::BTreeMap;
use std::net::IpAddr;

use control::sflow::{Collector, SflowConfig, settings};
use ovsdb::Uuid;
use ovsdb::vswitch::{Bridge, SFlow};

use super::Rows;

/// Values of columns that a row leaves out (ovs-vswitchd.conf.db(5)).
const SAMPLING: i64 = 400;
const POLLING: i64 = 30;
const HEADER: i64 = 128;

/// Addresses of the interfaces that rows name as agents.
pub(super) type Agents = BTreeMap<String, IpAddr>;

/// Looks the interfaces up, each once: to read one takes a walk through the host's addresses and routes.
pub(super) fn agents(rows: &BTreeMap<Uuid, SFlow>) -> Agents {
    let mut agents = Agents::new();
    for name in rows.values().filter_map(|row| row.agent.as_deref()) {
        let is_name = name.parse::<IpAddr>().is_err() && ports::is_interface_name(name);
        if is_name && !agents.contains_key(name) {
            agents.extend(address_of(name).map(|address| (name.to_owned(), address)));
        }
    }
    agents
}

/// Returns the export of a bridge, or why its row has no effect.
pub(super) fn of(rows: &Rows<'_>, bridge: &Bridge) -> Result<Option<SflowConfig>, String> {
    let Some(uuid) = bridge.sflow else { return Ok(None) };
    if let Some(fault) = rows.faults.get(&uuid) {
        return Err(fault.clone());
    }
    rows.sflow
        .get(&uuid)
        .map(|row| read(row, &rows.agents).map_err(|error| format!("sFlow: {error}")))
        .transpose()
}

fn read(row: &SFlow, agents: &Agents) -> Result<SflowConfig, String> {
    let text = |error: settings::SflowError| error.to_string();
    let collectors = row.targets.iter().map(|target| target.parse::<Collector>());
    let mut config = SflowConfig::new(collectors.collect::<Result<_, _>>().map_err(text)?).map_err(text)?;
    config.sampling = settings::check_sampling(row.sampling.unwrap_or(SAMPLING)).map_err(text)?;
    config.polling = settings::check_polling(row.polling.unwrap_or(POLLING)).map_err(text)?;
    config.header = settings::check_header(row.header.unwrap_or(HEADER)).map_err(text)?;
    config.agent = match row.agent.as_deref() {
        None | Some("") => None,
        Some(agent) => match agent.parse() {
            Ok(address) => Some(address),
            Err(_) => Some(agents.get(agent).copied().ok_or_else(|| {
                format!("agent `{agent}` is neither an IP address nor an interface that has one")
            })?),
        },
    };
    Ok(config)
}

/// Returns the first address of an interface, an IPv4 address if it has one.
fn address_of(interface: &str) -> Option<IpAddr> {
    let snapshot = hostnet::Snapshot::of(interface).ok()?;
    let mut addresses =
        snapshot.addresses().filter(|address| !address.is_link_local_v6()).filter_map(|it| it.local());
    addresses.by_ref().min_by_key(IpAddr::is_ipv6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(targets: &[&str]) -> SFlow {
        SFlow { targets: targets.iter().map(|target| (*target).into()).collect(), ..SFlow::default() }
    }

    fn known() -> Agents {
        Agents::from([("eth0".into(), [192, 0, 2, 1].into())])
    }

    #[test]
    fn columns_left_out_have_defaults() {
        let config = read(&row(&["192.0.2.9:6343", "[2001:db8::9]:99"]), &known()).unwrap();
        assert_eq!((config.sampling, config.polling, config.header, config.agent), (400, 30, 128, None));
        assert_eq!(config.collectors.len(), 2);
    }

    #[test]
    fn an_agent_is_an_address_or_an_interface() {
        let agent = |agent: &str| read(&SFlow { agent: Some(agent.into()), ..row(&["192.0.2.9"]) }, &known());
        assert_eq!(agent("10.0.0.7").unwrap().agent, Some([10, 0, 0, 7].into()));
        assert_eq!(agent("eth0").unwrap().agent, Some([192, 0, 2, 1].into()));
        assert_eq!(
            agent("eth9").unwrap_err(),
            "agent `eth9` is neither an IP address nor an interface that has one"
        );
    }

    #[test]
    fn mistakes_are_named() {
        assert!(
            read(&row(&["collector.example:6343"]), &known()).unwrap_err().contains("collector.example:6343")
        );
        let odd = SFlow { sampling: Some(0), ..row(&["192.0.2.9"]) };
        assert!(read(&odd, &known()).unwrap_err().contains("a sampling rate of 1 in 0 is out of range"));
    }
}
