//! Tables.

use super::{accepted, refused};
use crate::hir::{ExprKind, Keyset, StmtKind, Type};

fn table(properties: &str) -> String {
    table_and(properties, "t.apply();")
}

fn table_and(properties: &str, apply: &str) -> String {
    format!(
        "extern Profile {{ Profile(bit<32> n); }} struct S {{ bit<8> a; bit<16> b; }} \
         control c(inout S s) {{ action none() {{}} action set(bit<8> v) {{ s.a = v; }} \
         action add(inout bit<8> x, in bit<8> y, bit<8> z) {{ x = x + y + z; }} action other() {{}} \
         table t {{ {properties} }} apply {{ {apply} }} }}"
    )
}

#[test]
fn a_table_with_everything() {
    let program = accepted(&table(
        "key = { s.a: exact; s.b[7:0]: ternary @name(\"low\"); } actions = { none; set; add(s.a, s.b[7:0]); } \
         const default_action = set(5); size = 1024; implementation = Profile(16); \
         const entries = { (1, 2 &&& 3): set(1); (2, _): add(s.a, s.b[7:0], 7); (3, default): none(); }",
    ));
    let t = &program.tables[0];
    assert_eq!(t.keys[0].text, "s.a");
    assert_eq!(t.keys[1].text, "s.b[7:0]");
    assert_eq!(t.actions[2].call.args.len(), 2);
    assert!(t.const_default && t.const_entries);
    assert_eq!(t.entries[1].call.args.len(), 3);
    assert!(matches!(t.entries[0].keysets[1], Keyset::Mask(..)));
    assert!(matches!(t.properties[0].value.kind, ExprKind::New(_)));
    assert_eq!(t.properties[0].name, "implementation");
}

#[test]
fn bound_arguments_may_be_left_out_of_entries() {
    let program = accepted(&table(
        "key = { s.a: exact; } actions = { add(s.a, 1); } default_action = add(s.a, 1, 2); entries = { 1: add(3); }",
    ));
    let t = &program.tables[0];
    assert_eq!((t.entries[0].call.args.len(), t.default.as_ref().map(|d| d.args.len())), (3, Some(3)));
}

#[test]
fn no_action_is_the_default() {
    let program = accepted(&table("key = { s.a: exact; } actions = { set; }"));
    let t = &program.tables[0];
    let default = t.default.as_ref().expect("a default");
    assert_eq!(program.actions[default.action.index()].name, "NoAction");
    assert_eq!(t.actions.len(), 2);
    assert_eq!(t.actions[1].annotations[0].name, "defaultonly");
}

#[test]
fn keys_are_scalars_of_a_known_kind() {
    refused(&table("key = {\ns: exact; } actions = { set; }"), &[(2, "a key of type `S`")]);
    refused(
        &table("key = {\ns.a: exactly; } actions = { set; }"),
        &[(2, "match kind `exactly` is not declared (did you mean `exact`?)")],
    );
    accepted(&table("key = { s.a + 1: exact @name(\"sum\"); } actions = { set; }"));
    refused(
        &table("key = {\ns.a + 1: exact; } actions = { set; }"),
        &[(2, "key `s.a + 1` has no name for the control plane")],
    );
}

#[test]
fn lists_of_actions_bind_directed_parameters() {
    refused(&table("actions = {\nadd; }"), &[(2, "no arguments for parameters `x`, `y` of `add`")]);
    refused(
        &table("actions = {\nset(1); }"),
        &[(2, "an argument for a parameter of `set` that the control plane sets")],
    );
    refused(&table("actions = {\nadd(1, 2); }"), &[(2, "needs a place to write to")]);
    refused(&table("actions = { set;\nset; }"), &[(2, "action `set` is listed twice")]);
    refused(&table("actions = {\nsett; }"), &[(2, "action `sett` is not declared (did you mean `set`?)")]);
    refused(&table("actions = {\ns; }"), &[(2, "`s` is not an action")]);
    refused(&table("key = { s.a: exact; }"), &[(1, "table `t` has no actions")]);
}

#[test]
fn defaults_are_listed_and_complete() {
    refused(
        &table("actions = { set; } default_action =\nother();"),
        &[(2, "action `other` is not in the table's list of actions")],
    );
    refused(
        &table("actions = { set; } default_action =\nset();"),
        &[(2, "no argument for parameter `v` of `set`")],
    );
    refused(
        &table("actions = { set; } default_action = set(\ns.a);"),
        &[(2, "an argument in the default action must be known")],
    );
    refused(
        &table("actions = { add(s.a, 1); } default_action = add(s.a,\n2, 3);"),
        &[(2, "argument `2` is not the one in the list of actions")],
    );
    refused(
        &table("actions = { @tableonly none; } default_action =\nnone;"),
        &[(2, "an action marked `@tableonly` cannot be the default")],
    );
    refused(
        &table("\ndefault_action = none; actions = { none; }"),
        &[(2, "`default_action` stands in front of `actions`")],
    );
}

#[test]
fn entries_fit_the_keys() {
    refused(
        &table("key = { s.a: exact; } actions = { none; } const entries = {\n(1, 2): none; }"),
        &[(2, "2 keysets for 1 value")],
    );
    refused(
        &table("key = { s.a: exact; } actions = { none; } const entries = {\n16w1: none; }"),
        &[(2, "expected `bit<8>`")],
    );
    refused(
        &table("key = { s.a: exact; } actions = { none; } const entries = {\ns.a: none; }"),
        &[(2, "a keyset of an entry must be known")],
    );
    refused(
        &table("key = { s.a: exact; } actions = { none; } const entries = { 1: none;\n1: none; }"),
        &[(2, "an entry with the keys of another")],
    );
    refused(
        &table("key = { s.a: lpm; } actions = { none; } const entries = {\n1 &&& 5: none; }"),
        &[(2, "a mask that is not that of a prefix")],
    );
    accepted(&table(
        "key = { s.a: lpm; } actions = { none; } const entries = { 16 &&& 0xf0: none; _: none; }",
    ));
    refused(
        &table("key = { s.a: exact; } actions = { none; } const entries = {\n1 .. 2: none; }"),
        &[(2, "a range for a key of kind `exact`")],
    );
    refused(
        &table("key = { s.a: exact; } actions = { @defaultonly none; } const entries = {\n1: none; }"),
        &[(2, "an action marked `@defaultonly` cannot be in an entry")],
    );
    refused(
        &table("actions = { none; }\nconst entries = { _: none; }"),
        &[(2, "entries in a table without a key")],
    );
}

#[test]
fn priorities() {
    let program = accepted(&table(
        "key = { s.a: ternary; } actions = { none; } entries = { priority = 5: 1: none; 2: none; }",
    ));
    assert_eq!(program.tables[0].entries[0].priority, Some(5.into()));
    refused(
        &table("key = { s.a: exact; } actions = { none; } entries = {\npriority = 5: 1: none; }"),
        &[(2, "a priority in a table whose keys need none")],
    );
    refused(
        &table("key = { s.a: ternary; } actions = { none; } entries = {\n1: none; priority = 5: 2: none; }"),
        &[(2, "the first entry has no priority")],
    );
}

#[test]
fn results_of_a_table() {
    let text = table_and("actions = { none; }", "if (t.apply().hit) { s.a = 1; } bool m = t.apply().miss;");
    let program = accepted(&text);
    let StmtKind::If(condition, ..) = &program.controls[0].body[0].kind else { panic!() };
    assert!(matches!(condition.kind, ExprKind::Hit(_)) && condition.ty == Type::Bool);
    refused(
        &table_and("actions = { none; }", "if (t.apply().hits) {}"),
        &[(1, "the result of a table has no field `hits`")],
    );
    refused(
        &table_and("actions = { none; }", "if (t.apply()) {}"),
        &[(1, "the condition has the type `result of a table`")],
    );
    refused(&table_and("actions = { none; }", "t.aply();"), &[(1, "a table has no method `aply`")]);
    refused(
        "control c() { table t { actions = { NoAction; } } action a() {\nt.apply(); } apply {} }",
        &[(2, "a table cannot be applied in an action")],
    );
}

#[test]
fn properties_are_constant_and_given_once() {
    refused(
        &table("actions = { none; } size =\ns.a;"),
        &[(2, "the size of a table must be known at compile time")],
    );
    refused(&table("actions = { none; } size = 1;\nsize = 2;"), &[(2, "`size` is declared twice")]);
    refused(
        &table("actions = { none; } junk =\ns.a;"),
        &[(2, "property `junk` must be known at compile time")],
    );
}
