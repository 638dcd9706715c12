//! A program with its state, and what follows it for packets.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use match_action::Compiled;
use p4runtime_proto::v1::ForwardingPipelineConfig;
use p4switch::{Follower, Program, Switch};
use pipeline::state::{Bundle, State};

use crate::cards::Cards;
use crate::running::{ProgramSettings, Running, SUBJECT, of_notes};

/// How programs are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// Machine code that a thread specialises.
    Tended,
    /// Machine code that ticks specialise.
    Untended,
    /// The interpreter.
    Nothing,
}

impl Code {
    fn make(self) -> std::io::Result<Arc<Compiled>> {
        Ok(match self {
            Code::Tended => Compiled::tended(SUBJECT)?,
            Code::Untended => Compiled::untended(SUBJECT),
            Code::Nothing => Compiled::none(SUBJECT),
        })
    }
}

/// A program with the configuration that it came from.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub(crate) program: Arc<Program>,
    pub(crate) config: Arc<ForwardingPipelineConfig>,
}

impl Loaded {
    /// A program with its bundle as the configuration.
    pub(crate) fn new(program: Arc<Program>) -> Self {
        let config = ForwardingPipelineConfig {
            p4info: Some((*program.info).clone()),
            p4_device_config: program.bundle().to_vec(),
            ..ForwardingPipelineConfig::default()
        };
        Self { program, config: Arc::new(config) }
    }
}

/// A program that packets meet, or are about to.
pub(crate) struct Installed {
    pub(crate) switch: Switch,
    /// The program in the kernel, if the configuration asks for it.
    pub(crate) cards: Option<Arc<Mutex<Cards>>>,
    pub(crate) running: Arc<Running>,
    pub(crate) config: Arc<ForwardingPipelineConfig>,
    /// Whether entries may have timeouts.
    pub(crate) has_timeouts: bool,
    /// Whether packets may make digests.
    pub(crate) has_digests: bool,
}

impl Installed {
    /// Compiles a program at its start.
    ///
    /// # Errors
    /// The thread that specialises code does not start.
    pub(crate) fn new(
        loaded: Loaded,
        code: Code,
        number: u64,
        program_settings: &ProgramSettings,
    ) -> std::io::Result<Self> {
        let Loaded { program, config } = loaded;
        let compiled = code.make()?;
        let mut switch = Switch::new(program.clone());
        compiled.start(switch.state());
        let cards = program_settings.xdp.then(|| {
            let cards = Cards::new(switch.state(), &program.places, of_notes(number));
            Arc::new(Mutex::new(cards))
        });
        switch.set_follower(Box::new(Following(compiled.clone(), cards.clone())));
        let has_timeouts = program.checked.tables.iter().any(|table| table.timeouts);
        let has_digests = !program.checked.digests.is_empty();
        let running = Arc::new(Running::new(number, program, compiled, program_settings));
        Ok(Self { switch, cards, running, config, has_timeouts, has_digests })
    }
}

impl Installed {
    /// The cards.
    pub(crate) fn cards(&self) -> Option<MutexGuard<'_, Cards>> {
        self.cards.as_ref().map(|cards| cards.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds what cards have counted to the state's counts.
    pub(crate) fn collect(&self) {
        self.cards().into_iter().for_each(|mut cards| cards.collect(self.switch.state()));
    }
}

/// Follows a switch for packets.
struct Following(Arc<Compiled>, Option<Arc<Mutex<Cards>>>);

impl Follower for Following {
    fn applied(&mut self, state: &State, bundle: &Bundle) {
        self.0.applied(state, bundle);
        if let Some(cards) = &self.1 {
            cards.lock().unwrap_or_else(PoisonError::into_inner).applied(state, bundle);
        }
    }
}
