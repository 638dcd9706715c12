//! The fabric moves packets between ports; it decides nothing and knows no port type.
//!
//! One batch travels like this (docs/architecture.md has the picture):
//!
//! 1. a [`worker`] takes descriptors from an [`RxQueue`] into an [`RxBatch`]; payload stays with the sender;
//! 2. the first 128 bytes of each packet become a private header (a [`VersionId`]);
//! 3. the bridge's [`SwitchLogic`] sees the whole [`Batch`] once and names destinations;
//! 4. each output goes on its destination's list in the worker's scratchpad ([`scratchpad`]);
//! 5. every destination with a list is delivered to once, through its [`Egress`]: rings by
//!    reserve, copy, publish ([`TxRing`]), others by a call;
//! 6. the sender's descriptors go back in one update.
//!
//! # Where things are
//!
//! Each folder's `mod.rs` says what it is for and what its files hold.
//!
//! | folder | what is in it | step |
//! | --- | --- | --- |
//! | `rx/` | receive queues, batches, packet records, private headers | 1, 2 |
//! | `decide/` | the logic's contract, its view of a batch, the way of a batch through a bridge | 3 |
//! | `lists/` | outputs and the lists that destinations are given | 4 |
//! | `deliver/` | destinations: rings, queues of the switch's own, ports of other bridges | 5 |
//! | `worker/` | the threads, and the tasks that they run | all |
//! | `wake/` | doorbells: what wakes a worker, and what a worker rings | 1, 5, 6 |
//! | `bridge/` | the picture of a bridge that workers see, and when an old one may go | |
//! | `switch/` | the control plane's handle, which makes these pictures | |
//! | `protect/` | what ports are limited to: rates, storm control, who may speak | before 3 |
//! | `observe/` | observers, mirrors, traces | beside 3 to 5 |
//!
//! All of them use `copy.rs`, `cpu.rs` (instruction sets), `clock.rs`, `counters.rs`, `fault.rs`, `slab.rs` (memory that is reached
//! through pointers only), `sync.rs` (atomics, or the model checker's) and `vital.rs` (threads whose panic ends the process).
//!
//! # Who decides what
//!
//! | what | enforced in | why there |
//! | --- | --- | --- |
//! | rates of a port: policing, storm control | fabric, before the logic ([`protection`]) | a packet that is dropped costs no lookup; holds for every logic |
//! | floods of unknown stations | fabric's rate, asked by the logic ([`Batch::may_flood_unknown`]) | only the logic knows that a station is unknown |
//! | who may speak at a port: stations, addresses | logic (`logic::security`) | it has the station in hand when it learns it |
//! | VLAN of a packet, tags where it leaves | logic (`logic::vlan`), by the fabric's settings ([`VlanMode`]) | one classification a packet, and the lookup needs the VLAN anyway |
//! | isolated ports | fabric, in the picture of a bridge ([`bridge`]) | their packets see a picture in which the others take nothing: no cost for a packet |
//! | ports that are down, MTU | fabric, where a packet goes on a list ([`batch`]) | holds for every logic and for mirrors |
//! | offloads: cut, summed, or passed on | fabric, where a packet goes on a list, by the port's [`Caps`] | once for all destinations that need it |
//! | mirrors | fabric, before and after the logic ([`mirror`]) | no logic sees copies, or could lose them |
//! | transmit queue of a port | fabric, by a hash of the flow, unless the logic names one ([`Batch::send_to_queue`]) | keeps a flow in order, whatever the logic |
//! | when a queued packet leaves | a [`Gate`] of the queue, asked by the worker that drains it | decided packets need no logic |
//! | worker of a queue | control plane ([`Switch`]): [`Placement`], load, pinning | workers never share a queue |
//!
//! Invariants: nothing on this path allocates, locks for longer than a reservation, logs, or waits for a
//! client; what is replaced or removed is dropped only after every worker passed a quiescent point
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
pub use protect::violations::Violation;
pub use protect::{bucket, protection};
pub use rx::arena::{self, Arena};
pub use rx::{RxBatch, RxQueue};
pub use slab::Slab;
pub use switch::{AttachOptions, Attachment, Placement, Queueing, Switch, SwitchError, SwitchOptions};
pub use wake::{doorbell, notifier};
pub use worker::tasks::drain::{Gate, Open, Opening};
pub use worker::tasks::inject::{INJECT_ROOM, InjectError, Injection, Injector};
