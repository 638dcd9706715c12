//! A line of words: what stands between blanks, or between double quotes where a word has blanks in it.
//!
//! Quotes may stand anywhere in a word (`file="/etc/my file.wasm"`). Within them `\"` is a quote and `\\` a backslash;
//! elsewhere both are letters like others.

/// The words of a line; `None` if a quote is not closed.
pub(crate) fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            blank if blank.is_whitespace() => words.extend(word.take()),
            '"' => quoted(&mut letters, word.get_or_insert_default())?,
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Some(words)
}

/// Reads up to the closing quote.
fn quoted(letters: &mut std::str::Chars<'_>, word: &mut String) -> Option<()> {
    loop {
        match letters.next()? {
            '"' => return Some(()),
            '\\' => {
                let next = letters.next()?;
                if !matches!(next, '"' | '\\') {
                    word.push('\\');
                }
                word.push(next);
            }
            other => word.push(other),
        }
    }
}

/// The line that these words are split from.
pub(crate) fn join<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        if word.is_empty() || word.contains(|letter: char| letter.is_whitespace() || letter == '"') {
            line.push('"');
            line.push_str(&word.replace('\\', "\\\\").replace('"', "\\\""));
            line.push('"');
        } else {
            line.push_str(word);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blanks_part_words_and_quotes_hold_them_together() {
        for (line, words) in [
            ("", vec![]),
            ("  learning\tageing=60 ", vec!["learning", "ageing=60"]),
            (r#""wasm:/etc/my file.wasm" port=7000"#, vec!["wasm:/etc/my file.wasm", "port=7000"]),
            (r#"static a="my port" "b"=c"#, vec!["static", "a=my port", "b=c"]),
            (r#"x "" "a\"b\\c\d" e\f"#, vec!["x", "", r#"a"b\c\d"#, r"e\f"]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
        assert_eq!(split(r#"static "a b"#), None);
        assert_eq!(split(r#"static "a\"#), None);
    }

    proptest! {
        #[test]
        fn what_is_joined_splits_again(words in proptest::collection::vec("[a=\\\\\" \t]{0,6}", 0..5)) {
            prop_assert_eq!(split(&join(words.iter().map(String::as_str))), Some(words));
        }
    }
}
