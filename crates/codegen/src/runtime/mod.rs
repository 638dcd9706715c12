//! What runs around generated code: passes, and the statements that are calls.
//!
//! A [`Worker`] has the memory that packets need and is used by one thread; [`Worker::run`] takes a packet through a
//! program, as [`pipeline::interp::run`] does. The [`Machine`] is what one packet's code and the runtime share. Code
//! calls the runtime ([`calls`]), which calls code in turn (deparsers, buckets of groups, selections): so the machine
//! is only ever borrowed shared, and its parts are cells.
//!
//! Invariants: the frame is at least as long as the layout says and does not move while a packet runs; its word
//! [`word::MACHINE`] is the machine's address meanwhile.
//!
//! - `calls.rs`: functions that code calls; `wide.rs`: those that only compute;
//! - `pass.rs`: stages; `send.rs`: destinations; `group.rs`: groups and selections; `form.rs`, `list.rs`, `effects.rs`;
//! - `tally.rs`: hits that are counted together; `versions.rs`: versions of tables that a batch meets; `look_ahead.rs`: the
//!   first lookups of a batch, together;
//! - `ways.rs`: packets that go remembered ways; `found.rs`: batches all of whose packets do; `way_cache.rs`: these ways;
//!   `way_slots.rs`: their memory; `fronts.rs`: bits of packets that they are found by; `alike.rs`: packets of a port
//!   that all go one way.

mod alike;
pub(crate) mod calls;
mod effects;
mod form;
mod found;
mod fronts;
mod group;
mod list;
mod look_ahead;
mod pass;
mod send;
mod tally;
mod versions;
mod way_cache;
mod way_slots;
mod ways;
mod wide;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use pipeline::env::Env;
use pipeline::interp::{Dropped, Limit, Received};
use pipeline::ir::{BlockId, Constant, HeaderId, StageId, TableId};
use pipeline::state::RegisterGuard;

use crate::code::{Code, Function};
use crate::flow;
use crate::layout::word;
use crate::view::{Record, View};

use alike::{Alike, Commons};
pub use effects::{Effect, Effects, Fate, Packet};
use form::Form;
pub use found::Found;
use found::Lookups;
use list::List;
use look_ahead::{Ahead, First, Frames};
use pass::{Arrival, Pass};
use tally::Tallies;
use versions::Versions;
use way_cache::Walk;
use ways::Ways;

/// Memory of one thread that runs packets.
#[derive(Debug, Default)]
pub struct Worker {
    frame: Frame,
    /// Frames of packets that wait for their first lookups.
    frames: Frames,
    scratch: Scratch,
    ahead: Ahead,
    ways: Ways,
    found: Lookups,
    common: Commons,
    /// Set while packets run. If it is when they begin, the environment or the source of packets has panicked.
    running: bool,
}

/// The frame of packets that run from beginning to end, one after the other.
#[derive(Debug, Default)]
struct Frame {
    words: Vec<u64>,
    /// The code that has used it last.
    code: u64,
}

/// Buffers, kept from packet to packet.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) pass: RefCell<Pass>,
    pub(crate) list: RefCell<List>,
    pub(crate) values: RefCell<Vec<Constant>>,
    pub(crate) results: RefCell<Vec<Constant>>,
    pub(crate) emitted: RefCell<Vec<u8>>,
    /// What a parser sees, where it is not one piece of the received packet.
    pub(crate) window: RefCell<Vec<u8>>,
    waiting: RefCell<VecDeque<Arrival>>,
    pub(crate) tallies: RefCell<Tallies>,
    pub(crate) versions: RefCell<Versions>,
    /// Lookups of the packet in specialised code.
    pub(crate) walk: RefCell<Walk>,
    /// Memory of forms that are made and used up.
    pub(crate) form: RefCell<Form>,
}

/// What one packet's code and the runtime share.
pub(crate) struct Machine<'a> {
    pub(crate) view: &'a View,
    /// The view's code, or the specialised one.
    pub(crate) code: &'a Code,
    pub(crate) received: Cell<&'a Received<'a>>,
    pub(crate) env: RefCell<&'a mut dyn Env>,
    pub(crate) effects: RefCell<&'a mut Effects>,
    /// Effects of earlier packets in the list.
    first_effect: Cell<usize>,
    pub(crate) scratch: &'a Scratch,
    frame: Cell<*mut u64>,
    passes: Cell<u32>,
    /// The registers' lock, in an atomic statement.
    pub(crate) guard: RefCell<Option<RegisterGuard<'a>>>,
    /// The table that was looked up last, and the entry hit.
    pub(crate) origin: Cell<Option<Lookup<'a>>>,
    /// The first lookup, if it was done with the batch's.
    pub(crate) first: Cell<Option<Lookup<'a>>>,
    /// Whether the batch counts first lookups in tables that count no hits.
    pub(crate) counts_together: bool,
    /// Whether the packet's lookups are kept in [`Scratch::walk`].
    pub(crate) walks: bool,
}

/// A table and the entry that a packet has hit there.
pub(crate) type Lookup<'a> = (TableId, Option<&'a Record>);

impl Worker {
    /// A worker without memory; it takes what the first packet needs.
    pub fn new() -> Self {
        Self::default()
    }

    /// The one worker that counts hits without atomic additions. Of all workers that run the packets of a state, one
    /// may be such.
    pub fn alone() -> Self {
        let mut worker = Self::new();
        worker.scratch.tallies.get_mut().count_alone();
        worker
    }

    /// Lets all packets run code from now on, but for those of ports whose packets all go one way: to compare them with
    /// packets that follow ways.
    pub fn remember_nothing(&mut self) {
        self.ways.are_off = true;
    }

    /// Returns the number of packets that have followed another one's way, without code.
    pub fn remembered(&self) -> u64 {
        self.ways.followed
    }

    /// Returns the number of packets that have gone on with what their first lookup was made of, parsed once.
    pub fn resumed(&self) -> u64 {
        self.frames.resumed
    }

    /// Returns the number of packets that have found another one's way by their fronts, without a parser.
    pub fn unparsed(&self) -> u64 {
        self.ways.unparsed
    }

    /// Takes a received packet through the program of a view, and appends what happens to `effects`.
    pub fn run(&mut self, view: &View, env: &mut dyn Env, received: &Received<'_>, effects: &mut Effects) {
        self.begin(view);
        self.frame.packet(&self.scratch, (view, env), received, None, effects);
        self.end(view);
    }

    /// Takes a batch of received packets through the program of a view, one after the other, and appends what happens
    /// to `effects`, and to `fates` of each packet what becomes of it. Hits are counted together at the end.
    pub fn run_batch<'r>(
        &mut self,
        view: &View,
        env: &mut dyn Env,
        packets: impl IntoIterator<Item = Received<'r>, IntoIter: Clone>,
        effects: &mut Effects,
        fates: &mut Vec<Fate>,
    ) {
        self.begin(view);
        let packets = packets.into_iter();
        if let Some(alike) = Alike::of(view) {
            self.run_alike(alike, env, packets, effects, fates);
            return self.end(view);
        }
        if let Some(remembered) = self.remembers(view) {
            self.run_remembered(remembered, env, packets, effects, fates);
            return self.end(view);
        }
        let before = fates.len();
        if let Some(first) = First::of(view) {
            self.run_ahead((view, &first), env, packets, effects, fates);
        } else {
            for received in packets {
                self.frame.packet(&self.scratch, (view, env), &received, None, effects);
                fates.push(effects.fate());
            }
        }
        self.ways.cache.pass(fates.len() - before);
        self.end(view);
    }

    /// Forgets packets and counts of a view that has perhaps gone, if an earlier run did not end.
    fn begin(&mut self, view: &View) {
        let scratch = &mut self.scratch;
        if std::mem::replace(&mut self.running, true) {
            scratch.waiting.get_mut().clear();
            scratch.tallies.get_mut().forget();
            scratch.versions.get_mut().release();
        }
        scratch.tallies.get_mut().prepare(view);
        scratch.versions.get_mut().prepare(view);
    }

    fn end(&mut self, view: &View) {
        self.scratch.tallies.get_mut().flush(view);
        self.scratch.versions.get_mut().release();
        self.running = false;
    }
}

impl Frame {
    /// The machine of a packet, and whether its code is specialised. Inline, so that it is made in its place: moving it
    /// costs a stall, as for [`Effects::add`]. Once the frame has another machine, this one must run no code in it.
    #[inline(always)]
    fn machine<'a>(
        &mut self,
        scratch: &'a Scratch,
        (view, env): (&'a View, &'a mut dyn Env),
        received: &'a Received<'a>,
        effects: &'a mut Effects,
    ) -> (Machine<'a>, bool) {
        let special = view.special.as_ref().filter(|special| special.flags == received.flags);
        let code = special.map_or(&*view.code, |special| &special.code);
        if self.code != code.id {
            self.words.clear();
            self.words.resize(code.layout.size.div_ceil(8), 0);
            self.code = code.id;
        }
        let first_effect = Cell::new(effects.list.len());
        let machine = Machine {
            view,
            code,
            received: Cell::new(received),
            env: RefCell::new(env),
            effects: RefCell::new(effects),
            first_effect,
            scratch,
            frame: Cell::new(self.words.as_mut_ptr()),
            passes: Cell::new(0),
            guard: RefCell::new(None),
            origin: Cell::new(None),
            first: Cell::new(None),
            counts_together: false,
            walks: false,
        };
        (machine, special.is_some())
    }

    /// Runs a packet; `first` is its first lookup, if that is known.
    fn packet(
        &mut self,
        scratch: &Scratch,
        (view, env): (&View, &mut dyn Env),
        received: &Received<'_>,
        first: Option<Lookup<'_>>,
        effects: &mut Effects,
    ) {
        let (machine, is_special) = self.machine(scratch, (view, env), received, effects);
        machine.begin();
        if is_special {
            machine.first.set(first);
            machine.only_pass();
            if let Some((table, _)) = first {
                machine.keep_outcome(table);
            }
            return;
        }
        machine.set_word(word::STEPS, 0);
        machine.first_pass();
        loop {
            let Some(arrival) = machine.scratch.waiting.borrow_mut().pop_front() else { break };
            machine.later_pass(arrival);
        }
    }
}

impl<'a> Machine<'a> {
    /// Tells code where the machine and other code are. The machine must not move from here on.
    #[inline]
    fn begin(&self) {
        self.set_word(word::MACHINE, std::ptr::from_ref(self) as u64);
        self.set_word(word::BLOCKS, self.code.blocks() as u64);
        self.set_word(word::ACTIONS, self.code.actions.as_ptr() as u64);
    }

    /// The stage that the packet is in.
    pub(crate) fn stage(&self) -> StageId {
        StageId(self.word(word::STAGE) as u32)
    }

    pub(crate) fn word(&self, i: usize) -> u64 {
        debug_assert!(i < self.code.layout.size.div_ceil(8));
        // SAFETY: [`Frame`] and [`Frames`] have made the frame at least as long as the layout, and words of the layout
        // are inside. Only this thread uses the frame, through this pointer.
        unsafe { self.frame.get().add(i).read() }
    }

    pub(crate) fn set_word(&self, i: usize, value: u64) {
        debug_assert!(i < self.code.layout.size.div_ceil(8));
        // SAFETY: as for `word`.
        unsafe { self.frame.get().add(i).write(value) }
    }

    /// Words of the frame between two byte offsets of the layout, multiples of 8.
    pub(crate) fn words(&self, from: i32, to: i32) -> &[u64] {
        let (from, to) = (from as usize / 8, to as usize / 8);
        debug_assert!(from <= to && to <= self.code.layout.size.div_ceil(8));
        // SAFETY: inside the frame, as for `word`; no code runs while the caller uses the slice, and nothing in this
        // module writes meanwhile.
        unsafe { std::slice::from_raw_parts(self.frame.get().add(from), to - from) }
    }

    /// Sets the words from a byte offset of the layout on.
    pub(crate) fn set_words(&self, from: i32, words: &[u64]) {
        let at = from as usize / 8;
        debug_assert!(at + words.len() <= self.code.layout.size.div_ceil(8));
        // SAFETY: inside the frame, as for `word`; the source is no part of it.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), self.frame.get().add(at), words.len()) }
    }

    /// Zeroes the words between two byte offsets of the layout.
    pub(crate) fn clear_words(&self, from: i32, to: i32) {
        let (from, to) = (from as usize / 8, to as usize / 8);
        debug_assert!(from <= to && to <= self.code.layout.size.div_ceil(8));
        // SAFETY: inside the frame, as for `word`.
        unsafe { self.frame.get().add(from).write_bytes(0, to - from) }
    }

    /// Bytes of the frame at a byte offset.
    pub(crate) fn bytes(&self, from: i32, len: usize) -> &[u8] {
        debug_assert!(from as usize + len <= self.code.layout.size);
        // SAFETY: inside the frame, as for `words`.
        unsafe { std::slice::from_raw_parts(self.frame.get().cast::<u8>().add(from as usize), len) }
    }

    /// Runs a function of generated code: a block only if the checked program names it ([`Code::block`]).
    pub(crate) fn execute(&self, function: Function, args: *const u64, depth: u64) -> i64 {
        // SAFETY: the function is of `code` or of the view's actions, which live as long as the view; the frame has
        // their layout and names this machine; `args` are laid out for the function by whoever made the action call
        // (null for others, which have no parameters). What it touches is argued in `emit`.
        unsafe { function(self.frame.get(), args, depth) }
    }

    /// Runs a block, and those that take its place.
    pub(crate) fn block(&self, mut block: BlockId, depth: u64) -> i64 {
        loop {
            if let Some(reason) = self.step() {
                return flow::drop_code(reason);
            }
            let Some(function) = self.code.block(block) else { return flow::NEXT };
            let end = self.execute(function, std::ptr::null(), depth);
            match flow::goto(end) {
                Some(next) => block = next,
                None => return end,
            }
        }
    }

    /// Counts a step; the reason to end if there were too many.
    pub(crate) fn step(&self) -> Option<Dropped> {
        let steps = self.word(word::STEPS) + 1;
        self.set_word(word::STEPS, steps);
        (steps > self.code.limits.steps.into()).then_some(Dropped::Limit(Limit::Steps))
    }

    /// Adds an effect; false if there are too many.
    #[inline]
    pub(crate) fn effect(&self, make: impl FnOnce() -> Effect) -> bool {
        let mut effects = self.effects.borrow_mut();
        let fits = effects.list.len() - self.first_effect.get() < self.code.limits.effects;
        if fits {
            effects.add(make);
        }
        fits
    }

    /// Drops the packet of a pass, or of a bucket.
    pub(crate) fn drop_packet(&self, reason: Dropped) {
        self.set_word(word::SENT, 1);
        self.effects.borrow_mut().list.push(Effect::Drop(reason));
    }

    /// Whether a header is valid.
    pub(crate) fn is_valid(&self, id: HeaderId) -> bool {
        self.word(self.code.layout.header(id) as usize / 8) != 0
    }

    /// Appends a valid header's bytes to what was emitted.
    pub(crate) fn emit(&self, id: HeaderId) {
        let Some(ty) = self.code.layout.header_type(id) else { return };
        if !self.is_valid(id) {
            return;
        }
        let mut emitted = self.scratch.emitted.borrow_mut();
        // What exceeds the limit is refused in the end; here it only must not grow without bounds.
        if emitted.len() > self.code.limits.headers {
            return;
        }
        let at = self.code.layout.header(id);
        let fixed = self.bytes(at + crate::layout::FIXED, ty.fixed);
        let Some(varbit) = ty.varbit else { return emitted.extend_from_slice(fixed) };
        let bits = self.word((at + varbit.len) as usize / 8) as usize;
        let variable = self.bytes(at + varbit.len + 8, bits.div_ceil(8));
        let front = varbit.at as usize;
        let mut list = List::default();
        list.push_bits(fixed, 0, front);
        list.push_bits(variable, 0, bits);
        list.push_bits(fixed, front, ty.fixed * 8 - front);
        emitted.extend_from_slice(list.bytes());
    }
}
