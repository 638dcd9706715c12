//! Layers as in scapy: `Ether(dst="52:54:00:00:00:02")/Dot1Q(vlan=10)/IP(dst="10.0.0.2")/TCP(dport=80)`.
//!
//! The layers and parameters in [`LAYERS`] are known; no Python is run. Quotes may be omitted: a shell removes them.

use packet::VlanTag;

use super::fields::{Fields, number};
use super::{Problem, Read, instead};

/// A kind of layer.
struct Layer {
    name: &'static str,
    /// Position: layers follow each other in ascending order.
    rank: u8,
    /// Fields that the layer implies.
    implies: &'static [(&'static str, &'static str)],
    /// Parameters and their fields.
    parameters: &'static [(&'static str, &'static str)],
}

const TAG: &str = "Dot1Q";
const RAW: &str = "Raw";

/// Parameters of [`TAG`]. They are not fields, since a packet may have two tags.
const TAG_PARAMETERS: &[&str] = &["vlan", "prio"];

const LAYERS: &[Layer] = &[
    Layer {
        name: "Ether",
        rank: 0,
        implies: &[],
        parameters: &[("src", "dl_src"), ("dst", "dl_dst"), ("type", "dl_type")],
    },
    Layer { name: TAG, rank: 1, implies: &[], parameters: &[] },
    Layer {
        name: "IP",
        rank: 2,
        implies: &[("dl_type", "0x0800")],
        parameters: &[
            ("src", "nw_src"),
            ("dst", "nw_dst"),
            ("proto", "nw_proto"),
            ("tos", "nw_tos"),
            ("ttl", "nw_ttl"),
        ],
    },
    Layer {
        name: "IPv6",
        rank: 2,
        implies: &[("dl_type", "0x86dd")],
        parameters: &[
            ("src", "nw_src"),
            ("dst", "nw_dst"),
            ("nh", "nw_proto"),
            ("tc", "nw_tos"),
            ("hlim", "nw_ttl"),
        ],
    },
    Layer {
        name: "ARP",
        rank: 2,
        implies: &[("dl_type", "0x0806")],
        parameters: &[
            ("op", "arp_op"),
            ("psrc", "nw_src"),
            ("pdst", "nw_dst"),
            ("hwsrc", "arp_sha"),
            ("hwdst", "arp_tha"),
        ],
    },
    Layer {
        name: "TCP",
        rank: 3,
        implies: &[("nw_proto", "6")],
        parameters: &[("sport", "tp_src"), ("dport", "tp_dst"), ("flags", "tcp_flags")],
    },
    Layer {
        name: "UDP",
        rank: 3,
        implies: &[("nw_proto", "17")],
        parameters: &[("sport", "tp_src"), ("dport", "tp_dst")],
    },
    Layer {
        name: "ICMP",
        rank: 3,
        implies: &[("nw_proto", "1")],
        parameters: &[("type", "icmp_type"), ("code", "icmp_code")],
    },
    Layer {
        name: "ICMPv6EchoRequest",
        rank: 3,
        implies: &[("nw_proto", "58"), ("icmp_type", "128")],
        parameters: &[],
    },
    Layer {
        name: "ICMPv6EchoReply",
        rank: 3,
        implies: &[("nw_proto", "58"), ("icmp_type", "129")],
        parameters: &[],
    },
    Layer {
        name: "ICMPv6ND_NS",
        rank: 3,
        implies: &[("nw_proto", "58"), ("icmp_type", "135")],
        parameters: &[("tgt", "nd_target")],
    },
    Layer {
        name: "ICMPv6ND_NA",
        rank: 3,
        implies: &[("nw_proto", "58"), ("icmp_type", "136")],
        parameters: &[("tgt", "nd_target")],
    },
    Layer { name: RAW, rank: 4, implies: &[], parameters: &[] },
];

/// Maximum number of VLAN tags: the switch parses two.
const MAX_TAGS: usize = 2;

/// Parses layers.
pub(super) fn read(text: &str) -> Read {
    let mut cursor = Cursor { rest: text };
    let mut fields = Fields::default();
    let mut last: Option<&Layer> = None;
    loop {
        let name = cursor.name();
        let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) else {
            let known: Vec<_> = LAYERS.iter().map(|layer| layer.name).collect();
            return Err(format!("unknown layer `{name}`; {}", instead(name, &known)));
        };
        if let Some(below) = last
            && (layer.rank < below.rank || layer.rank == below.rank && layer.name != TAG)
        {
            let order = "Ether, Dot1Q, then IP, IPv6 or ARP, then TCP, UDP or ICMP, then Raw";
            return Err(format!("`{name}` cannot follow `{}`; the order is {order}", below.name));
        }
        last = Some(layer);
        cursor.expect('(', name)?;
        begin(layer, &mut fields)?;
        while !cursor.take(')') {
            let (parameter, value) = cursor.argument(name)?;
            set(layer, &mut fields, parameter, &value)?;
            if !cursor.take(',') {
                cursor.expect(')', name)?;
                break;
            }
        }
        if cursor.is_at_end() {
            return Ok(fields);
        }
        cursor.expect('/', name)?;
    }
}

/// Adds a layer without parameters.
fn begin(layer: &Layer, fields: &mut Fields) -> Result<(), Problem> {
    if layer.name == TAG {
        if fields.tags.len() == MAX_TAGS {
            return Err(format!("a packet can have at most {MAX_TAGS} layers `{TAG}`"));
        }
        fields.tags.push(VlanTag::default());
    }
    layer.implies.iter().try_for_each(|(key, value)| fields.set(key, value))
}

fn set(layer: &Layer, fields: &mut Fields, parameter: Option<&str>, value: &[u8]) -> Result<(), Problem> {
    if layer.name == RAW {
        return match parameter {
            None | Some("load") => {
                fields.payload = value.to_vec();
                Ok(())
            }
            Some(other) => Err(format!("`{RAW}` has no parameter `{other}`; expected `load`")),
        };
    }
    let Some(parameter) = parameter else {
        return Err(format!("`{}` takes parameters by name, as NAME=VALUE", layer.name));
    };
    let value = String::from_utf8_lossy(value);
    let placed = |problem| format!("{}({parameter}=…): {problem}", layer.name);
    if let (TAG, Some(tag)) = (layer.name, fields.tags.last_mut()) {
        return match parameter {
            "vlan" => number(&value, 4095).map(|vid| tag.vid = vid).map_err(placed),
            "prio" => number(&value, 7).map(|pcp| tag.pcp = pcp as u8).map_err(placed),
            _ => Err(unknown(layer, parameter, TAG_PARAMETERS)),
        };
    }
    let Some((_, key)) = layer.parameters.iter().find(|(known, _)| *known == parameter) else {
        let known: Vec<_> = layer.parameters.iter().map(|(name, _)| *name).collect();
        return Err(unknown(layer, parameter, &known));
    };
    fields.set(key, &value).map_err(placed)
}

fn unknown(layer: &Layer, parameter: &str, known: &[&str]) -> Problem {
    match known {
        [] => format!("parameters of `{}` are not supported", layer.name),
        known => {
            format!("unsupported parameter `{parameter}` of `{}`; {}", layer.name, instead(parameter, known))
        }
    }
}

/// The unread part of a text.
struct Cursor<'t> {
    rest: &'t str,
}

impl<'t> Cursor<'t> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_blanks();
        self.rest.is_empty()
    }

    /// Takes a character if it comes next.
    fn take(&mut self, wanted: char) -> bool {
        self.skip_blanks();
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, wanted: char, layer: &str) -> Result<(), Problem> {
        if self.take(wanted) {
            return Ok(());
        }
        let found = self.rest.chars().next().map_or("the end".into(), |c| format!("`{c}`"));
        Err(format!("expected `{wanted}` in or after `{layer}`, found {found}"))
    }

    /// Takes the characters up to the first that `ends`.
    fn until(&mut self, ends: impl Fn(char) -> bool) -> &'t str {
        let (taken, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Takes a name, which may be empty.
    fn name(&mut self) -> &'t str {
        self.skip_blanks();
        self.until(|c| !c.is_ascii_alphanumeric() && c != '_')
    }

    /// Takes `NAME=VALUE`, or a value alone.
    fn argument(&mut self, layer: &str) -> Result<(Option<&'t str>, Vec<u8>), Problem> {
        let start = self.rest;
        let name = self.name();
        if !name.is_empty() && self.take('=') {
            return Ok((Some(name), self.value(layer)?));
        }
        self.rest = start;
        Ok((None, self.value(layer)?))
    }

    /// Takes a value: a string or byte string, or characters up to the next comma or parenthesis.
    fn value(&mut self, layer: &str) -> Result<Vec<u8>, Problem> {
        self.skip_blanks();
        let string = self.rest.strip_prefix('b').unwrap_or(self.rest);
        if let Some(quote @ ('"' | '\'')) = string.chars().next() {
            self.rest = string.get(1..).unwrap_or_default();
            return self.string(quote, layer);
        }
        let value = self.until(|c| matches!(c, ',' | ')')).trim();
        match value {
            "" => Err(format!("a value is missing in `{layer}`")),
            value => Ok(value.as_bytes().to_vec()),
        }
    }

    /// Takes the rest of a string, with Python's escapes `\n`, `\t`, `\r`, `\\`, `\'`, `\"` and `\xff`.
    fn string(&mut self, quote: char, layer: &str) -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        let mut characters = self.rest.chars();
        while let Some(c) = characters.next() {
            match c {
                c if c == quote => {
                    self.rest = characters.as_str();
                    return Ok(bytes);
                }
                '\\' => bytes.push(escape(&mut characters)?),
                c => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
        Err(format!("a string in `{layer}` lacks its closing {quote}"))
    }
}

/// Parses an escape, after its backslash.
fn escape(characters: &mut std::str::Chars<'_>) -> Result<u8, Problem> {
    let unknown = "unknown escape in a string; expected \\n, \\t, \\r, \\0, \\\\, \\', \\\" or \\x and two hexadecimal digits";
    let digit = |c: Option<char>| c.and_then(|c| c.to_digit(16)).map(|digit| digit as u8);
    match characters.next() {
        Some('n') => Ok(b'\n'),
        Some('t') => Ok(b'\t'),
        Some('r') => Ok(b'\r'),
        Some('0') => Ok(0),
        Some(c @ ('\\' | '\'' | '"')) => Ok(c as u8),
        Some('x') => match (digit(characters.next()), digit(characters.next())) {
            (Some(high), Some(low)) => Ok(high << 4 | low),
            _ => Err(unknown.into()),
        },
        _ => Err(unknown.into()),
    }
}
