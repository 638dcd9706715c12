//! The frame: memory in which generated code keeps a packet's headers and variables.
//!
//! A frame is an array of 64-bit words: control words at fixed places, for each table the entry hit last, then the
//! *data*, which a copy of this range is a snapshot of: whether something has changed the packet, variables, headers,
//! stacks and their next elements. All offsets are bytes from the frame's start and follow from the program alone or, in
//! specialised code, from it and from what it reads: nothing else has a place.
//!
//! A variable is its limbs, least significant first. A header is a *blob*: a word that says whether it is valid, its
//! fixed fields in wire order, then for a variable field its length in bits and its bytes. So extracting and emitting a
//! header are copies, and a field that no statement needs is never taken out of its bytes.
//!
//! Invariants: blobs of one type have one size, and a stack's elements follow one another; a blob of zeros is an
//! invalid header of zeros; behind the fixed fields there are at least 8 further bytes of the blob, so that any field
//! can be read and written by 64-bit accesses.

use std::collections::BTreeSet;

use pipeline::ir::{FieldType, HeaderId, HeaderPlace, Program, StackId, TableId, VarId};

use crate::special::Reads;

/// Control words.
pub(crate) mod word {
    /// Address of the runtime's [`crate::runtime::Machine`].
    pub(crate) const MACHINE: usize = 0;
    /// Address of the bytes that a parser sees.
    pub(crate) const WINDOW: usize = 1;
    /// Their number.
    pub(crate) const WINDOW_LEN: usize = 2;
    /// Parser error that an expression met, or 0.
    pub(crate) const FAULT: usize = 3;
    /// Steps counted.
    pub(crate) const STEPS: usize = 4;
    /// Bytes consumed when a parser ended.
    pub(crate) const AT: usize = 5;
    /// Its error.
    pub(crate) const ERROR: usize = 6;
    /// Address of the blocks' code addresses.
    pub(crate) const BLOCKS: usize = 7;
    /// Address of the actions' code addresses, in specialised code.
    pub(crate) const ACTIONS: usize = 8;
    /// Whether the elements of a stack have perhaps been written since the data was cleared.
    pub(crate) const TOUCHED: usize = 9;
    /// Number of the stage that the packet is in.
    pub(crate) const STAGE: usize = 10;
    /// Whether something has become of the packet in this stage.
    pub(crate) const SENT: usize = 11;
    /// Whether the packet's way follows from more than the entry and the port that it is remembered for.
    pub(crate) const UNDECIDED: usize = 12;
    /// Whether its way follows from more than its flow key, the ingress port and the entries hit.
    pub(crate) const UNKEYED: usize = 13;
    /// First of the entries hit, one for each table.
    pub(crate) const HITS: usize = 14;
}

/// Bytes that every frame has at least, so that reads of a value of any width stay inside.
const SMALLEST: usize = 512;

/// A field in its header's blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldLayout {
    /// A value: its first bit among the fixed fields, and its width.
    Fixed(u32, u16),
    /// The variable field.
    Varbit,
}

/// The variable field of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Varbit {
    /// Bits of fixed fields in front of it.
    pub(crate) at: u32,
    /// Most bits.
    pub(crate) max: u16,
    /// Offset of its length in the blob; its bytes follow.
    pub(crate) len: i32,
}

/// A header type's blob.
#[derive(Debug, Clone)]
pub(crate) struct TypeLayout {
    /// Bytes of the fixed fields.
    pub(crate) fixed: usize,
    /// Fields.
    pub(crate) fields: Vec<FieldLayout>,
    /// The variable field.
    pub(crate) varbit: Option<Varbit>,
    /// Bytes.
    pub(crate) size: i32,
}

/// Offset of the fixed fields in a blob; the word in front says whether the header is valid.
pub(crate) const FIXED: i32 = 8;

/// Offsets of everything in a frame.
#[derive(Debug)]
pub(crate) struct Layout {
    types: Vec<TypeLayout>,
    /// Offset and type of each header.
    headers: Vec<(i32, usize)>,
    vars: Vec<i32>,
    next: Vec<i32>,
    hits: Vec<i32>,
    /// First byte of the data.
    pub(crate) data: i32,
    /// Bytes of the variables, with which the data begins.
    pub(crate) vars_end: i32,
    /// End of variables and single headers: the stacks, which few packets have, follow.
    pub(crate) stacks: i32,
    /// End of the data.
    pub(crate) end: i32,
    /// Bytes of the frame.
    pub(crate) size: usize,
}

impl Layout {
    /// The layout of a program's frame; `None` if it exceeds 2^24 bytes.
    pub(crate) fn new(program: &Program) -> Option<Self> {
        Self::of(program, None)
    }

    /// The layout of what is read, with the tables that are looked up.
    pub(crate) fn of(program: &Program, only: Option<(&Reads, &BTreeSet<TableId>)>) -> Option<Self> {
        let is_read = |id| only.is_none_or(|(reads, _)| reads.var(id));
        let has_place = |id| only.is_none_or(|(reads, _)| reads.header(id));
        let types: Vec<_> = program.header_types.iter().map(|ty| type_layout(&ty.fields)).collect();
        let mut at = word::HITS * 8;
        let mut hits = Vec::new();
        for i in 0..program.tables.len() {
            hits.push(i32::try_from(at).ok()?);
            at += if only.is_none_or(|(_, tables)| tables.contains(&TableId::at(i))) { 8 } else { 0 };
        }
        // Of tables that are never looked up, the last ones have no place of their own.
        at += 8;
        let data = at;
        at += 8;
        let mut vars = Vec::new();
        for (i, var) in program.vars.iter().enumerate() {
            vars.push(i32::try_from(at).ok()?);
            if !is_read(VarId::at(i)) {
                continue;
            }
            at += usize::from(var.ty.width().div_ceil(64)) * 8;
        }
        let vars_end = at;
        let mut headers: Vec<_> = program.headers.iter().map(|header| (0, header.ty.index())).collect();
        let mut stacks = at;
        for elements in [false, true] {
            if elements {
                stacks = at;
            }
            for (i, (header, slot)) in program.headers.iter().zip(&mut headers).enumerate() {
                let is_element = matches!(header.place, HeaderPlace::Element(..));
                if is_element == elements {
                    slot.0 = i32::try_from(at).ok()?;
                    let size = types.get(header.ty.index()).map_or(0, |ty| ty.size as usize);
                    at += if has_place(HeaderId::at(i)) { size } else { 0 };
                }
            }
        }
        let mut next = Vec::new();
        for _ in &program.stacks {
            next.push(i32::try_from(at).ok()?);
            at += 8;
        }
        let largest = types.iter().map(|ty| ty.size as usize).max().unwrap_or(0);
        let offset = |at: usize| i32::try_from(at).ok().filter(|at| *at < 1 << 24);
        Some(Self {
            types,
            headers,
            vars,
            next,
            hits,
            data: offset(data)?,
            vars_end: offset(vars_end)?,
            stacks: offset(stacks)?,
            end: offset(at)?,
            // What has no place of its own must not reach beyond the frame either.
            size: at.max(SMALLEST) + if only.is_some() { largest.max(SMALLEST) } else { 0 },
        })
    }

    /// Offset of a variable.
    pub(crate) fn var(&self, id: VarId) -> i32 {
        self.vars.get(id.index()).copied().unwrap_or(self.data)
    }

    /// Offset of a header's blob.
    pub(crate) fn header(&self, id: HeaderId) -> i32 {
        self.headers.get(id.index()).map_or(self.data, |(at, _)| *at)
    }

    /// Blob of a header.
    pub(crate) fn header_type(&self, id: HeaderId) -> Option<&TypeLayout> {
        self.types.get(self.headers.get(id.index())?.1)
    }

    /// Number of headers.
    pub(crate) fn headers(&self) -> usize {
        self.headers.len()
    }

    /// Offset of the number of a stack's next element.
    pub(crate) fn next(&self, id: StackId) -> i32 {
        self.next.get(id.index()).copied().unwrap_or(self.data)
    }

    /// Offset of the address of the entry that a table hit last.
    pub(crate) fn hit(&self, id: TableId) -> i32 {
        self.hits.get(id.index()).copied().unwrap_or((word::HITS * 8) as i32)
    }

    /// Offset of the word that says whether something has changed the packet.
    pub(crate) fn changed(&self) -> i32 {
        self.data
    }
}

fn type_layout(fields: &[pipeline::ir::Field]) -> TypeLayout {
    let (mut bits, mut varbit, mut placed) = (0u32, None, Vec::new());
    for field in fields {
        match field.ty {
            FieldType::Scalar(ty) => {
                placed.push(FieldLayout::Fixed(bits, ty.width()));
                bits += u32::from(ty.width());
            }
            FieldType::Varbit(max) => {
                placed.push(FieldLayout::Varbit);
                varbit = Some((bits, max));
            }
        }
    }
    let fixed = bits.div_ceil(8) as usize;
    let len = FIXED as usize + (fixed + 8).next_multiple_of(8);
    let var_bytes = varbit.map_or(0, |(_, max)| 8 + usize::from(max.div_ceil(8)).next_multiple_of(8) + 8);
    TypeLayout {
        fixed,
        fields: placed,
        varbit: varbit.map(|(at, max)| Varbit { at, max, len: len as i32 }),
        size: (len + var_bytes) as i32,
    }
}
