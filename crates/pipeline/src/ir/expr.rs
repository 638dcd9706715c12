//! Expressions and places. Expressions have no effects.

use super::{Constant, HeaderId, StackId, Type, VarId};

/// An expression. The comments give its type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Expr {
    /// A constant: its type.
    Const(Constant),
    /// A variable: its type.
    Var(VarId),
    /// A parameter of the action that contains it: its type.
    Param(u16),
    /// A field: its type. Zero if the header is a stack's element beyond the stack.
    Field(HeaderRef, u16),
    /// Whether a header is valid: `Bool`.
    Valid(HeaderRef),
    /// Index of the last extracted element of a stack, all ones if there is none: `Bit(32)`.
    LastIndex(StackId),
    /// Current length of a variable field in bits: `Bit(32)`.
    FieldLength(HeaderRef, u16),
    /// Bits of the packet this many bits behind the parser's position, which stays: the given type. Only in parsers; a
    /// packet that is too short for it ends the parser with an error.
    Lookahead(Type, u32),
    /// Bytes of the packet behind the parsed headers: `Bit(32)`.
    Remaining,
    /// An operator on one operand.
    Unary(UnOp, Box<Expr>),
    /// An operator on two operands.
    Binary(BinOp, Box<(Expr, Expr)>),
    /// Bits `hi` down to `lo` of a `Bit` or `Int`: `Bit(hi - lo + 1)`.
    Slice(Box<Expr>, u16, u16),
    /// The second if the first is true, else the third, both of one type: that type.
    Mux(Box<(Expr, Expr, Expr)>),
    /// A conversion: the given type. Between `Bool` and `Bit(1)`; between `Bit(n)` and `Int(n)`; of `Bit` to another
    /// width, by truncation or zeros; of `Int` to another width, by truncation or its sign.
    Cast(Type, Box<Expr>),
}

/// Operator on one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnOp {
    /// Logical negation: `Bool`.
    Not,
    /// Bitwise complement of a `Bit` or `Int`: the operand's type.
    Complement,
    /// Two's complement negation of a `Bit` or `Int`: the operand's type.
    Negate,
}

/// Operator on two operands, of one type unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinOp {
    /// Sum modulo 2^width.
    Add,
    /// Difference modulo 2^width.
    Sub,
    /// Product modulo 2^width.
    Mul,
    /// Quotient of two `Bit`; all ones if the divisor is zero.
    Div,
    /// Remainder of two `Bit`; the dividend if the divisor is zero.
    Rem,
    /// Sum, clamped to the type's smallest and largest value.
    SatAdd,
    /// Difference, clamped likewise.
    SatSub,
    /// One's complement sum of two `Bit`: the carry is added to the result. The step of Internet checksums.
    OnesAdd,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Shift left by a `Bit` of any width.
    Shl,
    /// Shift right by a `Bit` of any width, filling with zeros for `Bit` and the sign for `Int`.
    Shr,
    /// The left operand, `Bit` or `Int`, followed by the right one, a `Bit`: the left one's kind, the widths' sum.
    Concat,
    /// Equal: `Bool`. Operands of any one type.
    Eq,
    /// Unequal: `Bool`. Operands of any one type.
    Ne,
    /// Less: `Bool`. Signed for `Int`, as all comparisons.
    Lt,
    /// Less or equal: `Bool`.
    Le,
    /// Greater: `Bool`.
    Gt,
    /// Greater or equal: `Bool`.
    Ge,
    /// Both: `Bool`, operands too.
    LogicAnd,
    /// Either: `Bool`, operands too.
    LogicOr,
}

/// A header instance, possibly one that is known only at run time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HeaderRef {
    /// This instance.
    Header(HeaderId),
    /// The stack's element of this index, a `Bit` of any width. Beyond the stack, reads give zero and writes are
    /// ignored.
    Element(StackId, Box<Expr>),
    /// The element that the next extraction fills. Only in parsers: a full stack is a parser error.
    Next(StackId),
    /// The element that the last extraction filled. Only in parsers: an empty stack is a parser error.
    Last(StackId),
}

/// A place that can be assigned to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LValue {
    /// A variable.
    Var(VarId),
    /// A field that is not variable.
    Field(HeaderRef, u16),
    /// Bits `hi` down to `lo` of a place: `Bit(hi - lo + 1)`.
    Slice(Box<LValue>, u16, u16),
}

/// A part of a list of bits: the input of a hash, data for the control plane, bytes to insert.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Item {
    /// A value, or a variable field at its current length.
    Value(Expr),
    /// The payload, as far as it is visible ([`crate::interp::Received::visible`]).
    Payload,
}
