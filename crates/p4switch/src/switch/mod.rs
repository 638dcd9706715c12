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
//! | `idle.rs`        | entries that no packet hits                                         |
//! | `read/`          | reading                                                             |
//! | `take_over.rs`   | what another program's state had                                    |

mod action;
mod arrays;
mod book;
mod direct;
mod idle;
mod matches;
mod one_shot;
mod profile;
mod read;
mod replication;
mod settings;
mod table;
mod take_over;
mod work;

use std::sync::Arc;

use p4runtime_proto::v1::{
    DigestList, DigestListAck, Entity, IdleTimeoutNotification, PacketIn, PacketOut, TableEntry, Update,
    write_request::Atomicity,
};
use pipeline::ir::{Constant, DigestId, TableId};
use pipeline::state::{Bundle, EntryId, State};

use crate::data::Types;
use crate::digests::Digests;
use crate::{Access, Failure, Program, WriteFailure};
use book::Book;
use idle::Idle;
pub use read::Cursor;

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
    idle: Idle,
    digests: Digests,
    follower: Option<Box<dyn Follower>>,
}

impl Switch {
    /// A program at its start.
    pub fn new(program: Arc<Program>) -> Self {
        let state = State::new(program.checked.clone());
        Self {
            program,
            state,
            book: Book::default(),
            idle: Idle::default(),
            digests: Digests::default(),
            follower: None,
        }
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
        work::write(self, updates, atomicity, None, now)
    }

    /// Writes entities like [`Switch::write`], within the access of a role: other updates fail.
    ///
    /// # Errors
    /// The result of each update.
    pub fn write_as(
        &mut self,
        access: &Access,
        updates: &[Update],
        atomicity: Atomicity,
        now: u64,
    ) -> Result<(), WriteFailure> {
        work::write(self, updates, atomicity, Some(access), now)
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

    /// Reads a part of what an entity asks for, behind a cursor. Returns the cursor for the next part, if there is one:
    /// entries may come and go meanwhile.
    ///
    /// # Errors
    /// What is wrong with the entity.
    pub fn read_part(
        &self,
        entity: &Entity,
        from: Option<Cursor>,
        now: u64,
    ) -> Result<(Vec<Entity>, Option<Cursor>), Failure> {
        read::part(self, entity, from, now)
    }

    /// Writes what another program's state has, where the shapes agree: entries of tables, members, groups, multicast
    /// groups, clone sessions, registers, counters and meters, by name. Returns a line for each object that does not
    /// keep its state.
    pub fn take_over(&mut self, before: &Switch, now: u64) -> Vec<String> {
        take_over::take_over(self, before, now)
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
        if let Some(id) = self.program.schema().digest_ids.get(&digest) {
            self.digests.add(*id, values, now);
        }
    }

    /// Lists of digests that are due at time `now`, and the time at which the next one will be.
    pub fn due_digests(&mut self, now: u64) -> (Vec<DigestList>, Option<u64>) {
        let (lists, next) = self.digests.due(now);
        let (program, digests) = (&self.program, &self.program.schema().digests);
        let mut types = Types::new(&program.info, &program.checked);
        let list = |list: crate::digests::List| {
            let spec = digests.get(&list.digest).and_then(|digest| digest.spec.as_ref());
            let data = |values: &Arc<[Constant]>| types.assemble(spec, values);
            DigestList {
                digest_id: list.digest,
                list_id: list.list,
                data: list.values.iter().map(data).collect(),
                timestamp: i64::try_from(now).unwrap_or(i64::MAX),
            }
        };
        (lists.into_iter().map(list).collect(), next)
    }

    /// A list of digests was received.
    ///
    /// # Errors
    /// There is no such digest.
    pub fn acknowledge(&mut self, ack: &DigestListAck) -> Result<(), Failure> {
        arrays::array(&self.program.schema().digests, "digest", ack.digest_id)?;
        self.digests.acknowledge(ack.digest_id, ack.list_id);
        Ok(())
    }

    /// Entries that have been idle for longer than their timeout, each once until a packet hits it again. There may be
    /// more than fit into a notification: it is called until there are none.
    pub fn idle(&mut self, now: u64) -> Option<IdleTimeoutNotification> {
        let idle = self.idle.take(&self.state, now);
        let entries: Vec<_> =
            idle.into_iter().filter_map(|(table, id)| self.idle_entry(table, id, now)).collect();
        let timestamp = i64::try_from(now).unwrap_or(i64::MAX);
        (!entries.is_empty()).then_some(IdleTimeoutNotification { table_entry: entries, timestamp })
    }

    /// An idle entry without its action.
    fn idle_entry(&self, table: TableId, id: EntryId, now: u64) -> Option<TableEntry> {
        let schema = self.program.schema();
        let table = schema.tables.get(schema.table_ids.get(&table)?)?;
        let installed = self.state.table(table.ir)?.get(id)?;
        let entry = read::Reader::of(self, now).entry(table, &TableEntry::default(), installed);
        Some(TableEntry { action: None, ..entry })
    }
}
