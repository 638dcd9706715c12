//! Entries and action calls: those of the program, and those that a control plane adds.

use crate::bits::Bits;
use crate::ir::{
    Action, ActionCall, ActionId, Entry, EntryResult, KeyMatch, MatchKind, Program, Table, Type,
};

/// Reasons to refuse an entry or an action call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// No such key, or conditions that are not in the keys' order.
    #[error("key {0} does not exist or is out of order")]
    Key(u32),
    /// A condition that the key's kind does not have.
    #[error("key {key} is matched {kind}, which the condition does not fit")]
    Kind {
        /// Name of the key.
        key: String,
        /// Its kind.
        kind: &'static str,
    },
    /// A value of the wrong width.
    #[error("key {key} has {expected} bits, and the condition {found}")]
    Width {
        /// Name of the key.
        key: String,
        /// Its width.
        expected: u16,
        /// The condition's.
        found: u16,
    },
    /// A value with bits outside of its mask or prefix, a prefix that is too long, a range whose start is behind its
    /// end.
    #[error("the condition on key {0} is not in normal form")]
    NotNormal(String),
    /// An exact key without a condition.
    #[error("key {0} is matched exactly and has no condition")]
    Missing(String),
    /// A priority in a table without priorities.
    #[error("the table's entries have no priorities, found {0}")]
    Priority(u32),
    /// A timeout in a table without timeouts.
    #[error("the table's entries have no timeouts")]
    Timeout,
    /// An action that does not exist or that the table does not permit.
    #[error("action {0} does not exist or is not permitted here")]
    Action(u32),
    /// The wrong number of arguments.
    #[error("action {action} takes {expected} arguments, not {found}")]
    Arguments {
        /// Name of the action.
        action: String,
        /// Parameters.
        expected: usize,
        /// Arguments.
        found: usize,
    },
    /// An argument of the wrong type.
    #[error("argument {index} of action {action} has the wrong type")]
    Argument {
        /// Name of the action.
        action: String,
        /// Index of the argument.
        index: usize,
    },
    /// A member or group in a table without a profile, or an action in a table with one.
    #[error("entries of this table {}", if *.0 { "refer to its profile" } else { "have actions of their own" })]
    Result(bool),
}

/// Checks an entry against its table. `action` finds an action that exists.
pub(crate) fn check<'a>(
    program: &Program,
    table: &Table,
    entry: &Entry,
    action: impl Fn(ActionId) -> Option<&'a Action>,
) -> Result<(), EntryError> {
    let mut next = 0;
    for condition in entry.matches.iter() {
        let key = table.keys.get(condition.key as usize).filter(|_| condition.key >= next);
        let key = key.ok_or(EntryError::Key(condition.key))?;
        next = condition.key + 1;
        let expected = super::expr_type(program, &key.value).map_or(0, Type::width);
        let found = match &condition.is {
            KeyMatch::Exact(value) | KeyMatch::Prefix(value, _) => [value.width(); 2],
            KeyMatch::Mask(a, b) | KeyMatch::Range(a, b) => [a.width(), b.width()],
        };
        if let Some(found) = found.into_iter().find(|found| *found != expected) {
            return Err(EntryError::Width { key: key.name.clone(), expected, found });
        }
        let normal = match (&condition.is, key.kind) {
            (KeyMatch::Exact(_), MatchKind::Exact | MatchKind::Optional) => true,
            (KeyMatch::Prefix(value, len), MatchKind::Lpm) => {
                *len <= expected && value.and(&prefix_mask(expected, *len)) == *value
            }
            (KeyMatch::Mask(value, mask), MatchKind::Ternary) => value.and(mask) == *value,
            (KeyMatch::Range(low, high), MatchKind::Range) => low <= high,
            (_, kind) => return Err(EntryError::Kind { key: key.name.clone(), kind: kind.name() }),
        };
        if !normal {
            return Err(EntryError::NotNormal(key.name.clone()));
        }
    }
    for (i, key) in table.keys.iter().enumerate() {
        let has = || entry.matches.iter().any(|condition| condition.key as usize == i);
        if key.kind == MatchKind::Exact && !has() {
            return Err(EntryError::Missing(key.name.clone()));
        }
    }
    if entry.priority != 0 && !table.has_priority() {
        return Err(EntryError::Priority(entry.priority));
    }
    if (entry.idle != 0 || entry.hard != 0) && !table.timeouts {
        return Err(EntryError::Timeout);
    }
    match &entry.result {
        EntryResult::Action(call) if table.profile.is_none() => {
            let own = call.action.index() < program.actions.len();
            if !(table.actions.contains(&call.action) || table.open && !own) {
                return Err(EntryError::Action(call.action.0));
            }
            check_call(call, action)
        }
        EntryResult::Member(_) | EntryResult::Group(_) if table.profile.is_some() => Ok(()),
        _ => Err(EntryError::Result(table.profile.is_some())),
    }
}

/// Checks that an action exists and that the arguments fit it.
pub(crate) fn check_call<'a>(
    call: &ActionCall,
    action: impl Fn(ActionId) -> Option<&'a Action>,
) -> Result<(), EntryError> {
    let action = action(call.action).ok_or(EntryError::Action(call.action.0))?;
    let (expected, found) = (action.params.len(), call.args.len());
    if expected != found {
        return Err(EntryError::Arguments { action: action.name.clone(), expected, found });
    }
    let wrong = action
        .params
        .iter()
        .zip(call.args.iter())
        .position(|(param, arg)| param.ty != arg.ty || arg.value.width() != param.ty.width());
    match wrong {
        Some(index) => Err(EntryError::Argument { action: action.name.clone(), index }),
        None => Ok(()),
    }
}

/// The mask of a prefix.
pub(crate) fn prefix_mask(width: u16, len: u16) -> Bits {
    Bits::ones(width).shl(u64::from(width.saturating_sub(len)))
}
