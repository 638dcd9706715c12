//! Queueing at a port by name: classes of packets that come in, and the queues, rates and order of those that leave.
//!
//! | key | example |
//! | --- | --- |
//! | `trust`, `class`, `pcp-classes`, `dscp-classes` | `dscp`, `3`, `1,0,2,3,4,5,6,7`, `46:7,8-15:0` |
//! | `queueing` | `strict`, `drr`, or a weight or `strict` for each class: `1,1,2,2,4,4,strict,strict` |
//! | `shape` | `100Mbit`, of all classes together |
//! | `class-max`, `class-min` | `0:50Mbit,5:1Gbit` |
//! | `queue-buffers`, `early-drop` | `1024`, `100..300 10% ecn` |
//!
//! A port has the eight classes of IEEE 802.1Q, 0 to 7. Any of the keys from `queueing` on makes packets wait there; the
//! order is `strict` unless it says otherwise.

use std::sync::Arc;

use fabric::PortSettings;
use fabric::protection::{
    Classification, EarlyDrop, EgressLimits, Limit, QueueLimits, Scheme, Trust, Unit, Waiting,
};

use crate::rate;

/// The keys of this module.
pub const KEYS: [&str; 10] = [
    "trust",
    "class",
    "pcp-classes",
    "dscp-classes",
    "queueing",
    "shape",
    "class-max",
    "class-min",
    "queue-buffers",
    "early-drop",
];

/// Number of classes.
const CLASSES: u16 = 8;

/// Priority of classes that share by weight; strict ones have better ones.
const SHARED: u32 = CLASSES as u32;

/// Range of weights.
const WEIGHTS: std::ops::RangeInclusive<u32> = 1..=255;

/// Range of `queue-buffers`.
const BUFFERS: std::ops::RangeInclusive<u32> = 16..=Waiting::MOST;

/// Largest threshold of `early-drop`, packets.
const MOST_WAITING: u32 = 1 << 20;

/// The strict priority of a class: a higher class is served first.
fn priority(class: u16) -> u32 {
    (CLASSES - 1 - class).into()
}

/// The limits of a port where packets wait in strict order.
fn strict() -> EgressLimits {
    let of = |class| (class, QueueLimits { priority: priority(class), ..QueueLimits::default() });
    EgressLimits {
        scheme: Scheme::default(),
        queues: (0..CLASSES).map(of).collect(),
        waiting: Some(Waiting::default()),
    }
}

/// The limits of a port where packets wait in the eight classes, as these keys set them.
fn limits(settings: &PortSettings) -> Option<&EgressLimits> {
    let limits = settings.egress.as_deref()?;
    (limits.waits() && limits.queues.keys().copied().eq(0..CLASSES)).then_some(limits)
}

/// Changes these limits.
fn edit(settings: &mut PortSettings, change: impl FnOnce(&mut EgressLimits)) {
    let mut present = limits(settings).cloned().unwrap_or_else(strict);
    change(&mut present);
    settings.egress = Some(Arc::new(present));
}

/// Sets or removes something of these limits; there is nothing to remove from a port without them.
fn set(settings: &mut PortSettings, is_off: bool, change: impl FnOnce(&mut EgressLimits)) {
    if !is_off || limits(settings).is_some() {
        edit(settings, change);
    }
}

/// `queueing`.
pub(crate) fn read_order(settings: &mut PortSettings, text: &str) -> Result<(), String> {
    let orders: Vec<(u32, u32)> = match text.trim() {
        "off" => {
            settings.egress = None;
            return Ok(());
        }
        "strict" => (0..CLASSES).map(|class| (priority(class), 0)).collect(),
        "drr" => (0..CLASSES).map(|_| (SHARED, 1)).collect(),
        list => {
            let expected = "expected `strict`, `drr`, `off`, or a weight or `strict` for each class from 0 to 7, such as \
                            `1,1,2,2,4,4,strict,strict`";
            let order = |(class, text): (u16, &str)| match text.trim() {
                "strict" => Ok((priority(class), 0)),
                text => {
                    let weight = text.parse().ok().filter(|weight| WEIGHTS.contains(weight));
                    weight.map(|weight| (SHARED, weight)).ok_or_else(|| {
                        format!(
                            "`{text}` is neither `strict` nor a weight of 1 to {}; {expected}",
                            WEIGHTS.end()
                        )
                    })
                }
            };
            let texts: Vec<_> = list.split(',').collect();
            if texts.len() > usize::from(CLASSES) {
                return Err(format!("`{text}` has {} entries; {expected}", texts.len()));
            }
            let orders = (0..).zip(texts).map(order).collect::<Result<Vec<_>, _>>()?;
            if orders.len() < usize::from(CLASSES) {
                return Err(format!("`{text}` is for {} of the 8 classes; {expected}", orders.len()));
            }
            orders
        }
    };
    edit(settings, |limits| {
        for (queue, (priority, weight)) in limits.queues.values_mut().zip(orders) {
            (queue.priority, queue.weight) = (priority, weight);
        }
    });
    Ok(())
}

/// See [`read_order`].
pub(crate) fn write_order(settings: &PortSettings) -> Option<String> {
    let queues: Vec<&QueueLimits> = limits(settings)?.queues.values().collect();
    if queues.iter().all(|queue| queue.priority == SHARED && queue.weight == 1) {
        return Some("drr".into());
    }
    if queues.iter().all(|queue| queue.priority != SHARED) {
        return Some("strict".into());
    }
    let order = |queue: &&QueueLimits| match queue.priority {
        SHARED => queue.weight.to_string(),
        _ => "strict".to_owned(),
    };
    Some(queues.iter().map(order).collect::<Vec<_>>().join(","))
}

/// A rate of bits.
fn bits(text: &str) -> Result<Option<Limit>, String> {
    let expected = "expected bits a second, such as `100Mbit` or `100Mbit burst 64KiB`";
    match rate::parse(text) {
        Ok(Some(Limit { unit: Unit::Packets, .. })) => Err(format!("`{text}` counts packets; {expected}")),
        Ok(limit) => Ok(limit),
        Err(error) => Err(format!("{}; {expected}", error.problem())),
    }
}

/// `shape`.
pub(crate) fn read_shape(settings: &mut PortSettings, text: &str) -> Result<(), String> {
    let total = bits(text)?;
    set(settings, total.is_none(), |limits| limits.scheme = Scheme::Shares { total });
    Ok(())
}

/// See [`read_shape`].
pub(crate) fn write_shape(settings: &PortSettings) -> Option<String> {
    total(limits(settings)?).as_ref().map(rate::format)
}

fn total(limits: &EgressLimits) -> Option<Limit> {
    match limits.scheme {
        Scheme::Shares { total } => total,
        Scheme::Marked(_) => None,
    }
}

/// Reads values of classes, such as `0:50Mbit,5-7:1Gbit`, or one for all classes; `off` is none for any.
fn by_class<T: Copy>(
    text: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<[Option<T>; CLASSES as usize], String> {
    let mut found = [None; CLASSES as usize];
    if text.trim() == "off" {
        return Ok(found);
    }
    for entry in text.split(',') {
        let (classes, value) = match entry.split_once(':') {
            Some((classes, value)) => (class_range(classes.trim())?, value),
            None => (0..=CLASSES - 1, entry),
        };
        let value = read(value.trim())?;
        for class in classes {
            if let Some(slot) = found.get_mut(usize::from(class))
                && slot.replace(value).is_some()
            {
                return Err(format!("class {class} has two values"));
            }
        }
    }
    Ok(found)
}

/// Writes what [`by_class`] reads.
fn write_by_class(values: impl Iterator<Item = Option<String>>) -> Option<String> {
    let values: Vec<_> = values.collect();
    if let [Some(first), rest @ ..] = values.as_slice()
        && rest.iter().all(|value| value.as_ref() == Some(first))
    {
        return Some(first.clone());
    }
    let mut entries = Vec::new();
    let mut first = 0;
    for run in values.chunk_by(|a, b| a == b) {
        let last = first + run.len() - 1;
        if let Some(Some(value)) = run.first() {
            entries.push(if first == last {
                format!("{first}:{value}")
            } else {
                format!("{first}-{last}:{value}")
            });
        }
        first = last + 1;
    }
    (!entries.is_empty()).then(|| entries.join(","))
}

fn class_range(text: &str) -> Result<std::ops::RangeInclusive<u16>, String> {
    number_range(text, CLASSES - 1)
        .ok_or_else(|| format!("`{text}` is neither a class, 0 to 7, nor a range of them"))
}

/// A number or a range of numbers up to `most`.
fn number_range(text: &str, most: u16) -> Option<std::ops::RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last && last <= most).then_some(first..=last)
}

fn rate_of_class(text: &str) -> Result<Limit, String> {
    bits(text)?.ok_or_else(|| "`off` is for all classes; leave out those without a rate".into())
}

/// `class-max`.
pub(crate) fn read_max(settings: &mut PortSettings, text: &str) -> Result<(), String> {
    let rates = by_class(text, rate_of_class)?;
    set(settings, rates.iter().all(Option::is_none), |limits| {
        limits.queues.values_mut().zip(rates).for_each(|(queue, rate)| queue.maximum = rate);
    });
    Ok(())
}

/// See [`read_max`].
pub(crate) fn write_max(settings: &PortSettings) -> Option<String> {
    write_by_class(limits(settings)?.queues.values().map(|queue| queue.maximum.as_ref().map(rate::format)))
}

/// `class-min`.
pub(crate) fn read_min(settings: &mut PortSettings, text: &str) -> Result<(), String> {
    let rates = by_class(text, rate_of_class)?;
    set(settings, rates.iter().all(Option::is_none), |limits| {
        limits.queues.values_mut().zip(rates).for_each(|(queue, rate)| queue.guarantee = rate);
    });
    Ok(())
}

/// See [`read_min`].
pub(crate) fn write_min(settings: &PortSettings) -> Option<String> {
    write_by_class(limits(settings)?.queues.values().map(|queue| queue.guarantee.as_ref().map(rate::format)))
}

/// `queue-buffers`.
pub(crate) fn read_buffers(settings: &mut PortSettings, text: &str) -> Result<(), String> {
    let buffers = match text.trim() {
        "off" => None,
        text => Some(text.parse().ok().filter(|buffers| BUFFERS.contains(buffers)).ok_or_else(|| {
            format!("`{text}` is not a number of buffers; expected {} to {}", BUFFERS.start(), BUFFERS.end())
        })?),
    };
    set(settings, buffers.is_none(), |limits| {
        limits.waiting = Some(buffers.map_or_else(Waiting::default, |buffers| Waiting { buffers }));
    });
    Ok(())
}

/// See [`read_buffers`].
pub(crate) fn write_buffers(settings: &PortSettings) -> Option<String> {
    let waiting = limits(settings)?.waiting.filter(|waiting| *waiting != Waiting::default())?;
    Some(waiting.buffers.to_string())
}

/// `early-drop`.
pub(crate) fn read_early(settings: &mut PortSettings, text: &str) -> Result<(), String> {
    let early = by_class(text, early)?;
    set(settings, early.iter().all(Option::is_none), |limits| {
        limits.queues.values_mut().zip(early).for_each(|(queue, early)| queue.early = early);
    });
    Ok(())
}

/// See [`read_early`].
pub(crate) fn write_early(settings: &PortSettings) -> Option<String> {
    let text = |early: EarlyDrop| {
        let EarlyDrop { least, most, probability, marks } = early;
        format!("{least}..{most} {probability}%{}", if marks { " ecn" } else { "" })
    };
    write_by_class(limits(settings)?.queues.values().map(|queue| queue.early.map(text)))
}

/// Thresholds, probability and whether to mark, such as `100..300 10% ecn`.
fn early(text: &str) -> Result<EarlyDrop, String> {
    let wrong = || {
        format!(
            "`{text}` is not a range of waiting packets with a probability; expected such as `100..300 10%` or \
             `100..300 10% ecn`"
        )
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let (range, probability, marks) = match words.as_slice() {
        [range, probability] => (range, probability, false),
        [range, probability, "ecn"] => (range, probability, true),
        _ => return Err(wrong()),
    };
    let (least, most) = range.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number <= MOST_WAITING);
    let (least, most) =
        number(least).zip(number(most)).filter(|(least, most)| least < most).ok_or_else(wrong)?;
    let percent = probability.strip_suffix('%').and_then(|text| text.parse::<u8>().ok());
    let probability = percent.filter(|percent| (1..=100).contains(percent)).ok_or_else(wrong)?;
    Ok(EarlyDrop { least, most, probability, marks })
}

/// Changes the classes of packets that come in; classes as by default are none.
fn classify(settings: &mut PortSettings, change: impl FnOnce(&mut Classification)) {
    let mut present = settings.classification.as_deref().cloned().unwrap_or_default();
    change(&mut present);
    settings.classification = (present != Classification::default()).then(|| Arc::new(present));
}

/// Names of what a port may trust.
const TRUSTS: [(&str, Trust); 4] =
    [("off", Trust::Nothing), ("pcp", Trust::Pcp), ("dscp", Trust::Dscp), ("dscp-pcp", Trust::DscpThenPcp)];

/// `trust`.
pub(crate) fn read_trust(settings: &mut PortSettings, text: &str) -> Result<(), String> {
    let known = TRUSTS.iter().find(|(name, _)| *name == text.trim());
    let (_, trust) = known.ok_or_else(|| {
        format!("`{text}` is no header to trust; expected `pcp`, `dscp`, `dscp-pcp` (the former, else the latter) or `off`")
    })?;
    classify(settings, |classification| classification.trust = *trust);
    Ok(())
}

/// See [`read_trust`].
pub(crate) fn write_trust(settings: &PortSettings) -> Option<String> {
    let trust = settings.classification.as_ref()?.trust;
    let known =
        TRUSTS.iter().filter(|(_, known)| *known != Trust::Nothing).find(|(_, known)| *known == trust);
    known.map(|(name, _)| (*name).to_owned())
}

fn class(text: &str) -> Result<u8, String> {
    let class = text.trim().parse().ok().filter(|class| u16::from(*class) < CLASSES);
    class.ok_or_else(|| format!("`{}` is not a class; expected 0 to 7", text.trim()))
}

/// `class`.
pub(crate) fn read_class(settings: &mut PortSettings, text: &str) -> Result<(), String> {
    let default = if text.trim() == "off" { 0 } else { class(text)? };
    classify(settings, |classification| classification.default = default);
    Ok(())
}

/// See [`read_class`].
pub(crate) fn write_class(settings: &PortSettings) -> Option<String> {
    let default = settings.classification.as_ref()?.default;
    (default > 0).then(|| default.to_string())
}

/// `pcp-classes`.
pub(crate) fn read_pcp(settings: &mut PortSettings, text: &str) -> Result<(), String> {
    let pcp = match text.trim() {
        "off" => Classification::default().pcp,
        list => {
            let classes = list.split(',').map(class).collect::<Result<Vec<_>, _>>()?;
            let found = classes.len();
            classes.try_into().map_err(|_| {
                format!("found {found} of 8 classes; expected one for each priority code point, such as `1,0,2,3,4,5,6,7`")
            })?
        }
    };
    classify(settings, |classification| classification.pcp = pcp);
    Ok(())
}

/// See [`read_pcp`].
pub(crate) fn write_pcp(settings: &PortSettings) -> Option<String> {
    let pcp = settings.classification.as_ref()?.pcp;
    (pcp != Classification::default().pcp).then(|| pcp.map(|class| class.to_string()).join(","))
}

/// `dscp-classes`.
pub(crate) fn read_dscp(settings: &mut PortSettings, text: &str) -> Result<(), String> {
    let mut dscp = Classification::default().dscp;
    let entries = text.split(',').filter(|_| text.trim() != "off");
    for entry in entries {
        let wrong = || {
            format!(
                "`{entry}` is not a code point, 0 to 63, with a class; expected such as `46:7` or `8-15:0`"
            )
        };
        let (codes, of) = entry.split_once(':').ok_or_else(wrong)?;
        let of = class(of)?;
        for code in number_range(codes.trim(), 63).ok_or_else(wrong)? {
            if let Some(slot) = dscp.get_mut(usize::from(code)) {
                *slot = of;
            }
        }
    }
    classify(settings, |classification| classification.dscp = dscp);
    Ok(())
}

/// See [`read_dscp`].
pub(crate) fn write_dscp(settings: &PortSettings) -> Option<String> {
    let (present, default) = (settings.classification.as_ref()?.dscp, Classification::default().dscp);
    let differs = present.iter().zip(default).enumerate().filter(|(_, (class, default))| *class != default);
    let entries: Vec<_> = differs.map(|(code, (class, _))| format!("{code}:{class}")).collect();
    (!entries.is_empty()).then(|| entries.join(","))
}

/// The contradiction between these settings of a port, and the key that has it.
pub(crate) fn contradiction(settings: &PortSettings) -> Option<(&'static str, String)> {
    let limits = limits(settings)?;
    let guaranteed: u64 = limits.queues.values().filter_map(|queue| Some(queue.guarantee?.rate)).sum();
    match total(limits) {
        None if guaranteed > 0 => Some((
            "class-min",
            "guarantees are parts of the port's rate, which is not set; add `shape`".into(),
        )),
        Some(total) if guaranteed > total.rate => {
            let of = |rate| rate::format(&Limit { unit: Unit::Bits, rate, burst: None });
            let message = format!(
                "the classes have {} together, more than `shape`, {}",
                of(guaranteed),
                of(total.rate)
            );
            Some(("class-min", message))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::protection::{apply, given};

    fn settings(given: &[(&str, &str)]) -> Result<PortSettings, String> {
        let mut settings = PortSettings::new("p");
        let texts = given.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
        apply(&mut settings, &texts).map_err(|error| error.to_string())?;
        Ok(settings)
    }

    fn refused(key: &str, text: &str) -> String {
        settings(&[(key, text)]).unwrap_err()
    }

    #[test]
    fn values_are_written_as_they_are_read() {
        let keys = [
            ("class", "3"),
            ("class-max", "0:50Mbit,5:1Gbit burst 64KiB"),
            ("class-min", "6:10Mbit,7:1Mbit"),
            ("dscp-classes", "8:1,9:2,46:7"),
            ("early-drop", "0:50..150 20%,1:100..300 10% ecn"),
            ("pcp-classes", "0,0,0,0,1,1,7,7"),
            ("queue-buffers", "2048"),
            ("queueing", "1,1,2,2,4,4,strict,strict"),
            ("shape", "100Mbit burst 20kB"),
            ("trust", "dscp-pcp"),
        ];
        let set = settings(&keys).unwrap();
        let written = given(&set);
        assert_eq!(written, keys.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect());
        let mut again = PortSettings::new("p");
        apply(&mut again, &written).unwrap();
        assert_eq!(again, set);
        // Everything can be taken back, one by one or together.
        let mut back = set.clone();
        let off: BTreeMap<_, _> = keys.iter().map(|(key, _)| ((*key).to_owned(), "off".to_owned())).collect();
        apply(&mut back, &off).unwrap();
        assert_eq!(back, PortSettings::new("p"));
        for (key, _) in keys.iter().filter(|(key, _)| !["queueing", "shape"].contains(key)) {
            let mut back = set.clone();
            apply(&mut back, &[((*key).to_owned(), "off".to_owned())].into()).unwrap();
            let expected = written.iter().filter(|(other, _)| other != key);
            assert_eq!(given(&back), expected.map(|(key, text)| (key.clone(), text.clone())).collect());
        }
    }

    #[test]
    fn short_forms() {
        let of = |key: &str, text: &str| given(&settings(&[(key, text)]).unwrap());
        let strict = ("queueing".to_owned(), "strict".to_owned());
        assert_eq!(of("queueing", "strict"), [strict.clone()].into());
        assert_eq!(of("queueing", "1, 1,1,1,1,1,1,1")["queueing"], "drr");
        assert_eq!(of("shape", "1Gbit"), [strict.clone(), ("shape".to_owned(), "1Gbit".to_owned())].into());
        assert_eq!(of("class-max", "0-3:1Mbit")["class-max"], "0-3:1Mbit");
        assert_eq!(of("class-max", "0-7:1Mbit")["class-max"], "1Mbit");
        assert_eq!(of("early-drop", "10..20 5% ecn")["early-drop"], "10..20 5% ecn");
        assert_eq!(of("dscp-classes", "0:1,46:5"), BTreeMap::new(), "as by default");
        for key in
            ["shape", "class-max", "class-min", "early-drop", "queue-buffers", "queueing", "trust", "class"]
        {
            assert_eq!(settings(&[(key, "off")]).unwrap(), PortSettings::new("p"), "{key}");
        }
        let classes = settings(&[("queueing", "drr,")]).unwrap_err();
        assert!(classes.contains("`drr` is neither `strict` nor a weight of 1 to 255"), "{classes}");
    }

    #[test]
    fn higher_classes_come_first_and_strict_ones_before_others() {
        let set = settings(&[("queueing", "1,5,strict,1,1,1,1,strict")]).unwrap();
        let queues = &set.egress.as_ref().unwrap().queues;
        let mut order: Vec<u16> = queues.keys().copied().collect();
        order.sort_by_key(|class| queues[class].priority);
        assert_eq!(order[..2], [7, 2]);
        assert!([0, 1, 3, 4, 5, 6].iter().all(|class| queues[class].priority == SHARED));
        assert_eq!(queues[&1].weight, 5);
    }

    #[test]
    fn wrong_values_are_explained() {
        for (key, text, expected) in [
            (
                "queueing",
                "1,2",
                "`1,2` is for 2 of the 8 classes; expected `strict`, `drr`, `off`, or a weight",
            ),
            ("queueing", "1,1,1,1,1,1,1,1,1", "has 9 entries; expected `strict`"),
            (
                "queueing",
                "strikt",
                "`strikt` is neither `strict` nor a weight of 1 to 255; expected `strict`, `drr`",
            ),
            ("queueing", "1,1,1,1,1,1,1,0", "`0` is neither `strict` nor a weight of 1 to 255"),
            ("shape", "1000pps", "`1000pps` counts packets; expected bits a second, such as `100Mbit`"),
            ("shape", "0bit", "a rate of `0bit` is out of range, 1kbit to 1000Gbit; expected bits a second"),
            (
                "shape",
                "1GB",
                "`1GB` is not a rate; expected bits a second, such as `100Mbit` or `100Mbit burst 64KiB`",
            ),
            ("class-max", "8:1Mbit", "`8` is neither a class, 0 to 7, nor a range of them"),
            ("class-max", "3-1:1Mbit", "`3-1` is neither a class"),
            ("class-max", "0:1Mbit,0-3:2Mbit", "class 0 has two values"),
            ("class-max", "0:off", "`off` is for all classes"),
            (
                "class-min",
                "7:1Mbit",
                "guarantees are parts of the port's rate, which is not set; add `shape`",
            ),
            ("queue-buffers", "15", "`15` is not a number of buffers; expected 16 to 65536"),
            ("early-drop", "100..50 10%", "`100..50 10%` is not a range"),
            ("early-drop", "1..50 0%", "`1..50 0%` is not a range"),
            ("early-drop", "1..50 10% enc", "expected such as `100..300 10%`"),
            ("trust", "tos", "`tos` is no header to trust"),
            ("class", "8", "`8` is not a class; expected 0 to 7"),
            ("pcp-classes", "1,2", "found 2 of 8 classes"),
            ("dscp-classes", "64:1", "`64:1` is not a code point, 0 to 63, with a class"),
            ("dscp-classes", "46", "`46` is not a code point"),
        ] {
            let found = refused(key, text);
            assert!(found.starts_with(&format!("`{key}`: ")) && found.contains(expected), "{found}");
        }
        let both = settings(&[("shape", "10Mbit"), ("class-min", "0:6Mbit,1:5Mbit")]).unwrap_err();
        assert_eq!(both, "`class-min`: the classes have 11Mbit together, more than `shape`, 10Mbit");
    }
}
