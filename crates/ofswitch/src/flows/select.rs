//! Which flows a request is about.

use std::sync::Arc;

use openflow::action::Action;
use openflow::{PortNo, version};

use super::{Flow, FlowTable};
use crate::lower::matching::{Conditions, covers};

/// A choice of flows.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    /// The table; 0xff: all.
    pub(crate) table: u8,
    pub(crate) conditions: Conditions,
    /// Only the flow with exactly this match and priority.
    pub(crate) strict: Option<u16>,
    /// Cookie and the bits of it that matter.
    pub(crate) cookie: (u64, u64),
    pub(crate) out_port: PortNo,
    pub(crate) out_group: u32,
}

impl Selection {
    /// All flows.
    pub(crate) fn all() -> Self {
        Selection {
            table: version::table::ALL,
            conditions: Arc::default(),
            strict: None,
            cookie: (0, 0),
            out_port: PortNo::ANY,
            out_group: version::group::ANY,
        }
    }

    /// Whether a flow is chosen.
    pub(crate) fn contains(&self, flow: &Flow) -> bool {
        let matches = match self.strict {
            Some(priority) => flow.priority == priority && flow.conditions == self.conditions,
            None => covers(&self.conditions, &flow.conditions),
        };
        let (cookie, mask) = self.cookie;
        matches
            && (self.table == version::table::ALL || self.table == flow.table)
            && flow.cookie & mask == cookie & mask
            && (self.out_port == PortNo::ANY || outputs_to(flow, self.out_port))
            && (self.out_group == version::group::ANY || flow.has_group(self.out_group))
    }

    /// The chosen flows of some tables, in order.
    pub(crate) fn of(&self, tables: &[FlowTable]) -> Vec<Arc<Flow>> {
        let mut chosen = Vec::new();
        let tables = match self.table {
            version::table::ALL => tables,
            number => tables.get(usize::from(number)..=usize::from(number)).unwrap_or_default(),
        };
        for table in tables.iter().filter(|table| table.len() > 0) {
            match self.strict {
                Some(priority) => {
                    chosen.extend(
                        table.find(priority, &self.conditions).filter(|flow| self.contains(flow)).cloned(),
                    );
                }
                None => chosen.extend(table.iter().filter(|flow| self.contains(flow)).cloned()),
            }
        }
        chosen
    }
}

/// Whether a flow sends packets to a port.
fn outputs_to(flow: &Flow, port: PortNo) -> bool {
    flow.actions().into_iter().any(|action| match action {
        Action::Output(output) => output.port == port,
        Action::OutputTrunc(output) => output.port == port,
        Action::Enqueue(enqueue) => enqueue.port == port,
        Action::Controller(_) | Action::Controller2(_) => port == PortNo::CONTROLLER,
        _ => false,
    })
}
