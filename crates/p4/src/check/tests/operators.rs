//! Operators, slices and elements.

use super::{accepted, body, refused};

#[test]
fn operands_have_one_type() {
    accepted(&body("b8 = b8 + 1; b8 = 1 + b8; b16 = b16 & 0xff; i8 = i8 - 1; b8 = b8 |+| b8;"));
    refused(
        &body("b8 = b8 + b16;"),
        &[(1, "`+` is not defined for `bit<8>` and `bit<16>` (convert one of them")],
    );
    refused(&body("b8 = b8 + i8;"), &[(1, "`+` is not defined for `bit<8>` and `int<8>`")]);
    refused(&body("flag = flag + flag;"), &[(1, "`+` is not defined for `bool` and `bool`")]);
    refused(&body("flag = flag & flag;"), &[(1, "`&` is not defined for `bool` and `bool`")]);
}

#[test]
fn logic_has_booleans() {
    accepted(&body("flag = flag && !flag || b8 == 1;"));
    refused(&body("flag = flag && b8;"), &[(1, "`&&` is not defined for `bool` and `bit<8>`")]);
    refused(&body("flag = !b8;"), &[(1, "`!` is not defined for `bit<8>`")]);
}

#[test]
fn comparisons() {
    accepted(&body("flag = h == h; flag = s != s; flag = b8 < 3; flag = { b8, b8 } == { 1, 2 };"));
    refused(&body("flag = b8 == b16;"), &[(1, "`bit<8>` cannot be compared with `bit<16>`")]);
    refused(&body("flag = flag < flag;"), &[(1, "`<` is not defined for `bool` and `bool`")]);
    refused(
        "extern E { E(); }\ncontrol c() { E() e;\napply { if (e == e) {} } }",
        &[(3, "values of type `E` cannot be compared")],
    );
}

#[test]
fn shifts_are_by_unsigned_numbers() {
    accepted(&body("b8 = b8 << 1; b8 = b8 >> b16; i8 = i8 >> b8;"));
    refused(&body("b8 = b8 << i8;"), &[(1, "a shift by a value of type `int<8>`")]);
    refused(&body("b8 = b8 << -1;"), &[(1, "a shift by a negative number")]);
    refused(&body("b8 = 1 << b8;"), &[(1, "a shift of a number without a width")]);
}

#[test]
fn concatenations_need_widths() {
    accepted(&body("b16 = b8 ++ b8; i8 = i8[3:0] == 0 ? i8 : (int<8>)(b8[3:0] ++ b8[7:4]);"));
    refused(
        &body("b16 = b8 ++ 1;"),
        &[(1, "a number without a width cannot be concatenated (write the width: `8w1`)")],
    );
    refused(&body("b16 = b8 ++ flag;"), &[(1, "`++` is not defined for `bit<8>` and `bool`")]);
}

#[test]
fn divisions_are_of_unsigned_numbers() {
    accepted(&body("b8 = b8 / 4; b8 = b8 % 4;"));
    refused(&body("b8 = b8 / 0;"), &[(1, "division by zero")]);
    refused(&body("i8 = i8 / 2;"), &[(1, "`/` is not defined for signed values")]);
    refused(&body("b8 = b8 % -1;"), &[(1, "`%` is not defined for negative numbers")]);
}

#[test]
fn slices_lie_in_the_value() {
    accepted(&body("b8 = b16[15:8]; b16[7:0] = b8; b8 = b16[4+:8]; b8[3:0] = i8[7:4]; b8 = b16[b8+:8];"));
    refused(&body("b8 = b8[8:1];"), &[(1, "a slice [8:1] of `bit<8>`")]);
    refused(&body("b8 = b16[0:7];"), &[(1, "a slice [0:7] whose upper bit is below its lower one")]);
    refused(&body("b8 = b16[b8:0];"), &[(1, "this number is not known at compile time")]);
    refused(&body("flag = flag[0:0];"), &[(1, "a value of type `bool` has no slices")]);
    refused(&body("b16[b8+:8] = b8;"), &[(1, "a slice at a place that is not constant cannot be written")]);
}

#[test]
fn elements_lie_in_the_stack_or_tuple() {
    let stack = |statement: &str| {
        format!(
            "header H {{ bit<8> a; }} control c(inout H[2] s, inout bit<8> i) {{ apply {{ {statement} }} }}"
        )
    };
    accepted(&stack("s[1].a = s[i].a; tuple<bit<8>, bool> t = { 1, true }; i = t[0]; i = (bit<8>)s.size;"));
    refused(&stack("s[2].a = 1;"), &[(1, "index 2 of `H[2]`, which has 2 elements")]);
    refused(&stack("s[-1].a = 1;"), &[(1, "negative index -1")]);
    refused(&stack("i = i[0];"), &[(1, "a value of type `bit<8>` has no elements")]);
    refused(&stack("s[true].a = 1;"), &[(1, "an index of type `bool`, expected a number")]);
    refused(
        &stack("tuple<bit<8>, bool> t = { 1, true }; i = t[i];"),
        &[(1, "an index of a tuple must be a constant")],
    );
}

#[test]
fn choices_have_one_type() {
    accepted(&body("b8 = flag ? b8 : 1;"));
    refused(
        &body("b8 = b8 ? b8 : 1;"),
        &[(1, "the condition has the type `bit<8>`, expected `bool` (compare it: `… != 0`)")],
    );
    refused(&body("b8 = flag ? b8 : flag;"), &[(1, "the two results have the types `bit<8>` and `bool`")]);
    refused(&body("b8 = flag ? 1 : 2;"), &[(1, "the results are numbers without a width")]);
}
