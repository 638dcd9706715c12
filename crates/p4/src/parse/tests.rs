//! Programs and the trees, or the errors, that they give.

use super::{DEEPEST, Parsed, show, text};
use crate::preprocess::Options;

/// Types and values that the programs below use.
const PRELUDE: &str =
    "header H { bit<8> x; } typedef bit<8> T; struct G<X> { X x; } extern E { void f<A>(in A a); }\n";

fn parse(program: &str) -> Parsed {
    text("main.p4", program, &Options::default())
}

fn errors(program: &str) -> Vec<String> {
    let Parsed { sources, diagnostics, .. } = parse(program);
    let show = |d: &crate::diagnostic::Diagnostic| {
        let (line, column) = sources.line(d.label.span);
        let help = d.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
        format!("{line}:{column} {}{help}", d.message)
    };
    diagnostics.list().iter().map(show).collect()
}

/// Checks the tree of declarations behind the prelude.
#[track_caller]
fn declares(program: &str, expected: &str) {
    let parsed = parse(&format!("{PRELUDE}{program}"));
    assert_eq!(parsed.diagnostics.list(), [], "{program}");
    let shown = show::program(&parsed.program);
    let own: Vec<&str> = shown.lines().skip(4).collect();
    assert_eq!(own.join("\n"), expected);
}

/// Checks the tree of statements in a control with a variable `v`, a constant `C` and an object `e`.
#[track_caller]
fn runs(statements: &str, expected: &str) {
    let head = "control ctl(inout T v, inout H h)";
    declares(
        &format!("const T C = 1;\n{head} {{ E() e; apply {{ {statements} }} }}"),
        &format!("const T C = 1;\n{head}() {{ E() e; apply {{ {expected} }} }}"),
    );
}

/// Checks the tree of an expression there.
#[track_caller]
fn means(expression: &str, expected: &str) {
    runs(&format!("v = {expression};"), &format!("v = {expected};"));
}

#[test]
fn operators_have_precedences() {
    means("1 + 2 * 3 - 4", "((1 + (2 * 3)) - 4)");
    means(
        "a || b && c == d < e | f ^ g & h << i + j",
        "(a || (b && (c == (d < (e | (f ^ (g & (h << (i + j)))))))))",
    );
    means("a ++ b |+| c |-| d", "(((a ++ b) |+| c) |-| d)");
    means("-a + !b % ~c / +d", "((-a) + (((!b) % (~c)) / (+d)))");
    means("a ? b : c ? d : e", "(a ? b : (c ? d : e))");
    means("(a + b) * c", "((a + b) * c)");
    means("-a.b[1]", "(-a.b[1])");
    means("a >= b != c <= d", "((a >= b) != (c <= d))");
}

#[test]
fn a_shift_is_two_joined_angles() {
    means("a >> b > c", "((a >> b) > c)");
    means("v >> (8w2)", "(v >> 8w2)");
    assert_eq!(errors("const int x = 1 > > 2;"), ["1:19 expected an expression, found `>`"]);
    runs("v >>= 1;", "v >>= 1;");
}

#[test]
fn angles_open_type_arguments_or_compare() {
    means("f<T>(v)", "f<T>(v)");
    means("f<bit<8>, _>()", "f<bit<8>, _>()");
    means("f<G<G<T>>>(v)", "f<G<G<T>>>(v)");
    means("e.f<H[3]>(h)", "e.f<H[3]>(h)");
    means("f<tuple<T, bit<(8 > 4 ? 2 : 1)>>>(v)", "f<tuple<T, bit<((8 > 4) ? 2 : 1)>>>(v)");
    means("v < C", "(v < C)");
    means("f(v < C, C > (v))", "f((v < C), (C > v))");
    means("v < 3 && C > (v)", "((v < 3) && (C > v))");
    means("G<T>.x", "type G<T>.x");
    // What is in scope decides.
    means("v < T > (C)", "v<T>(C)");
}

#[test]
fn brackets_hold_casts_or_expressions() {
    means("(T) -v", "((T) (-v))");
    means("(v) - C", "(v - C)");
    means("(bit<8>) v + C", "(((bit<8>) v) + C)");
    means("(T)(bit<16>) v", "((T) ((bit<16>) v))");
    means("(G<T>) { 1 }", "((G<T>) {1})");
    means("(H) {#}", "((H) {#})");
    means("(.T) v", "((.T) v)");
    means("(Unknown) v", "((Unknown) v)");
    means("(v)", "v");
    means("(bit) true", "((bit) true)");
    means("(H[2]) { h, h }", "((H[2]) {h, h})");
}

#[test]
fn operands() {
    means("0x1F", "31");
    means("8w0b11 ++ 4s1", "(8w3 ++ 4s1)");
    means("\"a\\\"b\"", "\"a\\\"b\"");
    means("error.NoError", "type error.NoError");
    means(".C", ".C");
    means("{}", "{}");
    means("{ 1, { 2 }, }", "{1, {2}}");
    means("{ 1, ... }", "{1, ...}");
    means("{ x = 1, y = { 2 } }", "{x=1, y={2}}");
    means("{ x = 1, ... , }", "{x=1, ...}");
    means("...", "...");
    means("v[7:4]", "v[7:4]");
    means("v[4+:4]", "v[4+:4]");
    means("v[a ? b : c : d]", "v[(a ? b : c):d]");
    means("this.f(a=1, b=_)", "this.f(a=1, b=_)");
    means("E().f(_)", "E().f(_)");
    means("apply.key(state, type)", "apply.key(state, type)");
}

#[test]
fn statements() {
    runs(";", ";");
    runs("v = 1; h.x |+|= 2;", "v = 1; h.x |+|= 2;");
    runs("h.x[3:0] <<= 1;", "h.x[3:0] <<= 1;");
    runs("e.f<T>(v);", "e.f<T>(v);");
    runs("c.apply(v, h);", "c.apply(v, h);");
    runs("T x; T y = x; const T z = 2; H[2] s;", "T x; T y = x; const T z = 2; H[2] s;");
    runs("G<T> g; bit<8> b; .T t;", "G<T> g; bit<8> b; .T t;");
    runs("E() o;", "E() o;");
    runs("T a[2];", "T[2] a;");
    runs(
        "if (v == 1) exit; else if (h.isValid()) { return; }",
        "if ((v == 1)) exit; else if (h.isValid()) { return; }",
    );
    runs("@a { @b(1) T x; }", "@a { @b(1) T x; }");
    runs(
        "switch (t.apply().action_run) { a: b: { exit; } default: { } }",
        "switch (t.apply().action_run) { a: b: { exit; } default: { } }",
    );
    runs("switch (v) { 1: 8w2: (C): { } }", "switch (v) { 1: 8w2: C: { } }");
    runs(
        "for (T i = 0, T j = 1; i < C; i += 1, e.f(j)) { break; continue; }",
        "for (T i = 0;, T j = 1; | (i < C) | i += 1;, e.f(j);) { break; continue; }",
    );
    runs("@unroll for (T i in 1 .. C) v = i;", "for (T i in (1 .. C)) v = i;");
    runs("for (@x H i in s) { }", "for (H i in s) { }");
}

#[test]
fn a_variable_hides_a_type_in_its_scope() {
    runs("{ T T = 1; v = (T) - 1; } v = (T) -1;", "{ T T = 1; v = (T - 1); } v = ((T) (-1));");
}

#[test]
fn types() {
    declares("header_union U { H a; H b; }", "header_union U { H a; H b; }");
    declares(
        "struct S<A, B> { @x A a; tuple<> t; list<B> l; }",
        "struct S<A, B> { @x A a; tuple<> t; list<B> l; }",
    );
    declares(
        "struct S { varbit<(8 * 4)> v; int<4> i; H[3] s; H t[2]; }",
        "struct S { varbit<(8 * 4)> v; int<4> i; H[3] s; H[2] t; }",
    );
    declares("enum X { A, @b B, }", "enum X { A, @b B }");
    declares("enum bit<8> X { A = 1, B = 2 }", "enum bit<8> X { A = 1, B = 2 }");
    declares("error { A } match_kind { B, }", "error { A }\nmatch_kind { B }");
    declares("type bit<9> Port; typedef H[2] Hs;", "type bit<9> Port;\ntypedef H[2] Hs;");
    declares("typedef struct S { T x; } R;", "struct S { T x; }\ntypedef S R;");
    declares("const bit<C ^ 3> x = 1;", "const bit<(C ^ 3)> x = 1;");
    declares("const bit<C < 3 ? 5 : 4> x = 1;", "const bit<((C < 3) ? 5 : 4)> x = 1;");
}

#[test]
fn functions_externs_and_objects() {
    declares("extern void f<A>(in A a, out bit b = 1);", "extern void f<A>(in A a, out bit b = 1);");
    declares(
        "extern X<A> { X(int n); X(); abstract A f(inout A a); @p void g<B>(@optional in B b); }",
        "extern X<A> { X(int n); X(); abstract A f(inout A a); @p void g<B>(@optional in B b); }",
    );
    declares("T f(in T x) { return x + 1; }", "T f(in T x) { return (x + 1); }");
    declares("A f<A>(in A x) { return (A) x; }", "A f<A>(in A x) { return ((A) x); }");
    declares("action a(in T x, T y) { }", "action a(in T x, T y) { }");
    declares(
        "parser P<A>(in A a); control K(); package M(K k);",
        "parser P<A>(in A a);\ncontrol K();\npackage M(K k);",
    );
    declares("@name(\"m\") M<H, _>(P(), K()) main;", "@name(\"m\") M<H, _>(P(), K()) main;");
    declares("E() e = { void f(in T x) { } E() g; };", "E() e = { void f(in T x) { } E() g; };");
}

#[test]
fn parsers() {
    declares(
        "parser P(in H h)(bit<4> n) {
            T x = 1; value_set<T>(4) vs; E() e;
            state start { x = 2; { T y; } transition select(h.x, x) {
                (1, 2): accept; (3 &&& 4, _): a; (5 .. 6, default): a; (vs): a; (1 + 2) * 3: a; (T) 1: a; (_): b;
                { 1 }: b; 1 &&& 2: b; default: b; _: reject; } }
            @x state a { }
            state b { transition a; }
        }",
        "parser P(in H h)(bit<4> n) { T x = 1; value_set<T>(4) vs; E() e; \
         state start { x = 2; { T y; } transition select(h.x, x) { {1, 2}: accept; {(3 &&& 4), _}: a; \
         {(5 .. 6), default}: a; vs: a; ((1 + 2) * 3): a; ((T) 1): a; _: b; {1}: b; (1 &&& 2): b; default: b; \
         _: reject; } } @x state a { } state b { transition a; } }",
    );
}

#[test]
fn controls_and_tables() {
    declares(
        "control K<A>(inout A a)(int n) {
            action b(T x) { }
            table t {
                key = { a.x: exact; a.y & 7: ternary @name(\"y\"); }
                actions = { b; .NoAction(); @defaultonly b(1); }
                const default_action = b(2);
                size = 10;
                const entries = { 1: b(3); (_, 2 &&& 3): b(4) @x; }
                implementation = I(4);
            }
            table u { entries = { const priority = 3: 1: b(1); priority = (2 + 1): (1, 2): b(2); } }
            apply @p { t.apply(); }
        }",
        "control K<A>(inout A a)(int n) { action b(T x) { } table t { \
         key = { a.x: exact; (a.y & 7): @name(\"y\") ternary; } actions = { b; .NoAction(); @defaultonly b(1); } \
         const default_action = b(2); size = 10; const entries = { 1: b(3); {_, (2 &&& 3)}: @x b(4); } \
         implementation = I(4); } \
         table u { entries = { const priority=3: 1: b(1); priority=(2 + 1): {1, 2}: b(2); } } \
         apply @p { t.apply(); } }",
    );
}

#[test]
fn annotations() {
    declares(
        "@a(x (y), \"z\") @b[1, \"c\"] @d[k = 1 + 2] @e[] const T x = 1;",
        "@a(x ( y ) , \"z\") @b[1, \"c\"] @d[k=(1 + 2)] @e[] const T x = 1;",
    );
    declares("@pragma p q 1 \"r\"\n@table const T x = 1;", "@p(q 1 \"r\") @table const T x = 1;");
}

#[test]
fn spans_are_what_is_written() {
    let parsed = parse("const bit<8> x = (1 + 2) * 3;");
    let [declaration] = parsed.program.declarations.as_slice() else { panic!() };
    assert_eq!(parsed.sources.text(declaration.span), "const bit<8> x = (1 + 2) * 3;");
    let crate::ast::DeclarationKind::Constant(ty, value) = &declaration.kind else { panic!() };
    assert_eq!(parsed.sources.text(ty.span), "bit<8>");
    assert_eq!(parsed.sources.text(value.span), "(1 + 2) * 3");
    let crate::ast::ExprKind::Binary(_, left, _) = &value.kind else { panic!() };
    assert_eq!(parsed.sources.text(left.span), "(1 + 2)");
}

#[test]
fn errors_say_what_was_expected() {
    let statement = |text: &str| {
        let found = errors(&format!("control c() {{ apply {{\n{text}\n}} }}"));
        assert_eq!(found.len(), 1, "{found:?}");
        found.concat()
    };
    assert_eq!(statement("x == 1;"), "2:3 expected `=`, found `==` (write `=` to assign)");
    assert_eq!(statement("if (x = 1) { }"), "2:7 expected `)`, found `=` (write `==` to compare)");
    assert_eq!(
        statement("transition accept;"),
        "2:1 `transition` outside of a parser state (`transition` ends a state of a parser; controls use `return` \
         or `exit`)"
    );
    assert_eq!(
        statement("retrun 1;"),
        "2:8 expected an assignment or a call, found `1` (did you mean `return`?)"
    );
    assert_eq!(statement("x = ;"), "2:5 expected an expression, found `;`");
    assert_eq!(
        statement("x = bit<8>(1);"),
        "2:5 expected an expression, found type `bit` (a cast is `(TYPE) VALUE`)"
    );
    assert_eq!(statement("f(1 2);"), "2:5 expected `,` or `)`, found `2`");
    assert_eq!(statement("x = 0b12;"), "2:5 `2` in a binary integer");
    assert_eq!(statement("x = 'a;"), "2:5 expected an expression, found unknown character `'`");
    assert_eq!(
        statement("else { }"),
        "2:1 expected a statement, found keyword `else` (`else` follows the statement of an `if`)"
    );
    assert_eq!(
        statement("table t { }"),
        "2:1 expected a statement, found keyword `table` (it is declared outside of this block; is a `}` missing \
         before it?)"
    );
    assert_eq!(statement("x = c;"), "2:5 expected a value, found type `c`");
    assert_eq!(
        statement("for (i in 1 .. 2) { }"),
        "2:6 loop over a collection without a type of its variable (write `for (TYPE i in …)`)"
    );
}

#[test]
fn errors_of_declarations() {
    assert_eq!(errors("hedaer h { }"), ["1:1 unknown kind of declaration `hedaer` (did you mean `header`?)"]);
    assert_eq!(
        errors("bit<8> x;"),
        ["1:8 a variable cannot be declared here (it belongs in a parser, a control or a block)"]
    );
    assert_eq!(errors("table t { }"), ["1:7 a table cannot be declared here (it belongs in a control)"]);
    assert_eq!(
        errors("x.y = 1;"),
        [
            "1:2 expected the name of what is declared, found `.` (statements belong in `apply`, an action, a function \
          or a parser state)"
        ]
    );
    assert_eq!(
        errors("struct if { }"),
        ["1:8 expected the name of a type, found keyword `if` (`if` is reserved and cannot be a name)"]
    );
    assert_eq!(errors("control c() { }"), ["1:9 control `c` has no `apply` (add `apply { }`)"]);
    assert_eq!(
        errors("control c() { table t { acttions = { a; } } apply { } }"),
        ["1:25 unknown property `acttions` with a list (did you mean `actions`?)"]
    );
    assert_eq!(errors("control c() { table t { actions { } } apply { } }"), ["1:33 expected `=`, found `{`"]);
    assert_eq!(
        errors("control c() { table t { actions = { a, b } } apply { } }"),
        ["1:38 expected `;` behind the action, found `,` (actions are separated by `;`)"]
    );
    assert_eq!(
        errors("control c() { table t { key = { x; } } apply { } }"),
        ["1:34 expected `:` and a match kind, found `;` (write `VALUE: exact;`, or another match kind)"]
    );
    assert_eq!(
        errors("parser p() { state start { transtion accept; } }"),
        ["1:28 expected a statement or `transition`, found `transtion` (did you mean `transition`?)"]
    );
    assert_eq!(
        errors("parser p() { state start { transition accept; x = 1; } }"),
        ["1:47 expected `}` behind the transition, found `x` (a transition ends its state)"]
    );
    assert_eq!(
        errors("parser p() { state s { if (x) { return; } } }"),
        [
            "1:33 `return` in a parser state (a state ends with `transition`, and chooses with `transition select`)"
        ]
    );
    assert_eq!(errors("error { A, }"), ["1:12 expected a name, found `}`"]);
}

#[test]
fn errors_of_what_is_not_closed() {
    assert_eq!(errors("header h { bit<8> x;"), ["1:10 `{` is not closed (add `}`)"]);
    assert_eq!(errors("control c() { apply { {"), ["1:23 `{` is not closed (add `}`)"]);
    let missing =
        "control c() { apply { if (x) { f(\n}\nheader h { bit<8> x; }\ncontrol d() { apply {\nheader i { }";
    assert_eq!(
        errors(missing),
        [
            "2:1 expected an expression, found `}`",
            "1:21 `{` is not closed (add `}`)",
            "4:21 `{` is not closed (add `}`)",
        ]
    );
    let shown = show::program(&parse(missing).program);
    assert_eq!(shown.lines().filter(|line| line.starts_with("header")).count(), 2, "{shown}");
    assert_eq!(
        errors("control c() { header h { } apply { } }"),
        [
            "1:22 a type, parser, control, error or match kind cannot be declared here (it belongs at the top level; \
          is a `}` missing before it?)"
        ]
    );
    assert_eq!(errors("} header h { }"), ["1:1 `}` closes nothing"]);
    assert_eq!(errors("const string s = \"a"), ["1:18 string is not closed (add `\"`)"]);
    assert_eq!(errors("header h { } /* a"), ["1:14 comment is not closed (add `*/`)"]);
    assert_eq!(
        errors("@a(1 header h { }"),
        ["1:18 expected `)` of the annotation, found the end of the program"]
    );
}

#[test]
fn a_missing_semicolon_is_one_error() {
    let missing =
        "struct s {\n  bit<8> x\n  bit<8> y;\n}\ncontrol c() {\n  apply {\n    a = 1\n    b = 2\n  }\n}";
    assert_eq!(
        errors(missing),
        [
            "2:11 expected `;` behind the field, found keyword `bit` (add `;` here)",
            "7:10 expected `;` behind the statement, found `b` (add `;` here)",
            "8:10 expected `;` behind the statement, found `}` (add `;` here)",
        ]
    );
    let parsed = parse(missing);
    assert_eq!(
        show::program(&parsed.program),
        "struct s { bit<8> x; bit<8> y; }\ncontrol c()() { apply { a = 1; b = 2; } }"
    );
}

#[test]
fn parsing_goes_on_behind_errors() {
    let program = "
        header h { bit<> x; bit<8> y; }
        control c(in bit<8> 8) { table t { key = { } } apply { } }
        control d() {
            action a() { x = { 1 2 }; y = 3 4; z = 5; }
            table t { key = { x exact; y: lpm; } actions = { 7; a; } size = ; }
            apply { f(; g(); }
        }
        const bit<8> last = 1;";
    assert_eq!(
        errors(program),
        [
            "2:24 expected an expression, found `>`",
            "3:29 expected the name of a parameter, found `8`",
            "5:34 expected `,` or `}`, found `2`",
            "5:45 expected `;` behind the statement, found `4`",
            "6:33 expected `:` and a match kind, found `exact` (write `VALUE: exact;`, or another match kind)",
            "6:62 expected the name of an action, found `7`",
            "6:77 expected an expression, found `;`",
            "7:23 expected an expression, found `;`",
        ]
    );
    assert_eq!(
        show::program(&parse(program).program),
        "header h { bit<8> y; }\n\
         control d()() { action a() { z = 5; } table t { key = { y: lpm; } actions = { a; } } apply { g(); } }\n\
         const bit<8> last = 1;"
    );
}

#[test]
fn a_broken_declaration_does_not_hide_the_next() {
    assert_eq!(
        errors("const bit<8> x = (1\nheader h { bit<8> }\nconst y;"),
        [
            "2:1 expected `)`, found keyword `header`",
            "2:19 expected the name of a field, found `}`",
            "3:8 expected the name of a constant, found `;`",
        ]
    );
}

/// Programs nested to a depth, each within another construct.
fn nested(depth: usize) -> Vec<String> {
    let around = |open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
    };
    let constant = |value: String| format!("const int x = {value};");
    let body = |statements: String| format!("control c() {{ apply {{ {statements} }} }}");
    vec![
        constant(around("(", "1", ")")),
        constant(around("{", "1", "}")),
        constant(around("-", "1", "")),
        constant(around("(bit<8>) ", "1", "")),
        constant(around("f(", "1", ")")),
        constant(around("a[", "1", "]")),
        constant(around("a ? ", "1", " : 2")),
        constant(around("a ? b : ", "1", "")),
        constant(around("", "1", " + 1")),
        constant(around("", "a", ".b")),
        constant(around("", "f", "()")),
        constant(around("1 + (2 * ", "1", ")")),
        constant(around("(", "1", " + 1)")),
        constant(around("f<bit<(", "1", ")>>(a)")),
        body(around("{", ";", "}")),
        body(around("if (a) ", ";", "")),
        body(around("if (a) ; else ", ";", "")),
        body(around("for (bit<8> i in a) ", ";", "")),
        body(around("switch (a) { b: {", "", "} }")),
        format!("const {} x = 1;", around("G<", "bit<8>", ">")),
        format!("const {} x = 1;", around("tuple<", "bit<8>", ">")),
        format!("const {} x = 1;", around("bit<((", "bit", ") 1)>")),
        format!("const bit<8>{} x = 1;", around("", "", "[1]")),
        format!("{} E() e = {};", "", around("{ E() e = ", "{ }", "; }")),
        format!("@x[{}] const int x = 1;", around("(", "1", ")")),
        format!("parser p() {{ state s {{ transition select(1) {{ {}: s; }} }} }}", around("(", "1", ")")),
    ]
}

#[test]
fn what_is_nested_too_deep_is_an_error() {
    let check = || {
        for program in nested(DEEPEST / 5).iter().chain(&nested(20)) {
            assert_eq!(errors(program), [] as [&str; 0], "{program}");
        }
        for program in nested(DEEPEST + 1).iter().chain(&nested(20_000)) {
            let found = errors(program);
            let deep = found
                .iter()
                .any(|e| e.ends_with("nested more than 200 levels (split it into several parts)"));
            assert!(deep, "{found:?} {}", program.chars().take(99).collect::<String>());
        }
    };
    // Unoptimized, 200 levels need more than a test's 2 MiB.
    std::thread::Builder::new().stack_size(32 << 20).spawn(check).unwrap().join().unwrap();
}

#[test]
fn what_is_long_is_not_deep() {
    let many = |item: &str| item.repeat(2000);
    for program in [
        format!("const list<int> x = {{ {} }};", many("a + b * 2, ")),
        format!("control c() {{ apply {{ {} }} }}", many("a.b = f(1)[2:1]; ")),
        format!("struct s {{ {} }}", many("bit<8> x[2]; ")),
        many("typedef bit<8>[2] t; "),
    ] {
        assert_eq!(errors(&program), [] as [&str; 0], "{}", program.chars().take(99).collect::<String>());
    }
}
