//! Reading a logic's parameters: each is known, given once and of its kind; anything else is an error that says so.
//!
//! The only place where a parameter's text becomes a value, for logics that ship with the switch and for those from
//! outside.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use packet::MacAddr;

use crate::LogicError;
use crate::description::{LogicDescription, ParamDefault, ParamDescription, ParamKind, format_duration};

/// Value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamValue {
    /// A whole number.
    Number(u64),
    /// One of the words accepted.
    Choice(String),
    /// On or off.
    Switch(bool),
    /// A text.
    Text(String),
    /// The name of a port.
    Port(String),
    /// A time.
    Duration(Duration),
    /// A MAC address.
    Mac(MacAddr),
    /// An IP address.
    Ip(IpAddr),
}

/// Writes the value as users give it.
impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Choice(text) | Self::Text(text) | Self::Port(text) => f.write_str(text),
            Self::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            Self::Duration(time) => f.write_str(&format_duration(*time)),
            Self::Mac(mac) => mac.fmt(f),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

/// Parameters of a logic: those given and those with a default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values(Vec<(String, ParamValue)>);

impl Values {
    /// Iterates over names and values in the order of the description, followed by those whose names the user supplied.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ParamValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the value of a parameter; `None` if it was not given and has no default.
    pub fn get(&self, name: &str) -> Option<&ParamValue> {
        self.iter().find(|(there, _)| *there == name).map(|(_, value)| value)
    }

    /// Returns a number; 0 if the parameter is none.
    pub fn number(&self, name: &str) -> u64 {
        if let Some(ParamValue::Number(number)) = self.get(name) { *number } else { 0 }
    }

    /// Returns whether a switch is on; false if the parameter is none.
    pub fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name), Some(ParamValue::Switch(true)))
    }

    /// Returns a word, text or name; empty if the parameter is none of these.
    pub fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some(ParamValue::Choice(text) | ParamValue::Text(text) | ParamValue::Port(text)) => text,
            _ => "",
        }
    }

    /// Returns all as users give them.
    pub fn to_text(&self) -> Vec<(String, String)> {
        self.iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect()
    }
}

/// Reads the parameters given to a logic, and adds the defaults of the others.
pub fn check(logic: &LogicDescription, given: &[(String, String)]) -> Result<Values, LogicError> {
    let any = logic.params.iter().find(|param| param.any_name);
    let named = |name: &str| logic.params.iter().find(|param| !param.any_name && param.name == name);
    for (i, (name, _)) in given.iter().enumerate() {
        if any.is_none() && named(name).is_none() {
            return Err(LogicError::unknown_param(logic, name));
        }
        if given.iter().take(i).any(|(earlier, _)| earlier == name) {
            return Err(LogicError::Repeated { logic: logic.name.clone(), param: name.clone() });
        }
    }
    let mut values = Vec::new();
    for param in logic.params.iter().filter(|param| !param.any_name) {
        let text = given.iter().find(|(name, _)| *name == param.name).map(|(_, text)| text);
        match (text, &param.default) {
            (Some(text), _) | (None, ParamDefault::Value(text)) => {
                values.push((param.name.clone(), value(logic, param, &param.name, text)?));
            }
            (None, ParamDefault::Words(_)) => {}
            (None, ParamDefault::Required) => return Err(LogicError::missing(logic, param)),
        }
    }
    for (name, text) in given.iter().filter(|(name, _)| named(name).is_none()) {
        if let Some(param) = any {
            values.push((name.clone(), value(logic, param, name, text)?));
        }
    }
    Ok(Values(values))
}

fn value(
    logic: &LogicDescription,
    param: &ParamDescription,
    name: &str,
    text: &str,
) -> Result<ParamValue, LogicError> {
    read(&param.kind, text)
        .ok_or_else(|| LogicError::bad_value(&logic.name, name, text, param.kind.to_string()))
}

/// Reads a text as a value of this kind.
fn read(kind: &ParamKind, text: &str) -> Option<ParamValue> {
    Some(match kind {
        ParamKind::Number { min, max, .. } => {
            ParamValue::Number(digits(text).filter(|number| (min..=max).contains(&number))?)
        }
        ParamKind::Choice(words) => ParamValue::Choice(words.iter().find(|word| *word == text)?.clone()),
        // In TOML these are booleans.
        ParamKind::Switch => ParamValue::Switch(match text {
            "on" | "true" => true,
            "off" | "false" => false,
            _ => return None,
        }),
        ParamKind::Text { max } => {
            ParamValue::Text(Some(text).filter(|text| text.len() as u64 <= *max)?.into())
        }
        ParamKind::Port => ParamValue::Port(Some(text).filter(|text| !text.is_empty())?.into()),
        ParamKind::Duration { min, max } => {
            ParamValue::Duration(duration(text).filter(|time| (min..=max).contains(&time))?)
        }
        ParamKind::Mac => ParamValue::Mac(text.parse().ok()?),
        ParamKind::Ip => ParamValue::Ip(text.parse().ok()?),
    })
}

/// Reads a whole number; `parse` alone would accept `+1`.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let ms = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    digits(number)?.checked_mul(ms).map(Duration::from_millis)
}

/// Checks a description that came from outside.
pub fn check_description(logic: &LogicDescription) -> Result<(), String> {
    for (i, param) in logic.params.iter().enumerate() {
        let name = &param.name;
        let letter = |byte: u8| match param.any_name {
            true => byte.is_ascii_uppercase() || byte == b'-',
            false => byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-',
        };
        if name.is_empty() || name.len() > 64 || !name.bytes().all(letter) {
            let expected = match param.any_name {
                true => "1 to 64 capital letters and dashes",
                false => "1 to 64 lower-case letters, digits and dashes",
            };
            return Err(format!("invalid parameter name `{}`: expected {expected}", name.escape_default()));
        }
        let earlier = || logic.params.iter().take(i);
        if earlier().any(|other| other.name == *name) {
            return Err(format!("parameter `{name}` is described twice"));
        }
        if param.any_name && earlier().any(|other| other.any_name) {
            return Err(format!(
                "parameter `{name}` is the second with names that users supply; only one may be"
            ));
        }
        let impossible = match &param.kind {
            ParamKind::Number { min, max, .. } => min > max,
            ParamKind::Duration { min, max } => min > max,
            ParamKind::Choice(words) => words.is_empty() || words.iter().any(String::is_empty),
            _ => false,
        };
        if impossible {
            return Err(format!("parameter `{name}` can have no value: expected {}", param.kind));
        }
        if let ParamDefault::Value(text) = &param.default
            && read(&param.kind, text).is_none()
        {
            return Err(format!(
                "invalid default `{}` of parameter `{name}`: expected {}",
                text.escape_default(),
                param.kind
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logic(params: Vec<ParamDescription>) -> LogicDescription {
        LogicDescription {
            name: "probe".into(),
            summary: "tries".into(),
            params,
            ..LogicDescription::default()
        }
    }

    fn one(kind: ParamKind) -> LogicDescription {
        logic(vec![ParamDescription::new("x", kind, "under test")])
    }

    fn given(given: &[(&str, &str)]) -> Vec<(String, String)> {
        given.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    /// Returns the value of `x=text`, or what is expected instead.
    fn x(kind: &ParamKind, text: &str) -> Result<ParamValue, String> {
        match check(&one(kind.clone()), &given(&[("x", text)])) {
            Ok(values) => Ok(values.get("x").unwrap().clone()),
            Err(LogicError::BadValue { expected, .. }) => Err(expected),
            Err(other) => panic!("{other}"),
        }
    }

    /// A kind, values that it reads, texts that it refuses, and its description of the accepted values.
    type Case<'a> = (ParamKind, &'a [(&'a str, ParamValue)], &'a [&'a str], &'a str);

    #[test]
    fn each_kind_reads_its_own_text_and_describes_the_accepted_values() {
        let time = |ms| ParamValue::Duration(Duration::from_millis(ms));
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
        let number = ParamKind::number(2..=9, "ports");
        let cases: &[Case<'_>] = &[
            (
                number,
                &[("2", ParamValue::Number(2)), ("9", ParamValue::Number(9))],
                &["1", "10", "", "+3", "-3", "3.0", "x", "99999999999999999999999"],
                "a whole number of ports from 2 to 9",
            ),
            (
                ParamKind::number(0..=u64::MAX, ""),
                &[("18446744073709551615", ParamValue::Number(u64::MAX))],
                &["18446744073709551616"],
                "a whole number from 0",
            ),
            (
                ParamKind::choice(&["a", "b", "c"]),
                &[("b", ParamValue::Choice("b".into()))],
                &["", "B", "d"],
                "`a`, `b` or `c`",
            ),
            (
                ParamKind::Switch,
                &[("on", ParamValue::Switch(true)), ("off", ParamValue::Switch(false))],
                &["yes", "1", ""],
                "`on` or `off`",
            ),
            (
                ParamKind::Text { max: 3 },
                &[("", ParamValue::Text("".into())), ("äb", ParamValue::Text("äb".into()))],
                &["four", "äbc"],
                "a text of up to 3 bytes",
            ),
            (ParamKind::Port, &[("vm1", ParamValue::Port("vm1".into()))], &[""], "the name of a port"),
            (
                ParamKind::Duration { min: second, max: day },
                &[
                    ("1500ms", time(1500)),
                    ("90s", time(90_000)),
                    ("5m", time(300_000)),
                    ("24h", time(86_400_000)),
                ],
                &[
                    "999ms",
                    "25h",
                    "",
                    "s",
                    "1d",
                    "-1s",
                    "1.5s",
                    "99999999999999999999h",
                    "18446744073709551615h",
                ],
                "a time from 1s to 24h, such as 500ms, 30s or 5m",
            ),
            (
                ParamKind::Mac,
                &[("02:00:00:00:00:0a", ParamValue::Mac(MacAddr([2, 0, 0, 0, 0, 10])))],
                &["", "02:00", "02:00:00:00:00:zz"],
                "a MAC address such as 02:00:00:00:00:01",
            ),
            (
                ParamKind::Ip,
                &[("192.0.2.1", ParamValue::Ip([192, 0, 2, 1].into()))],
                &["", "192.0.2", "192.0.2.1/24"],
                "an IPv4 or IPv6 address",
            ),
        ];
        for (kind, right, wrong, expected) in cases {
            for (text, value) in *right {
                assert_eq!(x(kind, text).as_ref(), Ok(value), "{text}");
                assert_eq!(value.to_string(), *text);
            }
            for text in *wrong {
                assert_eq!(x(kind, text), Err((*expected).to_owned()), "`{text}`");
            }
        }
        assert_eq!(x(&ParamKind::Switch, "true"), Ok(ParamValue::Switch(true)));
        assert_eq!(x(&ParamKind::Duration { min: second, max: day }, "60"), Ok(time(60_000)));
        assert_eq!(format_duration(Duration::ZERO), "0s");
    }

    #[test]
    fn missing_parameters_have_their_default_or_none() {
        let logic = logic(vec![
            ParamDescription::new("rate", ParamKind::number(1..=10, ""), "").or(3),
            ParamDescription::new("log", ParamKind::Switch, "").or("off"),
            ParamDescription::new("to", ParamKind::Port, "").optional("nowhere"),
            ParamDescription::new("secret", ParamKind::Text { max: 9 }, "opens the door"),
        ]);
        let values = check(&logic, &given(&[("secret", "s"), ("log", "on")])).unwrap();
        assert_eq!((values.number("rate"), values.is_on("log"), values.text("secret")), (3, true, "s"));
        assert_eq!((values.get("to"), values.number("secret"), values.text("rate")), (None, 0, ""));
        assert_eq!(values.to_text(), given(&[("rate", "3"), ("log", "on"), ("secret", "s")]));
        assert_eq!(
            check(&logic, &[]).unwrap_err().to_string(),
            "logic `probe` needs parameter `secret` (opens the door): a text of up to 9 bytes is expected; \
             add it as secret=VALUE"
        );
        assert_eq!(
            check(&logic, &given(&[("secrets", "s")])).unwrap_err().to_string(),
            "logic `probe` has no parameter `secrets`, did you mean `secret`? \
             Its parameters are: rate, log, to, secret"
        );
        let none = self::logic(vec![]);
        assert_eq!(
            check(&none, &given(&[("a", "b")])).unwrap_err().to_string(),
            "logic `probe` has no parameter `a`; it has none"
        );
    }

    #[test]
    fn users_may_supply_names() {
        let port = ParamDescription::new("PORT", ParamKind::Port, "").optional("none").of_any_name();
        let logic = logic(vec![port, ParamDescription::new("log", ParamKind::Switch, "").or("off")]);
        let values = check(&logic, &given(&[("b", "x"), ("log", "on"), ("a", "y")])).unwrap();
        assert_eq!(values.to_text(), given(&[("log", "on"), ("b", "x"), ("a", "y")]));
        let twice = check(&logic, &given(&[("a", "x"), ("a", "x")])).unwrap_err().to_string();
        assert_eq!(twice, "parameter `a` of logic `probe` is given twice; give it once");
    }

    #[test]
    fn senseless_descriptions_are_refused() {
        let param = |name: &str, kind| ParamDescription::new(name, kind, "");
        assert_eq!(check_description(&one(ParamKind::Ip)), Ok(()));
        for (params, wrong) in [
            (vec![param("", ParamKind::Ip)], "invalid parameter name ``"),
            (
                vec![param("A b", ParamKind::Ip)],
                "invalid parameter name `A b`: expected 1 to 64 lower-case letters, digits and dashes",
            ),
            (vec![param("a\n", ParamKind::Ip)], "invalid parameter name `a\\n`"),
            (vec![param("a", ParamKind::Ip), param("a", ParamKind::Mac)], "`a` is described twice"),
            (
                vec![param("A", ParamKind::Ip).of_any_name(), param("B", ParamKind::Ip).of_any_name()],
                "`B` is the second with names that users supply",
            ),
            (
                vec![param("a", ParamKind::Number { min: 2, max: 1, unit: "".into() })],
                "`a` can have no value",
            ),
            (vec![param("a", ParamKind::choice(&[]))], "`a` can have no value"),
            (
                vec![param("a", ParamKind::Switch).or("maybe")],
                "invalid default `maybe` of parameter `a`: expected `on` or `off`",
            ),
        ] {
            let said = check_description(&logic(params)).unwrap_err();
            assert!(said.contains(wrong), "{said}");
        }
    }
}
