//! Both directions of the wire format from one description.
//!
//! A type describes its layout once, in [`Record::walk`], by naming its fields in wire order to a [`Coder`]. A [`Reader`]
//! stores into them, a [`Writer`] appends them. Encoding and decoding therefore agree by construction, and a decoded
//! message encodes to the bytes that it came from.
//!
//! Padding: a reader ignores padding bytes unless Open vSwitch refuses them ([`Coder::zeros`]); a writer writes zeros.
//!
//! Bounds: a reader never reads outside its slice. A list grows by one item per item in the input, and each item takes
//! at least one byte from it, so memory is proportional to the input. Nested action lists are limited to [`MAX_DEPTH`].

use std::ops::{Deref, DerefMut};

use crate::error::{ErrorCode, Fault};
use crate::version::{Mac, PortNo, Version};

/// Deepest nesting of action lists (`clone` within `ct` within …), as in Open vSwitch's parser of texts.
pub const MAX_DEPTH: u32 = 100;

/// Result of a step of a walk.
pub(crate) type Step<T = ()> = Result<T, Fault>;

/// A type with a wire format.
pub(crate) trait Record {
    /// Names the fields to `c` in wire order.
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step;
}

/// A 16-bit length that precedes what it measures.
#[derive(Clone, Copy)]
pub(crate) struct Length(usize);

/// One direction of the wire format.
pub(crate) trait Coder: Sized {
    /// Whether fields are stored into (true) or read from.
    const READS: bool;
    /// The message's version.
    fn version(&self) -> Version;
    /// Bytes since the start of the innermost entry.
    fn offset(&self) -> usize;
    /// Whether a list goes on: input is left. Meaningless to a writer.
    fn more(&self) -> bool;
    /// Bytes left in the innermost entry. Zero for a writer.
    fn left(&self) -> usize;
    /// A field of fixed length.
    fn bytes(&mut self, field: &mut [u8]) -> Step;
    /// A field of `len` bytes; a writer takes all of it.
    fn buffer(&mut self, field: &mut Vec<u8>, len: usize) -> Step;
    /// Padding, whatever its content.
    fn pad(&mut self, len: usize) -> Step;
    /// Padding that must be zero.
    fn zeros(&mut self, len: usize, code: ErrorCode) -> Step;
    /// An entry: its length, 16 bits in `len_at`, includes itself and all that `body` walks. `code` reports a wrong one.
    fn entry(&mut self, len_at: usize, code: ErrorCode, body: impl FnOnce(&mut Self) -> Step) -> Step;
    /// A length ahead of its object, which [`Coder::measured`] walks.
    fn length(&mut self) -> Step<Length>;
    /// The object of a length.
    fn measured(&mut self, len: Length, code: ErrorCode, body: impl FnOnce(&mut Self) -> Step) -> Step;
    /// What `body` walks has another error code for truncation.
    fn reporting(&mut self, code: ErrorCode, body: impl FnOnce(&mut Self) -> Step) -> Step;
    /// Nested lists, one level deeper.
    fn deeper(&mut self, code: ErrorCode, body: impl FnOnce(&mut Self) -> Step) -> Step;
    /// The fault `code` at the current position.
    fn fault(&self, code: ErrorCode) -> Fault;

    /// Refuses input.
    fn refuse<T>(&self, code: ErrorCode) -> Step<T> {
        Err(self.fault(code))
    }
    /// Refuses input if `wrong`. A writer refuses to write it, too.
    fn refuse_if(&self, wrong: bool, code: ErrorCode) -> Step {
        if wrong { self.refuse(code) } else { Ok(()) }
    }
    /// An 8-bit field.
    fn u8(&mut self, field: &mut u8) -> Step {
        let mut raw = [*field];
        self.bytes(&mut raw)?;
        [*field] = raw;
        Ok(())
    }
    /// A 16-bit field.
    fn u16(&mut self, field: &mut u16) -> Step {
        let mut raw = field.to_be_bytes();
        self.bytes(&mut raw)?;
        *field = u16::from_be_bytes(raw);
        Ok(())
    }
    /// A 32-bit field.
    fn u32(&mut self, field: &mut u32) -> Step {
        let mut raw = field.to_be_bytes();
        self.bytes(&mut raw)?;
        *field = u32::from_be_bytes(raw);
        Ok(())
    }
    /// A 64-bit field.
    fn u64(&mut self, field: &mut u64) -> Step {
        let mut raw = field.to_be_bytes();
        self.bytes(&mut raw)?;
        *field = u64::from_be_bytes(raw);
        Ok(())
    }
    /// A port number: 16 bits in version 1.0, 32 bits since.
    fn port(&mut self, field: &mut PortNo) -> Step {
        if self.version() == Version::V1_0 { self.port16(field) } else { self.u32(&mut field.0) }
    }
    /// A port number of 16 bits, whose reserved range stands for that of 32 bits.
    fn port16(&mut self, field: &mut PortNo) -> Step {
        let mut raw = match field.to_16_bits() {
            Some(raw) => raw,
            None if Self::READS => 0,
            None => return Err(Fault::Inexpressible("a port number above 65279 in 16 bits")),
        };
        self.u16(&mut raw)?;
        *field = PortNo::from_16_bits(raw);
        Ok(())
    }
    /// A 32-bit set of flags.
    fn flags32<F: bitflags::Flags<Bits = u32>>(&mut self, field: &mut F) -> Step {
        let mut bits = field.bits();
        self.u32(&mut bits)?;
        *field = F::from_bits_retain(bits);
        Ok(())
    }
    /// A 16-bit set of flags.
    fn flags16<F: bitflags::Flags<Bits = u16>>(&mut self, field: &mut F) -> Step {
        let mut bits = field.bits();
        self.u16(&mut bits)?;
        *field = F::from_bits_retain(bits);
        Ok(())
    }
    /// A text of fixed length, filled with NUL bytes.
    fn text(&mut self, field: &mut Text, len: usize) -> Step {
        let mut raw = std::mem::take(&mut field.0);
        if !Self::READS {
            if raw.len() > len {
                return Err(Fault::Inexpressible("a text longer than its field"));
            }
            raw.resize(len, 0);
        }
        self.buffer(&mut raw, len)?;
        let end = raw.iter().position(|byte| *byte == 0).unwrap_or(raw.len());
        raw.truncate(end);
        field.0 = raw;
        Ok(())
    }
    /// The field at the innermost entry's end, of any length.
    fn rest(&mut self, field: &mut Vec<u8>) -> Step {
        self.buffer(field, self.left())
    }
    /// Padding up to a multiple of `unit` bytes since the innermost entry's start.
    fn align(&mut self, unit: usize) -> Step {
        self.pad(self.offset().next_multiple_of(unit) - self.offset())
    }
    /// An entry followed by padding to a multiple of 8 bytes, which its length does not include.
    fn padded_entry(&mut self, len_at: usize, code: ErrorCode, body: impl FnOnce(&mut Self) -> Step) -> Step {
        let start = self.offset();
        self.entry(len_at, code, body)?;
        let len = self.offset() - start;
        self.reporting(code, |c| c.pad(len.next_multiple_of(8) - len))
    }
    /// An Ethernet address.
    fn mac(&mut self, field: &mut Mac) -> Step {
        self.bytes(&mut field.0)
    }
    /// A record.
    fn record(&mut self, field: &mut impl Record) -> Step {
        field.walk(self)
    }
    /// A list of records up to the innermost entry's end.
    fn list<T: Record + Default>(&mut self, items: &mut Vec<T>) -> Step {
        if !Self::READS {
            return items.iter_mut().try_for_each(|item| item.walk(self));
        }
        while self.more() {
            let left = self.left();
            let mut item = T::default();
            item.walk(self)?;
            self.refuse_if(self.left() == left, ErrorCode::BrcBadLen)?;
            items.push(item);
        }
        Ok(())
    }
    /// A list of as many records as `count` says.
    fn counted<T: Record + Default>(&mut self, items: &mut Vec<T>, count: usize) -> Step {
        if !Self::READS {
            return items.iter_mut().try_for_each(|item| item.walk(self));
        }
        for _ in 0..count {
            let mut item = T::default();
            item.walk(self)?;
            items.push(item);
        }
        Ok(())
    }
}

macro_rules! integer_records {
    ($($method:ident)*) => {$(
        impl Record for $method {
            fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
                c.$method(self)
            }
        }
    )*};
}
integer_records!(u8 u16 u32 u64);

impl Record for PortNo {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u32(&mut self.0)
    }
}

/// Decodes from a slice.
pub(crate) struct Reader<'a> {
    input: &'a [u8],
    /// Position in `input`.
    at: usize,
    /// Position of `input` in the message.
    base: usize,
    version: Version,
    /// Reports truncation.
    short: ErrorCode,
    depth: u32,
}

impl<'a> Reader<'a> {
    /// A reader of `input`.
    pub(crate) fn new(input: &'a [u8], version: Version, short: ErrorCode) -> Self {
        Reader { input, at: 0, base: 0, version, short, depth: 0 }
    }

    /// Refuses what nobody walked.
    pub(crate) fn finish(&self) -> Step {
        self.refuse_if(self.more(), self.short)
    }

    fn take(&mut self, len: usize) -> Step<&'a [u8]> {
        let end = self.at.checked_add(len).ok_or_else(|| self.fault(self.short))?;
        let taken = self.input.get(self.at..end).ok_or_else(|| self.fault(self.short))?;
        self.at = end;
        Ok(taken)
    }

    /// Walks the next `len` bytes as an entry of their own.
    fn within(&mut self, len: usize, code: ErrorCode, body: impl FnOnce(&mut Self) -> Step) -> Step {
        let base = self.base + self.at;
        let input = self.take(len).map_err(|_| self.fault(code))?;
        let mut inner = Reader { input, at: 0, base, version: self.version, short: code, depth: self.depth };
        body(&mut inner)?;
        inner.finish()
    }
}

impl Coder for Reader<'_> {
    const READS: bool = true;

    fn version(&self) -> Version {
        self.version
    }
    fn offset(&self) -> usize {
        self.at
    }
    fn more(&self) -> bool {
        self.left() > 0
    }
    fn left(&self) -> usize {
        self.input.len() - self.at
    }
    fn bytes(&mut self, field: &mut [u8]) -> Step {
        let taken = self.take(field.len())?;
        field.copy_from_slice(taken);
        Ok(())
    }
    fn buffer(&mut self, field: &mut Vec<u8>, len: usize) -> Step {
        *field = self.take(len)?.to_vec();
        Ok(())
    }
    fn pad(&mut self, len: usize) -> Step {
        self.take(len).map(drop)
    }
    fn zeros(&mut self, len: usize, code: ErrorCode) -> Step {
        let fault = self.fault(code);
        let taken = self.take(len)?;
        if taken.iter().any(|byte| *byte != 0) { Err(fault) } else { Ok(()) }
    }
    fn entry(&mut self, len_at: usize, code: ErrorCode, body: impl FnOnce(&mut Self) -> Step) -> Step {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let Some(&[high, low]) = rest.get(len_at..len_at + 2) else { return self.refuse(code) };
        let len = usize::from(u16::from_be_bytes([high, low]));
        self.refuse_if(len < len_at + 2, code)?;
        self.within(len, code, body)
    }
    fn length(&mut self) -> Step<Length> {
        let mut len = 0;
        self.u16(&mut len)?;
        Ok(Length(usize::from(len)))
    }
    fn measured(&mut self, len: Length, code: ErrorCode, body: impl FnOnce(&mut Self) -> Step) -> Step {
        self.within(len.0, code, body)
    }
    fn reporting(&mut self, code: ErrorCode, body: impl FnOnce(&mut Self) -> Step) -> Step {
        let outer = std::mem::replace(&mut self.short, code);
        let result = body(self);
        self.short = outer;
        result
    }
    fn deeper(&mut self, code: ErrorCode, body: impl FnOnce(&mut Self) -> Step) -> Step {
        self.refuse_if(self.depth >= MAX_DEPTH, code)?;
        self.depth += 1;
        let result = body(self);
        self.depth -= 1;
        result
    }
    fn fault(&self, code: ErrorCode) -> Fault {
        Fault::Malformed { code, at: self.base + self.at }
    }
}

/// Encodes to a vector.
pub(crate) struct Writer {
    output: Vec<u8>,
    /// Start of the innermost entry.
    start: usize,
    version: Version,
    depth: u32,
}

impl Writer {
    /// An empty writer.
    pub(crate) fn new(version: Version) -> Self {
        Writer { output: Vec::new(), start: 0, version, depth: 0 }
    }

    /// The output.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.output
    }

    /// Stores the distance from `from` to the end in the two bytes at `at`.
    fn patch(&mut self, at: usize, from: usize) -> Step {
        let len = u16::try_from(self.output.len() - from).map_err(|_| Fault::TooLong)?;
        if let Some(field) = self.output.get_mut(at..at + 2) {
            field.copy_from_slice(&len.to_be_bytes());
        }
        Ok(())
    }

    /// Runs `body` with the innermost entry's start here.
    fn within(&mut self, body: impl FnOnce(&mut Self) -> Step) -> Step<usize> {
        let here = self.output.len();
        let outer = std::mem::replace(&mut self.start, here);
        body(self)?;
        self.start = outer;
        // What does not fit into a message is not worth completing.
        if self.output.len() > usize::from(u16::MAX) { Err(Fault::TooLong) } else { Ok(here) }
    }
}

impl Coder for Writer {
    const READS: bool = false;

    fn version(&self) -> Version {
        self.version
    }
    fn offset(&self) -> usize {
        self.output.len() - self.start
    }
    fn more(&self) -> bool {
        false
    }
    fn left(&self) -> usize {
        0
    }
    fn bytes(&mut self, field: &mut [u8]) -> Step {
        self.output.extend_from_slice(field);
        Ok(())
    }
    fn buffer(&mut self, field: &mut Vec<u8>, _len: usize) -> Step {
        self.output.extend_from_slice(field);
        Ok(())
    }
    fn pad(&mut self, len: usize) -> Step {
        self.output.resize(self.output.len() + len, 0);
        Ok(())
    }
    fn zeros(&mut self, len: usize, _code: ErrorCode) -> Step {
        self.pad(len)
    }
    fn entry(&mut self, len_at: usize, _code: ErrorCode, body: impl FnOnce(&mut Self) -> Step) -> Step {
        let start = self.within(body)?;
        self.patch(start + len_at, start)
    }
    fn length(&mut self) -> Step<Length> {
        let at = self.output.len();
        self.pad(2)?;
        Ok(Length(at))
    }
    fn measured(&mut self, len: Length, _code: ErrorCode, body: impl FnOnce(&mut Self) -> Step) -> Step {
        let start = self.within(body)?;
        self.patch(len.0, start)
    }
    fn reporting(&mut self, _code: ErrorCode, body: impl FnOnce(&mut Self) -> Step) -> Step {
        body(self)
    }
    fn deeper(&mut self, code: ErrorCode, body: impl FnOnce(&mut Self) -> Step) -> Step {
        self.refuse_if(self.depth >= MAX_DEPTH, code)?;
        self.depth += 1;
        let result = body(self);
        self.depth -= 1;
        result
    }
    fn fault(&self, code: ErrorCode) -> Fault {
        Fault::Refused(code)
    }
}

/// A text of a fixed-length field, such as a port's name: bytes, since the protocol names no encoding.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Text(
    /// The bytes before the first NUL.
    pub Vec<u8>,
);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text(text.as_bytes().to_vec())
    }
}

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// Short bytes, stored inline up to 16: values and masks of match fields.
#[derive(Clone)]
pub struct Octets(Storage);

#[derive(Clone)]
enum Storage {
    Inline { len: u8, bytes: [u8; 16] },
    Heap(Box<[u8]>),
}

impl Octets {
    /// `len` bytes, all of them `byte`.
    pub fn filled(len: usize, byte: u8) -> Self {
        match u8::try_from(len) {
            Ok(short @ 0..=16) => {
                let mut bytes = [0; 16];
                bytes.iter_mut().take(len).for_each(|place| *place = byte);
                Octets(Storage::Inline { len: short, bytes })
            }
            _ => Octets(Storage::Heap(vec![byte; len].into_boxed_slice())),
        }
    }
}

impl Default for Octets {
    fn default() -> Self {
        Octets::filled(0, 0)
    }
}

impl Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Storage::Heap(bytes) => bytes,
        }
    }
}

impl DerefMut for Octets {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Storage::Inline { len, bytes } => bytes.get_mut(..usize::from(*len)).unwrap_or_default(),
            Storage::Heap(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Octets {
    fn from(bytes: &[u8]) -> Self {
        let mut octets = Octets::filled(bytes.len(), 0);
        octets.copy_from_slice(bytes);
        octets
    }
}

impl PartialEq for Octets {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
impl Eq for Octets {}

impl std::hash::Hash for Octets {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl std::fmt::Debug for Octets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("0x")?;
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Defines an enumeration with a number on the wire; other numbers are refused with an error code.
macro_rules! numbers {
    ($(#[$meta:meta])* pub enum $name:ident: $int:ident / $walk:ident else $code:ident {
        $($(#[$doc:meta])* $variant:ident = $value:expr,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// The number on the wire.
            pub fn number(self) -> $int {
                match self { $($name::$variant => $value,)* }
            }
            /// The variant with a number on the wire.
            pub fn from_number(number: $int) -> Option<Self> {
                match number { $(n if n == $value => Some($name::$variant),)* _ => None }
            }
        }

        impl $crate::wire::Record for $name {
            fn walk<C: $crate::wire::Coder>(&mut self, c: &mut C) -> $crate::wire::Step {
                let fault = c.fault($crate::error::ErrorCode::$code);
                let mut number = self.number();
                c.$walk(&mut number)?;
                *self = $name::from_number(number).ok_or(fault)?;
                Ok(())
            }
        }
    };
}
pub(crate) use numbers;

/// Defines a record whose layout is its fields in order; `_: n` is padding.
macro_rules! layout {
    ($name:ident { $($tokens:tt)* }) => {
        impl $crate::wire::Record for $name {
            fn walk<C: $crate::wire::Coder>(&mut self, c: &mut C) -> $crate::wire::Step {
                // A comma may end the list, or not.
                $crate::wire::layout!(@fields self c $($tokens)*,);
                Ok(())
            }
        }
    };
    (@fields $self:ident $c:ident $(,)?) => {};
    (@fields $self:ident $c:ident _: $pad:expr, $($rest:tt)*) => {
        $c.pad($pad)?;
        $crate::wire::layout!(@fields $self $c $($rest)*);
    };
    (@fields $self:ident $c:ident $field:ident: $walk:ident($($argument:expr),*), $($rest:tt)*) => {
        $c.$walk(&mut $self.$field, $($argument),*)?;
        $crate::wire::layout!(@fields $self $c $($rest)*);
    };
    (@fields $self:ident $c:ident $field:ident: $walk:ident, $($rest:tt)*) => {
        $c.$walk(&mut $self.$field)?;
        $crate::wire::layout!(@fields $self $c $($rest)*);
    };
}
pub(crate) use layout;
