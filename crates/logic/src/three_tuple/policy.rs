//! Rules that say which clients may reserve what, as one text: rules between semicolons, each of `KEY=VALUE` words.
//!
//! ```text
//! uid=1000 port=stack1 protocol=tcp address=192.0.2.1 ports=8000-8999; gid=33 ports=80
//! ```
//!
//! Invariants: each rule names a user or a group, so that none is open to everyone by mistake; a key that a rule does
//! not name matches everything; root may reserve everything.

use std::net::IpAddr;

use super::request::{Endpoints, LocalPorts, Protocol, parse_address};

/// The rules of a bridge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Policy {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rule {
    uid: Option<u32>,
    gid: Option<u32>,
    port: Option<String>,
    protocol: Option<Protocol>,
    address: Option<IpAddr>,
    ports: Option<LocalPorts>,
}

/// User and group of a client, as the kernel vouches for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Policy {
    /// Reads the rules.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let rules = text.split(';').filter(|rule| !rule.trim().is_empty()).map(Rule::parse);
        Ok(Self { rules: rules.collect::<Result<_, _>>()? })
    }

    /// Returns whether no client but root may reserve anything.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns whether any rule names the client.
    pub(super) fn knows(&self, client: Credentials) -> bool {
        client.uid == 0 || self.rules.iter().any(|rule| rule.is_for(client))
    }

    /// Returns whether a client may reserve endpoints for a port: one rule has to allow all of them.
    pub(super) fn allows(&self, client: Credentials, port: &str, endpoints: &Endpoints) -> bool {
        client.uid == 0 || self.rules.iter().any(|rule| rule.is_for(client) && rule.covers(port, endpoints))
    }
}

impl Rule {
    fn parse(text: &str) -> Result<Self, String> {
        let mut rule = Self::default();
        let text = text.trim();
        for word in text.split_ascii_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse().map_err(|_| format!("`{value}` is not a number, in rule `{text}`"));
            let wrong = |error: super::request::RequestError| format!("{error}, in rule `{text}`");
            match key {
                "uid" => rule.uid = Some(number()?),
                "gid" => rule.gid = Some(number()?),
                "port" if !value.is_empty() => rule.port = Some(value.into()),
                "protocol" => rule.protocol = Some(value.parse().map_err(wrong)?),
                "address" => rule.address = Some(parse_address(value).map_err(wrong)?),
                "ports" => rule.ports = Some(value.parse().map_err(wrong)?),
                _ => {
                    let keys = "`uid=`, `gid=`, `port=`, `protocol=`, `address=` or `ports=`";
                    return Err(format!("`{word}` is not a condition: {keys} is expected, in rule `{text}`"));
                }
            }
        }
        match rule.uid.or(rule.gid) {
            Some(_) => Ok(rule),
            None => Err(format!("rule `{text}` names neither `uid=` nor `gid=`")),
        }
    }

    fn is_for(&self, client: Credentials) -> bool {
        self.uid.is_none_or(|uid| uid == client.uid) && self.gid.is_none_or(|gid| gid == client.gid)
    }

    fn covers(&self, port: &str, endpoints: &Endpoints) -> bool {
        self.port.as_ref().is_none_or(|it| it == port)
            && self.protocol.is_none_or(|it| it == endpoints.protocol)
            && self.address.is_none_or(|it| it == endpoints.address)
            && self.ports.is_none_or(|it| it.contain(endpoints.ports))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_condition_has_to_hold() {
        let rules = "uid=1000 port=s1 protocol=tcp address=192.0.2.1 ports=80-89; gid=33 ports=443;";
        let policy = Policy::parse(rules).unwrap();
        let may = |uid, gid, port: &str, endpoints: &str| {
            let words: Vec<_> = endpoints.split(' ').collect();
            let endpoints = Endpoints::parse(words[0], words[1], words[2]).unwrap();
            policy.allows(Credentials { uid, gid }, port, &endpoints)
        };
        assert!(may(1000, 7, "s1", "tcp 192.0.2.1 80") && may(1000, 7, "s1", "tcp 192.0.2.1 80-89"));
        for (uid, gid, port, endpoints) in [
            (1001, 7, "s1", "tcp 192.0.2.1 80"),
            (1000, 7, "s2", "tcp 192.0.2.1 80"),
            (1000, 7, "s1", "udp 192.0.2.1 80"),
            (1000, 7, "s1", "tcp 192.0.2.2 80"),
            (1000, 7, "s1", "tcp 192.0.2.1 80-90"),
            (1000, 7, "s1", "tcp 192.0.2.1 443"),
        ] {
            assert!(!may(uid, gid, port, endpoints), "{uid} {gid} {port} {endpoints}");
        }
        assert!(may(5, 33, "any", "sctp 2001:db8::1 443") && may(0, 0, "any", "tcp 192.0.2.9 1"));
        assert!(
            policy.knows(Credentials { uid: 5, gid: 33 }) && !policy.knows(Credentials { uid: 5, gid: 5 })
        );
        let none = Policy::parse(" ; ").unwrap();
        assert!(none.is_empty() && none.knows(Credentials { uid: 0, gid: 5 }));
    }

    #[test]
    fn wrong_rules_are_named() {
        for (text, expected) in [
            ("port=s1", "rule `port=s1` names neither"),
            ("uid=1;user=2", "`user=2` is not a condition"),
            ("uid=x", "`x` is not a number, in rule `uid=x`"),
            ("uid=1 port=", "`port=` is not a condition"),
            ("uid=1 ports=0", "`0` is not a port or a range of ports"),
            ("uid=1 address=here", "`here` is not an IPv4"),
            ("gid=1 protocol=icmp", "`icmp` is not a protocol"),
        ] {
            let error = Policy::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
