//! The syntax tree: what a program says, before names and types are known.
//!
//! It follows the grammar of P4-16 1.2.5, appendix H. Every node has the span of its text. Redundant brackets are gone;
//! annotations are kept.

use num_bigint::BigInt;

use crate::source::Span;

/// An identifier at its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    /// Text.
    pub text: String,
    /// Place.
    pub span: Span,
}

/// A program.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Declarations, in order, those of included files among them.
    pub declarations: Vec<Declaration>,
}

/// An annotation: `@name`, `@name(…)` or `@name[…]`.
#[derive(Debug, Clone)]
pub struct Annotation {
    /// Name.
    pub name: Name,
    /// Body.
    pub body: AnnotationBody,
    /// Place of all of it.
    pub span: Span,
}

/// Body of an annotation.
#[derive(Debug, Clone)]
pub enum AnnotationBody {
    /// None: `@hidden`.
    None,
    /// In parentheses, or of a `@pragma`: its tokens' texts (with the quotes of strings), whatever they are.
    Tokens(Vec<String>),
    /// In brackets: a list of expressions.
    Expressions(Vec<Expr>),
    /// In brackets: keys with values.
    KeyValues(Vec<(Name, Expr)>),
}

/// A declaration with its annotations.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Declared name. Empty for `error` and `match_kind` declarations.
    pub name: Name,
    /// The declaration.
    pub kind: DeclarationKind,
    /// Place of all of it.
    pub span: Span,
}

/// Declarations.
#[derive(Debug, Clone)]
pub enum DeclarationKind {
    /// `const TYPE NAME = EXPR;`
    Constant(Type, Expr),
    /// `TYPE NAME [= EXPR];`, only in parsers, controls and blocks.
    Variable(Type, Option<Expr>),
    /// `TYPE(ARGS) NAME [= { … }];`
    Instance(Instance),
    /// `error { … }`: further members.
    Error(Vec<Name>),
    /// `match_kind { … }`: further members.
    MatchKind(Vec<Name>),
    /// `header NAME { … }`
    Header(Composite),
    /// `header_union NAME { … }`
    HeaderUnion(Composite),
    /// `struct NAME { … }`
    Struct(Composite),
    /// `enum NAME { … }`, with a representation: `enum bit<8> NAME { A = 1 }`
    Enum(Option<Type>, Vec<EnumMember>),
    /// `typedef TYPE NAME;`
    TypeDef(Type),
    /// `type TYPE NAME;`
    NewType(Type),
    /// `parser NAME(…);` without a body.
    ParserType(Signature),
    /// `control NAME(…);` without a body.
    ControlType(Signature),
    /// `package NAME(…);`
    Package(Signature),
    /// `extern NAME { … }`
    Extern(Extern),
    /// `extern TYPE NAME(…);`
    ExternFunction(Function),
    /// `TYPE NAME(…) { … }`
    Function(Function),
    /// `action NAME(…) { … }`
    Action(Action),
    /// `parser NAME(…)(…) { … }`
    Parser(Box<Parser>),
    /// `control NAME(…)(…) { … }`
    Control(Box<Control>),
    /// `table NAME { … }`, only in controls.
    Table(Table),
    /// `value_set<TYPE>(SIZE) NAME;`, only in parsers.
    ValueSet(Type, Expr),
}

/// An instantiation.
#[derive(Debug, Clone)]
pub struct Instance {
    /// Type of the object.
    pub ty: Type,
    /// Arguments of the constructor.
    pub args: Vec<Argument>,
    /// Implementations of abstract methods and objects in the initializer: functions and instances.
    pub initializer: Option<Vec<Declaration>>,
}

/// Body of a header, union or struct.
#[derive(Debug, Clone)]
pub struct Composite {
    /// Type parameters.
    pub type_params: Vec<Name>,
    /// Fields.
    pub fields: Vec<Field>,
}

/// A field.
#[derive(Debug, Clone)]
pub struct Field {
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Type.
    pub ty: Type,
    /// Name.
    pub name: Name,
}

/// A member of an enumeration.
#[derive(Debug, Clone)]
pub struct EnumMember {
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Name.
    pub name: Name,
    /// Value, if the enumeration has a representation.
    pub value: Option<Expr>,
}

/// Type parameters and parameters.
#[derive(Debug, Clone, Default)]
pub struct Signature {
    /// Type parameters.
    pub type_params: Vec<Name>,
    /// Parameters.
    pub params: Vec<Param>,
}

/// Direction of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Directionless.
    None,
    /// `in`
    In,
    /// `out`
    Out,
    /// `inout`
    InOut,
}

/// A parameter.
#[derive(Debug, Clone)]
pub struct Param {
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Direction.
    pub direction: Direction,
    /// Type.
    pub ty: Type,
    /// Name.
    pub name: Name,
    /// Default.
    pub default: Option<Expr>,
    /// Place of all of it.
    pub span: Span,
}

/// Body of an extern object's declaration.
#[derive(Debug, Clone)]
pub struct Extern {
    /// Type parameters.
    pub type_params: Vec<Name>,
    /// Methods and constructors.
    pub methods: Vec<Method>,
}

/// A method of an extern object. A constructor has the object's name and no result type.
#[derive(Debug, Clone)]
pub struct Method {
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Whether the instance implements it.
    pub is_abstract: bool,
    /// Whether it is a constructor.
    pub is_constructor: bool,
    /// Prototype; of a constructor with the result type `void`.
    pub function: Function,
    /// Name.
    pub name: Name,
}

/// A function: its prototype and, unless it is extern, its body.
#[derive(Debug, Clone)]
pub struct Function {
    /// Type of the result.
    pub result: Type,
    /// Parameters.
    pub signature: Signature,
    /// Statements; none for a prototype.
    pub body: Option<Block>,
}

/// An action.
#[derive(Debug, Clone)]
pub struct Action {
    /// Parameters.
    pub params: Vec<Param>,
    /// Statements.
    pub body: Block,
}

/// A parser.
#[derive(Debug, Clone)]
pub struct Parser {
    /// Parameters.
    pub signature: Signature,
    /// Parameters of the constructor.
    pub constructor: Vec<Param>,
    /// Local declarations.
    pub locals: Vec<Declaration>,
    /// States.
    pub states: Vec<State>,
}

/// A parser state.
#[derive(Debug, Clone)]
pub struct State {
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Name.
    pub name: Name,
    /// Statements.
    pub statements: Vec<Statement>,
    /// Transition; none means `reject`.
    pub transition: Option<Transition>,
    /// Place of all of it.
    pub span: Span,
}

/// A transition.
#[derive(Debug, Clone)]
pub enum Transition {
    /// `transition NAME;`
    To(Name),
    /// `transition select(…) { … }`
    Select {
        /// Values.
        on: Vec<Expr>,
        /// Cases in order.
        cases: Vec<SelectCase>,
        /// Place of all of it.
        span: Span,
    },
}

/// A case of a `select`.
#[derive(Debug, Clone)]
pub struct SelectCase {
    /// Keyset: [`ExprKind::Default`], [`ExprKind::DontCare`], [`ExprKind::Range`], [`ExprKind::Mask`], another
    /// expression or, for several values, a [`ExprKind::List`] of those.
    pub keyset: Expr,
    /// Next state.
    pub to: Name,
}

/// A control.
#[derive(Debug, Clone)]
pub struct Control {
    /// Parameters.
    pub signature: Signature,
    /// Parameters of the constructor.
    pub constructor: Vec<Param>,
    /// Local declarations: constants, variables, instances, actions, tables.
    pub locals: Vec<Declaration>,
    /// The body of `apply`.
    pub body: Block,
}

/// A table.
#[derive(Debug, Clone)]
pub struct Table {
    /// Properties, in order.
    pub properties: Vec<Property>,
}

/// A table property.
#[derive(Debug, Clone)]
pub struct Property {
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Whether it is `const`.
    pub is_const: bool,
    /// Name: `key`, `actions`, `entries` or another.
    pub name: Name,
    /// Value.
    pub value: PropertyValue,
    /// Place of all of it.
    pub span: Span,
}

/// Value of a table property.
#[derive(Debug, Clone)]
pub enum PropertyValue {
    /// `key = { EXPR : KIND; … }`
    Key(Vec<KeyElement>),
    /// `actions = { …; }`
    Actions(Vec<ActionRef>),
    /// `entries = { …; }`
    Entries(Vec<Entry>),
    /// Any other property: `NAME = EXPR;`
    Expression(Expr),
}

/// An element of a table's key.
#[derive(Debug, Clone)]
pub struct KeyElement {
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Value.
    pub value: Expr,
    /// Match kind.
    pub kind: Name,
}

/// An action of a table's list.
#[derive(Debug, Clone)]
pub struct ActionRef {
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Name, or a call with the arguments for directed parameters.
    pub action: Expr,
}

/// An entry of a table.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Whether it is `const`.
    pub is_const: bool,
    /// Priority.
    pub priority: Option<Expr>,
    /// Keyset, as in [`SelectCase::keyset`].
    pub keyset: Expr,
    /// Action with its arguments.
    pub action: Expr,
    /// Place of all of it.
    pub span: Span,
}

/// Statements in braces.
#[derive(Debug, Clone, Default)]
pub struct Block {
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Statements.
    pub statements: Vec<Statement>,
    /// Place of all of it.
    pub span: Span,
}

/// A statement.
#[derive(Debug, Clone)]
pub struct Statement {
    /// Kind.
    pub kind: StatementKind,
    /// Place.
    pub span: Span,
}

/// Statements.
#[derive(Debug, Clone)]
pub enum StatementKind {
    /// `;`
    Empty,
    /// A variable, a constant or an instance.
    Declaration(Box<Declaration>),
    /// `PLACE = EXPR;`, or `PLACE += EXPR;` and the like.
    Assign(Expr, Option<BinOp>, Expr),
    /// A call. The expression is an [`ExprKind::Call`].
    Call(Expr),
    /// `if (…) … else …`
    If(Expr, Box<Statement>, Option<Box<Statement>>),
    /// `{ … }`
    Block(Block),
    /// `exit;`
    Exit,
    /// `return [EXPR];`
    Return(Option<Expr>),
    /// `break;`
    Break,
    /// `continue;`
    Continue,
    /// `switch (…) { … }`
    Switch(Expr, Vec<SwitchCase>),
    /// `for (INIT; CONDITION; UPDATE) BODY`
    For {
        /// Statements before the loop.
        init: Vec<Statement>,
        /// Condition.
        condition: Expr,
        /// Statements behind each round.
        update: Vec<Statement>,
        /// Body.
        body: Box<Statement>,
    },
    /// `for (TYPE NAME in COLLECTION) BODY`
    ForIn {
        /// Type, if the loop declares its variable.
        ty: Option<Type>,
        /// Variable.
        name: Name,
        /// [`ExprKind::Range`], or an expression of a stack, list or tuple.
        collection: Expr,
        /// Body.
        body: Box<Statement>,
    },
}

/// A case of a `switch`.
#[derive(Debug, Clone)]
pub struct SwitchCase {
    /// Label: [`ExprKind::Default`] or an expression.
    pub label: Expr,
    /// Block; without one, that of the next case with a block.
    pub body: Option<Block>,
}

/// A type.
#[derive(Debug, Clone)]
pub struct Type {
    /// Kind.
    pub kind: TypeKind,
    /// Place.
    pub span: Span,
}

/// Types.
#[derive(Debug, Clone)]
pub enum TypeKind {
    /// `void`
    Void,
    /// `bool`
    Bool,
    /// `error`
    Error,
    /// `match_kind`
    MatchKind,
    /// `string`
    String,
    /// `int`
    Integer,
    /// `bit`, `bit<N>` or `bit<(EXPR)>`
    Bit(Option<Box<Expr>>),
    /// `int<N>`
    Int(Box<Expr>),
    /// `varbit<N>`
    Varbit(Box<Expr>),
    /// A name, with a leading dot or not.
    Named {
        /// Whether it is looked up at the top level only.
        global: bool,
        /// Name.
        name: Name,
    },
    /// `TYPE<ARGS>`
    Specialized(Box<Type>, Vec<Type>),
    /// `TYPE[SIZE]`
    Stack(Box<Type>, Box<Expr>),
    /// `tuple<…>`
    Tuple(Vec<Type>),
    /// `list<…>`
    List(Box<Type>),
    /// `_` as a type argument
    DontCare,
}

/// An argument.
#[derive(Debug, Clone)]
pub struct Argument {
    /// Name, if it is given by name.
    pub name: Option<Name>,
    /// Value; [`ExprKind::DontCare`] for `_`.
    pub value: Expr,
}

/// An expression.
#[derive(Debug, Clone)]
pub struct Expr {
    /// Kind.
    pub kind: ExprKind,
    /// Place.
    pub span: Span,
}

/// Width and sign of a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiteralType {
    /// Whether it is `int<width>`.
    pub signed: bool,
    /// Bits.
    pub width: u32,
}

/// Expressions.
#[derive(Debug, Clone)]
pub enum ExprKind {
    /// `true`, `false`
    Bool(bool),
    /// An integer, with the type that its prefix gives.
    Integer(BigInt, Option<LiteralType>),
    /// A string, its escapes resolved.
    String(String),
    /// A name, with a leading dot or not.
    Name {
        /// Whether it is looked up at the top level only.
        global: bool,
        /// Name.
        name: Name,
    },
    /// `this`
    This,
    /// `...`
    Dots,
    /// `_`
    DontCare,
    /// `default`, in keysets and labels
    Default,
    /// `{#}`
    Invalid,
    /// `{ a, b }`; the flag says whether it ends in `...`
    List(Vec<Expr>, bool),
    /// `{ a = 1, b = 2 }`; the flag says whether it ends in `...`
    Record(Vec<(Name, Expr)>, bool),
    /// A type, as in `error.NoMatch` or `MyEnum<T>.A`: only as the left side of a [`ExprKind::Member`] or a
    /// [`ExprKind::Call`].
    Type(Type),
    /// `EXPR.NAME`
    Member(Box<Expr>, Name),
    /// `EXPR[INDEX]`
    Index(Box<Expr>, Box<Expr>),
    /// `EXPR[HI:LO]`
    Slice(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `EXPR[LO+:WIDTH]`
    PlusSlice(Box<Expr>, Box<Expr>, Box<Expr>),
    /// An operator on one operand.
    Unary(UnOp, Box<Expr>),
    /// An operator on two operands.
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// `C ? A : B`
    Ternary(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `(TYPE) EXPR`
    Cast(Type, Box<Expr>),
    /// `CALLEE<TYPES>(ARGS)`: a function, a method, or a constructor, whose callee is the type's [`ExprKind::Name`].
    Call(Box<Expr>, Vec<Type>, Vec<Argument>),
    /// `A &&& B`, in keysets
    Mask(Box<Expr>, Box<Expr>),
    /// `A .. B`, in keysets and loops
    Range(Box<Expr>, Box<Expr>),
}

/// Operators on one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnOp {
    /// `!`
    Not,
    /// `~`
    Complement,
    /// `-`
    Negate,
    /// `+`
    Plus,
}

/// Operators on two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Rem,
    /// `|+|`
    SatAdd,
    /// `|-|`
    SatSub,
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `<<`
    Shl,
    /// `>>`
    Shr,
    /// `++`
    Concat,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `&&`
    LogicAnd,
    /// `||`
    LogicOr,
}
