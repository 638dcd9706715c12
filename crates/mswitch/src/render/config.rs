//! Differences between configurations.

use std::fmt::Write;
use std::path::Path;

use control::proto::{Applied, Difference, KeyChange};

/// Lists the differences, each object with its keys.
pub(crate) fn differences(differences: &[Difference]) -> String {
    if differences.is_empty() {
        return "no differences\n".into();
    }
    let mut text = String::new();
    for difference in differences {
        let sign = sign(difference);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{sign} {}", difference.object);
        for change in &difference.keys {
            let _ = writeln!(text, "    {}", key(sign, change));
        }
    }
    text
}

fn sign(difference: &Difference) -> char {
    match difference.kind.as_str() {
        "added" => '+',
        "removed" => '-',
        _ => '~',
    }
}

/// Formats a difference as a line, such as `bridge "br0", port "vm1" changed: mtu: not set -> 9000`.
pub(crate) fn line(difference: &Difference) -> String {
    let Difference { object, kind, keys, .. } = difference;
    let keys: Vec<_> = keys.iter().map(|change| key(sign(difference), change)).collect();
    format!("{object} {kind}: {}", keys.join(", "))
}

/// Lists the differences and the outcome of applying them.
pub(crate) fn applied(applied: &Applied, file: &Path, dry_run: bool) -> String {
    let file = file.display();
    let differences = differences(&applied.differences);
    let failed: Vec<&str> = applied
        .outcomes
        .iter()
        .filter(|outcome| !outcome.trouble.is_empty())
        .map(|outcome| outcome.object.as_str())
        .collect();
    let number = |number: usize, what: &str| (number > 0).then(|| format!("{number} {what}"));
    // An object that failed is not done, and the daemon's own settings wait for its next start.
    let done = |object: &str| object != "daemon" && !failed.contains(&object);
    let count = |kind: &str| {
        let found = applied.differences.iter().filter(|d| d.kind == kind && done(&d.object));
        number(found.count(), kind)
    };
    let counts = ["added", "changed", "removed"].into_iter().filter_map(count);
    let counts: Vec<String> = counts.chain(number(failed.len(), "failed")).collect();
    match counts.is_empty() {
        _ if dry_run => format!("{differences}dry run: {file} was not applied\n"),
        true => format!("{differences}{file} was applied\n"),
        false => format!("{differences}{file} was applied: {}\n", counts.join(", ")),
    }
}

/// Formats a value of a key, or the default in its place.
pub(super) fn value(text: &str, default: Option<&str>) -> String {
    match (text, default) {
        ("", Some(default)) => format!("{default} (default)"),
        ("", None) => "not set".into(),
        (text, _) => text.into(),
    }
}

fn key(sign: char, change: &KeyChange) -> String {
    let value = |text: &str| value(text, change.default.as_deref());
    match sign {
        '+' => format!("{}: {}", change.key, value(&change.to)),
        '-' => format!("{}: {}", change.key, value(&change.from)),
        _ => format!("{}: {} -> {}", change.key, value(&change.from), value(&change.to)),
    }
}

#[cfg(test)]
mod tests {
    use control::proto::Outcome;

    use super::*;

    #[test]
    fn signs_mark_added_removed_and_changed_objects() {
        let key = |from: &str, to: &str| KeyChange {
            key: "mtu".into(),
            from: from.into(),
            to: to.into(),
            default: None,
        };
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
            ..Applied::default()
        };
        assert_eq!(
            differences(&applied.differences),
            "+ bridge \"br0\", port \"a\"\n    mtu: 1500\n\
             - bridge \"br0\", port \"a\"\n    mtu: 1500\n\
             ~ bridge \"br0\", port \"a\"\n    mtu: not set -> 9000\n"
        );
        let shown = differences(&applied.differences);
        let file = Path::new("/etc/m.toml");
        assert_eq!(
            super::applied(&applied, file, true),
            format!("{shown}dry run: /etc/m.toml was not applied\n")
        );
        assert_eq!(
            super::applied(&applied, file, false),
            format!("{shown}/etc/m.toml was applied: 1 added, 1 changed, 1 removed\n")
        );
        let outcome = Outcome { trouble: "no".into(), ..Outcome::default() };
        let none = Applied { outcomes: vec![outcome], ..Applied::default() };
        assert_eq!(super::applied(&none, file, false), "no differences\n/etc/m.toml was applied: 1 failed\n");
        let object = |name: &str| Difference { object: name.into(), ..difference("added", key("", "1")) };
        let changed = vec![
            object("a"),
            object("b"),
            object("c"),
            Difference { kind: "changed".into(), ..object("daemon") },
        ];
        let outcomes = vec![Outcome { object: "b".into(), trouble: "no".into(), ..Outcome::default() }];
        let some =
            super::applied(&Applied { differences: changed, outcomes, ..Applied::default() }, file, false);
        assert!(some.ends_with("/etc/m.toml was applied: 2 added, 1 failed\n"), "{some}");
        assert_eq!(differences(&[]), "no differences\n");
    }
}
