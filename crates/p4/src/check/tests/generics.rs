//! Type parameters: written and inferred arguments, instantiations.

use super::{accepted, refused};
use crate::hir::{StmtKind, Type};

#[test]
fn generic_functions_are_instantiated_once_for_each_list_of_types() {
    let program = accepted(
        "T same<T>(in T t) { return t; } T also<T>(in T t) { T u = same(t); return u; }\n\
         control c(inout bit<8> x, inout bit<16> y) { apply { x = also(x); x = also<bit<8>>(1); y = also(y); } }",
    );
    let mut names: Vec<&str> = program.functions.iter().map(|f| f.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["also<bit<16>>", "also<bit<8>>", "same<bit<16>>", "same<bit<8>>"]);
    for f in &program.functions {
        assert_eq!(f.result, program.vars[f.params[0].index()].ty, "{}", f.name);
    }
}

#[test]
fn a_generic_function_sees_what_stands_before_it() {
    refused(
        "T f<T>(in T t) {\nreturn later(t); }\nT later<T>(in T t) { return t; }",
        &[(2, "function `later` is not declared")],
    );
}

#[test]
fn errors_in_generic_functions_are_found_without_a_call() {
    refused("T f<T>(in T t) {\nreturn t + 1; }", &[(2, "`+` is not defined for `T` and `int`")]);
    refused("bool f<T>(in T t) {\nreturn t == t; }", &[(2, "values of type `T` cannot be compared")]);
    refused("T f<T>(in T t) {\nreturn true; }", &[(2, "found a value of type `bool`, expected `T`")]);
}

#[test]
fn arguments_tell_type_arguments() {
    let program = accepted(
        "extern void hash<O, T, D, M>(out O o, in T base, in D data, in M max);\n\
         control c(inout bit<8> x) { apply { hash(x, 16w0, { x, 8w1 }, 32w5); } }",
    );
    let StmtKind::Call(call) = &program.controls[0].body[0].kind else { panic!() };
    let tuple = Type::Tuple([Type::Bit(8), Type::Bit(8)].into());
    assert_eq!(call.type_args, [Type::Bit(8), Type::Bit(16), tuple, Type::Bit(32)]);
}

#[test]
fn a_number_without_a_width_takes_the_type_of_another_argument() {
    let program = accepted(
        "extern void rand<T>(out T r, in T lo, in T hi); control c(inout bit<8> x) { apply { rand(x, 0, 10); } }",
    );
    let StmtKind::Call(call) = &program.controls[0].body[0].kind else { panic!() };
    assert!(call.args.iter().all(|a| a.ty == Type::Bit(8)));
    refused(
        "extern void f<T>(in T t); control c() { apply {\nf(5); } }",
        &[(2, "the width of a number in this argument is not known (write the width")],
    );
}

#[test]
fn type_arguments_that_nothing_tells_are_written() {
    accepted("extern T make<T>(); control c(inout bit<8> x) { apply { x = make<bit<8>>(); } }");
    refused(
        "extern T make<T>(); control c(inout bit<8> x) { apply {\nx = make(); } }",
        &[(2, "type argument `T` of `make` is not known (write the type arguments: `make<…>(…)`)")],
    );
    refused(
        "extern T make<T>(); control c(inout bit<8> x) { apply {\nx = make<bit<8>, bool>(); } }",
        &[(2, "`make` takes 1 type argument, found 2")],
    );
}

#[test]
fn generic_structs_have_types_of_their_own() {
    let program = accepted(
        "header H<T> { T t; } struct S<T> { H<T> h; T t; } struct Two { S<bit<8>> a; S<bit<16>> b; }\ncontrol \
         c(inout Two t) { apply { t.a.h = { 1 }; t.b = { h = { t = 2 }, t = 3 }; } }",
    );
    let names: Vec<String> = program
        .types
        .iter()
        .map(|t| match t {
            Type::Struct(c) | Type::Header(c) => c.name.clone(),
            _ => String::new(),
        })
        .collect();
    assert!(names.contains(&"S<bit<8>>".to_owned()) && names.contains(&"H<bit<16>>".to_owned()), "{names:?}");
    refused("struct S<T> { T t; }\nstruct U { S s; }", &[(2, "`S` needs 1 type argument")]);
    refused(
        "struct S<T> { T t; }\nstruct U { S<bit<8>, bool> s; }",
        &[(2, "`S` takes 1 type argument, found 2")],
    );
    refused(
        "header H<T> { T t; } struct S {}\nstruct U { H<S> a; H<error> b; }",
        &[(2, "field `t` of header `H` cannot have the type `error`")],
    );
    refused(
        "struct S<T> { T t; }\ncontrol c(inout S<bit<8>> a, in S<bit<16>> b) { apply {\na = b; } }",
        &[(3, "found a value of type `S<bit<16>>`, expected `S<bit<8>>`")],
    );
}

#[test]
fn packages_take_their_type_arguments_from_parsers_and_controls() {
    let arch = "parser P<H>(out H h); control C<H, M>(inout H h, inout M m); package Arch<H, M>(P<H> p, C<H, M> c);\n";
    let program = accepted(&format!(
        "{arch} struct S {{ bit<8> x; }} struct M {{}} parser p(out S s) {{ state start {{ transition accept; \
         }} }} control c(inout S s, inout M m) {{ apply {{}} }} Arch(p(), c()) main;"
    ));
    let main = &program.instances[program.main.expect("main").index()];
    assert_eq!(main.args.len(), 2);
    refused(
        &format!(
            "{arch} struct S {{}} struct T {{}} parser p(out S s) {{ state start {{ transition accept; }} \
             }}\ncontrol c(inout T s, inout S m) {{ apply {{}} }}\nArch(p(), c()) main;"
        ),
        &[(4, "`c` cannot be used as `C<S, S>`: parameter `s` has the type `T`, expected `S`")],
    );
}
