//! Tables, their entries, and the other objects that a control plane fills.

use super::{ActionCall, ActionId, Expr, HashKind, Item, ProfileId, Type};
use crate::bits::Bits;

/// How a key is matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchKind {
    /// Equal.
    Exact,
    /// Equal in the leading bits. At most one key of a table.
    Lpm,
    /// Equal under a mask.
    Ternary,
    /// Between two bounds.
    Range,
    /// Equal, or anything.
    Optional,
}

impl MatchKind {
    /// All kinds.
    pub const ALL: &[MatchKind] =
        &[MatchKind::Exact, MatchKind::Lpm, MatchKind::Ternary, MatchKind::Range, MatchKind::Optional];

    /// Name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            MatchKind::Exact => "exact",
            MatchKind::Lpm => "lpm",
            MatchKind::Ternary => "ternary",
            MatchKind::Range => "range",
            MatchKind::Optional => "optional",
        }
    }
}

/// A key of a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Name.
    pub name: String,
    /// Value.
    pub value: Expr,
    /// How it is matched.
    pub kind: MatchKind,
}

/// A table.
///
/// Of the entries that match, the one with the highest priority is hit; of equal priorities the one with the longest
/// prefix; of equal prefixes the one inserted first. Only tables with ternary, range or optional keys have priorities
/// ([`Table::has_priority`]); in others all are 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Table {
    /// Name.
    pub name: String,
    /// Keys.
    pub keys: Vec<Key>,
    /// Actions that entries may have.
    pub actions: Vec<ActionId>,
    /// Actions that only the default may have.
    pub default_only: Vec<ActionId>,
    /// Whether entries may also have actions that were defined at run time.
    pub open: bool,
    /// What runs on a miss, until the control plane changes it.
    pub default: Option<ActionCall>,
    /// Whether the default is fixed.
    pub const_default: bool,
    /// Entries at the start.
    pub entries: Vec<Entry>,
    /// Whether entries are fixed.
    pub const_entries: bool,
    /// Most entries.
    pub size: u32,
    /// What each entry counts; counted on every hit.
    pub counter: Option<CounterKind>,
    /// Unit of each entry's meter.
    pub meter: Option<MeterUnit>,
    /// Whether entries may have timeouts; hits are then timed.
    pub timeouts: bool,
    /// Where actions come from, if not from the entry itself.
    pub profile: Option<ProfileId>,
    /// Whether the table belongs to the CPU: offloads leave packets that reach it to the CPU.
    pub cpu: bool,
}

impl Table {
    /// Whether entries have priorities.
    pub fn has_priority(&self) -> bool {
        let needs = |key: &Key| !matches!(key.kind, MatchKind::Exact | MatchKind::Lpm);
        self.keys.iter().any(needs)
    }
}

/// A condition on one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeyMatch {
    /// Equal: for exact and optional keys.
    Exact(Bits),
    /// Equal in so many leading bits; the others are zero.
    Prefix(Bits, u16),
    /// Equal under the mask; bits outside of it are zero.
    Mask(Bits, Bits),
    /// Between bounds, both included.
    Range(Bits, Bits),
}

/// A condition with the key that it is on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Match {
    /// Index of the key.
    pub key: u32,
    /// Condition.
    pub is: KeyMatch,
}

/// Conditions of an entry: all who keep the entry share them.
pub type Matches = std::sync::Arc<[Match]>;

/// An entry, as the control plane gives it.
///
/// Conditions are in the order of the keys, and keys without a condition match anything: a table may have many keys of
/// which an entry uses few. Exact keys must have one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Conditions.
    pub matches: Matches,
    /// Priority; the larger wins.
    pub priority: u32,
    /// What it does.
    pub result: EntryResult,
    /// Seconds without a hit after which it expires; 0: never.
    pub idle: u32,
    /// Seconds after insertion after which it expires; 0: never.
    pub hard: u32,
    /// Data of the control plane.
    pub cookie: u64,
}

/// What an entry does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EntryResult {
    /// Runs an action.
    Action(ActionCall),
    /// Runs the action of a member of the table's profile.
    Member(u32),
    /// Runs the action of a member that the profile's selector chooses from a group.
    Group(u32),
}

/// What a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CounterKind {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
    /// Both.
    Both,
}

/// An array of counters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Counter {
    /// Name.
    pub name: String,
    /// Cells.
    pub size: u32,
    /// What they count.
    pub kind: CounterKind,
}

/// What a meter's rates are in, per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MeterUnit {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
}

/// An array of meters, each configured at run time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Meter {
    /// Name.
    pub name: String,
    /// Cells.
    pub size: u32,
    /// Unit.
    pub unit: MeterUnit,
}

/// An array of registers, zero at the start.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Register {
    /// Name.
    pub name: String,
    /// Cells.
    pub size: u32,
    /// Type of a cell.
    pub ty: Type,
}

/// Direction of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// A value for the function.
    In,
    /// A result.
    Out,
}

/// A function of the environment, found by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Extern {
    /// Name.
    pub name: String,
    /// Parameters.
    pub params: Vec<(Direction, Type)>,
}

/// A kind of digest: its values' types.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Digest {
    /// Name.
    pub name: String,
    /// Types.
    pub types: Vec<Type>,
}

/// A parser's value set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ValueSet {
    /// Name.
    pub name: String,
    /// Types of a tuple.
    pub types: Vec<Type>,
    /// Most tuples.
    pub size: u32,
}

/// How one of several alternatives is chosen: by a hash, whose value modulo the live alternatives' total weight is
/// located in their cumulated weights.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Hash.
    pub hash: HashKind,
    /// Its input.
    pub input: Vec<Item>,
}

/// An action profile: members, which are actions with arguments, and groups of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Profile {
    /// Name.
    pub name: String,
    /// Actions that members may have.
    pub actions: Vec<ActionId>,
    /// Most members, and most groups.
    pub size: u32,
    /// How groups choose; without it there are no groups.
    pub select: Option<Selection>,
}

/// A table of groups, which are lists of buckets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupTable {
    /// Name.
    pub name: String,
    /// Most groups.
    pub size: u32,
    /// How selecting groups choose.
    pub select: Selection,
}

impl KeyMatch {
    /// Whether a value fulfils the condition.
    pub fn contains(&self, value: &Bits) -> bool {
        match self {
            KeyMatch::Exact(wanted) => value == wanted,
            KeyMatch::Prefix(wanted, len) => {
                value.and(&crate::validate::entry::prefix_mask(value.width(), *len)) == *wanted
            }
            KeyMatch::Mask(wanted, mask) => value.and(mask) == *wanted,
            KeyMatch::Range(low, high) => low <= value && value <= high,
        }
    }

    /// Whether the condition is on values of this width.
    pub fn fits(&self, width: u16) -> bool {
        match self {
            KeyMatch::Exact(a) => a.width() == width,
            KeyMatch::Prefix(a, len) => a.width() == width && *len <= width,
            KeyMatch::Mask(a, b) | KeyMatch::Range(a, b) => a.width() == width && b.width() == width,
        }
    }
}
