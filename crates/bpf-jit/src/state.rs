//! What a path knows at a step: contents of registers, bytes that are there, and values in the packet.
//!
//! Invariants: everything in a state is true of every packet that reaches the step by a path with that state. A value
//! that reads the packet is in a state only if the path has checked that its bytes are there: so it may be read again.

use packet::bpf::{SCRATCH, Size, Test};

use crate::knowledge::Knowledge;
use crate::outlook::{A, Outlook, Place, X, scratch};

/// Most values that a path knows something about.
const MOST_KNOWN: usize = 12;

/// A register's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Value {
    /// It is not read any more.
    Dead,
    /// In the register's variable.
    Computed,
    Constant(u32),
    /// The length of the packet.
    Length,
    /// The packet's bytes at an offset.
    Load(Size, u32),
    /// The length of the IPv4 header at an offset: at most 60.
    HeaderLength(u32),
    /// The packet's bytes at an offset, added to the length of the header at another offset.
    Behind(Size, u32, u32),
}

impl Value {
    /// What is known of it without any comparison; `None` if nothing is to be known.
    fn knowledge(self) -> Option<Knowledge> {
        Some(match self {
            Self::Load(size, _) | Self::Behind(size, ..) => Knowledge::of(size),
            Self::Length => Knowledge::of(Size::Word),
            Self::HeaderLength(_) => Knowledge::of(Size::Byte),
            Self::Dead | Self::Computed | Self::Constant(_) => return None,
        })
    }
}

/// What a path knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) a: Value,
    pub(crate) x: Value,
    pub(crate) scratch: [Value; SCRATCH],
    /// Bytes from the start of the packet that are there.
    pub(crate) checked: u32,
    /// Bytes that are there, added to the length of the header at an offset: the offset, and the number.
    pub(crate) behind: Option<(u32, u32)>,
    /// What comparisons have said, in ascending order of the values.
    known: Vec<(Value, Knowledge)>,
}

impl State {
    /// At the start of a list, with `checked` bytes that are there.
    pub(crate) fn new(checked: u32) -> Self {
        let zero = Value::Constant(0);
        Self { a: zero, x: zero, scratch: [zero; SCRATCH], checked, behind: None, known: vec![] }
    }

    /// At the start of the next program: registers are zero again.
    pub(crate) fn next_program(mut self) -> Self {
        let State { a, x, scratch, .. } = State::new(0);
        (self.a, self.x, self.scratch) = (a, x, scratch);
        self
    }

    /// Returns the outcome of a comparison of A, if it is known.
    pub(crate) fn decides(&self, test: Test, with: u32) -> Option<bool> {
        if let Value::Constant(a) = self.a {
            return Some(test.holds(a, with));
        }
        match self.known.iter().find(|(value, _)| *value == self.a) {
            Some((_, known)) => known.decides(test, with),
            None => self.a.knowledge()?.decides(test, with),
        }
    }

    /// Returns what is known if a comparison of A has this outcome.
    pub(crate) fn learned(&self, test: Test, with: u32, holds: bool) -> Self {
        let mut state = self.clone();
        match state.known.binary_search_by_key(&self.a, |(value, _)| *value) {
            Ok(at) => {
                if let Some((_, known)) = state.known.get_mut(at) {
                    known.learn(test, with, holds);
                }
            }
            Err(at) => {
                if let Some(mut known) = self.a.knowledge().filter(|_| state.known.len() < MOST_KNOWN) {
                    known.learn(test, with, holds);
                    state.known.insert(at, (self.a, known));
                }
            }
        }
        state
    }

    /// Registers with their bits.
    pub(crate) fn registers(&mut self) -> impl Iterator<Item = (u32, &mut Value)> {
        let scratch = self.scratch.iter_mut().enumerate().map(|(word, value)| (scratch(word), value));
        [(A, &mut self.a), (X, &mut self.x)].into_iter().chain(scratch)
    }

    /// Forgets what the rest of the list does not need.
    pub(crate) fn forget(mut self, outlook: &Outlook, place: Place) -> Self {
        let live = outlook.live(place);
        for (bit, value) in self.registers() {
            if live & bit == 0 {
                *value = Value::Dead;
            }
        }
        let held: Vec<Value> = self.registers().map(|(_, value)| *value).collect();
        let held = |value: Value| held.contains(&value);
        self.checked = self.checked.min(outlook.reads(place));
        let has_base =
            |base: u32| outlook.loads_header_length(place, base) || held(Value::HeaderLength(base));
        self.behind = self.behind.filter(|(base, _)| outlook.loads_indexed(place) && has_base(*base));
        self.known.retain(|(value, _)| {
            held(*value)
                || match *value {
                    Value::Load(size, offset) => outlook.loads(place, size, offset, false),
                    Value::Behind(size, offset, base) => {
                        outlook.loads(place, size, offset, true) && has_base(base)
                    }
                    Value::HeaderLength(offset) => outlook.loads_header_length(place, offset),
                    Value::Length => outlook.loads_length(place),
                    Value::Dead | Value::Computed | Value::Constant(_) => false,
                }
        });
        self
    }

    /// Forgets everything. Registers that are still read must be in their variables.
    pub(crate) fn forget_all(mut self) -> Self {
        for (_, value) in self.registers().filter(|(_, value)| **value != Value::Dead) {
            *value = Value::Computed;
        }
        (self.checked, self.behind) = (0, None);
        self.known.clear();
        self
    }
}
