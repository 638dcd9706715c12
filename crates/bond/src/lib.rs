//! Link aggregation without I/O: bonds, their members, and LACP (IEEE 802.1AX).
//!
//! A [`Bond`] is told of settings, links and received LACPDUs, and is asked to [`run`](Bond::run) when time has passed.
//! It answers with frames to send and with a [`View`] for the data path: the member of each hash bucket, and the
//! packets that each member admits. Time is a parameter, in milliseconds.
//!
//! - [`lacp`]: the protocol; [`hash`]: from packets to buckets; [`view`]: the data path's side;
//! - `bond`: the state of a bond; `settings`; `rebalance`: moving load; `operate`: commands of operators; `show`:
//!   texts.
//!
//! # Invariants
//! - Whatever a peer sends, memory does not grow: a member keeps the last valid LACPDU's fields and counters.
//! - A bucket's member is enabled whenever some member is.
#![forbid(unsafe_code)]

mod bond;
pub mod hash;
pub mod lacp;
mod operate;
mod rebalance;
mod settings;
mod show;
pub mod view;

pub use bond::{Bond, Outcome};
pub use operate::OperateError;
pub use settings::{LacpSettings, MemberSettings, Mode, Settings};
pub use view::View;

/// Hash buckets of a bond that spreads its load.
pub const BUCKETS: usize = 256;

/// Milliseconds on a clock that never goes back.
pub type Millis = u64;
