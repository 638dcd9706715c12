//! Statements: branches, loops, assignments.

use super::{accepted, body, refused};
use crate::hir::StmtKind;

#[test]
fn conditions_are_boolean() {
    accepted(&body("if (flag) b8 = 1; else if (b8 == 2) { b8 = 3; }"));
    refused(&body("if (b8) b8 = 1;"), &[(1, "the condition has the type `bit<8>`, expected `bool`")]);
}

#[test]
fn assignments_with_an_operator() {
    accepted(&body("b8 += 1; b16 <<= b8; i8 -= 1; b8 |+|= 2; b8[3:0] |= 1;"));
    refused(&body("b8 += b16;"), &[(1, "`+` is not defined for `bit<8>` and `bit<16>`")]);
    refused(&body("flag += 1;"), &[(1, "`+` is not defined for `bool` and `int`")]);
}

#[test]
fn switch_on_values() {
    let program = accepted(&body("switch (b8) { 1: 2: { b16 = 1; } 3: { b16 = 2; } default: { b16 = 3; } }"));
    let StmtKind::Switch(_, cases, default) = &program.controls[0].body[0].kind else { panic!() };
    assert_eq!((cases.len(), cases[0].0.len(), default.len()), (2, 2, 1));
    refused(&body("switch (b8) { 1: { }\n1: { } }"), &[(2, "this label is there twice")]);
    refused(
        &body("switch (b8) { default: { }\n1: { } }"),
        &[(2, "a label behind `default` (move `default` to the end)")],
    );
    refused(&body("switch (b8) {\nb8: { } }"), &[(2, "a label must be known at compile time")]);
    refused(&body("switch (b8) {\ntrue: { } }"), &[(2, "found a value of type `bool`, expected `bit<8>`")]);
    refused(&body("switch (h) { }"), &[(1, "`switch` on a value of type `H`")]);
}

#[test]
fn switch_on_what_ran() {
    let table = |cases: &str| {
        format!(
            "control c(inout bit<8> x) {{ action a() {{}} action b() {{}} action d() {{}} table t {{ actions \
             = {{ a; b; }} default_action = a; }} apply {{ switch (t.apply().action_run) {{ {cases} }} }} }}"
        )
    };
    let program = accepted(&table("a: { x = 1; } default: { x = 2; }"));
    assert!(
        matches!(&program.controls[0].body[0].kind, StmtKind::SwitchAction(_, cases, _) if cases.len() == 1)
    );
    refused(&table("\nd: { }"), &[(2, "`d` is not an action of the table")]);
    refused(&table("\n1: { }"), &[(2, "a label must be the name of an action")]);
    refused(&table("a: { }\na: { }"), &[(2, "this label is there twice")]);
}

#[test]
fn loops() {
    accepted(&body("for (bit<8> i = 0; i < 10; i += 1) { if (i == 5) break; continue; }"));
    accepted(&body("for (bit<8> i in 0 .. b8) { b16 = b16 + 1; }"));
    accepted(
        "header H { bit<8> a; } control c(inout H[3] s, inout bit<8> x) { apply { for (H h in s) { x = x + h.a; } } }",
    );
    refused(&body("break;"), &[(1, "`break` outside of a loop")]);
    refused(&body("continue;"), &[(1, "`continue` outside of a loop")]);
    refused(&body("for (bool i in false .. true) {}"), &[(1, "`i` runs over a range")]);
    refused(&body("for (bit<8> i in b8) {}"), &[(1, "a loop over a value of type `bit<8>`")]);
    refused(&body("for (bit<8> i = 0; i; i += 1) {}"), &[(1, "the condition has the type `bit<8>`")]);
}

#[test]
fn one_mistake_is_reported_once() {
    refused(
        &body("bit<8> x = nothing + 1; b8 = x + nothing2;\nb8 = (x + y.z)[3:0] ++ b8;"),
        &[
            (1, "name `nothing` is not declared"),
            (1, "name `nothing2` is not declared"),
            (2, "name `y` is not declared"),
        ],
    );
}
