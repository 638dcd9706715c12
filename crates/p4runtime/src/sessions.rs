//! Controllers' streams: their standing in their roles, and delivery of the device's messages.
//!
//! Invariants: a stream receives packets only while it is primary and knows it; one lock orders changes of primaries,
//! their notifications and packets, and is never held while anything waits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use p4runtime_proto::v1::stream_message_response::Update;
use p4runtime_proto::v1::{MasterArbitrationUpdate, Role, StreamMessageResponse, Uint128};
use p4runtime_proto::{P4Info, rpc};
use prost::Message;
use tonic::{Code, Status};

use crate::arbitration::{Arbitration, Change, Refusal, Standing, StreamId};
use crate::limited_role::{Bucket, LimitedRole, Part};
use crate::outbox::{Outbox, Outgoing, Refused, Room};
use crate::role::RoleName;
use crate::settings::Limits;

/// Counters of the device's messages to controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages queued for a primary.
    pub queued: u64,
    /// Messages dropped because a primary's queue was full.
    pub full: u64,
    /// Messages dropped because no role that they are for had a primary.
    pub unheard: u64,
    /// Packets dropped because a role's primary had received as many as the role may in that time.
    pub limited: u64,
}

/// All streams.
#[derive(Debug)]
pub(crate) struct Sessions {
    state: Mutex<State>,
    room: Room,
    queued: AtomicU64,
    full: AtomicU64,
    unheard: AtomicU64,
    limited: AtomicU64,
}

#[derive(Debug)]
struct State {
    arbitration: Arbitration,
    streams: BTreeMap<StreamId, Session>,
    /// Packets that roles with a rate may receive now, whichever of their streams is the primary's.
    buckets: BTreeMap<RoleName, Bucket>,
    next: StreamId,
    /// The server ends: no stream is opened any more.
    stopped: bool,
}

#[derive(Debug)]
struct Session {
    outbox: Arc<Outbox<StreamMessageResponse>>,
    claim: Option<Claim>,
    /// It is primary and has been told so: it receives packets.
    hears: bool,
}

/// Device and role of a stream, in its controller's words: answers repeat them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claim {
    pub(crate) device: u64,
    pub(crate) name: RoleName,
    pub(crate) role: Option<Role>,
    /// Limits of the role; `None` is full access.
    pub(crate) limits: Option<Arc<LimitedRole>>,
}

/// A stream's seat; dropping it ends the stream.
#[derive(Debug)]
pub(crate) struct Seat {
    sessions: Arc<Sessions>,
    id: StreamId,
    outbox: Arc<Outbox<StreamMessageResponse>>,
}

impl Sessions {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                arbitration: Arbitration::new(limits.roles),
                streams: BTreeMap::new(),
                buckets: BTreeMap::new(),
                next: 0,
                stopped: false,
            }),
            room: Room { messages: limits.queued_messages, bytes: limits.queued_bytes },
            queued: AtomicU64::new(0),
            full: AtomicU64::new(0),
            unheard: AtomicU64::new(0),
            limited: AtomicU64::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream, which has no role yet.
    pub(crate) fn open(self: &Arc<Self>) -> Result<(Seat, Outgoing<StreamMessageResponse>), Status> {
        let mut state = self.state();
        if state.stopped {
            return Err(stopping());
        }
        let (outbox, outgoing) = Outbox::new(self.room);
        let id = state.next;
        state.next += 1;
        state.streams.insert(id, Session { outbox: outbox.clone(), claim: None, hears: false });
        Ok((Seat { sessions: self.clone(), id, outbox }, outgoing))
    }

    /// Checks that a request comes from a role's primary.
    pub(crate) fn check(&self, role: &RoleName, election: Option<u128>) -> Result<(), Status> {
        self.state().arbitration.check(role, election).map_err(|refusal| status(&refusal))
    }

    /// Queues a message of the device for the primary of every role that it is for, by the names of the P4Info `info`.
    /// Returns whether each gets it, and there is one.
    pub(crate) fn deliver(&self, message: StreamMessageResponse, info: &P4Info) -> bool {
        let now = Instant::now();
        let is_packet = matches!(message.update, Some(Update::Packet(_)));
        let mut state = self.state();
        let State { streams, buckets, .. } = &mut *state;
        let primaries = streams.values().filter(|session| session.hears);
        let parts = primaries.filter_map(|session| match session.part(&message, info) {
            Part::Nothing => None,
            part => Some((session, part)),
        });
        let parts: Vec<_> = parts.collect();
        let mut taken = !parts.is_empty();
        if !taken {
            self.unheard.fetch_add(1, Ordering::Relaxed);
        }
        let (mut whole, mut left) = (Some(message), parts.len());
        for (session, part) in parts {
            left -= 1;
            let bucket = session.claim.as_ref().and_then(|claim| buckets.get_mut(&claim.name));
            if is_packet && bucket.is_some_and(|bucket| !bucket.take(now)) {
                self.limited.fetch_add(1, Ordering::Relaxed);
                taken = false;
                continue;
            }
            let copy = match (part, left) {
                (Part::Some(own), _) => Some(*own),
                // The last one needs no copy.
                (_, 0) => whole.take(),
                _ => whole.clone(),
            };
            let Some(copy) = copy else { continue };
            let bytes = copy.encoded_len();
            let pushed = session.outbox.push(copy, bytes);
            taken &= pushed.is_ok();
            let count = match pushed {
                Ok(()) => &self.queued,
                Err(Refused::Full) => &self.full,
                Err(Refused::Closed) => &self.unheard,
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            queued: self.queued.load(Ordering::Relaxed),
            full: self.full.load(Ordering::Relaxed),
            unheard: self.unheard.load(Ordering::Relaxed),
            limited: self.limited.load(Ordering::Relaxed),
        }
    }

    /// Ends all streams, and opens none any more.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        for session in state.streams.values() {
            session.outbox.fail(stopping());
        }
    }
}

impl Session {
    /// Returns its role's part of a message of the device.
    fn part(&self, message: &StreamMessageResponse, info: &P4Info) -> Part {
        let limits = self.claim.as_ref().and_then(|claim| claim.limits.as_ref());
        limits.map_or(Part::Whole, |limits| limits.part(message, info))
    }
}

impl State {
    /// Notifies the streams that a change concerns, except the primary.
    fn notify_others(&mut self, change: &Change) {
        for id in &change.others {
            self.notify(*id);
        }
    }

    /// Tells a stream its standing.
    fn notify(&mut self, id: StreamId) {
        let Some(session) = self.streams.get_mut(&id) else { return };
        let Some(claim) = &session.claim else { return };
        let (standing, highest) = self.arbitration.standing(id, &claim.name);
        session.hears = standing == Standing::Primary;
        let update = MasterArbitrationUpdate {
            device_id: claim.device,
            role: claim.role.clone(),
            election_id: highest.map(to_message),
            status: Some(describe(standing)),
        };
        let message = StreamMessageResponse { update: Some(Update::Arbitration(update)) };
        let bytes = message.encoded_len();
        if session.outbox.push_important(message, bytes) == Err(Refused::Full) {
            session.outbox.fail(Status::resource_exhausted(
                "the stream is read too slowly for the notifications of its role's changes",
            ));
        }
    }
}

impl Seat {
    /// Claims a role. Returns whether the stream is primary now; it has to be told by [`Seat::announce`].
    ///
    /// # Errors
    /// The stream has to end with this status.
    pub(crate) fn claim(&self, claim: Claim, election: Option<u128>) -> Result<bool, Status> {
        let mut state = self.sessions.state();
        let change =
            state.arbitration.claim(self.id, &claim.name, election).map_err(|refusal| status(&refusal))?;
        if let Some(rate) = claim.limits.as_ref().and_then(|limits| limits.packet_rate) {
            // A role that is claimed again has what it had.
            state.buckets.entry(claim.name.clone()).or_insert_with(|| Bucket::new(rate, Instant::now()));
        }
        if let Some(session) = state.streams.get_mut(&self.id) {
            session.claim = Some(claim);
        }
        state.notify_others(&change);
        Ok(change.primary == Some(self.id))
    }

    /// Tells the stream that it is primary, if it is so still.
    pub(crate) fn announce(&self) {
        let mut state = self.sessions.state();
        let Some(claim) = state.streams.get(&self.id).and_then(|session| session.claim.as_ref()) else {
            return;
        };
        if state.arbitration.standing(self.id, &claim.name).0 == Standing::Primary {
            state.notify(self.id);
        }
    }

    /// Whether the stream may send packets and acknowledge digests.
    pub(crate) fn is_primary(&self) -> bool {
        self.sessions.state().streams.get(&self.id).is_some_and(|session| session.hears)
    }

    pub(crate) fn outbox(&self) -> &Outbox<StreamMessageResponse> {
        &self.outbox
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.sessions.state();
        if let Some(claim) = state.streams.remove(&self.id).and_then(|session| session.claim) {
            let change = state.arbitration.leave(self.id, &claim.name);
            state.notify_others(&change);
        }
    }
}

/// Returns the value of an election id in a message.
pub(crate) fn from_message(id: Uint128) -> u128 {
    u128::from(id.high) << 64 | u128::from(id.low)
}

fn to_message(id: u128) -> Uint128 {
    Uint128 { high: (id >> 64) as u64, low: id as u64 }
}

fn describe(standing: Standing) -> rpc::Status {
    let (code, message) = match standing {
        Standing::Primary => (Code::Ok, "this controller is primary"),
        Standing::Backup => (Code::AlreadyExists, "another controller is primary"),
        Standing::Vacant => (Code::NotFound, "no controller is primary"),
    };
    rpc::Status { code: code as i32, message: message.into(), details: vec![] }
}

fn status(refusal: &Refusal) -> Status {
    let message = refusal.to_string();
    match refusal {
        Refusal::Duplicate { .. } => Status::invalid_argument(message),
        Refusal::TooManyRoles { .. } => Status::resource_exhausted(message),
        Refusal::UnknownRole(_) => Status::not_found(message),
        Refusal::NoPrimary { .. }
        | Refusal::NotPrimary { .. }
        | Refusal::NoElectionId(_)
        | Refusal::NeverPrimary(_) => Status::permission_denied(message),
    }
}

fn stopping() -> Status {
    Status::unavailable("the server is stopping")
}
