//! Differences from Open vSwitch that are legitimate, each with its reason.

use crate::case::{Case, TABLES};
use crate::compare::Difference;
use crate::subject::Observed;

/// A legitimate difference.
pub struct Explanation {
    /// A short name.
    pub name: &'static str,
    /// Why both are right, or which of them is.
    pub reason: &'static str,
    /// How it is told from others.
    pub when: When,
}

/// How a legitimate difference is told from others.
pub enum When {
    /// Cases are made so that it does not come up.
    Avoided,
    /// One switch refuses a group or flow for it; the errors are ours and theirs.
    Refused(fn(&str, Option<&str>, Option<&str>) -> bool),
    /// Packets have other results.
    Packet(fn(&Case, &Difference) -> bool),
    /// Flows have other counters.
    Flows(fn(&Case) -> bool),
}

/// All legitimate differences.
pub const EXPLAINED: &[Explanation] = &[
    Explanation {
        name: "a field that Open vSwitch lacks",
        reason: "OpenFlow 1.3 has the fields in_phy_port, ipv6_exthdr and pbb_isid, Open vSwitch does not",
        when: When::Refused(|text, _, theirs| {
            let lower = text.to_lowercase();
            let names = ["in_phy_port", "ipv6_exthdr", "pbb_isid", "pbb_uca"];
            // The name in NXM's style; actions name the field of a header wrongly, too.
            let codes = ["OFPBMC_BAD_FIELD", "OFPBAC_BAD_SET_TYPE"];
            theirs.is_some_and(|code| codes.contains(&code)) && names.iter().any(|name| lower.contains(name))
        }),
    },
    Explanation {
        name: "a field that Open vSwitch does not set",
        reason: "OpenFlow 1.3 lets set_field write eth_type, ip_proto and mpls_bos, Open vSwitch only reads them",
        when: When::Refused(|text, _, theirs| {
            let names = ["->eth_type", "->nw_proto", "->mpls_bos"];
            theirs == Some("OFPBAC_BAD_SET_ARGUMENT") && names.iter().any(|name| text.contains(name))
        }),
    },
    Explanation {
        name: "more than two VLAN tags",
        reason: "Open vSwitch keeps two tags of a packet, and loses the innermost of three; ours keeps three, and drops a \
                 packet that gets a fourth",
        when: When::Packet(|case, difference| {
            let Difference::Packet { packet, ours, .. } = difference else { return false };
            let pushes: usize = case.texts().map(|text| text.matches("push_vlan").count()).sum();
            // Flows may be executed more than once.
            let found = ours.outputs.iter().any(|(_, frame)| tags(frame) > 2);
            found || pushes > 0 && tags(packet) + 2 * pushes > 2
        }),
    },
    Explanation {
        name: "counters of flows behind a fourth VLAN tag",
        reason: "the same: later flows do not meet the dropped packet",
        when: When::Flows(|case| {
            let pushes: usize = case.texts().map(|text| text.matches("push_vlan").count()).sum();
            let mut packets = case.bursts.iter().flat_map(|burst| &burst.packets);
            let is_followed =
                case.texts().any(|text| text.contains("resubmit") || text.contains("goto_table"));
            pushes > 0 && is_followed && packets.any(|packet| tags(packet) + 2 * pushes > 3)
        }),
    },
    Explanation {
        name: "pop_mpls to another type in front of labels",
        reason: "the standard removes one label, Open vSwitch all of them if the new type is not MPLS",
        when: When::Packet(|case, difference| {
            let Difference::Packet { packet, .. } = difference else { return false };
            let pops = case.texts().flat_map(|text| text.split("pop_mpls:").skip(1));
            let other = pops.filter(|kind| !kind.starts_with("0x884")).count();
            let pushes: usize = case.texts().map(|text| text.matches("push_mpls").count()).sum();
            other > 0 && labels(packet) + pushes > 1
        }),
    },
    Explanation {
        name: "more than three MPLS labels",
        reason: "Open vSwitch sends such a packet nowhere, not even where it went before",
        when: When::Packet(|case, difference| {
            let Difference::Packet { packet, .. } = difference else { return false };
            let pushes: usize = case.texts().map(|text| text.matches("push_mpls").count()).sum();
            pushes > 0 && labels(packet) + pushes > 3
        }),
    },
    Explanation {
        name: "fields of reverse ARP that are set",
        reason: "both match them, Open vSwitch writes those of ARP only",
        when: When::Packet(|case, difference| {
            let Difference::Packet { packet, .. } = difference else { return false };
            let at = 12 + tags(packet) * 4;
            let is_reverse = packet.get(at..at + 2) == Some(&[0x80, 0x35]);
            is_reverse && case.texts().any(|text| text.to_lowercase().contains("arp_"))
        }),
    },
    Explanation {
        name: "exit within clone",
        reason: "ours ends the clone, Open vSwitch the flow around it, too",
        when: When::Packet(|case, _| {
            let has = |word| case.texts().any(|text| text.contains(word));
            has("clone(") && has("exit")
        }),
    },
    Explanation {
        name: "truncated outputs of packets with new or fewer headers",
        reason: "ours measures the packet that leaves, Open vSwitch the one before its headers change",
        when: When::Packet(|case, _| {
            let has = |word| case.texts().any(|text| text.contains(word));
            has("output(port=") && ["push_", "pop_", "vlan"].into_iter().any(has)
        }),
    },
    Explanation {
        name: "addresses and ICMP of later IPv4 fragments that are set",
        reason: "Open vSwitch writes a transport's header that is not there, in the payload",
        when: When::Packet(|case, difference| {
            let Difference::Packet { packet, .. } = difference else { return false };
            let names = ["ip_src", "ip_dst", "nw_src", "nw_dst", "icmp_"];
            let sets = |text: &String| names.iter().any(|name| text.to_lowercase().contains(name));
            is_later_fragment(packet) && case.texts().any(sets)
        }),
    },
    Explanation {
        name: "conjunctions without a flow for the conj_id",
        reason: "Open vSwitch passes over flows of lower priority with the match of a clause",
        when: When::Flows(is_incomplete),
    },
    Explanation {
        name: "results of conjunctions without a flow for the conj_id",
        reason: "the same",
        when: When::Packet(|case, _| is_incomplete(case)),
    },
    Explanation {
        name: "tags and labels of packets whose TTL expires in the action set",
        reason: "the set pushes them before it decrements, and sets their fields after that",
        when: When::Packet(|case, difference| {
            let Difference::Packet { ours, theirs, .. } = difference else { return false };
            let set = |word: &str| {
                case.texts().any(|text| text.starts_with("write_actions") && text.contains(word))
            };
            set("push_") && set("dec_") && ours.outputs == theirs.outputs && expires(ours) && expires(theirs)
        }),
    },
    Explanation {
        name: "operations of ARP above 255 that are set",
        reason: "Open vSwitch keeps 8 bits of the field",
        when: When::Packet(|case, _| case.texts().any(|text| text.contains("NXM_OF_ARP_OP"))),
    },
    Explanation {
        name: "what follows when a TTL expires",
        reason: "ours ends the packet, Open vSwitch the list of actions: callers and the action set go on",
        when: When::Packet(|_, difference| {
            let Difference::Packet { ours, theirs, .. } = difference else { return false };
            expires(ours) && has_all(theirs, ours)
        }),
    },
    Explanation {
        name: "action sets and clone",
        reason: "ours executes the set of the packet, Open vSwitch what the clone has written, too, and twice",
        when: When::Packet(|case, _| {
            let has = |word| case.texts().any(|text| text.contains(word));
            has("clone(") && has("write_actions(")
        }),
    },
    Explanation {
        name: "outputs to all ports after the ingress port is set",
        reason: "ours leaves out the port that the packet came from, Open vSwitch the one that was set",
        when: When::Packet(|case, _| case.texts().any(|text| text.contains("->NXM_OF_IN_PORT"))),
    },
    Explanation {
        name: "nd_reserved and nd_options_type that are set",
        reason: "Open vSwitch writes wrong checksums, and the address of another option's type stays",
        when: When::Packet(|case, _| {
            case.texts().any(|text| {
                let text = text.to_lowercase();
                text.contains("nd_reserved") || text.contains("nd_options_type")
            })
        }),
    },
    Explanation {
        name: "addresses of IPv6 packets with fragment headers that are set",
        reason: "Open vSwitch leaves the transport's checksum as it was",
        when: When::Packet(|case, difference| {
            let Difference::Packet { packet, .. } = difference else { return false };
            let at = 12 + tags(packet) * 4;
            let extended = packet.get(at..at + 2) == Some(&[0x86, 0xdd])
                && packet.get(at + 8).is_some_and(|next| matches!(next, 0 | 43 | 44 | 60));
            extended && case.texts().any(|text| text.to_lowercase().contains("ipv6_"))
        }),
    },
    Explanation {
        name: "bytes of packets without their label",
        reason: "Open vSwitch counts the packet as it is after the label is gone",
        when: When::Flows(|case| case.texts().any(|text| text.contains("pop_mpls"))),
    },
    Explanation {
        name: "the action set of a packet that a later table misses",
        reason: "the standard drops packets without a flow (OpenFlow 1.3.5, 5.4), Open vSwitch executes the set",
        when: When::Packet(|case, difference| {
            let Difference::Packet { ours, theirs, .. } = difference else { return false };
            let all =
                |table: u8| case.rules.iter().any(|rule| rule.table == table && rule.matches.is_empty());
            let may_miss = (1..TABLES).any(|table| {
                let target = format!("goto_table:{table}");
                !all(table) && case.texts().any(|text| *text == target)
            });
            let writes = case.texts().any(|text| text.starts_with("write_actions"));
            may_miss && writes && has_all(theirs, ours)
        }),
    },
    Explanation {
        name: "a bucket for a group that does not exist",
        reason: "the standard refuses it (OpenFlow 1.3.5, 6.7), Open vSwitch drops such packets",
        when: When::Refused(|text, ours, theirs| {
            ours == Some("OFPBAC_BAD_OUT_GROUP") && theirs.is_none() && text.starts_with("group_id")
        }),
    },
    Explanation {
        name: "table and cookie of packets that an action set or a group sends to the controller",
        reason: "ours states those of the flow that wrote the action or runs the group; Open vSwitch those of the flow \
                 in table 0",
        when: When::Packet(|case, difference| {
            let Difference::Packet { ours, theirs, .. } = difference else { return false };
            let plain = |observed: &Observed| -> Vec<String> {
                observed.packet_ins.iter().map(|words| without_origin(words)).collect()
            };
            let writes = |text: &String| text.starts_with("write_actions") || text.contains("group:");
            case.texts().any(writes) && ours.outputs == theirs.outputs && plain(ours) == plain(theirs)
        }),
    },
    Explanation {
        name: "sets and groups behind check_pkt_larger",
        reason: "Open vSwitch translates them for packets of either length, and executes parts of both",
        when: When::Packet(|case, _| {
            let of_set = |text: &&String| text.starts_with("write_actions") || text.starts_with("group");
            case.texts().any(|text| text.contains("check_pkt_larger"))
                && case.texts().any(|text| of_set(&text))
        }),
    },
    Explanation {
        name: "counters of flows behind check_pkt_larger",
        reason: "Open vSwitch translates what follows for packets of either length, and counts them in both",
        when: When::Flows(|case| case.texts().any(|text| text.contains("check_pkt_larger"))),
    },
    Explanation {
        name: "a flow that pushes a third VLAN tag",
        reason: "the same; Open vSwitch refuses flows that do it for sure",
        when: When::Refused(|text, _, theirs| {
            theirs == Some("OFPBAC_BAD_TAG") && text.matches("push_vlan").count() > 1
        }),
    },
    Explanation {
        name: "a new VLAN tag's id and priority",
        reason: "the standard copies them from the tag that was outermost (OpenFlow 1.3.5, 5.12.1), Open vSwitch \
                 writes zeros; so tags are pushed here with both set",
        when: When::Avoided,
    },
    Explanation {
        name: "a first MPLS label",
        reason: "the standard has zeros but for the TTL of IP (OpenFlow 1.3.5, 5.12.1), Open vSwitch writes label 2 for \
                 IPv6, bits of the DSCP, and 64 for a TTL of 0; so labels are pushed here with all of them set",
        when: When::Avoided,
    },
    Explanation {
        name: "IP packets that are shorter than they say",
        reason: "Open vSwitch takes nothing from them but the Ethernet type; ours reads the headers that are there",
        when: When::Avoided,
    },
    Explanation {
        name: "dec_mpls_ttl of a packet without labels, in an action set or a bucket",
        reason: "ours does nothing, Open vSwitch drops the packet; the standard does not say",
        when: When::Avoided,
    },
    Explanation {
        name: "actions in buckets that the standard's set does not have",
        reason: "ours executes them in front of the output, Open vSwitch ignores them",
        when: When::Avoided,
    },
    Explanation {
        name: "checksums of SCTP that are wrong, or in padded frames, and whose port is set",
        reason: "ours computes them, Open vSwitch keeps the error and counts the padding",
        when: When::Avoided,
    },
    Explanation {
        name: "IP packets that end within the transport's header",
        reason: "ours reads on in the padding of the frame, and matches type and code of ICMP within less than 8 bytes",
        when: When::Avoided,
    },
    Explanation {
        name: "checksums behind IPv6 routing headers with segments left",
        reason: "Open vSwitch does not update them when an address is set",
        when: When::Avoided,
    },
    Explanation {
        name: "Open vSwitch's flow cache",
        reason: "it executes parts of an earlier packet's label for later ones (partly set labels), so it has exact flows",
        when: When::Avoided,
    },
    Explanation {
        name: "buckets of a select group",
        reason: "the hash is up to the switch; these groups have one bucket here, and multipath and bundle are left out",
        when: When::Avoided,
    },
];

/// Whether a TTL expires.
fn expires(observed: &Observed) -> bool {
    observed.packet_ins.iter().any(|words| words.contains("Reason(2)"))
}

/// Whether a packet has all results of another, or more.
fn has_all(observed: &Observed, other: &Observed) -> bool {
    other.outputs.iter().all(|output| observed.outputs.contains(output))
        && other.packet_ins.iter().all(|packet_in| observed.packet_ins.contains(packet_in))
}

/// Whether there are clauses of a conjunction, but no flow for it.
fn is_incomplete(case: &Case) -> bool {
    let clauses = case.texts().any(|text| text.starts_with("conjunction"));
    clauses && !case.rules.iter().any(|rule| rule.matches.iter().any(|field| field.starts_with("conj_id")))
}

/// Whether a frame is an IPv4 fragment other than the first one.
fn is_later_fragment(frame: &[u8]) -> bool {
    let at = 12 + tags(frame) * 4;
    match frame.get(at..at + 10) {
        Some([8, 0, header @ ..]) => matches!(header, [.., high, low] if high & 0x1f != 0 || *low != 0),
        _ => false,
    }
}

/// A packet-in without the table and the cookie.
fn without_origin(words: &str) -> String {
    let words = words.split(' ').filter(|word| !word.starts_with("TableId") && !word.starts_with("Cookie"));
    words.collect::<Vec<_>>().join(" ")
}

/// VLAN tags of a frame.
fn tags(frame: &[u8]) -> usize {
    let types = frame.get(12..).unwrap_or_default().chunks(4);
    types.take_while(|tag| matches!(tag, [0x81, 0, ..] | [0x88, 0xa8, ..])).count()
}

/// MPLS labels of a frame.
fn labels(frame: &[u8]) -> usize {
    let at = 12 + tags(frame) * 4;
    match frame.get(at..at + 2) {
        Some([0x88, 0x47 | 0x48]) => {
            let entries = frame.get(at + 2..).unwrap_or_default().chunks_exact(4);
            1 + entries.take_while(|entry| entry[2] & 1 == 0).count()
        }
        _ => 0,
    }
}

/// Number of the explanation of a difference.
pub fn reason(case: &Case, difference: &Difference) -> Option<usize> {
    EXPLAINED.iter().position(|explanation| match (&explanation.when, difference) {
        (When::Refused(applies), Difference::Refusal { text, ours, theirs, .. }) => {
            applies(text, ours.as_deref(), theirs.as_deref())
        }
        (When::Packet(applies), Difference::Packet { .. }) => applies(case, difference),
        (When::Flows(applies), Difference::Flows { .. }) => applies(case),
        _ => false,
    })
}
