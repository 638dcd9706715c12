//! The printer. Numbers that refer to nothing print as `?N`: an invalid program has a text too, which does not parse.

use std::borrow::Cow;
use std::fmt::{self, Write};

use super::KEYWORDS;
use crate::ir::*;

/// Returns the text of a program.
pub fn print(program: &Program) -> String {
    let mut printer = Printer { p: program, params: &[], out: String::new(), indent: 0 };
    // Writing to a string succeeds.
    let _ = printer.program();
    printer.out
}

/// Returns the text of an action, with the names of its program.
pub fn print_action(program: &Program, action: &Action) -> String {
    let mut printer = Printer { p: program, params: &[], out: String::new(), indent: 0 };
    let _ = printer.action(action);
    printer.out
}

/// Returns the text of an entry. `names` finds the names of actions that were defined at run time.
pub fn print_entry(program: &Program, table: &Table, entry: &Entry, names: Names<'_>) -> String {
    let mut printer = Printer { p: program, params: &[], out: String::new(), indent: 0 };
    let _ = printer.entry(table, entry, names);
    printer.out
}

/// Finds the name of an action.
pub type Names<'a> = &'a dyn Fn(ActionId) -> Option<String>;

/// Returns the text of a constant.
pub fn print_value(constant: &Constant) -> String {
    Const(constant).to_string()
}

/// Returns the keyword of a statement.
pub(crate) fn statement_name(stmt: &Stmt) -> &'static str {
    match stmt {
        Stmt::Set(..) => "=",
        Stmt::CopyHeader(..) => "copy",
        Stmt::SetValid(_) => "valid",
        Stmt::SetInvalid(_) => "invalid",
        Stmt::Push(..) => "push",
        Stmt::Pop(..) => "pop",
        Stmt::Hash(..) => "hash",
        Stmt::UpdateChecksum(..) => "checksum",
        Stmt::Random(..) => "random",
        Stmt::RegisterRead(..) => "read",
        Stmt::RegisterWrite(..) => "write",
        Stmt::Atomic(_) => "atomic",
        Stmt::Count(..) => "count",
        Stmt::Meter(..) => "meter",
        Stmt::MeterEntry(..) => "meter_entry",
        Stmt::Send(_) => "send",
        Stmt::Group(..) => "group",
        Stmt::Controller(..) => "controller",
        Stmt::Digest(..) => "digest",
        Stmt::Drop(_) => "drop",
        Stmt::Truncate(_) => "truncate",
        Stmt::Insert(_) => "insert",
        Stmt::Remove(_) => "remove",
        Stmt::Reparse => "reparse",
        Stmt::Apply(..) => "apply",
        Stmt::Do(..) => "do",
        Stmt::If(..) => "if",
        Stmt::Switch(..) => "switch",
        Stmt::Call(_) => "call",
        Stmt::Goto(_) => "goto",
        Stmt::Return => "return",
        Stmt::Exit => "exit",
        Stmt::Extern(..) => "extern",
        Stmt::Emit(_) => "emit",
    }
}

/// Returns the symbol of an operator.
pub(super) fn symbol(op: BinOp) -> &'static str {
    OPERATORS.iter().find(|(other, _)| *other == op).map_or("?", |(_, symbol)| symbol)
}

/// Operators and their symbols.
pub(super) const OPERATORS: &[(BinOp, &str)] = &[
    (BinOp::Add, "+"),
    (BinOp::Sub, "-"),
    (BinOp::Mul, "*"),
    (BinOp::Div, "/"),
    (BinOp::Rem, "%"),
    (BinOp::SatAdd, "|+|"),
    (BinOp::SatSub, "|-|"),
    (BinOp::OnesAdd, "+1c"),
    (BinOp::And, "&"),
    (BinOp::Or, "|"),
    (BinOp::Xor, "^"),
    (BinOp::Shl, "<<"),
    (BinOp::Shr, ">>"),
    (BinOp::Concat, "++"),
    (BinOp::Eq, "=="),
    (BinOp::Ne, "!="),
    (BinOp::Lt, "<"),
    (BinOp::Le, "<="),
    (BinOp::Gt, ">"),
    (BinOp::Ge, ">="),
    (BinOp::LogicAnd, "&&"),
    (BinOp::LogicOr, "||"),
];

/// A name, between backquotes if it needs them.
pub(super) fn quoted(name: &str) -> Cow<'_, str> {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.chars().next().is_some_and(|c| !c.is_ascii_digit())
        && !KEYWORDS.contains(&name);
    if plain { Cow::Borrowed(name) } else { Cow::Owned(format!("`{name}`")) }
}

struct Ty(Type);

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Type::Bool => f.write_str("bool"),
            Type::Bit(width) => write!(f, "bit<{width}>"),
            Type::Int(width) => write!(f, "int<{width}>"),
        }
    }
}

impl fmt::Display for Extern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", quoted(&self.name))?;
        for (i, (direction, ty)) in self.params.iter().enumerate() {
            let direction = match direction {
                Direction::In => "in",
                Direction::Out => "out",
            };
            write!(f, "{}{direction} {}", if i == 0 { "" } else { ", " }, Ty(*ty))?;
        }
        f.write_str(")")
    }
}

struct Const<'a>(&'a Constant);

impl fmt::Display for Const<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = &self.0.value;
        match self.0.ty {
            Type::Bool => write!(f, "{}", !value.is_zero()),
            Type::Bit(width) if *value.limbs() == [value.low_u64()] && value.low_u64() < 1000 => {
                write!(f, "{width}w{}", value.low_u64())
            }
            Type::Bit(width) => write!(f, "{width}w{value}"),
            Type::Int(width) => write!(f, "{width}s{value}"),
        }
    }
}

struct Printer<'a> {
    p: &'a Program,
    params: &'a [Param],
    out: String,
    indent: usize,
}

impl<'a> Printer<'a> {
    fn line(&mut self, text: impl fmt::Display) -> fmt::Result {
        writeln!(self.out, "{:1$}{text}", "", self.indent * 2)
    }

    fn block(
        &mut self,
        head: impl fmt::Display,
        tail: &str,
        body: impl FnOnce(&mut Self) -> fmt::Result,
    ) -> fmt::Result {
        self.line(format_args!("{head} {{"))?;
        self.indent += 1;
        body(self)?;
        self.indent -= 1;
        self.line(format_args!("}}{tail}"))
    }

    fn name<T>(list: &'a [T], index: usize, name: impl Fn(&'a T) -> &'a str) -> Cow<'a, str> {
        list.get(index).map_or_else(|| format!("?{index}").into(), |element| quoted(name(element)))
    }

    fn action_name(&self, id: ActionId) -> Cow<'a, str> {
        Self::name(&self.p.actions, id.index(), |x| &x.name)
    }

    fn table_name(&self, id: TableId) -> Cow<'a, str> {
        Self::name(&self.p.tables, id.index(), |x| &x.name)
    }

    fn block_name(&self, id: BlockId) -> Cow<'a, str> {
        Self::name(&self.p.blocks, id.index(), |x| &x.0)
    }

    fn stage_name(&self, id: StageId) -> Cow<'a, str> {
        Self::name(&self.p.stages, id.index(), |x| &x.name)
    }

    fn stack_name(&self, id: StackId) -> Cow<'a, str> {
        Self::name(&self.p.stacks, id.index(), |x| &x.name)
    }

    fn var_name(&self, id: VarId) -> Cow<'a, str> {
        Self::name(&self.p.vars, id.index(), |x| &x.name)
    }

    fn actions(&self, list: &[ActionId]) -> String {
        list.iter().map(|action| self.action_name(*action)).collect::<Vec<_>>().join(", ")
    }

    fn program(&mut self) -> fmt::Result {
        let p = self.p;
        self.block(format_args!("program {}", quoted(&p.name)), "", |s| {
            for ty in &p.header_types {
                s.block(format_args!("header {}", quoted(&ty.name)), "", |s| {
                    ty.fields.iter().try_for_each(|field| match field.ty {
                        FieldType::Scalar(ty) => s.line(format_args!("{}: {};", quoted(&field.name), Ty(ty))),
                        FieldType::Varbit(max) => {
                            s.line(format_args!("{}: varbit<{max}>;", quoted(&field.name)))
                        }
                    })
                })?;
            }
            s.headers()?;
            for var in &p.vars {
                let slot = var.slot.map_or(String::new(), |slot| format!(" = env {}", slot.name()));
                s.line(format_args!("var {}: {}{slot};", quoted(&var.name), Ty(var.ty)))?;
            }
            p.errors.iter().try_for_each(|x| s.line(format_args!("error {};", quoted(x))))?;
            p.reasons.iter().try_for_each(|x| s.line(format_args!("reason {};", quoted(x))))?;
            p.replicas.iter().try_for_each(|x| s.line(format_args!("replicas {};", quoted(x))))?;
            for x in &p.value_sets {
                s.line(format_args!("value_set {}[{}]: ({});", quoted(&x.name), x.size, types(&x.types)))?;
            }
            for x in &p.digests {
                s.line(format_args!("digest {}: ({});", quoted(&x.name), types(&x.types)))?;
            }
            for x in &p.counters {
                s.line(format_args!("counter {}[{}]: {};", quoted(&x.name), x.size, counter(x.kind)))?;
            }
            for x in &p.meters {
                s.line(format_args!("meter {}[{}]: {};", quoted(&x.name), x.size, unit(x.unit)))?;
            }
            for x in &p.registers {
                s.line(format_args!("register {}[{}]: {};", quoted(&x.name), x.size, Ty(x.ty)))?;
            }
            for x in &p.externs {
                s.line(format_args!("extern {x};"))?;
            }
            for x in &p.profiles {
                s.block(format_args!("profile {}[{}]", quoted(&x.name), x.size), "", |s| {
                    if !x.actions.is_empty() {
                        s.line(format_args!("actions {};", s.actions(&x.actions)))?;
                    }
                    x.select.iter().try_for_each(|select| s.selection(select))
                })?;
            }
            for x in &p.groups {
                s.block(format_args!("groups {}[{}]", quoted(&x.name), x.size), "", |s| {
                    s.selection(&x.select)
                })?;
            }
            p.actions.iter().try_for_each(|action| s.action(action))?;
            p.tables.iter().try_for_each(|table| s.table(table))?;
            p.parsers.iter().try_for_each(|parser| s.parser(parser))?;
            for (name, body) in &p.blocks {
                s.block(format_args!("block {}", quoted(name)), "", |s| s.body(body))?;
            }
            p.stages.iter().try_for_each(|stage| s.stage(stage))
        })
    }

    fn headers(&mut self) -> fmt::Result {
        let p = self.p;
        let ty = |id: HeaderTypeId| Self::name(&p.header_types, id.index(), |x| &x.name);
        for header in &p.headers {
            match header.place {
                HeaderPlace::Single => {
                    self.line(format_args!("instance {}: {};", quoted(&header.name), ty(header.ty)))?;
                }
                HeaderPlace::Element(id, 0) => {
                    let size = p.stacks.get(id.index()).map_or(0, |stack| stack.size);
                    self.line(format_args!("stack {}: {}[{size}];", self.stack_name(id), ty(header.ty)))?;
                }
                HeaderPlace::Element(..) => {}
                HeaderPlace::Member(id) => {
                    let Some(union) = p.unions.get(id.index()) else { continue };
                    let members = p.headers.iter().skip(union.first.index()).take(union.size as usize);
                    if members.clone().next().is_some_and(|first| std::ptr::eq(first, header)) {
                        self.block(format_args!("union {}", quoted(&union.name)), "", |s| {
                            members.clone().try_for_each(|member| {
                                s.line(format_args!("{}: {};", quoted(&member.name), ty(member.ty)))
                            })
                        })?;
                    }
                }
            }
        }
        Ok(())
    }

    fn selection(&mut self, select: &Selection) -> fmt::Result {
        let items = self.items(&select.input);
        self.line(format_args!("select {} {items};", select.hash.name()))
    }

    fn action(&mut self, action: &'a Action) -> fmt::Result {
        let params: Vec<_> =
            action.params.iter().map(|param| format!("{}: {}", quoted(&param.name), Ty(param.ty))).collect();
        self.params = &action.params;
        let head = format!("action {}({})", quoted(&action.name), params.join(", "));
        self.block(head, "", |s| s.body(&action.body))?;
        self.params = &[];
        Ok(())
    }

    fn table(&mut self, table: &'a Table) -> fmt::Result {
        self.block(format_args!("table {}", quoted(&table.name)), "", |s| {
            for key in &table.keys {
                let value = s.expr(&key.value);
                s.line(format_args!("key {}: {} = {value};", quoted(&key.name), key.kind.name()))?;
            }
            if !table.actions.is_empty() {
                s.line(format_args!("actions {};", s.actions(&table.actions)))?;
            }
            if !table.default_only.is_empty() {
                s.line(format_args!("default_only {};", s.actions(&table.default_only)))?;
            }
            if table.open {
                s.line("open;")?;
            }
            if let Some(call) = &table.default {
                let call = s.call(call, &|_| None);
                s.line(format_args!("{}default {call};", if table.const_default { "const " } else { "" }))?;
            } else if table.const_default {
                s.line("const default;")?;
            }
            s.line(format_args!("size {};", table.size))?;
            if let Some(kind) = table.counter {
                s.line(format_args!("count {};", counter(kind)))?;
            }
            if let Some(meter) = table.meter {
                s.line(format_args!("meter {};", unit(meter)))?;
            }
            if table.timeouts {
                s.line("timeouts;")?;
            }
            if let Some(id) = table.profile {
                s.line(format_args!("profile {};", Self::name(&s.p.profiles, id.index(), |x| &x.name)))?;
            }
            if table.const_entries {
                s.line("const_entries;")?;
            }
            if table.cpu {
                s.line("cpu;")?;
            }
            table.entries.iter().try_for_each(|entry| s.entry(table, entry, &|_| None))
        })
    }

    fn entry(&mut self, table: &Table, entry: &Entry, names: Names<'_>) -> fmt::Result {
        let mut text = "entry ".to_owned();
        if entry.priority != 0 {
            write!(text, "priority {} ", entry.priority)?;
        }
        text.push_str("{ ");
        for condition in entry.matches.iter() {
            let key = table.keys.get(condition.key as usize);
            let ty = key.and_then(|key| crate::validate::expr_type(self.p, &key.value));
            let value = |bits: &crate::bits::Bits| {
                Const(&Constant { ty: ty.unwrap_or(Type::Bit(bits.width())), value: bits.clone() })
                    .to_string()
            };
            write!(text, "{}: ", key.map_or("?".into(), |key| quoted(&key.name)))?;
            match &condition.is {
                KeyMatch::Exact(a) => write!(text, "{}; ", value(a)),
                KeyMatch::Prefix(a, len) => write!(text, "{}/{len}; ", value(a)),
                KeyMatch::Mask(a, mask) => write!(text, "{} &&& {}; ", value(a), value(mask)),
                KeyMatch::Range(low, high) => write!(text, "{}..{}; ", value(low), value(high)),
            }?;
        }
        text.push_str("} -> ");
        match &entry.result {
            EntryResult::Action(call) => text.push_str(&self.call(call, names)),
            EntryResult::Member(id) => write!(text, "member {id}")?,
            EntryResult::Group(id) => write!(text, "group {id}")?,
        }
        for (word, value) in
            [("idle", entry.idle.into()), ("hard", entry.hard.into()), ("cookie", entry.cookie)]
        {
            if value != 0 {
                write!(text, " {word} {value}")?;
            }
        }
        self.line(format_args!("{text};"))
    }

    fn call(&self, call: &ActionCall, names: Names<'_>) -> String {
        let own = self.p.actions.get(call.action.index()).map(|action| action.name.clone());
        let name = own.or_else(|| names(call.action));
        let name = name.map_or_else(|| format!("?{}", call.action.0), |name| quoted(&name).into_owned());
        let args: Vec<_> = call.args.iter().map(|arg| Const(arg).to_string()).collect();
        format!("{name}({})", args.join(", "))
    }

    fn parser(&mut self, parser: &'a Parser) -> fmt::Result {
        let target = |target: &Target| match target {
            Target::Accept => "accept".to_owned(),
            Target::Reject => "reject".to_owned(),
            Target::State(i) => format!("state {}", Self::name(&parser.states, *i as usize, |x| &x.name)),
        };
        self.block(format_args!("parser {}", quoted(&parser.name)), "", |s| {
            parser.states.iter().try_for_each(|state| {
                s.block(format_args!("state {}", quoted(&state.name)), "", |s| {
                    state.ops.iter().try_for_each(|op| s.parser_op(op))?;
                    match &state.next {
                        Transition::To(to) => s.line(format_args!("goto {};", target(to))),
                        Transition::Select(select) => {
                            let on = s.exprs(&select.on);
                            s.block(format_args!("select ({on})"), "", |s| {
                                select.cases.iter().try_for_each(|case| {
                                    let sets: Vec<_> = case.sets.iter().map(|set| s.keyset(set)).collect();
                                    s.line(format_args!("({}): {};", sets.join(", "), target(&case.to)))
                                })
                            })
                        }
                    }
                })
            })
        })
    }

    fn parser_op(&mut self, op: &'a ParserOp) -> fmt::Result {
        match op {
            ParserOp::Extract(header, length) => {
                let header = self.header(header);
                let length =
                    length.as_ref().map_or(String::new(), |length| format!(" {}", self.expr(length)));
                self.line(format_args!("extract {header}{length};"))
            }
            ParserOp::Advance(bits) => {
                let bits = self.expr(bits);
                self.line(format_args!("advance {bits};"))
            }
            ParserOp::Verify(condition, error) => {
                let condition = self.expr(condition);
                self.line(format_args!("verify {condition} {};", quoted(self.p.error_name(*error))))
            }
            ParserOp::Do(stmt) => self.stmt(stmt),
        }
    }

    fn keyset(&self, set: &Keyset) -> String {
        match set {
            Keyset::Any => "_".into(),
            Keyset::Value(a) => Const(a).to_string(),
            Keyset::Mask(a, b) => format!("{} &&& {}", Const(a), Const(b)),
            Keyset::Range(a, b) => format!("{}..{}", Const(a), Const(b)),
            Keyset::Set(set) => format!("in {}", Self::name(&self.p.value_sets, set.index(), |x| &x.name)),
        }
    }

    fn stage(&mut self, stage: &Stage) -> fmt::Result {
        self.block(format_args!("stage {}", quoted(&stage.name)), "", |s| {
            if let Some(parser) = stage.parser {
                s.line(format_args!("parser {};", Self::name(&s.p.parsers, parser.index(), |x| &x.name)))?;
            }
            s.line(format_args!("control {};", s.block_name(stage.control)))?;
            if let Some(finish) = stage.finish {
                s.line(format_args!("finish {};", s.block_name(finish)))?;
            }
            if let Some(deparser) = stage.deparser {
                s.line(format_args!("deparser {};", s.block_name(deparser)))?;
            }
            stage.next.iter().try_for_each(|next| s.line(format_args!("next {};", s.stage_name(*next))))
        })
    }

    fn body(&mut self, body: &'a [Stmt]) -> fmt::Result {
        body.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn stmt(&mut self, stmt: &'a Stmt) -> fmt::Result {
        let p = self.p;
        let register = |id: &RegisterId| Self::name(&p.registers, id.index(), |x| &x.name);
        let text = match stmt {
            Stmt::Set(place, value) => format!("{} = {};", self.place(place), self.expr(value)),
            Stmt::CopyHeader(to, from) => format!("copy {} = {};", self.header(to), self.header(from)),
            Stmt::SetValid(header) => format!("valid {};", self.header(header)),
            Stmt::SetInvalid(header) => format!("invalid {};", self.header(header)),
            Stmt::Push(stack, n) => format!("push {} {n};", self.stack_name(*stack)),
            Stmt::Pop(stack, n) => format!("pop {} {n};", self.stack_name(*stack)),
            Stmt::Hash(place, kind, items) => {
                format!("hash {} = {} {};", self.place(place), kind.name(), self.items(items))
            }
            Stmt::UpdateChecksum(place, old, new) => {
                format!("checksum {} {} {};", self.place(place), self.items(old), self.items(new))
            }
            Stmt::Random(place, low, high) => {
                format!("random {} = {}..{};", self.place(place), self.expr(low), self.expr(high))
            }
            Stmt::RegisterRead(place, id, index) => {
                format!("read {} = {}[{}];", self.place(place), register(id), self.expr(index))
            }
            Stmt::RegisterWrite(id, index, value) => {
                format!("write {}[{}] = {};", register(id), self.expr(index), self.expr(value))
            }
            Stmt::Atomic(body) => return self.block("atomic", "", |s| s.body(body)),
            Stmt::Count(id, index) => {
                format!("count {}[{}];", Self::name(&p.counters, id.index(), |x| &x.name), self.expr(index))
            }
            Stmt::Meter(place, id, index, color) => format!(
                "meter {} = {}[{}]{};",
                self.place(place),
                Self::name(&p.meters, id.index(), |x| &x.name),
                self.expr(index),
                self.option("color", color)
            ),
            Stmt::MeterEntry(place, table, color) => format!(
                "meter_entry {} = {}{};",
                self.place(place),
                self.table_name(*table),
                self.option("color", color)
            ),
            Stmt::Send(send) => self.send(send),
            Stmt::Group(id, index) => {
                format!("group {}[{}];", Self::name(&p.groups, id.index(), |x| &x.name), self.expr(index))
            }
            Stmt::Controller(reason, limit, data) => format!(
                "controller {}{} {};",
                self.expr(reason),
                self.option("limit", limit),
                self.items(data)
            ),
            Stmt::Digest(id, values) => {
                format!("digest {}({});", Self::name(&p.digests, id.index(), |x| &x.name), self.exprs(values))
            }
            Stmt::Drop(id) => format!("drop {};", Self::name(&p.reasons, id.index(), |x| x)),
            Stmt::Truncate(len) => format!("truncate {};", self.expr(len)),
            Stmt::Insert(items) => format!("insert {};", self.items(items)),
            Stmt::Remove(len) => format!("remove {};", self.expr(len)),
            Stmt::Reparse => "reparse;".into(),
            Stmt::Apply(table, applied) => return self.apply(*table, applied),
            Stmt::Do(action, args) => format!("do {}({});", self.action_name(*action), self.exprs(args)),
            Stmt::If(condition, yes, no) => {
                let condition = self.expr(condition);
                self.block(format_args!("if {condition}"), "", |s| s.body(yes))?;
                if no.is_empty() {
                    return Ok(());
                }
                return self.block("else", "", |s| s.body(no));
            }
            Stmt::Switch(value, cases, default) => {
                let value = self.expr(value);
                return self.block(format_args!("switch {value}"), "", |s| {
                    for (constants, body) in cases {
                        let constants: Vec<_> = constants.iter().map(|c| Const(c).to_string()).collect();
                        s.block(format_args!("case {}", constants.join(", ")), "", |s| s.body(body))?;
                    }
                    s.block("default", "", |s| s.body(default))
                });
            }
            Stmt::Call(block) => format!("call {};", self.block_name(*block)),
            Stmt::Goto(block) => format!("goto {};", self.block_name(*block)),
            Stmt::Return => "return;".into(),
            Stmt::Exit => "exit;".into(),
            Stmt::Extern(id, args) => {
                let args: Vec<_> = args
                    .iter()
                    .map(|arg| match arg {
                        ExternArg::In(value) => format!("in {}", self.expr(value)),
                        ExternArg::Out(place) => format!("out {}", self.place(place)),
                    })
                    .collect();
                format!("extern {}({});", Self::name(&p.externs, id.index(), |x| &x.name), args.join(", "))
            }
            Stmt::Emit(EmitRef::Header(header)) => format!("emit {};", self.header(header)),
            Stmt::Emit(EmitRef::Stack(stack)) => format!("emit {};", self.stack_name(*stack)),
            Stmt::Emit(EmitRef::Union(union)) => {
                format!("emit {};", Self::name(&p.unions, union.index(), |x| &x.name))
            }
        };
        self.line(text)
    }

    fn apply(&mut self, table: TableId, applied: &'a Applied) -> fmt::Result {
        let name = self.table_name(table);
        if *applied == Applied::default() {
            return self.line(format_args!("apply {name};"));
        }
        self.block(format_args!("apply {name}"), ";", |s| {
            if !applied.hit.is_empty() {
                s.block("hit", "", |s| s.body(&applied.hit))?;
            }
            if !applied.miss.is_empty() {
                s.block("miss", "", |s| s.body(&applied.miss))?;
            }
            for (action, body) in &applied.actions {
                let name = s.action_name(*action);
                s.block(format_args!("action {name}"), "", |s| s.body(body))?;
            }
            if applied.other.is_empty() {
                return Ok(());
            }
            s.block("other", "", |s| s.body(&applied.other))
        })
    }

    fn send(&self, send: &Send) -> String {
        let packet = match send.packet {
            Packet::Current => "current",
            Packet::Original => "original",
        };
        let to = match &send.to {
            Dest::Port(port) => format!("port {}", self.expr(port)),
            Dest::Flood => "flood".into(),
            Dest::All => "all".into(),
            Dest::Fallback => "fallback".into(),
            Dest::Replicas(id, index) => {
                format!("replicas {}[{}]", Self::name(&self.p.replicas, id.index(), |x| x), self.expr(index))
            }
            Dest::Same => "same".into(),
        };
        let via = match send.via {
            Via::Next => String::new(),
            Via::Stage(stage) => format!(" via {}", self.stage_name(stage)),
            Via::Direct => " direct".into(),
        };
        let instance =
            if send.instance == 0 { String::new() } else { format!(" instance {}", send.instance) };
        let carry: Vec<_> = send.carry.iter().map(|var| self.var_name(*var)).collect();
        let carry = if carry.is_empty() { String::new() } else { format!(" carry {}", carry.join(", ")) };
        let [class, queue, limit] = [("class", &send.class), ("queue", &send.queue), ("limit", &send.limit)]
            .map(|(word, value)| self.option(word, value));
        format!("send {packet} {to}{via}{instance}{class}{queue}{limit}{carry};")
    }

    fn option(&self, word: &str, value: &Option<Expr>) -> String {
        value.as_ref().map_or(String::new(), |value| format!(" {word} {}", self.expr(value)))
    }

    fn items(&self, items: &[Item]) -> String {
        let items: Vec<_> = items
            .iter()
            .map(|item| match item {
                Item::Value(value) => self.expr(value),
                Item::Payload => "payload".into(),
            })
            .collect();
        format!("{{ {} }}", items.join(", "))
    }

    fn exprs(&self, exprs: &[Expr]) -> String {
        exprs.iter().map(|expr| self.expr(expr)).collect::<Vec<_>>().join(", ")
    }

    fn expr(&self, expr: &Expr) -> String {
        match expr {
            Expr::Const(constant) => Const(constant).to_string(),
            Expr::Var(var) => self.var_name(*var).into_owned(),
            Expr::Param(i) => format!("${}", Self::name(self.params, (*i).into(), |x| &x.name)),
            Expr::Field(header, field) => self.field(header, *field),
            Expr::Valid(header) => format!("valid({})", self.header(header)),
            Expr::LastIndex(stack) => format!("last_index({})", self.stack_name(*stack)),
            Expr::FieldLength(header, field) => format!("length({})", self.field(header, *field)),
            Expr::Lookahead(ty, offset) => format!("lookahead({}, {offset})", Ty(*ty)),
            Expr::Remaining => "remaining".into(),
            Expr::Unary(op, operand) => {
                let op = match op {
                    UnOp::Not => "!",
                    UnOp::Complement => "~",
                    UnOp::Negate => "-",
                };
                // Brackets keep a slice of the operand apart from a slice of the result.
                format!("{op}({})", self.expr(operand))
            }
            Expr::Binary(op, operands) => {
                format!("({} {} {})", self.expr(&operands.0), symbol(*op), self.expr(&operands.1))
            }
            Expr::Slice(operand, hi, lo) => match **operand {
                Expr::Unary(..) => format!("({})[{hi}:{lo}]", self.expr(operand)),
                _ => format!("{}[{hi}:{lo}]", self.expr(operand)),
            },
            Expr::Mux(parts) => {
                format!("({} ? {} : {})", self.expr(&parts.0), self.expr(&parts.1), self.expr(&parts.2))
            }
            Expr::Cast(ty, operand) => format!("{}({})", Ty(*ty), self.expr(operand)),
        }
    }

    fn header(&self, header: &HeaderRef) -> String {
        match header {
            HeaderRef::Header(id) => {
                let Some(instance) = self.p.headers.get(id.index()) else { return format!("?{}", id.0) };
                match instance.place {
                    HeaderPlace::Single => quoted(&instance.name).into_owned(),
                    HeaderPlace::Element(stack, i) => format!("{}[{i}]", self.stack_name(stack)),
                    HeaderPlace::Member(union) => format!(
                        "{}.{}",
                        Self::name(&self.p.unions, union.index(), |x| &x.name),
                        quoted(&instance.name)
                    ),
                }
            }
            HeaderRef::Element(stack, index) => format!("{}[{}]", self.stack_name(*stack), self.expr(index)),
            HeaderRef::Next(stack) => format!("{}.next", self.stack_name(*stack)),
            HeaderRef::Last(stack) => format!("{}.last", self.stack_name(*stack)),
        }
    }

    fn field(&self, header: &HeaderRef, field: u16) -> String {
        let ty = match header {
            HeaderRef::Header(id) => self.p.header_type(*id),
            HeaderRef::Element(stack, _) | HeaderRef::Next(stack) | HeaderRef::Last(stack) => {
                self.p.stack_type(*stack)
            }
        };
        let fields = ty.map_or(&[][..], |ty| &ty.fields);
        format!("{}.{}", self.header(header), Self::name(fields, field.into(), |x| &x.name))
    }

    fn place(&self, place: &LValue) -> String {
        match place {
            LValue::Var(var) => self.var_name(*var).into_owned(),
            LValue::Field(header, field) => self.field(header, *field),
            LValue::Slice(of, hi, lo) => format!("{}[{hi}:{lo}]", self.place(of)),
        }
    }
}

fn types(list: &[Type]) -> String {
    list.iter().map(|ty| Ty(*ty).to_string()).collect::<Vec<_>>().join(", ")
}

fn counter(kind: CounterKind) -> &'static str {
    match kind {
        CounterKind::Packets => "packets",
        CounterKind::Bytes => "bytes",
        CounterKind::Both => "both",
    }
}

fn unit(unit: MeterUnit) -> &'static str {
    match unit {
        MeterUnit::Packets => "packets",
        MeterUnit::Bytes => "bytes",
    }
}
