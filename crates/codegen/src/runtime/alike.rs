//! Packets of one port that all go one way: nothing that they are decides it, as where entries match ingress ports
//! alone.
//!
//! The first packet of a batch runs; if its way follows from its flow key, which has no part, those that come from the
//! same port behind it go the same way without code. If they leave as they came, the way is kept, and further batches
//! follow it as a whole.
//!
//! Invariant: as for [`super::ways`], the way that is kept holds for the view and the changes that were complete when
//! it was met, and statistics of its entries are used only while the caller holds that view.

use std::sync::atomic::Ordering::Acquire;

use pipeline::env::Env;
use pipeline::interp::Received;

use super::way_cache::{Outcome, Walk};
use super::{Effects, Fate, Form, Worker};
use crate::shortcut::Leaves;
use crate::special::Special;
use crate::view::View;

/// Specialised code that packets of one port go one way through, unless it finds that they do not.
#[derive(Clone, Copy)]
pub(super) struct Alike<'a> {
    view: &'a View,
    special: &'a Special,
}

impl<'a> Alike<'a> {
    /// That of a view.
    pub(super) fn of(view: &'a View) -> Option<Self> {
        let special = view.special.as_deref()?;
        special.code.flow_key()?;
        special.code.flow_parts.is_empty().then_some(Self { view, special })
    }
}

/// Packets that have gone the way of the last that has run.
struct Followers {
    port: u32,
    outcome: Outcome,
    packets: u64,
    bytes: u64,
}

/// The ways of ports all of whose packets go one way, each at the place that its port's number names.
#[derive(Debug, Default)]
pub(super) struct Commons([Option<Common>; 32]);

impl Commons {
    fn place(&mut self, port: u32) -> Option<&mut Option<Common>> {
        let places = self.0.len();
        self.0.get_mut(port as usize % places)
    }

    fn keep(&mut self, common: Common) {
        if let Some(place) = self.place(common.port) {
            *place = Some(common);
        }
    }
}

/// The way of all packets of a port.
#[derive(Debug)]
struct Common {
    /// The view, and the changes in it.
    of: (u64, u64),
    port: u32,
    leaves: Leaves,
    walk: Walk,
}

impl Worker {
    /// Lets a batch of packets follow the way that all packets of their port go, if there is one and they leave as they
    /// came; returns how. If there is none, nothing has happened. `size` tells the number of packets and the sum of
    /// their lengths, bytes.
    pub fn follow_all(
        &mut self,
        view: &View,
        (port, flags): (u32, u64),
        size: impl FnOnce() -> (u64, u64),
        now: u64,
    ) -> Option<Leaves> {
        let special = view.special.as_deref().filter(|special| special.flags == flags)?;
        special.code.flow_parts.is_empty().then_some(())?;
        let of = (view.id, view.changes.load(Acquire));
        let place = self.common.place(port)?;
        place.as_ref().filter(|common| common.of == of && common.port == port)?;
        let common = place.take()?;
        let leaves = common.leaves;
        self.begin(view);
        if let Some(lookups) = common.walk.lookups() {
            let (packets, bytes) = size();
            // SAFETY: the way was met in this view, after its last change.
            unsafe { self.scratch.tallies.get_mut().add_all(lookups, packets, bytes, now) };
            self.ways.followed += packets;
        }
        self.end(view);
        self.common.keep(common);
        Some(leaves)
    }

    /// Takes packets through a program whose flow key has no part; see [`Worker::run_batch`].
    pub(super) fn run_alike<'r>(
        &mut self,
        alike: Alike<'_>,
        env: &mut dyn Env,
        packets: impl Iterator<Item = Received<'r>>,
        effects: &mut Effects,
        fates: &mut Vec<Fate>,
    ) {
        let Alike { view, special } = alike;
        let of = (view.id, view.changes.load(Acquire));
        let mut followers: Option<Followers> = None;
        for received in packets {
            if let Some(way) = &mut followers
                && received.port == way.port
                && received.flags == special.flags
            {
                way.packets += 1;
                way.bytes += u64::from(Form::received_len(&received));
                fates.push(way.outcome.fate(effects));
                continue;
            }
            self.count(followers.take(), env);
            if received.flags != special.flags {
                self.frame.packet(&self.scratch, (view, env), &received, None, effects);
            } else if let Some(outcome) = self.explore(view, env, &received, effects)
                && self.scratch.walk.get_mut().lookups().is_some()
            {
                if let Outcome::Leaves(leaves) = outcome {
                    let walk = self.scratch.walk.get_mut().clone();
                    self.common.keep(Common { of, port: received.port, leaves, walk });
                }
                followers = Some(Followers { port: received.port, outcome, packets: 0, bytes: 0 });
            }
            fates.push(effects.fate());
        }
        self.count(followers, env);
    }

    /// Counts packets that have gone the way that the walk has.
    fn count(&mut self, followers: Option<Followers>, env: &mut dyn Env) {
        let Some(Followers { packets: packets @ 1.., bytes, .. }) = followers else { return };
        let Some(lookups) = self.scratch.walk.get_mut().lookups() else { return };
        self.ways.followed += packets;
        // SAFETY: the walk is that of the last packet that has run, in the view that this batch holds.
        unsafe { self.scratch.tallies.get_mut().add_all(lookups, packets, bytes, env.now()) };
    }
}
