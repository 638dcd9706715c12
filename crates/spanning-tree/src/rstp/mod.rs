//! The Rapid Spanning Tree Protocol of IEEE 802.1D-2004, clause 17: state machines, variables and procedures have the
//! standard's names.
//!
//! - `port`: variables of a port; `vector`: priority vectors; `procedures`: §17.21, those of several machines;
//! - `information`: what neighbours say (§17.23, §17.24, §17.25, §17.27); `roles`: selection of roles (§17.28);
//!   `transitions`: states by roles (§17.29, §17.30); `topology`: changes of the topology (§17.31); `transmit`:
//!   messages (§17.26);
//! - `settings`: keys of the database; `show`: status as text.
//!
//! Timers are deadlines (see `timer`): a timer that the standard sets again as long as a state lasts is started
//! whenever the machines run in that state.

mod information;
mod port;
mod procedures;
mod roles;
mod settings;
mod show;
mod topology;
mod transitions;
mod transmit;
mod vector;

use std::collections::{BTreeMap, BTreeSet};

use packet::MacAddr;

use self::port::Port;
pub use self::settings::{PortSettings, Settings, cost_of_speed};
pub use self::show::{PortStatus, State, Status};
use self::vector::{Priority, Times};
use crate::bpdu::{Bpdu, Fault};
use crate::{BridgeId, Counters, Flush, Millis, Outcome, PortId, PortState};

/// Time for which a port keeps to a version of the protocol, and after which it may be an edge, seconds (§17.13.9).
const MIGRATE_TIME: u16 = 3;
/// Time between two messages of a port, seconds (table 17-1).
const HELLO_TIME: u16 = 2;
/// Rounds of all machines for one event at most. A dozen is enough; a fault in the machines must not become a loop.
const MOST_ROUNDS: usize = 1000;

/// Role of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// It takes no part.
    #[default]
    Disabled,
    /// It leads to the root.
    Root,
    /// It leads its LAN to the root.
    Designated,
    /// It is another way to the root.
    Alternate,
    /// It is another way to a LAN that the bridge leads to the root.
    Backup,
}

/// A bridge. See the module.
#[derive(Debug)]
pub struct Bridge {
    settings: Settings,
    id: BridgeId,
    ports: BTreeMap<u8, Port>,
    root_priority: Priority,
    root_times: Times,
    root_port: PortId,
    /// Ports whose stations are to be forgotten.
    flush: BTreeSet<u8>,
    /// BPDUs to be sent.
    out: Vec<(u8, Bpdu)>,
    now: Millis,
}

impl Bridge {
    /// Makes a bridge without ports.
    pub fn new(settings: Settings, now: Millis) -> Self {
        let id = BridgeId::new(settings.priority, settings.address);
        Self {
            root_priority: Priority::of_bridge(id),
            root_times: settings.times(),
            root_port: PortId::default(),
            settings,
            id,
            ports: BTreeMap::new(),
            flush: BTreeSet::new(),
            out: Vec::new(),
            now,
        }
    }

    /// Follows the settings of the bridge and of its ports, by their numbers.
    pub fn configure(&mut self, settings: Settings, ports: BTreeMap<u8, PortSettings>, now: Millis) {
        self.now = now;
        let gone = self.ports.extract_if(.., |number, _| !ports.contains_key(number)).count();
        let version = |settings: &Settings| settings.is_rapid;
        let begins = version(&settings) != version(&self.settings);
        let differs = gone > 0 || settings != self.settings;
        self.id = BridgeId::new(settings.priority, settings.address);
        self.settings = settings;
        if begins {
            // §17.13.4: all machines begin anew.
            for port in self.ports.values_mut() {
                *port = port.begin(self.settings.is_rapid, now);
            }
        }
        for (number, wanted) in ports {
            match self.ports.get_mut(&number) {
                Some(port) => port.configure(wanted, number, self.settings.is_rapid),
                None => {
                    let port = Port::new(wanted, number, self.settings.is_rapid, now);
                    self.ports.insert(number, port);
                }
            }
        }
        if differs {
            for port in self.ports.values_mut() {
                port.reselect();
            }
        }
        self.step();
    }

    /// Sets whether a port has a link, and the address that it sends from.
    pub fn set_link(&mut self, number: u8, is_up: bool, address: MacAddr, now: Millis) {
        let Some(port) = self.ports.get_mut(&number) else { return };
        port.address = address;
        if port.has_link != is_up {
            self.now = now;
            port.has_link = is_up;
            self.step();
        }
    }

    /// Processes a frame that a port has received.
    ///
    /// # Errors
    /// It is ignored: it is faulty.
    pub fn receive(&mut self, number: u8, frame: &[u8], now: Millis) -> Result<(), Fault> {
        self.now = now;
        let Some(port) = self.ports.get_mut(&number).filter(|port| port.is_enabled()) else { return Ok(()) };
        port.counters.received += 1;
        let bpdu = Bpdu::of_frame(frame).inspect_err(|_| port.counters.errors += 1)?;
        if port.is_invalid(&bpdu, self.id) {
            return Ok(());
        }
        port.hear(bpdu, now);
        self.step();
        Ok(())
    }

    /// Does what is due.
    pub fn run(&mut self, now: Millis) -> Outcome {
        self.now = now;
        self.step();
        let mut frames = Vec::new();
        for (number, bpdu) in std::mem::take(&mut self.out) {
            if let Some(port) = self.ports.get_mut(&number) {
                port.counters.sent += 1;
                frames.push((number, bpdu.frame(port.address)));
            }
        }
        let flush = match std::mem::take(&mut self.flush) {
            none if none.is_empty() => Flush::Nothing,
            ports => Flush::Ports(ports.into_iter().collect()),
        };
        Outcome { frames, flush }
    }

    /// Has all machines do what they can.
    fn step(&mut self) {
        self.renew_timers();
        let numbers: Vec<u8> = self.ports.keys().copied().collect();
        for _ in 0..MOST_ROUNDS {
            let mut any = false;
            for number in &numbers {
                any |= self.step_information(*number);
            }
            any |= self.select_roles();
            for number in &numbers {
                any |= self.step_role(*number);
                any |= self.step_topology(*number);
            }
            if !any {
                break;
            }
        }
        for number in &numbers {
            self.step_transmit(*number);
        }
    }

    /// Time of the next call of [`Bridge::run`], if nothing is received until then.
    pub fn next_due(&self) -> Option<Millis> {
        self.ports.values().filter_map(|port| port.next_due(self.now)).min()
    }

    /// The state of a port.
    pub fn state(&self, number: u8) -> PortState {
        self.ports.get(&number).map(Port::state).unwrap_or_default()
    }

    /// Counters of a port.
    pub fn counters(&self, number: u8) -> Counters {
        self.ports.get(&number).map(|port| port.counters).unwrap_or_default()
    }

    /// Acts as if the topology had changed: as if each port that forwards had just begun to.
    pub fn change_topology(&mut self, now: Millis) {
        self.now = now;
        for number in self.ports.keys().copied().collect::<Vec<_>>() {
            self.detect_again(number);
        }
        self.step();
    }
}
