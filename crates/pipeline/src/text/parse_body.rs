//! The parser of statements, expressions and parser graphs.

use super::lex::Token;
use super::parse::{Parsed, Reader};
use super::print::OPERATORS;
use crate::ir::*;

/// Deepest nesting that is parsed: more than validation admits, and little enough for any thread's stack.
const MAX_NESTING: usize = 200;

/// Most slices of slices.
const MAX_SLICES: usize = 8;

/// What a path names.
enum Path {
    Var(VarId),
    Header(HeaderRef),
    Field(HeaderRef, u16),
    Stack(StackId),
    Union(UnionId),
}

impl Reader {
    /// Runs a parser one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_NESTING {
            return self.fail("nested too deeply");
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    pub(super) fn hash_kind(&mut self) -> Parsed<HashKind> {
        let found = match self.peek() {
            Token::Word(word) => HashKind::ALL.iter().find(|kind| kind.name() == word),
            _ => None,
        };
        let Some(kind) = found else { return self.expected("a kind of hash") };
        self.at += 1;
        Ok(*kind)
    }

    pub(super) fn items(&mut self) -> Parsed<Vec<Item>> {
        self.mark("{")?;
        self.list("}", |r| {
            if r.eat_word("payload") {
                return Ok(Item::Payload);
            }
            // A variable field is no expression's value, but the syntax is the same.
            r.expr().map(Item::Value)
        })
    }

    pub(super) fn parser(&mut self, name: String) -> Parsed<Parser> {
        self.mark("{")?;
        let start = self.at;
        let mut names = Vec::new();
        // First the names of the states: transitions may lead forward.
        while self.eat_word("state") {
            names.push(self.name()?);
            self.mark("{")?;
            let mut open = 1;
            while open > 0 {
                match self.next() {
                    Token::Mark("{") => open += 1,
                    Token::Mark("}") => open -= 1,
                    Token::End => return self.expected("the end of a state"),
                    _ => {}
                }
            }
        }
        self.at = start;
        let mut states = Vec::new();
        while self.eat_word("state") {
            let name = self.name()?;
            self.mark("{")?;
            let mut ops = Vec::new();
            let next = loop {
                if self.eat_word("select") {
                    break self.select(&names)?;
                }
                if self.eat_word("goto") {
                    let to = self.target(&names)?;
                    self.mark(";")?;
                    break Transition::To(to);
                }
                ops.push(self.parser_op()?);
            };
            self.mark("}")?;
            states.push(ParserState { name, ops, next });
        }
        self.mark("}")?;
        Ok(Parser { name, states })
    }

    fn parser_op(&mut self) -> Parsed<ParserOp> {
        let op = if self.eat_word("extract") {
            let header = self.header()?;
            let length = if self.is_mark(";") { None } else { Some(self.expr()?) };
            ParserOp::Extract(header, length)
        } else if self.eat_word("advance") {
            ParserOp::Advance(self.expr()?)
        } else if self.eat_word("verify") {
            let condition = self.expr()?;
            let before = self.at;
            let name = self.name()?;
            let standard = ErrorId::STANDARD.iter().map(|s| (*s).to_owned());
            let Some(error) = standard.chain(self.p.errors.iter().cloned()).position(|e| e == name) else {
                self.at = before;
                return self.fail(format!("there is no error {name}"));
            };
            ParserOp::Verify(condition, ErrorId::at(error))
        } else {
            return self.stmt().map(ParserOp::Do);
        };
        self.mark(";")?;
        Ok(op)
    }

    fn target(&mut self, names: &[String]) -> Parsed<Target> {
        if self.eat_word("accept") {
            return Ok(Target::Accept);
        }
        if self.eat_word("reject") {
            return Ok(Target::Reject);
        }
        self.word("state")?;
        let before = self.at;
        let name = self.name()?;
        match names.iter().position(|state| *state == name) {
            Some(i) => Ok(Target::State(u32::try_from(i).unwrap_or(u32::MAX))),
            None => {
                self.at = before;
                self.fail(format!("there is no state {name}"))
            }
        }
    }

    fn select(&mut self, names: &[String]) -> Parsed<Transition> {
        self.mark("(")?;
        let on = self.list(")", Self::expr)?;
        self.mark("{")?;
        let mut cases = Vec::new();
        while !self.eat("}") {
            self.mark("(")?;
            let sets = self.list(")", Self::keyset)?;
            self.mark(":")?;
            let to = self.target(names)?;
            self.mark(";")?;
            cases.push(Case { sets, to });
        }
        Ok(Transition::Select(Select { on, cases }))
    }

    fn keyset(&mut self) -> Parsed<Keyset> {
        if self.eat_word("_") {
            return Ok(Keyset::Any);
        }
        if self.eat_word("in") {
            return Ok(Keyset::Set(ValueSetId(self.find("value set", |p| &p.value_sets, |x| &x.name)?)));
        }
        let value = self.constant()?;
        if self.eat("&&&") {
            return Ok(Keyset::Mask(value, self.constant()?));
        }
        if self.eat("..") {
            return Ok(Keyset::Range(value, self.constant()?));
        }
        Ok(Keyset::Value(value))
    }

    pub(super) fn body(&mut self) -> Parsed<Vec<Stmt>> {
        self.mark("{")?;
        let mut body = Vec::new();
        while !self.eat("}") {
            body.push(self.nested(Self::stmt)?);
        }
        Ok(body)
    }

    fn stmt(&mut self) -> Parsed<Stmt> {
        if self.is_name() {
            let place = self.place()?;
            self.mark("=")?;
            let value = self.expr()?;
            self.mark(";")?;
            return Ok(Stmt::Set(place, value));
        }
        let before = self.at;
        let word = match self.next() {
            Token::Word(word) => word,
            _ => String::new(),
        };
        let stmt = match word.as_str() {
            "atomic" => return self.body().map(Stmt::Atomic),
            "if" => return self.branch(),
            "switch" => return self.switch(),
            "copy" => {
                let to = self.header()?;
                self.mark("=")?;
                Stmt::CopyHeader(to, self.header()?)
            }
            "valid" => Stmt::SetValid(self.header()?),
            "invalid" => Stmt::SetInvalid(self.header()?),
            "push" => Stmt::Push(self.stack_name()?, self.number()?),
            "pop" => Stmt::Pop(self.stack_name()?, self.number()?),
            "hash" => {
                let place = self.assigned()?;
                let kind = self.hash_kind()?;
                Stmt::Hash(place, kind, self.items()?)
            }
            "checksum" => Stmt::UpdateChecksum(self.place()?, self.items()?, self.items()?),
            "random" => {
                let place = self.assigned()?;
                let low = self.expr()?;
                self.mark("..")?;
                Stmt::Random(place, low, self.expr()?)
            }
            "read" => {
                let place = self.assigned()?;
                let register = RegisterId(self.find("register", |p| &p.registers, |x| &x.name)?);
                Stmt::RegisterRead(place, register, self.index()?)
            }
            "write" => {
                let register = RegisterId(self.find("register", |p| &p.registers, |x| &x.name)?);
                let index = self.index()?;
                self.mark("=")?;
                Stmt::RegisterWrite(register, index, self.expr()?)
            }
            "count" => {
                let counter = CounterId(self.find("counter", |p| &p.counters, |x| &x.name)?);
                Stmt::Count(counter, self.index()?)
            }
            "meter" => {
                let place = self.assigned()?;
                let meter = MeterId(self.find("meter", |p| &p.meters, |x| &x.name)?);
                let index = self.index()?;
                Stmt::Meter(place, meter, index, self.option("color")?)
            }
            "meter_entry" => {
                let place = self.assigned()?;
                let table = self.table_name()?;
                Stmt::MeterEntry(place, table, self.option("color")?)
            }
            "send" => Stmt::Send(Box::new(self.send()?)),
            "group" => {
                let groups = GroupTableId(self.find("group table", |p| &p.groups, |x| &x.name)?);
                Stmt::Group(groups, self.index()?)
            }
            "controller" => {
                let reason = self.expr()?;
                let limit = self.option("limit")?;
                Stmt::Controller(reason, limit, self.items()?)
            }
            "digest" => {
                let digest = DigestId(self.find("digest", |p| &p.digests, |x| &x.name)?);
                self.mark("(")?;
                Stmt::Digest(digest, self.list(")", Self::expr)?)
            }
            "drop" => Stmt::Drop(ReasonId(self.find("drop reason", |p| &p.reasons, |x| x)?)),
            "truncate" => Stmt::Truncate(self.expr()?),
            "insert" => Stmt::Insert(self.items()?),
            "remove" => Stmt::Remove(self.expr()?),
            "reparse" => Stmt::Reparse,
            "apply" => self.apply()?,
            "do" => {
                let action = self.action_name()?;
                self.mark("(")?;
                Stmt::Do(action, self.list(")", Self::expr)?)
            }
            "call" => Stmt::Call(self.block_name()?),
            "goto" => Stmt::Goto(self.block_name()?),
            "return" => Stmt::Return,
            "exit" => Stmt::Exit,
            "extern" => {
                let function = ExternId(self.find("extern", |p| &p.externs, |x| &x.name)?);
                self.mark("(")?;
                let args = self.list(")", |r| {
                    if r.eat_word("out") {
                        return r.place().map(ExternArg::Out);
                    }
                    r.word("in")?;
                    r.expr().map(ExternArg::In)
                })?;
                Stmt::Extern(function, args)
            }
            "emit" => Stmt::Emit(match self.path()? {
                Path::Header(header) => EmitRef::Header(header),
                Path::Stack(stack) => EmitRef::Stack(stack),
                Path::Union(union) => EmitRef::Union(union),
                Path::Var(_) | Path::Field(..) => return self.fail("expected a header"),
            }),
            _ => {
                self.at = before;
                return self.expected("a statement");
            }
        };
        self.mark(";")?;
        Ok(stmt)
    }

    fn branch(&mut self) -> Parsed<Stmt> {
        let condition = self.expr()?;
        let yes = self.body()?;
        let no = if self.eat_word("else") { self.body()? } else { vec![] };
        Ok(Stmt::If(condition, yes, no))
    }

    fn switch(&mut self) -> Parsed<Stmt> {
        let value = self.expr()?;
        self.mark("{")?;
        let mut cases = Vec::new();
        while self.eat_word("case") {
            let constants = if self.is_mark("{") { vec![] } else { self.names(Self::constant)? };
            cases.push((constants, self.body()?));
        }
        self.word("default")?;
        let default = self.body()?;
        self.mark("}")?;
        Ok(Stmt::Switch(value, cases, default))
    }

    fn apply(&mut self) -> Parsed<Stmt> {
        let table = self.table_name()?;
        let mut applied = Applied::default();
        if self.eat("{") {
            if self.eat_word("hit") {
                applied.hit = self.body()?;
            }
            if self.eat_word("miss") {
                applied.miss = self.body()?;
            }
            while self.eat_word("action") {
                let action = self.action_name()?;
                applied.actions.push((action, self.body()?));
            }
            if self.eat_word("other") {
                applied.other = self.body()?;
            }
            self.mark("}")?;
        }
        Ok(Stmt::Apply(table, Box::new(applied)))
    }

    fn send(&mut self) -> Parsed<Send> {
        let packet = if self.eat_word("original") {
            Packet::Original
        } else {
            self.word("current")?;
            Packet::Current
        };
        let to = if self.eat_word("port") {
            Dest::Port(self.expr()?)
        } else if self.eat_word("flood") {
            Dest::Flood
        } else if self.eat_word("all") {
            Dest::All
        } else if self.eat_word("fallback") {
            Dest::Fallback
        } else if self.eat_word("replicas") {
            let replicas = ReplicasId(self.find("replication list", |p| &p.replicas, |x| x)?);
            Dest::Replicas(replicas, self.index()?)
        } else {
            self.word("same")?;
            Dest::Same
        };
        let via = if self.eat_word("via") {
            Via::Stage(self.stage_name()?)
        } else if self.eat_word("direct") {
            Via::Direct
        } else {
            Via::Next
        };
        let instance = if self.eat_word("instance") { self.number()? } else { 0 };
        let class = self.option("class")?;
        let queue = self.option("queue")?;
        let limit = self.option("limit")?;
        let var = |r: &mut Self| Ok(VarId(r.find("variable", |p| &p.vars, |x| &x.name)?));
        let carry = if self.eat_word("carry") { self.names(var)? } else { vec![] };
        Ok(Send { packet, to, via, instance, class, queue, limit, carry })
    }

    fn option(&mut self, word: &str) -> Parsed<Option<Expr>> {
        if self.eat_word(word) { self.expr().map(Some) } else { Ok(None) }
    }

    /// Parses a place and the `=` behind it.
    fn assigned(&mut self) -> Parsed<LValue> {
        let place = self.place()?;
        self.mark("=")?;
        Ok(place)
    }

    /// Parses `[expr]`.
    fn index(&mut self) -> Parsed<Expr> {
        self.mark("[")?;
        let index = self.expr()?;
        self.mark("]")?;
        Ok(index)
    }

    fn stack_name(&mut self) -> Parsed<StackId> {
        Ok(StackId(self.find("stack", |p| &p.stacks, |x| &x.name)?))
    }

    fn table_name(&mut self) -> Parsed<TableId> {
        Ok(TableId(self.find("table", |p| &p.tables, |x| &x.name)?))
    }

    fn header(&mut self) -> Parsed<HeaderRef> {
        match self.path()? {
            Path::Header(header) => Ok(header),
            _ => self.fail("expected a header"),
        }
    }

    fn place(&mut self) -> Parsed<LValue> {
        let mut place = match self.path()? {
            Path::Var(var) => LValue::Var(var),
            Path::Field(header, field) => LValue::Field(header, field),
            _ => return self.fail("expected a variable or a field"),
        };
        let mut slices = 0;
        while self.is_mark("[") {
            slices += 1;
            if slices > MAX_SLICES {
                return self.fail("nested too deeply");
            }
            let (hi, lo) = self.slice()?;
            place = LValue::Slice(Box::new(place), hi, lo);
        }
        Ok(place)
    }

    /// Parses `[hi:lo]`.
    fn slice(&mut self) -> Parsed<(u16, u16)> {
        self.mark("[")?;
        let hi = self.number()?;
        self.mark(":")?;
        let lo = self.number()?;
        self.mark("]")?;
        Ok((hi, lo))
    }

    /// Parses the name of a variable, a header, a field, a stack or a union.
    fn path(&mut self) -> Parsed<Path> {
        let before = self.at;
        let name = self.name()?;
        let p = &self.p;
        if let Some(i) = p.vars.iter().position(|var| var.name == name) {
            return Ok(Path::Var(VarId::at(i)));
        }
        let single = |header: &Header| header.place == HeaderPlace::Single && header.name == name;
        if let Some(i) = p.headers.iter().position(single) {
            return self.field_of(HeaderRef::Header(HeaderId::at(i)));
        }
        if let Some(i) = p.unions.iter().position(|union| union.name == name) {
            if !self.eat(".") {
                return Ok(Path::Union(UnionId::at(i)));
            }
            let before = self.at;
            let member = self.name()?;
            let place = HeaderPlace::Member(UnionId::at(i));
            let found = self.p.headers.iter().position(|h| h.place == place && h.name == member);
            let Some(header) = found else {
                self.at = before;
                return self.fail(format!("union {name} has no member {member}"));
            };
            return self.field_of(HeaderRef::Header(HeaderId::at(header)));
        }
        if let Some(i) = p.stacks.iter().position(|stack| stack.name == name) {
            return self.element(StackId::at(i));
        }
        self.at = before;
        self.fail(format!("there is no variable, header, stack or union {name}"))
    }

    fn element(&mut self, stack: StackId) -> Parsed<Path> {
        if self.eat(".") {
            if self.eat_word("next") {
                return self.field_of(HeaderRef::Next(stack));
            }
            self.word("last")?;
            return self.field_of(HeaderRef::Last(stack));
        }
        if !self.eat("[") {
            return Ok(Path::Stack(stack));
        }
        let header = if matches!(self.peek(), Token::Number(_)) {
            let index: u32 = self.number()?;
            let Some(stack) = self.p.stacks.get(stack.index()).filter(|stack| index < stack.size) else {
                return self.fail("the stack has no such element");
            };
            HeaderRef::Header(HeaderId(stack.first.0 + index))
        } else {
            HeaderRef::Element(stack, Box::new(self.expr()?))
        };
        self.mark("]")?;
        self.field_of(header)
    }

    /// Parses the name of a field, if one follows.
    fn field_of(&mut self, header: HeaderRef) -> Parsed<Path> {
        if !self.eat(".") {
            return Ok(Path::Header(header));
        }
        let before = self.at;
        let name = self.name()?;
        let ty = match &header {
            HeaderRef::Header(id) => self.p.header_type(*id),
            HeaderRef::Element(stack, _) | HeaderRef::Next(stack) | HeaderRef::Last(stack) => {
                self.p.stack_type(*stack)
            }
        };
        let field = ty.and_then(|ty| ty.fields.iter().position(|field| field.name == name));
        match field.and_then(|field| u16::try_from(field).ok()) {
            Some(field) => Ok(Path::Field(header, field)),
            None => {
                self.at = before;
                self.fail(format!("there is no field {name}"))
            }
        }
    }

    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        self.nested(|r| {
            let mut expr = r.primary()?;
            let mut slices = 0;
            while r.is_mark("[") {
                slices += 1;
                if slices > MAX_SLICES {
                    return r.fail("nested too deeply");
                }
                let (hi, lo) = r.slice()?;
                expr = Expr::Slice(Box::new(expr), hi, lo);
            }
            Ok(expr)
        })
    }

    fn primary(&mut self) -> Parsed<Expr> {
        for (mark, op) in [("!", UnOp::Not), ("~", UnOp::Complement), ("-", UnOp::Negate)] {
            if self.eat(mark) {
                return Ok(Expr::Unary(op, Box::new(self.expr()?)));
            }
        }
        if self.eat("(") {
            return self.bracketed();
        }
        if self.eat("$") {
            let before = self.at;
            let name = match self.next() {
                Token::Word(name) | Token::Quoted(name) => name,
                _ => String::new(),
            };
            let found = self.params.iter().position(|param| param.name == name);
            let Some(i) = found.and_then(|i| u16::try_from(i).ok()) else {
                self.at = before;
                return self.fail(format!("there is no parameter {name}"));
            };
            return Ok(Expr::Param(i));
        }
        if self.eat_word("valid") {
            self.mark("(")?;
            let header = self.header()?;
            self.mark(")")?;
            return Ok(Expr::Valid(header));
        }
        if self.eat_word("last_index") {
            self.mark("(")?;
            let stack = self.stack_name()?;
            self.mark(")")?;
            return Ok(Expr::LastIndex(stack));
        }
        if self.eat_word("length") {
            self.mark("(")?;
            let Path::Field(header, field) = self.path()? else { return self.fail("expected a field") };
            self.mark(")")?;
            return Ok(Expr::FieldLength(header, field));
        }
        if self.eat_word("lookahead") {
            self.mark("(")?;
            let ty = self.ty()?;
            self.mark(",")?;
            let offset = self.number()?;
            self.mark(")")?;
            return Ok(Expr::Lookahead(ty, offset));
        }
        if self.eat_word("remaining") {
            return Ok(Expr::Remaining);
        }
        if self.is_word("bool") || self.is_word("bit") || self.is_word("int") {
            let ty = self.ty()?;
            self.mark("(")?;
            let operand = self.expr()?;
            self.mark(")")?;
            return Ok(Expr::Cast(ty, Box::new(operand)));
        }
        if self.is_name() {
            return match self.path()? {
                Path::Var(var) => Ok(Expr::Var(var)),
                Path::Field(header, field) => Ok(Expr::Field(header, field)),
                _ => self.fail("expected a variable or a field"),
            };
        }
        self.constant().map(Expr::Const)
    }

    /// Parses behind an opening bracket: an expression, an operation or a choice.
    fn bracketed(&mut self) -> Parsed<Expr> {
        let first = self.expr()?;
        if self.eat(")") {
            return Ok(first);
        }
        if self.eat("?") {
            let yes = self.expr()?;
            self.mark(":")?;
            let no = self.expr()?;
            self.mark(")")?;
            return Ok(Expr::Mux(Box::new((first, yes, no))));
        }
        let Some((op, symbol)) = OPERATORS.iter().find(|(_, symbol)| self.is_mark(symbol)) else {
            return self.expected("an operator");
        };
        self.mark(symbol)?;
        let second = self.expr()?;
        self.mark(")")?;
        Ok(Expr::Binary(*op, Box::new((first, second))))
    }
}
