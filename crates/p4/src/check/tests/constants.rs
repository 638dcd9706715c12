//! Values at compile time.

use super::{accepted, body, refused, warned};
use crate::hir::{ExprKind, Program, StmtKind, Value};

/// The value that the first statement assigns in the only control.
fn assigned(statement: &str) -> Value {
    let program: Program = accepted(&body(statement));
    let body = &program.controls[0].body;
    match &body.last().expect("a statement").kind {
        StmtKind::Assign(_, value) => match &value.kind {
            ExprKind::Const(value) => value.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn number(statement: &str) -> i64 {
    match assigned(statement) {
        Value::Integer(n) => i64::try_from(n).expect("a small number"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn constants_are_folded() {
    assert_eq!(number("b8 = (3 + 4) * 2 - 1;"), 13);
    assert_eq!(number("const bit<8> x = 250; b8 = x + 10;"), 4);
    assert_eq!(number("b8 = 8w250 |+| 10;"), 255);
    assert_eq!(number("b16 = 8w1 ++ 8w2;"), 258);
    assert_eq!(number("b8 = 16w0x1234[15:8];"), 0x12);
    assert_eq!(number("b8 = true ? 8w1 : 8w2;"), 1);
    assert_eq!(number("b8 = 1 << 3;"), 8);
    assert_eq!(number("i8 = -8s1 >> 1;"), -1);
    assert_eq!(number("b8 = (bit<8>)(bit<1>)true;"), 1);
    assert_eq!(assigned("flag = 1 < 2 && !(3 == 4);"), Value::Bool(true));
    assert_eq!(assigned("flag = 8w255 > 8w1;"), Value::Bool(true));
    assert_eq!(assigned("flag = 8s0xff < 1;"), Value::Bool(true));
}

#[test]
fn parts_of_constants_are_constants() {
    assert_eq!(number("const tuple<bit<8>, bit<8>> t = { 1, 2 }; b8 = t[1];"), 2);
    assert_eq!(number("b8 = ((H){ 7, 8 }).a;"), 7);
}

#[test]
fn sizes_of_types_and_values() {
    assert_eq!(number("b8 = (bit<8>)h.minSizeInBits();"), 24);
    assert_eq!(number("b8 = H.minSizeInBytes();"), 3);
    assert_eq!(number("b8 = (bit<8>)s.maxSizeInBytes();"), 4);
    refused(&body("b8 = h.minSizeInBits(1);"), &[(1, "`minSizeInBits` takes no arguments")]);
    refused(
        "enum E { A }\nconst int x = E.minSizeInBits();",
        &[(2, "a value of type `E` has no size in bits")],
    );
}

#[test]
fn numbers_that_do_not_fit_are_warned_of() {
    warned("const bit<8> x = 256;", &[(1, "256 does not fit into `bit<8>`: the value is 0")]);
    warned("const bit<4> x = 4w16;", &[(1, "16 does not fit into `bit<4>`")]);
    accepted("const bit<8> x = -1;");
}

#[test]
fn static_assertions() {
    accepted("const bool ok = static_assert(1 + 1 == 2, \"arithmetic\");");
    refused("const bool ok =\nstatic_assert(1 > 2, \"order\");", &[(2, "static assertion failed: order")]);
    refused(&body("static_assert(flag);"), &[(1, "the condition of a static assertion must be known")]);
}

#[test]
fn strings_are_joined() {
    accepted("extern void log(string s); control c() { apply { log(\"a\" ++ \"b\"); } }");
}

#[test]
fn parameters_of_constructors_stay_open() {
    let program = accepted("control c(inout bit<8> x)(int n) { apply { x = (n + 1) * 2; } }");
    let StmtKind::Assign(_, value) = &program.controls[0].body[0].kind else { panic!() };
    assert!(matches!(value.kind, ExprKind::Cast(_)));
}

#[test]
fn a_runtime_int_is_computed_in_the_width_it_is_converted_to() {
    accepted(&body("b8 = (bit<8>)((int)b16 + 1);"));
    refused(
        &body("flag = (int)b16 < 5;"),
        &[(1, "numbers of type `int` that are not known at compile time")],
    );
    refused(&body("b8 = (bit<8>)((int)b16 >> 1);"), &[(1, "a number of type `int` that is not known")]);
}
