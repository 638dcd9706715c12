//! The part of the data path that runs in the kernel: a program's card on the interfaces of the bridge's ports.
//!
//! With the setting [`crate::ProgramSettings::xdp`], the interfaces of ports with AF_XDP sockets run the program in XDP
//! ([`xdp`]). Packets that come from one of them and go to another one never reach a worker. Those for other ports, and
//! those that come to constructs without a counterpart in XDP, go to the worker as they came; of a program with registers
//! or meters, which cards and workers share, those for other ports go there finished, with a note ([`xdp::Finished`]).
//!
//! Invariants:
//! - An interface runs this program, or redirects all packets to its sockets: whatever fails, packets meet the program.
//! - The state's counts are the workers', and the card's as far as they have been collected.
//! - No interface is kept open.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use fabric::PortIndex;
use p4switch::Places;
use pipeline::state::{Bundle, State};
use xdp::{Card, Lowered, Mark, Setting};
use xsk::Interface;

/// Stack of the thread that lowers programs, which may nest deeply; only what is used takes memory.
const STACK: usize = 64 << 20;

/// A port that runs the program.
#[derive(Clone)]
struct Attached {
    /// P4 numbers of packets' destinations that it leads to, its own first; none after another card.
    numbers: Vec<u32>,
    interface: Weak<dyn Interface>,
}

/// A program's card, or the reason for having none.
pub(crate) struct Cards {
    card: Result<Card, String>,
    /// Number of the program.
    number: u32,
    /// Places of the program's parts in its source.
    places: Places,
    attached: BTreeMap<PortIndex, Attached>,
    /// Ports that do not run it, by their own numbers, and why.
    refused: BTreeMap<u32, String>,
}

impl Cards {
    /// Lowers the program of a state, whose registers the card shares from now on.
    pub(crate) fn new(state: &State, places: &Places, number: u32) -> Self {
        let make = |lowered: Lowered| {
            let card = Card::new(lowered, state)?;
            if card.lowered().is_stateful() {
                card.share(state)?;
            }
            Ok(card)
        };
        let card = lower(state, places).and_then(|lowered| {
            make(lowered).map_err(|error: xdp::CardError| places.before(&error.to_string()))
        });
        if let Err(reason) = &card {
            tracing::warn!("the P4 program stays on the CPU: {reason}");
        }
        let (attached, refused) = Default::default();
        Self { card, number, places: places.clone(), attached, refused }
    }

    /// Takes the place of another program's card on its interfaces; they follow with the next [`Cards::follow_ports`].
    pub(crate) fn take_over(&mut self, before: &mut Cards) {
        // Numbers are another card's: each interface gets this one's program.
        self.attached = std::mem::take(&mut before.attached);
        self.attached.values_mut().for_each(|attached| attached.numbers.clear());
    }

    /// Has these ports run the program, and no others; by the P4 numbers that they lead to, their own first.
    pub(crate) fn follow_ports(&mut self, ports: &[(PortIndex, Vec<u32>, Arc<dyn Interface>)]) {
        let Ok(card) = &self.card else { return self.release() };
        self.refused.clear();
        let is_there = |index: &PortIndex, attached: &Attached| {
            ports.iter().any(|(other, numbers, interface)| {
                let same = std::ptr::addr_eq(Arc::as_ptr(interface), attached.interface.as_ptr());
                other == index && *numbers == attached.numbers && same
            })
        };
        let gone: Vec<_> =
            self.attached.extract_if(.., |index, attached| !is_there(index, attached)).collect();
        for (index, attached) in gone {
            let stays = ports.iter().any(|(other, ..)| *other == index);
            attached.numbers.iter().for_each(|number| report(card.disconnect(*number)));
            if let Some(interface) = attached.interface.upgrade().filter(|_| !stays) {
                report(interface.restore());
            }
        }
        for (index, numbers, interface) in ports {
            if self.attached.contains_key(index) {
                continue;
            }
            match attach(card, self.number, numbers, interface.as_ref()) {
                Ok(()) => {
                    let (numbers, interface) = (numbers.clone(), Arc::downgrade(interface));
                    self.attached.insert(*index, Attached { numbers, interface });
                }
                Err(reason) => {
                    let reason = self.places.before(&reason);
                    let own = numbers.first().copied().unwrap_or_default();
                    tracing::warn!("P4 port {own} does not run the program in XDP: {reason}");
                    report(interface.restore());
                    numbers.iter().for_each(|number| report(card.disconnect(*number)));
                    self.refused.insert(own, reason);
                }
            }
        }
    }

    /// Follows changes of the state. A card that cannot gives its interfaces up: all packets go to the workers.
    pub(crate) fn applied(&mut self, state: &State, bundle: &Bundle) {
        let Ok(card) = &mut self.card else { return };
        if let Err(error) = card.follow(state, bundle) {
            let reason = self.places.before(&error.to_string());
            tracing::warn!("the P4 program leaves XDP for the CPU: {reason}");
            self.give_up(state, reason);
        }
    }

    fn give_up(&mut self, state: &State, reason: String) {
        self.release();
        self.collect(state);
        self.card = Err(reason);
    }

    /// Adds what the card has counted to the state's counts.
    pub(crate) fn collect(&mut self, state: &State) {
        if let Ok(card) = &mut self.card {
            report(card.collect(state));
        }
    }

    /// Has all interfaces redirect their packets to the workers.
    pub(crate) fn release(&mut self) {
        for (_, attached) in std::mem::take(&mut self.attached) {
            if let Some(interface) = attached.interface.upgrade() {
                report(interface.restore());
            }
        }
    }

    /// Figures by name, for people.
    pub(crate) fn figures(&self) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
        let card = match &self.card {
            Ok(card) => card,
            Err(reason) => {
                // The kernel's verifier has much to say, which is in the log.
                row("runs in XDP", format!("no: {}", reason.lines().next().unwrap_or_default()));
                return rows;
            }
        };
        let own = self.attached.values().filter_map(|attached| attached.numbers.first());
        let ports: Vec<_> = own.map(ToString::to_string).collect();
        row(
            "runs in XDP",
            match ports.is_empty() {
                true => "at no port: none without limits and guards has AF_XDP sockets".into(),
                false => format!("yes, ports: {}", ports.join(", ")),
            },
        );
        for (number, reason) in &self.refused {
            let reason = reason.lines().next().unwrap_or_default();
            row("does not run at port", format!("{number}: {reason}"));
        }
        row("instructions", card.lowered().instructions().to_string());
        for refusal in card.lowered().to_cpu() {
            row("packets for the CPU", self.places.before(&refusal.to_string()));
        }
        if let Ok(figures) = card.figures() {
            row("packets", figures.packets.to_string());
            row("sent to other interfaces", figures.sent.to_string());
            row("dropped", figures.dropped.iter().sum::<u64>().to_string());
            row("handed to workers", figures.to_cpu.to_string());
            if card.lowered().is_stateful() {
                row("finished for workers", figures.finished.to_string());
            }
        }
        rows
    }
}

impl Drop for Cards {
    fn drop(&mut self) {
        self.release();
    }
}

fn report<E: std::fmt::Display>(result: Result<(), E>) {
    if let Err(error) = result {
        tracing::warn!("a P4 program in XDP: {error}");
    }
}

fn attach(card: &Card, program: u32, numbers: &[u32], interface: &dyn Interface) -> Result<(), String> {
    let own = numbers.first().copied().unwrap_or_default();
    let mark = match card.lowered().is_stateful() {
        true => Mark { interface: interface.expect_notes(), program },
        false => Mark::default(),
    };
    let program = card.load(own, interface.sockets(), mark).map_err(|error| error.to_string())?;
    let interfaces = card.interfaces().map_err(|error| error.to_string())?;
    for number in numbers {
        interface.connect(interfaces, *number).map_err(|error| error.to_string())?;
    }
    interface.replace(program.as_fd()).map_err(|error| error.to_string())
}

/// Lowers a program, on a thread with enough stack.
fn lower(state: &State, places: &Places) -> Result<Lowered, String> {
    let program = state.program();
    let lowered = std::thread::scope(|scope| {
        let lower = || xdp::lower(program, Setting::Live);
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, lower);
        thread.map(|thread| thread.join())
    });
    match lowered {
        Ok(Ok(Ok(lowered))) => Ok(lowered),
        Ok(Ok(Err(refusals))) => {
            let reasons = refusals.iter().map(|refusal| places.before(&refusal.to_string()));
            Err(reasons.collect::<Vec<_>>().join("; "))
        }
        Ok(Err(_)) => Err("lowering it failed".into()),
        Err(error) => Err(error.to_string()),
    }
}
