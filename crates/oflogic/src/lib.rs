//! The logic `openflow`: an OpenFlow switch on the fabric.
//!
//! [`ofswitch`] has the protocol's meaning, [`ofagent`] the connections, [`codegen`] the machine code; this crate gives
//! them packets and ports. The control plane makes an [`OpenFlow`], gives it to a bridge, and tells it of ports
//! ([`OpenFlow::set_ports`]), of the injector and of statistics.
//!
//! # Packet path
//! 1. A worker loads the map of ports and the view of the tables once per batch, and runs the code (`plane`).
//! 2. Effects become outputs of the fabric (`execute`); packets for `NORMAL` go to a learning bridge inside.
//! 3. Work for the switch itself (packets for controllers, learned flows) waits in a slot of the worker (`upcalls`)
//!    for the logic's thread (`shared`).
//!
//! # Modules
//! - `switch_logic`: the public logic; `shared`: state of the data path, the switch and the thread;
//! - `intercept`: frames of link protocols that the control plane takes ahead of the tables; `pace`: how many;
//! - `plane`, `headers`, `effect`, `execute`, `upcalls`, `tally`: run by workers;
//! - `samples`: packets that `sample` actions choose;
//! - `ports`: numbers and configurations; `bonds`: several ports that are one for `NORMAL`; `tree`: ports that a
//!   spanning tree keeps from forwarding; `program`: machine code of the program that all bridges have;
//! - `explain`, `show`: traces; tables and counters.
//!
//! # Invariants
//! - Workers neither wait nor allocate once their memory has grown, but for learned flows.
//! - A packet is executed once: by code, or by the interpreter on the thread.
//! - After a change has been acknowledged, every batch that a worker takes meets it.
#![forbid(unsafe_code)]

mod bonds;
mod effect;
mod execute;
mod explain;
mod headers;
mod intercept;
mod pace;
mod plane;
mod ports;
mod program;
mod samples;
mod shared;
mod show;
mod switch_logic;
mod tally;
mod tree;
mod upcalls;

pub use intercept::Selector;
pub use ports::{Link, NumberedPort, PortFacts};
pub use samples::{Sampled, Sampler};
pub use switch_logic::{OpenFlow, StartError};
pub use tree::{PortState, Protocol, TreeView};
