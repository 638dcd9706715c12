//! What the rest of a list may still need, at each of its steps. States that differ in other things are the same.

use std::collections::HashMap;

use packet::bpf::{Operand, Program, Size, Step};

/// A step: the number of its program, and its own in that program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) program: u32,
    pub(crate) step: u32,
}

impl Place {
    /// The first step of a program.
    pub(crate) fn first(program: u32) -> Self {
        Self { program, step: 0 }
    }

    /// The step after this one, with `skipped` steps between.
    pub(crate) fn after(self, skipped: usize) -> Self {
        Self { step: self.step.saturating_add(1).saturating_add(skipped as u32), ..self }
    }
}

/// Registers, as bits: A, X, then words of scratch memory.
pub(crate) const A: u32 = 1;
pub(crate) const X: u32 = 2;
pub(crate) const fn scratch(word: usize) -> u32 {
    4 << word
}

/// Analysis of a list. Steps are numbered throughout.
#[derive(Debug)]
pub(crate) struct Outlook {
    /// Number of each program's first step, and of the end.
    first: Vec<usize>,
    /// Registers that are read before they are written, before each step.
    live: Vec<u32>,
    /// Bytes that loads at constant offsets read, from each step on.
    reads: Vec<u32>,
    /// Whether a jump leads to the step.
    targets: Vec<bool>,
    /// The last load of each form: width, offset, whether X is added.
    last_load: HashMap<(Size, u32, bool), usize>,
    /// The last load of a length of a header at each offset.
    last_header: HashMap<u32, usize>,
    last_indexed: usize,
    last_length: usize,
    /// The largest end of a load that adds X.
    reads_behind: u32,
}

impl Outlook {
    pub(crate) fn of(programs: &[Program]) -> Self {
        let mut first = vec![0];
        for program in programs {
            first.push(first.last().copied().unwrap_or(0) + program.steps().len());
        }
        let total = first.last().copied().unwrap_or(0);
        let mut outlook = Self {
            live: vec![0; total + 1],
            reads: vec![0; total + 1],
            targets: vec![false; total + 1],
            last_load: HashMap::new(),
            last_header: HashMap::new(),
            last_indexed: 0,
            last_length: 0,
            reads_behind: 0,
            first,
        };
        for (program, start) in programs.iter().zip(outlook.first.clone()) {
            outlook.read_forward(program, start);
        }
        for (program, start) in programs.iter().zip(outlook.first.clone()).rev() {
            outlook.read_backward(program, start);
        }
        outlook
    }

    fn read_forward(&mut self, program: &Program, start: usize) {
        let mark = |targets: &mut Vec<bool>, at: usize| {
            if let Some(target) = targets.get_mut(at) {
                *target = true;
            }
        };
        mark(&mut self.targets, start);
        for (number, step) in (start..).zip(program.steps()) {
            match *step {
                Step::Load { size, offset, indexed } => {
                    self.last_load.insert((size, offset, indexed), number);
                    if indexed {
                        self.last_indexed = number;
                        self.reads_behind = self.reads_behind.max(offset.saturating_add(size.bytes()));
                    }
                }
                Step::IndexHeaderLength(offset) => _ = self.last_header.insert(offset, number),
                Step::LoadLength | Step::IndexLength => self.last_length = number,
                Step::Jump(skip) => mark(&mut self.targets, number + 1 + skip),
                Step::Branch { then, otherwise, .. } => {
                    mark(&mut self.targets, number + 1 + then);
                    mark(&mut self.targets, number + 1 + otherwise);
                }
                _ => {}
            }
        }
    }

    fn read_backward(&mut self, program: &Program, start: usize) {
        let end = start + program.steps().len();
        let live_at = |live: &[u32], at: usize| live.get(at).copied().unwrap_or(0);
        for (number, step) in (start..end).zip(program.steps()).rev() {
            let next = |skip: usize| {
                if number + 1 + skip < end { live_at(&self.live, number + 1 + skip) } else { 0 }
            };
            let after = next(0);
            let of = |operand: Operand| if operand == Operand::X { X } else { 0 };
            let live = match *step {
                Step::Load { indexed, .. } => after & !A | if indexed { X } else { 0 },
                Step::LoadConstant(_) | Step::LoadLength => after & !A,
                Step::LoadScratch(word) => after & !A | scratch(word),
                Step::IndexConstant(_) | Step::IndexLength | Step::IndexHeaderLength(_) => after & !X,
                Step::IndexScratch(word) => after & !X | scratch(word),
                Step::Store(word) => after & !scratch(word) | A,
                Step::StoreIndex(word) => after & !scratch(word) | X,
                Step::Compute(_, operand) => after | A | of(operand),
                Step::Negate => after | A,
                Step::Jump(skip) => next(skip),
                Step::Branch { operand, then, otherwise, .. } => {
                    next(then) | next(otherwise) | A | of(operand)
                }
                Step::ReturnConstant(_) => 0,
                Step::ReturnAccumulator => A,
                Step::IndexFromAccumulator => after & !X | A,
                Step::AccumulatorFromIndex => after & !A | X,
            };
            let end_of_load = match *step {
                Step::Load { size, offset, indexed: false } => offset.saturating_add(size.bytes()),
                Step::IndexHeaderLength(offset) => offset.saturating_add(1),
                _ => 0,
            };
            let reads = self.reads.get(number + 1).copied().unwrap_or(0).max(end_of_load);
            if let (Some(place), Some(read)) = (self.live.get_mut(number), self.reads.get_mut(number)) {
                (*place, *read) = (live, reads);
            }
        }
    }

    fn number(&self, place: Place) -> usize {
        self.first.get(place.program as usize).copied().unwrap_or(0) + place.step as usize
    }

    /// Registers whose values may still be read in their program.
    pub(crate) fn live(&self, place: Place) -> u32 {
        self.live.get(self.number(place)).copied().unwrap_or(0)
    }

    /// Bytes from the start of a packet that loads at constant offsets may still read.
    pub(crate) fn reads(&self, place: Place) -> u32 {
        self.reads.get(self.number(place)).copied().unwrap_or(0)
    }

    /// Bytes that loads behind X may read.
    pub(crate) fn reads_behind(&self) -> u32 {
        self.reads_behind
    }

    /// Whether paths may meet at this step.
    pub(crate) fn is_target(&self, place: Place) -> bool {
        self.targets.get(self.number(place)).copied().unwrap_or(true)
    }

    /// Whether a load of this form may still come.
    pub(crate) fn loads(&self, place: Place, size: Size, offset: u32, indexed: bool) -> bool {
        self.last_load.get(&(size, offset, indexed)).is_some_and(|last| *last >= self.number(place))
    }

    /// Whether the length of the packet may still be loaded.
    pub(crate) fn loads_length(&self, place: Place) -> bool {
        self.last_length >= self.number(place)
    }

    /// Whether the length of the header at this offset may still be loaded.
    pub(crate) fn loads_header_length(&self, place: Place, offset: u32) -> bool {
        self.last_header.get(&offset).is_some_and(|last| *last >= self.number(place))
    }

    /// Whether a load that adds X may still come.
    pub(crate) fn loads_indexed(&self, place: Place) -> bool {
        self.last_indexed >= self.number(place)
    }
}
