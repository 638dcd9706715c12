//! Differences between the flows of a bridge and wanted ones: for `replace-flows` and `diff-flows`.

use std::collections::{BTreeMap, BTreeSet};

use openflow::message::{Body, FlowMod, FlowModCommand, FlowModFlags};
use openflow::multipart::FlowEntry;
use openflow::oxm::Oxm;
use openflow::{Version, text};

use super::connection::Change;
use super::shown::{Flow, Shown};
use super::tables::TableNames;
use crate::failure::Failure;

/// Flags of changes, which flows do not keep.
const ABOUT_CHANGES: FlowModFlags = FlowModFlags::CHECK_OVERLAP.union(FlowModFlags::RESET_COUNTS);

/// What tells flows apart: table, priority and match.
type Key = (u8, u16, String);

/// All else that is configured.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    cookie: u64,
    timeouts: [u16; 2],
    importance: u16,
    flags: FlowModFlags,
    instructions: String,
}

impl Content {
    fn there(flow: &FlowEntry, version: Version) -> Self {
        Self {
            cookie: flow.cookie,
            timeouts: [flow.idle_timeout, flow.hard_timeout],
            importance: flow.importance,
            flags: flow.flags - ABOUT_CHANGES,
            instructions: text::instructions_text(&flow.instructions, version),
        }
    }

    fn wanted(flow: &FlowMod, version: Version) -> Self {
        let FlowMod { cookie, idle_timeout, hard_timeout, importance, flags, instructions, .. } = flow;
        Self {
            cookie: *cookie,
            timeouts: [*idle_timeout, *hard_timeout],
            importance: *importance,
            flags: *flags - ABOUT_CHANGES,
            instructions: text::instructions_text(instructions, version),
        }
    }
}

/// A wanted flow.
pub(super) struct Wanted {
    pub(super) flow: FlowMod,
    /// The text that asks for it.
    pub(super) line: String,
    /// The same with its place, for messages.
    pub(super) text: String,
}

/// The differences: flows that only the bridge has, and wanted ones that it lacks or has otherwise.
pub(super) struct Differences {
    gone: Vec<(Change, String)>,
    new: Vec<New>,
}

/// A wanted flow that is not there.
struct New {
    change: Change,
    line: String,
    /// The flow in its place.
    there: Option<String>,
}

impl Differences {
    /// Compares the flows of a bridge with wanted ones.
    pub(super) fn new(
        there: &[FlowEntry],
        wanted: Vec<Wanted>,
        version: Version,
        names: &TableNames,
    ) -> Result<Self, Failure> {
        let mut existing = BTreeMap::new();
        for flow in there {
            let mut shown = Flow::new(flow, version)?;
            shown.forget_statistics();
            shown.name_tables(names);
            let fields = flow.matching.to_fields().map_err(Failure::new)?;
            let key = key(flow.table_id, flow.priority, &fields);
            existing.insert(key, (Content::there(flow, version), flow, shown));
        }
        let mut new = Vec::new();
        let mut found = BTreeSet::new();
        // Of several wanted flows with one match the last one counts.
        for Wanted { flow, line, text } in wanted.into_iter().rev() {
            let fields = flow.matching.to_fields().map_err(Failure::new)?;
            let key = key(flow.table_id, flow.priority, &fields);
            if found.contains(&key) {
                continue;
            }
            let content = Content::wanted(&flow, version);
            let there = existing.get(&key);
            if there.is_none_or(|(there, ..)| *there != content) {
                let change = Change { body: Body::FlowMod(Box::new(flow)), text };
                let there = there.map(|(_, _, shown)| shown.text().to_owned());
                new.push(New { change, line, there });
            }
            found.insert(key);
        }
        new.reverse();
        existing.retain(|key, _| !found.contains(key));
        let gone = existing.into_values().map(|(_, flow, shown)| {
            let text = shown.text().to_owned();
            let delete = FlowMod {
                command: FlowModCommand::DeleteStrict,
                table_id: flow.table_id,
                priority: flow.priority,
                matching: flow.matching.clone(),
                buffer_id: openflow::version::NO_BUFFER,
                out_port: openflow::PortNo::ANY,
                out_group: openflow::version::group::ANY,
                ..FlowMod::default()
            };
            (Change { body: Body::FlowMod(Box::new(delete)), text: format!("`{text}`") }, text)
        });
        Ok(Self { gone: gone.collect(), new })
    }

    /// The changes that give the bridge the wanted flows.
    pub(super) fn changes(self) -> Vec<Change> {
        let gone = self.gone.into_iter().map(|(change, _)| change);
        gone.chain(self.new.into_iter().map(|new| new.change)).collect()
    }

    /// The differences as lines behind `-` and `+`.
    pub(super) fn text(&self) -> String {
        let gone = self.gone.iter().map(|(_, text)| format!("-{text}\n"));
        let new = self.new.iter().map(|New { line, there, .. }| {
            let there = there.as_ref().map_or(String::new(), |there| format!("-{there}\n"));
            format!("{there}+{line}\n")
        });
        gone.chain(new).collect()
    }
}

fn key(table: u8, priority: u16, fields: &[Oxm]) -> Key {
    (table, priority, text::match_text(fields))
}
