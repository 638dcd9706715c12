//! Rules of nftables that let answers to DHCP clients pass the shield of an interface whose addresses are at a host
//! port.
//!
//! A client that stays with the interface renews the host's lease through it. Some receive through packet sockets that
//! see all protocols, in front of the shield; the one of systemd-networkd receives IPv4 only, behind it, and would lose
//! the lease. Such answers reach the bridge as well, where the host port ignores them unless it has a client.

use crate::netlink::{NESTED, put_attribute, text};

/// Ports of clients: DHCP (RFC 2131, section 4.1) and DHCPv6 (RFC 8415, section 7.2).
const CLIENTS: [u16; 2] = [68, 546];
const UDP: u8 = 17;

const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
/// `NFT_REG_1` and `NFT_REG_VERDICT`.
const REGISTER: u32 = 1;
const VERDICT_REGISTER: u32 = 0;
const META_REGISTER: u16 = 1;
const META_KEY: u16 = 2;
const META_L4PROTO: u32 = 16;
const PAYLOAD_REGISTER: u16 = 1;
const PAYLOAD_BASE: u16 = 2;
const PAYLOAD_OFFSET: u16 = 3;
const PAYLOAD_LENGTH: u16 = 4;
const TRANSPORT_HEADER: u32 = 2;
const COMPARE_REGISTER: u16 = 1;
const COMPARE_OPERATOR: u16 = 2;
const COMPARE_DATA: u16 = 3;
const EQUAL: u32 = 0;
const IMMEDIATE_REGISTER: u16 = 1;
const IMMEDIATE_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const NF_ACCEPT: u32 = 1;

/// Returns the expressions of each rule (`NFTA_RULE_EXPRESSIONS`): `udp dport PORT accept`.
pub(super) fn expressions() -> [Vec<u8>; CLIENTS.len()] {
    CLIENTS.map(|port| {
        let mut rule = Vec::new();
        let mut add = |name: &str, data: Vec<u8>| {
            let mut expression = Vec::new();
            put_attribute(&mut expression, EXPRESSION_NAME, &text(name));
            put_attribute(&mut expression, EXPRESSION_DATA | NESTED, &data);
            put_attribute(&mut rule, LIST_ELEMENT | NESTED, &expression);
        };
        add("meta", numbers(&[(META_REGISTER, REGISTER), (META_KEY, META_L4PROTO)]));
        add("cmp", equals(&[UDP]));
        let destination_port = [
            (PAYLOAD_REGISTER, REGISTER),
            (PAYLOAD_BASE, TRANSPORT_HEADER),
            (PAYLOAD_OFFSET, 2),
            (PAYLOAD_LENGTH, 2),
        ];
        add("payload", numbers(&destination_port));
        add("cmp", equals(&port.to_be_bytes()));
        let mut verdict = numbers(&[(IMMEDIATE_REGISTER, VERDICT_REGISTER)]);
        let code = nested(DATA_VERDICT, &numbers(&[(VERDICT_CODE, NF_ACCEPT)]));
        put_attribute(&mut verdict, IMMEDIATE_DATA | NESTED, &code);
        add("immediate", verdict);
        rule
    })
}

/// A comparison of the register with a value.
fn equals(value: &[u8]) -> Vec<u8> {
    let mut compare = numbers(&[(COMPARE_REGISTER, REGISTER), (COMPARE_OPERATOR, EQUAL)]);
    let mut data = Vec::new();
    put_attribute(&mut data, DATA_VALUE, value);
    put_attribute(&mut compare, COMPARE_DATA | NESTED, &data);
    compare
}

fn nested(kind: u16, inner: &[u8]) -> Vec<u8> {
    let mut attribute = Vec::new();
    put_attribute(&mut attribute, kind | NESTED, inner);
    attribute
}

/// Attributes that are numbers, in network byte order.
fn numbers(attributes: &[(u16, u32)]) -> Vec<u8> {
    let mut all = Vec::new();
    attributes.iter().for_each(|(kind, number)| put_attribute(&mut all, *kind, &number.to_be_bytes()));
    all
}
