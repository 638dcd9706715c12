//! From a table's entries to what its maps hold.

use pipeline::bits::Bits;
use pipeline::ir::{ActionCall, ActionId, EntryResult, KeyMatch, Program, Table, TableId};
use pipeline::state::{Installed, State};

use crate::layout::words;
use crate::tables::{Form, KeyPart, TableForm};

/// Most prefixes that the ranges of an entry become.
const PREFIXES: usize = 1024;

/// Reasons for which entries do not go into a card's maps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// More masks than packets can be compared with.
    #[error("table {0}: entries with more than {1} different masks")]
    Masks(String, u32),
    /// More entries than the table's map has room for.
    #[error("table {0}: its map is full, which has {1} entries; a range takes several")]
    Full(String, u32),
    /// Entries of a table without keys.
    #[error("table {0}: an entry, though it has no keys; its default is what always runs")]
    NoKeys(String),
    /// Ranges that become too many prefixes.
    #[error("table {0}: an entry's ranges become more than {PREFIXES} prefixes")]
    Ranges(String),
}

/// The value of a call, without what is in front of the arguments; its first word has the action's number.
pub(crate) fn arguments(program: &Program, call: &ActionCall, most: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 * most);
    let params = program.actions.get(call.action.index()).map_or(&[][..], |action| &action.params);
    for (param, arg) in params.iter().zip(call.args.iter()) {
        let limbs = arg.value.limbs();
        for i in 0..words(param.ty.width()) {
            bytes.extend(limbs.get(i).copied().unwrap_or(0).to_ne_bytes());
        }
    }
    bytes.resize(8 * most, 0);
    bytes
}

/// The number of an action that no program has.
const NO_ACTION: ActionId = ActionId(u32::MAX);

/// The call of an entry; one of no action for a member that is not there.
fn call(state: &State, table: &Table, installed: &Installed) -> ActionCall {
    let call = match &installed.entry.result {
        EntryResult::Action(call) => Some(call),
        EntryResult::Member(member) => {
            table.profile.and_then(|id| state.profile(id)).and_then(|profile| profile.members.get(member))
        }
        EntryResult::Group(_) => None,
    };
    call.cloned().unwrap_or(ActionCall { action: NO_ACTION, args: [].into() })
}

/// The default of a table.
pub(crate) fn default(state: &State, table: TableId, most: usize) -> Option<Vec<u8>> {
    let call = state.table(table)?.default_action()?;
    let mut value = Vec::new();
    value.extend(call.action.0.to_ne_bytes());
    value.extend(0_u32.to_ne_bytes());
    value.extend(arguments(state.program(), call, most));
    Some(value)
}

/// Keys of an entry in its table's map, each with its mask; that is empty but in tables by masks.
pub(crate) fn keys(
    table: &Table,
    form: &TableForm,
    installed: &Installed,
) -> Result<Vec<Masked>, EntryError> {
    match form.form {
        Form::Default => Err(EntryError::NoKeys(table.name.clone())),
        Form::Hash => Ok(vec![(Vec::new(), exact_key(form, installed))]),
        Form::Trie => Ok(vec![(Vec::new(), trie_key(form, installed))]),
        Form::Masks => masked_keys(table, form, installed),
    }
}

/// The value of an entry, whose counts are at `slot`.
pub(crate) fn value(
    state: &State,
    table: &Table,
    form: &TableForm,
    installed: &Installed,
    slot: u32,
) -> Vec<u8> {
    let call = call(state, table, installed);
    let mut value = Vec::new();
    value.extend(call.action.0.to_ne_bytes());
    value.extend(slot.to_ne_bytes());
    if form.form == Form::Masks {
        let prefix = installed.entry.matches.iter().map(|is| prefix_length(&is.is)).max().unwrap_or(0);
        let rank = u64::from(installed.entry.priority) << 16 | u64::from(prefix);
        // Of equal ranks the older one wins; none is 0.
        for word in [rank, u64::MAX - installed.id.0] {
            value.extend(word.to_ne_bytes());
        }
    }
    value.extend(arguments(state.program(), &call, form.arguments));
    value
}

/// Rank and order of a value in a table by masks: of entries with one mask and one key, only the best is ever hit.
pub(crate) fn rank_of(value: &[u8]) -> (u64, u64) {
    let word = |at: usize| {
        let bytes = value.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    };
    (word(8), word(16))
}

fn prefix_length(is: &KeyMatch) -> u16 {
    match is {
        KeyMatch::Prefix(_, len) => *len,
        _ => 0,
    }
}

fn condition(installed: &Installed, key: usize) -> Option<&KeyMatch> {
    installed.entry.matches.iter().find(|is| is.key as usize == key).map(|is| &is.is)
}

/// A value as a key's bytes: words in this machine's order, of which the low bytes are taken.
fn place(key: &mut [u8], part: &KeyPart, value: &Bits) {
    let bytes = (0..words(part.width)).flat_map(|i| value.limbs().get(i).copied().unwrap_or(0).to_le_bytes());
    for (to, byte) in key.iter_mut().skip(part.at).take(part.bytes).zip(bytes) {
        *to = byte;
    }
}

fn exact_value<'e>(installed: &'e Installed, part: &KeyPart) -> Option<&'e Bits> {
    match condition(installed, part.key) {
        Some(KeyMatch::Exact(value) | KeyMatch::Prefix(value, _) | KeyMatch::Mask(value, _)) => Some(value),
        _ => None,
    }
}

fn exact_key(form: &TableForm, installed: &Installed) -> Vec<u8> {
    let mut key = vec![0; form.key_bytes];
    for part in &form.keys {
        if let Some(value) = exact_value(installed, part) {
            place(&mut key, part, value);
        }
    }
    key
}

fn trie_key(form: &TableForm, installed: &Installed) -> Vec<u8> {
    let mut key = exact_key(form, installed);
    let mut bits = 0;
    for part in &form.keys {
        if !part.prefix {
            bits += 8 * part.bytes as u32;
            continue;
        }
        let value = exact_value(installed, part).cloned().unwrap_or(Bits::zero(part.width));
        // In network order, at the left of whole bytes.
        let behind = 8 * part.bytes as u16 - part.width;
        let bytes = value.resize(part.width + behind).shl(behind.into()).to_bytes();
        for (to, byte) in key.iter_mut().skip(part.at).zip(bytes) {
            *to = byte;
        }
        bits += condition(installed, part.key).map_or(0, |is| u32::from(prefix_length(is)));
    }
    [&bits.to_ne_bytes()[..], &key].concat()
}

/// A mask, and a key under it.
pub(crate) type Masked = (Vec<u8>, Vec<u8>);

/// Masks and masked keys of an entry; several if it has ranges.
fn masked_keys(table: &Table, form: &TableForm, installed: &Installed) -> Result<Vec<Masked>, EntryError> {
    let mut all = vec![(vec![0; form.key_bytes], vec![0; form.key_bytes])];
    for part in &form.keys {
        let width = part.width;
        let parts = match condition(installed, part.key) {
            None => vec![(Bits::zero(width), Bits::zero(width))],
            Some(KeyMatch::Exact(value)) => vec![(Bits::ones(width), value.clone())],
            Some(KeyMatch::Prefix(value, len)) => vec![(prefix_mask(width, *len), value.clone())],
            Some(KeyMatch::Mask(value, mask)) => vec![(mask.clone(), value.clone())],
            Some(KeyMatch::Range(low, high)) => prefixes(low, high),
        };
        if all.len() * parts.len() > PREFIXES {
            return Err(EntryError::Ranges(table.name.clone()));
        }
        let mut longer = Vec::with_capacity(all.len() * parts.len());
        for (mask, key) in &all {
            for (part_mask, value) in &parts {
                let (mut mask, mut key) = (mask.clone(), key.clone());
                place(&mut mask, part, part_mask);
                place(&mut key, part, value);
                longer.push((mask, key));
            }
        }
        all = longer;
    }
    Ok(all)
}

fn prefix_mask(width: u16, len: u16) -> Bits {
    Bits::ones(width).shl(u64::from(width.saturating_sub(len)))
}

/// The prefixes that a range consists of, as masks and values: the fewest, at most twice the width.
fn prefixes(low: &Bits, high: &Bits) -> Vec<(Bits, Bits)> {
    let width = low.width();
    let one = Bits::from_u64(width, 1);
    let (mut prefixes, mut low) = (Vec::new(), low.clone());
    while low <= *high {
        // The largest block that begins here and does not go beyond the end.
        let mut free = 0;
        while free < width {
            let block = Bits::ones(width).shr(u64::from(width - free - 1));
            if !low.and(&block).is_zero() || low.or(&block) > *high {
                break;
            }
            free += 1;
        }
        let mask = prefix_mask(width, width - free);
        prefixes.push((mask.clone(), low.clone()));
        let end = low.or(&mask.not());
        if end == Bits::ones(width) {
            break;
        }
        low = end.add(&one);
    }
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_the_fewest_prefixes() {
        let range = |low, high| {
            let found = prefixes(&Bits::from_u64(8, low), &Bits::from_u64(8, high));
            found.iter().map(|(mask, value)| (mask.low_u64(), value.low_u64())).collect::<Vec<_>>()
        };
        assert_eq!(range(0, 255), [(0, 0)]);
        assert_eq!(range(7, 7), [(255, 7)]);
        assert_eq!(range(5, 9), [(255, 5), (254, 6), (254, 8)]);
        assert_eq!(range(9, 5), []);
        for (low, high) in [(1, 254), (3, 200), (128, 255), (0, 127), (254, 255)] {
            let found = range(low, high);
            for value in 0..=255 {
                let hits = found.iter().filter(|(mask, wanted)| value & mask == *wanted).count();
                assert_eq!(hits, usize::from((low..=high).contains(&value)), "{value} in {low}..={high}");
            }
        }
    }
}
