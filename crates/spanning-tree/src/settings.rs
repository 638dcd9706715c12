//! Reading keys of `other_config` (ovs-vswitchd.conf.db(5)).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use packet::MacAddr;

/// Keys and values of a row, with what is wrong about them.
pub(crate) struct Keys<'a> {
    pub(crate) map: &'a BTreeMap<String, String>,
    /// The row, for messages: `bridge br0`.
    pub(crate) row: String,
    pub(crate) wrong: Vec<String>,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(map: &'a BTreeMap<String, String>, row: String) -> Self {
        Self { map, row, wrong: Vec::new() }
    }

    /// A number, decimal or with `0x`; `None`: there is none, or it cannot be read.
    pub(crate) fn number(&mut self, key: &str) -> Option<u64> {
        let text = self.map.get(key)?.trim();
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        if number.is_err() {
            self.wrong.push(format!("{}: {key} `{text}` is not a number; using the default", self.row));
        }
        number.ok()
    }

    /// A number within a range: the nearest within.
    pub(crate) fn within(&mut self, key: &str, default: u16, range: RangeInclusive<u16>) -> u16 {
        let number = self.number(key).unwrap_or(default.into());
        u16::try_from(number).unwrap_or(u16::MAX).clamp(*range.start(), *range.end())
    }

    /// A truth value, `default` unless it is the other one.
    pub(crate) fn is(&self, key: &str, default: bool) -> bool {
        let is = |word: &str| self.map.get(key).is_some_and(|text| text.eq_ignore_ascii_case(word));
        if default { !is("false") } else { is("true") }
    }

    /// An Ethernet address.
    pub(crate) fn address(&mut self, key: &str, default: MacAddr) -> MacAddr {
        let Some(text) = self.map.get(key) else { return default };
        text.parse().unwrap_or_else(|_| {
            self.wrong.push(format!("{}: invalid {key}, defaulting to {default}", self.row));
            default
        })
    }

    /// The cost of a path through a port, 1 to `most`.
    pub(crate) fn cost(&mut self, key: &str, default: u32, most: u32) -> u32 {
        match self.number(key) {
            Some(number) => u32::try_from(number).unwrap_or(most).clamp(1, most),
            None => default,
        }
    }
}

/// Times of a bridge that fit together (IEEE 802.1D §8.10.2, §17.14): information is no longer valid before a port that
/// waits for better one forwards, and becomes invalid only after several lost messages. Returns the age and the delay.
pub(crate) fn fitting(hello: u16, max_age: u16, forward_delay: u16) -> (u16, u16) {
    let max_age = max_age.clamp((2 * (hello + 1)).max(6), 40);
    (max_age, forward_delay.clamp(max_age / 2 + 1, 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fit_together() {
        for hello in 1..=10 {
            for max_age in 0..50 {
                for delay in 0..50 {
                    let (max_age, delay) = fitting(hello, max_age, delay);
                    assert!(2 * (delay - 1) >= max_age - 1 && max_age >= 2 * (hello + 1), "{hello}");
                    assert!((6..=40).contains(&max_age) && (4..=30).contains(&delay));
                }
            }
        }
        assert_eq!(fitting(2, 20, 15), (20, 15));
    }

    #[test]
    fn values_that_are_none_are_named() {
        let map = [("n", "x"), ("h", "0x10"), ("big", "99999999999"), ("mac", "7"), ("no", "FALSE")];
        let map = map.map(|(key, text)| (key.to_owned(), text.to_owned())).into();
        let mut keys = Keys::new(&map, "port p".into());
        assert_eq!((keys.number("n"), keys.number("h"), keys.number("other")), (None, Some(16), None));
        assert_eq!((keys.within("big", 3, 1..=9), keys.within("other", 3, 1..=9)), (9, 3));
        assert_eq!((keys.cost("big", 2, 65535), keys.cost("other", 2, 65535)), (65535, 2));
        assert_eq!(keys.address("mac", MacAddr([2; 6])), MacAddr([2; 6]));
        assert!(!keys.is("no", true) && keys.is("other", true) && !keys.is("other", false));
        assert_eq!(
            keys.wrong,
            [
                "port p: n `x` is not a number; using the default",
                "port p: invalid mac, defaulting to 02:02:02:02:02:02"
            ]
        );
    }
}
