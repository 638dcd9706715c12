//! Two executions of one program, side by side.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

use std::sync::atomic::Ordering::Relaxed;

use codegen::{Effects, Engine, Fate, Options, Views, Worker};
use pipeline::Checked;
use pipeline::fuzzing::World;
use pipeline::interp::{self, Limits, Received};
use pipeline::ir::{CounterId, GroupTableId, RegisterId, TableId};
use pipeline::state::{State, Update};

/// A program in the interpreter and as code, each with a state of its own.
pub(crate) struct Pair {
    pub(crate) interpreted: State,
    pub(crate) compiled: State,
    pub(crate) engine: Engine,
    views: Views,
    worker: Worker,
    limits: Limits,
    worlds: [World; 2],
    checks: usize,
    at_once: u64,
}

impl Pair {
    pub(crate) fn new(program: &Checked, limits: Limits) -> Self {
        let (interpreted, compiled) = (State::new(program.clone()), State::new(program.clone()));
        let options = Options { limits, code: 256 << 20, stack: 256 << 20 };
        let engine = Engine::new(&compiled, options).unwrap_or_else(|error| panic!("{error}"));
        let views = engine.views();
        let world = World { now: 1_000_000, seed: 7 };
        let worlds = [world.clone(), world];
        Self {
            interpreted,
            compiled,
            engine,
            views, // Its counts are compared with the interpreter's, which all threads may add to.
            worker: Worker::alone(),
            limits,
            worlds,
            checks: 0,
            at_once: 0,
        }
    }

    /// Applies a bundle to both; whether it fitted.
    pub(crate) fn apply(&mut self, updates: Vec<Update>) -> bool {
        let first = self.interpreted.apply(updates.clone(), 0);
        let second = self.compiled.apply(updates, 0);
        assert_eq!(first.is_ok(), second.is_ok());
        if let Ok(bundle) = &second {
            self.engine.follow(&self.compiled, bundle).unwrap();
        }
        first.is_ok()
    }

    /// Runs a packet in both and compares what it causes.
    pub(crate) fn check(&mut self, received: &Received<'_>) -> Vec<interp::Effect> {
        // Specialised code does not exist before; the general one runs between a change and the next packet but one.
        self.checks += 1;
        if self.checks.is_multiple_of(2) {
            self.engine.improve();
        }
        let expected = self.interpret(received);
        let mut effects = Effects::default();
        self.worker.run(&self.views.load(), &mut self.worlds[1], received, &mut effects);
        let found = effects.to_interp();
        self.compare(received, &expected, &found);
        found
    }

    /// Runs a batch of packets in both and compares what each causes. Packets of one port go ways that all of them find
    /// as such packets do in a switch.
    pub(crate) fn check_batch(&mut self, batch: &[Received<'_>]) -> Vec<interp::Effect> {
        let expected: Vec<_> = batch.iter().map(|received| self.interpret(received)).collect();
        let (mut effects, mut fates) = (Effects::default(), vec![]);
        self.follow_found(batch, &mut fates);
        let packets = batch.iter().skip(fates.len()).copied();
        self.worker.run_batch(&self.views.load(), &mut self.worlds[1], packets, &mut effects, &mut fates);
        assert_eq!(fates.len(), batch.len());
        let found = effects.to_interp_each(&fates, batch.iter().map(|packet| packet.len));
        for ((received, expected), found) in batch.iter().zip(&expected).zip(&found) {
            self.compare(received, expected, found);
        }
        found.concat()
    }

    /// Lets the first packets of a batch follow the ways that all of them find.
    fn follow_found(&mut self, batch: &[Received<'_>], fates: &mut Vec<Fate>) {
        let Some(first) = batch.first().map(|first| (first.port, first.flags)) else { return };
        if batch.iter().any(|packet| (packet.port, packet.flags) != first) {
            return;
        }
        let (view, now) = (self.views.load(), self.worlds[1].now);
        loop {
            let packets = batch.iter().skip(fates.len()).map(|packet| (packet.visible, packet.len));
            let Some(found) = self.worker.find_ways(&view, first, packets) else { break };
            let end = fates.len() + found.len();
            found.follow(now, |leaves| fates.push(Fate::Leaves(leaves)));
            assert_eq!(fates.len(), end);
        }
        self.at_once += fates.len() as u64;
    }

    /// Lets packets of one port follow the way that all packets of their port go, if there is one.
    pub(crate) fn follow_all(&mut self, batch: &[Received<'_>]) -> Option<codegen::Leaves> {
        let first = batch.first()?;
        let size = || (batch.len() as u64, batch.iter().map(|received| u64::from(received.len)).sum());
        let (view, now) = (self.views.load(), self.worlds[1].now);
        let leaves = self.worker.follow_all(&view, (first.port, first.flags), size, now)?;
        batch.iter().for_each(|received| _ = self.interpret(received));
        Some(leaves)
    }

    fn interpret(&mut self, received: &Received<'_>) -> Vec<interp::Effect> {
        interp::run(&self.interpreted, &mut self.worlds[0], received, &self.limits, false).effects
    }

    fn compare(&self, received: &Received<'_>, expected: &[interp::Effect], found: &[interp::Effect]) {
        let same = |(a, b): (&interp::Effect, &interp::Effect)| {
            a.clone().canonical(received) == b.clone().canonical(received)
        };
        if found.len() != expected.len() || !found.iter().zip(expected).all(same) {
            let mut again = World { now: 1_000_000, seed: 7 };
            let trace = interp::run(&self.interpreted, &mut again, received, &self.limits, true).trace;
            let trace: Vec<_> = trace.iter().map(|event| event.text(&self.interpreted)).collect();
            panic!(
                "interpreter: {expected:#?}\ncode: {found:#?}\npacket: {received:?}\ntrace:\n{}",
                trace.join("\n")
            );
        }
        assert_eq!(self.worlds[0].seed, self.worlds[1].seed, "random numbers drawn");
    }

    /// Lets packets run code instead of following remembered ways.
    pub(crate) fn remember_nothing(&mut self) {
        self.worker.remember_nothing();
    }

    /// Packets that have followed another one's way.
    pub(crate) fn remembered(&self) -> u64 {
        self.worker.remembered()
    }

    /// Packets that have been parsed once for their first lookup and for their code.
    pub(crate) fn resumed(&self) -> u64 {
        self.worker.resumed()
    }

    /// Packets of batches all of whose packets found ways.
    pub(crate) fn at_once(&self) -> u64 {
        self.at_once
    }

    /// Packets that have found their way by their fronts.
    pub(crate) fn unparsed(&self) -> u64 {
        self.worker.unparsed()
    }

    pub(crate) fn advance(&mut self, nanoseconds: u64) {
        self.worlds.iter_mut().for_each(|world| world.now += nanoseconds);
    }

    /// Compares what packets have changed: counters, registers, counts of entries, tables and groups.
    pub(crate) fn check_state(&self) {
        assert_eq!(counts(&self.interpreted), counts(&self.compiled));
    }
}

fn counts(state: &State) -> Vec<String> {
    let program = state.program();
    let mut lines = Vec::new();
    for (i, counter) in program.counters.iter().enumerate() {
        for cell in 0..counter.size {
            lines.push(format!(
                "counter {i} {cell} {:?}",
                state.arrays().counter(CounterId::at(i), cell.into()).unwrap()
            ));
        }
    }
    let guard = state.arrays().lock();
    for (i, register) in program.registers.iter().enumerate() {
        for cell in 0..register.size {
            let value = state.arrays().read(&guard, RegisterId::at(i), cell.into());
            lines.push(format!("register {i} {cell} {value:?}"));
        }
    }
    for i in 0..program.tables.len() {
        let table = state.table(TableId::at(i)).unwrap();
        lines.push(format!("table {i} {:?}", table.lookups()));
        for entry in table.entries() {
            let stats = &entry.stats;
            lines.push(format!("entry {:?} {:?} {}", entry.id, stats.hits(), stats.last_hit.load(Relaxed)));
        }
    }
    for i in 0..program.groups.len() {
        for (id, group) in state.groups(GroupTableId::at(i)) {
            lines.push(format!("group {i} {id} {:?} {:?}", group.stats, group.bucket_stats));
        }
    }
    lines
}

/// Runs a test on a thread with room for deep recursion of code with wide values.
pub(crate) fn with_stack(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(512 << 20).spawn_scoped(scope, test).unwrap();
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}
