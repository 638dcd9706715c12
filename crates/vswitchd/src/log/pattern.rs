//! Patterns of the log's lines (`vlog/set PATTERN:destination:pattern`; ovs-appctl(8)).

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// Format of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Value { what: char, left: bool, zeros: bool, width: usize },
}

/// What a line tells.
pub(super) struct Line<'a> {
    /// Time with its milliseconds, UTC.
    pub(super) time: &'a str,
    pub(super) number: u64,
    pub(super) module: &'a str,
    pub(super) level: &'a str,
    pub(super) message: &'a str,
    /// Milliseconds since the start.
    pub(super) running: u128,
}

/// Values that patterns can have. Times have one format, whatever is in braces behind them.
const VALUES: &str = "AcDdmnNpPrtT";

impl Default for Pattern {
    fn default() -> Self {
        let value = |what, width| Part::Value { what, left: false, zeros: width > 0, width };
        let bar = || Part::Text("|".into());
        let parts = [('D', 0), ('N', 5), ('c', 0), ('p', 0)];
        let head = parts.into_iter().flat_map(|(what, width)| [value(what, width), bar()]);
        Self(head.chain([value('m', 0)]).collect())
    }
}

impl Pattern {
    /// Reads a pattern, such as `%c|%p|%m`. What is no value stands for itself.
    pub(crate) fn of(text: &str) -> Self {
        let (mut parts, mut plain) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = rest.strip_prefix(c).unwrap_or_default();
            let Some((value, behind)) = (c == '%').then(|| value(rest)).flatten() else {
                // A doubled sign is one.
                if c == '%' && rest.starts_with('%') {
                    rest = rest.get(1..).unwrap_or_default();
                }
                plain.push(c);
                continue;
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(value);
            rest = behind;
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Self(parts)
    }

    /// Returns a line.
    pub(super) fn line(&self, line: &Line<'_>) -> String {
        let mut all = String::new();
        for part in &self.0 {
            let (what, left, zeros, width) = match part {
                Part::Text(text) => {
                    all += text;
                    continue;
                }
                Part::Value { what, left, zeros, width } => (*what, *left, *zeros, *width),
            };
            let value = match what {
                'A' => "ovs-vswitchd".to_owned(),
                'c' => line.module.to_owned(),
                'D' | 'd' => line.time.to_owned(),
                'm' => line.message.to_owned(),
                'n' => "\n".to_owned(),
                'N' => line.number.to_string(),
                'p' => line.level.to_owned(),
                'P' => std::process::id().to_string(),
                'r' => line.running.to_string(),
                // Threads have no names in this log.
                _ => String::new(),
            };
            // Writing to a string does not fail.
            let _ = match (left, zeros) {
                (true, _) => write!(all, "{value:<width$}"),
                (false, true) => write!(all, "{value:0>width$}"),
                (false, false) => write!(all, "{value:>width$}"),
            };
        }
        all
    }
}

/// Reads a value behind its sign; returns what is behind it, too.
fn value(text: &str) -> Option<(Part, &str)> {
    let behind = text.strip_prefix('-');
    let (left, text) = (behind.is_some(), behind.unwrap_or(text));
    let zeros = text.starts_with('0');
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (width, text) = text.split_at_checked(digits)?;
    // Wider than any line is a mistake.
    let width = width.parse().unwrap_or(0).min(usize::from(u8::MAX));
    let what = text.chars().next().filter(|what| VALUES.contains(*what))?;
    let text = text.strip_prefix(what)?;
    let behind = match text.strip_prefix('{').and_then(|inside| inside.split_once('}')) {
        Some((_, behind)) if matches!(what, 'd' | 'D') => behind,
        _ => text,
    };
    Some((Part::Value { what, left, zeros, width }, behind))
}

/// The patterns of the destinations; they can be changed while lines are written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patterns {
    pub(super) console: Shared,
    pub(super) file: Shared,
}

/// A pattern that can be changed.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Arc<Pattern>>>);

impl Shared {
    pub(super) fn get(&self) -> Arc<Pattern> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, pattern: &Arc<Pattern>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pattern.clone();
    }
}

impl Patterns {
    /// Applies a specification such as `PATTERN:file:%m`; `None` if it is not about patterns.
    pub(crate) fn apply(&self, spec: &str) -> Option<Result<(), String>> {
        let (word, rest) = spec.split_once(':')?;
        if !word.eq_ignore_ascii_case("pattern") {
            return None;
        }
        let Some((destination, text)) = rest.split_once(':') else {
            return Some(Err("missing destination".into()));
        };
        let pattern = Arc::new(Pattern::of(text));
        let destination = destination.to_ascii_lowercase();
        match destination.as_str() {
            "any" => [&self.console, &self.file].iter().for_each(|it| it.set(&pattern)),
            "console" => self.console.set(&pattern),
            "file" => self.file.set(&pattern),
            "syslog" => {}
            other => return Some(Err(format!("unknown destination \"{other}\""))),
        }
        Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Line<'_> =
        Line { time: "T", number: 7, module: "dpif", level: "DBG", message: "hello", running: 1234 };

    #[test]
    fn lines_follow_their_pattern() {
        for (pattern, expected) in [
            ("%c|%p|%m", "dpif|DBG|hello"),
            ("%D{%Y-%m-%d}|%05N|%c%T|%p|%m", "T|00007|dpif|DBG|hello"),
            ("[%-6p][%6p] %r %t%n", "[DBG   ][   DBG] 1234 \n"),
            ("100%% of %A: %m, %q %", "100% of ovs-vswitchd: hello, %q %"),
            ("%d{x %m", "T{x hello"),
            ("", ""),
        ] {
            assert_eq!(Pattern::of(pattern).line(&LINE), expected, "{pattern}");
        }
        assert_eq!(Pattern::default().line(&LINE), "T|00007|dpif|DBG|hello");
    }

    #[test]
    fn destinations_have_patterns() {
        let patterns = Patterns::default();
        assert_eq!(patterns.apply("dpif:dbg"), None);
        assert_eq!(patterns.apply("PATTERN:file:%m"), Some(Ok(())));
        assert_eq!(
            (patterns.file.get().line(&LINE), patterns.console.get().line(&LINE).len()),
            ("hello".into(), 22)
        );
        assert_eq!(patterns.apply("pattern:ANY:a:%p"), Some(Ok(())));
        assert_eq!(patterns.console.get().line(&LINE), "a:DBG");
        assert!(patterns.apply("PATTERN:paper:%m").unwrap().is_err());
        assert!(patterns.apply("PATTERN:file").unwrap().is_err());
    }
}
