//! Machine code that follows a state, and the fallback to the interpreter.
//!
//! Invariant: the views that workers load are those of an engine that has followed every bundle; if a bundle cannot be
//! followed there are no views, and the interpreter runs the program, until a new engine is made.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use codegen::{Code, Engine, Options, Rebuild, Unsupported, Views};
use pipeline::interp::Limits;
use pipeline::ir::{ActionId, TableId};
use pipeline::state::{Bundle, State};

use crate::specialiser::{self, REST, Wish};

/// Most bytes of machine code of one bridge.
pub const MOST_CODE: usize = 256 << 20;
/// Most bytes of machine code of the program or of one action.
const CODE_AT_ONCE: usize = 16 << 20;
/// Most bytes of a worker's stack that a packet may need.
const STACK: usize = 1 << 20;
/// Shortest time between attempts to make an engine.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is compiled.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    /// Its name in messages, a plural.
    pub name: &'static str,
    /// Bounds of what a packet may cause.
    pub limits: Limits,
    /// Compiles the program of a state.
    pub compile: fn(&State, &Options) -> Result<Arc<Code>, Unsupported>,
}

/// The machine code of a state's program.
#[derive(Debug)]
pub struct Compiled {
    subject: Subject,
    /// Whether code is made at all.
    enabled: bool,
    /// No packet runs code.
    rests: AtomicBool,
    views: Arc<ArcSwapOption<Views>>,
    control: Mutex<Control>,
    /// For code that is specialised for the entries.
    pub(crate) wish: Wish,
    /// Itself, if a thread specialises its code.
    tended: Option<Weak<Compiled>>,
}

#[derive(Debug, Default)]
struct Control {
    engine: Option<Engine>,
    /// Flags that packets have.
    flags: u64,
    failure: Option<String>,
    failures: u64,
    attempt: Option<Instant>,
    /// When structures may be built anew again.
    rebuilds_from: Option<Instant>,
    /// Time that the start took, with the program's compilation if no bridge had it, and changes since.
    program_time: Duration,
    follow_time: Duration,
    /// Time that the last specialisation took.
    special_time: Duration,
}

/// Figures of generated code.
#[derive(Debug, Clone, Default)]
pub struct CodeFigures {
    /// Reason why the interpreter runs.
    pub failure: Option<String>,
    /// Times that the interpreter has taken over.
    pub failures: u64,
    /// Actions that were defined at run time.
    pub actions: usize,
    /// Bytes of code.
    pub bytes: usize,
    /// Whether packets run code that is specialised for the entries.
    pub is_specialised: bool,
    /// Whether code can be specialised for the program.
    pub can_specialise: bool,
    /// Time of the start, with the program's compilation.
    pub program_time: Duration,
    /// Time of changes since.
    pub follow_time: Duration,
    /// Time of the last specialisation.
    pub special_time: Duration,
}

impl Compiled {
    /// Code that a thread specialises soon after changes.
    ///
    /// # Errors
    /// The thread does not start.
    pub fn tended(subject: Subject) -> std::io::Result<Arc<Self>> {
        specialiser::start()?;
        Ok(Arc::new_cyclic(|me| Self::make(subject, true, Some(me.clone()))))
    }

    /// Code that only [`Compiled::tidy`] specialises.
    pub fn untended(subject: Subject) -> Arc<Self> {
        Arc::new(Self::make(subject, true, None))
    }

    /// No code: the interpreter runs the program.
    pub fn none(subject: Subject) -> Arc<Self> {
        Arc::new(Self::make(subject, false, None))
    }

    fn make(subject: Subject, enabled: bool, tended: Option<Weak<Self>>) -> Self {
        let failure = (!enabled).then(|| "machine code is switched off".to_owned());
        let control = Mutex::new(Control { failure, ..Control::default() });
        Self {
            subject,
            enabled,
            rests: AtomicBool::new(false),
            views: Arc::default(),
            control,
            wish: Wish::default(),
            tended,
        }
    }

    /// The current views: for packets.
    pub fn views(&self) -> &Arc<ArcSwapOption<Views>> {
        &self.views
    }

    /// Wishes for code that is specialised for the entries.
    fn wish(&self) {
        if let Some(tended) = &self.tended {
            self.wish.add(tended);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compiles the program with the state's entries.
    pub fn start(&self, state: &State) {
        if self.enabled {
            self.lock().start(&self.subject, state, &self.views);
            self.wish();
        }
    }

    /// Follows a bundle that the state has applied.
    pub fn applied(&self, state: &State, bundle: &Bundle) {
        let control = &mut *self.lock();
        let Some(engine) = &mut control.engine else {
            if self.enabled && control.attempt.is_none_or(|attempt| attempt.elapsed() >= PATIENCE) {
                control.start(&self.subject, state, &self.views);
                self.wish();
            }
            return;
        };
        let begin = Instant::now();
        let before = engine.action_count();
        let mut followed = engine.follow(state, bundle);
        if followed.is_ok() && engine.action_count() != before {
            let found = engine.code_size();
            if found > MOST_CODE {
                followed = Err(Unsupported::Code { found, limit: MOST_CODE });
            }
        }
        control.follow_time += begin.elapsed();
        if engine.can_specialise() && !engine.is_specialised() {
            self.wish();
        }
        if let Err(reason) = followed {
            control.fail(&self.subject, reason.to_string(), &self.views);
        }
    }

    /// Says which flags packets have from now on. Until code is specialised again, they run code that is for any.
    pub fn expect_flags(&self, flags: u64) {
        let control = &mut *self.lock();
        control.flags = flags;
        control.engine.iter_mut().for_each(|engine| engine.expect_flags(flags));
        self.wish();
    }

    /// Frees the code of actions that nothing uses any more.
    pub fn forgotten(&self, actions: &[ActionId]) {
        self.lock().engine.iter_mut().for_each(|engine| engine.forget(actions));
    }

    /// Frees what no packet uses any more, and makes lookups faster where there is something to do: tables, whose new
    /// forms need other code, and code that has been refused before.
    pub fn tidy(&self) {
        if let Some(engine) = &mut self.lock().engine {
            engine.reclaim();
        }
        self.rebuild_tables();
        self.specialise();
    }

    /// Builds structures anew that have outgrown their form, in a tenth of the time at most. Packets use those before
    /// meanwhile; changes of entries wait only while a copy is made and for the last changes before it.
    fn rebuild_tables(&self) {
        let begin = Instant::now();
        let mut from = TableId(0);
        let next = |from| {
            let control = &mut *self.lock();
            let engine =
                control.engine.as_mut().filter(|_| control.rebuilds_from.is_none_or(|at| at <= begin));
            engine.and_then(|engine| engine.rebuild(from))
        };
        while let Some(rebuild) = next(from) {
            from = TableId::at(rebuild.table().index() + 1);
            self.rebuild(rebuild);
        }
        if from != TableId(0) {
            self.lock().rebuilds_from = Some(Instant::now() + begin.elapsed() * REST);
        }
    }

    /// Builds a copy, and puts it in its table's place once it has caught up, unless it is of no use any more.
    fn rebuild(&self, mut rebuild: Rebuild) {
        rebuild.build();
        loop {
            let installed = self.lock().engine.as_mut().map(|engine| engine.install_table(rebuild));
            let Some(Err(behind)) = installed else { return };
            rebuild = behind;
            rebuild.catch_up();
        }
    }

    /// Says whether packets run no code from now on: then none is specialised.
    pub fn rest(&self, rests: bool) {
        self.rests.store(rests, Relaxed);
        if !rests {
            self.wish();
        }
    }

    /// Specialises code for the entries. Packets run the code before meanwhile, and changes of entries do not wait.
    pub fn specialise(&self) {
        if self.rests.load(Relaxed) {
            return;
        }
        let specialisation = self.lock().engine.as_mut().and_then(Engine::specialisation);
        let Some(mut specialisation) = specialisation else { return };
        let begin = Instant::now();
        specialisation.compile();
        let control = &mut *self.lock();
        control.special_time = begin.elapsed();
        if let Some(engine) = &mut control.engine {
            engine.install(specialisation);
        }
    }

    /// Figures of the code.
    pub fn figures(&self) -> CodeFigures {
        let control = self.lock();
        let engine = control.engine.as_ref();
        let (actions, bytes) = engine.map_or((0, 0), |engine| (engine.action_count(), engine.code_size()));
        CodeFigures {
            failure: control.failure.clone(),
            failures: control.failures,
            actions,
            bytes,
            is_specialised: engine.is_some_and(Engine::is_specialised),
            can_specialise: engine.is_some_and(Engine::can_specialise),
            program_time: control.program_time,
            follow_time: control.follow_time,
            special_time: control.special_time,
        }
    }

    /// How tables are looked up.
    pub fn tables(&self, ids: impl Iterator<Item = TableId>) -> Vec<Option<codegen::TableInfo>> {
        let control = self.lock();
        ids.map(|id| control.engine.as_ref().and_then(|engine| engine.table(id))).collect()
    }
}

impl Control {
    fn start(&mut self, subject: &Subject, state: &State, views: &ArcSwapOption<Views>) {
        let begin = Instant::now();
        self.attempt = Some(begin);
        let options = Options { limits: subject.limits, code: CODE_AT_ONCE, stack: STACK };
        match (subject.compile)(state, &options).and_then(|code| Engine::with_code(state, code, options)) {
            Ok(mut engine) => {
                engine.expect_flags(self.flags);
                views.store(Some(Arc::new(engine.views())));
                (self.engine, self.failure) = (Some(engine), None);
            }
            Err(error) => self.fail(subject, error.to_string(), views),
        }
        self.program_time = begin.elapsed();
    }

    fn fail(&mut self, subject: &Subject, reason: String, views: &ArcSwapOption<Views>) {
        tracing::warn!(%reason, "no machine code for {}: the interpreter runs them, slowly", subject.name);
        views.store(None);
        self.engine = None;
        self.failure = Some(reason);
        self.failures += 1;
        self.attempt = Some(Instant::now());
    }
}
