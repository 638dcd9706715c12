//! The logic `p4`: P4 programs on the fabric.
//!
//! [`p4switch`] has a program's state in P4Runtime's words, [`codegen`] the machine code; this crate gives them packets
//! and ports. The control plane makes a [`P4`], gives it to a bridge, tells it of ports ([`P4::set_ports`]) and of the
//! injector, and lets controllers reach it as a [`p4switch::Device`].
//!
//! # Packet path
//! 1. A worker loads the map of ports and the program once per batch, and runs the program's code (`plane`).
//! 2. Effects become outputs of the fabric (`execute`). A packet may leave through the port that it came from.
//! 3. Packets for controllers and digests wait in a slot of the worker for the logic's thread (`shared`), which also
//!    has the clock of lists of digests and of idle entries.
//! 4. Packets of controllers enter the program at the CPU port, from no port of the fabric.
//!
//! The program sees packets as they are on the wire: VLAN settings of ports have no effect. Packets of virtual machines
//! may have checksums that are still to be completed: the program reads the sum of the pseudo-header in their place, and
//! new addresses change that sum. Large packets that are still to be segmented are one packet to the program, longer
//! than the MTU. A program whose headers in front of such packets hide them from the ports that would complete them gets
//! complete packets instead (`offload`). Controllers get complete checksums, and large packets whole.
//!
//! # Modules
//! - `switch_logic`: the public logic; `device`: what controllers do with it; `shared`: state of the data path and the
//!   control side, and the thread; `installed`: a program with its state; `running`: what packets see of it;
//! - `plane`, `effect`, `execute`, `offload`, `surroundings`, `upcalls`, `tally`: run by workers;
//! - `cards`: the program in XDP, on the ports' interfaces;
//! - `window`: bytes that a program reads; `ports`: numbers; `explain`, `show`: traces; tables and counters; `commands`: commands with
//!   names.
//!
//! # Invariants
//! - Workers neither wait nor allocate once their memory has grown, but for digests.
//! - A batch meets one program; a packet is executed once: by code, by the interpreter on the thread, or in XDP. Packets that
//!   XDP has finished come with a note ([`fabric::Batch::note`]) and leave as it says, whatever program runs then.
//! - After a change has been acknowledged, every batch that a worker takes meets it.
#![forbid(unsafe_code)]

mod cards;
mod commands;
mod device;
mod effect;
mod execute;
mod explain;
mod installed;
mod offload;
mod plane;
mod ports;
mod running;
mod shared;
mod show;
mod surroundings;
mod switch_logic;
mod tally;
mod upcalls;
mod window;

pub use commands::list as commands;
pub use ports::{Link, PortFacts};
pub use running::ProgramSettings;
pub use switch_logic::{P4, Settings, StartError};
