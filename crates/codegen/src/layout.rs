//! The frame: memory in which generated code keeps a packet's headers and variables.
//!
//! A frame is an array of 64-bit words: control words at fixed places, for each table the entry hit last, then the
//! *data*, which a copy of this range is a snapshot of: variables, headers, the stacks' next elements. All offsets are
//! bytes from the frame's start and follow from the program alone.
//!
//! A variable is its limbs, least significant first. A header is a *blob*: a word that says whether it is valid, its
//! fixed fields in wire order, then for a variable field its length in bits and its bytes. So extracting and emitting a
//! header are copies, and a field that no statement needs is never taken out of its bytes.
//!
//! Invariants: blobs of one type have one size, and a stack's elements follow one another; a blob of zeros is an
//! invalid header of zeros; behind the fixed fields there are at least 8 further bytes of the blob, so that any field
//! can be read and written by 64-bit accesses.

use pipeline::ir::{FieldType, HeaderId, Program, StackId, TableId, VarId};

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
    /// First of the entries hit, one for each table.
    pub(crate) const HITS: usize = 8;
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
    /// First byte of the data.
    pub(crate) data: i32,
    /// Bytes of the variables, with which the data begins.
    pub(crate) vars_end: i32,
    /// End of the data.
    pub(crate) end: i32,
    /// Bytes of the frame.
    pub(crate) size: usize,
}

impl Layout {
    /// The layout of a program's frame; `None` if it exceeds 2^24 bytes.
    pub(crate) fn new(program: &Program) -> Option<Self> {
        let types: Vec<_> = program.header_types.iter().map(|ty| type_layout(&ty.fields)).collect();
        let mut at = (word::HITS + program.tables.len()) * 8;
        let data = at;
        let mut vars = Vec::new();
        for var in &program.vars {
            vars.push(i32::try_from(at).ok()?);
            at += usize::from(var.ty.width().div_ceil(64)) * 8;
        }
        let vars_end = at;
        let mut headers = Vec::new();
        for header in &program.headers {
            headers.push((i32::try_from(at).ok()?, header.ty.index()));
            at += types.get(header.ty.index()).map_or(0, |ty| ty.size as usize);
        }
        let mut next = Vec::new();
        for _ in &program.stacks {
            next.push(i32::try_from(at).ok()?);
            at += 8;
        }
        let offset = |at: usize| i32::try_from(at).ok().filter(|at| *at < 1 << 24);
        Some(Self {
            types,
            headers,
            vars,
            next,
            data: offset(data)?,
            vars_end: offset(vars_end)?,
            end: offset(at)?,
            size: at.max(SMALLEST),
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
    pub(crate) fn hit(id: TableId) -> i32 {
        ((word::HITS + id.index()) * 8) as i32
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
