//! Rules: `[tcp|udp] [port N|port N-M] /REGEX/[i] -> ACTION`.

use std::ops::RangeInclusive;

use logic::excerpt::Mistake;
use packet::headers::protocol;
use regex_syntax::hir::Hir;

use crate::pattern;

/// What happens to a packet that completes a match, and to the later packets of its flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// They are dropped.
    Drop,
    /// They go to the port of this name.
    Port(String),
    /// The match is counted, and nothing else happens.
    Count,
}

/// A rule.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    /// The only transport protocol that it applies to, if it names one.
    protocol: Option<u8>,
    /// Ports, one of which a packet comes from or goes to, if it names any.
    ports: Option<RangeInclusive<u16>>,
    pub(crate) pattern: Hir,
    /// The text in front of the arrow, as given.
    pub(crate) expression: String,
    /// The byte of the rule where the expression between the slashes starts.
    pub(crate) pattern_at: usize,
    pub(crate) action: Action,
}

/// Where a packet's payload belongs to, as far as its headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transport {
    /// The transport protocol; `None` if the packet hides it.
    pub(crate) protocol: Option<u8>,
    /// Source and destination port; `None` for all fragments but the first, and if the packet hides them.
    pub(crate) ports: Option<[u16; 2]>,
}

const SHAPE: &str = "expected `[tcp|udp] [port N] /EXPRESSION/ -> ACTION`";
const ACTIONS: &str = "`drop`, `port NAME` or `count`";

impl Rule {
    /// Reads a rule.
    pub(crate) fn read(text: &str) -> Result<Self, Mistake> {
        let open = text.find('/').ok_or_else(|| Mistake::new(text.len(), format!("no `/`: {SHAPE}")))?;
        let (filter, rest) = text.split_at_checked(open).unwrap_or((text, ""));
        let (protocol, ports) = read_filter(filter)?;
        let start = open + 1;
        let rest = rest.get(1..).unwrap_or_default();
        let close = closing(rest).ok_or_else(|| {
            Mistake::new(text.len(), "no `/` ends the expression; write `\\/` for a slash in it")
        })?;
        let (expression, rest) = rest.split_at_checked(close).unwrap_or((rest, ""));
        let (flags, actions) = rest.get(1..).unwrap_or_default().split_once("->").ok_or_else(|| {
            Mistake::new(text.len(), format!("expected `->` and an action behind the expression: {ACTIONS}"))
        })?;
        let flags_at = start + close + 1;
        let ignore_case = match flags.trim_end() {
            "" => false,
            "i" => true,
            other => {
                let blanks = other.len() - other.trim_start().len();
                let message = format!("`{}` is unexpected; only `i` may follow the expression", other.trim());
                return Err(Mistake::new(flags_at + blanks, message));
            }
        };
        let pattern = pattern::read(expression, ignore_case)
            .map_err(|mistake| Mistake { at: mistake.at.map(|at| at + start), ..mistake })?;
        let action = read_action(actions, flags_at + flags.len() + 2)?;
        let shown = text.get(..flags_at + flags.trim_end().len()).unwrap_or(text).trim().to_owned();
        Ok(Self { protocol, ports, pattern, expression: shown, pattern_at: start, action })
    }

    /// Returns whether it applies to a packet. Where a packet hides its headers, it may be any; a later fragment is of
    /// no port.
    #[inline]
    pub(crate) fn applies(&self, to: Transport) -> bool {
        let Some(protocol) = to.protocol else { return true };
        self.protocol.is_none_or(|own| own == protocol)
            && self
                .ports
                .as_ref()
                .is_none_or(|own| to.ports.is_some_and(|ports| ports.iter().any(|port| own.contains(port))))
    }

    /// Returns the ports of a protocol that it applies to; none if it applies to any port.
    pub(crate) fn ports_of(&self, protocol: u8) -> impl Iterator<Item = u16> {
        let ports = self.ports.clone().filter(|_| self.protocol.is_none_or(|own| own == protocol));
        ports.into_iter().flatten()
    }

    /// Returns the text of the action.
    pub(crate) fn action_text(&self) -> String {
        match &self.action {
            Action::Drop => "drop".into(),
            Action::Port(name) => format!("port {name}"),
            Action::Count => "count".into(),
        }
    }
}

/// Returns the place of the first slash that no backslash escapes.
fn closing(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let found = byte == b'/' && !escaped;
        escaped = byte == b'\\' && !escaped;
        found
    })
}

type Filter = (Option<u8>, Option<RangeInclusive<u16>>);

/// Reads the part in front of the expression.
fn read_filter(text: &str) -> Result<Filter, Mistake> {
    let mut at = 0;
    let mut words = text.split(' ').filter_map(|word| {
        let start = at;
        at += word.len() + 1;
        (!word.is_empty()).then_some((start, word))
    });
    let mut word = words.next();
    let protocol = match word {
        Some((_, "tcp")) => Some(protocol::TCP),
        Some((_, "udp")) => Some(protocol::UDP),
        _ => None,
    };
    if protocol.is_some() {
        word = words.next();
    }
    let mut ports = None;
    if let Some((at, "port")) = word {
        let (at, range) = words.next().ok_or_else(|| Mistake::new(at + 4, "a port number is missing"))?;
        let wrong =
            || Mistake::new(at, format!("`{range}` is no port: expected a number or N-M, from 0 to 65535"));
        let number = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>().ok().filter(|_| digits).ok_or_else(wrong)
        };
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let found = number(from)?..=number(to)?;
        if found.is_empty() {
            return Err(wrong());
        }
        ports = Some(found);
        word = words.next();
    }
    match word {
        None => Ok((protocol, ports)),
        Some((at, word)) => Err(Mistake::new(at, format!("`{word}` is unexpected: {SHAPE}"))),
    }
}

/// Reads an action; `at` is the place of its text in the rule.
fn read_action(text: &str, at: usize) -> Result<Action, Mistake> {
    let place = |word: &str| at + text.find(word).unwrap_or(0);
    let mut words = text.split_whitespace();
    let action = match words.next() {
        Some("drop") => Action::Drop,
        Some("count") => Action::Count,
        Some("port") => match words.next() {
            Some(name) => Action::Port(name.into()),
            None => return Err(Mistake::new(at + text.len(), "the name of a port is missing")),
        },
        Some(word) => {
            return Err(Mistake::new(place(word), format!("`{word}` is no action; expected {ACTIONS}")));
        }
        None => return Err(Mistake::new(at + text.len(), format!("an action is missing: {ACTIONS}"))),
    };
    match words.next() {
        None => Ok(action),
        Some(more) => Err(Mistake::new(
            at + text.rfind(more).unwrap_or(0),
            format!("`{more}` is unexpected; a rule has one action"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let read = |text: &str| Rule::read(text).unwrap();
        let rule = read("tcp port 80-81 /^GET \\/evil/i -> drop");
        assert_eq!((rule.protocol, rule.ports.clone()), (Some(6), Some(80..=81)));
        assert_eq!(
            (rule.action.clone(), rule.expression.as_str()),
            (Action::Drop, "tcp port 80-81 /^GET \\/evil/i")
        );
        let to = |protocol, ports| Transport { protocol: Some(protocol), ports };
        assert!(rule.applies(to(6, Some([1, 80]))) && rule.applies(to(6, Some([81, 9]))));
        assert!(!rule.applies(to(6, Some([1, 82]))) && !rule.applies(to(17, Some([1, 80]))));
        assert!(!rule.applies(to(6, None)) && rule.applies(Transport { protocol: None, ports: None }));
        let rule = read("/a->b/->port lab");
        assert_eq!(
            (rule.action.clone(), rule.action_text()),
            (Action::Port("lab".into()), "port lab".into())
        );
        assert!(rule.applies(to(17, None)));
        assert_eq!(read(" udp  /x/ -> count ").action, Action::Count);
    }

    #[test]
    fn mistakes_have_a_place() {
        for (text, at, message) in [
            ("tcp -> drop", 11, "no `/`"),
            ("tcp /a\\/ -> drop", 16, "no `/` ends the expression"),
            ("tpc /a/ -> drop", 0, "`tpc` is unexpected"),
            ("tcp udp /a/ -> drop", 4, "`udp` is unexpected"),
            ("tcp port /a/ -> drop", 8, "a port number is missing"),
            ("tcp port 1-x /a/ -> drop", 9, "`1-x` is no port"),
            ("port 9-8 /a/ -> drop", 5, "`9-8` is no port"),
            ("port 65536 /a/ -> drop", 5, "`65536` is no port"),
            ("tcp /a(b/ -> drop", 6, "unclosed group"),
            ("tcp /ab$/ -> drop", 7, "the only assertion"),
            ("/a/x -> drop", 3, "`x` is unexpected; only `i`"),
            ("/a/", 3, "expected `->`"),
            ("/a/ -> dorp", 7, "`dorp` is no action; expected `drop`"),
            ("/a/ ->", 6, "an action is missing"),
            ("/a/ -> port", 11, "the name of a port is missing"),
            ("/a/ -> drop it", 12, "`it` is unexpected; a rule"),
        ] {
            let mistake = Rule::read(text).unwrap_err();
            assert_eq!(mistake.at, Some(at), "{text}: {}", mistake.message);
            assert!(mistake.message.starts_with(message), "{text}: {}", mistake.message);
        }
    }
}
