//! Rules: `EXPRESSION -> ACTION, ...`.
//!
//! Actions are read from left to right: any number of `set`, then at most one verdict. Without a verdict, the next
//! expression's turn comes.

use packet::ether::MacAddr;

use crate::edit::Edit;
use logic::excerpt::Mistake;

/// Separates an expression from its actions. No expression contains it.
const ARROW: &str = "->";

/// The fate of a packet that a rule's expression keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is dropped.
    Drop,
    /// It goes to the port of this name.
    Port(String),
    /// No further expression sees it: it is left as if none kept it.
    Pass,
    /// The next expression's turn comes.
    Next,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) expression: String,
    /// The actions as given.
    pub(crate) actions: String,
    pub(crate) edits: Vec<Edit>,
    pub(crate) verdict: Verdict,
}

/// Description of the actions, for errors.
const ACTIONS: &str = "`drop`, `port NAME`, `pass`, `next` or `set FIELD VALUE`";

impl Rule {
    /// Reads a rule. The expression is not checked.
    pub(crate) fn read(text: &str) -> Result<Self, Mistake> {
        let (expression, actions) = text
            .split_once(ARROW)
            .ok_or_else(|| Mistake::new(text.len(), format!("expected `{ARROW}` and actions: {ACTIONS}")))?;
        let start = expression.len() + ARROW.len();
        let expression = expression.trim();
        if expression.is_empty() {
            return Err(Mistake::new(0, "the expression is missing; `len >= 0` keeps every packet"));
        }
        let mut rule = Self {
            expression: expression.into(),
            actions: actions.trim().into(),
            edits: vec![],
            verdict: Verdict::Next,
        };
        let mut at = start;
        let mut decided = false;
        for action in actions.split(',') {
            let first = at + (action.len() - action.trim_start().len());
            if decided {
                return Err(Mistake::new(first, "the rule is decided before this action: put it in front"));
            }
            decided = rule.action(action.trim(), first)?;
            at += action.len() + 1;
        }
        Ok(rule)
    }

    /// Reads an action that starts at `at`. Returns whether it is a verdict.
    fn action(&mut self, action: &str, at: usize) -> Result<bool, Mistake> {
        let mut words = action.split_whitespace();
        let place = |word: &str| at + action.find(word).unwrap_or(0);
        let words = [(); 4].map(|()| words.next());
        self.verdict = match words {
            [Some("drop"), None, ..] => Verdict::Drop,
            [Some("pass"), None, ..] => Verdict::Pass,
            [Some("next"), None, ..] => Verdict::Next,
            [Some("port"), Some(name), None, _] => Verdict::Port(name.into()),
            [Some("set"), Some(field), Some(value), None] => {
                self.edits.push(edit(field, value).map_err(|(word, message)| {
                    Mistake::new(at + action.rfind(word).unwrap_or(0), message)
                })?);
                return Ok(false);
            }
            [None, ..] => return Err(Mistake::new(at, format!("an action is missing: {ACTIONS}"))),
            [Some("port"), None, ..] => {
                return Err(Mistake::new(at + action.len(), "the name of a port is missing"));
            }
            [Some("set"), ..] => {
                let expected = "expected `set FIELD VALUE`, such as `set ttl 64`";
                return Err(Mistake::new(at, expected));
            }
            [Some("drop" | "pass" | "next"), Some(more), ..] | [Some("port"), Some(_), Some(more), _] => {
                let message = format!("`{more}` is unexpected; separate actions by commas");
                return Err(Mistake::new(place(more), message));
            }
            [Some(word), ..] => {
                return Err(Mistake::new(at, format!("`{word}` is no action; expected {ACTIONS}")));
            }
        };
        Ok(true)
    }
}

/// Reads an edit; an error has the word that is wrong.
fn edit<'a>(field: &'a str, value: &'a str) -> Result<Edit, (&'a str, String)> {
    let number = |most: u16, what: &str, least: u16| {
        let digits = value.bytes().all(|byte| byte.is_ascii_digit()); // `parse` alone accepts `+1`
        let number = value.parse().ok().filter(|number| digits && (least..=most).contains(number));
        number.ok_or_else(|| (value, format!("`{value}` is no {what}: expected {least} to {most}")))
    };
    let mac = || {
        let message = || (value, format!("`{value}` is no MAC address such as 02:00:00:00:00:01"));
        value.parse::<MacAddr>().map_err(|_| message())
    };
    Ok(match field {
        "vlan" => Edit::Vlan(number(4094, "VLAN (0: no tag)", 0)?),
        "mac-src" => Edit::Source(mac()?),
        "mac-dst" => Edit::Destination(mac()?),
        "ttl" => Edit::Ttl(number(255, "time to live", 1)? as u8),
        "dscp" => Edit::Dscp(number(packet::dscp::MAX.into(), "code point", 0)? as u8),
        _ => {
            let expected = "expected `vlan`, `mac-src`, `mac-dst`, `ttl` or `dscp`";
            return Err((field, format!("`{field}` cannot be set: {expected}")));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let read = |text: &str| {
            let rule = Rule::read(text).unwrap();
            (rule.expression, rule.edits, rule.verdict)
        };
        assert_eq!(read("tcp port 23 -> drop"), ("tcp port 23".into(), vec![], Verdict::Drop));
        assert_eq!(read("arp->port a.b"), ("arp".into(), vec![], Verdict::Port("a.b".into())));
        assert_eq!(read(" arp -> next "), ("arp".into(), vec![], Verdict::Next));
        let edits = vec![Edit::Vlan(7), Edit::Ttl(64), Edit::Source(MacAddr([2, 0, 0, 0, 0, 1]))];
        let text = "ip -> set vlan 7,set ttl  64, set mac-src 02:00:00:00:00:01, pass";
        assert_eq!(read(text), ("ip".into(), edits, Verdict::Pass));
        assert_eq!(read("ip -> set dscp 46"), ("ip".into(), vec![Edit::Dscp(46)], Verdict::Next));
        assert_eq!(Rule::read("ip ->  set dscp 46,next ").unwrap().actions, "set dscp 46,next");
    }

    #[test]
    fn mistakes_have_a_place() {
        for (text, at, message) in [
            ("tcp port 23", 11, "expected `->` and actions: `drop`, "),
            (" -> drop", 0, "the expression is missing"),
            ("tcp ->", 6, "an action is missing"),
            ("tcp -> drop,", 12, "the rule is decided before"),
            ("tcp -> next, drop", 13, "the rule is decided before"),
            ("tcp -> dorp", 7, "`dorp` is no action; expected `drop`"),
            ("tcp -> port", 11, "the name of a port is missing"),
            ("tcp -> port a b", 14, "`b` is unexpected"),
            ("tcp -> drop it", 12, "`it` is unexpected"),
            ("tcp -> set ttl", 7, "expected `set FIELD VALUE`"),
            ("tcp -> set ttl 0, drop", 15, "`0` is no time to live: expected 1 to 255"),
            ("tcp -> set ttl +1", 15, "`+1` is no time"),
            ("tcp -> set vlan 4095", 16, "`4095` is no VLAN (0: no tag): expected 0 to 4094"),
            ("tcp -> set mac-src 1", 19, "`1` is no MAC address"),
            ("tcp -> set tos 1", 11, "`tos` cannot be set"),
        ] {
            let mistake = Rule::read(text).unwrap_err();
            assert_eq!(mistake.at, Some(at), "{text}: {}", mistake.message);
            assert!(mistake.message.starts_with(message), "{text}: {}", mistake.message);
        }
    }
}
