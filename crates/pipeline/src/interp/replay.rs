//! Packets that pause: a program gives a packet away at a block, and continues there with what comes back for it.
//!
//! Nothing of a run is kept over a pause. The packet's way is replayed from its reception instead: up to the last pause
//! nothing counts and nothing comes of it; at each pause that was ended, the packet that came back takes the place of
//! the one that was given away.
//!
//! Invariants: what is behind the last pause happens once, and nothing else does. A pause within a group's bucket is
//! one of the bucket's copy: what follows the group is not repeated.

use super::packet::Form;
use super::pass::{Data, Pass};
use super::{Limits, Machine, Mode, Outcome, Received, execute};
use crate::bits::Bits;
use crate::env::Env;
use crate::ir::{BlockId, VarId};
use crate::state::State;

/// The pauses of a packet.
#[derive(Debug, Clone, Copy)]
pub struct Replay<'a> {
    /// The block at which packets pause. Its body ends the packet's way.
    pub pause: BlockId,
    /// Pauses that were ended, in order.
    pub resumed: &'a [Resumed],
}

/// The end of a pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumed {
    /// Which pause of the packet's way, counted from 0; those before it that are not named end copies of the packet.
    pub at: usize,
    /// The packet that came back.
    pub packet: Vec<u8>,
    /// Variables that came with it; the others have the values of the replay.
    pub vars: Vec<(VarId, Bits)>,
}

/// A replay on its way.
#[derive(Debug)]
pub(super) struct Progress<'a> {
    replay: Replay<'a>,
    /// Pauses met.
    pauses: usize,
    /// Pauses ended.
    ended: usize,
    /// Whether the whole of it is a rehearsal.
    rehearses: bool,
    /// Groups around the last pause that was ended.
    groups: u32,
}

/// Continues after the last pause of `replay`, with a trace of the whole way. In a rehearsal the state stays as it is.
pub fn resume(
    state: &State,
    env: &mut dyn Env,
    received: &Received<'_>,
    limits: &Limits,
    replay: Replay<'_>,
    rehearses: bool,
) -> Outcome {
    // Nothing counts before the last pause ends.
    let mode = Mode { trace: true, rehearsal: rehearses || !replay.resumed.is_empty() };
    let progress = Progress { replay, pauses: 0, ended: 0, rehearses, groups: 0 };
    execute(state, env, received, limits, mode, Some(progress))
}

impl Machine<'_> {
    /// Continues with what came back for the packet, if `block` is a pause that was ended.
    pub(super) fn ends_pause(&mut self, block: BlockId, pass: &mut Pass) -> bool {
        let Some(progress) = self.progress.as_mut().filter(|progress| progress.replay.pause == block) else {
            return false;
        };
        let at = progress.pauses;
        progress.pauses += 1;
        let Some(resumed) = progress.replay.resumed.get(progress.ended).filter(|resumed| resumed.at == at)
        else {
            return false;
        };
        progress.ended += 1;
        progress.groups = self.groups;
        if progress.ended == progress.replay.resumed.len() {
            self.mode.rehearsal = progress.rehearses;
            self.outcome.effects.clear();
        }
        let form = Form { head: resumed.packet.clone(), from: 0, to: 0 };
        let mut vars = std::mem::take(&mut pass.data.vars);
        for (var, value) in &resumed.vars {
            vars.iter_mut().skip(var.index()).take(1).for_each(|place| place.clone_from(value));
        }
        pass.data = Data { vars, ..Data::new(self.program, form.clone()) };
        pass.len = form.len();
        pass.original = form;
        self.parse(pass);
        true
    }

    /// Whether the packet's way is over where a group's bucket ends: what follows the group is another copy's.
    pub(super) fn is_over(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.ended > 0 && progress.groups > self.groups)
    }

    /// Whether the way did not get to the pause that was ended last.
    pub(super) fn is_astray(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.ended < progress.replay.resumed.len())
    }
}
