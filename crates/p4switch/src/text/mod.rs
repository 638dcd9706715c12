//! Entities as text, with names: what people type, and what they are shown.
//!
//! An entry of a table is `TABLE KEY=VALUE … prio=N => ACTION(PARAMETER=VALUE, …)`:
//!
//! ```text
//! ipv4_lpm dstAddr=10.0.1.0/24 => ipv4_forward(dstAddr=08:00:00:00:01:11, port=1)
//! acl src=10.0.0.0&&&255.0.0.0 dport=80..443 prio=10 => drop()
//! ipv4_lpm default => drop()
//! ecmp dst=10.0.0.1 => member 4
//! ecmp dst=10.0.0.2 => set_hop(port=1) weight=2 | set_hop(port=2) weight=1 watch=2
//! counter seen[3] packets=10 bytes=1000
//! register answer[0] value=42
//! meter police[1] cir=1000 cburst=100 pir=2000 pburst=200
//! multicast 1 ports=1,2,3/7
//! clone 5 ports=510 class=2 length=128
//! member hops 4 => set_hop(port=1)
//! ```
//!
//! Names are whole or their ends behind a dot, if only one fits. Numbers are decimal, or have `0x` or `0b` before them;
//! values of 48, 32 and 128 bits are addresses too. Behind `#` is a comment.
//!
//! [`parse()`] and [`print()`] are inverse to each other, but for what only the switch knows, which is a comment.

mod names;
mod number;
mod parse;
mod print;
mod words;

pub use parse::parse;
pub use print::print;

/// Words with a meaning of their own where keys are.
const OPTIONS: &[&str] =
    &["prio", "idle", "metadata", "cookie", "packets", "bytes", "cir", "cburst", "pir", "pburst", "eburst"];

/// First words of entities that are no entries of tables.
const KINDS: &[&str] =
    &["counter", "register", "meter", "multicast", "clone", "member", "group", "digest", "value_set"];
