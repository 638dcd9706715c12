//! Accounting of flows: NetFlow version 5 and IPFIX of bridges, and IPFIX of packets that `sample` actions choose.
//!
//! The path of a packet: `meter` counts it on its worker into a flow (`key`, `counts`) of the worker's `page`;
//! `exporter` reads the pages, keeps the flows in a `cache` until they end, and has `netflow` or `ipfix` encode them;
//! `collector` sends them. [`settings`] holds the configuration; `exports` follows bridges and ports that are added and
//! removed; `samples` is the OpenFlow logic's side.

mod cache;
mod counts;
mod exporter;
mod exports;
mod ipfix;
mod key;
mod meter;
mod netflow;
mod page;
mod samples;
pub mod settings;

use std::sync::Arc;

use fabric::Observer;

pub(crate) use exports::Changed;
pub use exports::{Exports, Report};
pub use settings::{AccountingConfig, AccountingError, CacheConfig, Engine, IpfixConfig, NetflowConfig};

/// Makes an observer that counts packets as NetFlow does and exports nothing, to measure what that costs.
pub fn netflow_meter() -> Arc<dyn Observer> {
    let scope = meter::Scope { detail: key::Detail::Ipv4, input: true, output: false };
    Arc::new(meter::Meter::new(scope, 1, true))
}
