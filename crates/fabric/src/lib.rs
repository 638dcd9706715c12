//! The fabric moves packets between ports; it makes no forwarding decisions and knows no port type.
//!
//! The path of a batch (docs/architecture.md has a picture):
//!
//! 1. a [`worker`] takes descriptors from an [`RxQueue`] into an [`RxBatch`]; the payload stays with the sender;
//! 2. the first 128 bytes of each packet become a private header (a [`VersionId`]);
//! 3. the bridge's [`SwitchLogic`] sees the whole [`Batch`] once and names destinations;
//! 4. each output goes on its destination's list in the worker's scratchpad ([`scratchpad`]);
//! 5. every destination with a list is delivered to once, through its [`Egress`]: rings by reserve, copy, publish
//!    ([`TxRing`]), others by a call;
//! 6. the sender's descriptors go back in one update.
//!
//! # Source layout
//!
//! Each folder's `mod.rs` states its purpose and lists its files.
//!
//! | folder | contents | step |
//! | --- | --- | --- |
//! | `rx/` | receive queues, batches, packet records, private headers | 1, 2 |
//! | `decide/` | the logic's contract, its view of a batch, the path of a batch through a bridge | 3 |
//! | `lists/` | outputs and the lists that destinations receive | 4 |
//! | `deliver/` | destinations: rings, ports of other bridges | 5 |
//! | `queueing/` | packets that wait at a port: classes, scheduler, early detection | 5 |
//! | `worker/` | the threads, and the tasks that they run | all |
//! | `wake/` | doorbells: wake a worker, or are rung by one | 1, 5, 6 |
//! | `bridge/` | the state of a bridge that workers see, and the reclamation of old ones | |
//! | `switch/` | the control plane's handle, which publishes these states | |
//! | `protect/` | limits of ports: rates, storm control, security | before 3 |
//! | `observe/` | observers, mirrors, traces | beside 3 to 5 |
//!
//! All of them use `copy.rs`, `cpu.rs` (instruction sets), `clock.rs`, `counters.rs`, `fault.rs`, `slab.rs` (memory
//! accessed through pointers only), `sync.rs` (atomics, or the model checker's) and `vital.rs` (threads whose panic
//! ends the process).
//!
//! # Division of responsibility
//!
//! - Rates of a port (policing, storm control): in the fabric, before the logic ([`protection`]). A dropped packet
//!   costs no lookup, and the limits hold for every logic.
//! - Floods of unknown stations: a rate in the fabric, asked for by the logic ([`Batch::may_flood_unknown`]). Only the
//!   logic knows that a station is unknown.
//! - Stations and addresses allowed at a port: in the logic (`logic::security`), which handles the station when it
//!   learns it.
//! - VLAN of a packet, tags where it leaves: in the logic (`logic::vlan`), by the fabric's settings ([`VlanMode`]). One
//!   classification a packet, and the lookup needs the VLAN anyway.
//! - Isolated ports: in the fabric, in the state of a bridge ([`bridge`]). Their packets see a view in which other
//!   isolated ports take nothing: no cost per packet.
//! - Ports that are down, MTU: in the fabric, when a packet goes on a list ([`batch`]). Holds for every logic and for
//!   mirrors.
//! - Offloads (segmented, summed, or passed on): in the fabric, when a packet goes on a list, by the port's [`Caps`].
//!   Once for all destinations that need it.
//! - Mirrors: in the fabric, before and after the logic ([`mirror`]). No logic sees copies, or can lose them.
//! - Transmit queue of a port: in the fabric, by a hash of the flow, unless the logic names one
//!   ([`Batch::send_to_queue`]). A flow stays in order under any logic.
//! - Class of a packet: in the fabric, by its headers and the port where it came in
//!   ([`protection::Classification`]), unless the logic chooses another one ([`Batch::set_class`]).
//! - Departure of packets that wait: in the fabric, in the order of a port's classes (`queueing/`), by the worker that
//!   drains them. Decided packets need no logic.
//! - Worker of a queue: in the control plane ([`Switch`]), by [`Placement`], load and pinning. Workers never share a
//!   queue.
//!
//! Invariants: nothing on this path allocates, locks for longer than a reservation, logs, or waits for a client;
//! objects that are replaced or removed are dropped only after every worker has passed a quiescent point
//! ([`quiescence`]).

pub mod bridge;
pub mod clock;
mod copy;
pub mod counters;
pub mod cpu;
mod decide;
mod deliver;
pub mod fault;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod lists;
#[cfg(test)]
#[cfg(loom)]
mod loom_models;
pub mod observe;
mod protect;
mod queueing;
pub mod rx;
mod slab;
pub mod switch;
mod sync;
pub mod vital;
mod wake;
pub mod worker;

pub use bridge::port::{Caps, PortIndex, PortSettings, VlanMode};
pub use bridge::{BridgeState, port, quiescence};
#[cfg(feature = "count-copies")]
pub use copy::copied;
pub use copy::{prefetch_read, prefetch_write};
pub use counters::{DropReason, QueueCounters};
pub use decide::batch::{Batch, VersionId};
pub use decide::chained::{Packets, Rest};
pub use decide::logic::SwitchLogic;
pub use decide::pattern::Pattern;
pub use decide::{batch, logic};
pub use deliver::client::SharedMemory;
pub use deliver::crossing::Inlet;
pub use deliver::egress::Egress;
pub use deliver::tools::Tools;
pub use deliver::tx_ring::{Buffer, RingBacking, TxRing};
pub use deliver::{crossing, egress, reservation, tools, tx_ring};
pub use fault::{Fault, OnFault};
pub use lists::output::{Output, OutputList};
pub use lists::{output, scratchpad};
pub use observe::explain::{Remark, Text, Value};
pub use observe::mirror::{Mirror, MirrorSnapshot};
pub use observe::trace::{Traced, TracedOutput};
pub use observe::{Interest, Observer, Sighting, Sightings, Way, explain, mirror, trace};
pub use protect::egress_policing::{EgressQueueSnapshot, WaitingSnapshot};
pub use protect::policing::RateLimit;
pub use protect::violations::Violation;
pub use protect::{bucket, protection};
pub use rx::arena::{self, Arena};
pub use rx::{MAX_NOTE, RxBatch, RxQueue};
pub use slab::Slab;
pub use switch::{AttachOptions, Attachment, Placement, Switch, SwitchError, SwitchOptions};
pub use wake::{doorbell, notifier};
pub use worker::tasks::inject::{INJECT_ROOM, InjectError, Injection, Injector};
