//! A mistake in a text: the message, the text, and a caret under the place. For logics whose parameters are languages.

/// A mistake in a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The byte where it is, if that is known; the text's length means its end.
    pub at: Option<usize>,
    /// The reason.
    pub message: String,
}

impl Mistake {
    /// Makes a mistake at byte `at`.
    pub fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at: Some(at), message: message.into() }
    }
}

/// Characters shown before the place, and behind it.
const BEFORE: usize = 60;
const BEHIND: usize = 30;

/// Writes a mistake with the text around it.
pub fn show(text: &str, mistake: &Mistake) -> String {
    let at = mistake.at.unwrap_or(0).min(text.len());
    let (before, behind) = text.split_at_checked(at).unwrap_or((text, ""));
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let skipped = before.chars().count().saturating_sub(BEFORE);
    let mut line: String = before.chars().skip(skipped).map(plain).collect();
    if skipped > 0 {
        line.insert_str(0, "...");
    }
    let column = line.chars().count();
    let room = BEFORE + BEHIND - column.min(BEFORE);
    line.extend(behind.chars().take(room).map(plain));
    if behind.chars().nth(room).is_some() {
        line.push_str("...");
    }
    match mistake.at {
        Some(_) => format!("{}\n  {line}\n  {}^", mistake.message, " ".repeat(column)),
        None => format!("{}\n  {line}", mistake.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_is_under_the_place() {
        let shown = |text: &str, at| show(text, &Mistake { at, message: "no".into() });
        assert_eq!(shown("tcp prot 23", Some(4)), "no\n  tcp prot 23\n      ^");
        assert_eq!(shown("ü prot", Some(3)), "no\n  ü prot\n    ^");
        assert_eq!(shown("tcp", Some(3)), "no\n  tcp\n     ^");
        assert_eq!(shown("tcp\nudp", None), "no\n  tcp udp");
        let long = "port 80 or ".repeat(20);
        let shown = shown(&long, Some(110));
        let [message, line, caret] = *shown.split('\n').collect::<Vec<_>>() else { panic!() };
        assert_eq!((message, line.len(), caret.len()), ("no", 2 + 3 + 60 + 30 + 3, 2 + 3 + 60 + 1), "{line}");
        assert!(line.starts_with("  ...") && line.ends_with("..."), "{line}");
    }
}
