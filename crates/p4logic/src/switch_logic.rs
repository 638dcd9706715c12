//! The logic as the fabric and the control plane see it.

use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

use arc_swap::{ArcSwap, ArcSwapOption};
use fabric::doorbell::{Doorbell, ThreadBell};
use fabric::switch::{BridgeId, PortRef};
use fabric::worker::{PerThread, Threads};
use fabric::{Batch, Injector, PortIndex, PortSettings, SwitchLogic};
use logic::{CommandInfo, Counter, Logic, LogicError, Table, TableSize};
use p4switch::Program;
use xsk::Interfaces;

use crate::installed::{Code, Loaded};
use crate::plane::{Local, Plane};
use crate::ports::{PortFacts, PortMap, Ports};
use crate::running::{CPU_PORT, ProgramSettings};
use crate::shared::{BridgeInterfaces, Core};
use crate::{commands, explain, show};

/// Settings of the logic.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Program to start with. Controllers read it as a bundle.
    pub program: Option<Arc<Program>>,
    /// Settings that programs depend on.
    pub program_settings: ProgramSettings,
    /// Seed of random numbers.
    pub seed: u64,
}

/// Reasons why the logic cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A controller's program is being installed.
    #[error("a controller is installing a program; try again")]
    Busy,
    /// A function that the program declares is missing.
    #[error("{0}")]
    Function(String),
    /// Its thread, or that of machine code, does not start.
    #[error("a thread does not start: {0}")]
    Thread(#[from] std::io::Error),
}

/// The logic `p4`. See the crate's documentation.
pub struct P4 {
    pub(crate) core: Arc<Core>,
    seed: u64,
    /// The configuration's program; controllers may have replaced it since.
    configured: Mutex<Option<Loaded>>,
    thread: Option<JoinHandle<()>>,
}

impl P4 {
    /// Makes the logic, without ports. Without a program it drops all packets.
    ///
    /// # Errors
    /// A thread does not start, or the program calls a function that is missing.
    pub fn new(settings: Settings) -> Result<Arc<Self>, StartError> {
        Self::make(settings, Code::Tended)
    }

    /// Makes the logic without the thread that specialises code, which [`Logic::tick`] alone does. For comparisons.
    ///
    /// # Errors
    /// As [`P4::new`].
    pub fn untended(settings: Settings) -> Result<Arc<Self>, StartError> {
        Self::make(settings, Code::Untended)
    }

    /// Makes the logic without machine code: the reference interpreter runs programs, slowly. For comparisons.
    ///
    /// # Errors
    /// As [`P4::new`].
    pub fn interpreted(settings: Settings) -> Result<Arc<Self>, StartError> {
        Self::make(settings, Code::Nothing)
    }

    fn make(settings: Settings, code: Code) -> Result<Arc<Self>, StartError> {
        let Settings { program, program_settings, seed } = settings;
        let plane = Plane {
            ports: Arc::new(ArcSwap::from_pointee(PortMap::default())),
            running: Arc::new(ArcSwapOption::empty()),
            locals: PerThread::default(),
            bell: Doorbell::new(ThreadBell::new()),
        };
        let ports = Ports::new(program_settings.cpu_port.unwrap_or(CPU_PORT), program_settings.link.clone());
        let core = Arc::new(Core::new(plane, ports, code, program_settings, seed));
        let configured = program.map(Loaded::new);
        if let Some(loaded) = &configured {
            core.commit(loaded.clone(), false)?;
        }
        let thread = std::thread::Builder::new().name("p4".into()).spawn({
            let core = core.clone();
            move || core.run()
        })?;
        Ok(Arc::new(Self { core, seed, configured: Mutex::new(configured), thread: Some(thread) }))
    }

    /// Sets how packets of controllers reach the program: the bridge's injector ([`fabric::Switch::injector`]).
    pub fn set_injector(&self, injector: Injector) {
        self.core.injector.store(Some(Arc::new(injector)));
    }

    /// Sets where interfaces are listed that may run programs in XDP, and the bridge whose ports have some.
    pub fn set_interfaces(&self, all: Interfaces<PortRef>, bridge: BridgeId) {
        let core = Arc::downgrade(&self.core);
        let changed = move || core.upgrade().iter().for_each(|core| core.interfaces_changed());
        let listening = all.listen(changed);
        self.core.set_interfaces(BridgeInterfaces { bridge, all, _listening: listening });
    }

    /// Gives the interfaces back, because another logic takes the bridge.
    pub fn leave_interfaces(&self) {
        self.core.leave_interfaces();
    }

    /// Passes the control plane's facts about ports. To be called after ports were added: a port takes part, and has a
    /// number, once its facts are known. Ports that are not named keep theirs. Facts that are passed before a bridge has
    /// the logic hold from its first packet on.
    pub fn set_ports(&self, facts: &[PortFacts]) {
        self.core.change_ports(|ports| ports.set_facts(facts));
    }

    /// Forgets a port that is about to be removed.
    pub fn forget_port(&self, index: PortIndex) {
        self.core.change_ports(|ports| ports.remove(index));
    }

    /// Follows another configuration: its program runs from now on, and takes over what it can of the state of the one
    /// before. Without a program the one that runs stays.
    ///
    /// # Errors
    /// A controller is installing a program, the program lacks a function, or the thread that specialises code does not
    /// start.
    pub fn configure(
        &self,
        program: Option<Arc<Program>>,
        program_settings: ProgramSettings,
    ) -> Result<(), StartError> {
        // The caller may hold locks of all bridges.
        let _turn = match self.core.installing.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(StartError::Busy),
        };
        let configured = program.map(Loaded::new);
        let next = configured.clone().or_else(|| self.core.running());
        if let Some(loaded) = &next {
            program_settings.check(&loaded.program).map_err(StartError::Function)?;
        }
        let is_other = self.core.set_program_settings(program_settings);
        let next = next.filter(|_| configured.is_some() || is_other);
        *self.configured() = configured;
        if let Some(loaded) = next {
            self.core.commit(loaded, true)?;
        }
        Ok(())
    }

    fn configured(&self) -> MutexGuard<'_, Option<Loaded>> {
        self.configured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no packet of a controller is on its way, and no received one is on its way to the control side.
    pub fn is_settled(&self) -> bool {
        self.core.is_settled()
    }
}

impl Drop for P4 {
    fn drop(&mut self) {
        self.core.is_ending.store(true, Release);
        self.core.plane.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has ended, too.
            let _ = thread.join();
        }
    }
}

impl SwitchLogic for P4 {
    fn forward(&self, batch: &mut Batch<'_>) {
        self.core.plane.forward(batch);
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        explain::explain(&self.core, batch);
        true
    }

    fn prepare(&self, threads: Threads) -> Result<(), String> {
        // Different workers draw different numbers.
        let plane = &self.core.plane;
        let local = |number| Ok(Local::new(plane, number, self.seed.wrapping_add(number as u64)));
        plane.locals.prepare::<String>(threads, local)
    }

    fn ports_changed(&self, ports: &[(PortIndex, Arc<PortSettings>)]) {
        self.core.change_ports(|known| known.set_existing(ports));
    }

    fn port_removed(&self, port: PortIndex) {
        self.core.change_ports(|ports| ports.remove(port));
    }
}

impl Logic for P4 {
    fn name(&self) -> &str {
        "p4"
    }

    fn params(&self) -> Vec<(String, String)> {
        self.core.program_settings().params.clone()
    }

    fn is_outdated(&self) -> bool {
        self.configured().as_ref().is_some_and(|loaded| loaded.program.is_outdated())
    }

    fn commands(&self) -> Vec<CommandInfo> {
        commands::list()
    }

    fn call(&self, command: &[String]) -> Result<String, LogicError> {
        commands::call(self, command)
    }

    fn counters(&self) -> Vec<Counter> {
        show::counters(&self.core)
    }

    fn tables(&self) -> Vec<Table> {
        show::tables(&self.core)
    }

    fn table_sizes(&self) -> Vec<TableSize> {
        show::sizes(&self.core)
    }

    fn tick(&self, _now_seconds: u32) {
        self.core.tidy();
    }
}
