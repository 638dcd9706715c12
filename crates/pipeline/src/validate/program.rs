//! Declarations, tables, parsers, stages.

use std::collections::HashSet;

use super::expr::type_name;
use super::{Checker, MAX_ARRAYS, MAX_HEADERS, MAX_NAME, MAX_STACK, Scope, entry};
use crate::bits::MAX_WIDTH;
use crate::ir::{
    Action, ActionCall, ActionId, ErrorId, Expr, FieldType, HeaderPlace, HeaderType, Keyset, MatchKind,
    Parser, ParserOp, ParserState, Select, StackId, StageId, Table, Target, Transition, Type, UnionId,
};

impl<'p> Checker<'p> {
    pub(super) fn program(&mut self) {
        let p = self.program;
        self.all_names();
        for ty in &p.header_types {
            self.at(format!("header type {}", ty.name), |c| c.header_type(ty));
        }
        self.headers();
        for var in &p.vars {
            self.at(format!("variable {}", var.name), |c| {
                c.check_type_of(var.ty);
                c.require(var.slot.is_none() || matches!(var.ty, Type::Bit(_)), || {
                    "intrinsic metadata is unsigned".to_owned()
                });
            });
        }
        self.arrays();
        for set in &p.value_sets {
            self.at(format!("value set {}", set.name), |c| {
                set.types.iter().for_each(|ty| c.check_type_of(*ty));
            });
        }
        for digest in &p.digests {
            self.at(format!("digest {}", digest.name), |c| {
                digest.types.iter().for_each(|ty| c.check_type_of(*ty));
            });
        }
        for function in &p.externs {
            self.at(format!("extern {}", function.name), |c| {
                function.params.iter().for_each(|(_, ty)| c.check_type_of(*ty));
            });
        }
        for profile in &p.profiles {
            self.at(format!("profile {}", profile.name), |c| {
                profile.actions.iter().for_each(|action| c.own_action(*action));
                if let Some(select) = &profile.select {
                    c.selection(select.hash, &select.input);
                }
            });
        }
        for groups in &p.groups {
            self.at(format!("groups {}", groups.name), |c| {
                c.selection(groups.select.hash, &groups.select.input)
            });
        }
        p.actions.iter().for_each(|action| self.action(action));
        for table in &p.tables {
            self.at(format!("table {}", table.name), |c| c.table(table));
        }
        for parser in &p.parsers {
            self.at(format!("parser {}", parser.name), |c| c.parser(parser));
        }
        self.stages();
    }

    fn own_action(&mut self, action: ActionId) {
        self.get("action", &self.program.actions, action.index());
    }

    /// Checks that names can be written and are unique.
    pub(super) fn names<'n>(&mut self, what: &str, names: impl Iterator<Item = &'n str>) {
        let mut seen = HashSet::new();
        for name in names {
            let fits =
                (1..=MAX_NAME).contains(&name.len()) && !name.contains(|c: char| c == '`' || c.is_control());
            self.require(fits, || {
                format!("{what} {name:?}: names have 1 to {MAX_NAME} bytes, no backquotes and no control characters")
            });
            self.require(seen.insert(name), || format!("{what} {name} exists twice"));
        }
    }

    fn all_names(&mut self) {
        let p = self.program;
        self.names("program", std::iter::once(p.name.as_str()));
        self.names("header type", p.header_types.iter().map(|x| x.name.as_str()));
        let single = p.headers.iter().filter(|x| x.place == HeaderPlace::Single).map(|x| x.name.as_str());
        let storage = single
            .chain(p.stacks.iter().map(|x| x.name.as_str()))
            .chain(p.unions.iter().map(|x| x.name.as_str()))
            .chain(p.vars.iter().map(|x| x.name.as_str()));
        self.names("header, stack, union or variable", storage);
        let errors = ErrorId::STANDARD.into_iter().chain(p.errors.iter().map(String::as_str));
        self.names("error", errors);
        self.names("drop reason", p.reasons.iter().map(String::as_str));
        self.names("value set", p.value_sets.iter().map(|x| x.name.as_str()));
        self.names("counter", p.counters.iter().map(|x| x.name.as_str()));
        self.names("meter", p.meters.iter().map(|x| x.name.as_str()));
        self.names("register", p.registers.iter().map(|x| x.name.as_str()));
        self.names("extern", p.externs.iter().map(|x| x.name.as_str()));
        self.names("digest", p.digests.iter().map(|x| x.name.as_str()));
        self.names("replication list", p.replicas.iter().map(String::as_str));
        self.names("profile", p.profiles.iter().map(|x| x.name.as_str()));
        self.names("groups", p.groups.iter().map(|x| x.name.as_str()));
        self.names("action", p.actions.iter().map(|x| x.name.as_str()));
        self.names("table", p.tables.iter().map(|x| x.name.as_str()));
        self.names("parser", p.parsers.iter().map(|x| x.name.as_str()));
        self.names("block", p.blocks.iter().map(|x| x.0.as_str()));
        self.names("stage", p.stages.iter().map(|x| x.name.as_str()));
    }

    fn header_type(&mut self, ty: &'p HeaderType) {
        self.names("field", ty.fields.iter().map(|field| field.name.as_str()));
        let mut variable = 0;
        for field in &ty.fields {
            match field.ty {
                FieldType::Scalar(ty) => self.check_type_of(ty),
                FieldType::Varbit(max) => {
                    variable += 1;
                    self.require((1..=MAX_WIDTH).contains(&max) && max % 8 == 0, || {
                        format!("varbit<{max}>: a variable field has 8 to {MAX_WIDTH} bits, in whole bytes")
                    });
                }
            }
        }
        self.require(variable <= 1, || format!("{variable} variable fields, at most one is supported"));
        let bits = ty.fixed_bits();
        self.require(bits.is_multiple_of(8), || {
            format!("its fixed fields have {bits} bits, not whole bytes")
        });
    }

    /// Checks that stacks and unions lie in the list of headers one after the other, and that nothing else claims to
    /// belong to them.
    fn headers(&mut self) {
        let p = self.program;
        self.require(p.headers.len() <= MAX_HEADERS, || {
            format!("it has {} headers, at most {MAX_HEADERS} are supported", p.headers.len())
        });
        let mut next = 0;
        let (mut stacks, mut unions) = (0, 0);
        while let Some(header) = p.headers.get(next) {
            let name = p.header_name(crate::ir::HeaderId::at(next));
            if p.header_types.get(header.ty.index()).is_none() {
                let _: Option<()> =
                    self.error(format!("header {name} has type {}, which does not exist", header.ty.0));
            }
            let (size, fits) = match header.place {
                HeaderPlace::Single => (1, true),
                HeaderPlace::Element(id, 0) => {
                    let stack = p
                        .stacks
                        .get(stacks)
                        .filter(|stack| id.index() == stacks && stack.first.index() == next);
                    let size = stack.map_or(0, |stack| stack.size as usize);
                    let elements = p.headers.get(next..next + size).unwrap_or_default();
                    let fits = elements.iter().enumerate().all(|(i, element)| {
                        element.ty == header.ty
                            && element.name.is_empty()
                            && element.place == HeaderPlace::Element(StackId::at(stacks), i as u32)
                    });
                    stacks += 1;
                    (size, fits && !elements.is_empty() && size <= MAX_STACK as usize)
                }
                HeaderPlace::Element(..) => (1, false),
                HeaderPlace::Member(id) => {
                    let union = p
                        .unions
                        .get(unions)
                        .filter(|union| id.index() == unions && union.first.index() == next);
                    let size = union.map_or(0, |union| union.size as usize);
                    let members = p.headers.get(next..next + size).unwrap_or_default();
                    let place = HeaderPlace::Member(UnionId::at(unions));
                    let fits = members.iter().all(|member| member.place == place);
                    self.names("member", members.iter().map(|member| member.name.as_str()));
                    unions += 1;
                    (size, fits && !members.is_empty())
                }
            };
            if !fits {
                let _: Option<()> = self.error(format!(
                    "header {name}: elements of a stack (1 to {MAX_STACK}) and members of a union must follow one another"
                ));
                return;
            }
            next += size;
        }
        self.require(stacks == p.stacks.len() && unions == p.unions.len(), || {
            "a stack or a union has no headers".to_owned()
        });
    }

    fn arrays(&mut self) {
        let p = self.program;
        let counters = p.counters.iter().map(|x| ("counter", &x.name, u64::from(x.size) * 16));
        let meters = p.meters.iter().map(|x| ("meter", &x.name, u64::from(x.size) * 128));
        let registers = p.registers.iter().map(|x| {
            let cell = u64::from(x.ty.width().div_ceil(64)) * 8;
            ("register", &x.name, u64::from(x.size) * cell)
        });
        let sizes = counters.chain(meters).chain(registers);
        let total: u64 = sizes.clone().map(|(.., bytes)| bytes).sum();
        if total > MAX_ARRAYS {
            let largest = sizes.max_by_key(|(.., bytes)| *bytes);
            self.at(largest.map_or_else(String::new, |(kind, name, _)| format!("{kind} {name}")), |c| {
                c.require(false, || {
                    format!("counters, meters and registers take {total} bytes, at most {MAX_ARRAYS} are supported")
                });
            });
        }
        for register in &p.registers {
            self.at(format!("register {}", register.name), |c| c.check_type_of(register.ty));
        }
    }

    fn table(&mut self, table: &'p Table) {
        let p = self.program;
        self.names("key", table.keys.iter().map(|key| key.name.as_str()));
        for key in &table.keys {
            self.at(format!("key {}", key.name), |c| {
                let Some(ty) = c.ty(&key.value) else { return };
                let fits = match key.kind {
                    MatchKind::Lpm | MatchKind::Range => matches!(ty, Type::Bit(_)),
                    _ => true,
                };
                c.require(fits, || format!("{} cannot be matched {}", type_name(ty), key.kind.name()));
            });
        }
        let prefixes = table.keys.iter().filter(|key| key.kind == MatchKind::Lpm).count();
        self.require(prefixes <= 1, || format!("{prefixes} keys are matched lpm, at most one is supported"));
        for action in table.actions.iter().chain(&table.default_only) {
            self.own_action(*action);
        }
        if let Some(profile) = table.profile
            && let Some(profile) = self.get("profile", &p.profiles, profile.index())
        {
            let fits = table.actions.iter().all(|action| profile.actions.contains(action));
            self.require(fits, || format!("it has actions that profile {} has not", profile.name));
            self.require(!table.open, || "a table with a profile cannot be open".to_owned());
            self.require(table.entries.is_empty(), || {
                "entries at the start cannot refer to a profile".to_owned()
            });
        }
        if let Some(call) = &table.default {
            self.at("default", |c| c.default_call(table, call));
        }
        self.require(table.entries.len() <= table.size as usize, || {
            format!("it has {} entries and a size of {}", table.entries.len(), table.size)
        });
        if self.errors.is_empty() {
            for (i, entry) in table.entries.iter().enumerate() {
                let action = |id: ActionId| p.actions.get(id.index());
                if let Err(error) = entry::check(p, table, entry, action) {
                    self.at(format!("entry {}", i + 1), |c| c.require(false, || error.to_string()));
                }
            }
        }
    }

    fn default_call(&mut self, table: &Table, call: &ActionCall) {
        let listed = table.actions.iter().chain(&table.default_only).any(|action| *action == call.action);
        self.require(listed, || "the default action is not an action of the table".to_owned());
        let action = |id: ActionId| -> Option<&Action> { self.program.actions.get(id.index()) };
        if let Err(error) = entry::check_call(call, action) {
            let _: Option<()> = self.error(error.to_string());
        }
    }

    fn parser(&mut self, parser: &'p Parser) {
        self.names("state", parser.states.iter().map(|state| state.name.as_str()));
        self.require(!parser.states.is_empty(), || "it has no states".to_owned());
        self.scope = Scope::Parser;
        for state in &parser.states {
            self.at(format!("state {}", state.name), |c| c.state(parser, state));
        }
        self.scope = Scope::Value;
        if let Some(state) = idle_cycle(parser) {
            self.at(format!("state {}", state.name), |c| {
                c.require(false, || "it is in a cycle of states that consumes nothing".to_owned());
            });
        }
    }

    fn state(&mut self, parser: &Parser, state: &'p ParserState) {
        for (i, op) in state.ops.iter().enumerate() {
            self.at(format!("operation {}", i + 1), |c| match op {
                ParserOp::Extract(header, length) => c.extract(header, length),
                ParserOp::Advance(bits) => c.expect(bits, Type::Bit(32)),
                ParserOp::Verify(condition, error) => {
                    c.expect(condition, Type::Bool);
                    let known = ErrorId::STANDARD.len() + c.program.errors.len();
                    c.require(error.index() < known, || format!("error {} does not exist", error.0));
                }
                ParserOp::Do(stmt) => c.parser_stmt(stmt),
            });
        }
        match &state.next {
            Transition::To(target) => self.target(parser, *target),
            Transition::Select(select) => self.select(parser, select),
        }
    }

    fn select(&mut self, parser: &Parser, select: &'p Select) {
        let types: Vec<Option<Type>> = select.on.iter().map(|value| self.ty(value)).collect();
        for (i, case) in select.cases.iter().enumerate() {
            self.at(format!("case {}", i + 1), |c| {
                c.target(parser, case.to);
                if let [Keyset::Set(set)] = case.sets.as_slice() {
                    let Some(set) = c.get("value set", &c.program.value_sets, set.index()) else { return };
                    let fits = set.types.iter().map(|ty| Some(*ty)).eq(types.iter().copied());
                    c.require(fits, || format!("value set {} has other types", set.name));
                    return;
                }
                c.require(case.sets.len() == types.len(), || {
                    format!("{} sets for {} values", case.sets.len(), types.len())
                });
                for (set, ty) in case.sets.iter().zip(&types) {
                    c.keyset(set, *ty);
                }
            });
        }
    }

    fn keyset(&mut self, set: &Keyset, ty: Option<Type>) {
        let constants = match set {
            Keyset::Any => return,
            Keyset::Set(_) => {
                let _: Option<()> = self.error("a value set stands for all values of a case");
                return;
            }
            Keyset::Value(value) => [value, value],
            Keyset::Mask(a, b) | Keyset::Range(a, b) => [a, b],
        };
        for constant in constants {
            let found = self.constant(constant);
            self.require(found == ty || found.is_none() || ty.is_none(), || {
                "a set has another type than the value".to_owned()
            });
        }
    }

    fn target(&mut self, parser: &Parser, target: Target) {
        if let Target::State(state) = target {
            self.require((state as usize) < parser.states.len(), || format!("state {state} does not exist"));
        }
    }

    fn stages(&mut self) {
        let p = self.program;
        self.require(!p.stages.is_empty(), || "it has no stages".to_owned());
        let deparsers: HashSet<_> = p.stages.iter().filter_map(|stage| stage.deparser).collect();
        for (i, (name, body)) in p.blocks.iter().enumerate() {
            let is_deparser = deparsers.contains(&crate::ir::BlockId::at(i));
            let scope = if is_deparser { Scope::Deparser } else { Scope::Control };
            self.at(format!("block {name}"), |c| c.body_in(scope, body));
        }
        for (i, stage) in p.stages.iter().enumerate() {
            self.at(format!("stage {}", stage.name), |c| {
                if let Some(parser) = stage.parser {
                    c.get("parser", &p.parsers, parser.index());
                }
                for block in [Some(stage.control), stage.finish, stage.deparser].into_iter().flatten() {
                    c.get("block", &p.blocks, block.index());
                }
                if let Some(next) = stage.next {
                    c.get("stage", &p.stages, next.index());
                    c.require(next > StageId::at(i), || "its next stage must come behind it".to_owned());
                }
            });
        }
    }
}

/// Returns a state in a cycle in which no state consumes anything.
fn idle_cycle(parser: &Parser) -> Option<&ParserState> {
    let consumes = |state: &ParserState| {
        state.ops.iter().any(|op| match op {
            ParserOp::Extract(..) => true,
            ParserOp::Advance(Expr::Const(bits)) => !bits.value.is_zero(),
            ParserOp::Advance(_) => true,
            _ => false,
        })
    };
    let successors = |state: &ParserState| -> Vec<usize> {
        let targets: Vec<Target> = match &state.next {
            Transition::To(target) => vec![*target],
            Transition::Select(select) => select.cases.iter().map(|case| case.to).collect(),
        };
        targets
            .iter()
            .filter_map(|t| if let Target::State(s) = t { Some(*s as usize) } else { None })
            .collect()
    };
    // States that consume nothing, each with the number of its transitions to others, and who has one to it.
    let idle: Vec<bool> = parser.states.iter().map(|state| !consumes(state)).collect();
    let is_idle = |state: &usize| idle.get(*state) == Some(&true);
    let mut ways = vec![0_usize; idle.len()];
    let mut sources = vec![vec![]; idle.len()];
    for (i, state) in parser.states.iter().enumerate().filter(|(i, _)| is_idle(i)) {
        for next in successors(state).into_iter().filter(is_idle) {
            ways.iter_mut().skip(i).take(1).for_each(|ways| *ways += 1);
            sources.iter_mut().skip(next).take(1).for_each(|sources| sources.push(i));
        }
    }
    // Removes states from which no idle way goes on; what remains lies on or before a cycle.
    let mut ends: Vec<usize> = (0..idle.len()).filter(|i| ways.get(*i) == Some(&0)).collect();
    while let Some(end) = ends.pop() {
        for source in sources.get_mut(end).map(std::mem::take).unwrap_or_default() {
            for ways in ways.iter_mut().skip(source).take(1) {
                *ways -= 1;
                if *ways == 0 {
                    ends.push(source);
                }
            }
        }
    }
    // From each of these an idle way goes on, and so comes to a state a second time.
    let remains = |state: &usize| ways.get(*state).is_some_and(|ways| *ways > 0);
    let mut at = (0..ways.len()).find(remains)?;
    let mut seen = HashSet::new();
    while seen.insert(at) {
        at = successors(parser.states.get(at)?).into_iter().find(remains)?;
    }
    parser.states.get(at)
}
