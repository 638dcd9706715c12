//! Passes: one packet in one stage.

use pipeline::env::Queue;
use pipeline::interp::{Dropped, Limit};
use pipeline::ir::{HeaderId, ParserId, Slot, StageId, TableId, VarId};

use super::{Form, Machine};
use crate::code::{BoundVar, Function};
use crate::flow;
use crate::layout::word;

/// A packet that enters a stage.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) stage: StageId,
    pub(crate) content: Content,
    pub(crate) about: About,
}

/// What enters.
#[derive(Debug)]
pub(crate) enum Content {
    /// Bytes and carried variables.
    Bytes(Form, Vec<(VarId, Vec<u64>)>),
    /// The frame's data as it is, the payload, the packet as its parser received it, and the length that it had when it
    /// entered the stage that sends it.
    Parsed(Data, Form, u32),
}

/// A snapshot of what a program computes with.
#[derive(Debug, Clone)]
pub(crate) struct Data {
    pub(crate) words: Vec<u64>,
    pub(crate) payload: Form,
    pub(crate) truncate: Option<u32>,
}

/// What is known about a packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct About {
    pub(crate) parser: Option<ParserId>,
    pub(crate) egress: Option<u32>,
    pub(crate) replica: u16,
    pub(crate) instance: u8,
    pub(crate) class: Option<u8>,
    pub(crate) queue: Option<u16>,
    pub(crate) limit: Option<u32>,
    pub(crate) rounds: u32,
}

/// A pass, besides what is in the frame.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    pub(crate) payload: Form,
    pub(crate) truncate: Option<u32>,
    /// The packet as its parser received it.
    pub(crate) original: Form,
    pub(crate) about: About,
    /// Length on entry.
    pub(crate) len: u32,
}

impl Machine<'_> {
    /// The pass of the received packet.
    pub(super) fn first_pass(&self) {
        let to = Form::received_len(self.received.get());
        {
            let mut pass = self.scratch.pass.borrow_mut();
            pass.payload.set(&[], 0, to);
            pass.original.set(&[], 0, to);
            pass.truncate = None;
            pass.about = About::default();
            pass.len = to;
        }
        self.clear_data();
        self.set_word(word::STAGE, 0);
        self.pass(true);
    }

    /// The pass of the received packet in specialised code, which counts no steps; then those of packets that it
    /// sent to a stage.
    pub(super) fn only_pass(&self) {
        let Some(stage) = self.code.program.stages.first() else { return };
        self.enter_only(stage);
        self.go_through(stage);
    }

    /// The same with what [`Machine::prepare`] has left in the frame.
    #[inline]
    pub(super) fn resumed_pass(&self) {
        let Some(stage) = self.code.program.stages.first() else { return };
        let parsed = if self.code.reads_payload && stage.parser.is_some() { self.word(word::AT) } else { 0 };
        self.begin_only(stage, parsed as u32);
        // The preparation may have set these; the statements that run now set them again.
        self.set_word(word::UNDECIDED, 0);
        self.set_word(word::UNKEYED, 0);
        self.go_through(stage);
    }

    #[inline(always)]
    fn go_through(&self, stage: &pipeline::ir::Stage) {
        self.passes.set(1);
        match self.code.all_stages() {
            Some(function) => self.end_pass(self.execute(function, std::ptr::null(), 0)),
            None => self.only_stages(stage),
        }
        if self.code.sends_on {
            self.other_passes();
        }
    }

    /// The passes of packets that specialised code has sent to a stage.
    #[inline(never)]
    fn other_passes(&self) {
        loop {
            let Some(arrival) = self.scratch.waiting.borrow_mut().pop_front() else { break };
            if !self.begin_pass() {
                self.drop_packet(Dropped::Limit(Limit::Passes));
                continue;
            }
            let must_parse = self.arrive(arrival);
            let Some(stage) = self.code.program.stages.get(self.stage().index()) else { continue };
            self.first.set(None);
            self.begin_stage();
            self.enter(stage.parser, must_parse);
            self.only_stages(stage);
        }
    }

    /// Takes the packet through a stage of specialised code, and through the next if it goes on.
    #[inline(always)]
    fn only_stages(&self, stage: &pipeline::ir::Stage) {
        let mut end = self.only_stage(stage);
        if let (flow::ON, Some(next)) = (end, self.code.program.stages.get(1)) {
            self.set_word(word::STAGE, 1);
            self.set_word(word::SENT, 0);
            end = self.only_stage(next);
        }
        self.end_pass(end);
    }

    /// Takes the packet through a stage of specialised code.
    #[inline(always)]
    fn only_stage(&self, stage: &pipeline::ir::Stage) -> i64 {
        let end = self.unbounded(stage.control);
        match stage.finish {
            Some(finish) if flow::dropped(end).is_none() => self.unbounded(finish),
            _ => end,
        }
    }

    /// Lays out the key of the first lookup; returns its table, if it follows from the packet alone. If code resumes
    /// then, the frame has all that the pass begins with.
    #[inline]
    pub(super) fn prepare(&self, key: *mut u64) -> Option<TableId> {
        let mut end = match self.code.arrival() {
            Some(arrival) => self.begin_ahead(arrival, key),
            None => {
                let stage = self.code.program.stages.first()?;
                self.parse_ahead(stage);
                self.execute(self.code.preparation(stage.control)?, key.cast_const(), 0)
            }
        };
        while let Some(next) = flow::goto(end) {
            end = self.execute(self.code.preparation(next)?, key.cast_const(), 0);
        }
        flow::lookup(end)
    }

    /// Runs the function that begins a pass.
    #[inline(always)]
    fn begin_ahead(&self, arrival: Function, key: *mut u64) -> i64 {
        let code = self.code;
        let received = self.received.get();
        let len = Form::received_len(received);
        if code.reads_payload {
            self.scratch.pass.borrow_mut().payload.set_received(len);
        }
        self.clear_stacks();
        self.fill_first(len);
        self.set_word(word::WINDOW, received.visible.as_ptr() as u64);
        self.set_word(word::WINDOW_LEN, received.visible.len().min(code.limits.window) as u64);
        self.execute(arrival, key.cast_const(), 0)
    }

    /// Sets variables and headers for what precedes the only pass. Of the pass itself, only the payload is known then.
    pub(super) fn parse_ahead(&self, stage: &pipeline::ir::Stage) {
        let code = self.code;
        let received = self.received.get();
        let len = Form::received_len(received);
        if code.reads_payload {
            self.scratch.pass.borrow_mut().payload.set_received(len);
        }
        self.clear_only(len);
        if let Some(parser) = stage.parser.and_then(|id| code.parser(id)) {
            self.set_word(word::FAULT, 0);
            self.run_parser(parser, received.visible, 0);
        }
    }

    /// Clears what the only pass begins with, and sets variables.
    #[inline]
    fn clear_only(&self, len: u32) {
        // Whether it is decided, the hits, then the data.
        self.clear_words((word::UNDECIDED * 8) as i32, self.code.layout.stacks);
        self.clear_stacks();
        self.fill_first(len);
    }

    /// Sets the variables that are bound to intrinsic metadata at the beginning of the only pass.
    #[inline]
    fn fill_first(&self, len: u32) {
        let code = self.code;
        if !code.slots.is_empty() {
            let time = if code.has_time { self.env.borrow_mut().now() } else { 0 };
            self.fill_slots(&code.slots, &About::default(), len, time, Queue::default(), true);
        }
    }

    /// Refills the variables that differ in the second stage.
    pub(super) fn enter_on(&self, about: &About, len: u32) {
        let code = self.code;
        if code.reads_hits {
            self.clear_words((word::HITS * 8) as i32, code.layout.data);
        }
        if code.entered.is_empty() {
            return;
        }
        let (mut time, mut queue) = (0, Queue::default());
        if code.reads_env {
            let mut env = self.env.borrow_mut();
            let class = about.class.unwrap_or(self.received.get().class);
            time = env.now();
            queue = about.egress.map_or_else(Queue::default, |port| env.queue(port, class));
        }
        self.fill_slots(&code.entered, about, len, time, queue, false);
    }

    /// Begins the only pass: its variables and headers.
    fn enter_only(&self, stage: &pipeline::ir::Stage) {
        let len = self.begin_only(stage, 0);
        self.clear_only(len);
        if stage.parser.is_some() {
            self.set_word(word::FAULT, 0);
            self.parse(0);
        }
    }

    /// Begins the only pass of a packet of which so many bytes have been parsed, without what is in the frame; returns the
    /// packet's length.
    #[inline]
    fn begin_only(&self, stage: &pipeline::ir::Stage, parsed: u32) -> u32 {
        let len = Form::received_len(self.received.get());
        self.set_word(word::STAGE, 0);
        self.set_word(word::SENT, 0);
        let mut pass = self.scratch.pass.borrow_mut();
        pass.payload.set_received(len);
        pass.payload.from = parsed.min(len);
        pass.original.set_received(len);
        pass.truncate = None;
        pass.about = About { parser: stage.parser, ..About::default() };
        pass.len = len;
        len
    }

    /// Runs a block of specialised code, and those that take its place.
    #[inline]
    fn unbounded(&self, mut block: pipeline::ir::BlockId) -> i64 {
        loop {
            let Some(function) = self.code.block(block) else { return flow::NEXT };
            let end = self.execute(function, std::ptr::null(), 0);
            match flow::goto(end) {
                Some(next) => block = next,
                None => return end,
            }
        }
    }

    /// The pass of a packet that was sent to a stage.
    pub(super) fn later_pass(&self, arrival: Arrival) {
        let must_parse = self.arrive(arrival);
        self.pass(must_parse);
    }

    /// Sets what a packet brings along; whether it is still to be parsed.
    fn arrive(&self, arrival: Arrival) -> bool {
        self.set_word(word::STAGE, arrival.stage.0.into());
        let mut pass = self.scratch.pass.borrow_mut();
        pass.about = arrival.about;
        match arrival.content {
            Content::Bytes(form, carried) => {
                self.clear_data();
                for (var, words) in &carried {
                    self.set_words(self.code.layout.var(*var), words);
                }
                pass.len = form.len();
                pass.payload.copy_from(&form);
                pass.original = form;
                pass.truncate = None;
                true
            }
            Content::Parsed(data, original, len) => {
                self.set_words(self.code.layout.data, &data.words);
                self.set_word(word::TOUCHED, 1);
                pass.payload = data.payload;
                pass.truncate = data.truncate;
                pass.original = original;
                // Of headers that are already there, the payload is only a part.
                pass.len = match self.code.measures {
                    true => pass.payload.len().saturating_add(self.header_bytes()),
                    false => len,
                };
                false
            }
        }
    }

    fn clear_data(&self) {
        let layout = &self.code.layout;
        self.clear_words(layout.data, layout.stacks);
        self.clear_stacks();
    }

    /// Clears the stacks, if they have been written.
    fn clear_stacks(&self) {
        let layout = &self.code.layout;
        if self.word(word::TOUCHED) != 0 {
            self.clear_words(layout.stacks, layout.end);
            self.set_word(word::TOUCHED, 0);
        }
    }

    /// Whether the packet would leave as it came.
    #[inline]
    pub(super) fn is_unchanged(&self, pass: &Pass) -> bool {
        self.code.is_unchanging
            || self.word(self.code.layout.changed() as usize / 8) == 0
                && self.code.is_identity(pass.about.parser, self.stage())
    }

    /// Takes the packet through its stage.
    fn pass(&self, must_parse: bool) {
        if !self.begin_pass() {
            return self.drop_packet(Dropped::Limit(Limit::Passes));
        }
        let Some(schema) = self.code.program.stages.get(self.stage().index()) else { return };
        self.begin_stage();
        self.enter(schema.parser, must_parse);
        let mut end = self.block(schema.control, 0);
        if let (Some(finish), None) = (schema.finish, flow::dropped(end)) {
            end = self.block(finish, 0);
        }
        self.end_pass(end);
    }

    /// Counts a pass; whether it is not one too many.
    pub(super) fn begin_pass(&self) -> bool {
        let passes = self.passes.get() + 1;
        self.passes.set(passes);
        passes <= self.code.limits.passes
    }

    /// Forgets what belongs to the pass before.
    fn begin_stage(&self) {
        self.origin.set(None);
        self.set_word(word::SENT, 0);
        // The entries hit.
        self.clear_words((word::HITS * 8) as i32, self.code.layout.data);
        self.set_word(word::FAULT, 0);
    }

    /// Drops the packet of a pass that ends so, or that was sent nowhere.
    #[inline]
    fn end_pass(&self, end: i64) {
        match flow::dropped(end) {
            Some(reason) => self.drop_packet(reason),
            None if self.word(word::SENT) == 0 => self.drop_packet(Dropped::NoDestination),
            None => {}
        }
    }

    fn enter(&self, parser: Option<ParserId>, must_parse: bool) {
        let (about, len) = {
            let mut pass = self.scratch.pass.borrow_mut();
            pass.about.parser = parser.or(pass.about.parser);
            (pass.about, pass.len)
        };
        let (stage_time, queue) = {
            let mut env = self.env.borrow_mut();
            let time = env.now();
            let class = about.class.unwrap_or(self.received.get().class);
            (time, about.egress.map_or_else(Queue::default, |port| env.queue(port, class)))
        };
        self.fill_slots(&self.code.slots, &about, len, stage_time, queue, must_parse);
        if must_parse || parser.is_some() {
            self.parse(0);
        }
    }

    /// Sets the variables that are bound to intrinsic metadata.
    #[inline]
    fn fill_slots(
        &self,
        slots: &[BoundVar],
        about: &About,
        len: u32,
        stage_time: u64,
        queue: Queue,
        must_parse: bool,
    ) {
        let received = self.received.get();
        for bound in slots {
            let number = match bound.slot {
                // A stage without a parser keeps the error of the stage that parsed.
                Slot::ParserError if !must_parse => continue,
                Slot::ParserError => 0,
                Slot::IngressPort => received.port.into(),
                Slot::EgressPort => about.egress.unwrap_or(0).into(),
                Slot::PacketLength => len.into(),
                Slot::IngressTime => received.time,
                Slot::StageTime => stage_time,
                Slot::Instance => about.instance.into(),
                Slot::Replica => about.replica.into(),
                Slot::Class => about.class.unwrap_or(received.class).into(),
                Slot::EnqueueDepth => queue.enqueue_depth.into(),
                Slot::DequeueDepth => queue.dequeue_depth.into(),
                Slot::QueueDelay => queue.delay,
                Slot::FlowHash => received.flow_hash.into(),
                Slot::Flags => received.flags,
            };
            bound.words(number).for_each(|(at, word)| self.set_word(at, word));
        }
    }

    /// Makes the headers of the pass from its payload.
    fn parse(&self, depth: u64) {
        let code = self.code;
        let parser = self.scratch.pass.borrow().about.parser;
        let Some(function) = parser.and_then(|id| code.parser(id)) else { return };
        let seen = {
            let pass = self.scratch.pass.borrow();
            let tail = pass.payload.tail(self.received.get());
            if pass.payload.head.is_empty() {
                tail
            } else {
                let mut window = self.scratch.window.borrow_mut();
                window.clear();
                window.extend_from_slice(&pass.payload.head);
                window.extend_from_slice(tail);
                // The buffer does not change before the parser ends.
                let (at, len) = (window.as_ptr(), window.len());
                // SAFETY: the buffer was just filled; only `parse` changes it, and a parser does not lead to another.
                unsafe { std::slice::from_raw_parts(at, len) }
            }
        };
        self.run_parser(function, seen, depth);
    }

    /// Runs a parser on what it sees of the payload, and takes what was parsed off this.
    #[inline]
    fn run_parser(&self, function: Function, seen: &[u8], depth: u64) {
        let code = self.code;
        self.set_word(word::WINDOW, seen.as_ptr() as u64);
        self.set_word(word::WINDOW_LEN, seen.len().min(code.limits.window) as u64);
        self.execute(function, std::ptr::null(), depth);
        let error = self.word(word::ERROR);
        self.set_word(word::FAULT, 0);
        self.take_parsed();
        for bound in code.slots.iter().filter(|bound| bound.slot == Slot::ParserError) {
            bound.words(error).for_each(|(at, word)| self.set_word(at, word));
        }
    }

    /// Takes what was parsed off the payload.
    fn take_parsed(&self) {
        if self.code.reads_payload {
            let at = u32::try_from(self.word(word::AT)).unwrap_or(u32::MAX);
            self.scratch.pass.borrow_mut().payload.skip(at);
        }
    }

    /// A snapshot of the data.
    pub(super) fn snapshot(&self) -> Data {
        let layout = &self.code.layout;
        let pass = self.scratch.pass.borrow();
        Data {
            words: self.words(layout.data, layout.end).to_vec(),
            payload: pass.payload.clone(),
            truncate: pass.truncate,
        }
    }

    pub(super) fn restore(&self, data: Data) {
        self.set_words(self.code.layout.data, &data.words);
        self.set_word(word::TOUCHED, 1);
        let mut pass = self.scratch.pass.borrow_mut();
        (pass.payload, pass.truncate) = (data.payload, data.truncate);
    }

    /// Makes the packet's bytes as they would leave now, in `scratch.form`.
    pub(super) fn deparse(&self, depth: u64) -> Result<(), Dropped> {
        let code = self.code;
        let stage = self.stage();
        {
            let pass = self.scratch.pass.borrow();
            if self.is_unchanged(&pass) {
                self.scratch.form.borrow_mut().copy_from(&pass.original);
                return Ok(());
            }
        }
        self.scratch.emitted.borrow_mut().clear();
        let deparser = code.program.stages.get(stage.index()).and_then(|stage| stage.deparser);
        match deparser.and_then(|block| code.block(block)) {
            Some(function) => {
                let before = (!code.emits_only(stage)).then(|| self.snapshot());
                let end = self.execute(function, std::ptr::null(), depth);
                before.into_iter().for_each(|before| self.restore(before));
                if let Some(reason) = flow::dropped(end) {
                    return Err(reason);
                }
            }
            None => (0..code.layout.headers()).for_each(|i| self.emit(HeaderId::at(i))),
        }
        let (pass, emitted) = (self.scratch.pass.borrow(), self.scratch.emitted.borrow());
        let mut form = self.scratch.form.borrow_mut();
        form.set(&emitted, pass.payload.from, pass.payload.to);
        form.head.extend_from_slice(&pass.payload.head);
        pass.truncate.iter().for_each(|len| form.cut(*len));
        if form.head.len() > code.limits.headers { Err(Dropped::Limit(Limit::Headers)) } else { Ok(()) }
    }

    /// Deparses and parses again; variables stay.
    pub(super) fn reparse(&self, depth: u64) -> Result<(), Dropped> {
        self.deparse(depth)?;
        let layout = &self.code.layout;
        self.set_word(layout.changed() as usize / 8, 0);
        self.clear_words(layout.vars_end, layout.stacks);
        self.clear_stacks();
        {
            let (mut pass, form) = (self.scratch.pass.borrow_mut(), self.scratch.form.borrow());
            pass.payload.copy_from(&form);
            pass.original.copy_from(&form);
            pass.truncate = None;
        }
        self.parse(depth);
        Ok(())
    }

    /// Bytes of the valid headers.
    pub(super) fn header_bytes(&self) -> u32 {
        let layout = &self.code.layout;
        let ids = (0..layout.headers()).map(HeaderId::at).filter(|id| self.is_valid(*id));
        let bytes = ids.filter_map(|id| {
            let ty = layout.header_type(id)?;
            let variable =
                ty.varbit.map_or(0, |varbit| self.word((layout.header(id) + varbit.len) as usize / 8));
            Some(ty.fixed as u32 + (variable / 8) as u32)
        });
        bytes.sum()
    }
}
