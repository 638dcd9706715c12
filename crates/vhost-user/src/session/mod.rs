//! The back-end's side of a connection, without I/O.
//!
//! The owner of the socket feeds every message to [`Session::handle`] and sends what that answers. Rings are run by somebody
//! else, whom the session tells through [`Rings`] what there is to run. On a [`Refusal`] the connection is closed.
//!
//! Invariants:
//! - Rings run only with features, memory, sizes, addresses and descriptors that were checked. Before anything of it
//!   changes, and before the answer that says that a ring is stopped, nobody uses them any more.
//! - A front-end cannot make the back-end hold more than [`Limits`] allows.
//! - Rings are given eventfds only. What else a front-end sent is closed where nobody waits ([`ClientFd`]).
//! - Where a ring stands is known whenever it does not run, so that it goes on there.

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

/// How much a front-end may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs, 1 to 128.
    pub queue_pairs: u16,
    /// Memory regions.
    pub regions: usize,
    /// Bytes of all regions together.
    pub memory: u64,
}

impl Default for Limits {
    /// 16 queue pairs, 64 regions with 1 TiB together.
    fn default() -> Self {
        Limits { queue_pairs: 16, regions: 64, memory: 1 << 40 }
    }
}

/// The smallest MTU of IPv4 (RFC 791), and the largest packet.
const MTUS: std::ops::RangeInclusive<u64> = 68..=65_535;

/// A ring that is to run.
#[derive(Debug)]
pub struct Running {
    /// Its number: 2 × pair for packets to the driver, one more for packets from it.
    pub ring: usize,
    /// Its entries.
    pub size: u16,
    /// The device's side of it.
    pub queue: GuestQueue,
    /// What the driver signals; `None` if it does not.
    pub kick: Option<Arc<OwnedFd>>,
    /// What the driver waits for; `None` if it does not.
    pub call: Option<Arc<OwnedFd>>,
    /// Whether packets pass. If not, those from the driver are to be taken and forgotten.
    pub enabled: bool,
}

/// All that is to run.
#[derive(Debug)]
pub struct Device {
    /// Features that were agreed on.
    pub features: u64,
    /// The MTU that the driver was told.
    pub mtu: Option<u16>,
    /// The rings, by number.
    pub rings: Vec<Running>,
    /// Regions of the memory they lie in.
    pub regions: usize,
    /// A station that is to be announced.
    pub announce: Option<[u8; 6]>,
    /// Where the rings log what they write, while a migration is under way.
    pub log: Option<Arc<DirtyLog>>,
}

/// Whoever runs the rings of a session.
pub trait Rings {
    /// Runs these from now on. Called only when nothing runs.
    fn start(&mut self, device: Device) -> Result<(), String>;

    /// Stops all that runs, and says where each ring stands ([`GuestQueue::base`]). When this returns nobody uses their memory
    /// or their descriptors.
    fn stop(&mut self) -> Vec<(usize, u32)>;

    /// Gives a ring that runs another descriptor to signal. When this returns nobody uses the one before.
    fn set_call(&mut self, ring: usize, call: Option<Arc<OwnedFd>>);
}

/// A connection with a front-end. See the module.
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
    /// Whether none is to run, for a reason that is not the front-end's.
    paused: bool,
}

impl Session {
    /// A session that offers these of [`device::OFFERED`].
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

    /// Counts what touching the front-end's memory and log first allocates, of what is announced from now on.
    pub fn count_first_touch(&mut self, first_touch: FirstTouch) {
        self.first_touch = Some(first_touch);
    }

    /// The features that were agreed on, if they were.
    pub fn features(&self) -> Option<u64> {
        self.features
    }

    /// Whether requests that ask for an answer get one, whatever they are.
    pub fn answers_all(&self) -> bool {
        self.protocol & protocol::REPLY_ACK != 0
    }

    /// Does what a message asks for. Returns the bytes to answer with, if there are any.
    pub fn handle(&mut self, received: Received, rings: &mut dyn Rings) -> Result<Option<Vec<u8>>, Refusal> {
        let Received { header, payload, mut descriptors } = received;
        let request = Request::decode(&header, &payload)?;
        let (fewest, most) = request.descriptors();
        if !(fewest..=most).contains(&descriptors.len()) {
            return Err(Refusal::Descriptors { name: request.name(), found: descriptors.len(), most });
        }
        let answer = self.carry_out(&request, &mut descriptors, rings)?;
        let asked = header.need_reply && self.answers_all();
        Ok(answer.or(asked.then_some(Answer::Number(0))).map(|answer| answer.encode(header.code)))
    }

    /// Keeps the rings stopped from now on, whatever the front-end asks for, or lets them run again where they were.
    pub fn set_paused(&mut self, paused: bool, rings: &mut dyn Rings) -> Result<(), Refusal> {
        if self.paused == paused {
            return Ok(());
        }
        self.change(rings, |session| session.paused = paused)
    }

    /// Stops the rings: the connection is over.
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
            // Every connection is a session of its own; resetting the owner is outdated and best ignored.
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
                // Another log comes when memory is plugged in; the one before it counts until this is answered.
                if self.features.is_some_and(|features| features & device::LOG_ALL != 0) {
                    self.change(rings, |session| session.log = log)?;
                } else {
                    self.log = log;
                }
                return Ok(Some(Answer::Number(0)));
            }
            // Who migrates a guest looks at the log when he wants to know; nobody waits to be told.
            Request::SetLogFd => {}
            Request::SetVringNum(RingNumber { ring, number }) => {
                let size = u16::try_from(number).ok().filter(|size| (1..=32768).contains(size));
                self.idle(ring, request)?.size = size.ok_or(Refusal::RingSize { ring, size: number })?;
            }
            Request::SetVringAddr(addresses) => {
                let at = self.index(addresses.ring)?;
                let ring = &mut self.rings[at];
                // Logging is switched on and off in a ring that runs; its place is another matter.
                if ring.is_started() && !ring.lies_at(&addresses) {
                    return Err(Refusal::Started { name: request.name(), ring: addresses.ring });
                }
                if !ring.is_started() {
                    ring.addresses = Some(addresses);
                } else if ring.addresses != Some(addresses) {
                    self.change(rings, |session| session.rings[at].addresses = Some(addresses))?;
                }
            }
            Request::SetVringBase(RingNumber { ring, number }) => {
                self.idle(ring, request)?.announce_base(number)
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
            // What goes wrong ends the connection, which says more than a signal.
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
                // Said to those who ask, and without consequence for others.
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

    /// A ring that must not have been started.
    fn idle(&mut self, ring: u32, request: &Request) -> Result<&mut Ring, Refusal> {
        let found = self.ring(ring)?;
        if found.is_started() {
            return Err(Refusal::Started { name: request.name(), ring });
        }
        Ok(found)
    }

    /// Starts a ring: all that it needs must be known.
    fn set_kick(
        &mut self,
        RingDescriptor { ring, present }: RingDescriptor,
        descriptor: Option<ClientFd>,
        rings: &mut dyn Rings,
    ) -> Result<(), Refusal> {
        let kick = checked(&Request::SetVringKick(RingDescriptor { ring, present }), ring, descriptor)?;
        let at = self.index(u32::from(ring))?;
        // Whoever sends packets without a signal would have to be looked at for ever.
        if at % 2 == 1 && kick.is_none() {
            return Err(Refusal::NoKick { ring });
        }
        let lacks = |what| Err(Refusal::Incomplete { ring, what });
        match &self.rings[at] {
            _ if self.features.is_none() => return lacks("SET_FEATURES"),
            _ if self.memory.is_none() => return lacks("memory"),
            found if found.size == 0 => return lacks("SET_VRING_NUM"),
            found if found.addresses.is_none() => return lacks("SET_VRING_ADDR"),
            _ => {}
        }
        self.change(rings, |session| session.rings[at].start(kick.map(Arc::new)))
    }

    fn allow_memory(&self, regions: &[Region]) -> Result<(), Refusal> {
        let Limits { regions: most, memory, .. } = self.limits;
        if regions.len() > most {
            return Err(Refusal::Regions { most });
        }
        let total = regions.iter().try_fold(0u64, |sum, region| sum.checked_add(region.size));
        if total.is_none_or(|total| total > memory) {
            return Err(Refusal::Memory { most: memory });
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

    /// Changes what rings run with, while none runs.
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
                ring.keep_base(base);
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

/// Lets eventfds pass only: others could make whoever signals them, or waits for them, wait for the front-end.
fn checked(request: &Request, ring: u8, descriptor: Option<ClientFd>) -> Result<Option<OwnedFd>, Refusal> {
    let Some(fd) = descriptor else { return Ok(None) };
    match fd.into_eventfd() {
        Some(fd) => Ok(Some(fd)),
        None => Err(Refusal::NotAnEventfd { name: request.name(), ring }),
    }
}

#[cfg(test)]
mod tests;
