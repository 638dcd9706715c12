//! Flow tables by name: references to tables in the text of flows.
//!
//! Texts refer to tables in `table=` (also of `learn`), in `goto_table` and as the second argument of `resubmit`.

/// Whether `ovs-ofctl` shows this name of a table without quotes.
pub fn is_table_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Replaces the references to tables in the text of a flow, a match or actions. References for which `replace` returns
/// `None` stay as they are.
pub fn replace_tables(text: &str, mut replace: impl FnMut(&str) -> Option<String>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    let mut last = None;
    while !rest.is_empty() {
        let length = if is_boundary(last) { before_reference(rest) } else { None };
        let Some(length) = length else {
            last = rest.chars().next();
            result.extend(last);
            rest = rest.get(last.map_or(0, char::len_utf8)..).unwrap_or_default();
            continue;
        };
        let (before, tail) = rest.split_at(length);
        let (reference, tail) = tail.split_at(tail.find([',', ')', ' ', '\t']).unwrap_or(tail.len()));
        result.push_str(before);
        match replace(reference) {
            Some(other) => result.push_str(&other),
            None => result.push_str(reference),
        }
        (rest, last) = (tail, reference.chars().next_back().or(before.chars().next_back()));
    }
    result
}

/// Whether a word may begin behind this character.
fn is_boundary(last: Option<char>) -> bool {
    last.is_none_or(|c| matches!(c, ',' | ' ' | '\t' | '(' | '='))
}

/// The number of bytes before the reference to a table of the word that begins here, if it has one.
fn before_reference(text: &str) -> Option<usize> {
    let simple = ["table=", "goto_table:", "goto_table("];
    if let Some(word) = simple.iter().find(|word| text.starts_with(**word)) {
        return Some(word.len());
    }
    let arguments = text.strip_prefix("resubmit(")?;
    let comma =
        arguments.find([',', ')']).filter(|at| arguments.get(*at..).is_some_and(|it| it.starts_with(',')))?;
    Some("resubmit(".len() + comma + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_and_nothing_else() {
        let name = |text: &str| {
            replace_tables(text, |number| match number {
                "0" => Some("in".into()),
                "10" => Some("acl".into()),
                _ => None,
            })
        };
        for (text, expected) in [
            ("", ""),
            ("table=0", "table=in"),
            (
                " cookie=0x0, table=10, n_packets=0, ip actions=drop",
                " cookie=0x0, table=acl, n_packets=0, ip actions=drop",
            ),
            ("table=1,actions=goto_table:10", "table=1,actions=goto_table:acl"),
            (
                "actions=resubmit(,10),resubmit(10,0),resubmit:10",
                "actions=resubmit(,acl),resubmit(10,in),resubmit:10",
            ),
            ("actions=resubmit(,10,ct)", "actions=resubmit(,acl,ct)"),
            ("actions=clone(goto_table(0),output:10)", "actions=clone(goto_table(in),output:10)"),
            ("actions=learn(table=10,priority=10)", "actions=learn(table=acl,priority=10)"),
            ("goto_table:0", "goto_table:in"),
            // Other words, and texts that end too early.
            ("tables=10,metadata=10,mytable=10", "tables=10,metadata=10,mytable=10"),
            ("table=", "table="),
            ("resubmit(10", "resubmit(10"),
            ("resubmit(10)", "resubmit(10)"),
            ("ätable=0,ä", "ätable=0,ä"),
        ] {
            assert_eq!(name(text), expected);
        }
    }

    #[test]
    fn names_are_words() {
        assert!(is_table_name("acl") && is_table_name("a.b-c_1"));
        assert!(!is_table_name("") && !is_table_name("1a") && !is_table_name("a b") && !is_table_name("ä"));
    }
}
