//! From rows of the tables `NetFlow`, `IPFIX` and `Flow_Sample_Collector_Set` to the exports of a bridge.

use std::time::Duration;

use control::accounting::settings::{
    self, DEFAULT_ACTIVE_TIMEOUT, DEFAULT_INTERVAL, DEFAULT_SAMPLING, IPFIX_PORT,
};
use control::accounting::{
    AccountingConfig, AccountingError, CacheConfig, Engine, IpfixConfig, NetflowConfig,
};
use ovsdb::Uuid;
use ovsdb::vswitch::{Bridge, FlowSampleCollectorSet, IPFIX, NetFlow};

use super::Rows;

/// Returns the exports of a bridge, and why rows have no effect.
pub(super) fn of(rows: &Rows<'_>, bridge: &Bridge) -> (AccountingConfig, Vec<String>) {
    let (mut config, mut errors) = (AccountingConfig::default(), Vec::new());
    let mut note = |kind: &str, error: String| errors.push(format!("{kind}: {error}"));
    match bridge.netflow.and_then(|uuid| row(rows, uuid, rows.netflow.get(&uuid))) {
        Some(Ok(row)) => match netflow(row) {
            Ok(netflow) => config.netflow = Some(netflow),
            Err(error) => note("NetFlow", error.to_string()),
        },
        Some(Err(fault)) => note("NetFlow", fault),
        None => {}
    }
    match bridge.ipfix.and_then(|uuid| row(rows, uuid, rows.ipfix.get(&uuid))) {
        Some(Ok(row)) => match ipfix(row) {
            Ok(ipfix) => config.ipfix = ipfix,
            Err(error) => note("IPFIX", error.to_string()),
        },
        Some(Err(fault)) => note("IPFIX", fault),
        None => {}
    }
    for set in rows.sample_sets.values().filter(|set| set.bridge == bridge.uuid) {
        let kind = format!("set of collectors {}", set.id);
        match sample_set(rows, set) {
            Ok(Some(set)) => config.sets.push(set),
            Ok(None) => {}
            Err(error) => note(&kind, error),
        }
    }
    config.sets.sort_by_key(|(number, _)| *number);
    (config, errors)
}

/// Returns a row, or why it cannot be read; `None`: it does not exist.
fn row<'a, T>(rows: &Rows<'_>, uuid: Uuid, found: Option<&'a T>) -> Option<Result<&'a T, String>> {
    let fault = rows.faults.get(&uuid).cloned();
    found.map(|row| fault.map_or(Ok(row), Err))
}

fn netflow(row: &NetFlow) -> Result<NetflowConfig, AccountingError> {
    let byte = |number: Option<i64>| number.and_then(|number| u8::try_from(number).ok()).unwrap_or(0);
    Ok(NetflowConfig {
        collectors: settings::collectors(&row.targets, None)?,
        engine: Engine {
            kind: byte(row.engine_type),
            id: byte(row.engine_id),
            in_interfaces: row.add_id_to_interface,
        },
        active_timeout: match u64::try_from(row.active_timeout) {
            Ok(0) => Some(DEFAULT_ACTIVE_TIMEOUT),
            Ok(seconds) => Some(Duration::from_secs(seconds)),
            Err(_) => None,
        },
    })
}

/// Returns the export that a row asks for; one without targets asks for none.
fn ipfix(row: &IPFIX) -> Result<Option<IpfixConfig>, AccountingError> {
    let Some(cache) = cache(row)? else { return Ok(None) };
    let is_enabled = |key: &str| row.other_config.get(key).is_none_or(|value| value != "false");
    Ok(Some(IpfixConfig {
        cache,
        sampling: number(row.sampling, DEFAULT_SAMPLING).max(1),
        domain: number(row.obs_domain_id, 0),
        point: number(row.obs_point_id, 0),
        input: is_enabled("enable-input-sampling"),
        output: is_enabled("enable-output-sampling"),
    }))
}

fn cache(row: &IPFIX) -> Result<Option<CacheConfig>, AccountingError> {
    if row.targets.is_empty() {
        return Ok(None);
    }
    let virtual_id = row.other_config.get("virtual_obs_id").map(|id| settings::check_virtual_id(id));
    Ok(Some(CacheConfig {
        active_timeout: number(row.cache_active_timeout, 0),
        max_flows: number(row.cache_max_flows, 0),
        template_interval: number(row.template_interval, DEFAULT_INTERVAL),
        statistics_interval: number(row.stats_interval, DEFAULT_INTERVAL),
        virtual_id: virtual_id.transpose()?,
        ..CacheConfig::new(settings::collectors(&row.targets, Some(IPFIX_PORT))?)
    }))
}

fn sample_set(rows: &Rows<'_>, set: &FlowSampleCollectorSet) -> Result<Option<(u32, CacheConfig)>, String> {
    if let Some(fault) = rows.faults.get(&set.uuid) {
        return Err(fault.clone());
    }
    let number = u32::try_from(set.id).map_err(|_| format!("{} is not a number of a set", set.id))?;
    let Some(found) = set.ipfix.and_then(|uuid| row(rows, uuid, rows.ipfix.get(&uuid))) else {
        return Ok(None);
    };
    let cache = cache(found?).map_err(|error| error.to_string())?;
    Ok(cache.map(|cache| (number, cache)))
}

/// Returns a number of a column, as the schema bounds it.
fn number(column: Option<i64>, default: u32) -> u32 {
    column.map_or(default, |number| u32::try_from(number).unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn targets(targets: &[&str]) -> BTreeSet<String> {
        targets.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn netflow_has_open_vswitchs_defaults() {
        let row = NetFlow { targets: targets(&["127.0.0.1:5566"]), ..NetFlow::default() };
        let config = netflow(&row).unwrap();
        assert_eq!((config.engine, config.active_timeout), (Engine::default(), Some(DEFAULT_ACTIVE_TIMEOUT)));
        let row = NetFlow { active_timeout: -1, engine_id: Some(3), add_id_to_interface: true, ..row };
        let config = netflow(&row).unwrap();
        assert_eq!(config.engine, Engine { kind: 0, id: 3, in_interfaces: true });
        assert_eq!(config.active_timeout, None);
        let row = NetFlow { targets: targets(&["127.0.0.1"]), ..row };
        assert!(netflow(&row).unwrap_err().to_string().contains("`127.0.0.1` is not a collector"));
    }

    #[test]
    fn ipfix_has_open_vswitchs_defaults() {
        assert_eq!(ipfix(&IPFIX::default()), Ok(None));
        let row = IPFIX { targets: targets(&["192.0.2.9"]), ..IPFIX::default() };
        let config = ipfix(&row).unwrap().unwrap();
        assert_eq!((config.sampling, config.domain, config.point), (400, 0, 0));
        assert!(config.input && config.output);
        assert_eq!(config.cache, CacheConfig::new(vec!["192.0.2.9:4739".parse().unwrap()]));
        let other = [("enable-input-sampling", "false"), ("virtual_obs_id", "rack")];
        let other_config = other.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let row = IPFIX { obs_domain_id: Some(7), cache_max_flows: Some(9), other_config, ..row };
        let config = ipfix(&row).unwrap().unwrap();
        assert_eq!((config.input, config.output, config.domain, config.cache.max_flows), (false, true, 7, 9));
        assert_eq!(config.cache.virtual_id.as_deref(), Some("rack"));
    }
}
