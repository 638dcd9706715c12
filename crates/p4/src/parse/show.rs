//! Syntax trees as text, for tests: every operator in brackets, one line each declaration.

use std::fmt::Display;

use crate::ast::*;

pub(super) fn program(program: &Program) -> String {
    program.declarations.iter().map(declaration).collect::<Vec<_>>().join("\n")
}

fn list<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    items.iter().map(show).collect::<Vec<_>>().join(", ")
}

fn sequence<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    items.iter().map(|item| format!(" {}", show(item))).collect()
}

fn optional<T>(before: impl Display, item: Option<&T>, show: impl Fn(&T) -> String) -> String {
    item.map(|item| format!("{before}{}", show(item))).unwrap_or_default()
}

fn name(name: &Name) -> String {
    name.text.clone()
}

fn annotations(annotations: &[Annotation]) -> String {
    let show = |a: &Annotation| match &a.body {
        AnnotationBody::None => format!("@{} ", a.name.text),
        AnnotationBody::Tokens(tokens) => format!("@{}({}) ", a.name.text, tokens.join(" ")),
        AnnotationBody::Expressions(values) => format!("@{}[{}] ", a.name.text, list(values, expr)),
        AnnotationBody::KeyValues(pairs) => {
            format!(
                "@{}[{}] ",
                a.name.text,
                list(pairs, |(key, value)| format!("{}={}", key.text, expr(value)))
            )
        }
    };
    annotations.iter().map(show).collect()
}

fn declaration(d: &Declaration) -> String {
    let n = &d.name.text;
    let text = match &d.kind {
        DeclarationKind::Constant(t, value) => format!("const {} {n} = {};", ty(t), expr(value)),
        DeclarationKind::Variable(t, value) => {
            format!("{} {n}{};", ty(t), optional(" = ", value.as_ref(), expr))
        }
        DeclarationKind::Instance(i) => {
            let initializer = i
                .initializer
                .as_ref()
                .map(|d| format!(" = {{{} }}", sequence(d, declaration)))
                .unwrap_or_default();
            format!("{}({}) {n}{initializer};", ty(&i.ty), list(&i.args, argument))
        }
        DeclarationKind::Error(names) => format!("error {{ {} }}", list(names, name)),
        DeclarationKind::MatchKind(names) => format!("match_kind {{ {} }}", list(names, name)),
        DeclarationKind::Header(c) => format!("header {n}{}", composite(c)),
        DeclarationKind::HeaderUnion(c) => format!("header_union {n}{}", composite(c)),
        DeclarationKind::Struct(c) => format!("struct {n}{}", composite(c)),
        DeclarationKind::Enum(representation, members) => {
            let member = |m: &EnumMember| {
                format!(
                    "{}{}{}",
                    annotations(&m.annotations),
                    m.name.text,
                    optional(" = ", m.value.as_ref(), expr)
                )
            };
            format!("enum{} {n} {{ {} }}", optional(" ", representation.as_ref(), ty), list(members, member))
        }
        DeclarationKind::TypeDef(t) => format!("typedef {} {n};", ty(t)),
        DeclarationKind::NewType(t) => format!("type {} {n};", ty(t)),
        DeclarationKind::ParserType(s) => format!("parser {n}{};", signature(s)),
        DeclarationKind::ControlType(s) => format!("control {n}{};", signature(s)),
        DeclarationKind::Package(s) => format!("package {n}{};", signature(s)),
        DeclarationKind::Extern(e) => {
            let method = |m: &Method| {
                let kind = if m.is_abstract { "abstract " } else { "" };
                let prototype = if m.is_constructor {
                    format!("{}{};", m.name.text, signature(&m.function.signature))
                } else {
                    function(&m.name, &m.function)
                };
                format!("{}{kind}{prototype}", annotations(&m.annotations))
            };
            format!("extern {n}{} {{{} }}", type_params(&e.type_params), sequence(&e.methods, method))
        }
        DeclarationKind::ExternFunction(f) => format!("extern {}", function(&d.name, f)),
        DeclarationKind::Function(f) => function(&d.name, f),
        DeclarationKind::Action(a) => format!("action {n}({}) {}", list(&a.params, param), block(&a.body)),
        DeclarationKind::Parser(p) => {
            let state = |s: &State| {
                let to = optional(" transition ", s.transition.as_ref(), transition);
                let body = sequence(&s.statements, statement);
                format!("{}state {} {{{body}{to} }}", annotations(&s.annotations), s.name.text)
            };
            let (locals, states) = (sequence(&p.locals, declaration), sequence(&p.states, state));
            format!(
                "parser {n}{}({}) {{{locals}{states} }}",
                signature(&p.signature),
                list(&p.constructor, param)
            )
        }
        DeclarationKind::Control(c) => {
            let (head, locals) = (signature(&c.signature), sequence(&c.locals, declaration));
            format!(
                "control {n}{head}({}) {{{locals} apply {} }}",
                list(&c.constructor, param),
                block(&c.body)
            )
        }
        DeclarationKind::Table(t) => format!("table {n} {{{} }}", sequence(&t.properties, property)),
        DeclarationKind::ValueSet(t, size) => format!("value_set<{}>({}) {n};", ty(t), expr(size)),
    };
    format!("{}{text}", annotations(&d.annotations))
}

fn composite(c: &Composite) -> String {
    let field = |f: &Field| format!("{}{} {};", annotations(&f.annotations), ty(&f.ty), f.name.text);
    format!("{} {{{} }}", type_params(&c.type_params), sequence(&c.fields, field))
}

fn function(name: &Name, f: &Function) -> String {
    let body = f.body.as_ref().map_or(";".into(), |b| format!(" {}", block(b)));
    format!("{} {}{}{body}", ty(&f.result), name.text, signature(&f.signature))
}

fn type_params(params: &[Name]) -> String {
    if params.is_empty() { String::new() } else { format!("<{}>", list(params, name)) }
}

fn signature(s: &Signature) -> String {
    format!("{}({})", type_params(&s.type_params), list(&s.params, param))
}

fn param(p: &Param) -> String {
    let direction = match p.direction {
        Direction::None => "",
        Direction::In => "in ",
        Direction::Out => "out ",
        Direction::InOut => "inout ",
    };
    let default = optional(" = ", p.default.as_ref(), expr);
    format!("{}{direction}{} {}{default}", annotations(&p.annotations), ty(&p.ty), p.name.text)
}

fn transition(t: &Transition) -> String {
    match t {
        Transition::To(to) => format!("{};", to.text),
        Transition::Select { on, cases, .. } => {
            let case = |c: &SelectCase| format!("{}: {};", expr(&c.keyset), c.to.text);
            format!("select({}) {{{} }}", list(on, expr), sequence(cases, case))
        }
    }
}

fn property(p: &Property) -> String {
    let value = match &p.value {
        PropertyValue::Key(key) => {
            sequence(key, |k| format!("{}: {}{};", expr(&k.value), annotations(&k.annotations), k.kind.text))
        }
        PropertyValue::Actions(actions) => {
            sequence(actions, |a| format!("{}{};", annotations(&a.annotations), expr(&a.action)))
        }
        PropertyValue::Entries(entries) => sequence(entries, |e| {
            let is_const = if e.is_const { "const " } else { "" };
            let priority = e.priority.as_ref().map(|p| format!("priority={}: ", expr(p))).unwrap_or_default();
            let to = format!("{}: {}{}", expr(&e.keyset), annotations(&e.annotations), expr(&e.action));
            format!("{is_const}{priority}{to};")
        }),
        PropertyValue::Expression(value) => {
            let is_const = if p.is_const { "const " } else { "" };
            return format!("{}{is_const}{} = {};", annotations(&p.annotations), p.name.text, expr(value));
        }
    };
    let is_const = if p.is_const { "const " } else { "" };
    format!("{}{is_const}{} = {{{value} }}", annotations(&p.annotations), p.name.text)
}

fn block(b: &Block) -> String {
    format!("{}{{{} }}", annotations(&b.annotations), sequence(&b.statements, statement))
}

fn statement(s: &Statement) -> String {
    match &s.kind {
        StatementKind::Empty => ";".into(),
        StatementKind::Declaration(d) => declaration(d),
        StatementKind::Assign(left, op, right) => {
            format!("{} {}= {};", expr(left), op.map(operator).unwrap_or_default(), expr(right))
        }
        StatementKind::Call(call) => format!("{};", expr(call)),
        StatementKind::If(condition, then, other) => {
            let other = optional(" else ", other.as_deref(), statement);
            format!("if ({}) {}{other}", expr(condition), statement(then))
        }
        StatementKind::Block(b) => block(b),
        StatementKind::Exit => "exit;".into(),
        StatementKind::Return(value) => format!("return{};", optional(" ", value.as_ref(), expr)),
        StatementKind::Break => "break;".into(),
        StatementKind::Continue => "continue;".into(),
        StatementKind::Switch(on, cases) => {
            let case =
                |c: &SwitchCase| format!("{}:{}", expr(&c.label), optional(" ", c.body.as_ref(), block));
            format!("switch ({}) {{{} }}", expr(on), sequence(cases, case))
        }
        StatementKind::For { init, condition, update, body } => {
            let (init, update) = (list(init, statement), list(update, statement));
            format!("for ({init} | {} | {update}) {}", expr(condition), statement(body))
        }
        StatementKind::ForIn { ty: of, name, collection, body } => {
            let of = of.as_ref().map(|t| format!("{} ", ty(t))).unwrap_or_default();
            format!("for ({of}{} in {}) {}", name.text, expr(collection), statement(body))
        }
    }
}

fn global(global: bool, name: &Name) -> String {
    format!("{}{}", if global { "." } else { "" }, name.text)
}

fn ty(t: &Type) -> String {
    match &t.kind {
        TypeKind::Void => "void".into(),
        TypeKind::Bool => "bool".into(),
        TypeKind::Error => "error".into(),
        TypeKind::MatchKind => "match_kind".into(),
        TypeKind::String => "string".into(),
        TypeKind::Integer => "int".into(),
        TypeKind::Bit(None) => "bit".into(),
        TypeKind::Bit(Some(width)) => format!("bit<{}>", expr(width)),
        TypeKind::Int(width) => format!("int<{}>", expr(width)),
        TypeKind::Varbit(width) => format!("varbit<{}>", expr(width)),
        TypeKind::Named { global: g, name } => global(*g, name),
        TypeKind::Specialized(of, args) => format!("{}<{}>", ty(of), list(args, ty)),
        TypeKind::Stack(of, size) => format!("{}[{}]", ty(of), expr(size)),
        TypeKind::Tuple(of) => format!("tuple<{}>", list(of, ty)),
        TypeKind::List(of) => format!("list<{}>", ty(of)),
        TypeKind::DontCare => "_".into(),
    }
}

fn argument(a: &Argument) -> String {
    let named = a.name.as_ref().map(|n| format!("{}=", n.text)).unwrap_or_default();
    format!("{named}{}", expr(&a.value))
}

fn braced(mut items: Vec<String>, defaults: bool) -> String {
    if defaults {
        items.push("...".into());
    }
    format!("{{{}}}", items.join(", "))
}

pub(super) fn expr(e: &Expr) -> String {
    match &e.kind {
        ExprKind::Bool(value) => value.to_string(),
        ExprKind::Integer(value, None) => value.to_string(),
        ExprKind::Integer(value, Some(of)) => {
            format!("{}{}{value}", of.width, if of.signed { "s" } else { "w" })
        }
        ExprKind::String(text) => format!("{text:?}"),
        ExprKind::Name { global: g, name } => global(*g, name),
        ExprKind::This => "this".into(),
        ExprKind::Dots => "...".into(),
        ExprKind::DontCare => "_".into(),
        ExprKind::Default => "default".into(),
        ExprKind::Invalid => "{#}".into(),
        ExprKind::List(items, defaults) => braced(items.iter().map(expr).collect(), *defaults),
        ExprKind::Record(fields, defaults) => {
            let fields = fields.iter().map(|(name, value)| format!("{}={}", name.text, expr(value)));
            braced(fields.collect(), *defaults)
        }
        ExprKind::Type(t) => format!("type {}", ty(t)),
        ExprKind::Member(of, name) => format!("{}.{}", expr(of), name.text),
        ExprKind::Index(of, at) => format!("{}[{}]", expr(of), expr(at)),
        ExprKind::Slice(of, high, low) => format!("{}[{}:{}]", expr(of), expr(high), expr(low)),
        ExprKind::PlusSlice(of, low, width) => format!("{}[{}+:{}]", expr(of), expr(low), expr(width)),
        ExprKind::Unary(op, of) => {
            let op = match op {
                UnOp::Not => "!",
                UnOp::Complement => "~",
                UnOp::Negate => "-",
                UnOp::Plus => "+",
            };
            format!("({op}{})", expr(of))
        }
        ExprKind::Binary(op, a, b) => format!("({} {} {})", expr(a), operator(*op), expr(b)),
        ExprKind::Ternary(c, a, b) => format!("({} ? {} : {})", expr(c), expr(a), expr(b)),
        ExprKind::Cast(to, of) => format!("(({}) {})", ty(to), expr(of)),
        ExprKind::Call(of, types, args) => {
            let types = if types.is_empty() { String::new() } else { format!("<{}>", list(types, ty)) };
            format!("{}{types}({})", expr(of), list(args, argument))
        }
        ExprKind::Mask(a, b) => format!("({} &&& {})", expr(a), expr(b)),
        ExprKind::Range(a, b) => format!("({} .. {})", expr(a), expr(b)),
    }
}

fn operator(op: BinOp) -> &'static str {
    match op {
        BinOp::Add => "+",
        BinOp::Sub => "-",
        BinOp::Mul => "*",
        BinOp::Div => "/",
        BinOp::Rem => "%",
        BinOp::SatAdd => "|+|",
        BinOp::SatSub => "|-|",
        BinOp::And => "&",
        BinOp::Or => "|",
        BinOp::Xor => "^",
        BinOp::Shl => "<<",
        BinOp::Shr => ">>",
        BinOp::Concat => "++",
        BinOp::Eq => "==",
        BinOp::Ne => "!=",
        BinOp::Lt => "<",
        BinOp::Le => "<=",
        BinOp::Gt => ">",
        BinOp::Ge => ">=",
        BinOp::LogicAnd => "&&",
        BinOp::LogicOr => "||",
    }
}
