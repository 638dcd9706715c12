//! Extern functions that the program's user provides, interpreted and as machine code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use mswitch_p4::compile;
use mswitch_p4::preprocess::Options;
use mswitch_p4::stf::{self, Case};
use pipeline::Checked;
use pipeline::bits::Bits;
use pipeline::env::Functions;
use pipeline::ir::{Constant, Extern};

/// A program with these declarations, and statements in ingress.
fn program(declarations: &str, statements: &str) -> String {
    format!(
        "#include <v1model.p4>
        header h_t {{ bit<8> a; bit<8> b; bit<16> c; int<72> wide; }}
        struct headers {{ h_t h; }}
        struct metadata {{ }}
        {declarations}
        parser P(packet_in p, out headers hdr, inout metadata meta, inout standard_metadata_t std) {{
            state start {{ p.extract(hdr.h); transition accept; }}
        }}
        control V(inout headers hdr, inout metadata meta) {{ apply {{}} }}
        control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {{
            apply {{ {statements} }}
        }}
        control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {{ apply {{}} }}
        control D(packet_out p, in headers hdr) {{ apply {{ p.emit(hdr); }} }}
        V1Switch(P(), V(), C(), E(), V(), D()) main;"
    )
}

/// The program in the pipeline, or the first message.
fn lowered(text: &str) -> Result<Checked, String> {
    let mut front = compile::text("p.p4", text, &Options::default());
    let lowered = front.lower();
    lowered.ok_or_else(|| front.diagnostics.list()[0].message.clone())
}

#[derive(Debug)]
struct Sums;

impl Functions for Sums {
    fn check(&self, _: &Extern) -> Result<(), String> {
        Ok(())
    }

    /// Each result is the sum of all arguments, and the number of the result.
    fn call(&self, function: &Extern, args: &[Constant], results: &mut [Constant]) -> bool {
        let width = |bits: &Bits, width| bits.resize(width);
        for (i, result) in (0..).zip(results) {
            let ty = result.ty.width();
            let sum = args.iter().fold(Bits::from_u64(ty, i), |sum, arg| sum.add(&width(&arg.value, ty)));
            result.value = sum;
        }
        function.name != "absent"
    }
}

const DECLARED: &str = "
    extern bit<8> sum(in bit<8> a, in bit<16> b);
    extern void both(inout bit<8> a, out bit<16> b, in bool c);
    extern int<72> wide(int<72> a);
    extern bool is_odd(in bit<1> a);
    extern void absent(in bit<8> a);";

fn passes(statements: &str, case: &str) {
    let program = lowered(&program(DECLARED, statements)).unwrap();
    let options = stf::Options { functions: Some(Arc::new(Sums)), ..Default::default() };
    let report = stf::run(&program, &Case::parse(case).unwrap(), &options);
    assert!(report.passes(), "{}", report.text("case"));
}

#[test]
fn values_go_in_and_come_out() {
    passes(
        "hdr.h.a = sum(hdr.h.b, hdr.h.c);",
        "packet 0 00020103 000000000000000009\nexpect 0 05020103 000000000000000009$",
    );
    passes(
        "both(hdr.h.a, hdr.h.c, hdr.h.b == 2);",
        "packet 0 07020000 000000000000000000\nexpect 0 08020009 000000000000000000$",
    );
    passes(
        "hdr.h.wide = wide(hdr.h.wide);",
        "packet 0 00000000 ff0000000000000001\nexpect 0 00000000 ff0000000000000001$",
    );
    passes(
        "if (is_odd(hdr.h.a[0:0])) { hdr.h.b = 1; }",
        "packet 0 01000000 000000000000000000\nexpect 0 01010000 000000000000000000$",
    );
    passes("absent(1);", "packet 0 01000000 000000000000000000\nno_packet");
}

#[test]
fn arguments_are_evaluated_from_left_to_right() {
    // The second argument's call changes the first argument after it was read: 1 + (1 + 0 + 0).
    let change = "bit<16> change(inout bit<8> x) { x = x + 100; return (bit<16>)1; }";
    let program =
        lowered(&program(&format!("{DECLARED} {change}"), "hdr.h.b = sum(hdr.h.a, change(hdr.h.a));"));
    let options = stf::Options { functions: Some(Arc::new(Sums)), ..Default::default() };
    let case = "packet 0 01000000 000000000000000000\nexpect 0 65020000 000000000000000000$";
    let report = stf::run(&program.unwrap(), &Case::parse(case).unwrap(), &options);
    assert!(report.passes(), "{}", report.text("case"));
}

#[test]
fn declarations_that_no_module_can_have_are_refused() {
    let error =
        |declarations: &str, statements: &str| lowered(&program(declarations, statements)).unwrap_err();
    assert_eq!(
        error("extern void f(in h_t h);", "f(hdr.h);"),
        "an argument of `f` that is no number is not supported"
    );
    assert_eq!(error("extern h_t f();", "hdr.h = f();"), "`f`, whose result is no number, is not supported");
    assert_eq!(
        error("extern void f<T>(in T t);", "f(hdr.h.a); f(hdr.h.c);"),
        "`f` with parameters of other types than before is not supported"
    );
    let names = lowered(&program(DECLARED, "both(hdr.h.a, hdr.h.c, true);")).unwrap();
    let names: Vec<_> = names.externs.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["both(in bit<8>, out bit<8>, out bit<16>, in bool)"]);
}
