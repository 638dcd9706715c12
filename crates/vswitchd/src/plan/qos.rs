//! Quality of service: the row of the table `QoS` that a port refers to, with its queues, as limits of what leaves
//! through the port's interfaces.
//!
//! A type that the switch does not have, and a setting that cannot be read, limit nothing; the port works all the same,
//! and its column `status` says why.

use std::collections::BTreeMap;
use std::path::Path;

use fabric::protection::{
    EgressLimits, Limit, MAX_WAITING_QUEUES, QueueLimits, Rates, Scheme, Unit, Waiting,
};
use ovsdb::Uuid;
use ovsdb::vswitch::{Port, QoS, Queue};

/// Types with an effect, in the order in which `qos/show-types` lists them.
pub(crate) const TYPES: [&str; 4] = ["linux-htb", "linux-hfsc", "egress-policer", "trtcm-policer"];

/// The type that asks for none.
const NOOP: &str = "linux-noop";

/// Key of `Port.status`.
pub(crate) const STATUS_KEY: &str = "qos_error";

/// Queues have lower numbers.
const QUEUES: u16 = 0xf000;

/// Least rate of a queue of `linux-htb` and `linux-hfsc`, bit/s: a full frame a second.
const LEAST: u64 = 8 * 1500;

/// Settings by name, as `qos/show` has them.
pub(crate) type Details = BTreeMap<&'static str, u64>;

/// Quality of service in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedQos {
    /// One of [`TYPES`].
    pub(crate) kind: &'static str,
    /// Settings of the port.
    pub(crate) details: Details,
    /// Settings of the queues; queue 0 is among them with types that have several.
    pub(crate) queues: BTreeMap<u16, Details>,
    pub(crate) limits: EgressLimits,
    /// Whether the rate of the interface's link is in the place of a maximum rate.
    pub(crate) follows_link: bool,
}

/// Returns the rate of a network card's link, bit/s; `None`: the interface is no card, or its rate is unknown. Virtual
/// interfaces tell of rates that they do not have.
pub(crate) fn link_rate(interface: &str) -> Option<u64> {
    let folder = Path::new("/sys/class/net").join(interface);
    if !ports::is_interface_name(interface) || !folder.join("device").exists() {
        return None;
    }
    // -1: unknown; while the link is down, reading fails.
    let megabits = std::fs::read_to_string(folder.join("speed")).ok()?.trim().parse::<u64>().ok()?;
    (megabits > 0).then(|| megabits.saturating_mul(1_000_000))
}

/// The rows.
pub(super) struct QosRows {
    pub(super) qos: BTreeMap<Uuid, QoS>,
    pub(super) queues: BTreeMap<Uuid, Queue>,
}

/// The settings of a row, and what is wrong with them.
struct Reader<'a> {
    other_config: &'a BTreeMap<String, String>,
    subject: String,
    faults: Vec<String>,
}

impl Reader<'_> {
    /// Returns a number; `None` if it is missing, zero or unreadable.
    fn number(&mut self, key: &str) -> Option<u64> {
        let text = self.other_config.get(key)?;
        match text.trim().parse::<u64>() {
            Ok(number) => (number > 0).then_some(number),
            Err(_) => {
                let fault = format!("`{text}` is not a whole number without a unit, such as 10000000");
                self.faults.push(format!("{}{key}: {fault}", self.subject));
                None
            }
        }
    }
}

impl QosRows {
    /// Returns what a port asks for, if anything, and what is wrong with it. `link`: bit/s of the interface's link, if
    /// known.
    pub(super) fn of(&self, port: &Port, link: Option<u64>) -> (Option<PlannedQos>, Vec<String>) {
        let Some(row) = port.qos.and_then(|uuid| self.qos.get(&uuid)) else { return (None, Vec::new()) };
        if row.type_.is_empty() || row.type_ == NOOP {
            return (None, Vec::new());
        }
        let Some(kind) = TYPES.into_iter().find(|kind| *kind == row.type_) else {
            let known = TYPES.join(", ");
            let fault = format!("QoS of type `{}` is not supported; expected {known} or {NOOP}", row.type_);
            return (None, vec![fault]);
        };
        let mut faults = Vec::new();
        let mut queues: BTreeMap<u16, &Queue> = BTreeMap::new();
        for (number, uuid) in &row.queues {
            match u16::try_from(*number).ok().filter(|number| *number < QUEUES) {
                Some(number) => _ = self.queues.get(uuid).map(|queue| queues.insert(number, queue)),
                None => faults.push(format!("queue {number}: queues have numbers below {QUEUES}")),
            }
        }
        let mut reader = Reader { other_config: &row.other_config, subject: String::new(), faults };
        let planned = match kind {
            "egress-policer" => policer(&mut reader, kind),
            "trtcm-policer" => two_rates(&mut reader, kind, &queues),
            _ => Some(shares(&mut reader, kind, &queues, link)),
        };
        if planned.is_none() && reader.faults.is_empty() {
            reader.faults.push(format!("QoS of type `{kind}` needs `cir` and `cbs`"));
        }
        (planned, reader.faults)
    }
}

/// Returns the code point of a queue.
fn dscp(number: u16, queue: &Queue, faults: &mut Vec<String>) -> Option<u8> {
    let code = queue.dscp?;
    let dscp = u8::try_from(code).ok().filter(|code| *code <= packet::dscp::MAX);
    if dscp.is_none() {
        faults.push(format!("queue {number}: dscp {code} is not in the range 0 to 63"));
    } else if number == 0 {
        // Packets are in the default queue without being put there, and those stay as they are.
        faults.push("queue 0: dscp has no effect on the default queue".into());
    }
    dscp.filter(|_| number != 0)
}

/// How the rates of `linux-htb` and `linux-hfsc` take effect.
#[derive(Debug, Clone, Copy)]
struct Shaping {
    /// Packets wait, as in Linux; else they are dropped beyond their rate.
    waits: bool,
}

impl Shaping {
    /// The limit of a rate. Where packets do not wait, its bucket has room for what a queue would hold beyond the burst:
    /// the same packets pass, only earlier.
    fn limit(self, rate: u64, burst: u64) -> Limit {
        let limit = Limit { unit: Unit::Bits, rate, burst: None };
        let burst = match self.waits {
            true => limit.of_shaper().burst().max(burst),
            false => limit.default_burst().saturating_add(burst),
        };
        Limit { burst: Some(burst), ..limit }
    }
}

/// `linux-htb` and `linux-hfsc`.
fn shares(
    reader: &mut Reader<'_>,
    kind: &'static str,
    queues: &BTreeMap<u16, &Queue>,
    link: Option<u64>,
) -> PlannedQos {
    let all_queues = queues.len() + usize::from(!queues.contains_key(&0));
    let shaping = Shaping { waits: all_queues <= MAX_WAITING_QUEUES };
    if !shaping.waits {
        reader.faults.push(format!(
            "{all_queues} queues: packets wait in at most {MAX_WAITING_QUEUES}; with more, those beyond a rate are dropped"
        ));
    }
    let given = reader.number("max-rate");
    let total = given.or(link);
    let details = total.map(|rate| ("max-rate", rate)).into_iter().collect();
    let default = Queue::default();
    let (mut shown, mut limits) = (BTreeMap::new(), BTreeMap::new());
    let all = queues.iter().map(|(number, queue)| (*number, *queue));
    for (number, queue) in std::iter::once((0, &default)).chain(all) {
        let mut own = Reader {
            other_config: &queue.other_config,
            subject: format!("queue {number}: "),
            faults: Vec::new(),
        };
        let most = total.unwrap_or(u64::MAX);
        let guarantee = own.number("min-rate").unwrap_or(0).max(LEAST).min(most);
        let maximum = own.number("max-rate").map(|rate| rate.max(guarantee)).filter(|rate| *rate < most);
        let (burst, priority) = match kind {
            "linux-htb" => (own.number("burst").unwrap_or(0) / 8, own.number("priority").unwrap_or(0)),
            _ => (0, 0),
        };
        let priority = u32::try_from(priority).unwrap_or(u32::MAX);
        let wanted = QueueLimits {
            guarantee: total.map(|_| shaping.limit(guarantee, burst)),
            maximum: maximum.map(|rate| shaping.limit(rate, burst)),
            priority,
            // As the quanta of Linux' classes, which go by their rates.
            weight: u32::try_from(guarantee / LEAST).unwrap_or(u32::MAX),
            early: None,
            rates: None,
            dscp: dscp(number, queue, &mut own.faults),
        };
        reader.faults.append(&mut own.faults);
        let mut details: Details = [("min-rate", guarantee)].into();
        details.extend(maximum.or(total).map(|rate| ("max-rate", rate)));
        // That of the bucket in effect, in bits.
        let bucket = wanted.maximum.or(total.map(|rate| shaping.limit(rate, 0)));
        details.extend(bucket.map(|limit| ("burst", limit.burst().saturating_mul(8))));
        details.extend((priority > 0).then_some(("priority", priority.into())));
        shown.insert(number, details);
        limits.insert(number, wanted);
    }
    let scheme = Scheme::Shares { total: total.map(|rate| shaping.limit(rate, 0)) };
    let waiting = shaping.waits.then(Waiting::default);
    let limits = EgressLimits { scheme, queues: limits, waiting };
    PlannedQos { kind, details, queues: shown, limits, follows_link: given.is_none() }
}

/// A limit of bytes per second.
fn bytes(rate: u64, burst: u64) -> Limit {
    Limit { unit: Unit::Bits, rate: rate.saturating_mul(8), burst: Some(burst) }
}

/// `egress-policer`.
fn policer(reader: &mut Reader<'_>, kind: &'static str) -> Option<PlannedQos> {
    let (cir, cbs) = (reader.number("cir"), reader.number("cbs"));
    let (cir, cbs) = (cir?, cbs?);
    let scheme = Scheme::Marked(Rates { committed: Some(bytes(cir, cbs)), excess: None });
    let limits = EgressLimits { scheme, ..EgressLimits::default() };
    let details = [("cir", cir), ("cbs", cbs)].into();
    Some(PlannedQos { kind, details, queues: BTreeMap::new(), limits, follows_link: false })
}

/// Returns the rates of a marker and its settings; `None` if there are none.
fn rates(reader: &mut Reader<'_>) -> Option<(Rates, Details)> {
    let mut details = Details::new();
    let mut limit = |rate: &'static str, burst: &'static str| {
        let (rate_found, burst_found) = (reader.number(rate), reader.number(burst));
        let limit = bytes(rate_found?, burst_found?);
        details.extend([(rate, limit.rate / 8), (burst, limit.burst())]);
        Some(limit)
    };
    let rates = Rates { committed: limit("cir", "cbs"), excess: limit("eir", "ebs") };
    (rates != Rates::default()).then_some((rates, details))
}

/// `trtcm-policer`.
fn two_rates(
    reader: &mut Reader<'_>,
    kind: &'static str,
    queues: &BTreeMap<u16, &Queue>,
) -> Option<PlannedQos> {
    let (port, details) = rates(reader)?;
    let mut shown = BTreeMap::from([(0, details.clone())]);
    let mut limits = BTreeMap::new();
    for (number, queue) in queues {
        let mut own = Reader {
            other_config: &queue.other_config,
            subject: format!("queue {number}: "),
            faults: Vec::new(),
        };
        let found = rates(&mut own);
        if found.is_none() && own.faults.is_empty() {
            own.faults.push(format!("queue {number}: without `cir` and `cbs` it has the port's rates"));
        }
        let dscp = dscp(*number, queue, &mut own.faults);
        reader.faults.append(&mut own.faults);
        let (rates, of_queue) = found.unwrap_or((port, details.clone()));
        shown.insert(*number, of_queue);
        limits.insert(*number, QueueLimits { rates: Some(rates), dscp, ..QueueLimits::default() });
    }
    let limits = EgressLimits { scheme: Scheme::Marked(port), queues: limits, waiting: None };
    Some(PlannedQos { kind, details, queues: shown, limits, follows_link: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = "linux-htb, linux-hfsc, egress-policer, trtcm-policer or linux-noop";

    fn id(n: u8) -> Uuid {
        Uuid([n; 16])
    }

    fn map(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// Number, settings and code point of a queue.
    type QueueRow<'a> = (i64, &'a [(&'a str, &'a str)], Option<i64>);

    /// What is made of a discipline with queues.
    fn plan(
        kind: &str,
        other_config: &[(&str, &str)],
        queues: &[QueueRow<'_>],
        link: Option<u64>,
    ) -> (Option<PlannedQos>, Vec<String>) {
        let numbered = || (1..).zip(queues);
        let row = QoS {
            uuid: id(100),
            type_: kind.into(),
            other_config: map(other_config),
            queues: numbered().map(|(at, (number, ..))| (*number, id(at))).collect(),
        };
        let queue = |(at, (_, other_config, dscp)): (u8, &QueueRow<'_>)| {
            (id(at), Queue { uuid: id(at), dscp: *dscp, other_config: map(other_config) })
        };
        let rows = QosRows { qos: [(id(100), row)].into(), queues: numbered().map(queue).collect() };
        rows.of(&Port { qos: Some(id(100)), ..Port::default() }, link)
    }

    fn shown(details: &Details) -> String {
        let parts: Vec<_> = details.iter().map(|(key, value)| format!("{key}={value}")).collect();
        parts.join(" ")
    }

    #[test]
    fn a_hierarchical_token_bucket() {
        let (planned, faults) = plan(
            "linux-htb",
            &[("max-rate", "10000000")],
            &[
                (1, &[("min-rate", "3000000"), ("max-rate", "5000000"), ("burst", "80000")], None),
                (61_439, &[("min-rate", "70000000"), ("priority", "5")], Some(46)),
                (7, &[("max-rate", "1000")], None),
            ],
            Some(1_000_000_000),
        );
        let planned = planned.unwrap();
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(shown(&planned.details), "max-rate=10000000", "that of the link is not in effect");
        let queues: Vec<_> = planned.queues.values().map(shown).collect();
        assert_eq!(
            queues,
            [
                "burst=100000 max-rate=10000000 min-rate=12000",
                "burst=80000 max-rate=5000000 min-rate=3000000",
                "burst=24224 max-rate=12000 min-rate=12000",
                "burst=100000 max-rate=10000000 min-rate=10000000 priority=5",
            ]
        );
        let Scheme::Shares { total: Some(total) } = planned.limits.scheme else { panic!("it has a rate") };
        assert_eq!((total.rate, total.burst()), (10_000_000, 12_500));
        assert!(planned.limits.waits());
        let of = |number: u16| planned.limits.queues[&number].clone();
        assert_eq!(of(1).guarantee.map(|limit| (limit.rate, limit.burst())), Some((3_000_000, 10_000)));
        assert_eq!(of(1).maximum.map(|limit| (limit.rate, limit.burst())), Some((5_000_000, 10_000)));
        assert_eq!([of(1).weight, of(0).weight, of(61_439).weight], [250, 1, 833]);
        assert_eq!((of(61_439).maximum, of(61_439).priority, of(61_439).dscp), (None, 5, Some(46)));
        assert_eq!(of(7).maximum.map(|limit| (limit.rate, limit.burst())), Some((12_000, 3028)));
    }

    #[test]
    fn more_queues_than_packets_wait_in_police() {
        let queues: Vec<QueueRow<'_>> = (1..=64).map(|number| (number, &[][..], None)).collect();
        let max_rate = [("max-rate", "10000000")];
        let (planned, faults) = plan("linux-htb", &max_rate, &queues, None);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].starts_with("65 queues: packets wait in at most 64"), "{faults:?}");
        let Scheme::Shares { total: Some(total) } = planned.as_ref().unwrap().limits.scheme else { panic!() };
        // A bucket holds a quarter of a second.
        assert_eq!((total.burst(), planned.unwrap().limits.waits()), (312_500, false));
        assert!(plan("linux-htb", &max_rate, &queues[1..], None).0.unwrap().limits.waits());
    }

    #[test]
    fn without_a_rate_the_link_has_it() {
        let of =
            |link| plan("linux-hfsc", &[], &[(1, &[("min-rate", "5000000"), ("priority", "3")], None)], link);
        let planned = of(Some(1_000_000_000)).0.unwrap();
        assert_eq!(shown(&planned.details), "max-rate=1000000000");
        assert_eq!(planned.limits.queues[&1].priority, 0, "not with this type");
        let planned = of(None).0.unwrap();
        assert!(planned.details.is_empty() && planned.follows_link);
        assert_eq!(planned.limits.scheme, Scheme::Shares { total: None });
        assert_eq!(planned.limits.queues[&1].guarantee, None, "nothing limits it");
        assert_eq!(link_rate("lo"), None);
        assert_eq!(link_rate("../lo"), None);
    }

    #[test]
    fn policers_count_bytes() {
        let (planned, faults) = plan("egress-policer", &[("cir", "1250000"), ("cbs", "2048")], &[], None);
        assert!(faults.is_empty());
        let limit = bytes(1_250_000, 2048);
        assert_eq!((limit.rate, limit.burst()), (10_000_000, 2048));
        let rates = Rates { committed: Some(limit), excess: None };
        assert_eq!(planned.unwrap().limits.scheme, Scheme::Marked(rates));
        let port = [("cir", "1000"), ("cbs", "1500"), ("eir", "2000"), ("ebs", "3000")];
        let queues: &[QueueRow<'_>] = &[(1, &[("cir", "500"), ("cbs", "1501")], None), (2, &[], Some(1))];
        let (planned, faults) = plan("trtcm-policer", &port, queues, None);
        let planned = planned.unwrap();
        assert_eq!(faults, ["queue 2: without `cir` and `cbs` it has the port's rates"]);
        let shown: Vec<_> = planned.queues.values().map(shown).collect();
        let all = "cbs=1500 cir=1000 ebs=3000 eir=2000";
        assert_eq!(shown, [all, "cbs=1501 cir=500", all]);
        assert_eq!(planned.limits.queues[&1].rates.unwrap().excess, None);
        assert_eq!(planned.limits.queues[&2].dscp, Some(1));
    }

    #[test]
    fn what_cannot_be_read_is_named_and_limits_nothing() {
        let faults = |kind, settings: &[_], queues: &[_]| {
            let (planned, faults) = plan(kind, settings, queues, None);
            (planned.map(|planned| planned.limits.scheme), faults)
        };
        let unlimited = Some(Scheme::Shares { total: None });
        assert_eq!(
            faults("linux-htb", &[("max-rate", "10Mbit")], &[(1, &[("min-rate", "-1")], Some(64))]),
            (
                unlimited.clone(),
                vec![
                    "max-rate: `10Mbit` is not a whole number without a unit, such as 10000000".into(),
                    "queue 1: min-rate: `-1` is not a whole number without a unit, such as 10000000".into(),
                    "queue 1: dscp 64 is not in the range 0 to 63".into(),
                ]
            )
        );
        assert_eq!(
            faults("linux-htb", &[], &[(61_440, &[], None), (-1, &[], None), (0, &[], Some(1))]),
            (
                unlimited,
                vec![
                    "queue -1: queues have numbers below 61440".into(),
                    "queue 61440: queues have numbers below 61440".into(),
                    "queue 0: dscp has no effect on the default queue".into(),
                ]
            )
        );
        assert_eq!(
            faults("egress-policer", &[("cir", "1")], &[]),
            (None, vec!["QoS of type `egress-policer` needs `cir` and `cbs`".into()])
        );
        for kind in ["linux-sfq", "linux-codel", "linux-fq_codel", "linux-netem", "frob"] {
            assert_eq!(
                faults(kind, &[], &[]),
                (None, vec![format!("QoS of type `{kind}` is not supported; expected {KNOWN}")])
            );
        }
        for kind in ["", "linux-noop"] {
            assert_eq!(faults(kind, &[("max-rate", "frob")], &[]), (None, vec![]));
        }
    }
}
