//! State that the data path, the control side and the logic's thread share.
//!
//! Locks are taken in this order: the fabric's (it holds it when it calls the logic), that of installations, that of
//! interfaces, that of the control side, that of cards, that of ports. None is held while the listener is called. While
//! interfaces get a program, which takes milliseconds for each, those of interfaces and of the control side are held.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use fabric::switch::{BridgeId, PortRef};
use fabric::{Injection, Injector, clock};
use p4runtime_proto::v1::stream_message_response::Update;
use p4runtime_proto::v1::{DigestList, IdleTimeoutNotification, StreamMessageResponse};
use p4switch::Listener;
use packet::Offload;
use pipeline::interp::{self, Received};
use xsk::Interfaces;
use xsk::interfaces::Listening;

use crate::effect::EffectRef;
use crate::installed::{Code, Installed, Loaded};
use crate::plane::Plane;
use crate::ports::Ports;
use crate::running::{CPU_PORT, LIMITS, ProgramSettings, Running};
use crate::surroundings::Surroundings;
use crate::switch_logic::StartError;
use crate::tally::{Lost, Tally};
use crate::upcalls::{Purpose, Upcall};

/// Upcalls processed before other users of the switch have their turn.
const TURN: usize = 32;
/// Time between searches for entries that have been idle for long.
const IDLE: Duration = Duration::from_millis(500);

/// The shared state.
pub(crate) struct Core {
    pub(crate) plane: Plane,
    pub(crate) ports: Mutex<Ports>,
    control: Mutex<Control>,
    /// Held while a program is installed: one after the other.
    pub(crate) installing: Mutex<()>,
    pub(crate) injector: ArcSwapOption<Injector>,
    pub(crate) listener: ArcSwapOption<Listener>,
    pub(crate) is_ending: AtomicBool,
    pub(crate) figures: Figures,
    code: Code,
    /// As the configuration has it.
    program_settings: Mutex<ProgramSettings>,
    interfaces: Mutex<Option<BridgeInterfaces>>,
    /// Whether interfaces, their numbers or the program are others than cards know.
    has_new_interfaces: AtomicBool,
}

/// The interfaces of a bridge's ports.
pub(crate) struct BridgeInterfaces {
    pub(crate) bridge: BridgeId,
    pub(crate) all: Interfaces<PortRef>,
    /// Rings the thread's bell.
    pub(crate) _listening: Listening,
}

/// The control side.
#[derive(Default)]
pub(crate) struct Control {
    pub(crate) installed: Option<Installed>,
    /// A program that waits to be committed.
    pub(crate) saved: Option<Loaded>,
    /// Number of the program installed last.
    number: u64,
    /// Programs that a worker may still have: the worker is not to free them.
    retired: Vec<Arc<Running>>,
    /// When entries that have been idle for long are searched for.
    next_search: Option<Instant>,
    /// State of the interpreter's random numbers.
    random: u64,
}

/// Counters of the logic's thread and of controllers' packets.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Packets that controllers sent, and those that found no room.
    pub(crate) injected: AtomicU64,
    pub(crate) not_injected: AtomicU64,
    /// Packets and digests of programs that were replaced before controllers got them.
    pub(crate) stale: AtomicU64,
    /// Packets, digests and idle timeouts that not all controllers took that they are for.
    pub(crate) missed: AtomicU64,
    /// Of packets that the interpreter runs: only the thread counts here.
    pub(crate) tally: Tally,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

impl Core {
    pub(crate) fn new(
        plane: Plane,
        ports: Ports,
        code: Code,
        program_settings: ProgramSettings,
        seed: u64,
    ) -> Self {
        let control = Control { random: seed, ..Control::default() };
        Self {
            plane,
            ports: Mutex::new(ports),
            control: Mutex::new(control),
            installing: Mutex::default(),
            injector: ArcSwapOption::empty(),
            listener: ArcSwapOption::empty(),
            is_ending: AtomicBool::new(false),
            figures: Figures::default(),
            code,
            program_settings: Mutex::new(program_settings),
            interfaces: Mutex::default(),
            has_new_interfaces: AtomicBool::new(false),
        }
    }

    /// Sets where the bridge's interfaces are listed.
    pub(crate) fn set_interfaces(&self, interfaces: BridgeInterfaces) {
        *self.interfaces.lock().unwrap_or_else(PoisonError::into_inner) = Some(interfaces);
        self.interfaces_changed();
    }

    /// Gives the interfaces back: all packets go to workers from now on.
    pub(crate) fn leave_interfaces(&self) {
        *self.interfaces.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let control = self.control();
        let cards = control.installed.as_ref().and_then(Installed::cards);
        cards.into_iter().for_each(|mut cards| cards.release());
    }

    /// Has the thread look at interfaces, and their ports' numbers.
    pub(crate) fn interfaces_changed(&self) {
        self.has_new_interfaces.store(true, Release);
        self.plane.bell.ring();
    }

    /// Has the interfaces of ports run the program, if it has a card.
    fn follow_interfaces(&self) {
        if !self.has_new_interfaces.swap(false, AcqRel) {
            return;
        }
        let interfaces = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(BridgeInterfaces { bridge, all, .. }) = &*interfaces else { return };
        let control = self.control();
        let Some(mut cards) = control.installed.as_ref().and_then(Installed::cards) else { return };
        let of_bridge = all.list().into_iter().filter(|(at, _)| at.bridge == *bridge);
        let ports = self.ports();
        let numbered: Vec<_> = of_bridge
            .filter_map(|(at, interface)| Some((at.port, ports.numbers_of(at.port)?, interface)))
            .collect();
        drop(ports);
        cards.follow_ports(&numbered);
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settings of programs that are committed from now on.
    pub(crate) fn program_settings(&self) -> MutexGuard<'_, ProgramSettings> {
        self.program_settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes these. Returns whether they are others than before.
    pub(crate) fn set_program_settings(&self, program_settings: ProgramSettings) -> bool {
        self.change_ports(|ports| {
            ports.set_link(program_settings.link.clone());
            ports.set_cpu_port(program_settings.cpu_port.unwrap_or(CPU_PORT));
        });
        let mut before = self.program_settings();
        !std::mem::replace(&mut *before, program_settings.clone()).is_same(&program_settings)
    }

    pub(crate) fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the ports, and lets packets see it.
    pub(crate) fn change_ports(&self, change: impl FnOnce(&mut Ports)) {
        let mut ports = self.ports();
        change(&mut ports);
        self.plane.ports.store(Arc::new(ports.map()));
        drop(ports);
        self.interfaces_changed();
    }

    /// Lets packets meet a program from now on. With `reconcile` it takes over what it can from the one before; counts,
    /// and values of registers, that packets change while they are copied are lost.
    ///
    /// # Errors
    /// The program lacks a function, or the thread that specialises code does not start.
    pub(crate) fn commit(&self, loaded: Loaded, reconcile: bool) -> Result<(), StartError> {
        let program_settings = self.program_settings().clone();
        program_settings.check(&loaded.program).map_err(StartError::Function)?;
        let number = {
            let mut control = self.control();
            control.number += 1;
            control.number
        };
        // Programs that no worker has any more are many megabytes.
        self.free_retired();
        // Writes, and packets for controllers, do not wait for the compiler.
        let mut installed = Installed::new(loaded, self.code, number, &program_settings)?;
        let mut control = self.control();
        if let Some(before) = &control.installed {
            before.collect();
            if let (Some(mut cards), Some(mut before)) = (installed.cards(), before.cards()) {
                cards.take_over(&mut before);
            }
        }
        if let (true, Some(before)) = (reconcile, &control.installed) {
            for line in installed.switch.take_over(&before.switch, clock::nanoseconds()) {
                tracing::info!("the new P4 program does not take over {line}");
            }
        }
        let running = installed.running.clone();
        let before = control.installed.replace(installed);
        self.has_new_interfaces.store(true, Release);
        self.plane.running.store(Some(running));
        control.retired.extend(before.as_ref().map(|before| before.running.clone()));
        control.next_search = None;
        // Its state is freed without the lock.
        drop(control);
        self.follow_interfaces();
        drop(before);
        self.plane.bell.ring();
        Ok(())
    }

    /// The program that runs.
    pub(crate) fn running(&self) -> Option<Loaded> {
        let control = self.control();
        let installed = control.installed.as_ref()?;
        Some(Loaded { program: installed.switch.program().clone(), config: installed.config.clone() })
    }

    /// Frees programs that no worker has any more, and improves the code of the one that runs.
    pub(crate) fn tidy(&self) {
        self.free_retired();
        let compiled = {
            let control = self.control();
            control.installed.as_ref().map(|installed| installed.running.compiled.clone())
        };
        compiled.into_iter().for_each(|compiled| compiled.tidy());
    }

    fn free_retired(&self) {
        let mut control = self.control();
        let retired = std::mem::take(&mut control.retired);
        let (kept, gone): (Vec<_>, Vec<_>) =
            retired.into_iter().partition(|running| Arc::strong_count(running) > 1);
        control.retired = kept;
        drop(control);
        drop(gone);
    }

    /// Processes pending work of the thread; returns whether there may be more, and when there will be.
    pub(crate) fn work(&self) -> (bool, Option<Instant>) {
        self.follow_interfaces();
        let mut any = false;
        for (_, local) in self.plane.locals.iter() {
            let calls: Vec<_> = std::iter::from_fn(|| local.upcalls.pop()).take(TURN).collect();
            if calls.is_empty() {
                continue;
            }
            any = true;
            let mut told = Vec::new();
            {
                let control = &mut *self.control();
                calls.iter().for_each(|call| self.process(control, call, &mut told));
            }
            self.tell(told);
            // Only now nothing of them is on its way.
            calls.into_iter().for_each(|call| local.upcalls.release(call));
        }
        (any, self.keep_time())
    }

    /// Sends lists of digests that are due, and tells of idle entries; returns when there will be more.
    fn keep_time(&self) -> Option<Instant> {
        let (mut told, now) = (Vec::new(), Instant::now());
        let next = {
            let control = &mut *self.control();
            let installed = control.installed.as_mut()?;
            let nanoseconds = clock::nanoseconds();
            let (lists, due) = installed.switch.due_digests(nanoseconds);
            told.extend(lists.into_iter().map(Update::Digest));
            if installed.has_timeouts && control.next_search.is_none_or(|next| next <= now) {
                let idle = std::iter::from_fn(|| installed.switch.idle(nanoseconds));
                told.extend(idle.map(Update::IdleTimeoutNotification));
                control.next_search = Some(now + IDLE);
            }
            let due = due.map(|due| now + Duration::from_nanos(due.saturating_sub(nanoseconds)));
            due.into_iter().chain(control.next_search).min()
        };
        self.tell(told);
        next
    }

    fn tell(&self, updates: Vec<Update>) {
        if updates.is_empty() {
            return;
        }
        if let Some(listener) = &*self.listener.load() {
            let info = self.running().map(|running| running.program.info.clone()).unwrap_or_default();
            let tell = |update| listener(StreamMessageResponse { update: Some(stamped(update)) }, &info);
            let missed = updates.into_iter().map(tell).filter(|taken| !taken).count();
            self.figures.missed.fetch_add(missed as u64, Relaxed);
        }
    }

    fn process(&self, control: &mut Control, call: &Upcall, told: &mut Vec<Update>) {
        let Some(installed) = &mut control.installed else { return };
        let running = installed.running.clone();
        let is_stale = call.program != running.number;
        match &call.purpose {
            // Controllers read them by the P4Info of the program that runs now.
            Purpose::Controllers | Purpose::Digest(..) if is_stale => {
                self.figures.stale.fetch_add(1, Relaxed);
            }
            Purpose::Controllers => told.push(Update::Packet(installed.switch.packet_in(&call.packet))),
            Purpose::Digest(id, values) => installed.switch.digest(*id, values, clock::nanoseconds()),
            Purpose::Run(port) => self.interpret(control, &running, *port, &call.packet, told),
            Purpose::Nothing => {}
        }
    }

    /// Runs the program on a packet from a port.
    fn interpret(
        &self,
        control: &mut Control,
        running: &Running,
        port: u32,
        packet: &[u8],
        told: &mut Vec<Update>,
    ) {
        let (Some(installed), random) = (&mut control.installed, &mut control.random) else { return };
        let now = clock::nanoseconds();
        let ports = self.plane.ports.load();
        let is_live = |number| number == running.cpu_port || ports.index(number).is_some();
        let mut surroundings = Surroundings {
            now,
            random,
            is_live: &is_live,
            functions: running.functions.as_deref(),
            queues: None,
        };
        // What code would see of it.
        let visible = packet.get(..running.window).unwrap_or(packet);
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let received = Received { visible, len, time: now, ..Received::whole(visible, port) };
        let outcome = interp::run(installed.switch.state(), &mut surroundings, &received, &LIMITS, false);
        for effect in outcome.effects.iter().map(EffectRef::of_interpreter) {
            match effect {
                EffectRef::Output { to, form, class } => {
                    let rest = packet.get(form.from as usize..form.to as usize).unwrap_or_default();
                    let bytes = [form.head, rest].concat();
                    if to == running.cpu_port {
                        told.push(Update::Packet(installed.switch.packet_in(&bytes)));
                    } else if let Some(index) = ports.index(to) {
                        _ = self.inject(&bytes, class.into(), Injection::To(vec![index]));
                    } else {
                        self.figures.tally.lose(Lost::NoPort);
                    }
                }
                EffectRef::Digest(id, values) => installed.switch.digest(id, values, now),
                EffectRef::Drop(reason) => self.figures.tally.lose(Lost::of(reason)),
            }
        }
    }

    /// Sends a packet into the bridge; `None` if it has no injector yet.
    pub(crate) fn inject(
        &self,
        packet: &[u8],
        class: u16,
        to: Injection,
    ) -> Option<Result<(), fabric::InjectError>> {
        let injector = self.injector.load();
        let sent =
            injector.as_deref().map(|injector| injector.inject_in_class(packet, Offload::NONE, class, to));
        let counter = match sent {
            Some(Ok(())) => &self.figures.injected,
            Some(Err(_)) | None => &self.figures.not_injected,
        };
        counter.fetch_add(1, Relaxed);
        sent
    }

    /// Whether no injected packet and no upcall is on its way.
    pub(crate) fn is_settled(&self) -> bool {
        let injector = self.injector.load();
        injector.as_ref().is_none_or(|injector| injector.is_idle())
            && self.plane.locals.iter().all(|(_, local)| local.upcalls.are_idle())
    }

    /// The logic's thread: packets for controllers, digests, timeouts.
    pub(crate) fn run(&self) {
        while !self.is_ending.load(Acquire) {
            match self.work() {
                (true, _) => {}
                (false, Some(next)) => self.plane.bell.wait_until(next),
                (false, None) => self.plane.bell.wait(),
            }
        }
    }
}

/// The same with the time of day, where it has a time: the switch's own clock means nothing to controllers.
fn stamped(mut update: Update) -> Update {
    if let Update::Digest(DigestList { timestamp, .. })
    | Update::IdleTimeoutNotification(IdleTimeoutNotification { timestamp, .. }) = &mut update
    {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        *timestamp = i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX);
    }
    update
}
