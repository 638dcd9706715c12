//! Giving a configuration back: when detaching, when a move has failed, and after a crash.
//!
//! Everything is read anew: which interfaces exist, what they hold, and what the host port has received in addition
//! since the move. So giving back works from any state, and twice.
//!
//! Invariant: one refused operation does not keep the others from being tried, because each address that returns may
//! be the one over which the operator is logged in.

use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use crate::Error;
use crate::journal::{Journal, Lock, Place};
use crate::link::{self, Interface, Listed, Mac};
use crate::netlink::{Connection, Refusal};
use crate::objects::Object;
use crate::plan::{self, Away, Operation, Plan};
use crate::snapshot::{self, Snapshot};

/// Time for a guardian that is giving the configuration back at this moment.
const PATIENCE: Duration = Duration::from_secs(5);
/// Attempts to give everything back, while other programs change the interface.
const ATTEMPTS: u32 = 3;

/// What [`recover`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// There is no journal: nothing was moved, or everything is back.
    Nothing,
    /// The interface has its configuration back.
    Restored(Interface),
    /// The interface does not exist any more, so its configuration was discarded.
    Gone(Interface),
    /// The journal was written before the host's last boot, and was discarded.
    EarlierBoot,
}

/// Restores the state before the move that a journal describes, and removes the journal.
///
/// It may be called at any time, also repeatedly, and waits for a guardian that is at the same work.
pub fn recover(path: &Path) -> Result<Recovered, Error> {
    if Journal::read(path)?.is_none() {
        return Ok(Recovered::Nothing);
    }
    let Some(lock) = Lock::take(path, PATIENCE)? else {
        return Err(Error::Journal {
            path: path.to_owned(),
            what:
                "its guardian is alive, so the daemon that moved the addresses still runs; stop that daemon"
                    .to_owned(),
        });
    };
    recover_locked(path, &lock)
}

/// Restores for the holder of the lock.
pub(crate) fn recover_locked(path: &Path, _lock: &Lock) -> Result<Recovered, Error> {
    let Some(journal) = Journal::read(path)? else { return Ok(Recovered::Nothing) };
    match journal.place(path)? {
        Place::Here => {}
        Place::EarlierBoot => {
            Journal::remove(path)?;
            return Ok(Recovered::EarlierBoot);
        }
        Place::OtherNamespace(inode) => {
            return Err(Error::Journal {
                path: path.to_owned(),
                what: format!(
                    "it belongs to the network namespace with inode {inode}; recover in that namespace, which `lsns -t net` \
                     lists, or remove the file if the namespace is gone"
                ),
            });
        }
    }
    let recovered = give_back(&journal)?;
    finish(&journal)?;
    Journal::remove(path)?;
    Ok(recovered)
}

/// Gives the source its configuration back.
pub(crate) fn give_back(journal: &Journal) -> Result<Recovered, Error> {
    let unreadable = Error::unreadable(&journal.source.interface.name);
    let mut connection = Connection::open().map_err(&unreadable)?;
    if let Some(source) = find_source(&mut connection, journal).map_err(&unreadable)?
        && find_target(&mut connection, journal).map_err(&unreadable)?.is_none()
    {
        // The host is cut off. What fails here fails again below, and is reported there.
        run_all(&plan::reconnect(&journal.wanted().moved(&source.interface)), &mut connection);
    }
    let mut outcome = Ok(());
    for _ in 0..ATTEMPTS {
        let Some(source) = find_source(&mut connection, journal).map_err(&unreadable)? else {
            discard(&mut connection, journal)?;
            return Ok(Recovered::Gone(journal.source.interface.clone()));
        };
        let on = source.interface.clone();
        let (wanted, away) = survey(&mut connection, journal, source).map_err(&unreadable)?;
        let plan = plan::restore(&wanted, &away);
        let failures = run_all(&plan, &mut connection);
        let Some(source) = find_source(&mut connection, journal).map_err(&unreadable)? else { continue };
        let mut present = Snapshot::read(&mut connection, source).map_err(&unreadable)?;
        if add_onlink(&failures, &present, &mut connection)
            && let Some(source) = find_source(&mut connection, journal).map_err(&unreadable)?
        {
            present = Snapshot::read(&mut connection, source).map_err(&unreadable)?;
        }
        outcome = verdict(&wanted, &present, failures);
        if outcome.is_ok() {
            return Ok(Recovered::Restored(on));
        }
    }
    outcome.map(|()| Recovered::Gone(journal.source.interface.clone()))
}

/// Returns what went wrong, if anything is still wrong: what the kernel refuses may be as it should be already.
fn verdict(wanted: &Snapshot, present: &Snapshot, failures: Vec<(&Operation, Error)>) -> Result<(), Error> {
    let keys = present.keys();
    for (operation, error) in failures {
        match operation {
            Operation::Add { object, .. } if keys.contains(&object.key()) => {}
            Operation::Remove { object, .. } if !keys.contains(&object.key()) => {}
            Operation::Set { on, change } if *on != present.interface || change.holds(&present.link) => {}
            _ => return Err(error),
        }
    }
    match wanted.missing_in(present) {
        None => Ok(()),
        Some(object) => {
            Err(Error::Vanished { object: object.to_string(), on: present.interface.to_string() })
        }
    }
}

/// Removes what the target has of a source that is gone, and the rules that name the target.
fn discard(connection: &mut Connection, journal: &Journal) -> Result<(), Error> {
    let target = &journal.target.interface;
    let unreadable = Error::unreadable(&target.name);
    if let Some(present) = find_target(connection, journal).map_err(&unreadable)? {
        let now = Snapshot::read(connection, present).map_err(&unreadable)?;
        // Best effort: what goes with another object, such as a route with its address, is refused.
        run_all(&plan::discard(&journal.received(&now)), connection);
    }
    let left = rules_left(connection, journal).map_err(Error::unreadable(&target.name))?;
    let removals = left.into_iter().map(|object| Operation::Remove { on: target.clone(), object });
    removals.into_iter().try_for_each(|removal| plan::apply(connection, &removal))
}

/// Returns the rules that name the target and are not its own.
fn rules_left(connection: &mut Connection, journal: &Journal) -> Result<Vec<Object>, Refusal> {
    let own = journal.target.keys();
    let left = snapshot::rules(connection, &journal.target.interface.name)?.into_iter().map(Object::Rule);
    Ok(left.filter(|rule| !own.contains(&rule.key())).collect())
}

/// Gives the target its own configuration back, if it exists.
pub(crate) fn finish(journal: &Journal) -> Result<(), Error> {
    let unreadable = Error::unreadable(&journal.target.interface.name);
    let mut connection = Connection::open().map_err(&unreadable)?;
    let Some(target) = find_target(&mut connection, journal).map_err(&unreadable)? else { return Ok(()) };
    let now = Snapshot::read(&mut connection, target).map_err(&unreadable)?;
    let plan = plan::finish(&journal.target, &now);
    let failures = run_all(&plan, &mut connection);
    // An interface may go away meanwhile, as a TAP interface does with its daemon.
    let Some(target) = find_target(&mut connection, journal).map_err(&unreadable)? else { return Ok(()) };
    let now = Snapshot::read(&mut connection, target).map_err(&unreadable)?;
    let own = Snapshot { objects: Vec::new(), ..journal.target.clone() };
    verdict(&own, &now, failures)
}

/// Returns what the source shall have, and where it is now.
fn survey(
    connection: &mut Connection,
    journal: &Journal,
    source: Listed,
) -> Result<(Snapshot, Away), Refusal> {
    let mut wanted = journal.wanted().moved(&source.interface);
    let target = match find_target(connection, journal)? {
        Some(target) => Some(journal.received(&Snapshot::read(connection, target)?)),
        None => None,
    };
    if let Some(target) = &target {
        wanted = wanted.merged(&target.moved(&source.interface));
    }
    let rules = rules_left(connection, journal)?;
    if target.is_none() {
        // Rules outlive their interface: those that were added for the host port move as well.
        let (from, to) = (&journal.target.interface, &source.interface);
        let moved = Snapshot {
            interface: to.clone(),
            link: wanted.link.clone(),
            objects: rules.iter().map(|rule| rule.moved(from, to)).collect(),
        };
        wanted = wanted.merged(&moved);
    }
    wanted.link.up = source.link.up;
    if !source.link.up {
        // The kernel accepts no routes through an interface that is down.
        wanted.objects.retain(|object| !matches!(object, Object::Route(_) | Object::Nexthop(_)));
    }
    Ok((wanted, Away { source: source.link, target, rules, relaxed: link::relaxed_filter() }))
}

fn find_source(connection: &mut Connection, journal: &Journal) -> Result<Option<Listed>, Refusal> {
    find(connection, &journal.source.interface, [journal.source.link.mac, None])
}

/// Finds the target, which has the source's MAC address during the move.
fn find_target(connection: &mut Connection, journal: &Journal) -> Result<Option<Listed>, Refusal> {
    find(connection, &journal.target.interface, [journal.target.link.mac, journal.source.link.mac])
}

/// Finds an interface: by its index if it has the known name or one of these MAC addresses, because it may have been
/// renamed; else by its name, because it may have been made anew.
fn find(
    connection: &mut Connection,
    known: &Interface,
    macs: [Option<Mac>; 2],
) -> Result<Option<Listed>, Refusal> {
    let Interface { index, name } = known;
    if let Some(found) = link::by_index(connection, *index)?
        && (found.interface.name == *name || found.link.mac.is_some() && macs.contains(&found.link.mac))
    {
        return Ok(Some(found));
    }
    link::by_name(connection, name)
}

/// Adds routes that are missing because the kernel does not find their gateway: they were older than the prefix that
/// the gateway is in, or outlived it. Returns whether one was added.
fn add_onlink(failures: &[(&Operation, Error)], present: &Snapshot, connection: &mut Connection) -> bool {
    let (mut added, keys) = (false, present.keys());
    for (operation, error) in failures {
        if let (Operation::Add { on, object: Object::Route(route), how }, Error::Refused { refusal, .. }) =
            (operation, error)
            && matches!(refusal.errno, Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::INVAL)
            && route.has_gateway()
            && !keys.contains(&Object::Route(route.clone()).key())
        {
            let object = Object::Route(route.onlink());
            added |= plan::apply(connection, &Operation::Add { on: on.clone(), object, how: *how }).is_ok();
        }
    }
    added
}

/// Carries all operations out, and returns those that failed.
fn run_all<'a>(plan: &'a Plan, connection: &mut Connection) -> Vec<(&'a Operation, Error)> {
    let run = |operation| plan::apply(connection, operation).err().map(|error| (operation, error));
    plan.operations().iter().filter_map(run).collect()
}
