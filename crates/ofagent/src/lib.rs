//! The connections of an OpenFlow switch: controllers, tools such as `ovs-ofctl`, observers.
//!
//! [`ofswitch::Switch`] has the protocol, this crate the sockets, the clock and the limits. It knows no fabric and no
//! daemon: the caller passes packets through [`SharedSwitch::with`] and executes their effects.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use ofagent::{Agent, Settings, SharedSwitch};
//!
//! let switch = ofswitch::Switch::new(ofswitch::Settings::default());
//! let switch = SharedSwitch::new(switch, |effects| println!("{effects:?}"));
//! let settings = Settings {
//!     controllers: vec!["tcp:127.0.0.1:6653".parse()?],
//!     management: Some("/run/mswitch/br0.mgmt".into()),
//!     snoop: Some("/run/mswitch/br0.snoop".into()),
//!     ..Settings::default()
//! };
//! let agent = Agent::start(&tokio::runtime::Handle::current(), switch, settings)?;
//! println!("{:?}", agent.controllers());
//! agent.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Rooms
//! - `target`: controllers' addresses as text; `tls`: keys and certificates; `settings`: the rest of what an agent is told.
//! - `shared`: the switch behind a lock, and a doorbell for each connection.
//! - `frames`, `timers`, `connection`: one connection, whatever its transport.
//! - `active`, `backoff`: connections that the agent makes; `passive`: those that it accepts.
//! - `snoop`: copies of a controller's messages; `talk`: a connection in the log.
//! - [`clock`]: time, for tests stopped and moved by hand.
//! - `state`: controllers for display; `agent`: all of it together.
//!
//! # Invariants
//! - A connection holds at most what the switch lets wait for it, 64 KiB on the way out, one message and one read.
//! - After a bounded number of messages, other connections have their turn.
//! - No input ends more than the connection it came from.
#![forbid(unsafe_code)]

mod active;
mod agent;
mod backoff;
pub mod clock;
mod connection;
mod frames;
mod passive;
mod settings;
mod shared;
mod snoop;
mod state;
mod talk;
mod target;
mod timers;
mod tls;

pub use agent::{Agent, StartError};
pub use settings::{FailMode, Limits, Settings};
pub use shared::SharedSwitch;
pub use socket_file::{SocketAccess, SocketError};
pub use state::{ControllerState, PeerState};
pub use talk::LOG_OF_MESSAGES;
pub use target::{DEFAULT_PORT, Target, TargetError};
pub use tls::{TlsError, TlsFiles};
