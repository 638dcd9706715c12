//! Options of neighbour discovery messages (RFC 4861 §4.6).
//!
//! Invariant: a list of options that a receiver could read in another way is malformed here.

use packet::MacAddr;

/// The sender's link-layer address.
pub(crate) const SOURCE_LINK_LAYER: u8 = 1;
/// The link-layer address of an advertisement's target.
pub(crate) const TARGET_LINK_LAYER: u8 = 2;

/// An option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NdOption<'a> {
    pub(crate) kind: u8,
    /// What follows type and length.
    body: &'a [u8],
}

impl NdOption<'_> {
    /// Returns the MAC address of an option with a link-layer address; `None` if it does not have the length of one.
    pub(crate) fn mac(&self) -> Option<MacAddr> {
        self.body.try_into().ok().map(MacAddr)
    }
}

/// Iterates over the options of a message; yields `None` and ends where they are malformed.
pub(crate) struct NdOptions<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for NdOptions<'a> {
    type Item = Option<NdOption<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = std::mem::take(&mut self.0);
        let [kind, words, ..] = *bytes else { return (!bytes.is_empty()).then_some(None) };
        let option = bytes.split_at_checked(usize::from(words) * 8);
        Some(option.and_then(|(option, rest)| {
            let body = option.get(2..)?;
            self.0 = rest;
            Some(NdOption { kind, body })
        }))
    }
}

/// Returns the MAC address that options claim for their sender or target; `Some(None)` if they claim none. `None` if
/// they are malformed, or claim different ones.
pub(crate) fn claimed(options: &[u8]) -> Option<Option<MacAddr>> {
    let mut found = None;
    for option in NdOptions(options) {
        let option = option?;
        if !matches!(option.kind, SOURCE_LINK_LAYER | TARGET_LINK_LAYER) {
            continue;
        }
        let mac = option.mac()?;
        if found.is_some_and(|found| found != mac) {
            return None;
        }
        found = Some(mac);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    #[test]
    fn all_options_are_read() {
        let claim = |kind: u8, mac: MacAddr| [&[kind, 1][..], &mac.0].concat();
        let nonce = [&[14, 2][..], &[9; 14]].concat();
        assert_eq!(claimed(&[]), Some(None));
        assert_eq!(claimed(&nonce), Some(None));
        assert_eq!(claimed(&[&nonce[..], &claim(1, A), &nonce].concat()), Some(Some(A)));
        assert_eq!(claimed(&[claim(1, A), claim(2, A)].concat()), Some(Some(A)));
        for malformed in [
            [claim(1, A), claim(1, B)].concat(),
            [claim(1, A), claim(2, B)].concat(),
            [&[1, 2][..], &A.0, &[0; 8]].concat(),
            vec![14, 0],
            vec![14],
            nonce[..15].to_vec(),
        ] {
            assert_eq!(claimed(&malformed), None, "{malformed:?}");
        }
    }
}
