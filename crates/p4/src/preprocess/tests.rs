//! Texts and the tokens, or the errors, that they give.

use std::fs;

use super::*;

/// Tokens with a space between them, then errors and warnings with their lines.
fn read(text: &str) -> (String, Vec<String>) {
    with(text, &Options::default())
}

fn with(text: &str, options: &Options) -> (String, Vec<String>) {
    let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
    let tokens = load_text("main.p4", text, options, &mut sources, &mut diagnostics);
    (spelled(&tokens), messages(&sources, &diagnostics))
}

fn spelled(tokens: &[Token]) -> String {
    let texts: Vec<&str> = tokens.iter().filter(|t| t.kind != TokenKind::End).map(|t| &*t.text).collect();
    texts.join(" ")
}

fn messages(sources: &Sources, diagnostics: &Diagnostics) -> Vec<String> {
    let show = |d: &Diagnostic| format!("{}: {}", sources.line(d.label.span).0, d.message);
    diagnostics.list().iter().map(show).collect()
}

#[track_caller]
fn gives(text: &str, expected: &str) {
    assert_eq!(read(text), (expected.to_owned(), Vec::new()), "{text}");
}

#[track_caller]
fn fails(text: &str, errors: &[&str]) {
    assert_eq!(read(text).1, errors, "{text}");
}

#[test]
fn macros_without_arguments() {
    gives("#define A 1 + /* c */ 2 // d\n#define B\nA B A", "1 + 2 1 + 2");
    gives("#define A B\n#define B A c\nA", "A c");
    gives("#define A \\\n  1\nA", "1");
    gives("A\n#define A 1\nA\n#undef A\nA", "A 1 A");
    gives("#define header 1\nheader", "1");
}

#[test]
fn macros_with_arguments() {
    gives("#define F(x, y) x - y\nF(1, (2, 3)) F", "1 - ( 2 , 3 ) F");
    gives("#define F() 1\nF() F( ) F\n()", "1 1 1");
    gives("#define F(x) [x]\nF() F(F(1))", "[ ] [ [ 1 ] ]");
    gives("#define F(x) x\n#define G F\nG(1) F (\n2\n)", "1 2");
    gives("#define F (x)\nF(1)", "( x ) ( 1 )");
    gives(
        "#define F(...) { __VA_ARGS__ }\n#define G(x, ...) F(x, __VA_ARGS__)\nF(1, 2) G(3, 4)",
        "{ 1 , 2 } { 3 , 4 }",
    );
    gives("#define F(x) x F(x)\nF(F(1))", "1 F ( 1 ) F ( 1 F ( 1 ) )");
    gives("#define F(x) G\n#define G(x) <x>\nF(1)(2)", "< 2 >");
}

#[test]
fn tokens_are_quoted_and_pasted() {
    gives(
        "#define S(x) #x\n#define T(x) S(x)\n#define A b\nS(A  +\"c\\n\") T(A)",
        "\"A +\\\"c\\\\n\\\"\" \"b\"",
    );
    gives("#define P(x, y) x ## y ## _t\n#define a z\nP(a, 1) P(,b)", "a1_t b_t");
    gives("#define C 8 ## w1\nC", "8w1");
    fails("#define P(x) x ## (\nP(a)", &["2: `a` and `(` do not make one token"]);
}

#[test]
fn what_is_known_of_the_place() {
    gives("\n__LINE__ __FILE__", "2 \"main.p4\"");
    gives("#define L __LINE__\n\nL", "3");
    gives("#if __mswitch__\n1\n#endif", "1");
}

#[test]
fn conditional_parts() {
    gives("#if 0\na\n#elif 1\nb\n#elif 1\nc\n#else\nd\n#endif\ne", "b e");
    gives("#ifdef A\na\n#else\nb\n#endif", "b");
    gives("#ifndef A\na\n# if 0\nb\n# else\nc\n# endif\n#endif", "a c");
    gives("#if 0\n#if 1\na\n#else\nb\n#endif\n#else\nc\n#endif", "c");
    gives("#if 0\nit's \" not P4\n#error no\n#nonsense\n#endif\na", "a");
    gives("#define A 1\n#if defined A && defined(B) || defined ( A )\na\n#endif", "a");
}

#[test]
fn conditions_are_integers() {
    for (condition, holds) in [
        ("1 + 2 * 3 == 7", true),
        ("(1 + 2) * 3 == 9 && !0", true),
        ("1 << 4 >> 2 == 4", true),
        ("-1 < 0 && ~0 == -1", true),
        ("7 / 2 == 3 && 7 % 2 == 1", true),
        ("0x10 == 16 ? 0 : 1", false),
        ("UNKNOWN", false),
        ("true", true),
        ("(6 & 3 | 8) ^ 1 != 10", true),
        ("2 >= 2 && 2 <= 2 && 3 > 2 && 1 != 2", true),
        ("9223372036854775807 + 1 < 0", true),
    ] {
        gives(&format!("#if {condition}\na\n#endif"), if holds { "a" } else { "" });
    }
    fails("#if\n#endif", &["1: condition ends early (expected an integer)"]);
    fails("#if 1 +\n#endif", &["1: condition ends early (expected an integer)"]);
    fails("#if 1 2\n#endif", &["1: `2` in the condition (expected an operator)"]);
    fails("#if (1\n#endif", &["1: condition ends early (expected `)`)"]);
    fails("#if 1 / 0\n#endif", &["1: division by zero in the condition"]);
    fails("#if 0x1ffffffffffffffff\n#endif", &["1: integer has more than 64 bits"]);
    fails(&format!("#if {}1\n#endif", "(".repeat(5000)), &["1: condition is nested more than 100 levels"]);
}

#[test]
fn errors_of_directives() {
    fails("#if 1\na", &["1: conditional part without `#endif`"]);
    fails(
        "#endif\n#else\n#elif 1",
        &["1: `#endif` without `#if`", "2: `#else` without `#if`", "3: `#elif` without `#if`"],
    );
    fails("#if 1\n#else\n#else\n#endif", &["3: `#else` behind `#else`"]);
    fails("#error \"no\" such thing\n#warning  b", &["1: #error \"no\" such thing", "2: #warning b"]);
    fails("#inclde <core.p4>", &["1: unknown directive `#inclde`"]);
    fails("#define 1", &["1: `1` cannot be the name of a macro"]);
    fails("#define F(x", &["1: list of parameters of macro `F` is malformed"]);
    fails("#define F(x, x) 1", &["1: list of parameters of macro `F` is malformed"]);
    fails("#define F(x) x\nF(1, 2)", &["2: macro `F` takes 1 argument (found 2)"]);
    fails("#define F(x) x\nF(1", &["2: arguments of macro `F` have no end"]);
    fails("#define A 1\n#define A  1\n#define A 2", &["3: macro `A` is defined again, differently"]);
    fails("#include", &["1: expected the name of a file: `\"NAME\"` or `<NAME>`"]);
    fails("#include <none.p4>", &["1: file `none.p4` is not found"]);
    fails(&"#if 1\n".repeat(201), &["201: more than 200 nested conditional parts"][..1]);
}

#[test]
fn other_directives_are_ignored() {
    gives("#pragma once\n#line 7 \"x\"\n# 1 \"y\" 2\n#\na", "a");
}

#[test]
fn expansions_have_the_place_of_the_use() {
    let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
    let text = "#define F(x) x + G\n#define G 2\n a F( 1 ) b";
    let tokens = load_text("main.p4", text, &Options::default(), &mut sources, &mut diagnostics);
    let places: Vec<&str> = tokens.iter().map(|t| sources.text(t.span)).collect();
    assert_eq!(places, ["a", "F( 1 )", "F( 1 )", "F( 1 )", "b", ""]);
    assert!(tokens.iter().all(|t| t.starts_line == (t.is("a") || t.kind == TokenKind::End)));
}

#[test]
fn files_are_found_beside_the_file_then_in_folders_then_embedded() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("sub")).unwrap();
    fs::create_dir_all(path("other")).unwrap();
    fs::write(path("main.p4"), "#include \"sub/a.p4\"\n#include <b.p4>\n#include NAME\n#include <core.p4>")
        .unwrap();
    fs::write(path("sub/a.p4"), "a\n#include \"b.p4\"\n").unwrap();
    fs::write(path("sub/b.p4"), b"sub // \xff is no UTF-8").unwrap();
    fs::write(path("other/b.p4"), "other").unwrap();
    fs::write(path("other/core.p4"), "mine").unwrap();
    let options =
        Options { include: vec![path("other")], defines: vec!["NAME=<b.p4>".into(), "sub=SUB".into()] };
    let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
    let tokens = load(&path("main.p4"), &options, &mut sources, &mut diagnostics).unwrap();
    assert_eq!(messages(&sources, &diagnostics), [] as [&str; 0]);
    assert_eq!(spelled(&tokens), "a SUB other other mine");
    // Each file is read once; the program's is the first.
    let names: Vec<&str> = sources.files().iter().map(|f| f.name.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["main.p4", "<command line>", "a.p4", "b.p4", "b.p4", "core.p4"]);
    assert!(load(&path("none.p4"), &options, &mut sources, &mut diagnostics).is_err());
    assert!(load(folder.path(), &options, &mut sources, &mut diagnostics).is_err());
}

#[test]
fn embedded_files_include_one_another() {
    let (text, errors) = read("#include <v1model.p4>\n#include <v1model.p4>");
    assert_eq!(errors, [] as [&str; 0]);
    assert_eq!(text.matches("package V1Switch").count(), 1);
    assert_eq!(text.matches("extern packet_in").count(), 1);
}

#[test]
fn text_reads_no_files_outside_the_folders() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret.p4");
    fs::write(&file, "secret").unwrap();
    let options = Options { include: vec![folder.path().join("none")], defines: Vec::new() };
    for form in [format!("\"{}\"", file.display()), format!("<{}>", file.display())] {
        let (text, errors) = with(&format!("#include {form}"), &options);
        assert_eq!((text.as_str(), errors.len()), ("", 1));
    }
}

#[test]
fn includes_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { include: vec![folder.path().into()], defines: Vec::new() };
    fs::write(folder.path().join("self.p4"), "#include <self.p4>\n").unwrap();
    assert_eq!(with("#include <self.p4>", &options).1, ["1: more than 64 nested includes"]);
    fs::write(folder.path().join("twice.p4"), "#include <twice.p4>\n\n#include <twice.p4>\n").unwrap();
    let (_, errors) = with("#include <twice.p4>", &options);
    assert_eq!(errors, ["1: more than 64 nested includes", "3: more than 64 nested includes"]);
}

#[test]
fn expansions_are_bounded() {
    // Each line doubles.
    let doubling = |first: &str, next: fn(usize) -> String| -> String {
        std::iter::once(format!("#define A0 {first}\n")).chain((1..64).map(next)).collect()
    };
    let tokens = doubling("x", |n| format!("#define A{n} A{} A{}\n", n - 1, n - 1));
    let (_, errors) = read(&format!("{tokens}A63"));
    assert_eq!(errors, ["65: macros expand to more than 524288 tokens"]);
    let arguments = "#define F(x) x x\n".to_owned() + &"F(".repeat(64) + "1" + &")".repeat(64);
    let (_, errors) = read(&arguments);
    assert_eq!(errors, ["2: macros expand to more than 524288 tokens"]);
    let pasted = "#define P(x) Q(x, x)\n#define Q(x, y) x ## y\n".to_owned()
        + &"P(".repeat(64)
        + "a"
        + &")".repeat(64);
    let (_, errors) = read(&pasted);
    assert_eq!(errors, ["3: macros expand to more than 524288 tokens"]);
    let nested = |depth| "#define F(x) x\n".to_owned() + &"F(".repeat(depth) + "1" + &")".repeat(depth);
    assert_eq!(read(&nested(90)), ("1".to_owned(), Vec::new()));
    assert_eq!(read(&nested(200)).1, ["2: uses of macros nest more than 100 levels"]);
    assert_eq!(read(&nested(20_000)).1, ["2: macros expand to more than 524288 tokens"]);
    let chained: String = (0..20_000).map(|n| format!("#define A{n} A{}\n", n + 1)).collect();
    assert_eq!(read(&format!("{chained}A0")).1, ["20001: uses of macros nest more than 100 levels"]);
}
