//! Programs that would multiply without end when they are lowered: each is refused, soon.

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
    let mut front = compile::text("p.p4", text, &Options::default());
    front.lower();
    front.diagnostics.list().first().map_or_else(String::new, |d| d.message.clone())
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
