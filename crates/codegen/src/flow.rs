//! How functions of generated code end, as a number: the tag in the low byte, what belongs to it above.

use pipeline::interp::{Dropped, Limit};
use pipeline::ir::{ExternId, ReasonId};

/// At the end of the statements.
pub(crate) const NEXT: i64 = 0;
/// By `exit`.
pub(crate) const EXIT: i64 = 1;
/// The pass is over: dropped.
pub(crate) const DROP: i64 = 2;
/// By `goto`: the block from bit 16 on.
pub(crate) const GOTO: i64 = 3;

/// Of a preparation: the key of the first lookup is laid out; the table from bit 16 on.
pub(crate) const LOOKUP: i64 = 4;

/// The first stage of specialised code ends; the packet continues in the second.
pub(crate) const ON: i64 = 5;

const REASON: i64 = 0;
const LIMIT: i64 = 1;
const NO_EXTERN: i64 = 2;

const LIMITS: [Limit; 6] =
    [Limit::Steps, Limit::Depth, Limit::Headers, Limit::Passes, Limit::Rounds, Limit::Effects];

/// The number of a drop. Passes that end without a destination do not come from code.
pub(crate) fn drop_code(reason: Dropped) -> i64 {
    let (kind, id) = match reason {
        Dropped::Reason(id) => (REASON, id.0),
        Dropped::Limit(limit) => (LIMIT, LIMITS.iter().position(|l| *l == limit).unwrap_or(0) as u32),
        Dropped::NoExtern(id) => (NO_EXTERN, id.0),
        Dropped::NoDestination => (LIMIT, 0),
    };
    DROP | kind << 8 | i64::from(id) << 16
}

/// The drop that a number means, if it means one.
pub(crate) fn dropped(code: i64) -> Option<Dropped> {
    if code & 0xff != DROP {
        return None;
    }
    let id = (code >> 16) as u32;
    Some(match code >> 8 & 0xff {
        REASON => Dropped::Reason(ReasonId(id)),
        NO_EXTERN => Dropped::NoExtern(ExternId(id)),
        _ => Dropped::Limit(LIMITS.get(id as usize).copied().unwrap_or(Limit::Steps)),
    })
}

/// The table whose key a preparation has laid out.
pub(crate) fn lookup(code: i64) -> Option<pipeline::ir::TableId> {
    (code & 0xff == LOOKUP).then_some(pipeline::ir::TableId((code >> 16) as u32))
}

/// The block that a number leads to, if it means `goto`.
pub(crate) fn goto(code: i64) -> Option<pipeline::ir::BlockId> {
    (code & 0xff == GOTO).then_some(pipeline::ir::BlockId((code >> 16) as u32))
}
