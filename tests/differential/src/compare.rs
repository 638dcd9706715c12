//! Differences between the results of two switches.

use crate::case::Case;
use crate::explained::{self, EXPLAINED};
use crate::subject::{Observed, Outcome, Result, Subject, hex};

/// A difference. What the first switch did is `ours`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// A group or flow was refused by one switch only, or for another reason.
    Refusal {
        /// Number of the group or, behind all groups, of the flow.
        item: usize,
        /// The group or flow.
        text: String,
        /// The first switch's error.
        ours: Option<String>,
        /// The other's.
        theirs: Option<String>,
    },
    /// A packet had other results.
    Packet {
        /// Its number in the case.
        number: usize,
        /// The port that it came from.
        port: u32,
        /// The packet.
        packet: Vec<u8>,
        /// The first switch's results.
        ours: Observed,
        /// The other's.
        theirs: Observed,
    },
    /// Flows or their counters differ: lines that only one switch has.
    Flows {
        /// The first switch's.
        ours: Vec<String>,
        /// The other's.
        theirs: Vec<String>,
    },
}

impl Difference {
    /// Whether another difference is of the same kind.
    pub fn resembles(&self, other: &Difference) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

fn observed(f: &mut std::fmt::Formatter<'_>, observed: &Observed) -> std::fmt::Result {
    for (port, frame) in &observed.outputs {
        writeln!(f, "    {port}: {}", hex(frame))?;
    }
    for packet_in in &observed.packet_ins {
        writeln!(f, "    controller: {packet_in}")?;
    }
    Ok(())
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Difference::Refusal { text, ours, theirs, .. } => {
                let word = |error: &Option<String>| error.clone().unwrap_or_else(|| "accepted".to_owned());
                writeln!(f, "{text}\n  ours:   {}\n  theirs: {}", word(ours), word(theirs))
            }
            Difference::Packet { port, packet, ours, theirs, .. } => {
                writeln!(f, "results of the packet from port {port}, {}\n  ours:", hex(packet))?;
                observed(f, ours)?;
                writeln!(f, "  theirs:")?;
                observed(f, theirs)
            }
            Difference::Flows { ours, theirs } => {
                writeln!(f, "flows\n  ours:   {ours:#?}\n  theirs: {theirs:#?}")
            }
        }
    }
}

/// The differences of a case's results.
pub fn differences(case: &Case, ours: &Outcome, theirs: &Outcome) -> Vec<Difference> {
    let mut found = vec![];
    for (item, (left, right)) in ours.refusals.iter().zip(&theirs.refusals).enumerate() {
        if left != right {
            let text = match item.checked_sub(case.groups.len()) {
                None => case.groups[item].clone(),
                Some(rule) => case.rules[rule].to_string(),
            };
            found.push(Difference::Refusal { item, text, ours: left.clone(), theirs: right.clone() });
        }
    }
    let packets =
        case.bursts.iter().flat_map(|burst| burst.packets.iter().map(|packet| (burst.port, packet)));
    let results = ours.packets.iter().zip(&theirs.packets);
    for (number, ((port, packet), (left, right))) in packets.zip(results).enumerate() {
        if left != right {
            let (ours, theirs) = (left.clone(), right.clone());
            found.push(Difference::Packet { number, port, packet: packet.clone(), ours, theirs });
        }
    }
    if ours.flows != theirs.flows {
        let only = |these: &[String], others: &[String]| -> Vec<String> {
            these.iter().filter(|line| !others.contains(line)).cloned().collect()
        };
        found.push(Difference::Flows {
            ours: only(&ours.flows, &theirs.flows),
            theirs: only(&theirs.flows, &ours.flows),
        });
    }
    found
}

/// A case's result: what differs without a reason, and how often each legitimate reason applied.
#[derive(Debug, Default)]
pub struct Verdict {
    /// The case without what only one switch accepts.
    pub case: Option<Case>,
    /// Differences without a reason, each with the number of the switch that differs from the first.
    pub unexplained: Vec<(usize, Difference)>,
    /// Number of differences for each of [`EXPLAINED`].
    pub explained: Vec<u64>,
    /// Groups and flows that all switches accept, and those that all refuse.
    pub accepted: usize,
    /// The same for those that all refuse.
    pub refused: usize,
    /// Packets that left or went to the controller.
    pub seen: usize,
}

/// Runs a case on all switches and compares each with the first one.
///
/// # Errors
/// A switch does not answer.
pub fn judge(case: &Case, subjects: &mut [Box<dyn Subject>]) -> Result<Verdict> {
    let mut verdict = Verdict { explained: vec![0; EXPLAINED.len()], ..Verdict::default() };
    let mut case = case.clone();
    loop {
        let outcomes: Vec<_> =
            subjects.iter_mut().map(|subject| subject.run(&case)).collect::<Result<_>>()?;
        let Some((first, others)) = outcomes.split_first() else { return Ok(verdict) };
        // What nobody accepted explains nothing.
        let refused: Vec<_> =
            (0..).zip(&first.refusals).filter(|(_, error)| error.is_some()).map(|(n, _)| n).collect();
        let mut installed = case.clone();
        installed.without(&refused, &[]);
        let (mut items, mut packets) = (vec![], vec![]);
        verdict.unexplained.clear();
        for (number, other) in (1..).zip(others) {
            let found = differences(&case, first, other);
            let is_refusal = |found: &Difference| matches!(found, Difference::Refusal { .. });
            let is_packet = |found: &Difference| matches!(found, Difference::Packet { .. });
            // What only one switch has makes packets differ, and packets that differ are counted elsewhere.
            let refusals = found.iter().any(is_refusal);
            let differ = found.iter().any(is_packet);
            // What a missing group makes differ is seen when the others lack it, too.
            let first_group = found.iter().find_map(|found| match found {
                Difference::Refusal { item, .. } if *item < case.groups.len() => Some(*item),
                _ => None,
            });
            let first = |found: &Difference| match found {
                Difference::Refusal { item, .. } => first_group.is_none_or(|group| group == *item),
                Difference::Packet { .. } => !refusals,
                Difference::Flows { .. } => !refusals && !differ,
            };
            for difference in found.into_iter().filter(first) {
                let is_ovs = subjects[number].name() == crate::ovs::NAME;
                let Some(reason) = explained::reason(&installed, &difference).filter(|_| is_ovs) else {
                    verdict.unexplained.push((number, difference));
                    continue;
                };
                verdict.explained[reason] += 1;
                match difference {
                    Difference::Refusal { item, .. } => items.push(item),
                    Difference::Packet { number, .. } => packets.push(number),
                    Difference::Flows { .. } => {}
                }
            }
        }
        // What is explained is left out, so that the rest can be compared.
        if items.is_empty() && packets.is_empty() || !verdict.unexplained.is_empty() {
            verdict.accepted = first.refusals.iter().filter(|refusal| refusal.is_none()).count();
            verdict.refused = first.refusals.len() - verdict.accepted;
            let seen = |observed: &&Observed| !observed.outputs.is_empty() || !observed.packet_ins.is_empty();
            verdict.seen = first.packets.iter().filter(seen).count();
            verdict.case = Some(case);
            return Ok(verdict);
        }
        case.without(&items, &packets);
    }
}
