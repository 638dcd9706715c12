//! `[[bridge]]`: a bridge and its logic.

use std::collections::BTreeMap;

use logic::LogicError;
use packet::ether::MacAddr;
use toml::Spanned;
use toml::de::DeValue;

use super::Depth;
use super::mirror;
use super::openflow;
use super::p4;
use super::port::{self, HostKey, Shared};
use super::report::Report;
use super::section::Section;
use crate::host_port;
use crate::logics;
use crate::mirror::other_ports;
use crate::model::{BridgeConfig, LogicConfig, PortConfig, StationConfig, check_name, check_vlan};
use crate::{keys, vlan};

/// Reads one bridge. Returns `None` if it has no valid name; its other mistakes are reported nevertheless.
pub(super) fn read(
    mut section: Section<'_>,
    names: &mut BTreeMap<String, usize>,
    shared: &mut Shared<'_>,
    report: &mut Report<'_>,
) -> Option<BridgeConfig> {
    let name = section.required("name", "the bridge's name", report);
    section.context.bridge = name.as_ref().map(|(name, _)| (*name).to_owned());
    if let Some((name, span)) = &name {
        let line = report.line(span);
        if let Err(error) = check_name(name) {
            report.add(span, &section.context, error);
        } else if let Some(first) = names.insert((*name).to_owned(), line) {
            let message =
                format!("the file already has a bridge of this name in line {first}; choose another name");
            report.add(span, &section.context, message);
            names.insert((*name).to_owned(), first);
        }
    }
    section.only(&keys::names(keys::BRIDGE), report);
    let logic = logic(&section, shared.depth, report);
    let openflow = openflow::read(&section, &logic, shared.depth, report);
    let p4 = p4::read(&section, &logic, shared.depth, report);

    let mut ports = Vec::new();
    let mut port_names = BTreeMap::new();
    for table in section.tables("port", "bridge.port", report) {
        ports.extend(port::read(table, &mut port_names, shared, report));
    }
    let hosts = std::mem::take(&mut shared.hosts);
    let mut stations: Vec<StationConfig> = Vec::new();
    for table in section.tables("station", "bridge.station", report) {
        if let Some(station) = station(&table, &port_names, report) {
            if stations.iter().any(|other| other.is(station.mac, station.vlan)) {
                let message = format!("duplicate station {} in VLAN {}", station.mac, station.vlan);
                report.add(&table.span, &table.context, message);
            }
            let port = ports.iter().find(|port: &&PortConfig| port.settings.name == station.port);
            let note =
                |port: &PortConfig| vlan::station_note(&station.port, &port.settings.vlan, station.vlan);
            if let Some(note) = port.and_then(note) {
                report.note(&table.span_of("vlan"), &table.context, note);
            }
            stations.push(station);
        }
    }
    let name = name.map(|(name, _)| name.to_owned());
    let mut bridge = BridgeConfig {
        logic,
        openflow,
        p4,
        ports,
        stations,
        ..BridgeConfig::new(name.as_deref().unwrap_or_default())
    };
    check_host_ports(&bridge, &port_names, &hosts, report);
    if let Some((key, first, second)) = bridge.same_number() {
        let (first, second) = (&first.settings.name, &second.settings.name);
        let message = format!("ports `{first}` and `{second}` have the same `{key}`; give each its own");
        report.add(&section.span, &section.context, message);
    }
    for table in section.tables("mirror", "bridge.mirror", report) {
        if let Some(mirror) = mirror::read(&table, &bridge, &keys_of(&port_names), report) {
            bridge.mirrors.push(mirror);
        }
    }
    name.map(|_| bridge)
}

/// Checks the host ports of a bridge.
fn check_host_ports(
    bridge: &BridgeConfig,
    names: &BTreeMap<String, usize>,
    hosts: &[HostKey],
    report: &mut Report<'_>,
) {
    for HostKey { span, context } in hosts {
        let port = context.port.as_deref().and_then(|port| bridge.port(port));
        // A host port with mistakes of its own is missing; they are reported.
        let present = port.filter(|port| {
            host_port::of(port).is_some_and(|host| bridge.port(host).is_some() || !names.contains_key(host))
        });
        if let Some(Err(error)) = present.map(|port| host_port::check(bridge, port)) {
            report.add(span, context, error);
        }
    }
}

/// `[[bridge.station]]`: a static entry of the MAC table.
fn station(
    section: &Section<'_>,
    ports: &BTreeMap<String, usize>,
    report: &mut Report<'_>,
) -> Option<StationConfig> {
    section.only(&keys::names(keys::STATION), report);
    let mac = section.required("mac", "the station's address", report);
    let port = section.required("port", "the station's port", report);
    let vlan = section.integer("vlan", report);
    let ((mac, mac_at), (port, port_at)) = (mac?, port?);
    if !ports.contains_key(port) {
        let message = format!("the bridge has no port `{port}`; {}", other_ports(port, &keys_of(ports)));
        report.add(&port_at, &section.context, message);
    }
    let mac = match mac.parse::<MacAddr>() {
        Ok(mac) => mac,
        Err(error) => {
            report.add(&mac_at, &section.context, error);
            return None;
        }
    };
    let (vlan, vlan_at) = vlan.unwrap_or((0, mac_at.clone()));
    let vlan = match check_vlan(vlan) {
        Ok(vlan) => vlan,
        Err(error) => {
            report.add(&vlan_at, &section.context, error);
            return None;
        }
    };
    let station = StationConfig { mac, vlan, port: port.to_owned() };
    if let Err(error) = station.check() {
        report.add(&mac_at, &section.context, error);
    }
    Some(station)
}

fn keys_of(ports: &BTreeMap<String, usize>) -> Vec<&str> {
    ports.keys().map(String::as_str).collect()
}

fn logic(section: &Section<'_>, depth: Depth, report: &mut Report<'_>) -> LogicConfig {
    let mut config = LogicConfig::default();
    if let Some((name, _)) = section.text("logic", "the logic's name", report) {
        config.name = name.into();
        if let Some((kind @ ("wasm" | "native" | "p4"), file)) = name.split_once(':')
            && !file.is_empty()
            && !file.starts_with('/')
        {
            let message = format!(
                "`logic`: `{file}` is relative to the daemon's working directory; write `{kind}:` and an absolute path"
            );
            report.note(&section.span_of("logic"), &section.context, message);
        }
    }
    let params =
        section.table("params", "a table such as `{ ageing = 300 }`", report).map(|(table, _)| table);
    for (key, value) in params.into_iter().flatten() {
        match scalar(value.get_ref()) {
            Some(text) => config.params.push((key.get_ref().to_string(), text)),
            None => {
                let message = format!(
                    "parameter `{}` is not a single value; expected a text, a number, `true` or `false`",
                    key.get_ref()
                );
                report.add(&value.span(), &section.context, message);
            }
        }
    }
    if depth > Depth::Form
        && let Err(error) = logics::check(&config.name, &config.params)
    {
        let culprit = match &error {
            LogicError::UnknownLogic { .. } | LogicError::MissingFile { .. } => None,
            LogicError::UnknownParam { param, .. } | LogicError::StageNumber { name: param } => {
                params.and_then(|table| table.keys().find(|key| key.get_ref() == param)).map(Spanned::span)
            }
            LogicError::BadValue { param, .. } | LogicError::Repeated { param, .. } => {
                params.and_then(|table| table.get(param.as_str())).map(Spanned::span)
            }
            LogicError::Mistake { param, .. } => params
                .and_then(|table| table.get(param.as_str()))
                .map_or_else(|| params.map(|_| section.span_of("params")), |value| Some(value.span())),
            LogicError::Stage { number, .. }
            | LogicError::StageWord { number, .. }
            | LogicError::OpenQuote { number, .. } => {
                params.and_then(|table| table.get(number.to_string().as_str())).map(Spanned::span)
            }
            LogicError::MissingStage { .. } => params.map(|_| section.span_of("params")),
            LogicError::AmbiguousPartner { .. }
            | LogicError::Missing { .. }
            | LogicError::Module { .. }
            | LogicError::UnknownCommand { .. }
            | LogicError::MissingCommand { .. }
            | LogicError::Command { .. } => Some(section.span_of("params")),
        };
        report.add(&culprit.unwrap_or_else(|| section.span_of("logic")), &section.context, error);
    }
    config
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}
