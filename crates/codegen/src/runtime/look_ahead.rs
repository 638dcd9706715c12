//! The first lookups of a batch, together: while one packet's entry comes from memory, others' are on their way, too.
//!
//! Specialised code has functions that only lay out the key of the first lookup, if that follows from the packet alone.
//! They run for all packets, or for one if the key follows from the ingress port; the table is looked up for all keys.
//! Packets whose entry has a shortcut take it ([`crate::shortcut`]); the others run one after the other, and their
//! first lookup takes what was found. Where it can, each goes on in a frame of its own with the headers and variables
//! that its key was made of, instead of being parsed again.

use std::sync::atomic::Ordering::Relaxed;

use pipeline::env::Env;
use pipeline::interp::Received;
use pipeline::ir::TableId;
use smallvec::SmallVec;

use super::{Effects, Fate, Form, Machine, Scratch, Worker};
use crate::code::Code;
use crate::form::WIDEST;
use crate::layout::word;
use crate::shortcut::Leaves;
use crate::special::Special;
use crate::view::{Record, TableView, View};

/// Packets whose first lookups are done together: a bit each of [`Ahead::looked`].
const MOST: usize = 64;
/// As many if each has a frame of its own, and the longest such frame, bytes: together they are in the processor's
/// nearest caches when the packets go on.
const FRAMES: usize = 32;
const LONGEST_FRAME: usize = 4096;

/// A frame for each packet whose first lookup is done with others'.
///
/// Invariant: there are [`FRAMES`] of them, each as long as the layout of the code that they are for.
#[derive(Debug, Default)]
pub(super) struct Frames {
    words: Vec<u64>,
    /// Words from one frame to the next.
    stride: usize,
    /// The code that has used the frames last.
    code: u64,
    /// Packets that have gone on in their frames.
    pub(super) resumed: u64,
}

impl Frames {
    /// Whether code goes on in frames.
    fn are_for(code: &Code) -> bool {
        code.resumes && code.layout.size <= LONGEST_FRAME
    }

    /// The frames for some code.
    fn of(&mut self, code: &Code) -> Each {
        if self.code != code.id {
            // An odd number of cache lines: what is used of each frame lies in other places of a cache.
            let lines = code.layout.size.div_ceil(64);
            self.stride = 8 * (lines + (lines + 1) % 2);
            self.words.clear();
            self.words.resize(FRAMES * self.stride, 0);
            self.code = code.id;
        }
        Each { first: self.words.as_mut_ptr(), stride: self.stride }
    }
}

/// The frames for a batch's packets.
#[derive(Clone, Copy)]
struct Each {
    first: *mut u64,
    stride: usize,
}

impl Each {
    #[inline]
    fn get(self, i: usize) -> *mut u64 {
        // SAFETY: there are so many frames, whose memory stays until `Frames::of` is called for other code: a batch
        // runs one.
        unsafe { self.first.add(i.min(FRAMES - 1) * self.stride) }
    }
}

/// What first lookups have found.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Keys, one behind the other, of packets that have one.
    keys: Vec<u64>,
    /// What was found for each key.
    found: Vec<u32>,
    /// Packets that have a key, a bit each.
    looked: u64,
    /// The same key for all.
    is_one: bool,
}

impl Ahead {
    /// Handles found for packets, in order.
    fn handles(&self) -> impl Iterator<Item = Option<u32>> {
        let mut next = 0;
        (0..MOST).map(move |i| {
            if self.looked >> i & 1 == 0 {
                return None;
            }
            let handle = self.found.get(next).copied();
            next += usize::from(!self.is_one);
            handle
        })
    }

    /// The entry that all of so many packets hit, the first from `port`, and its shortcut, if all have the same key.
    fn one_way<'a>(&self, first: &First<'a>, count: usize, port: u32) -> Option<(&'a Record, Leaves)> {
        // Packets of other ports, or that the code is not for, have no key then.
        if !self.is_one || self.looked.count_ones() as usize != count {
            return None;
        }
        let record = first.table.reader.records.get(*self.found.first()?)?;
        Some((record, record.shortcut.get(&first.special.code, port)?))
    }
}

/// The first lookup of specialised code.
pub(super) struct First<'a> {
    special: &'a Special,
    id: TableId,
    table: &'a TableView,
}

impl<'a> First<'a> {
    /// That of a view, if it is known.
    pub(super) fn of(view: &'a View) -> Option<Self> {
        let special = view.special.as_deref()?;
        let id = special.first_table?;
        let table = view.tables.get(id.index())?;
        (table.reader.narrow.words <= WIDEST).then_some(Self { special, id, table })
    }
}

impl Worker {
    /// Takes packets through a program whose first lookup is known; see [`Worker::run_batch`].
    pub(super) fn run_ahead<'r>(
        &mut self,
        (view, first): (&View, &First<'_>),
        env: &mut dyn Env,
        mut packets: impl Iterator<Item = Received<'r>>,
        effects: &mut Effects,
        fates: &mut Vec<Fate>,
    ) {
        let most = if Frames::are_for(&first.special.code) { FRAMES } else { MOST };
        let mut some: SmallVec<[_; MOST]> = SmallVec::new();
        loop {
            some.clear();
            some.extend(packets.by_ref().take(most));
            let Some(one) = some.first() else { break };
            self.run_some((view, first), env, (one, &some), effects, fates);
        }
    }

    /// The same for packets whose first lookups are done together.
    fn run_some(
        &mut self,
        (view, first): (&View, &First<'_>),
        env: &mut dyn Env,
        (one, packets): (&Received<'_>, &[Received<'_>]),
        effects: &mut Effects,
        fates: &mut Vec<Fate>,
    ) {
        let Self { frame, frames, scratch, ahead, .. } = self;
        let code = &first.special.code;
        let now = if first.table.timed { env.now() } else { 0 };
        // Whatever the first packet is, the machine is one of the specialised code.
        let any = Received { flags: first.special.flags, ..*one };
        let (mut machine, _) = frame.machine(scratch, (view, env), &any, effects);
        machine.counts_together = true;
        let each = Frames::are_for(code).then(|| frames.of(code));
        machine.look_ahead(first, packets, each, ahead);
        let ahead = &*ahead;
        if let Some(all) = ahead.one_way(first, packets.len(), one.port) {
            return leave_together(scratch, first, all, packets, now, fates);
        }
        // The frame of each packet with a key has what the key was made of.
        let each = each.filter(|_| !ahead.is_one);
        let (mut lookups, mut hits) = (0, 0);
        for (i, (received, handle)) in packets.iter().zip(ahead.handles()).enumerate() {
            let record = handle.and_then(|handle| first.table.reader.records.get(handle));
            let leaves = record.and_then(|record| record.shortcut.get(code, received.port));
            if let (Some(record), Some(leaves)) = (record, leaves) {
                fates.push(leave(scratch, first, (record, leaves), received, now));
                continue;
            }
            fates.push(match each {
                Some(each) if handle.is_some() => {
                    lookups += 1;
                    hits += u64::from(record.is_some());
                    machine.resume(first.id, record, received, each.get(i))
                }
                // The other machine may move the one frame. This one has code in frames of their own, or none from
                // here on.
                _ => {
                    let known = handle.map(|_| (first.id, record));
                    let (mut env, mut effects) = (machine.env.borrow_mut(), machine.effects.borrow_mut());
                    frame.packet(scratch, (view, &mut **env), received, known, &mut effects);
                    effects.fate()
                }
            });
        }
        frames.resumed += lookups;
        if lookups > 0 && !first.table.counted {
            scratch.tallies.borrow_mut().add_some(first.id.index(), lookups, hits);
        }
    }
}

/// Packets that hit one entry meet its outcome.
fn leave_together(
    scratch: &Scratch,
    first: &First<'_>,
    (record, leaves): (&Record, Leaves),
    packets: &[Received<'_>],
    now: u64,
    fates: &mut Vec<Fate>,
) {
    let bytes = packets.iter().map(|received| u64::from(Form::received_len(received))).sum();
    fates.extend(packets.iter().map(|_| Fate::Leaves(leaves)));
    hit(scratch, first, record, (packets.len() as u64, bytes), now);
}

/// A packet that hits an entry meets its outcome.
#[inline]
fn leave(
    scratch: &Scratch,
    first: &First<'_>,
    (record, leaves): (&Record, Leaves),
    received: &Received<'_>,
    now: u64,
) -> Fate {
    hit(scratch, first, record, (1, Form::received_len(received).into()), now);
    Fate::Leaves(leaves)
}

/// Counts packets with so many bytes in all that hit an entry.
#[inline]
fn hit(scratch: &Scratch, first: &First<'_>, record: &Record, (packets, bytes): (u64, u64), now: u64) {
    let mut tallies = scratch.tallies.borrow_mut();
    tallies.add(first.id.index(), Some(&record.stats), first.table.counted, packets, bytes);
    if first.table.timed {
        record.stats.last_hit.store(now, Relaxed);
    }
}

impl<'a> Machine<'a> {
    /// Does the first lookups of packets.
    fn look_ahead(
        &self,
        first: &First<'_>,
        packets: &'a [Received<'a>],
        each: Option<Each>,
        ahead: &mut Ahead,
    ) {
        let words = first.table.reader.narrow.words;
        ahead.keys.clear();
        (ahead.looked, ahead.is_one) = (0, false);
        let port = packets.first().map_or(0, |received| received.port);
        let mut key = [0; WIDEST];
        if each.is_none() {
            self.begin();
        }
        for (i, received) in packets.iter().enumerate() {
            if let Some(each) = each {
                self.frame.set(each.get(i));
                self.begin();
            }
            if received.flags != first.special.flags || ahead.is_one && received.port != port {
                continue;
            }
            let bit = 1 << i;
            if ahead.is_one {
                ahead.looked |= bit;
                continue;
            }
            self.received.set(received);
            if self.prepare(key.as_mut_ptr()) == Some(first.id) {
                ahead.looked |= bit;
                ahead.keys.extend_from_slice(key.get(..words).unwrap_or_default());
                ahead.is_one = i == 0 && self.word(word::UNDECIDED) == 0;
            }
        }
        let keys = if ahead.is_one { 1 } else { ahead.looked.count_ones() };
        ahead.found.clear();
        ahead.found.resize(keys as usize, tables::MISS);
        let Ahead { keys, found, .. } = ahead;
        let (reader, noted) = (&first.table.reader, first.table.counted || first.table.timed);
        self.scratch.versions.borrow_mut().look(first.id.index(), |held| match &mut found[..] {
            [found] => *found = reader.lookup.find_held(held, keys),
            found => reader.find_all(held, keys, found, noted),
        });
    }

    /// Runs a packet in the frame that has what its first lookup was made of, given the entry that this has hit.
    #[inline]
    fn resume(
        &self,
        table: TableId,
        hit: Option<&'a Record>,
        received: &'a Received<'a>,
        frame: *mut u64,
    ) -> Fate {
        self.frame.set(frame);
        self.received.set(received);
        self.first_effect.set(self.effects.borrow().list.len());
        self.first.set(Some((table, hit)));
        self.origin.set(None);
        self.resumed_pass();
        self.keep_outcome(table);
        self.effects.borrow().fate()
    }

    /// Keeps the outcome of a packet that has run with the entry that it hit, if others that hit it meet the same.
    pub(super) fn keep_outcome(&self, table: TableId) {
        // What leaves as it came but for the program's doing, as an empty packet does, is no example.
        if self.word(word::UNDECIDED) != 0 || !self.is_unchanged(&self.scratch.pass.borrow()) {
            return;
        }
        let received = self.received.get();
        let effects = self.effects.borrow();
        let Some([effect]) = effects.list.get(self.first_effect.get()..) else { return };
        let Some(leaves) = Leaves::of(effect, Form::received_len(received)) else { return };
        let record = self.word(self.code.layout.hit(table) as usize / 8) as *const Record;
        // SAFETY: the word is 0 or the address of a record of the view, which outlives the packet (`lookup`).
        if let Some(record) = unsafe { record.as_ref() } {
            record.shortcut.keep(self.code, received.port, leaves);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use pipeline::fuzzing::World;
    use pipeline::interp::Received;
    use pipeline::ir::TableId;
    use pipeline::state::{State, Update};
    use pipeline::{Checked, text};
    use tables::Held;

    use crate::shortcut::Leaves;
    use crate::{Effects, Engine, Options, Worker};

    /// What the only entry's shortcut says to packets of ports 7 and 3 after a packet of port 7.
    fn shortcuts(body: &str) -> [Option<Leaves>; 2] {
        let source = format!(
            "program one {{
              header h_t {{ a: bit<8>; b: bit<8>; }} instance h: h_t;
              var from: bit<32> = env ingress_port;
              action act(port: bit<32>) {{ {body} }}
              table t {{ key a: exact = h.a; actions act; size 8; }}
              parser p {{ state start {{ extract h; goto accept; }} }}
              block control {{ apply t; }}
              stage s {{ parser p; control control; }}
            }}"
        );
        let program = Checked::new(text::parse(&source).unwrap()).unwrap();
        let mut state = State::new(program.clone());
        let entry = text::parse_entry(&program, TableId(0), "entry { a: 8w1; } -> act(32w3);", &|_| None);
        let bundle = state.apply(vec![Update::Insert(TableId(0), entry.unwrap())], 0).unwrap();
        let mut engine = Engine::new(&state, Options::default()).unwrap();
        engine.follow(&state, &bundle).unwrap();
        engine.improve();
        let (views, mut world) = (engine.views(), World { now: 1, seed: 1 });
        let view = views.load();
        let packets = [Received::whole(&[1, 0], 7)];
        let mut worker = Worker::new();
        worker.remember_nothing();
        worker.run_batch(&view, &mut world, packets, &mut Effects::default(), &mut Vec::new());
        let (special, table) = (view.special.as_ref().unwrap(), view.tables.first().unwrap());
        let record = table.reader.find(&mut Held::default(), &[1 << 56]).unwrap();
        [7, 3].map(|port| record.shortcut.get(&special.code, port))
    }

    #[test]
    fn entries_keep_ways_that_follow_from_them() {
        let [other, back] = shortcuts("if (from != $port) { send current port $port; }");
        assert!(other.is_some() && back.is_none());
        let [same, other] = shortcuts("if (from == 32w7) { send current port $port; }");
        assert!(same.is_some() && other.is_none());
        assert_eq!(shortcuts("if (h.b == 8w0) { send current port $port; }"), [None, None]);
        assert_eq!(shortcuts("send current port $port; send current port 32w4;"), [None, None]);
    }
}
