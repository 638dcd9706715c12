//! Splits the command line that bash passes into words.

/// A line up to the cursor.
pub(super) struct Typed {
    /// Words without quotes; the last word is incomplete and may be empty.
    pub(super) words: Vec<String>,
    /// Open quote at the cursor.
    open: Option<char>,
    /// Length of the last word where that quote was opened.
    opened_at: usize,
}

impl Typed {
    /// Splits a line as a shell does, without expansions.
    pub(super) fn parse(line: &str) -> Typed {
        let mut words = vec![String::new()];
        let (mut open, mut opened_at) = (None, 0);
        let mut in_word = false;
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match (open, c) {
                (None, ' ' | '\t' | '\n') => {
                    if in_word {
                        words.push(String::new());
                    }
                    in_word = false;
                    continue;
                }
                (None, '\'' | '"') => {
                    (open, opened_at) = (Some(c), words.last().map_or(0, String::len));
                }
                (Some(quote), _) if c == quote => open = None,
                (None | Some('"'), '\\') => push(&mut words, chars.next()),
                _ => push(&mut words, Some(c)),
            }
            in_word = true;
        }
        Typed { words, open, opened_at }
    }

    /// Returns the part of the last word that bash treats as earlier words: up to the open quote, else up to the last
    /// word break.
    pub(super) fn before(&self, breaks: &str) -> &str {
        let word = self.words.last().map_or("", String::as_str);
        if self.open.is_some() {
            return word.get(..self.opened_at).unwrap_or_default();
        }
        let end = word.char_indices().rfind(|(_, c)| breaks.contains(*c) && !c.is_whitespace());
        end.map_or("", |(at, c)| &word[..at + c.len_utf8()])
    }

    /// Quotes a candidate: bash inserts it verbatim. `None` if it cannot stand in the open quote.
    pub(super) fn quote(&self, candidate: &str) -> Option<String> {
        let ends = |c: char| match self.open {
            Some('"') => "\"$`\\!".contains(c),
            open => open == Some(c),
        };
        if candidate.contains(ends) {
            return None;
        }
        let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
        let mut quoted = String::new();
        for c in candidate.chars() {
            if self.open.is_none() && !plain(c) {
                quoted.push('\\');
            }
            quoted.push(c);
        }
        Some(quoted)
    }
}

fn push(words: &mut [String], c: Option<char>) {
    if let (Some(word), Some(c)) = (words.last_mut(), c) {
        word.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BREAKS: &str = " \t\n\"'><=;|&(:";

    #[test]
    fn lines_become_words() {
        for (line, words) in [
            ("mswitch", &["mswitch"][..]),
            ("mswitch ", &["mswitch", ""]),
            ("mswitch  port\tsh", &["mswitch", "port", "sh"]),
            ("mswitch '' 'a b' \"c\\\" d\" e\\ f", &["mswitch", "", "a b", "c\" d", "e f"]),
            ("mswitch 'a b", &["mswitch", "a b"]),
            ("mswitch a\\", &["mswitch", "a"]),
        ] {
            assert_eq!(Typed::parse(line).words, words, "{line}");
        }
    }

    #[test]
    fn bash_completes_after_the_last_word_break() {
        for (line, before) in [
            ("m --param age", ""),
            ("m --param ageing=", "ageing="),
            ("m --param=ageing=6", "--param=ageing="),
            ("m wasm:/tmp/f", "wasm:"),
            ("m 'wasm:/tmp/f", ""),
            ("m --param 1='wasm:/tmp/f", "1="),
            ("m --param 1='hub' 2=\"le", "2="),
            ("m wasm: ", ""),
        ] {
            assert_eq!(Typed::parse(line).before(BREAKS), before, "{line}");
        }
        assert_eq!(Typed::parse("m a=b").before(" "), "");
    }

    #[test]
    fn candidates_are_quoted() {
        assert_eq!(Typed::parse("m ").quote("/a b/$c").as_deref(), Some("/a\\ b/\\$c"));
        assert_eq!(Typed::parse("m '").quote("/a b").as_deref(), Some("/a b"));
        assert_eq!(Typed::parse("m ").quote("ageing=60").as_deref(), Some("ageing=60"));
        for (line, candidate) in [("m '", "it's"), ("m \"", "a$b"), ("m \"", "a\"b")] {
            assert_eq!(Typed::parse(line).quote(candidate), None, "{line}{candidate}");
        }
    }
}
