//! The client side of OVSDB, the Open vSwitch Database Management Protocol (RFC 7047).
//!
//! A [`Session`] replicates tables of a database, holds a lock, and sends transactions; it connects again when the
//! connection ends.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use ovsdb::typed::Table;
//! use ovsdb::vswitch::{self, Bridge};
//! use ovsdb::{Event, Session, Settings, Transaction};
//!
//! let remote = "unix:/run/openvswitch/db.sock".parse()?;
//! let mut session = Session::new(Settings::new(remote, vswitch::DATABASE, vswitch::TABLES.to_vec()));
//! loop {
//!     match session.next().await {
//!         Event::Connected | Event::Changed(_) => break,
//!         event => println!("{event:?}"),
//!     }
//! }
//! for bridge in Bridge::all(session.replica())? {
//!     let mut row = ovsdb::Row::new();
//!     Bridge::DATAPATH_ID.set(&mut row, Some("0000000000000001".into()));
//!     session.transact(Transaction::new().update("Bridge", bridge.uuid, row)).await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Rooms
//! - `splitter`, `message`: JSON-RPC 1.0 on a stream without framing.
//! - `uuid`, `value`, `schema`: atoms, sets, maps, rows and their types.
//! - `transaction`: operations and their results; `replica`: tables that follow updates.
//! - `remote`, `connection`, `backoff`: one connection; `session`: all of it together.
//! - [`typed`]: rows as Rust types; [`vswitch`]: those of Open vSwitch's database.
//!
//! # Invariants
//! - No input of a server leads to a panic; memory is bounded by the largest message and by the database.
//! - A message that breaks the protocol ends the connection, with a reason that names what was expected.
#![forbid(unsafe_code)]

mod backoff;
mod connection;
mod message;
mod remote;
mod replica;
mod schema;
mod session;
mod splitter;
mod transaction;
pub mod typed;
mod uuid;
mod value;
pub mod vswitch;

pub use message::{Message, MessageError};
pub use remote::{DEFAULT_PORT, Remote, RemoteError};
pub use replica::{Change, ChangeKind, Format, Replica, Rows, UpdateError};
pub use schema::{AtomType, ColumnInfo, ColumnType, Columns, Schema, SchemaError, TableInfo};
pub use session::{Event, Session, SessionError, Settings, Ticket};
pub use splitter::{SplitError, Splitter};
pub use transaction::{
    Condition, Function, Mutation, Mutator, Operation, OperationResult, TransactError, Transaction,
};
pub use uuid::{Uuid, UuidError};
pub use value::{Atom, Real, Row, Value, ValueError, encode_row};
