//! Types and their declarations.

use super::{accepted, body, refused};
use crate::hir::Type;

#[test]
fn widths_are_constants_within_bounds() {
    let program =
        accepted("const int W = 8; typedef bit<(W * 2)> T; struct S { T t; bit<0> z; varbit<(W)> v; }");
    let Some(Type::Struct(s)) = program.types.last() else { panic!() };
    assert_eq!(s.fields[0].ty, Type::Bit(16));
    refused("typedef bit<4096> T;", &[(1, "a width of 4096")]);
    refused("typedef int<0> T;", &[(1, "a width of 0")]);
    refused("typedef bit<(-1)> T;", &[(1, "a width of -1")]);
    refused("typedef bit<(true)> T;", &[(1, "a value of type `bool`")]);
    refused(&body("bit<(b8)> x;"), &[(1, "this number is not known at compile time")]);
}

#[test]
fn headers_have_fields_of_fixed_form() {
    accepted(
        "enum bit<8> E { A = 1 } struct P { bit<4> a; bool b; } header H { bit<8> a; int<4> b; E e; P p; \
         varbit<8> v; bit<8>[2] s; }",
    );
    refused("enum E { A }\nheader H {\nE e; }", &[(3, "field `e` of header `H` cannot have the type `E`")]);
    refused("header G {}\nheader H {\nG g; }", &[(3, "cannot have the type `G`")]);
    refused("header H {\nint x; }", &[(2, "cannot have the type `int`")]);
}

#[test]
fn structs_have_fields_that_are_values() {
    accepted("header H {} struct S { H h; H[3] s; error e; tuple<bit<8>, bool> t; }");
    refused("extern E { E(); }\nstruct S {\nE e; }", &[(3, "cannot have the type `E`")]);
    refused("struct S {\nvoid v; }", &[(2, "cannot have the type `void`")]);
}

#[test]
fn unions_have_headers_only() {
    accepted("header A {} header B {} header_union U { A a; B b; }");
    refused(
        "header_union U {\nbit<8> a; }",
        &[(2, "field `a` of header union `U` cannot have the type `bit<8>`")],
    );
}

#[test]
fn stacks_have_elements_of_fixed_form_and_a_constant_size() {
    accepted("header H {} const int N = 2; struct S { H[N + 1] s; bit<8>[4] t; }");
    refused("header H {}\nstruct S {\nH[-1] s; }", &[(3, "a stack of size -1")]);
    refused("struct S {\nint[2] s; }", &[(2, "`int` cannot be the type of a stack's elements")]);
}

#[test]
fn enums_have_values_if_they_have_a_representation() {
    let program =
        accepted("enum bit<8> E { A = 1, B = 0x10, C = B + 1 } const bit<8> x = E.C; enum F { X, Y }");
    let Some(Type::Enum(e)) = program.types.first() else { panic!() };
    assert_eq!(e.members[2].1, 0x11.into());
    refused("enum bit<8> E {\nA = 256 }", &[(2, "value 256 of `A` does not fit into `bit<8>`")]);
    refused("enum bit<8> E {\nA }", &[(2, "`A` has no value")]);
    refused("enum E {\nA = 1 }", &[(2, "a value in an enum without a representation (give the enum a type")]);
    refused("enum int E { A = 1 }", &[(1, "an enum cannot be represented by `int`")]);
    refused("enum bool E { A = true }", &[(1, "an enum cannot be represented by `bool`")]);
}

#[test]
fn new_types_are_made_of_numbers_and_booleans() {
    accepted("type bit<9> Port; typedef Port P; type P Q; type bool Flag;");
    refused("struct S {}\ntype S T;", &[(2, "`type` cannot be applied to `S`")]);
}

#[test]
fn variables_are_no_objects_and_have_a_width() {
    refused(&body("int x;"), &[(1, "variable `x` cannot have the type `int` (a variable needs a width")]);
    refused(&body("string x;"), &[(1, "variable `x` cannot have the type `string`")]);
    refused(
        "extern E { E(); }\ncontrol c() { apply {\nE e; } }",
        &[(3, "cannot have the type `E` (declare an object: `E(…) e;`)")],
    );
}

#[test]
fn constants_have_values() {
    refused("extern E { E(); }\nconst E e = E();", &[(2, "a constant cannot have the type `E`")]);
    refused(
        "extern bit<8> f(); const bit<8> x =\nf();",
        &[(2, "the value of a constant must be known at compile time")],
    );
}

#[test]
fn error_needs_members() {
    let text = "extern void f(in error e);";
    let parsed = crate::parse::text("t.p4", text, &crate::preprocess::Options::default());
    let mut diagnostics = parsed.diagnostics;
    assert!(crate::check::check(&parsed.program, &mut diagnostics).is_none());
    assert_eq!(diagnostics.list()[0].message, "type `error` has no members");
}
