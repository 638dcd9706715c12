//! The back-end's side of a connection, without I/O.
//!
//! The owner of the socket passes every message to [`Session::handle`] and sends the returned answer. Another component
//! runs the rings; the session tells it through [`Rings`] which rings to run. On a [`Refusal`] the connection is
//! closed.
//!
//! Invariants:
//! - Rings run only with checked features, memory, sizes, addresses and descriptors. They are out of use before any of
//!   these change, and before the answer that reports a ring as stopped.
//! - A front-end cannot make the back-end hold more than [`Limits`] allows.
//! - Rings get eventfds only. Other descriptors from a front-end are closed where no thread waits for the close
//!   ([`ClientFd`]).
//! - The position of a ring is known whenever it is stopped, so that it can resume there.

mod queue;
mod refusal;
mod ring;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use clientmem::{ClientFd, FirstTouch};

use crate::dirty_log::DirtyLog;
use crate::features::{self, device, protocol};
use crate::memory::{GuestMemory, RegionSpec};
use crate::message::{Answer, LogArea, Region, Request, RingDescriptor, RingNumber};
use crate::socket::Received;

pub use queue::GuestQueue;
pub use refusal::Refusal;
use ring::Ring;

/// Resource limits of one front-end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Number of queue pairs, 1 to 128.
    pub queue_pairs: u16,
    /// Number of memory regions.
    pub regions: usize,
    /// Total size of all regions in bytes.
    pub memory: u64,
}

impl Default for Limits {
    /// Returns limits of 16 queue pairs and 64 regions with 1 TiB in total.
    fn default() -> Self {
        Limits { queue_pairs: 16, regions: 64, memory: 1 << 40 }
    }
}

/// Valid MTUs: the smallest of IPv4 (RFC 791) to the largest packet.
const MTUS: std::ops::RangeInclusive<u64> = 68..=65_535;

/// A ring to run.
#[derive(Debug)]
pub struct Running {
    /// Its index: 2 × pair for packets to the driver, one more for packets from it.
    pub ring: usize,
    /// Its number of entries.
    pub size: u16,
    /// The device's side of it.
    pub queue: GuestQueue,
    /// The eventfd that the driver signals; `None` if it does not signal.
    pub kick: Option<Arc<OwnedFd>>,
    /// The eventfd that the driver waits on; `None` if it does not wait.
    pub call: Option<Arc<OwnedFd>>,
    /// Whether packets pass. In a disabled ring, packets from the driver are taken and dropped.
    pub enabled: bool,
}

/// A device with all rings to run.
#[derive(Debug)]
pub struct Device {
    /// The negotiated features.
    pub features: u64,
    /// The MTU that the driver received.
    pub mtu: Option<u16>,
    /// The rings, by index.
    pub rings: Vec<Running>,
    /// Number of regions in their memory.
    pub regions: usize,
    /// A station to announce.
    pub announce: Option<[u8; 6]>,
    /// Dirty log of the rings' writes during a migration.
    pub log: Option<Arc<DirtyLog>>,
}

/// The component that runs the rings of a session.
pub trait Rings {
    /// Runs these rings from now on. Called only while no ring runs.
    fn start(&mut self, device: Device) -> Result<(), String>;

    /// Stops all rings, and returns the position of each ([`GuestQueue::base`]). Once this returns, their memory and
    /// descriptors are no longer used.
    fn stop(&mut self) -> Vec<(usize, u32)>;

    /// Replaces the descriptor that a running ring signals. Once this returns, the previous one is no longer used.
    fn set_call(&mut self, ring: usize, call: Option<Arc<OwnedFd>>);
}

/// A connection with a front-end; see the module documentation.
#[derive(Debug)]
pub struct Session {
    limits: Limits,
    first_touch: Option<FirstTouch>,
    offered: u64,
    features: Option<u64>,
    protocol: u64,
    memory: Option<Arc<GuestMemory>>,
    regions: Vec<Region>,
    log: Option<Arc<DirtyLog>>,
    rings: Vec<Ring>,
    mtu: Option<u16>,
    status: u64,
    announce: Option<[u8; 6]>,
    /// Whether [`Rings::start`] was called after the last [`Rings::stop`].
    running: bool,
    /// Whether all rings must stay stopped for a reason outside the front-end.
    paused: bool,
}

impl Session {
    /// Makes a session that offers these of the features in [`device::OFFERED`].
    pub fn new(limits: Limits, offered: u64) -> Self {
        let rings = (0..2 * limits.queue_pairs.clamp(1, 128)).map(|_| Ring::default()).collect();
        Session {
            limits,
            first_touch: None,
            offered: offered & device::OFFERED | device::PROTOCOL_FEATURES,
            features: None,
            protocol: 0,
            memory: None,
            regions: Vec::new(),
            log: None,
            rings,
            mtu: None,
            status: 0,
            announce: None,
            running: false,
            paused: false,
        }
    }

    /// Counts the allocation of the front-end's memory and log on first touch, for regions announced from now on.
    pub fn count_first_touch(&mut self, first_touch: FirstTouch) {
        self.first_touch = Some(first_touch);
    }

    /// Returns the negotiated features, once set.
    pub fn features(&self) -> Option<u64> {
        self.features
    }

    /// Whether any request can ask for an answer.
    pub fn answers_all(&self) -> bool {
        self.protocol & protocol::REPLY_ACK != 0
    }

    /// Carries out a message. Returns the bytes of the answer, if the message has one.
    pub fn handle(&mut self, received: Received, rings: &mut dyn Rings) -> Result<Option<Vec<u8>>, Refusal> {
        let Received { header, payload, mut descriptors } = received;
        let request = Request::decode(&header, &payload)?;
        let (min, max) = request.descriptors();
        if !(min..=max).contains(&descriptors.len()) {
            return Err(Refusal::Descriptors {
                name: request.name(),
                found: descriptors.len(),
                expected: max,
            });
        }
        let answer = self.carry_out(&request, &mut descriptors, rings)?;
        let asked = header.need_reply && self.answers_all();
        Ok(answer.or(asked.then_some(Answer::Number(0))).map(|answer| answer.encode(header.code)))
    }

    /// Stops the rings whatever the front-end requests, or lets them resume where they stopped.
    pub fn set_paused(&mut self, paused: bool, rings: &mut dyn Rings) -> Result<(), Refusal> {
        if self.paused == paused {
            return Ok(());
        }
        self.change(rings, |session| session.paused = paused)
    }

    /// Stops the rings at the end of the connection.
    pub fn close(&mut self, rings: &mut dyn Rings) {
        self.stop(rings);
    }

    fn carry_out(
        &mut self,
        request: &Request,
        descriptors: &mut Vec<ClientFd>,
        rings: &mut dyn Rings,
    ) -> Result<Option<Answer>, Refusal> {
        match *request {
            Request::GetFeatures => return Ok(Some(Answer::Number(self.offered))),
            Request::SetFeatures(features) => self.set_features(features, rings)?,
            // Every connection is a separate session; resetting the owner is deprecated and ignored.
            Request::SetOwner | Request::ResetOwner => {}
            Request::GetProtocolFeatures => return Ok(Some(Answer::Number(protocol::OFFERED))),
            Request::SetProtocolFeatures(wanted) => {
                let unknown = wanted & !protocol::OFFERED;
                if unknown != 0 {
                    return Err(Refusal::ProtocolFeatures(features::bits(unknown)));
                }
                self.protocol = wanted;
            }
            Request::GetQueueNum => {
                return Ok(Some(Answer::Number(u64::from(self.limits.queue_pairs))));
            }
            Request::SetMemTable(ref regions) => {
                let specs = regions.iter().zip(descriptors.drain(..)).map(spec).collect();
                self.allow_memory(regions)?;
                let memory = GuestMemory::counted(self.first_touch.clone()).with_regions(specs)?;
                self.change_memory(memory, regions.clone(), rings)?;
            }
            Request::GetMaxMemSlots => return Ok(Some(Answer::Number(self.limits.regions as u64))),
            Request::AddMemReg(region) => {
                let regions = [&self.regions[..], &[region]].concat();
                self.allow_memory(&regions)?;
                let Some(fd) = descriptors.pop() else { return Ok(None) };
                let none = || GuestMemory::counted(self.first_touch.clone());
                let memory = self.memory.as_deref().cloned().unwrap_or_else(none);
                let memory = memory.with_region(spec((&region, fd)))?;
                self.change_memory(memory, regions, rings)?;
            }
            Request::RemMemReg(region) => {
                let memory = self.memory.as_deref().cloned().unwrap_or_default();
                let memory = memory.without_region(region.guest, region.user, region.size)?;
                let stays = |r: &&Region| r.guest != region.guest;
                let regions = self.regions.iter().filter(stays).copied().collect();
                self.change_memory(memory, regions, rings)?;
            }
            Request::SetLogBase(LogArea { size, offset }) => {
                if self.protocol & protocol::LOG_SHMFD == 0 {
                    return Err(Refusal::LogNotShared);
                }
                let Some(fd) = descriptors.pop() else { return Ok(None) };
                let log = Some(Arc::new(DirtyLog::map(fd.as_fd(), size, offset, self.first_touch.as_ref())?));
                // Plugging in memory brings a new log; the previous one stays valid until the answer.
                if self.features.is_some_and(|features| features & device::LOG_ALL != 0) {
                    self.change(rings, |session| session.log = log)?;
                } else {
                    self.log = log;
                }
                return Ok(Some(Answer::Number(0)));
            }
            // The front-end of a migrating guest reads the log on its own; signals are not needed.
            Request::SetLogFd => {}
            Request::SetVringNum(RingNumber { ring, number }) => {
                let size = u16::try_from(number).ok().filter(|size| (1..=32768).contains(size));
                self.stopped_ring(ring, request)?.size =
                    size.ok_or(Refusal::RingSize { ring, size: number })?;
            }
            Request::SetVringAddr(addresses) => {
                let at = self.index(addresses.ring)?;
                let ring = &mut self.rings[at];
                // Logging can be switched in a running ring; its addresses cannot change.
                if ring.is_started() && !ring.has_addresses(&addresses) {
                    return Err(Refusal::Started { name: request.name(), ring: addresses.ring });
                }
                if !ring.is_started() {
                    ring.addresses = Some(addresses);
                } else if ring.addresses != Some(addresses) {
                    self.change(rings, |session| session.rings[at].addresses = Some(addresses))?;
                }
            }
            Request::SetVringBase(RingNumber { ring, number }) => {
                self.stopped_ring(ring, request)?.announce_base(number)
            }
            Request::GetVringBase(RingNumber { ring, .. }) => {
                let at = self.index(ring)?;
                if self.rings[at].is_started() {
                    self.change(rings, |session| session.rings[at].stop())?;
                }
                let number = self.rings[at].position(self.features.unwrap_or(0));
                return Ok(Some(Answer::Ring(RingNumber { ring, number })));
            }
            Request::SetVringKick(at) => self.set_kick(at, descriptors.pop(), rings)?,
            Request::SetVringCall(RingDescriptor { ring, .. }) => {
                let call = checked(request, ring, descriptors.pop())?.map(Arc::new);
                self.ring(u32::from(ring))?.call = call.clone();
                if self.running {
                    rings.set_call(usize::from(ring), call);
                }
            }
            // Errors end the connection, which says more than a signal.
            Request::SetVringErr(RingDescriptor { ring, .. }) => drop(self.ring(u32::from(ring))?),
            Request::SetVringEnable(RingNumber { ring, number }) => {
                let at = self.index(ring)?;
                if number > 1 {
                    return Err(Refusal::Enable { ring, number });
                }
                if self.rings[at].enabled != (number == 1) {
                    self.change(rings, |session| session.rings[at].enabled = number == 1)?;
                }
            }
            Request::SendRarp(station) => {
                self.change(rings, |session| session.announce = Some(station))?;
            }
            Request::NetSetMtu(mtu) => match u16::try_from(mtu) {
                Ok(valid) if MTUS.contains(&mtu) => {
                    self.change(rings, |session| session.mtu = Some(valid))?;
                }
                // Reported only on request; without consequence otherwise.
                _ => return Ok(self.answers_all().then_some(Answer::Number(1))),
            },
            Request::SetStatus(status) => self.status = status & 0xff,
            Request::GetStatus => return Ok(Some(Answer::Number(self.status))),
        }
        Ok(None)
    }

    fn set_features(&mut self, features: u64, rings: &mut dyn Rings) -> Result<(), Refusal> {
        let unknown = features & !self.offered;
        if unknown != 0 {
            return Err(Refusal::Features(features::bits(unknown)));
        }
        let changed = self.features.map_or(u64::MAX, |before| before ^ features);
        if changed == 0 {
            return Ok(());
        }
        // A migration begins and ends while the guest runs.
        let started = self.rings.iter().any(Ring::is_started);
        if started && changed != device::LOG_ALL {
            return Err(Refusal::FeaturesChanged);
        }
        self.change(rings, |session| {
            session.features = Some(features);
            session.log = session.log.take().filter(|_| features & device::LOG_ALL != 0 || !started);
        })
    }

    fn index(&self, ring: u32) -> Result<usize, Refusal> {
        let known = usize::try_from(ring).ok().filter(|ring| *ring < self.rings.len());
        known.ok_or(Refusal::Ring { ring, rings: self.rings.len() })
    }

    fn ring(&mut self, ring: u32) -> Result<&mut Ring, Refusal> {
        let at = self.index(ring)?;
        Ok(&mut self.rings[at])
    }

    /// Returns a ring that must not have been started.
    fn stopped_ring(&mut self, ring: u32, request: &Request) -> Result<&mut Ring, Refusal> {
        let found = self.ring(ring)?;
        if found.is_started() {
            return Err(Refusal::Started { name: request.name(), ring });
        }
        Ok(found)
    }

    /// Starts a ring, which must be fully configured.
    fn set_kick(
        &mut self,
        RingDescriptor { ring, present }: RingDescriptor,
        descriptor: Option<ClientFd>,
        rings: &mut dyn Rings,
    ) -> Result<(), Refusal> {
        let kick = checked(&Request::SetVringKick(RingDescriptor { ring, present }), ring, descriptor)?;
        let at = self.index(u32::from(ring))?;
        // A ring whose driver sends packets without a signal would have to be polled forever.
        if at % 2 == 1 && kick.is_none() {
            return Err(Refusal::NoKick { ring });
        }
        let lacks = |missing| Err(Refusal::Incomplete { ring, missing });
        match &self.rings[at] {
            _ if self.features.is_none() => return lacks("SET_FEATURES"),
            _ if self.memory.is_none() => return lacks("the memory table"),
            found if found.size == 0 => return lacks("SET_VRING_NUM"),
            found if found.addresses.is_none() => return lacks("SET_VRING_ADDR"),
            _ => {}
        }
        self.change(rings, |session| session.rings[at].start(kick.map(Arc::new)))
    }

    fn allow_memory(&self, regions: &[Region]) -> Result<(), Refusal> {
        let Limits { regions: max, memory, .. } = self.limits;
        if regions.len() > max {
            return Err(Refusal::Regions { max });
        }
        let total = regions.iter().try_fold(0u64, |sum, region| sum.checked_add(region.size));
        if total.is_none_or(|total| total > memory) {
            return Err(Refusal::Memory { max: memory });
        }
        Ok(())
    }

    fn change_memory(
        &mut self,
        memory: GuestMemory,
        regions: Vec<Region>,
        rings: &mut dyn Rings,
    ) -> Result<(), Refusal> {
        let memory = Arc::new(memory);
        self.change(rings, |session| (session.memory, session.regions) = (Some(memory), regions))
    }

    /// Changes the rings' parameters while no ring runs.
    fn change(&mut self, rings: &mut dyn Rings, change: impl FnOnce(&mut Session)) -> Result<(), Refusal> {
        self.stop(rings);
        change(self);
        if self.paused {
            return Ok(());
        }
        let (Some(features), Some(memory)) = (self.features, self.memory.clone()) else { return Ok(()) };
        if !self.rings.iter().any(|ring| ring.is_started() && ring.is_enabled(features)) {
            return Ok(());
        }
        let log = self.log.clone().filter(|_| features & device::LOG_ALL != 0);
        if let Some(log) = log.as_ref().filter(|log| log.end() < memory.end()) {
            return Err(Refusal::LogTooSmall { size: log.len(), end: log.end(), memory: memory.end() });
        }
        let mut running = Vec::new();
        for (index, ring) in self.rings.iter().enumerate() {
            running.extend(ring.running(index, &memory, features, log.as_ref())?);
        }
        let (mtu, announce) = (self.mtu, self.announce.take());
        rings
            .start(Device { features, mtu, rings: running, regions: memory.regions(), announce, log })
            .map_err(Refusal::Start)?;
        self.running = true;
        Ok(())
    }

    fn stop(&mut self, rings: &mut dyn Rings) {
        if !std::mem::take(&mut self.running) {
            return;
        }
        for (index, base) in rings.stop() {
            if let Some(ring) = self.rings.get_mut(index) {
                ring.record_base(base);
            }
        }
    }
}

fn spec((region, fd): (&Region, ClientFd)) -> RegionSpec {
    RegionSpec {
        guest_address: region.guest,
        size: region.size,
        user_address: region.user,
        mmap_offset: region.offset,
        fd,
    }
}

/// Accepts only eventfds: other descriptors could block a thread that signals or waits on them.
fn checked(request: &Request, ring: u8, descriptor: Option<ClientFd>) -> Result<Option<OwnedFd>, Refusal> {
    let Some(fd) = descriptor else { return Ok(None) };
    match fd.into_eventfd() {
        Some(fd) => Ok(Some(fd)),
        None => Err(Refusal::NotAnEventfd { name: request.name(), ring }),
    }
}

#[cfg(test)]
mod tests;
