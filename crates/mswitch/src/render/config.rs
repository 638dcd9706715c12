//! What configurations differ in.

use std::fmt::Write;

use control::proto::{Applied, KeyChange};

/// The differences, an object and its keys at a time.
pub(crate) fn differences(applied: &Applied) -> String {
    if applied.differences.is_empty() {
        return "nothing differs\n".into();
    }
    let mut text = String::new();
    for difference in &applied.differences {
        let sign = match difference.kind.as_str() {
            "added" => '+',
            "removed" => '-',
            _ => '~',
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{sign} {}", difference.object);
        for change in &difference.keys {
            let _ = writeln!(text, "    {}", key(sign, change));
        }
    }
    for note in &applied.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn key(sign: char, change: &KeyChange) -> String {
    let value = |text: &str| if text.is_empty() { "not set".to_owned() } else { text.to_owned() };
    match sign {
        '+' => format!("{}: {}", change.key, value(&change.to)),
        '-' => format!("{}: {}", change.key, value(&change.from)),
        _ => format!("{}: {} -> {}", change.key, value(&change.from), value(&change.to)),
    }
}

#[cfg(test)]
mod tests {
    use control::proto::Difference;

    use super::*;

    #[test]
    fn signs_say_what_happens() {
        let key = |from: &str, to: &str| KeyChange { key: "mtu".into(), from: from.into(), to: to.into() };
        let difference = |kind: &str, key| Difference {
            object: "bridge \"br0\", port \"a\"".into(),
            kind: kind.into(),
            keys: vec![key],
            ..Difference::default()
        };
        let applied = Applied {
            differences: vec![
                difference("added", key("", "1500")),
                difference("removed", key("1500", "")),
                difference("changed", key("", "9000")),
            ],
            notes: vec!["later".into()],
            ..Applied::default()
        };
        assert_eq!(
            differences(&applied),
            "+ bridge \"br0\", port \"a\"\n    mtu: 1500\n\
             - bridge \"br0\", port \"a\"\n    mtu: 1500\n\
             ~ bridge \"br0\", port \"a\"\n    mtu: not set -> 9000\nnote: later\n"
        );
        assert_eq!(differences(&Applied::default()), "nothing differs\n");
    }
}
