//! The daemon around the switch: what it is configured with, and how it is told what to do.
//!
//! The rooms, from the outside in:
//!
//! - [`daemon`] starts and stops everything, on [`limits`] of the process and on the control [`socket`],
//!   and [`notify`] tells the service manager;
//! - [`server`] answers the calls of [`proto`] (gRPC), [`client`] makes them, [`convert`] turns what the switch
//!   reports into replies;
//! - [`desired`] holds the configuration that is wanted, [`edit`] changes it, [`diff`] compares;
//! - [`reconcile`] makes what runs, [`state`], match it; [`refusal`] says why not;
//! - [`events`] tells what happens, and [`author`] by whose order;
//! - [`model`] says what a configuration is, [`file`](mod@file) reads it from TOML with the position of every mistake,
//!   [`keys`] lists what can stand in it,
//!   [`check`] looks for mistakes that only the machine can tell (no such directory, socket in use);
//! - [`capture`](mod@capture) hands packets from the workers to whoever asked to see them, [`sflow`] samples of them to
//!   collectors; both read what workers write to `pages`;
//! - [`stuck`] names modules that do not return;
//! - `overfull` warns of ports that reached their share of a MAC table;
//! - [`metrics`] serves the counters to Prometheus, [`drops`] explains those of dropped packets;
//! - [`options`] reads a port type's own options, [`protection`] what a port is protected against, [`vlan`], [`rate`]
//!   and [`cpulist`] the little grammars, [`suggest`] words what would have been right.
//!
//! The file and the command line meet in the same functions, so that the same mistake is answered in the same words.

pub mod author;
pub mod capture;
pub mod check;
pub mod client;
pub mod convert;
pub mod cpulist;
pub mod daemon;
pub mod desired;
pub mod diff;
pub mod direction;
pub mod drops;
pub mod edit;
pub mod events;
pub mod file;
pub mod hex;
pub mod keys;
pub mod limits;
mod logic_state;
mod logics;
pub mod metrics;
pub mod mirror;
pub mod model;
pub mod notify;
pub mod options;
mod overfull;
mod pages;
pub mod protection;
pub mod proto;
pub mod rate;
pub mod reconcile;
pub mod refusal;
pub mod server;
pub mod sflow;
pub mod socket;
pub mod state;
pub mod stuck;
pub mod suggest;
pub mod trace;
pub mod vlan;
