//! Rules by which each role's primary is chosen among the streams that claim the role.
//!
//! Invariants: live streams of a role have different election ids, and a role's primary is the live stream whose
//! election id is the highest that any stream of the role has ever had. Without such a stream, it has no primary.

use std::collections::BTreeMap;

use crate::role::RoleName;

/// A stream.
pub(crate) type StreamId = u64;

/// Standing of a stream in its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It may write.
    Primary,
    /// Another stream is the primary.
    Backup,
    /// No stream is the primary.
    Vacant,
}

/// Streams that have to be notified after a change. The primary comes last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Change {
    /// Streams that are not primary.
    pub(crate) others: Vec<StreamId>,
    /// The primary.
    pub(crate) primary: Option<StreamId>,
}

/// Reasons for refusing a claim or a write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    // finsy looks for the words `election id` and `used`, and goes on with the next lower one.
    #[error("election id {election} of {role} is used by another controller; each controller needs its own")]
    Duplicate { role: RoleName, election: u128 },
    #[error("{limit} roles have controllers; close the streams of one first")]
    TooManyRoles { limit: usize },
    #[error("no controller has claimed {0}; open a stream and claim it first")]
    UnknownRole(RoleName),
    #[error("{role} has no primary; claim it with an election id of at least {highest}")]
    NoPrimary { role: RoleName, highest: u128 },
    #[error("election id {election} is not that of the primary of {role}, which is {highest}")]
    NotPrimary { role: RoleName, election: u128, highest: u128 },
    #[error("a request for {0} needs the election id of its primary")]
    NoElectionId(RoleName),
    #[error("no controller has claimed {0} with an election id; open a stream and claim it first")]
    NeverPrimary(RoleName),
}

/// All roles.
#[derive(Debug)]
pub(crate) struct Arbitration {
    roles: BTreeMap<RoleName, Role>,
    /// Most roles that are remembered besides the default role.
    limit: usize,
    /// Number of claims so far.
    now: u64,
}

#[derive(Debug, Default)]
struct Role {
    highest: Option<u128>,
    streams: BTreeMap<StreamId, Option<u128>>,
    /// Time of the last claim.
    used: u64,
}

impl Role {
    fn primary(&self) -> Option<StreamId> {
        let highest = self.highest?;
        self.streams.iter().find(|(_, election)| **election == Some(highest)).map(|(id, _)| *id)
    }

    fn everyone(&self) -> Change {
        let primary = self.primary();
        Change { others: self.streams.keys().copied().filter(|id| Some(*id) != primary).collect(), primary }
    }
}

impl Arbitration {
    /// Starts without roles; up to `limit` roles besides the default role are remembered.
    pub(crate) fn new(limit: usize) -> Self {
        Self { roles: BTreeMap::new(), limit, now: 0 }
    }

    /// A new or live stream claims a role. It may have no election id, with which it never becomes primary.
    ///
    /// # Errors
    /// The stream has to end. A live stream still counts until [`Arbitration::leave`].
    pub(crate) fn claim(
        &mut self,
        stream: StreamId,
        role: &RoleName,
        election: Option<u128>,
    ) -> Result<Change, Refusal> {
        self.make_room(role)?;
        self.now += 1;
        let state = self.roles.entry(role.clone()).or_default();
        if let Some(election) = election
            && state.streams.iter().any(|(id, other)| *id != stream && *other == Some(election))
        {
            return Err(Refusal::Duplicate { role: role.clone(), election });
        }
        let was_primary = state.primary() == Some(stream);
        state.used = self.now;
        state.streams.insert(stream, election);
        let is_primary = election.is_some() && election >= state.highest;
        if is_primary {
            state.highest = election;
        }
        Ok(match is_primary || was_primary {
            true => state.everyone(),
            false => Change { others: vec![stream], primary: None },
        })
    }

    /// A stream has ended. Returns the streams that have lost their primary.
    pub(crate) fn leave(&mut self, stream: StreamId, role: &RoleName) -> Change {
        let Some(state) = self.roles.get_mut(role) else { return Change::default() };
        let was_primary = state.primary() == Some(stream);
        state.streams.remove(&stream);
        if state.streams.is_empty() && state.highest.is_none() {
            self.roles.remove(role);
            return Change::default();
        }
        if was_primary { state.everyone() } else { Change::default() }
    }

    /// Returns a stream's standing in its role, and the highest election id that the role has had.
    pub(crate) fn standing(&self, stream: StreamId, role: &RoleName) -> (Standing, Option<u128>) {
        let Some(state) = self.roles.get(role) else { return (Standing::Vacant, None) };
        let standing = match state.primary() {
            Some(primary) if primary == stream => Standing::Primary,
            Some(_) => Standing::Backup,
            None => Standing::Vacant,
        };
        (standing, state.highest)
    }

    /// Checks that a request comes from a role's primary.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn check(&self, role: &RoleName, election: Option<u128>) -> Result<(), Refusal> {
        let role = role.clone();
        let Some(state) = self.roles.get(&role) else {
            return Err(match role {
                RoleName::Default => Refusal::NeverPrimary(role),
                _ => Refusal::UnknownRole(role),
            });
        };
        let Some(highest) = state.highest else { return Err(Refusal::NeverPrimary(role)) };
        let Some(election) = election else { return Err(Refusal::NoElectionId(role)) };
        if state.primary().is_none() {
            return Err(Refusal::NoPrimary { role, highest });
        }
        match election == highest {
            true => Ok(()),
            false => Err(Refusal::NotPrimary { role, election, highest }),
        }
    }

    /// Makes room for a role. At the limit, the role without streams whose last claim is oldest is forgotten:
    /// controllers cannot lock others out with names that they no longer use.
    fn make_room(&mut self, role: &RoleName) -> Result<(), Refusal> {
        if *role == RoleName::Default || self.roles.contains_key(role) {
            return Ok(());
        }
        let named = self.roles.iter().filter(|(name, _)| **name != RoleName::Default);
        if named.clone().count() < self.limit {
            return Ok(());
        }
        let idle = named.filter(|(_, state)| state.streams.is_empty()).min_by_key(|(_, state)| state.used);
        let idle = idle.map(|(name, _)| name.clone()).ok_or(Refusal::TooManyRoles { limit: self.limit })?;
        self.roles.remove(&idle);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
