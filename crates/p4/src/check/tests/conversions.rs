//! Implicit and explicit conversions, lists, structure expressions and defaults.

use super::{accepted, body, refused};

const TYPES: &str =
    "type bit<8> N; enum bit<8> E { A = 1 } enum bit<8> F { B = 1 } struct P { bit<8> a; bit<8> b; } ";

fn with_types(statement: &str) -> String {
    format!(
        "{TYPES} control c(inout bit<8> x, inout bit<16> y, inout int<8> i, inout N n, inout E e, inout P p, \
         inout bool q) {{ apply {{ {statement} }} }}"
    )
}

#[test]
fn numbers_without_a_width_take_it_from_their_place() {
    accepted(&with_types("x = 1; y = 1; i = -1; p = { 1, 2 };"));
    refused(
        &with_types("q = 1;"),
        &[(1, "found a value of type `int`, expected `bool` (convert it: `(bool)…`)")],
    );
}

#[test]
fn values_keep_their_types() {
    refused(
        &with_types("x = y;"),
        &[(1, "found a value of type `bit<16>`, expected `bit<8>` (convert it: `(bit<8>)…`)")],
    );
    refused(&with_types("x = i;"), &[(1, "found a value of type `int<8>`, expected `bit<8>`")]);
    refused(&with_types("x = q;"), &[(1, "found a value of type `bool`, expected `bit<8>`")]);
}

#[test]
fn members_of_an_enum_become_numbers_but_no_number_a_member() {
    accepted(&with_types("x = e; x = E.A + 1; e = (E)x; q = e == 1; q = E.A == F.B;"));
    refused(&with_types("e = x;"), &[(1, "found a value of type `bit<8>`, expected `E`")]);
    refused(&with_types("e = 1;"), &[(1, "found a value of type `int`, expected `E`")]);
    refused(&with_types("e = F.B;"), &[(1, "found a value of type `F`, expected `E`")]);
}

#[test]
fn new_types_are_converted_explicitly() {
    accepted(&with_types("n = (N)x; x = (bit<8>)n; n = (N)5;"));
    refused(
        &with_types("n = x;"),
        &[(1, "found a value of type `bit<8>`, expected `N` (convert it: `(N)…`)")],
    );
    refused(&with_types("n = (N)y;"), &[(1, "`bit<16>` cannot be converted to `N`")]);
    refused(
        &with_types("n = n + n;"),
        &[(1, "`+` is not defined for `N` and `N` (`N` is a type of its own")],
    );
}

#[test]
fn explicit_conversions_change_width_or_sign() {
    accepted(&with_types("x = (bit<8>)y; i = (int<8>)x; q = (bool)y[0:0]; y = (bit<16>)(bit<1>)q;"));
    refused(
        &with_types("i = (int<8>)y;"),
        &[(1, "`bit<16>` cannot be converted to `int<8>` (change the sign and then the width")],
    );
    refused(&with_types("q = (bool)x;"), &[(1, "`bit<8>` cannot be converted to `bool`")]);
    refused("const bool b = (bool)2;", &[(1, "2 cannot be converted to `bool`; only 0 and 1 can")]);
    refused(&with_types("x = (bit<8>)p;"), &[(1, "`P` cannot be converted to `bit<8>`")]);
}

#[test]
fn lists_have_a_value_for_each_field() {
    accepted(&with_types("p = { x, 1 }; tuple<bit<8>, bool> t = { 1, q }; p = q ? { 1, 2 } : { x, 4 };"));
    refused(&with_types("p = { 1 };"), &[(1, "found 1 value, expected 2 for `P`")]);
    refused(&with_types("p = { 1, q };"), &[(1, "found a value of type `bool`, expected `bit<8>`")]);
    refused(&with_types("x = { 1 };"), &[(1, "expected `bit<8>`")]);
}

#[test]
fn structure_expressions_name_all_fields() {
    accepted(&with_types("p = { b = 1, a = x }; p = (P){ a = 1, b = 2 };"));
    refused(&with_types("p = { a = 1 };"), &[(1, "no value for field `b` of `P` (end the list with `...`")]);
    refused(&with_types("p = { a = 1, c = 2 };"), &[(1, "`P` has no field `c`")]);
    refused(&with_types("p = { a = 1, a = 2, b = 3 };"), &[(1, "field `a` has two values")]);
}

#[test]
fn dots_are_the_defaults() {
    accepted(&with_types("p = ...; p = { 1, ... }; p = { b = 1, ... }; x = ...; q = ...;"));
    refused(
        "extern E { E(list<bit<8>> l); }\ncontrol c() {\nE(...) e; apply {} }",
        &[(3, "`list<bit<8>>` has no default value")],
    );
}

#[test]
fn invalid_headers() {
    accepted(&body("h = (H){#}; s = { 1, {#} };"));
    refused(&body("b8 = {#};"), &[(1, "`{#}` is a header or a header union, expected `bit<8>`")]);
}

#[test]
fn an_expression_without_a_type_needs_one() {
    refused(
        "extern void f<T>(in T t); control c() { apply {\nf({ a = 1 }); } }",
        &[(2, "type argument `T` of `f` is not known")],
    );
    refused(&body("flag = ({ a = 1 }).isValid();"), &[(1, "has no method `isValid`")]);
}
