//! Building programs: what front ends use.
//!
//! Each method appends a declaration and returns its number. Blocks can be declared before they are defined, because
//! blocks, actions and tables refer to each other. Nothing is checked here; [`crate::validate()`] reports everything
//! together.

use crate::ir::*;

impl Program {
    /// An empty program.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds a header type.
    pub fn add_header_type(&mut self, name: &str, fields: &[(&str, FieldType)]) -> HeaderTypeId {
        let field = |(name, ty): &(&str, FieldType)| Field { name: (*name).to_owned(), ty: *ty };
        let fields = fields.iter().map(field).collect();
        self.header_types.push(HeaderType { name: name.to_owned(), fields });
        HeaderTypeId::at(self.header_types.len() - 1)
    }

    /// Adds a header instance.
    pub fn add_header(&mut self, name: &str, ty: HeaderTypeId) -> HeaderId {
        self.headers.push(Header { name: name.to_owned(), ty, place: HeaderPlace::Single });
        HeaderId::at(self.headers.len() - 1)
    }

    /// Adds a header stack.
    pub fn add_stack(&mut self, name: &str, ty: HeaderTypeId, size: u32) -> StackId {
        let (id, first) = (StackId::at(self.stacks.len()), HeaderId::at(self.headers.len()));
        let element = |i| Header { name: String::new(), ty, place: HeaderPlace::Element(id, i) };
        self.headers.extend((0..size).map(element));
        self.stacks.push(Stack { name: name.to_owned(), first, size });
        id
    }

    /// Adds a header union; returns its members too, in order.
    pub fn add_union(&mut self, name: &str, members: &[(&str, HeaderTypeId)]) -> (UnionId, Vec<HeaderId>) {
        let (id, first) = (UnionId::at(self.unions.len()), self.headers.len());
        let member = |(name, ty): &(&str, HeaderTypeId)| Header {
            name: (*name).to_owned(),
            ty: *ty,
            place: HeaderPlace::Member(id),
        };
        self.headers.extend(members.iter().map(member));
        let size = HeaderId::at(members.len()).0;
        self.unions.push(Union { name: name.to_owned(), first: HeaderId::at(first), size });
        (id, (first..self.headers.len()).map(HeaderId::at).collect())
    }

    /// Adds a variable.
    pub fn add_var(&mut self, name: &str, ty: Type) -> VarId {
        self.vars.push(Var { name: name.to_owned(), ty, slot: None });
        VarId::at(self.vars.len() - 1)
    }

    /// Adds a variable that the environment fills in.
    pub fn add_slot(&mut self, name: &str, width: u16, slot: Slot) -> VarId {
        self.vars.push(Var { name: name.to_owned(), ty: Type::Bit(width), slot: Some(slot) });
        VarId::at(self.vars.len() - 1)
    }

    /// Adds a parser error.
    pub fn add_error(&mut self, name: &str) -> ErrorId {
        self.errors.push(name.to_owned());
        ErrorId::at(ErrorId::STANDARD.len() + self.errors.len() - 1)
    }

    /// Adds a reason for drops.
    pub fn add_reason(&mut self, name: &str) -> ReasonId {
        self.reasons.push(name.to_owned());
        ReasonId::at(self.reasons.len() - 1)
    }

    /// Adds an action.
    pub fn add_action(&mut self, name: &str, params: &[(&str, Type)], body: Vec<Stmt>) -> ActionId {
        let param = |(name, ty): &(&str, Type)| Param { name: (*name).to_owned(), ty: *ty };
        self.actions.push(Action { name: name.to_owned(), params: params.iter().map(param).collect(), body });
        ActionId::at(self.actions.len() - 1)
    }

    /// Adds a table.
    pub fn add_table(&mut self, table: Table) -> TableId {
        self.tables.push(table);
        TableId::at(self.tables.len() - 1)
    }

    /// Declares a block, empty until [`Program::define_block`].
    pub fn declare_block(&mut self, name: &str) -> BlockId {
        self.blocks.push((name.to_owned(), vec![]));
        BlockId::at(self.blocks.len() - 1)
    }

    /// Gives a declared block its statements.
    pub fn define_block(&mut self, block: BlockId, body: Vec<Stmt>) {
        if let Some(slot) = self.blocks.get_mut(block.index()) {
            slot.1 = body;
        }
    }

    /// Adds a parser.
    pub fn add_parser(&mut self, name: &str, states: Vec<ParserState>) -> ParserId {
        self.parsers.push(Parser { name: name.to_owned(), states });
        ParserId::at(self.parsers.len() - 1)
    }

    /// Adds a stage.
    pub fn add_stage(&mut self, stage: Stage) -> StageId {
        self.stages.push(stage);
        StageId::at(self.stages.len() - 1)
    }
}

impl Table {
    /// A table without keys, actions and entries, that control planes may change.
    pub fn new(name: &str, size: u32) -> Self {
        Self {
            name: name.to_owned(),
            keys: vec![],
            actions: vec![],
            default_only: vec![],
            open: false,
            default: None,
            const_default: false,
            entries: vec![],
            const_entries: false,
            size,
            counter: None,
            meter: None,
            timeouts: false,
            profile: None,
            cpu: false,
        }
    }

    /// Adds a key.
    #[must_use]
    pub fn key(mut self, name: &str, kind: MatchKind, value: Expr) -> Self {
        self.keys.push(Key { name: name.to_owned(), value, kind });
        self
    }

    /// Adds actions that entries may have.
    #[must_use]
    pub fn actions(mut self, actions: &[ActionId]) -> Self {
        self.actions.extend_from_slice(actions);
        self
    }
}

impl Expr {
    /// An unsigned constant.
    pub fn bit(width: u16, value: u64) -> Self {
        Expr::Const(Constant::bit(width, value))
    }

    /// A field of a header instance.
    pub fn field(header: HeaderId, field: u16) -> Self {
        Expr::Field(HeaderRef::Header(header), field)
    }

    /// An operation on two expressions.
    #[must_use]
    pub fn op(self, op: BinOp, other: Expr) -> Self {
        Expr::Binary(op, Box::new((self, other)))
    }

    /// Whether two expressions are equal.
    #[must_use]
    pub fn equals(self, other: Expr) -> Self {
        self.op(BinOp::Eq, other)
    }

    /// A conversion.
    #[must_use]
    pub fn cast(self, ty: Type) -> Self {
        Expr::Cast(ty, Box::new(self))
    }

    /// Bits `hi` down to `lo`.
    #[must_use]
    pub fn slice(self, hi: u16, lo: u16) -> Self {
        Expr::Slice(Box::new(self), hi, lo)
    }
}

impl Send {
    /// The packet as it is, to a destination by the stage's next stage, with nothing else set.
    pub fn current(to: Dest) -> Self {
        Self {
            packet: Packet::Current,
            to,
            via: Via::Next,
            instance: 0,
            class: None,
            queue: None,
            limit: None,
            carry: vec![],
        }
    }
}

impl From<Send> for Stmt {
    fn from(send: Send) -> Self {
        Stmt::Send(Box::new(send))
    }
}
