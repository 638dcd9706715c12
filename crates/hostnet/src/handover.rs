//! The move of a configuration to a host port, as a daemon makes it.
//!
//! Invariants: the journal is on disk and the guardian is ready before the first change. A step that fails leaves the
//! state before [`Handover::begin`]. A handover that is dropped without [`Handover::release`] is given back by its
//! guardian.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::changes::Changes;
use crate::guardian::Guardian;
use crate::journal::{Journal, Place};
use crate::link::{self, Interface};
use crate::netlink::{Connection, Refusal};
use crate::plan::{self, Plan};
use crate::recovery::{self, Recovered};
use crate::{Error, Object, Snapshot};

/// A configuration that moves, or has moved, from an interface to a host port.
#[derive(Debug)]
pub struct Handover {
    path: PathBuf,
    journal: Journal,
    guardian: Guardian,
    connection: Connection,
}

impl Handover {
    /// Writes the journal, starts the guardian with `command` (see [`Guardian::start`]), and prepares interface
    /// `target` for the packets of interface `source`: MAC address, MTU, settings, up. Nothing leaves `source`.
    pub fn begin(source: &str, target: &str, journal: &Path, command: Command) -> Result<Self, Error> {
        if source == target {
            return Err(Error::Same(source.to_owned()));
        }
        if Journal::read(journal)?.is_some() {
            return Err(Error::Journal {
                path: journal.to_owned(),
                what: "it exists already, from a move that was not undone; recover first".to_owned(),
            });
        }
        let mut connection = Connection::open().map_err(Error::unreadable(source))?;
        let from = look_up(&mut connection, source)?;
        let to = look_up(&mut connection, target)?;
        let path = journal.to_owned();
        let journal = Journal::new(journal, from, to)?;
        journal.write(&path)?;
        let guardian = match Guardian::start(command, &path) {
            Ok(guardian) => guardian,
            Err(error) => {
                Journal::remove(&path)?;
                return Err(error);
            }
        };
        let mut handover = Self { path, journal, guardian, connection };
        let plan = plan::prepare(&handover.journal.source, &handover.journal.target, link::relaxed_filter());
        match plan.run(&mut handover.connection) {
            Ok(()) => Ok(handover),
            Err(error) => Err(handover.roll_back(error)),
        }
    }

    /// Returns the guardian's process number.
    #[must_use]
    pub fn guardian(&self) -> u32 {
        self.guardian.id()
    }

    /// Returns the configuration before the move.
    #[must_use]
    pub fn source(&self) -> &Snapshot {
        &self.journal.source
    }

    /// Returns the operations of [`Self::commit`].
    #[must_use]
    pub fn plan(&self) -> Plan {
        plan::commit(&self.journal.source, &self.journal.target)
    }

    /// Moves addresses, routes, neighbours and rules. On an error, everything is as before [`Self::begin`].
    pub fn commit(mut self) -> Result<Self, Error> {
        match self.carry_out() {
            Ok(()) => Ok(self),
            Err(error) => Err(self.roll_back(error)),
        }
    }

    fn carry_out(&mut self) -> Result<(), Error> {
        self.plan().run(&mut self.connection)?;
        let to = self.journal.target.interface.clone();
        let present = self.read(&to)?;
        match self.journal.source.moved(&to).missing_in(&present) {
            None => Ok(()),
            Some(object) => Err(Error::Vanished { object: object.to_string(), on: to.to_string() }),
        }
    }

    /// Moves what the source has received since: a DHCP client that looks after the source goes on to do so. Returns
    /// the number of objects that moved. Writes to the journal what the target has received, and for how long
    /// addresses are valid there, because a host port may vanish with its daemon.
    ///
    /// To be called when [`Self::changes`] reports something, at most once a second (a program that insists on its
    /// addresses at the source would keep both busy), and after [`Self::next_follow`].
    pub fn follow(&mut self) -> Result<usize, Error> {
        let from = self.journal.source.interface.clone();
        let to = self.journal.target.interface.clone();
        let mut received = self.read(&from)?;
        received.objects.retain(Object::is_configured);
        let present = self.read(&to)?;
        let mut newer = self.journal.received(&present).moved(&from);
        newer.objects.retain(Object::is_configured);
        if let Some(journal) = self.journal.updated(&newer.merged(&received)) {
            journal.write(&self.path)?;
            self.journal = journal;
        }
        if received.is_empty() {
            return Ok(0);
        }
        plan::follow(&received, &present).run(&mut self.connection)?;
        Ok(received.objects.len())
    }

    /// Returns notifications of addresses and routes that somebody gives to the source, and of addresses of the target:
    /// the time to [`Self::follow`].
    pub fn changes(&self) -> Result<Changes, Error> {
        Changes::of(&self.journal.source.interface, &self.journal.target.interface)
    }

    /// Returns the longest time until the next [`Self::follow`]: half of the shortest lifetime in the journal. The
    /// kernel does not report that a route lives longer.
    #[must_use]
    pub fn next_follow(&self) -> Option<Duration> {
        let shortest = self.journal.wanted().shortest_lifetime()?;
        Some(Duration::from_secs(u64::from(shortest / 2).max(1)))
    }

    /// Starts another guardian: the present one has died, which the descriptor of [`Self::as_fd`] tells by hanging
    /// up.
    pub fn guard_again(&mut self, command: Command) -> Result<(), Error> {
        // The former one would hold the lock of the journal, and give everything back.
        std::mem::replace(&mut self.guardian, Guardian::start(command, &self.path)?).release();
        Ok(())
    }

    /// Gives the configuration back, together with what the host port has received since, and ends the guardian.
    ///
    /// The host port keeps the MAC address of the source, so that it receives the source's packets until the
    /// interface is detached from the bridge. On an error, the guardian tries on by itself, and the journal is kept.
    pub fn release(self) -> Result<Released, Error> {
        let recovered = recovery::give_back(&self.journal)?;
        Journal::remove(&self.path)?;
        self.guardian.release();
        Ok(Released { path: self.path, journal: self.journal, recovered, finished: false })
    }

    /// Returns the state before the move, and the error that describes what happened.
    fn roll_back(self, cause: Error) -> Error {
        let restored = recovery::give_back(&self.journal)
            .and_then(|_| recovery::finish(&self.journal))
            .and_then(|()| Journal::remove(&self.path));
        match restored {
            Ok(()) => {
                self.guardian.release();
                cause
            }
            Err(rollback) => Error::RollbackFailed {
                cause: Box::new(cause),
                rollback: Box::new(rollback),
                journal: self.path.clone(),
            },
        }
    }

    fn read(&mut self, interface: &Interface) -> Result<Snapshot, Error> {
        let unreadable = Error::unreadable(&interface.name);
        let listed = link::by_index(&mut self.connection, interface.index).map_err(&unreadable)?;
        let listed = listed.ok_or_else(|| Error::Missing(interface.name.clone()))?;
        Snapshot::read(&mut self.connection, listed).map_err(unreadable)
    }
}

impl AsFd for Handover {
    /// Returns a descriptor that hangs up when the guardian dies: a daemon that sees this calls
    /// [`Self::guard_again`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.guardian.as_fd()
    }
}

/// A configuration that is back at its interface. Dropping it is [`Released::finish`], in its network namespace.
#[derive(Debug)]
pub struct Released {
    path: PathBuf,
    journal: Journal,
    recovered: Recovered,
    finished: bool,
}

impl Released {
    /// Returns what was given back: everything, or nothing because the interface is gone.
    #[must_use]
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// Gives the host port its own MAC address, MTU and settings back.
    pub fn finish(mut self) -> Result<(), Error> {
        self.finished = true;
        recovery::finish(&self.journal)
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        if !self.finished && matches!(self.journal.place(&self.path), Ok(Place::Here)) {
            // The caller has not waited for the result.
            let _ = recovery::finish(&self.journal);
        }
    }
}

fn look_up(connection: &mut Connection, name: &str) -> Result<Snapshot, Error> {
    let unreadable = Error::unreadable(name);
    let listed = link::by_name(connection, name).map_err(&unreadable)?;
    let listed = listed.ok_or_else(|| Error::Missing(name.to_owned()))?;
    if let Some(obstacle) = link::obstacle(connection, &listed).map_err(&unreadable)? {
        return Err(obstacle);
    }
    Snapshot::read(connection, listed).map_err(|refusal: Refusal| unreadable(refusal))
}
