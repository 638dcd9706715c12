//! Calls of instructions that were lowered before: as a rule, many flows share a few lists.
//!
//! Invariants: a call depends on owner and instructions alone, as lowering asked nothing of the world; and its action is
//! defined: when actions are forgotten, so are the calls.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use openflow::instruction::Instructions;
use pipeline::ir::ActionCall;

use super::Owner;

/// Places. Instructions whose hashes share one take it from each other, so that flows without common instructions cost
/// no search for the oldest.
const PLACES: usize = 256;

/// Most bytes of the message that gave the instructions. Longer lists are rarely shared, and would take much memory.
pub(crate) const MOST_BYTES: usize = 1024;

/// A call, and what it was lowered from.
#[derive(Debug, Clone)]
struct Call {
    owner: Owner,
    instructions: Arc<Instructions>,
    call: ActionCall,
}

/// Known calls.
#[derive(Debug, Default)]
pub(crate) struct Known {
    places: Vec<Option<Call>>,
    hasher: DefaultHashBuilder,
}

impl Known {
    fn place(&self, owner: Owner, instructions: &Instructions) -> usize {
        self.hasher.hash_one((owner, instructions)) as usize % PLACES
    }

    /// The call of a flow with these instructions, which then are those of the flow that had them before.
    pub(crate) fn find(&self, owner: Owner, instructions: &mut Arc<Instructions>) -> Option<ActionCall> {
        let known = self.places.get(self.place(owner, instructions))?.as_ref()?;
        if known.owner != owner || known.instructions != *instructions {
            return None;
        }
        *instructions = known.instructions.clone();
        Some(known.call.clone())
    }

    /// Keeps a call.
    pub(crate) fn keep(&mut self, owner: Owner, instructions: &Arc<Instructions>, call: &ActionCall) {
        self.places.resize_with(PLACES, || None);
        let place = self.place(owner, instructions);
        if let Some(place) = self.places.get_mut(place) {
            *place = Some(Call { owner, instructions: instructions.clone(), call: call.clone() });
        }
    }

    /// Forgets all calls.
    pub(crate) fn forget(&mut self) {
        self.places.clear();
    }
}
