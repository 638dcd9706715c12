//! Scopes, names and declarations.

use super::{accepted, body, refused};

#[test]
fn a_name_is_used_behind_its_declaration() {
    accepted("const bit<8> a = 1;\nconst bit<8> b = a;");
    refused("const bit<8> b = a;\nconst bit<8> a = 1;", &[(1, "name `a` is not declared")]);
    refused("struct S { T t; }\nstruct T { bit<8> x; }", &[(1, "type `T` is not declared")]);
}

#[test]
fn a_wrong_name_brings_the_right_one_to_mind() {
    refused(&body("b8 = flg ? 8w1 : 0;"), &[(1, "name `flg` is not declared (did you mean `flag`?)")]);
    refused(&body("b8 = s.y;"), &[(1, "`S` has no field `y`")]);
    refused("struct Stats { bit<8> x; }\nstruct T { Stat s; }", &[(2, "(did you mean `Stats`?)")]);
    refused(
        "enum E { First }\nconst E e = E.Frist;",
        &[(2, "`E` has no member `Frist` (did you mean `First`?)")],
    );
}

#[test]
fn an_inner_scope_hides_an_outer_one() {
    accepted(&body("bit<8> x = 1; { bit<16> x = 2; b16 = x; } b8 = x;"));
    accepted("const bit<8> x = 1; control c(inout bit<16> x) { apply { x = x + 1; bit<8> y = .x; } }");
    refused(&body("bit<8> x = 1;\nbit<8> x = 2;"), &[(2, "`x` is declared twice")]);
}

#[test]
fn a_leading_dot_means_the_top_level() {
    refused("control c(inout bit<16> x) { apply { x = .x; } }", &[(1, "name `x` is not declared")]);
}

#[test]
fn names_are_declared_once() {
    refused("struct S {}\nheader S {}", &[(2, "`S` is declared twice")]);
    refused("struct S { bit<8> a;\nbit<8> a; }", &[(2, "`a` is declared twice")]);
    refused("enum E { A,\nA }", &[(2, "`A` is declared twice")]);
    refused("error { Odd,\nOdd }", &[(2, "`Odd` is declared twice")]);
    refused("void f(in bit<8> a,\nin bit<8> a) {}", &[(2, "`a` is declared twice")]);
    refused("control c(in bit<8> a)\n(bit<8> a) { apply {} }", &[(2, "`a` is declared twice")]);
}

#[test]
fn locals_of_a_control_may_hide_its_parameters() {
    accepted("control c(inout bit<8> x) { bit<16> x = 1; apply { x = 2; } }");
}

#[test]
fn what_is_declared_does_not_use_itself() {
    refused("struct S {\nS s; }", &[(2, "struct `S` contains itself")]);
    refused("void f() {\nf(); }", &[(2, "function `f` calls itself")]);
    refused("control c() { action a() {\na(); } apply {} }", &[(2, "action `a` calls itself")]);
    refused("control c() {\nc() again; apply {} }", &[(2, "control `c` contains itself")]);
    refused("extern E {\nvoid f(E e); }", &[(2, "extern `E` contains itself")]);
}

#[test]
fn an_action_may_have_the_name_of_what_it_calls() {
    accepted("extern void mark(); control c() { action mark() { mark(); } apply { mark(); } }");
}

#[test]
fn a_name_of_another_kind_is_no_value() {
    refused(
        "control c(inout bit<8> x) { action a() {} apply {\nx = a; } }",
        &[(2, "`a` is an action, expected a value")],
    );
    refused("const bit<8> x = 1;\nconst x y = 2;", &[(2, "`x` is not a type")]);
}
