//! OpenFlow rules and packets that meet: flows, groups and meters as text, and frames of the same few values.

use openflow::field::{Access, FIELDS, Field, FieldId, Masks, Notation, Prerequisite};

use crate::Bytes;

/// Tables that flows are in; the last one has learned flows, too.
pub const TABLES: usize = 3;

const MACS: [u64; 4] = [0x0200_0000_0001, 0x0200_0000_0002, 0xffff_ffff_ffff, 0x0100_5e00_0001];
const IPV4: [u32; 4] = [0x0a00_0001, 0x0a00_0002, 0x0a01_0003, 0xc0a8_0101];
const IPV6: [u128; 2] = [0xfe80 << 112 | 1, 0x2001_0db8 << 96 | 2];
const L4_PORTS: [u16; 4] = [53, 80, 0x1234, 0];
const VLANS: [u16; 3] = [0, 5, 0xfff];

/// One of a list.
fn of<T: Copy>(input: &mut Bytes<'_>, list: &[T]) -> T {
    list[input.below(list.len())]
}

/// What flows and packets are about: a few fields that fulfil the prerequisites of others.
const PROTOCOLS: [(&str, &[Prerequisite]); 15] = {
    use Prerequisite as P;
    [
        ("", &[P::None]),
        ("arp", &[P::None, P::Arp]),
        ("rarp", &[P::None, P::Arp]),
        ("mpls", &[P::None, P::Mpls]),
        ("ip", &[P::None, P::Ip, P::Ipv4]),
        ("tcp", &[P::None, P::Ip, P::Ipv4, P::Tcp]),
        ("udp", &[P::None, P::Ip, P::Ipv4, P::Udp]),
        ("sctp", &[P::None, P::Ip, P::Ipv4, P::Sctp]),
        ("icmp", &[P::None, P::Ip, P::Ipv4, P::Icmpv4]),
        ("ipv6", &[P::None, P::Ip, P::Ipv6]),
        ("tcp6", &[P::None, P::Ip, P::Ipv6, P::Tcp]),
        ("udp6", &[P::None, P::Ip, P::Ipv6, P::Udp]),
        ("icmp6", &[P::None, P::Ip, P::Ipv6, P::Icmpv6]),
        ("icmp6,icmpv6_type=135,icmpv6_code=0", &[P::None, P::Ip, P::Ipv6, P::Icmpv6, P::Nd, P::NdSolicit]),
        ("dl_type=0x88e7", &[P::None, P::Pbb]),
    ]
};

/// Whether a field has the same value in all packets here: those of tunnels, connection tracking, service headers.
fn is_constant(field: &Field) -> bool {
    let elsewhere = ["tun_", "ct_", "nsh_"].iter().any(|prefix| field.name.starts_with(prefix));
    let internal = matches!(
        field.id,
        FieldId::DpHash | FieldId::RecircId | FieldId::ConjId | FieldId::PacketType | FieldId::InPhyPort
    );
    elsewhere && field.id != FieldId::TunId || internal
}

/// A field whose prerequisites are fulfilled; those of protocols before registers, of which there are many.
fn field(
    input: &mut Bytes<'_>,
    fulfilled: &[Prerequisite],
    wanted: impl Fn(&Field) -> bool,
) -> &'static Field {
    let is_any = input.u8() % 32 == 31;
    let fits = |field: &&Field| {
        fulfilled.contains(&field.prerequisite) && (is_any || !is_constant(field)) && wanted(field)
    };
    let all: Vec<&Field> = FIELDS.iter().filter(fits).collect();
    let specific: Vec<&Field> =
        all.iter().copied().filter(|field| field.prerequisite != Prerequisite::None).collect();
    let pool = if specific.is_empty() || input.u8().is_multiple_of(3) { all } else { specific };
    of(input, &pool)
}

fn ones(field: &Field) -> u128 {
    u128::MAX.checked_shr(128 - u32::from(field.bits).min(128)).unwrap_or(u128::MAX)
}

fn value(input: &mut Bytes<'_>, field: &Field) -> u128 {
    let number = match (field.id, field.notation, field.prerequisite) {
        (FieldId::InPort | FieldId::InPortOxm, ..) => 1 + input.below(3) as u128,
        (FieldId::VlanVid | FieldId::VlanTci, ..) => u128::from(0x1000 | of(input, &VLANS)),
        (_, Notation::Mac, _) => of(input, &MACS).into(),
        (_, Notation::Ipv4, _) => of(input, &IPV4).into(),
        (_, Notation::Ipv6, _) => of(input, &IPV6),
        (.., Prerequisite::Tcp | Prerequisite::Udp | Prerequisite::Sctp) => of(input, &L4_PORTS).into(),
        _ => match input.u8() {
            small @ 0..=127 => (small % 9).into(),
            128..=191 => input.u8().into(),
            192..=223 => input.u64().into(),
            224..=239 => u128::from_be_bytes(input.array()),
            _ => u128::MAX,
        },
    };
    number & ones(field)
}

fn number_text(field: &Field, number: u128) -> String {
    match field.notation {
        Notation::Mac => {
            number.to_be_bytes()[10..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
        }
        Notation::Ipv4 => std::net::Ipv4Addr::from(number as u32).to_string(),
        Notation::Ipv6 => std::net::Ipv6Addr::from(number).to_string(),
        Notation::Port | Notation::Port16 | Notation::Decimal => number.to_string(),
        _ => format!("{number:#x}"),
    }
}

fn value_text(input: &mut Bytes<'_>, field: &Field) -> String {
    if field.notation == Notation::Frag {
        return of(input, &["no", "yes", "first", "later", "not_later"]).to_owned();
    }
    let number = value(input, field);
    let mask = match input.u8() {
        0..=63 if field.masks == Masks::Masked => {
            ones(field) & !(ones(field) >> input.below(field.bits.min(128).into()))
        }
        64..=95 if field.masks == Masks::Masked => u128::from_be_bytes(input.array()) & ones(field),
        _ => 0,
    };
    match mask {
        0 => number_text(field, number),
        mask => format!("{}/{}", number_text(field, number & mask), number_text(field, mask)),
    }
}

/// Part of a field as Nicira's actions write it.
fn part(input: &mut Bytes<'_>, field: &Field, bits: Option<u16>) -> (String, u16) {
    let name = field.numbers.first().map_or("", |number| number.name);
    let bits = bits.unwrap_or_else(|| 1 + input.below(field.bits.min(64).into()) as u16).min(field.bits);
    let first = input.below(usize::from(field.bits - bits) + 1) as u16;
    (format!("{name}[{first}..{}]", first + bits - 1), bits)
}

/// What most flows and packets of an input are about.
#[derive(Clone, Copy)]
pub struct Theme(usize);

impl Theme {
    /// Chooses a theme.
    pub fn read(input: &mut Bytes<'_>) -> Self {
        Self(input.below(PROTOCOLS.len()))
    }

    /// This theme, or another one now and then.
    fn varied(self, input: &mut Bytes<'_>) -> usize {
        match input.u8() {
            0..=63 => input.below(PROTOCOLS.len()),
            64..=95 => 0,
            _ => self.0,
        }
    }
}

/// A match; what it fulfils.
pub fn matching(input: &mut Bytes<'_>, theme: Theme) -> (String, &'static [Prerequisite]) {
    let (protocol, fulfilled) = PROTOCOLS[theme.varied(input)];
    let mut fields = vec![protocol.to_owned()];
    for _ in 0..of(input, &[0, 0, 0, 0, 1, 1, 2, 3]) {
        let field = field(input, fulfilled, |_| true);
        fields.push(format!("{}={}", field.name, value_text(input, field)));
    }
    fields.retain(|field| !field.is_empty());
    (fields.join(","), fulfilled)
}

fn action(input: &mut Bytes<'_>, table: usize, fulfilled: &[Prerequisite], depth: u8) -> String {
    let settable = |field: &Field| field.access == Access::Settable;
    match input.u8() % 40 {
        0..=4 => format!("output:{}", 1 + input.below(4)),
        5 => of(input, &["IN_PORT", "ALL", "FLOOD", "NORMAL", "LOCAL", "CONTROLLER"]).to_owned(),
        6 => format!(
            "controller(reason={},max_len={},id={})",
            of(input, &["action", "no_match", "invalid_ttl"]),
            input.u16(),
            input.u8()
        ),
        7 => format!("output(port={},max_len={})", 1 + input.below(3), 14 + input.below(100)),
        8 => "output:NXM_NX_REG0[0..15]".to_owned(),
        9..=13 => {
            let field = field(input, fulfilled, |field| field.access != Access::ReadOnly);
            format!("set_field:{}->{}", value_text(input, field), field.name)
        }
        14 | 15 => {
            let to = field(input, fulfilled, settable);
            let number = value(input, to) as u64;
            let (part, bits) = part(input, to, None);
            format!("load:{:#x}->{part}", number & (u64::MAX >> 64u16.saturating_sub(bits).min(63)))
        }
        16 | 17 => {
            let from = field(input, fulfilled, |_| true);
            let (source, bits) = part(input, from, None);
            let to = field(input, fulfilled, |field| settable(field) && field.bits >= bits);
            format!("move:{source}->{}", part(input, to, Some(bits)).0)
        }
        18 => {
            let from = field(input, fulfilled, |_| true);
            format!("push:{}", part(input, from, None).0)
        }
        19 => {
            let to = field(input, fulfilled, settable);
            format!("pop:{}", part(input, to, None).0)
        }
        20 => format!("push_vlan:{:#x}", of(input, &[0x8100u16, 0x88a8])),
        21 => "pop_vlan".to_owned(),
        22 => format!("push_mpls:{:#x}", of(input, &[0x8847u16, 0x8848])),
        23 => format!("pop_mpls:{:#x}", of(input, &[0x0800u16, 0x86dd, 0x8847, 0x88b5])),
        24 => {
            of(input, &["push_pbb:0x88e7", "pop_pbb", "dec_mpls_ttl", "dec_ttl", "dec_ttl(0,1)"]).to_owned()
        }
        25 => of(
            input,
            &[
                "mod_vlan_vid:5",
                "mod_vlan_pcp:3",
                "strip_vlan",
                "mod_nw_tos:40",
                "mod_nw_ttl:1",
                "mod_tp_dst:80",
                "mod_nw_src:10.0.0.2",
            ],
        )
        .to_owned(),
        26 | 27 => {
            let to = table + 1 + input.below(TABLES);
            match input.u8() % 3 {
                0 => format!("resubmit({},{})", 1 + input.below(3), to % TABLES),
                _ => format!("resubmit(,{})", to.min(TABLES - 1)),
            }
        }
        28 => format!("group:{}", 1 + input.below(4)),
        29 if depth < 2 => format!("clone({})", actions(input, table, fulfilled, depth + 1)),
        30 => format!("meter:{}", 1 + input.below(3)),
        31 => of(input, &["exit", "set_queue:3", "pop_queue", "note:01.02", "set_tunnel:7"]).to_owned(),
        32 => format!("check_pkt_larger({})->NXM_NX_REG0[0]", input.u8()),
        33 => {
            let specs = of(
                input,
                &[
                    "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]",
                    "NXM_OF_VLAN_TCI[0..11]",
                    "NXM_OF_ETH_TYPE[],NXM_OF_IP_DST[]=NXM_OF_IP_SRC[]",
                    "NXM_OF_IN_PORT[]",
                ],
            );
            let deed = of(
                input,
                &[
                    "output:NXM_OF_IN_PORT[]",
                    "load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15]",
                    "load:5->NXM_NX_REG1[]",
                ],
            );
            format!("learn(table={},priority={},{specs},{deed})", TABLES - 1, 100 + input.below(3))
        }
        34 => format!(
            "multipath({},{},{},{},{},NXM_NX_REG{}[0..7])",
            of(input, &["eth_src", "symmetric_l4", "symmetric_l3l4", "symmetric_l3l4+udp", "nw_src"]),
            input.u8(),
            of(input, &["modulo_n", "hash_threshold", "hrw", "iter_hash"]),
            1 + input.below(4),
            input.u8(),
            input.below(4)
        ),
        35 => format!(
            "bundle({},{},{},ofport,members:1,2,3)",
            of(input, &["eth_src", "symmetric_l4"]),
            input.u8(),
            of(input, &["active_backup", "hrw"])
        ),
        36 => {
            format!("sample(probability={},collector_set_id=1,obs_domain_id=2,obs_point_id=3)", input.u16())
        }
        37 => of(input, &["ct(commit)", "ct(table=2)", "ct_clear", "drop"]).to_owned(),
        _ => format!("output:{}", 1 + input.below(4)),
    }
}

fn actions(input: &mut Bytes<'_>, table: usize, fulfilled: &[Prerequisite], depth: u8) -> String {
    (0..input.below(5)).map(|_| action(input, table, fulfilled, depth)).collect::<Vec<_>>().join(",")
}

/// A flow.
pub fn flow(input: &mut Bytes<'_>, theme: Theme) -> String {
    let table = input.below(TABLES) * input.below(2);
    let priority = input.below(6);
    let (matches, fulfilled) = matching(input, theme);
    rule(input, table, priority, &matches, fulfilled)
}

/// Flows of low priority in all tables, which packets meet that no other flow matches.
pub fn base(input: &mut Bytes<'_>, theme: Theme) -> Vec<String> {
    let mut flows = vec![];
    for table in 0..TABLES {
        for (priority, (matches, fulfilled)) in [PROTOCOLS[0], PROTOCOLS[theme.0]].into_iter().enumerate() {
            flows.push(rule(input, table, priority, matches, fulfilled));
        }
    }
    flows
}

fn rule(
    input: &mut Bytes<'_>,
    table: usize,
    priority: usize,
    matches: &str,
    fulfilled: &[Prerequisite],
) -> String {
    let mut instructions = vec![actions(input, table, fulfilled, 0)];
    let kinds = input.u8();
    if kinds & 0x11 == 0x11 {
        instructions.push("clear_actions".to_owned());
    }
    if kinds & 6 == 6 {
        instructions.push(format!("write_actions({})", actions(input, table, fulfilled, 0)));
    }
    if kinds & 0x18 == 0x18 {
        instructions.push(of(input, &["write_metadata:0x1", "write_metadata:0x20/0xf0"]).to_owned());
    }
    if kinds & 0x20 == 0x20 && table + 1 < TABLES {
        instructions.push(format!("goto_table:{}", table + 1 + input.below(TABLES - table - 1)));
    }
    if kinds & 0xc0 == 0xc0 {
        let clauses = 2 + input.below(2);
        instructions =
            vec![format!("conjunction({},{}/{clauses})", input.below(3), 1 + input.below(clauses))];
    }
    instructions.retain(|text| !text.is_empty());
    let timeouts = if kinds == 9 { "idle_timeout=3,hard_timeout=9," } else { "" };
    let text = format!(
        "table={table},priority={priority},{timeouts}{matches},actions={}",
        if instructions.is_empty() { "drop".to_owned() } else { instructions.join(",") }
    );
    text.replace(",,", ",")
}

/// Flows that differ in the value of one field, or of two: tables of them are not scanned.
pub fn alike(input: &mut Bytes<'_>) -> Vec<String> {
    let (table, count, masks) = (input.below(TABLES), 9 + input.below(24), input.u8());
    let (first, action) =
        (input.u8(), of(input, &["output:2", "output:3,output:1", "dec_ttl,output:2", "drop"]));
    let pattern = |i: usize| {
        let n = first.wrapping_add(i as u8);
        match masks % 6 {
            0 => format!("dl_dst=02:00:00:00:00:{n:02x}"),
            1 => format!("ip,nw_dst=10.{}.{n}.0/{}", n % 3, 17 + n % 8),
            2 => format!("in_port={},dl_src=02:00:00:00:00:{:02x}", 1 + n % 3, n / 3),
            3 => format!("ip,nw_src=10.0.0.{n}/255.255.{}.255", n % 4),
            4 => format!("udp,nw_dst=10.0.0.{},tp_dst={n}/{:#x}", n % 3, 0xff00 | u16::from(n)),
            _ => format!("ipv6,ipv6_dst=fe80::{n:x}/{}", 128 - n % 8),
        }
    };
    (0..count)
        .map(|i| format!("table={table},priority={},{},actions={action}", 1 + masks / 64, pattern(i)))
        .collect()
}

/// A group.
pub fn group(input: &mut Bytes<'_>, theme: Theme) -> String {
    let kind = of(input, &["all", "select", "indirect", "ff"]);
    let (_, fulfilled) = PROTOCOLS[theme.varied(input)];
    let mut text = format!("group_id={},type={kind}", 1 + input.below(4));
    if kind == "select" && input.flag() {
        text += ",selection_method=hash,fields(ip_src,ip_dst)";
    }
    let buckets = if kind == "indirect" { 1 } else { input.below(4) };
    for _ in 0..buckets {
        let more = match kind {
            "select" => format!("weight:{},", input.below(6)),
            "ff" => format!("watch_port:{},", 1 + input.below(4)),
            _ => String::new(),
        };
        let actions = actions(input, TABLES - 1, fulfilled, 1);
        text += &format!(",bucket={more}actions={}", if actions.is_empty() { "drop" } else { &actions });
    }
    text
}

/// A meter.
pub fn meter(input: &mut Bytes<'_>) -> String {
    let unit = of(input, &["kbps", "pktps", "kbps,burst", "pktps,burst,stats"]);
    let band = of(input, &["drop", "dscp_remark,prec_level=1"]);
    let burst = if unit.contains("burst") { ",burst_size=2" } else { "" };
    format!("meter={},{unit},bands=type={band},rate={}{burst}", 1 + input.below(3), input.u8())
}

/// A packet that may meet such flows. Its last bytes are the input's own.
pub fn packet(input: &mut Bytes<'_>, theme: Theme) -> Vec<u8> {
    let theme = theme.varied(input);
    let mac = |input: &mut Bytes<'_>| {
        let [_, _, mac @ ..] = of(input, &MACS).to_be_bytes();
        mac
    };
    let mut bytes = [mac(input), mac(input)].concat();
    for _ in 0..[0, 0, 0, 1, 1, 2, 3, 4][input.below(8)] {
        bytes.extend(of(input, &[0x8100u16, 0x88a8]).to_be_bytes());
        bytes.extend((of(input, &VLANS) | u16::from(input.u8() & 7) << 13).to_be_bytes());
    }
    // IPv4, IPv6, ARP, others, MPLS, as in the list of protocols.
    let mut kind = [input.below(8), 5, 6, 7, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 6][theme];
    if kind == 7 {
        bytes.extend([0x88, 0x47]);
        let labels = 1 + input.below(4);
        for n in 1..=labels {
            let [a, b, c, ttl] = input.array();
            bytes.extend([a, b, c & 0xfe | u8::from(n == labels), ttl % 3]);
        }
        kind = input.below(7);
    } else {
        bytes.extend(match kind {
            0..=2 => [8, 0],
            3 | 4 => [0x86, 0xdd],
            5 => [8, 6],
            _ => of(input, &[[0x88, 0xe7], [0x80, 0x35], [0x89, 0x4f], [0x88, 0xb5]]),
        });
    }
    let any = of(input, &[6, 17, 1, 132, 58, 47, 0, 44]);
    let protocol = [any, any, any, any, any, 6, 17, 132, 1, any, 6, 17, 58, 58, any][theme];
    match kind {
        0..=2 => {
            let words = 5 + of(input, &[0, 0, 0, 1, 2]);
            bytes.extend([0x40 | words, input.u8(), 0, 60, 0, 1, of(input, &[0, 0x40, 0x20, 0, 0]), 0]);
            bytes.extend([of(input, &[64, 1, 0, 2]), protocol, 0, 0]);
            bytes.extend(of(input, &IPV4).to_be_bytes());
            bytes.extend(of(input, &IPV4).to_be_bytes());
            bytes.extend(vec![1; usize::from(words - 5) * 4]);
        }
        3 | 4 => {
            bytes.extend([0x60, input.u8(), 0, 0, 0, 32, protocol, of(input, &[64, 1, 0])]);
            bytes.extend(of(input, &IPV6).to_be_bytes());
            bytes.extend(of(input, &IPV6).to_be_bytes());
        }
        5 => {
            bytes.extend([0, 1, 8, 0, 6, 4, 0, input.u8() % 3]);
            for _ in 0..2 {
                bytes.extend(mac(input));
                bytes.extend(of(input, &IPV4).to_be_bytes());
            }
        }
        _ => {}
    }
    if kind < 5 && protocol == 58 {
        bytes.extend([of(input, &[135, 135, 136, 128]), 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(of(input, &IPV6).to_be_bytes());
        bytes.extend([of(input, &[1, 2]), 1]);
        bytes.extend(mac(input));
    } else if kind < 5 {
        bytes.extend(of(input, &L4_PORTS).to_be_bytes());
        bytes.extend(of(input, &L4_PORTS).to_be_bytes());
    }
    let len = input.below(64);
    bytes.extend(input.slice(len));
    match input.u8() {
        0..=31 => bytes.truncate(14 + input.below(bytes.len() - 13)),
        32..=191 => bytes.resize(bytes.len().max(60), 0),
        _ => {}
    }
    bytes
}
