//! Programs that exceed bounds: that would multiply without end when they are lowered, or are too large for the pipeline.
//! Each is refused, soon, at a place.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use mswitch_p4::compile;
use mswitch_p4::preprocess::Options;

/// A program for `V1Switch` with these declarations, and these locals and statements in ingress.
fn program(declarations: &str, locals: &str, body: &str) -> String {
    format!(
        "#include <v1model.p4>
        header h_t {{ bit<8> a; }}
        struct headers {{ h_t h; }}
        struct metadata {{ bit<8> m; }}
        {declarations}
        parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {{
            state start {{ b.extract(hdr.h); transition accept; }}
        }}
        control V(inout headers hdr, inout metadata meta) {{ apply {{}} }}
        control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {{
            {locals}
            apply {{ {body} }}
        }}
        control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {{ apply {{}} }}
        control D(packet_out b, in headers hdr) {{ apply {{ b.emit(hdr); }} }}
        V1Switch(P(), V(), C(), E(), V(), D()) main;"
    )
}

/// The first message about a program; nothing if it is lowered.
fn message(text: &str) -> String {
    let compile = || {
        let mut front = compile::text("p.p4", text, &Options::default());
        front.lower();
        front.diagnostics.list().first().map_or_else(String::new, |d| d.message.clone())
    };
    // Unoptimized, programs at the bounds need more than a test's 2 MiB.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(32 << 20).spawn_scoped(scope, compile).unwrap();
        thread.join().unwrap()
    })
}

/// `level` declarations, each of which has the one before twice.
fn doubled(first: &str, next: impl Fn(usize) -> String) -> String {
    (1..=40).map(next).fold(first.to_owned(), |text, next| text + &next)
}

#[test]
fn calls_that_double_end() {
    let next = |i| format!("void f{i}(inout bit<8> x) {{ f{0}(x); f{0}(x); }}", i - 1);
    let functions = doubled("void f0(inout bit<8> x) {}", next);
    assert!(message(&program(&functions, "", "f40(meta.m);")).contains("too large"));
}

#[test]
fn loops_within_loops_end() {
    let heads = (0..6).fold(String::new(), |mut text, i| {
        let _ = write!(text, "for (bit<16> i{i} in 16w0..16w1000) {{");
        text
    });
    assert!(message(&program("", "", &format!("{heads}{}", "}".repeat(6)))).contains("too large"));
}

#[test]
fn objects_that_double_end() {
    let next = |i| {
        let inner = i - 1;
        format!(
            "control c{i}(inout bit<8> x) {{ c{inner}() a; c{inner}() b; apply {{ a.apply(x); b.apply(x); }} }}"
        )
    };
    let controls = doubled("control c0(inout bit<8> x) { apply {} }", next);
    assert!(message(&program(&controls, "c40() c;", "c.apply(meta.m);")).contains("more than 10000 objects"));
}

#[test]
fn many_returns_in_a_row_are_lowered() {
    let returns: String = (0..200).map(|i| format!("if (x == {i}) {{ return {i}; }}")).collect();
    let function = format!("bit<8> f(in bit<8> x) {{ {returns} return 255; }}");
    assert_eq!(message(&program(&function, "", "meta.m = f(meta.m);")), "");
}

#[test]
fn deep_branches_are_refused_at_their_place() {
    let nested = |levels| {
        let (open, close) = ("if (meta.m == 1) {".repeat(levels), "}".repeat(levels));
        message(&program("", "", &format!("{open} meta.m = 2; {close}")))
    };
    assert_eq!(nested(50), "");
    assert!(nested(60).contains("a branch within 56 others"), "{}", nested(60));
}

/// The text that the first message about a program marks.
fn marked(text: &str) -> String {
    let mut front = compile::text("p.p4", text, &Options::default());
    front.lower();
    let span = front.diagnostics.list().first().map(|d| d.label.span).unwrap_or_default();
    let file = front.sources.get(span.file).map_or("", |file| &file.text);
    file.get(span.start as usize..span.end as usize).unwrap_or_default().to_owned()
}

#[test]
fn what_the_pipeline_refuses_is_marked() {
    let large = "register<bit<64>>(10) small; register<bit<64>>(1000000000) large;";
    assert_eq!(
        marked(&program("", large, "small.write(0, 1); large.write(0, 1);")),
        "register<bit<64>>(1000000000) large;"
    );
    let states = "state start { transition turn; } state turn { transition select(meta.m) { 0: start; default: accept; } }";
    let text = program("", "", "").replace("state start { b.extract(hdr.h); transition accept; }", states);
    assert!(message(&text).contains("a cycle of states that consumes nothing"), "{}", message(&text));
    assert_eq!(marked(&text), "state start { transition turn; }");
}

#[test]
fn two_actions_of_one_name_are_refused() {
    let actions = "@name(\".a\") action x() { } @name(\".a\") action y() { meta.m = 1; }
                   table t { actions = { x; y; NoAction; } default_action = NoAction; }";
    let text = program("", actions, "t.apply();");
    assert_eq!(message(&text), "two actions have the name `a`: a controller cannot tell them apart");
    assert_eq!(marked(&text), "@name(\".a\") action y() { meta.m = 1; }");
    // Equal ones are one to a controller.
    assert_eq!(message(&text.replace("{ meta.m = 1; }", "{ }")), "");
}

#[test]
fn a_register_of_psa_with_an_initial_value_is_refused() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/psa_services.p4");
    let common = include_str!("cases/psa_common.p4");
    let text =
        std::fs::read_to_string(path).unwrap_or_default().replace("#include \"psa_common.p4\"", common);
    let messages = |text: &str| {
        let mut front = compile::text(path, text, &Options::default());
        front.lower();
        front.diagnostics.list().iter().map(|d| d.message.clone()).collect::<Vec<_>>()
    };
    assert_eq!(messages(&text.replace("(4) words", "(4, 0) words")), [""; 0]);
    let message = "a register with an initial value other than 0 is not supported";
    assert!(messages(&text.replace("(4) words", "(4, 7) words")).contains(&message.to_owned()));
}

#[test]
fn calls_within_200_others_are_refused() {
    let deep = |levels: usize| {
        let next = |i| format!("void f{i}(inout bit<8> x) {{ f{}(x); }}", i - 1);
        let functions = (1..=levels).map(next).collect::<String>();
        let text = format!("void f0(inout bit<8> x) {{ x = 1; }} {functions}");
        message(&program(&text, "", &format!("f{levels}(meta.m);")))
    };
    assert_eq!(deep(150), "");
    assert!(deep(5_000).contains("calls nested deeper than 200"), "{}", deep(5_000));
}

#[test]
fn types_of_types_are_refused_beyond_their_depth() {
    let types = |n: usize| {
        let next = |i| format!("type t{} t{i};", i - 1);
        let types = (1..=n).map(next).collect::<String>();
        message(&program(&format!("type bit<8> t0; {types}"), "", ""))
    };
    assert_eq!(types(20), "");
    assert!(types(40_000).contains("a type of more than"), "{}", types(40_000));
}

#[test]
fn thousands_of_unknown_names_end_soon() {
    let names = (0..3_000).fold(String::new(), |mut text, i| {
        let _ = write!(text, "bit<8> a_long_name_of_a_variable_{i:04} = meta.m;");
        text
    });
    let uses = (0..20_000).fold(String::new(), |mut text, i| {
        let _ = write!(text, "meta.m = another_long_name_of_a_{i:05};");
        text
    });
    let text = program("", &names, &uses);
    let start = std::time::Instant::now();
    assert!(message(&text).contains("`another_long_name_of_a_00000` is not declared"), "{}", message(&text));
    // Every use against every name took minutes.
    assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
}
