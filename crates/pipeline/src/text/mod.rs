//! The text form of programs, actions and entries.
//!
//! What [`print()`] writes, [`parse`] reads back as an equal program. Names are declared in any order; numbers follow the
//! order of declarations of one kind. Every constant carries its type, every operation its brackets, so a text has one
//! meaning without rules of precedence or conversion. `#` starts a comment.
//!
//! ```text
//! program   = "program" name "{" item* "}"
//! item      = "header" name "{" (name ":" ftype ";")* "}"
//!           | "instance" name ":" name ";"  | "stack" name ":" name "[" n "]" ";"
//!           | "union" name "{" (name ":" name ";")* "}"
//!           | "var" name ":" type ("=" "env" slot)? ";"
//!           | "error" name ";" | "reason" name ";" | "replicas" name ";"
//!           | "value_set" name "[" n "]" ":" "(" types ")" ";" | "digest" name ":" "(" types ")" ";"
//!           | "counter" name "[" n "]" ":" ("packets" | "bytes" | "both") ";"
//!           | "meter" name "[" n "]" ":" ("packets" | "bytes") ";"
//!           | "register" name "[" n "]" ":" type ";"
//!           | "extern" name "(" (("in" | "out") type),* ")" ";"
//!           | "profile" name "[" n "]" "{" "actions" names ";" select? "}"
//!           | "groups" name "[" n "]" "{" select "}"
//!           | "action" name "(" (name ":" type),* ")" body
//!           | "table" name "{" clause* "}" | "parser" name "{" state* "}" | "block" name body
//!           | "stage" name "{" (("parser" | "control" | "finish" | "deparser" | "next") name ";")* "}"
//! select    = "select" hash list ";"
//! clause    = "key" name ":" kind "=" expr ";" | "actions" names ";" | "default_only" names ";" | "open" ";"
//!           | "const"? "default" call ";" | "size" n ";" | "count" ("packets" | "bytes" | "both") ";"
//!           | "meter" ("packets" | "bytes") ";" | "timeouts" ";" | "profile" name ";" | "const_entries" ";"
//!           | "cpu" ";" | entry
//! entry     = "entry" ("priority" n)? "{" (name ":" match ";")* "}" "->" result ("idle" n)? ("hard" n)? ("cookie" n)? ";"
//! match     = const | const "/" n | const "&&&" const | const ".." const
//! result    = call | "member" n | "group" n
//! call      = name "(" const,* ")"
//! state     = "state" name "{" (op ";")* next "}"
//! op        = "extract" header expr? | "advance" expr | "verify" expr name | stmt
//! next      = "goto" target ";" | "select" "(" expr,* ")" "{" (("_" | set),* ":" target ";")* "}"
//! set       = const | const "&&&" const | const ".." const | "in" name
//! target    = "accept" | "reject" | "state" name
//! body      = "{" stmt* "}"
//! stmt      = place "=" expr ";" | "copy" header "=" header ";" | ("valid" | "invalid") header ";"
//!           | ("push" | "pop") name n ";" | "hash" place "=" hash list ";" | "checksum" place list list ";"
//!           | "random" place "=" expr ".." expr ";" | "read" place "=" name "[" expr "]" ";"
//!           | "write" name "[" expr "]" "=" expr ";" | "atomic" body | "count" name "[" expr "]" ";"
//!           | "meter" place "=" name "[" expr "]" ("color" expr)? ";" | "meter_entry" place "=" name ("color" expr)? ";"
//!           | "send" ("current" | "original") dest via? ("instance" n)? ("class" expr)? ("queue" expr)?
//!             ("limit" expr)? ("carry" names)? ";"
//!           | "group" name "[" expr "]" ";" | "controller" expr ("limit" expr)? list ";" | "digest" name "(" expr,* ")" ";"
//!           | "drop" name ";" | "truncate" expr ";" | "insert" list ";" | "remove" expr ";" | "reparse" ";"
//!           | "apply" name ("{" ("hit" body)? ("miss" body)? ("action" name body)* ("other" body)? "}")? ";"
//!           | "do" name "(" expr,* ")" ";" | "if" expr body ("else" body)?
//!           | "switch" expr "{" ("case" const,* body)* "default" body "}"
//!           | ("call" | "goto") name ";" | "return" ";" | "exit" ";"
//!           | "extern" name "(" ("in" expr | "out" place),* ")" ";" | "emit" (header | name) ";"
//! dest      = "port" expr | "flood" | "all" | "fallback" | "replicas" name "[" expr "]" | "same"
//! via       = "via" name | "direct"
//! list      = "{" (expr | "payload"),* "}"
//! expr      = const | name | "$" name | header "." name | "valid" "(" header ")" | "last_index" "(" name ")"
//!           | "length" "(" header "." name ")" | "lookahead" "(" type "," n ")" | "remaining"
//!           | ("!" | "~" | "-") expr | "(" expr op expr ")" | "(" expr "?" expr ":" expr ")"
//!           | expr "[" n ":" n "]" | type "(" expr ")"
//! op        = "+" | "-" | "*" | "/" | "%" | "|+|" | "|-|" | "+1c" | "&" | "|" | "^" | "<<" | ">>" | "++"
//!           | "==" | "!=" | "<" | "<=" | ">" | ">=" | "&&" | "||"
//! header    = name | name "[" (n | expr) "]" | name "." ("next" | "last") | name "." name
//! place     = name | header "." name | place "[" n ":" n "]"
//! type      = "bool" | "bit" "<" n ">" | "int" "<" n ">"         ftype = type | "varbit" "<" n ">"
//! const     = "true" | "false" | width ("w" | "s") digits         (8w255, 48w0x1b21aa0001, 8s0xff for -1)
//! name      = [A-Za-z_][A-Za-z0-9_]*, or anything between backquotes
//! ```
//!
//! A name that is also a keyword needs backquotes where the keyword could stand; the printer always writes them.
//!
//! - `lex.rs`: tokens;
//! - `print.rs`: the printer;
//! - `parse.rs`: declarations, tables and entries; `parse_body.rs`: statements, expressions and parsers.

mod lex;
mod parse;
mod parse_body;
mod print;

pub use parse::{ParseError, parse, parse_action, parse_entry};
pub(crate) use print::statement_name;
pub use print::{Names, print, print_action, print_entry, print_value};

/// Words that are names only between backquotes where a statement, an expression or a result begins.
pub(crate) const KEYWORDS: &[&str] = &[
    "_",
    "advance",
    "apply",
    "atomic",
    "bit",
    "bool",
    "call",
    "checksum",
    "controller",
    "copy",
    "count",
    "digest",
    "do",
    "drop",
    "else",
    "emit",
    "exit",
    "extern",
    "extract",
    "false",
    "goto",
    "group",
    "hash",
    "if",
    "insert",
    "int",
    "invalid",
    "last_index",
    "length",
    "lookahead",
    "member",
    "meter",
    "meter_entry",
    "payload",
    "pop",
    "push",
    "random",
    "read",
    "remaining",
    "remove",
    "reparse",
    "return",
    "select",
    "send",
    "switch",
    "true",
    "truncate",
    "valid",
    "verify",
    "write",
];
