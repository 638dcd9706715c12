//! Programs that would need much memory, time or stack.

use std::fmt::Write;
use std::time::{Duration, Instant};

use super::{accepted, body, check, refused};

#[test]
fn types_are_bounded() {
    let mut text = String::from("struct S0 { bit<8> a; bit<8> b; }\n");
    for i in 1..40 {
        writeln!(text, "struct S{i} {{ S{0} a; S{0} b; }}", i - 1).expect("a string");
    }
    refused(&text, &[(17, "at most 64 levels and 65536 fields are supported"), (34, "131072 fields")]);
    let mut text = String::from("struct P<A, B> {}\ntypedef P<bit<1>, bit<1>> T0;\n");
    for i in 1..40 {
        writeln!(text, "typedef P<T{0}, T{0}> T{i};", i - 1).expect("a string");
    }
    let (program, found) = check(&text);
    assert!(program.is_none());
    assert!(found[0].2.contains("are supported"), "{:?}", found[0]);
    let mut text = String::from("struct S0 { bit<8> a; }\n");
    for i in 1..10_000 {
        writeln!(text, "struct S{i} {{ S{0} a; }}", i - 1).expect("a string");
    }
    assert!(check(&text).0.is_none());
}

#[test]
fn constants_are_bounded() {
    refused("const int x = 1 << 1000000000;", &[(1, "a shift by 1000000000")]);
    let mut text = String::from("const int x0 = 1 << 10000;\n");
    for i in 1..40 {
        writeln!(text, "const int x{i} = x{0} * x{0};", i - 1).expect("a string");
    }
    refused(&text, &[(2, "a constant of 20001 bits; at most 16384 are supported")]);
    let mut text = String::from("extern void log(string s); const string s0 = \"0123456789\";\n");
    for i in 1..40 {
        writeln!(text, "const string s{i} = s{0} ++ s{0};", i - 1).expect("a string");
    }
    refused(&text, &[(14, "bytes; at most 65536 are supported")]);
}

#[test]
fn instantiations_are_bounded() {
    let mut text = String::from("struct A<T> { T t; } struct B<T> { T t; } void f0<T>(in T t) {}\n");
    for i in 1..30 {
        writeln!(
            text,
            "void f{i}<T>(in T t) {{ A<T> a = {{ t }}; B<T> b = {{ t }}; f{0}(a); f{0}(b); }}",
            i - 1
        )
        .expect("a string");
    }
    text.push_str("control c() { apply { f29(8w1); } }");
    let (program, found) = check(&text);
    assert!(program.is_none());
    assert!(found.iter().any(|(_, _, text)| text.contains("instantiations of functions")), "{found:?}");
}

#[test]
fn values_that_depend_on_a_constructor_are_bounded() {
    let mut text = String::from("control c(inout bit<8> x)(int n) { const int n0 = n;\n");
    for i in 1..60 {
        writeln!(text, "const int n{i} = n{0} + n{0};", i - 1).expect("a string");
    }
    text.push_str("apply { x = n59; } }");
    let (program, found) = check(&text);
    assert!(program.is_none());
    assert!(found[0].2.contains("too large"), "{found:?}");
}

#[test]
fn nesting_to_the_parsers_limit_does_not_overflow_the_stack() {
    let deep =
        |open: &str, inner: &str, close: &str| format!("{}{inner}{}", open.repeat(60), close.repeat(60));
    accepted(&body(&format!("b8 = {};", deep("(b8 + ", "1", ")"))));
    accepted(&body(&format!("b8 = {};", deep("flag ? b8 : (", "b8", ")"))));
    accepted(&body(&deep("{", "b8 = 1;", "}")));
    accepted(&body(&deep("if (flag) {", "b8 = 1;", "}")));
}

#[test]
fn a_long_program_is_checked_in_little_time() {
    let mut text =
        String::from("header H { bit<8> a; bit<16> b; } struct S { H h; }\ncontrol c(inout S s) {\n");
    for i in 0..1000 {
        writeln!(
            text,
            "action a{i}(bit<8> x) {{ s.h.a = x + {0}; if (s.h.b == {i}) {{ s.h.b = s.h.b + 1; }} }}",
            i % 256
        )
        .expect("a string");
        writeln!(
            text,
            "table t{i} {{ key = {{ s.h.a: exact; s.h.b: ternary; }} actions = {{ a{i}; NoAction; \
         }} size = 16; }}"
        )
        .expect("a string");
    }
    text.push_str("apply {\n");
    for i in 0..1000 {
        writeln!(text, "t{i}.apply();").expect("a string");
    }
    text.push_str("} }");
    let start = Instant::now();
    accepted(&text);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
