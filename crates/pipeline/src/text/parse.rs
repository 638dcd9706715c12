//! The parser of declarations, tables and entries.
//!
//! A first pass finds the names of all items, so that bodies may refer to what is declared behind them; then the items
//! are parsed kind by kind. The text decides only what the grammar says: types, bounds and places are for
//! [`crate::validate()`].

use super::KEYWORDS;
use super::lex::{Placed, Token, tokens};
use crate::bits::{Bits, MAX_WIDTH};
use crate::ir::*;
use crate::validate::MAX_STACK;

/// A text that is no program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// What is wrong.
    pub problem: String,
}

pub(super) fn error(line: u32, column: u32, problem: impl Into<String>) -> ParseError {
    ParseError { line, column, problem: problem.into() }
}

pub(super) type Parsed<T> = Result<T, ParseError>;

/// Parses a program. It is not validated.
///
/// # Errors
/// The first place where the text departs from the grammar or names something that does not exist.
pub fn parse(text: &str) -> Result<Program, ParseError> {
    let mut reader = Reader::new(text, Program::default())?;
    reader.program()?;
    Ok(reader.p)
}

/// Parses an action that refers to a program's objects. It is not validated.
///
/// # Errors
/// As [`parse`].
pub fn parse_action(program: &Program, text: &str) -> Result<Action, ParseError> {
    let mut reader = Reader::new(text, program.clone())?;
    reader.word("action")?;
    let name = reader.name()?;
    let action = reader.action(name)?;
    reader.end()?;
    Ok(action)
}

/// Parses an entry of a table. `action` finds actions that were defined at run time. It is not validated.
///
/// # Errors
/// As [`parse`].
pub fn parse_entry(
    program: &Program,
    table: TableId,
    text: &str,
    action: &dyn Fn(&str) -> Option<ActionId>,
) -> Result<Entry, ParseError> {
    let mut reader = Reader::new(text, program.clone())?;
    let Some(table) = program.tables.get(table.index()) else { return reader.fail("no such table") };
    reader.word("entry")?;
    let entry = reader.entry(table, action)?;
    reader.end()?;
    Ok(entry)
}

/// Size of a table whose text has none.
const DEFAULT_SIZE: u32 = 1024;

/// Keywords of items.
const ITEMS: &[&str] = &[
    "header",
    "instance",
    "stack",
    "union",
    "var",
    "error",
    "reason",
    "replicas",
    "value_set",
    "digest",
    "counter",
    "meter",
    "register",
    "extern",
    "profile",
    "groups",
    "action",
    "table",
    "parser",
    "block",
    "stage",
];

/// An item: keyword, name, index of the token behind the name.
type Found = (String, String, usize);

pub(super) struct Reader {
    tokens: Vec<Placed>,
    pub(super) at: usize,
    pub(super) p: Program,
    pub(super) params: Vec<Param>,
    /// Nesting of expressions and statements.
    pub(super) depth: usize,
}

impl Reader {
    fn new(text: &str, p: Program) -> Parsed<Self> {
        Ok(Self { tokens: tokens(text)?, at: 0, p, params: vec![], depth: 0 })
    }

    pub(super) fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(token, ..)| token)
    }

    /// Takes a token; the end is never passed.
    pub(super) fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += usize::from(token != Token::End);
        token
    }

    pub(super) fn fail<T>(&self, problem: impl Into<String>) -> Parsed<T> {
        let last = self.tokens.get(self.at).or(self.tokens.last());
        let (line, column) = last.map_or((1, 1), |(_, line, column)| (*line, *column));
        Err(error(line, column, problem))
    }

    pub(super) fn expected<T>(&self, what: &str) -> Parsed<T> {
        let found = match self.peek() {
            Token::Word(word) | Token::Quoted(word) | Token::Number(word) => format!("`{word}`"),
            Token::Typed(width, signed, digits) => {
                format!("`{width}{}{digits}`", if *signed { "s" } else { "w" })
            }
            Token::Mark(mark) => format!("`{mark}`"),
            Token::End => "the end".to_owned(),
        };
        self.fail(format!("expected {what}, found {found}"))
    }

    pub(super) fn is_mark(&self, mark: &str) -> bool {
        matches!(self.peek(), Token::Mark(m) if *m == mark)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(w) if w == word)
    }

    /// Takes a mark if it comes next.
    pub(super) fn eat(&mut self, mark: &str) -> bool {
        let found = self.is_mark(mark);
        self.at += usize::from(found);
        found
    }

    /// Takes a keyword if it comes next.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    pub(super) fn mark(&mut self, mark: &str) -> Parsed<()> {
        if self.eat(mark) { Ok(()) } else { self.expected(&format!("`{mark}`")) }
    }

    pub(super) fn word(&mut self, word: &str) -> Parsed<()> {
        if self.eat_word(word) { Ok(()) } else { self.expected(&format!("`{word}`")) }
    }

    fn end(&mut self) -> Parsed<()> {
        if *self.peek() == Token::End { Ok(()) } else { self.expected("the end") }
    }

    /// Whether a name comes next, where a keyword could stand too.
    pub(super) fn is_name(&self) -> bool {
        match self.peek() {
            Token::Quoted(_) => true,
            Token::Word(word) => !KEYWORDS.contains(&word.as_str()),
            _ => false,
        }
    }

    /// Parses a name where no keyword could stand.
    pub(super) fn name(&mut self) -> Parsed<String> {
        match self.peek().clone() {
            Token::Word(name) | Token::Quoted(name) => {
                self.at += 1;
                Ok(name)
            }
            _ => self.expected("a name"),
        }
    }

    pub(super) fn number<T: TryFrom<u64>>(&mut self) -> Parsed<T> {
        if let Token::Number(digits) = self.peek() {
            let value = Bits::parse(64, digits).and_then(|bits| T::try_from(bits.low_u64()).ok());
            if let Some(value) = value {
                self.at += 1;
                return Ok(value);
            }
        }
        self.expected("a number in range")
    }

    /// Parses a name and finds it in a list.
    pub(super) fn find<T>(
        &mut self,
        what: &str,
        list: impl Fn(&Program) -> &[T],
        of: impl Fn(&T) -> &str,
    ) -> Parsed<u32> {
        let before = self.at;
        let name = self.name()?;
        match list(&self.p).iter().position(|element| of(element) == name) {
            Some(i) => Ok(u32::try_from(i).unwrap_or(u32::MAX)),
            None => {
                self.at = before;
                self.fail(format!("there is no {what} {name}"))
            }
        }
    }

    /// Parses elements between commas up to a closing mark, which is taken too.
    pub(super) fn list<T>(
        &mut self,
        close: &str,
        mut element: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let mut list = Vec::new();
        while !self.eat(close) {
            if !list.is_empty() {
                self.mark(",")?;
            }
            list.push(element(self)?);
        }
        Ok(list)
    }

    /// Parses one or more names between commas.
    pub(super) fn names<T>(&mut self, element: impl Fn(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut list = vec![element(self)?];
        while self.eat(",") {
            list.push(element(self)?);
        }
        Ok(list)
    }

    /// Skips to behind the item that starts here: its `;`, or its outermost `}`.
    fn skip_item(&mut self) -> Parsed<()> {
        let mut open = 0_usize;
        loop {
            if open == 0 && self.is_mark("}") || *self.peek() == Token::End {
                return self.expected("the rest of an item");
            }
            match self.next() {
                Token::Mark("{") => open += 1,
                Token::Mark("}") if open > 1 => open -= 1,
                Token::Mark("}") => return Ok(()),
                Token::Mark(";") if open == 0 => return Ok(()),
                _ => {}
            }
        }
    }

    fn program(&mut self) -> Parsed<()> {
        self.word("program")?;
        self.p.name = self.name()?;
        self.mark("{")?;
        let mut items: Vec<Found> = Vec::new();
        while !self.eat("}") {
            let kind = match self.peek() {
                Token::Word(word) if ITEMS.contains(&word.as_str()) => word.clone(),
                _ => return self.expected("an item"),
            };
            self.at += 1;
            let name = self.name()?;
            items.push((kind, name, self.at));
            self.skip_item()?;
        }
        self.end()?;
        let end = self.at;
        self.name_all(&items);
        self.each(&items, "header", Self::header_type)?;
        self.storage(&items)?;
        self.declarations(&items)?;
        self.each(&items, "profile", Self::profile)?;
        self.each(&items, "groups", Self::groups)?;
        for (i, name) in named(&items, "action").enumerate() {
            self.at = name.2;
            let action = self.action(name.1.clone())?;
            self.p.actions.iter_mut().skip(i).take(1).for_each(|slot| *slot = action.clone());
        }
        for (i, name) in named(&items, "table").enumerate() {
            self.at = name.2;
            let table = self.table(name.1.clone())?;
            self.p.tables.iter_mut().skip(i).take(1).for_each(|slot| *slot = table.clone());
        }
        for (i, name) in named(&items, "parser").enumerate() {
            self.at = name.2;
            let parser = self.parser(name.1.clone())?;
            self.p.parsers.iter_mut().skip(i).take(1).for_each(|slot| *slot = parser.clone());
        }
        for (i, name) in named(&items, "block").enumerate() {
            self.at = name.2;
            let body = self.body()?;
            self.p.blocks.iter_mut().skip(i).take(1).for_each(|slot| slot.1 = body.clone());
        }
        for (i, name) in named(&items, "stage").enumerate() {
            self.at = name.2;
            let stage = self.stage(name.1.clone())?;
            self.p.stages.iter_mut().skip(i).take(1).for_each(|slot| *slot = stage.clone());
        }
        self.at = end;
        Ok(())
    }

    /// Enters the names of all items, with what they contain left empty.
    fn name_all(&mut self, items: &[Found]) {
        let p = &mut self.p;
        for (kind, name, _) in items {
            let name = name.clone();
            match kind.as_str() {
                "error" => p.errors.push(name),
                "reason" => p.reasons.push(name),
                "replicas" => p.replicas.push(name),
                "header" => p.header_types.push(HeaderType { name, fields: vec![] }),
                "action" => p.actions.push(Action { name, ..Action::default() }),
                "table" => p.tables.push(Table::new(&name, DEFAULT_SIZE)),
                "parser" => p.parsers.push(Parser { name, states: vec![] }),
                "block" => p.blocks.push((name, vec![])),
                "stage" => p.stages.push(empty_stage(name)),
                "profile" => p.profiles.push(Profile { name, actions: vec![], size: 0, select: None }),
                "groups" => {
                    let select = Selection { hash: HashKind::Crc32, input: vec![] };
                    p.groups.push(GroupTable { name, size: 0, select });
                }
                _ => {}
            }
        }
    }

    /// Parses all items of a kind.
    fn each(
        &mut self,
        items: &[Found],
        kind: &str,
        mut item: impl FnMut(&mut Self, usize) -> Parsed<()>,
    ) -> Parsed<()> {
        for (i, (_, _, at)) in named(items, kind).enumerate() {
            self.at = *at;
            item(self, i)?;
        }
        Ok(())
    }

    fn header_type(&mut self, i: usize) -> Parsed<()> {
        self.mark("{")?;
        let mut fields = Vec::new();
        while !self.eat("}") {
            let name = self.name()?;
            self.mark(":")?;
            let ty = if self.eat_word("varbit") {
                FieldType::Varbit(self.width()?)
            } else {
                FieldType::Scalar(self.ty()?)
            };
            self.mark(";")?;
            fields.push(Field { name, ty });
        }
        self.p.header_types.iter_mut().skip(i).take(1).for_each(|ty| ty.fields = std::mem::take(&mut fields));
        Ok(())
    }

    /// Parses instances, stacks and unions, which share the list of headers, in the order of the text.
    fn storage(&mut self, items: &[Found]) -> Parsed<()> {
        for (kind, name, at) in items {
            self.at = *at;
            let name = name.clone();
            let first = HeaderId::at(self.p.headers.len());
            match kind.as_str() {
                "instance" => {
                    self.mark(":")?;
                    let ty = self.header_type_name()?;
                    self.p.headers.push(Header { name, ty, place: HeaderPlace::Single });
                }
                "stack" => {
                    self.mark(":")?;
                    let ty = self.header_type_name()?;
                    let size: u32 = self.size()?;
                    if size > MAX_STACK {
                        return self.fail(format!("a stack has at most {MAX_STACK} elements"));
                    }
                    let stack = StackId::at(self.p.stacks.len());
                    let element =
                        |i| Header { name: String::new(), ty, place: HeaderPlace::Element(stack, i) };
                    self.p.headers.extend((0..size).map(element));
                    self.p.stacks.push(Stack { name, first, size });
                }
                "union" => {
                    let place = HeaderPlace::Member(UnionId::at(self.p.unions.len()));
                    self.mark("{")?;
                    while !self.eat("}") {
                        let name = self.name()?;
                        self.mark(":")?;
                        let ty = self.header_type_name()?;
                        self.mark(";")?;
                        self.p.headers.push(Header { name, ty, place });
                    }
                    let size = HeaderId::at(self.p.headers.len()).0 - first.0;
                    self.p.unions.push(Union { name, first, size });
                    continue;
                }
                _ => continue,
            }
            self.mark(";")?;
        }
        Ok(())
    }

    fn header_type_name(&mut self) -> Parsed<HeaderTypeId> {
        Ok(HeaderTypeId(self.find("header type", |p| &p.header_types, |x| &x.name)?))
    }

    /// Parses `[n]`.
    fn size(&mut self) -> Parsed<u32> {
        self.mark("[")?;
        let size = self.number()?;
        self.mark("]")?;
        Ok(size)
    }

    fn declarations(&mut self, items: &[Found]) -> Parsed<()> {
        for (kind, name, at) in items {
            self.at = *at;
            let name = name.clone();
            match kind.as_str() {
                "var" => {
                    self.mark(":")?;
                    let ty = self.ty()?;
                    let slot = if self.eat("=") { Some(self.slot()?) } else { None };
                    self.p.vars.push(Var { name, ty, slot });
                }
                "value_set" => {
                    let size = self.size()?;
                    let types = self.types()?;
                    self.p.value_sets.push(ValueSet { name, types, size });
                }
                "digest" => {
                    let types = self.types()?;
                    self.p.digests.push(Digest { name, types });
                }
                "counter" => {
                    let size = self.size()?;
                    self.mark(":")?;
                    let kind = self.counter_kind()?;
                    self.p.counters.push(Counter { name, size, kind });
                }
                "meter" => {
                    let size = self.size()?;
                    self.mark(":")?;
                    let unit = self.unit()?;
                    self.p.meters.push(Meter { name, size, unit });
                }
                "register" => {
                    let size = self.size()?;
                    self.mark(":")?;
                    let ty = self.ty()?;
                    self.p.registers.push(Register { name, size, ty });
                }
                "extern" => {
                    self.mark("(")?;
                    let params = self.list(")", |r| {
                        let direction = if r.eat_word("in") { Direction::In } else { Direction::Out };
                        if direction == Direction::Out {
                            r.word("out")?;
                        }
                        Ok((direction, r.ty()?))
                    })?;
                    self.p.externs.push(Extern { name, params });
                }
                "error" | "reason" | "replicas" => {}
                _ => continue,
            }
            self.mark(";")?;
        }
        Ok(())
    }

    fn slot(&mut self) -> Parsed<Slot> {
        self.word("env")?;
        let found = match self.peek() {
            Token::Word(word) => Slot::ALL.iter().find(|slot| slot.name() == word),
            _ => None,
        };
        let Some(slot) = found else { return self.expected("intrinsic metadata") };
        self.at += 1;
        Ok(*slot)
    }

    fn types(&mut self) -> Parsed<Vec<Type>> {
        self.mark(":")?;
        self.mark("(")?;
        self.list(")", Self::ty)
    }

    fn width(&mut self) -> Parsed<u16> {
        self.mark("<")?;
        let width = self.number()?;
        self.mark(">")?;
        Ok(width)
    }

    pub(super) fn ty(&mut self) -> Parsed<Type> {
        if self.eat_word("bool") {
            Ok(Type::Bool)
        } else if self.eat_word("bit") {
            Ok(Type::Bit(self.width()?))
        } else if self.eat_word("int") {
            Ok(Type::Int(self.width()?))
        } else {
            self.expected("a type")
        }
    }

    fn counter_kind(&mut self) -> Parsed<CounterKind> {
        if self.is_word("both") || self.is_word("packets") || self.is_word("bytes") {
            return Ok(match self.next() {
                Token::Word(word) if word == "both" => CounterKind::Both,
                Token::Word(word) if word == "bytes" => CounterKind::Bytes,
                _ => CounterKind::Packets,
            });
        }
        self.expected("`packets`, `bytes` or `both`")
    }

    fn unit(&mut self) -> Parsed<MeterUnit> {
        if self.eat_word("packets") {
            return Ok(MeterUnit::Packets);
        }
        self.word("bytes")?;
        Ok(MeterUnit::Bytes)
    }

    pub(super) fn action_name(&mut self) -> Parsed<ActionId> {
        Ok(ActionId(self.find("action", |p| &p.actions, |x| &x.name)?))
    }

    fn selection(&mut self) -> Parsed<Selection> {
        self.word("select")?;
        let hash = self.hash_kind()?;
        let input = self.items()?;
        self.mark(";")?;
        Ok(Selection { hash, input })
    }

    fn profile(&mut self, i: usize) -> Parsed<()> {
        let size = self.size()?;
        self.mark("{")?;
        let mut actions = Vec::new();
        if self.eat_word("actions") {
            actions = self.names(Self::action_name)?;
            self.mark(";")?;
        }
        let select = if self.is_word("select") { Some(self.selection()?) } else { None };
        self.mark("}")?;
        let name = self.p.profiles.get(i).map(|x| x.name.clone()).unwrap_or_default();
        let profile = Profile { name, actions, size, select };
        self.p.profiles.iter_mut().skip(i).take(1).for_each(|slot| *slot = profile.clone());
        Ok(())
    }

    fn groups(&mut self, i: usize) -> Parsed<()> {
        let size = self.size()?;
        self.mark("{")?;
        let select = self.selection()?;
        self.mark("}")?;
        let name = self.p.groups.get(i).map(|x| x.name.clone()).unwrap_or_default();
        let groups = GroupTable { name, size, select };
        self.p.groups.iter_mut().skip(i).take(1).for_each(|slot| *slot = groups.clone());
        Ok(())
    }

    fn action(&mut self, name: String) -> Parsed<Action> {
        self.mark("(")?;
        let params = self.list(")", |r| {
            let name = r.name()?;
            r.mark(":")?;
            Ok(Param { name, ty: r.ty()? })
        })?;
        self.params.clone_from(&params);
        let body = self.body();
        self.params.clear();
        Ok(Action { name, params, body: body? })
    }

    fn table(&mut self, name: String) -> Parsed<Table> {
        let mut table = Table::new(&name, DEFAULT_SIZE);
        self.mark("{")?;
        while !self.eat("}") {
            if self.eat_word("entry") {
                let entry = self.entry(&table, &|_| None)?;
                table.entries.push(entry);
                continue;
            }
            self.clause(&mut table)?;
            self.mark(";")?;
        }
        Ok(table)
    }

    fn clause(&mut self, table: &mut Table) -> Parsed<()> {
        let word = match self.next() {
            Token::Word(word) => word,
            _ => String::new(),
        };
        match word.as_str() {
            "key" => {
                let name = self.name()?;
                self.mark(":")?;
                let found = match self.next() {
                    Token::Word(word) => MatchKind::ALL.iter().find(|kind| kind.name() == word),
                    _ => None,
                };
                let Some(kind) = found else { return self.fail("expected a kind of match") };
                self.mark("=")?;
                let value = self.expr()?;
                table.keys.push(Key { name, value, kind: *kind });
            }
            "actions" => table.actions = self.names(Self::action_name)?,
            "default_only" => table.default_only = self.names(Self::action_name)?,
            "open" => table.open = true,
            "const" => {
                self.word("default")?;
                table.const_default = true;
                if !self.is_mark(";") {
                    table.default = Some(self.action_call(&|_| None)?);
                }
            }
            "default" => table.default = Some(self.action_call(&|_| None)?),
            "size" => table.size = self.number()?,
            "count" => table.counter = Some(self.counter_kind()?),
            "meter" => table.meter = Some(self.unit()?),
            "timeouts" => table.timeouts = true,
            "profile" => {
                table.profile = Some(ProfileId(self.find("profile", |p| &p.profiles, |x| &x.name)?));
            }
            "const_entries" => table.const_entries = true,
            "cpu" => table.cpu = true,
            _ => return self.fail("expected a clause of a table"),
        }
        Ok(())
    }

    fn action_call(&mut self, dynamic: &dyn Fn(&str) -> Option<ActionId>) -> Parsed<ActionCall> {
        let before = self.at;
        let name = self.name()?;
        let own = self.p.actions.iter().position(|action| action.name == name).map(ActionId::at);
        let Some(action) = own.or_else(|| dynamic(&name)) else {
            self.at = before;
            return self.fail(format!("there is no action {name}"));
        };
        self.mark("(")?;
        let args = self.list(")", Self::constant)?;
        Ok(ActionCall { action, args: args.into() })
    }

    /// Parses an entry behind its keyword.
    fn entry(&mut self, table: &Table, dynamic: &dyn Fn(&str) -> Option<ActionId>) -> Parsed<Entry> {
        let priority = if self.eat_word("priority") { self.number()? } else { 0 };
        self.mark("{")?;
        let mut matches = Vec::new();
        while !self.eat("}") {
            let before = self.at;
            let name = self.name()?;
            let Some(key) = table.keys.iter().position(|key| key.name == name) else {
                self.at = before;
                return self.fail(format!("table {} has no key {name}", table.name));
            };
            self.mark(":")?;
            let value = self.constant()?.value;
            let is = if self.eat("/") {
                KeyMatch::Prefix(value, self.number()?)
            } else if self.eat("&&&") {
                KeyMatch::Mask(value, self.constant()?.value)
            } else if self.eat("..") {
                KeyMatch::Range(value, self.constant()?.value)
            } else {
                KeyMatch::Exact(value)
            };
            self.mark(";")?;
            matches.push(Match { key: u32::try_from(key).unwrap_or(u32::MAX), is });
        }
        self.mark("->")?;
        let result = if self.eat_word("member") {
            EntryResult::Member(self.number()?)
        } else if self.eat_word("group") {
            EntryResult::Group(self.number()?)
        } else {
            EntryResult::Action(self.action_call(dynamic)?)
        };
        let idle = if self.eat_word("idle") { self.number()? } else { 0 };
        let hard = if self.eat_word("hard") { self.number()? } else { 0 };
        let cookie = if self.eat_word("cookie") { self.number()? } else { 0 };
        self.mark(";")?;
        Ok(Entry { matches: matches.into(), priority, result, idle, hard, cookie })
    }

    pub(super) fn constant(&mut self) -> Parsed<Constant> {
        let constant = match self.peek() {
            Token::Word(word) if word == "true" => Some(Constant::bool(true)),
            Token::Word(word) if word == "false" => Some(Constant::bool(false)),
            Token::Typed(width, signed, digits) if (1..=MAX_WIDTH).contains(width) => {
                let ty = if *signed { Type::Int(*width) } else { Type::Bit(*width) };
                Bits::parse(*width, digits).map(|value| Constant { ty, value })
            }
            _ => None,
        };
        let Some(constant) = constant else { return self.expected("a constant that fits its type") };
        self.at += 1;
        Ok(constant)
    }

    fn stage(&mut self, name: String) -> Parsed<Stage> {
        let mut stage = empty_stage(name);
        let mut control = None;
        self.mark("{")?;
        while !self.eat("}") {
            if self.eat_word("parser") {
                stage.parser = Some(ParserId(self.find("parser", |p| &p.parsers, |x| &x.name)?));
            } else if self.eat_word("control") {
                control = Some(self.block_name()?);
            } else if self.eat_word("finish") {
                stage.finish = Some(self.block_name()?);
            } else if self.eat_word("deparser") {
                stage.deparser = Some(self.block_name()?);
            } else if self.eat_word("next") {
                stage.next = Some(self.stage_name()?);
            } else {
                return self.expected("a part of a stage");
            }
            self.mark(";")?;
        }
        let Some(control) = control else { return self.fail("a stage needs a control") };
        Ok(Stage { control, ..stage })
    }

    pub(super) fn block_name(&mut self) -> Parsed<BlockId> {
        Ok(BlockId(self.find("block", |p| &p.blocks, |x| &x.0)?))
    }

    pub(super) fn stage_name(&mut self) -> Parsed<StageId> {
        Ok(StageId(self.find("stage", |p| &p.stages, |x| &x.name)?))
    }
}

fn named<'a>(items: &'a [Found], kind: &'a str) -> impl Iterator<Item = &'a Found> {
    items.iter().filter(move |(k, ..)| k == kind)
}

fn empty_stage(name: String) -> Stage {
    Stage { name, parser: None, control: BlockId(0), finish: None, deparser: None, next: None }
}
