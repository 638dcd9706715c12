//! Port numbers that functions ask for: reading the lists, and finding the function of a packet.
//!
//! A list is `80/tcp,8000-8099/tcp,53,dst:123/udp,fragments`: port numbers and ranges, of TCP, of UDP or of both, as
//! destination, as source or as either.
//!
//! Invariant: a packet finds its function with two loads, whatever the number of functions and ranges.

use std::fmt;
use std::ops::RangeInclusive;

use packet::Conversation;
use packet::headers::protocol;

/// What users write, for errors.
pub(super) const EXPECTED: &str = "a list of port numbers and ranges such as `80/tcp,8000-8099/tcp,53,dst:123/udp`, \
                                   or `fragments`,";

/// One item of a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// Packets with a port number in a range.
    Ports {
        /// Whether it is the sender's or the receiver's; `None`: either.
        end: Option<End>,
        /// [`protocol::TCP`] or [`protocol::UDP`]; `None`: both.
        protocol: Option<u8>,
        /// First and last number.
        first: u16,
        /// See `first`.
        last: u16,
    },
    /// Fragments of TCP and UDP packets, most of which have no port numbers.
    Fragments,
}

/// An end of a packet's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    /// The sender.
    Source,
    /// The receiver.
    Destination,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Item::Ports { end, protocol, first, last } = self else { return f.write_str("fragments") };
        f.write_str(match end {
            None => "",
            Some(End::Source) => "src:",
            Some(End::Destination) => "dst:",
        })?;
        if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }?;
        f.write_str(match *protocol {
            None => "",
            Some(protocol::TCP) => "/tcp",
            Some(_) => "/udp",
        })
    }
}

/// A list: its items in order, each once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct List(pub(super) Vec<Item>);

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(place, item)| {
            f.write_str(if place > 0 { "," } else { "" })?;
            item.fmt(f)
        })
    }
}

/// Reads a list; `None` if it is none.
pub(super) fn read(text: &str) -> Option<List> {
    let mut items = text.split(',').map(|item| read_item(item.trim())).collect::<Option<Vec<_>>>()?;
    items.sort();
    items.dedup();
    Some(List(items))
}

fn read_item(text: &str) -> Option<Item> {
    if text == "fragments" {
        return Some(Item::Fragments);
    }
    let (end, text) = match text.split_once(':') {
        None => (None, text),
        Some(("src", rest)) => (Some(End::Source), rest),
        Some(("dst", rest)) => (Some(End::Destination), rest),
        Some(_) => return None,
    };
    let (numbers, protocol) = match text.split_once('/') {
        None => (text, None),
        Some((numbers, "tcp")) => (numbers, Some(protocol::TCP)),
        Some((numbers, "udp")) => (numbers, Some(protocol::UDP)),
        Some(_) => return None,
    };
    let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some(Item::Ports { end, protocol, first, last })
}

/// Reads a port number; `parse` alone would accept `+1`.
fn number(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A function, by its number from 0.
pub(super) type Function = u8;

/// No function.
pub(super) const NONE: Function = Function::MAX;

const PORTS: usize = 1 << 16;

/// The function of each port number: protocol by protocol, for source and for destination.
pub(super) struct Rules {
    tcp: Ends,
    udp: Ends,
    fragments: Function,
}

struct Ends {
    source: Box<[Function; PORTS]>,
    destination: Box<[Function; PORTS]>,
}

impl Default for Ends {
    fn default() -> Self {
        let none = || Box::new([NONE; PORTS]);
        Self { source: none(), destination: none() }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self { tcp: Ends::default(), udp: Ends::default(), fragments: NONE }
    }
}

impl Rules {
    /// Gives an item's packets to a function. On failure returns the function that has some of them already.
    pub(super) fn add(&mut self, item: &Item, function: Function) -> Result<(), Function> {
        let Item::Ports { end, protocol, first, last } = item else {
            return give(std::slice::from_mut(&mut self.fragments), 0..=0, function);
        };
        let protocols = [(protocol::TCP, &mut self.tcp), (protocol::UDP, &mut self.udp)];
        for (_, ends) in protocols.into_iter().filter(|(own, _)| protocol.is_none_or(|only| only == *own)) {
            if *end != Some(End::Destination) {
                give(&mut ends.source[..], usize::from(*first)..=usize::from(*last), function)?;
            }
            if *end != Some(End::Source) {
                give(&mut ends.destination[..], usize::from(*first)..=usize::from(*last), function)?;
            }
        }
        Ok(())
    }

    /// Returns the function of a packet. If both of its ports name one, it is the first, so that both directions meet
    /// the same.
    #[inline(always)]
    pub(super) fn find(&self, packet: &Conversation) -> Function {
        if packet.fragment {
            return self.fragments;
        }
        let ends = if packet.protocol == protocol::TCP { &self.tcp } else { &self.udp };
        // Indexes of 16 bits lie in arrays of 65,536.
        ends.source[usize::from(packet.source)].min(ends.destination[usize::from(packet.destination)])
    }
}

fn give(table: &mut [Function], range: RangeInclusive<usize>, function: Function) -> Result<(), Function> {
    for place in table.get_mut(range).into_iter().flatten() {
        if *place != NONE && *place != function {
            return Err(*place);
        }
        *place = function;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for (text, same) in [
            ("80/tcp", "80/tcp"),
            (" 443 , 80/udp,443", "443,80/udp"),
            (
                "8000-8099/tcp,dst:53,src:0-65535/udp,fragments",
                "8000-8099/tcp,src:0-65535/udp,dst:53,fragments",
            ),
        ] {
            assert_eq!(read(text).unwrap().to_string(), same, "{text}");
        }
        for text in [
            "",
            ",",
            "80,",
            "http",
            "80/sctp",
            "tcp/80",
            "65536",
            "-1",
            "9-8",
            "+80",
            "80-",
            "to:80",
            "dst:",
            "src:fragments",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    /// A TCP packet, or a UDP one, by its ports.
    fn find(rules: &Rules, protocol: u8, source: u16, destination: u16) -> Function {
        let mut frame = [[2; 12].as_slice(), &[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol]].concat();
        frame.extend([0; 10]);
        frame.extend([source.to_be_bytes(), destination.to_be_bytes()].concat());
        rules.find(&Conversation::of(&frame).unwrap())
    }

    fn rules(lists: &[&str]) -> Result<Rules, (usize, Function)> {
        let mut rules = Rules::default();
        for (number, list) in lists.iter().enumerate() {
            for item in read(list).unwrap().0 {
                rules.add(&item, number as Function).map_err(|holder| (number, holder))?;
            }
        }
        Ok(rules)
    }

    #[test]
    fn packets_find_their_function() {
        let rules = rules(&["80/tcp,dst:53", "8000-8099", "src:123/udp,fragments"]).unwrap();
        for (protocol, source, destination, function) in [
            (6, 1, 80, 0),
            (6, 80, 1, 0),
            (17, 1, 80, NONE),
            (17, 1, 53, 0),
            (6, 53, 1, NONE),
            (6, 7999, 8099, 1),
            (17, 8100, 7999, NONE),
            (17, 123, 1, 2),
            (17, 1, 123, NONE),
            (6, 8000, 80, 0),
            (6, 80, 8000, 0),
        ] {
            assert_eq!(
                find(&rules, protocol, source, destination),
                function,
                "{protocol} {source} {destination}"
            );
        }
    }

    #[test]
    fn overlaps_name_the_holder() {
        assert_eq!(rules(&["80/tcp", "1-1000"]).err(), Some((1, 0)));
        assert_eq!(rules(&["fragments", "1", "2,fragments"]).err(), Some((2, 0)));
        assert!(rules(&["80/tcp", "80/udp", "dst:81", "src:81"]).is_ok());
    }
}
