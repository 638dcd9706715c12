//! Objects: constructors, abstract methods, packages.

use super::{accepted, refused};
use crate::hir::{ExprKind, Type, Value};

const EXTERNS: &str = "extern Reg<T> { Reg(bit<32> n); Reg(bit<32> n, T first); T read(in bit<32> i); void \
 write(in bit<32> i, in T v); }\n";

#[test]
fn constructors_are_picked_by_their_arguments() {
    let program =
        accepted(&format!("{EXTERNS} Reg<bit<8>>(4) a; Reg(4, 8w1) b; typedef Reg<bool> R; R(1) c;"));
    let found: Vec<(u32, usize)> = program.instances.iter().map(|i| (i.constructor, i.args.len())).collect();
    assert_eq!(found, [(0, 1), (1, 2), (0, 1)]);
    assert!(matches!(&program.instances[1].ty, Type::Extern(_, args) if args[0] == Type::Bit(8)));
    assert!(
        matches!(&program.instances[0].args[0].kind, ExprKind::Const(Value::Integer(n)) if *n == 4.into())
    );
    refused(&format!("{EXTERNS} Reg<bit<8>>() a;"), &[(2, "no `Reg` takes these arguments")]);
    refused(&format!("{EXTERNS} Reg(4) a;"), &[(2, "type argument `T` of `Reg` is not known")]);
    refused(
        &format!("{EXTERNS} Reg<bit<8>>(true) a;"),
        &[(2, "found a value of type `bool`, expected `bit<32>`")],
    );
    refused("extern E {}\nE() e;", &[(2, "extern `E` has no constructor")]);
    refused("struct S {}\nS() s;", &[(2, "`S` has no objects")]);
    refused("control C();\nC() c;", &[(2, "`C` has no body")]);
}

#[test]
fn arguments_of_constructors_are_constant() {
    accepted(&format!("{EXTERNS} control c()(bit<32> n) {{ Reg<bit<8>>(n + 1) r; apply {{}} }}"));
    refused(
        &format!("{EXTERNS} control c(in bit<32> n) {{\nReg<bit<8>>(n) r; apply {{}} }}"),
        &[(3, "the argument of `n` must be known")],
    );
}

#[test]
fn methods_have_the_types_of_the_object() {
    accepted(&format!(
        "{EXTERNS} control c(inout bit<8> x) {{ Reg<bit<8>>(4) r; apply {{ x = r.read(1); r.write(2, x); }} }}"
    ));
    refused(
        &format!("{EXTERNS} control c(inout bit<8> x) {{ Reg<bit<16>>(4) r; apply {{\nx = r.read(1); }} }}"),
        &[(3, "found a value of type `bit<16>`, expected `bit<8>`")],
    );
    refused(
        &format!("{EXTERNS} control c() {{ Reg<bit<16>>(4) r; apply {{\nr.reed(1); }} }}"),
        &[(3, "`Reg<bit<16>>` has no method `reed` (did you mean `read`?)")],
    );
}

#[test]
fn abstract_methods_are_implemented() {
    let v = "extern V { V(); void run(); abstract bit<8> f(in bit<8> x); }\n";
    let program = accepted(&format!(
        "{v} control c(inout bit<8> y) {{ V() v = {{ bit<8> f(in bit<8> x) {{ return x + y; }} }}; apply {{ \
         v.run(); }} }}"
    ));
    assert_eq!(program.instances[0].methods[0].0, "f");
    refused(
        &format!("{v} control c() {{\nV() v; apply {{}} }}"),
        &[(3, "`v` does not implement the abstract method `f`")],
    );
    refused(
        &format!("{v} control c() {{ V() v = {{\nbit<8> f(in bit<16> x) {{ return 1; }} }}; apply {{}} }}"),
        &[(
            3,
            "`f` is not like the abstract method: parameter `x` has the type `bit<16>`, expected `bit<8>`",
        )],
    );
    refused(
        &format!(
            "{v} control c() {{ V() v = {{ bit<8> f(in bit<8> x) {{ return 1; }}\nvoid g() {{}} }}; apply {{}} }}"
        ),
        &[(3, "`g` is no abstract method")],
    );
    refused(
        "extern E { E(); } control c() {\nE() e = { void f() {} }; apply {} }",
        &[(2, "`E` has no abstract methods to implement")],
    );
}

#[test]
fn objects_are_declared_in_front_of_bodies() {
    refused(
        "extern E { E(); } control c() { apply {\nE() e; } }",
        &[(2, "an object cannot be declared in a body")],
    );
    refused(
        "control i() { apply {} }\ni() x;",
        &[(2, "a parser or control cannot be an object of the program")],
    );
    refused(
        "parser p() { state start { transition accept; } } control c() {\np() x; apply {} }",
        &[(2, "a parser cannot be an object of a control")],
    );
}

#[test]
fn packages_take_objects_of_their_types() {
    let arch = "control C(inout bit<8> x); package Arch(C c, @optional C d);\n";
    let good = "control c(inout bit<8> x) { apply {} }";
    let program = accepted(&format!("{arch} {good} Arch(c()) main;"));
    let main = &program.instances[program.main.expect("main").index()];
    assert!(matches!(main.args[0].kind, ExprKind::New(_)) && matches!(main.args[1].kind, ExprKind::Absent));
    refused(
        &format!("{arch} control c(in bit<8> x) {{ apply {{}} }}\nArch(c()) main;"),
        &[(3, "parameter `x` has the direction `in`, expected the direction `inout`")],
    );
    refused(
        &format!(
            "{arch} parser c(inout bit<8> x) {{ state start {{ transition accept; }} }}\nArch(c()) main;"
        ),
        &[(3, "it is a parser, expected a control")],
    );
    refused(
        &format!("{arch} control c() {{ apply {{}} }}\nArch(c()) main;"),
        &[(3, "it has 0 parameters, expected 1")],
    );
    refused(&format!("{arch} extern E {{ E(); }}\nE() main;"), &[(3, "`main` is not a package")]);
}
