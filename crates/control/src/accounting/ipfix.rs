//! Wire format of IPFIX (RFC 7011), with information elements of IANA's registry (RFC 7012).
//!
//! A flow's template is chosen by its protocols: [`Shape`]. The list of a shape's fields makes the template, and the
//! same list its records, so that they cannot differ. Templates are sent before the first record of their observation
//! domain and again at intervals, because UDP may lose them (RFC 7011, section 8.4).
//!
//! Invariants: a message is no longer than [`MAX_MESSAGE`]; its sequence number is the number of records sent before in
//! its domain.

mod fields;

use std::collections::HashMap;

use metering::{Counts, FlowKey, Missed, Way};
use packet::headers::protocol;

use self::fields::Field;
use super::cache::End;

/// Maximum length of a message: fits the MTU of Ethernet even in a tunnel.
const MAX_MESSAGE: usize = 1400;
/// Length of a message's header (RFC 7011, section 3.1).
const HEADER: usize = 16;
/// Length of a set's header (section 3.3.2).
const SET_HEADER: usize = 4;
/// Set ids of templates and options templates (section 3.3.2).
const TEMPLATES: u16 = 2;
const OPTIONS_TEMPLATES: u16 = 3;
/// The first id of a template (section 3.4.1).
const FIRST_TEMPLATE: u16 = 256;
/// Observation domains whose templates and sequence numbers are kept. Flows may take domains from packets.
const MAX_DOMAINS: usize = 1024;
/// Longest name of an interface in a record.
const MAX_NAME: usize = 64;
/// Longest virtual observation id.
pub(super) const MAX_VIRTUAL_ID: usize = 254;

const SECOND: u64 = 1_000_000_000;

/// Network layer of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Other,
    V4,
    V6,
}

/// Transport layer of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Other,
    Ports,
    Icmp,
}

/// What decides a flow's template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    tagged: bool,
    network: Network,
    transport: Transport,
    way: Way,
}

impl Shape {
    /// Returns the shape of a flow.
    fn of(key: &FlowKey) -> Self {
        let network = match key.ip_version {
            4 => Network::V4,
            6 => Network::V6,
            _ => Network::Other,
        };
        let transport = match (network, key.protocol) {
            (Network::Other, _) => Transport::Other,
            (_, protocol::TCP | protocol::UDP | protocol::SCTP | protocol::DCCP | protocol::UDP_LITE) => {
                Transport::Ports
            }
            (Network::V4, protocol::ICMP) | (Network::V6, protocol::ICMPV6) => Transport::Icmp,
            _ => Transport::Other,
        };
        Self { tagged: key.tci.is_some(), network, transport, way: key.way }
    }

    /// All shapes, in the order of their templates.
    fn all() -> impl Iterator<Item = Self> {
        let layers = [Network::V4, Network::V6]
            .into_iter()
            .flat_map(|network| {
                [Transport::Other, Transport::Ports, Transport::Icmp].map(|transport| (network, transport))
            })
            .chain([(Network::Other, Transport::Other)]);
        layers.flat_map(|(network, transport)| {
            let one = move |tagged, way| Self { tagged, network, transport, way };
            [one(false, Way::In), one(false, Way::Out), one(true, Way::In), one(true, Way::Out)]
        })
    }

    /// Id of the template.
    fn template(self) -> u16 {
        let number = Self::all().position(|shape| shape == self);
        FIRST_TEMPLATE + number.unwrap_or_default() as u16
    }

    /// Id of the template of statistics, which follows those of flows.
    fn statistics() -> u16 {
        FIRST_TEMPLATE + Self::all().count() as u16
    }

    /// Fields of records of this shape.
    fn fields(self, has_virtual_id: bool) -> impl Iterator<Item = Field> {
        let some = |condition: bool, list: &'static [Field]| if condition { list } else { &[] };
        let is_ip = self.network != Network::Other;
        let lists = [
            fields::COMMON,
            some(self.way == Way::Out, fields::EGRESS),
            some(self.tagged, fields::TAG),
            some(is_ip, fields::IP),
            some(self.network == Network::V4, fields::IPV4),
            some(self.network == Network::V6, fields::IPV6),
            some(self.transport == Transport::Ports, fields::PORTS),
            some(self.transport == Transport::Icmp && self.network == Network::V4, fields::ICMP),
            some(self.transport == Transport::Icmp && self.network == Network::V6, fields::ICMPV6),
            some(has_virtual_id, fields::VIRTUAL_ID),
            fields::COUNTS,
            some(is_ip, fields::IP_COUNTS),
        ];
        lists.into_iter().flatten().copied()
    }
}

/// Whether a flow has a transport layer whose fields records have.
pub(super) fn has_known_transport(key: &FlowKey) -> bool {
    Shape::of(key).transport != Transport::Other
}

/// A port as collectors know it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Interface {
    /// Index of its network device; 0 if it has none.
    pub(super) index: u32,
    pub(super) name: String,
}

/// A flow's record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) key: &'a FlowKey,
    pub(super) counts: &'a Counts,
    pub(super) end: End,
    pub(super) domain: u32,
    pub(super) point: u32,
    pub(super) input: &'a Interface,
    pub(super) output: &'a Interface,
}

/// Settings of an encoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    /// Seconds between templates.
    pub(super) template_interval: u64,
    /// Seconds between statistics.
    pub(super) statistics_interval: u64,
    /// A string of the exporter's; at most [`MAX_VIRTUAL_ID`] bytes.
    pub(super) virtual_id: Option<String>,
}

/// State of an observation domain.
#[derive(Debug, Default)]
struct Domain {
    /// Records sent.
    sequence: u32,
    /// When templates were sent last, seconds.
    templates: Option<u64>,
}

/// Makes messages. Times are nanoseconds since 1970-01-01 00:00:00 UTC.
pub(super) struct Encoder {
    settings: Settings,
    /// Number of the exporting process.
    process: u32,
    domains: HashMap<u32, Domain>,
    message: Vec<u8>,
    /// Domain and records of `message`, if it has some.
    domain: u32,
    records: u32,
    /// Template and start of the last set of `message`.
    set: Option<(u16, usize)>,
    /// When statistics were sent last, seconds.
    statistics: Option<u64>,
}

impl Encoder {
    pub(super) fn new(settings: Settings, process: u32) -> Self {
        let (domains, message) = (HashMap::new(), Vec::with_capacity(MAX_MESSAGE));
        Self { settings, process, domains, message, domain: 0, records: 0, set: None, statistics: None }
    }

    /// Changes settings. Other fields need templates anew.
    pub(super) fn configure(&mut self, settings: Settings) {
        if self.settings.virtual_id != settings.virtual_id {
            self.domains.values_mut().for_each(|domain| domain.templates = None);
        }
        self.settings = settings;
    }

    /// Adds a record; `send` takes messages that are complete.
    pub(super) fn add(&mut self, record: &Record<'_>, now: u64, mut send: impl FnMut(&[u8])) {
        let shape = Shape::of(record.key);
        let virtual_id = self.settings.virtual_id.clone();
        let mut body = Vec::new();
        for field in shape.fields(virtual_id.is_some()) {
            field.write(&mut body, record, shape.tagged, virtual_id.as_deref().unwrap_or_default());
        }
        self.put(record.domain, shape.template(), &body, now, &mut send);
    }

    /// Adds statistics of the exporting process to those of the last domain, if they are due: what was not accounted.
    pub(super) fn tell(&mut self, missed: Missed, now: u64, mut send: impl FnMut(&[u8])) {
        if self.domains.is_empty() {
            return;
        }
        let second = now / SECOND;
        let is_due = |at: u64| second >= at.saturating_add(self.settings.statistics_interval);
        if !self.statistics.is_none_or(is_due) {
            return;
        }
        self.statistics = Some(second);
        let mut body = self.process.to_be_bytes().to_vec();
        body.extend(missed.packets.to_be_bytes());
        body.extend(missed.octets.to_be_bytes());
        self.put(self.domain, Shape::statistics(), &body, now, &mut send);
    }

    /// Adds a record of a template to a message of a domain.
    fn put(&mut self, domain: u32, template: u16, body: &[u8], now: u64, send: &mut impl FnMut(&[u8])) {
        if self.domain != domain {
            self.flush(now, &mut *send);
            self.domain = domain;
        }
        self.templates(now, send);
        if self.message.len() + SET_HEADER + body.len() > MAX_MESSAGE {
            self.flush(now, &mut *send);
        }
        self.begin_set(template);
        self.message.extend(body);
        self.end_set();
        self.records += 1;
    }

    /// Sends the templates of the current domain if they are due.
    fn templates(&mut self, now: u64, send: &mut impl FnMut(&[u8])) {
        let second = now / SECOND;
        if self.domains.len() >= MAX_DOMAINS && !self.domains.contains_key(&self.domain) {
            self.domains.clear();
        }
        let interval = self.settings.template_interval;
        let domain = self.domains.entry(self.domain).or_default();
        if domain.templates.is_some_and(|at| second < at.saturating_add(interval)) {
            return;
        }
        domain.templates = Some(second);
        self.flush(now, &mut *send);
        let has_virtual_id = self.settings.virtual_id.is_some();
        for shape in Shape::all() {
            let fields: Vec<_> = shape.fields(has_virtual_id).collect();
            let mut body = shape.template().to_be_bytes().to_vec();
            body.extend((fields.len() as u16).to_be_bytes());
            fields.iter().for_each(|field| field.specify(&mut body));
            self.put_template(TEMPLATES, &body, now, send);
        }
        let mut body = Shape::statistics().to_be_bytes().to_vec();
        let count = fields::STATISTICS.len() as u16;
        // The first field is the scope.
        body.extend([count, 1].map(u16::to_be_bytes).concat());
        fields::STATISTICS.iter().for_each(|field| field.specify(&mut body));
        self.put_template(OPTIONS_TEMPLATES, &body, now, send);
        self.flush(now, send);
    }

    fn put_template(&mut self, set: u16, body: &[u8], now: u64, send: &mut impl FnMut(&[u8])) {
        if self.message.len() + SET_HEADER + body.len() > MAX_MESSAGE {
            self.flush(now, send);
        }
        self.begin_set(set);
        self.message.extend(body);
        self.end_set();
    }

    /// Begins a set, unless the last one is of the same kind.
    fn begin_set(&mut self, id: u16) {
        if self.message.is_empty() {
            self.message.resize(HEADER, 0);
        }
        if self.set.is_none_or(|(last, _)| last != id) {
            self.set = Some((id, self.message.len()));
            self.message.extend(id.to_be_bytes());
            self.message.extend([0; 2]);
        }
    }

    /// Writes the length of the last set.
    fn end_set(&mut self) {
        let Some((_, start)) = self.set else { return };
        let length = (self.message.len() - start) as u16;
        if let Some(place) = self.message.get_mut(start + 2..start + SET_HEADER) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Has `send` take the last message.
    pub(super) fn flush(&mut self, now: u64, mut send: impl FnMut(&[u8])) {
        self.set = None;
        if self.message.is_empty() {
            return;
        }
        let domain = self.domains.entry(self.domain).or_default();
        let mut header = [0; HEADER];
        header[0..2].copy_from_slice(&10u16.to_be_bytes());
        header[2..4].copy_from_slice(&(self.message.len() as u16).to_be_bytes());
        header[4..8].copy_from_slice(&((now / SECOND) as u32).to_be_bytes());
        header[8..12].copy_from_slice(&domain.sequence.to_be_bytes());
        header[12..16].copy_from_slice(&self.domain.to_be_bytes());
        domain.sequence = domain.sequence.wrapping_add(std::mem::take(&mut self.records));
        if let Some(place) = self.message.first_chunk_mut() {
            *place = header;
        }
        send(&self.message);
        self.message.clear();
    }
}

#[cfg(test)]
mod tests;
