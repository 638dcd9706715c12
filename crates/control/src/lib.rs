//! The daemon around the switch: its configuration and its control interface.
//!
//! The modules, from the outside in:
//!
//! - [`daemon`] starts and stops everything: it raises the [`limits`] of the process, binds the control [`socket`] and
//!   sends the service manager notifications ([`notify`]);
//! - [`server`] answers the gRPC calls of [`proto`], [`client`] makes them, [`convert`] builds the replies from the
//!   state of the switch;
//! - [`desired`] holds the desired configuration, [`edit`] changes it, [`diff`] compares configurations;
//! - `database` adds the bridges of a database to it;
//! - [`reconcile`] makes the running [`state`] match it; [`refusal`] holds the reasons for refusing a request;
//! - [`events`] streams events, [`author`] identifies the author of a change;
//! - [`model`] defines the configuration, [`file`](mod@file) reads it from TOML and reports the position of every
//!   mistake, [`keys`] lists its keys, [`check`] finds mistakes that depend on the machine (a missing directory, a
//!   socket in use);
//! - [`capture`](mod@capture) streams packets from the workers to clients, [`sflow`] sends samples and
//!   [`accounting`] sends flows to collectors; all read from pages that the workers write ([`metering`]);
//! - [`trace`](mod@trace) explains how a bridge handles a packet;
//! - [`stuck`] finds modules that do not return;
//! - `share_warnings` warns of ports that reached their share of a MAC table;
//! - [`openflow`](mod@openflow) runs the connections of OpenFlow bridges: controllers, `ovs-ofctl`, observers;
//! - [`p4`](mod@p4) runs the programs and P4Runtime servers of P4 bridges;
//! - [`logging`] is what the logs of all daemons have in common;
//! - [`metrics`] serves the counters to Prometheus, [`drops`] explains the reasons for drops;
//! - [`options`] reads the options of port types, [`protection`] the protections of a port; [`vlan`], [`rate`] and
//!   [`cpulist`] parse small grammars, [`suggest`] words suggestions for misspelled names.
//!
//! The configuration file and the command line share these functions, so the same mistake gets the same message.

pub mod accounting;
pub mod author;
pub mod capture;
pub mod check;
pub mod client;
mod collector;
pub mod convert;
pub mod cpulist;
pub mod daemon;
mod database;
pub mod desired;
pub mod diff;
pub mod direction;
pub mod drops;
pub mod edit;
pub mod events;
pub mod file;
pub mod hex;
mod host_port;
pub mod keys;
pub mod limits;
pub mod logging;
mod logic_state;
mod logics;
pub mod metrics;
pub mod mirror;
pub mod model;
pub mod notify;
pub mod openflow;
pub mod options;
pub mod p4;
pub mod protection;
pub mod proto;
pub mod queueing;
pub mod rate;
pub mod reconcile;
pub mod refusal;
pub mod server;
pub mod sflow;
mod share_warnings;
pub mod socket;
pub mod state;
pub mod stuck;
pub mod suggest;
pub mod trace;
pub mod vlan;
mod workers;
