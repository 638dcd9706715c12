//! Calls: arguments, directions, overloads, places where calls are allowed.

use super::{accepted, body, refused};
use crate::hir::{Callee, ExprKind, StmtKind};

fn functions(statement: &str) -> String {
    let declared = "extern void one(in bit<8> a); extern void two(in bit<8> a, @optional in bit<8> b); \
        extern void three(in bit<8> a, in bit<8> c = 3); extern void write(out bit<8> o); \
        extern void over(in bit<8> a); extern void over(in bit<8> a, in bit<8> b); extern void over(in bool c); \
        bit<8> twice(in bit<8> a) { return a + a; }";
    format!("{declared} {}", body(statement))
}

#[test]
fn arguments_match_parameters() {
    accepted(&functions("one(1); one(a = b8); b8 = twice(b8); write(b8); write(_);"));
    refused(&functions("one();"), &[(1, "no argument for parameter `a` of `one`")]);
    refused(&functions("one(1, 2);"), &[(1, "`one` takes 1 argument, found 2")]);
    refused(&functions("one(b16);"), &[(1, "found a value of type `bit<16>`, expected `bit<8>`")]);
    refused(&functions("one(b = 1);"), &[(1, "`one` has no parameter `b`")]);
    refused(&functions("two(1, b = 2);"), &[(1, "some arguments are given by name and some are not")]);
    refused(&functions("two(a = 1, a = 2);"), &[(1, "argument `a` is given twice")]);
}

#[test]
fn what_is_left_out_is_optional_or_has_a_default() {
    let program = accepted(&functions("two(1); three(1); three(c = 1, a = 2);"));
    let args = |at: usize| match &program.controls[0].body[at].kind {
        StmtKind::Call(call) => call.args.clone(),
        other => panic!("{other:?}"),
    };
    assert!(matches!(args(0)[1].kind, ExprKind::Absent));
    assert!(matches!(&args(1)[1].kind, ExprKind::Const(v) if *v == crate::hir::Value::Integer(3.into())));
    assert!(matches!(&args(2)[0].kind, ExprKind::Const(v) if *v == crate::hir::Value::Integer(2.into())));
    refused("extern void f(out bit<8> a = 1);", &[(1, "parameter `a` cannot have a default")]);
    refused("extern void f(@optional in bit<8> a = 1);", &[(1, "it is optional")]);
}

#[test]
fn overloads_differ_in_number_and_names() {
    accepted(&functions("over(a = 1); over(1, 2); over(c = true); over(b = 1, a = 2);"));
    refused(&functions("over();"), &[(1, "no `over` takes these arguments")]);
    refused(
        "extern void f(in bit<8> a);\nextern void f(in bool a);",
        &[(2, "`f` is declared twice with the same names")],
    );
    refused(
        "extern void f(in bit<8> a); extern void f(in bool b); void g() {\nf(1); }",
        &[(2, "several `f` take these arguments")],
    );
}

#[test]
fn what_is_written_is_a_place() {
    refused(&functions("write(1);"), &[(1, "parameter `o` of `write` needs a place to write to")]);
    refused(&functions("write(b8 + 1);"), &[(1, "needs a place to write to")]);
    refused(&functions("write(b16);"), &[(1, "found a place of type `bit<16>`, expected `bit<8>`")]);
    refused("void f(in bit<8> a) {\na = 1; }", &[(2, "this cannot be written: it is an `in` parameter")]);
    refused(
        "const bit<8> x = 1; control c() { apply {\nx = 2; } }",
        &[(2, "this is a value, expected a place")],
    );
    refused(&functions("one(_);"), &[(1, "only `out` parameters take it")]);
}

#[test]
fn functions_return_their_results() {
    accepted("bit<8> f(in bool b) { if (b) { return 1; } else { return 2; } }");
    refused(
        "bit<8>\nf(in bool b) { if (b) { return 1; } }",
        &[(2, "`f` does not return a value on all paths")],
    );
    refused("bit<8> f() {\nreturn; }", &[(2, "`return` without a value"), (1, "does not return")]);
    refused("void f() {\nreturn 1; }", &[(2, "`return` with a value where there is no result")]);
    refused("bit<8> f() {\nreturn true; }", &[(2, "found a value of type `bool`, expected `bit<8>`")]);
}

#[test]
fn actions_are_called_in_controls_and_actions() {
    let program = accepted(
        "control c(inout bit<8> x) { action a(in bit<8> y, bit<8> z) { x = y + z; } action b() { a(1, 2); } \
         apply { a(x, 1); b(); } }",
    );
    assert!(
        matches!(&program.controls[0].body[1].kind, StmtKind::Call(c) if matches!(c.callee, Callee::Action(_)))
    );
    refused("action a() {}\nvoid f() {\na(); }", &[(3, "a function cannot call an action")]);
    refused(
        "action a() {}\nparser p() { state start {\na(); transition accept; } }",
        &[(3, "an action cannot be called in a parser")],
    );
}

#[test]
fn verify_is_for_parsers() {
    refused(&body("verify(flag, error.NoMatch);"), &[(1, "`verify` can only be called in parsers")]);
}

#[test]
fn methods_of_headers_and_stacks() {
    accepted(&body("h.setValid(); if (h.isValid()) { h.setInvalid(); }"));
    accepted("header H {} control c(inout H[4] s) { apply { s.push_front(1); s.pop_front(2); } }");
    refused(
        "header H {} control c(in H h) { apply {\nh.setValid(); } }",
        &[(2, "this cannot be written: it is an `in` parameter")],
    );
    refused(&body("b8.setValid();"), &[(1, "a value of type `bit<8>` has no method `setValid`")]);
    refused(
        "header H {} control c(inout H[4] s, in bit<8> n) { apply {\ns.push_front(n); } }",
        &[(2, "this number is not known")],
    );
    refused(
        "header H {} control c(inout H[4] s) { apply {\ns.push_front(-1); } }",
        &[(2, "negative count -1")],
    );
}

#[test]
fn only_what_can_be_called_is() {
    refused(&body("b8();"), &[(1, "`b8` cannot be called")]);
    refused(&body("nothing();"), &[(1, "function `nothing` is not declared")]);
}
