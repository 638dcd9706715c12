//! Checked programs: names are resolved, every expression has its type, generic functions are instantiated, arguments
//! are in the order of parameters, and what is known at compile time is a constant.
//!
//! [`crate::check`] makes it from the syntax tree; lowering and P4Info read it. What holds:
//! - No [`Type`] contains a type parameter.
//! - Conversions that the language inserts are [`ExprKind::Cast`]; operands of an operator have one type, but for shifts
//!   and concatenations.
//! - An expression that is known without the values of constructor parameters is an [`ExprKind::Const`]. Values of type
//!   [`Type::Integer`] are constants always, or parameters of constructors.
//! - Parsers and controls are templates: their constructor parameters are variables that have values once a package is
//!   instantiated. Each reference to one names the declaration ([`InstanceId`]), not the object.
//! - Numbers index the lists of [`Program`].

use std::sync::Arc;

use num_bigint::BigInt;

pub use crate::ast::{BinOp, Direction, UnOp};
use crate::source::Span;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// Position in the program's list.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A variable, parameter or loop variable: [`Program::vars`].
    VarId
    /// A function: [`Program::functions`].
    FunctionId
    /// An action: [`Program::actions`].
    ActionId
    /// A parser: [`Program::parsers`].
    ParserId
    /// A control: [`Program::controls`].
    ControlId
    /// A table: [`Program::tables`].
    TableId
    /// A value set: [`Program::value_sets`].
    ValueSetId
    /// A declared object: [`Program::instances`].
    InstanceId
    /// An extern type: [`Program::externs`].
    ExternId
    /// A package type: [`Program::packages`].
    PackageId
}

/// A checked program.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Members of `error`, in the order of declaration; those of core.p4 come first.
    pub errors: Vec<String>,
    /// Variables and parameters.
    pub vars: Vec<Var>,
    /// Functions; generic ones once for every instantiation.
    pub functions: Vec<Function>,
    /// Actions, those of controls among them.
    pub actions: Vec<Action>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Value sets.
    pub value_sets: Vec<ValueSet>,
    /// Parsers.
    pub parsers: Vec<Parser>,
    /// Controls.
    pub controls: Vec<Control>,
    /// Declared objects: of the program, of parsers and of controls.
    pub instances: Vec<Instance>,
    /// Extern types.
    pub externs: Vec<Extern>,
    /// Package types.
    pub packages: Vec<Package>,
    /// Serializable enums, structs, headers and new types that the program declares, in order: P4Info names some.
    pub types: Vec<Type>,
    /// Objects declared at the top level, in order.
    pub globals: Vec<InstanceId>,
    /// The package that the program is.
    pub main: Option<InstanceId>,
}

/// An annotation.
#[derive(Debug, Clone)]
pub struct Annotation {
    /// Name.
    pub name: String,
    /// Body.
    pub body: AnnotationBody,
    /// Place.
    pub span: Span,
}

/// Body of an annotation.
#[derive(Debug, Clone)]
pub enum AnnotationBody {
    /// Texts of tokens, strings with their quotes; empty if there is no body.
    Tokens(Vec<String>),
    /// Values of a structured annotation.
    Values(Vec<Value>),
    /// Keys and values of a structured annotation.
    KeyValues(Vec<(String, Value)>),
}

/// A type.
#[derive(Debug, Clone)]
pub enum Type {
    /// No value.
    Void,
    /// True or false.
    Bool,
    /// An integer of any size, known at compile time.
    Integer,
    /// Unsigned, of so many bits, which may be 0.
    Bit(u32),
    /// Two's complement, of so many bits, at least 1.
    Int(u32),
    /// At most so many bits.
    Varbit(u32),
    /// A string, known at compile time.
    String,
    /// A parser error.
    Error,
    /// A match kind.
    MatchKind,
    /// An enumeration, with or without a representation.
    Enum(Arc<Enum>),
    /// A type of its own with the values of another.
    New(Arc<NewType>),
    /// A header.
    Header(Arc<Composite>),
    /// A header union.
    Union(Arc<Composite>),
    /// A struct.
    Struct(Arc<Composite>),
    /// A stack of headers or unions.
    Stack(Arc<Type>, u32),
    /// A tuple.
    Tuple(Arc<[Type]>),
    /// A list, known at compile time.
    List(Arc<Type>),
    /// An extern object with its type arguments.
    Extern(ExternId, Arc<[Type]>),
    /// A parser object.
    Parser(ParserId),
    /// A control object.
    Control(ControlId),
    /// A parser or control object given only by its parameters' types: a constructor's parameter.
    Abstract(Arc<Abstract>),
    /// A package.
    Package(PackageId),
    /// What an apply of a table gives.
    Applied(TableId),
    /// What ran in a table: the operand of a `switch`.
    ActionRun(TableId),
}

/// Equal types have equal names; the names of declared types are unique, with type arguments among them.
impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        use Type::*;
        match (self, other) {
            (Void, Void)
            | (Bool, Bool)
            | (Integer, Integer)
            | (String, String)
            | (Error, Error)
            | (MatchKind, MatchKind) => true,
            (Bit(a), Bit(b)) | (Int(a), Int(b)) | (Varbit(a), Varbit(b)) => a == b,
            (Enum(a), Enum(b)) => a.name == b.name,
            (New(a), New(b)) => a.name == b.name,
            (Header(a), Header(b)) | (Union(a), Union(b)) | (Struct(a), Struct(b)) => a.name == b.name,
            (Stack(a, m), Stack(b, n)) => m == n && a == b,
            (Tuple(a), Tuple(b)) => a == b,
            (List(a), List(b)) => a == b,
            (Extern(a, p), Extern(b, q)) => a == b && p == q,
            (Parser(a), Parser(b)) => a == b,
            (Control(a), Control(b)) => a == b,
            (Abstract(a), Abstract(b)) => a.name == b.name,
            (Package(a), Package(b)) => a == b,
            (Applied(a), Applied(b)) | (ActionRun(a), ActionRun(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Type {}

/// An enumeration.
#[derive(Debug, Clone)]
pub struct Enum {
    /// Name.
    pub name: String,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Type that represents it, if one was declared.
    pub representation: Option<Type>,
    /// Members: names, values (their positions, if there is no representation), annotations.
    pub members: Vec<(String, BigInt, Vec<Annotation>)>,
}

/// A type of its own.
#[derive(Debug, Clone)]
pub struct NewType {
    /// Name.
    pub name: String,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Type of the values.
    pub base: Type,
}

/// A header, union or struct.
#[derive(Debug, Clone)]
pub struct Composite {
    /// Name, with its type arguments: `H<bit<8>>`.
    pub name: String,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Fields.
    pub fields: Vec<Field>,
}

/// A field.
#[derive(Debug, Clone)]
pub struct Field {
    /// Name.
    pub name: String,
    /// Type.
    pub ty: Type,
    /// Annotations.
    pub annotations: Vec<Annotation>,
}

/// The type of a parser or control that a constructor takes.
#[derive(Debug, Clone)]
pub struct Abstract {
    /// Name, with its type arguments.
    pub name: String,
    /// Whether it is a parser.
    pub is_parser: bool,
    /// Parameters.
    pub params: Vec<(Direction, Type)>,
}

/// Role of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VarKind {
    /// Declared variable, of a block, parser or control.
    Local,
    /// Parameter of a function, action, parser or control.
    Param(Direction),
    /// Parameter of a constructor: a constant or an object.
    Constructor,
    /// Variable of a loop over a collection.
    Loop,
}

/// A variable.
#[derive(Debug, Clone)]
pub struct Var {
    /// Name.
    pub name: String,
    /// Type.
    pub ty: Type,
    /// Role.
    pub kind: VarKind,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Place of the declaration.
    pub span: Span,
}

/// A function.
#[derive(Debug, Clone)]
pub struct Function {
    /// Name.
    pub name: String,
    /// Parameters.
    pub params: Vec<VarId>,
    /// Type of the result.
    pub result: Type,
    /// Body.
    pub body: Vec<Stmt>,
    /// Place of the declaration.
    pub span: Span,
}

/// An action.
#[derive(Debug, Clone)]
pub struct Action {
    /// Name, without that of its control.
    pub name: String,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Control that contains it.
    pub control: Option<ControlId>,
    /// Parameters; directionless ones, which are last, get their values from entries.
    pub params: Vec<VarId>,
    /// Body.
    pub body: Vec<Stmt>,
    /// Place of the declaration.
    pub span: Span,
}

/// A parser.
#[derive(Debug, Clone)]
pub struct Parser {
    /// Name.
    pub name: String,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Parameters.
    pub params: Vec<VarId>,
    /// Parameters of the constructor.
    pub constructor: Vec<VarId>,
    /// Objects declared in it.
    pub instances: Vec<InstanceId>,
    /// Value sets declared in it.
    pub value_sets: Vec<ValueSetId>,
    /// Declarations of variables with their initial values, in order; they run before the first state.
    pub locals: Vec<Stmt>,
    /// States; one is `start`. `accept` and `reject` are not among them.
    pub states: Vec<State>,
    /// Place of the declaration.
    pub span: Span,
}

/// A parser state.
#[derive(Debug, Clone)]
pub struct State {
    /// Name.
    pub name: String,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Statements.
    pub body: Vec<Stmt>,
    /// Transition.
    pub next: Transition,
    /// Place.
    pub span: Span,
}

/// A transition.
#[derive(Debug, Clone)]
pub enum Transition {
    /// To a state.
    To(Target),
    /// To that of the first case that matches.
    Select {
        /// Values.
        on: Vec<Expr>,
        /// Cases: a keyset for each value, or one [`Keyset::Any`] or [`Keyset::ValueSet`] for all of them.
        cases: Vec<(Vec<Keyset>, Target)>,
        /// Place.
        span: Span,
    },
}

/// Destination of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A state, by its position in [`Parser::states`].
    State(u32),
    /// The parser ends.
    Accept,
    /// The parser fails.
    Reject,
}

/// Values of one expression: of a `select`, or of a table's key.
#[derive(Debug, Clone)]
pub enum Keyset {
    /// All.
    Any,
    /// This one.
    Value(Expr),
    /// Those equal to the first under the second.
    Mask(Expr, Expr),
    /// Those between two, both included.
    Range(Expr, Expr),
    /// Those in a value set.
    ValueSet(ValueSetId),
}

/// A value set.
#[derive(Debug, Clone)]
pub struct ValueSet {
    /// Name, without that of its parser.
    pub name: String,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Type of the elements: a value's, or a struct or tuple of values.
    pub element: Type,
    /// Most elements.
    pub size: Expr,
    /// Place of the declaration.
    pub span: Span,
}

/// A control.
#[derive(Debug, Clone)]
pub struct Control {
    /// Name.
    pub name: String,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Parameters.
    pub params: Vec<VarId>,
    /// Parameters of the constructor.
    pub constructor: Vec<VarId>,
    /// Objects declared in it.
    pub instances: Vec<InstanceId>,
    /// Actions declared in it.
    pub actions: Vec<ActionId>,
    /// Tables declared in it.
    pub tables: Vec<TableId>,
    /// Declarations of variables with their initial values, in order; they run before the body.
    pub locals: Vec<Stmt>,
    /// The body of `apply`.
    pub body: Vec<Stmt>,
    /// Place of the declaration.
    pub span: Span,
}

/// A table.
#[derive(Debug, Clone)]
pub struct Table {
    /// Name, without that of its control.
    pub name: String,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Control that contains it.
    pub control: ControlId,
    /// Keys.
    pub keys: Vec<Key>,
    /// Actions.
    pub actions: Vec<ActionRef>,
    /// Default action, if one is given: the call has the arguments for all parameters.
    pub default: Option<ActionCall>,
    /// Whether the default is `const`.
    pub const_default: bool,
    /// Entries.
    pub entries: Vec<Entry>,
    /// Whether the list of entries is `const`.
    pub const_entries: bool,
    /// Property `size`.
    pub size: Option<Expr>,
    /// All other properties.
    pub properties: Vec<Property>,
    /// Place of the declaration.
    pub span: Span,
}

/// A key of a table.
#[derive(Debug, Clone)]
pub struct Key {
    /// The expression as written: `hdr.ipv4.dst`.
    pub text: String,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Value.
    pub value: Expr,
    /// Match kind.
    pub kind: String,
    /// Place.
    pub span: Span,
}

/// An action in a table's list.
#[derive(Debug, Clone)]
pub struct ActionRef {
    /// Annotations: `@tableonly`, `@defaultonly`.
    pub annotations: Vec<Annotation>,
    /// Action, with arguments for its directed parameters.
    pub call: ActionCall,
}

/// An action with arguments.
#[derive(Debug, Clone)]
pub struct ActionCall {
    /// Action.
    pub action: ActionId,
    /// Arguments for the first parameters: of a table's list for the directed ones, else for all.
    pub args: Vec<Expr>,
    /// Place.
    pub span: Span,
}

/// An entry.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Whether it is fixed.
    pub is_const: bool,
    /// Priority, if one is written.
    pub priority: Option<BigInt>,
    /// A keyset for each key.
    pub keysets: Vec<Keyset>,
    /// Action, with arguments for all parameters.
    pub call: ActionCall,
    /// Place.
    pub span: Span,
}

/// A property of a table.
#[derive(Debug, Clone)]
pub struct Property {
    /// Name.
    pub name: String,
    /// Annotations: `@name` names an object that the property brings into being.
    pub annotations: Vec<Annotation>,
    /// Whether it is `const`.
    pub is_const: bool,
    /// Value: a constant, or an object ([`ExprKind::Instance`], [`ExprKind::New`]).
    pub value: Expr,
    /// Place.
    pub span: Span,
}

/// A declared object.
#[derive(Debug, Clone)]
pub struct Instance {
    /// Name; for one without a declaration of its own, the name of its type.
    pub name: String,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Type: an extern, parser, control or package.
    pub ty: Type,
    /// Arguments of the constructor, one for each parameter; [`ExprKind::Absent`] for optional ones.
    pub args: Vec<Expr>,
    /// Number of the extern's constructor, in the order of declaration.
    pub constructor: u32,
    /// Implementations of abstract methods, by name.
    pub methods: Vec<(String, FunctionId)>,
    /// Place of the declaration.
    pub span: Span,
}

/// An extern type.
#[derive(Debug, Clone)]
pub struct Extern {
    /// Name.
    pub name: String,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Names of the methods, in the order of declaration, without constructors.
    pub methods: Vec<String>,
}

/// A package type.
#[derive(Debug, Clone)]
pub struct Package {
    /// Name.
    pub name: String,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Names of the parameters.
    pub params: Vec<String>,
}

/// A statement.
#[derive(Debug, Clone)]
pub struct Stmt {
    /// Kind.
    pub kind: StmtKind,
    /// Place.
    pub span: Span,
}

/// Statements.
#[derive(Debug, Clone)]
pub enum StmtKind {
    /// Brings a variable into being, with an initial value or undefined; headers in it are invalid.
    Declare(VarId, Option<Expr>),
    /// Assigns to a place.
    Assign(Expr, Expr),
    /// Assigns the result of an operator on a place and a value; the place is evaluated once.
    AssignOp(BinOp, Expr, Expr),
    /// A call whose result, if any, is not used.
    Call(Call),
    /// Branches.
    If(Expr, Vec<Stmt>, Vec<Stmt>),
    /// Statements with a scope of their own. The annotations are `@atomic` and the like.
    Block(Vec<Annotation>, Vec<Stmt>),
    /// Ends the whole control block that the architecture called.
    Exit,
    /// Ends the function, action or control.
    Return(Option<Expr>),
    /// Ends the innermost loop.
    Break,
    /// Ends the round of the innermost loop.
    Continue,
    /// Applies a table and branches by the action that ran. The second list is the default's.
    SwitchAction(Call, Vec<(Vec<ActionId>, Vec<Stmt>)>, Vec<Stmt>),
    /// Branches by a value: the first case that has it, else the last list.
    Switch(Expr, Vec<(Vec<Value>, Vec<Stmt>)>, Vec<Stmt>),
    /// A loop.
    For {
        /// Statements before the loop, in whose scope it is.
        init: Vec<Stmt>,
        /// Condition.
        condition: Expr,
        /// Statements behind each round.
        update: Vec<Stmt>,
        /// Body.
        body: Vec<Stmt>,
    },
    /// A loop over numbers: the variable takes the first bound to the second, both included.
    ForRange(VarId, Expr, Expr, Vec<Stmt>),
    /// A loop over the elements of a stack, list or tuple.
    ForEach(VarId, Expr, Vec<Stmt>),
}

/// An expression.
#[derive(Debug, Clone)]
pub struct Expr {
    /// Kind.
    pub kind: ExprKind,
    /// Type.
    pub ty: Type,
    /// Place.
    pub span: Span,
}

/// Expressions. Places that can be assigned to are [`ExprKind::Var`], [`ExprKind::Field`], [`ExprKind::Element`],
/// [`ExprKind::Next`], [`ExprKind::Last`], [`ExprKind::Slice`] and [`ExprKind::Index`] of places.
#[derive(Debug, Clone)]
pub enum ExprKind {
    /// A constant.
    Const(Value),
    /// A variable.
    Var(VarId),
    /// An object.
    Instance(InstanceId),
    /// An object without a declaration: `Checksum16()` as an argument.
    New(Box<Instance>),
    /// No argument: for an optional parameter, or `_` for an `out` parameter.
    Absent,
    /// A field of a struct, header or union.
    Field(Box<Expr>, u32),
    /// An element of a tuple.
    Index(Box<Expr>, u32),
    /// An element of a stack.
    Element(Box<Expr>, Box<Expr>),
    /// `next` of a stack, in parsers.
    Next(Box<Expr>),
    /// `last` of a stack, in parsers.
    Last(Box<Expr>),
    /// `lastIndex` of a stack: `bit<32>`.
    LastIndex(Box<Expr>),
    /// Whether a header, or any member of a union, is valid.
    Valid(Box<Expr>),
    /// Bits `hi` down to `lo`.
    Slice(Box<Expr>, u32, u32),
    /// An operator on one operand; there is no [`UnOp::Plus`].
    Unary(UnOp, Box<Expr>),
    /// An operator on two operands. Comparisons may be of any type that has values, headers, structs, tuples and stacks
    /// among them.
    Binary(BinOp, Box<(Expr, Expr)>),
    /// `c ? a : b`
    Mux(Box<(Expr, Expr, Expr)>),
    /// A conversion to the expression's type.
    Cast(Box<Expr>),
    /// A value of a struct, header (valid), tuple, list or stack by its parts, in the order of fields.
    Aggregate(Vec<Expr>),
    /// An invalid header or union.
    Invalid,
    /// A call with a result.
    Call(Box<Call>),
    /// `hit` of an apply.
    Hit(Box<Call>),
    /// `miss` of an apply.
    Miss(Box<Call>),
}

/// A call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Callee.
    pub callee: Callee,
    /// Type arguments, also those that were inferred; only of extern functions and methods.
    pub type_args: Vec<Type>,
    /// Arguments in the order of parameters: [`ExprKind::Absent`] where an optional one is left out.
    pub args: Vec<Expr>,
    /// Directions of the parameters.
    pub directions: Vec<Direction>,
    /// Place.
    pub span: Span,
}

/// Callees.
#[derive(Debug, Clone)]
pub enum Callee {
    /// A function.
    Function(FunctionId),
    /// An action, called directly.
    Action(ActionId),
    /// An extern function, by name.
    Extern(String),
    /// A method of an extern object: object, name.
    Method(Box<Expr>, String),
    /// `apply` of a parser or control: [`ExprKind::Instance`], or a constructor's parameter.
    Apply(Box<Expr>),
    /// `apply` of a table.
    Table(TableId),
    /// `setValid` of a header.
    SetValid(Box<Expr>),
    /// `setInvalid` of a header.
    SetInvalid(Box<Expr>),
    /// `push_front` of a stack.
    PushFront(Box<Expr>, u32),
    /// `pop_front` of a stack.
    PopFront(Box<Expr>, u32),
}

/// A value known at compile time. Its type is that of the expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Of `bool`.
    Bool(bool),
    /// Of `int`, `bit<>`, `int<>`, an enum (also without a representation: the member's position), or a new type of these.
    Integer(BigInt),
    /// Of `string`.
    String(String),
    /// Of `error`: the member's name.
    Error(String),
    /// Of `match_kind`: the member's name.
    MatchKind(String),
    /// Of a tuple, list, struct or valid header: its parts.
    List(Vec<Value>),
    /// Of a header or union: invalid.
    Invalid,
}
