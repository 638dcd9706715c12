//! The state of a program in P4Runtime's words.
//!
//! | module           | room for                                                           |
//! |------------------|--------------------------------------------------------------------|
//! | `work.rs`        | a write: updates one by one, taken back or committed together       |
//! | `book.rs`        | what P4Runtime knows of entities and the pipeline does not          |
//! | `matches.rs`     | conditions                                                          |
//! | `action.rs`      | actions with arguments                                              |
//! | `table.rs`       | entries and defaults of tables                                      |
//! | `direct.rs`      | counters and meters of entries                                      |
//! | `profile.rs`     | members and groups of action profiles                               |
//! | `one_shot.rs`    | groups that entries bring along                                     |
//! | `arrays.rs`      | counters, meters and registers                                      |
//! | `replication.rs` | multicast groups and clone sessions                                 |
//! | `settings.rs`    | value sets and digests                                              |
//! | `read/`          | reading                                                             |
//! | `take_over.rs`   | what another program's state had                                    |

mod action;
mod arrays;
mod book;
mod direct;
mod matches;
mod one_shot;
mod profile;
mod read;
mod replication;
mod settings;
mod table;
mod work;

use std::sync::Arc;

use p4runtime_proto::v1::{
    DigestList, DigestListAck, Entity, IdleTimeoutNotification, PacketIn, PacketOut, Update,
    write_request::Atomicity,
};
use pipeline::ir::{Constant, DigestId};
use pipeline::state::{Bundle, State};

use crate::{Failure, Program, WriteFailure};
use book::Book;

/// Follows changes of a state, for packets: generated code. Called with each bundle, before the write returns.
pub trait Follower: Send {
    /// A bundle was applied.
    fn applied(&mut self, state: &State, bundle: &Bundle);
}

/// A program with its state.
pub struct Switch {
    program: Arc<Program>,
    state: State,
    book: Book,
    follower: Option<Box<dyn Follower>>,
}

impl Switch {
    /// A program at its start.
    pub fn new(program: Arc<Program>) -> Self {
        let state = State::new(program.checked.clone());
        Self { program, state, book: Book::default(), follower: None }
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The state, for generated code and the interpreter.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Sets who follows changes.
    pub fn set_follower(&mut self, follower: Box<dyn Follower>) {
        self.follower = Some(follower);
    }

    /// Writes entities at time `now`, nanoseconds of [`State::apply`].
    ///
    /// All that succeed are one bundle: packets see them together. With [`Atomicity::RollbackOnError`] and
    /// [`Atomicity::DataplaneAtomic`], nothing changes if one fails.
    ///
    /// # Errors
    /// The result of each update.
    pub fn write(&mut self, updates: &[Update], atomicity: Atomicity, now: u64) -> Result<(), WriteFailure> {
        work::write(self, updates, atomicity, now)
    }

    /// Reads entities; see [`crate::Device::read`].
    ///
    /// # Errors
    /// What is wrong with an entity.
    pub fn read(
        &self,
        entities: &[Entity],
        now: u64,
        emit: &mut dyn FnMut(Vec<Entity>) -> bool,
    ) -> Result<(), Failure> {
        read::read(self, entities, now, emit)
    }

    /// Writes what another program's state has, where the shapes agree: entries of tables, members, groups, multicast
    /// groups, clone sessions, registers, counters and meters, by name. Returns a line for each object that does not
    /// keep its state.
    pub fn take_over(&mut self, before: &Switch, now: u64) -> Vec<String> {
        unimplemented!("{} {now}", before.state.generation())
    }

    /// The bytes with which a controller's packet enters at the CPU port: its header, then the payload.
    ///
    /// # Errors
    /// What is wrong with its metadata.
    pub fn packet_out(&self, packet: &PacketOut) -> Result<Vec<u8>, Failure> {
        match (&self.program.schema().packet_out, &packet.metadata[..]) {
            (Some(header), _) => header.encode(packet),
            (None, []) => Ok(packet.payload.clone()),
            (None, _) => Err(Failure::invalid(
                "the program has no header with @controller_header(\"packet_out\"): packets have no metadata",
            )),
        }
    }

    /// A packet that left through the CPU port, for controllers.
    pub fn packet_in(&self, bytes: &[u8]) -> PacketIn {
        match &self.program.schema().packet_in {
            Some(header) => header.decode(bytes),
            None => PacketIn { payload: bytes.to_vec(), metadata: vec![] },
        }
    }

    /// Takes a digest that a packet made. Lists that are full are due ([`Switch::due_digests`]).
    pub fn digest(&mut self, digest: DigestId, values: &[Constant], now: u64) {
        unimplemented!("{digest:?} {values:?} {now}")
    }

    /// Lists of digests that are due at time `now`, and the time at which the next one will be.
    pub fn due_digests(&mut self, now: u64) -> (Vec<DigestList>, Option<u64>) {
        unimplemented!("{now}")
    }

    /// A list of digests was received.
    ///
    /// # Errors
    /// There is no such digest.
    pub fn acknowledge(&mut self, ack: &DigestListAck) -> Result<(), Failure> {
        unimplemented!("{ack:?}")
    }

    /// Entries that have been idle for longer than their timeout, each once until a packet hits it again.
    pub fn idle(&mut self, now: u64) -> Option<IdleTimeoutNotification> {
        unimplemented!("{now}")
    }
}
