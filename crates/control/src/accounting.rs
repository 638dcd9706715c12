//! Accounting of flows: NetFlow version 5 and IPFIX of bridges, and IPFIX of packets that `sample` actions choose.
//!
//! The path of a packet: a [`metering::Meter`] counts it on its worker into a flow of the worker's page;
//! `exporter` reads the pages, keeps the flows in a `cache` until they end, and has `netflow` or `ipfix` encode them;
//! `collector` sends them. [`settings`] holds the configuration; `exports` follows bridges and ports that are added and
//! removed; `samples` is the OpenFlow logic's side.

mod cache;
mod exporter;
mod exports;
#[cfg(test)]
mod frames;
mod ipfix;
mod netflow;
mod samples;
pub mod settings;

pub(crate) use exports::Changed;
pub use exports::{Exports, Report};
pub use settings::{AccountingConfig, AccountingError, CacheConfig, Engine, IpfixConfig, NetflowConfig};
