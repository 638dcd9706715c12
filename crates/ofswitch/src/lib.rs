//! An OpenFlow switch without sockets and without ports: messages of controllers and packets go in, messages and
//! effects come out.
//!
//! Flows, groups and meters become entries of one pipeline program, the same for every bridge; `pipeline` runs it.
//!
//! ```
//! use ofswitch::{ConnectionKind, Effect, PortInfo, Settings, Switch};
//! use openflow::message::{Body, FlowMod, Hello, Versions};
//! use openflow::{Message, PortNo, Version, action, instruction::Instructions};
//!
//! let mut switch = Switch::new(Settings::default());
//! for number in [1, 2] {
//!     let port = PortInfo::new(PortNo(number), format!("p{number}"), [2, 0, 0, 0, 0, 1]);
//!     switch.set_port(port, 0)?;
//! }
//! let connection = switch.connect(ConnectionKind::Controller).ok_or("too many connections")?;
//! let version = Version::V1_3;
//! let hello = Body::Hello(Hello::new(Versions::from_iter([version])));
//! switch.receive(connection, &Message::new(version, 1, hello).encode()?, 0);
//! let output = action::Action::Output(action::Output { port: PortNo(2), max_len: 0 });
//! let flow = FlowMod {
//!     buffer_id: openflow::version::NO_BUFFER,
//!     out_port: PortNo::ANY,
//!     instructions: Instructions::apply(vec![output]),
//!     ..FlowMod::default()
//! };
//! switch.receive(connection, &Message::new(version, 2, Body::FlowMod(Box::new(flow))).encode()?, 0);
//! let packet = [0; 60];
//! let effects = switch.packet(PortNo(1), &packet, 0);
//! assert_eq!(effects, [Effect::Output { port: PortNo(2), packet: packet.to_vec(), queue: 0 }]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rooms
//! - `program`: the pipeline program: headers, parser, keys, variables, the action set.
//! - `lower`: matches and actions in the terms of the program.
//! - `flows`, `groups`, `meters`, `tables`, `tunnels`: what controllers put there; `model`: all of it; `uses`: what
//!   refers to what; `journal`: maps that take changes back; `datapath`: changes as a whole.
//! - `connection`, `ports`, `buffers`: these; `switch`: requests, replies, packets.
//! - `exec`: running the program on a packet; `failure`: packets that exceed its limits; `follow`: what else may run
//!   it, and has to be told of changes.
//!
//! # Invariants
//! - A message takes effect as a whole or not at all, and so does a bundle.
//! - No message and no packet makes the switch panic, or keep more than its [`Limits`] permit.
//! - The pipeline has exactly one entry for each flow, but for conjunctive ones, which are multiplied out.
#![forbid(unsafe_code)]

mod buffers;
mod connection;
mod datapath;
mod exec;
mod failure;
mod flows;
mod follow;
mod groups;
mod journal;
mod lower;
mod meters;
mod model;
mod ports;
mod program;
mod settings;
mod switch;
mod tables;
mod tunnels;
mod uses;

pub use connection::{ConnectionId, ConnectionKind, FlowModCounts};
pub use exec::{LIMITS, Surroundings};
pub use failure::Failure;
pub use follow::{Follower, OnlyFlow, PortCounters, QueueCounters};
pub use ports::{PortInfo, TreeState};
pub use program::TABLES;
pub use settings::{Limits, Settings, TableLimit};
pub use switch::{
    Dependency, Effect, Limit, PerWhat, PortError, Rehearsal, RestoreError, Sample, Saved, Snapshot, Step,
    Switch, TableSummary,
};
