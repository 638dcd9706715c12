//! Counters: packets, bytes, batches and drops by reason, per port and queue.
//!
//! The data plane writes them with relaxed stores or adds once a batch; any thread may read them at any time. A reader
//! may see one batch's packets before its bytes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal),* $(,)?) => {
        /// Why a packet went no further. Counted at the ingress queue if the packet had no destination, at the egress
        /// queue if the destination could not take it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason { $($(#[doc = $doc])* $variant),* }

        impl DropReason {
            /// All reasons, in the order of their counters.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant),*];

            /// The reason's name as users see it.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name),* }
            }

            /// The meaning of the reason, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(DropReason::$variant => concat!($($doc),*).trim_start()),* }
            }
        }
    };
}

reasons! {
    /// It was shorter than an Ethernet header.
    Runt = "runt",
    /// It was longer than 65,535 bytes.
    Oversize = "oversize",
    /// It had nowhere to go: no other port of its VLAN was up, or the logic left it undecided.
    NoDestination = "no-destination",
    /// Its destination is at the port where it came in.
    SamePort = "same-port",
    /// The VLAN setting of the port where it came in, or was to leave, does not allow its VLAN.
    Vlan = "vlan",
    /// It was addressed to 01-80-C2-00-00-00..0F, which bridges do not forward (IEEE 802.1Q table 8-1).
    ReservedGroup = "reserved-group",
    /// The port is administratively down, has no client or does not exist.
    PortDown = "port-down",
    /// The client of the port where it was to leave had no room for it in its ring.
    RingFull = "ring-full",
    /// Its class has no room left in the queues of the port where it was to leave.
    QueueFull = "queue-full",
    /// Early detection chose it, as packets of its class queue up at the port where it was to leave.
    EarlyDrop = "early-drop",
    /// It was longer than the MTU of the port where it was to leave.
    ExceedsMtu = "exceeds-mtu",
    /// Its offload metadata contradicts its headers.
    BadOffload = "bad-offload",
    /// Its batch needed more header versions or outputs than a batch may have.
    BatchLimit = "batch-limit",
    /// The device behind the port where it was to leave refused it.
    Device = "device",
    /// It was for an isolated port, and came from another isolated port.
    Isolated = "isolated",
    /// It exceeded the rate limit of the port where it came in.
    Policed = "policed",
    /// It exceeded the rate limit of the port where it was to leave, or of its queue there.
    EgressPoliced = "egress-policed",
    /// It exceeded the port's limit for broadcasts, multicasts or packets to unknown stations.
    StormControl = "storm-control",
    /// Port security does not allow its source address at the port where it came in.
    StationLimit = "station-limit",
    /// Source guard does not allow its IP, ARP or neighbour discovery address at the port where it came in.
    SourceGuard = "source-guard",
    /// Its sender has not reserved the endpoint that it came from.
    UnreservedSource = "unreserved-source",
    /// The port where it came in, or was to leave, belongs to a mirror.
    MirrorPort = "mirror-port",
    /// The logic chose to drop it.
    Logic = "logic",
    /// The logic failed.
    LogicFault = "logic-fault",
    /// The logic sent it to a port that the bridge does not have.
    NoPort = "no-port",
    /// The queue of packets to the controllers, or for lack of machine code to the interpreter, had no room for it.
    ControllerQueue = "controller-queue",
    /// It crossed between bridges too many times: their patch ports form a loop.
    Loop = "loop",
}

/// Number of drop reasons.
pub const REASONS: usize = DropReason::ALL.len();

/// Drops of one batch, tallied before they reach the counters.
#[derive(Debug, Clone, Copy, Default)]
pub struct Drops {
    by_reason: [u32; REASONS],
    any: bool,
}

impl Drops {
    /// Counts `n` packets dropped for `reason`.
    #[inline]
    pub fn add(&mut self, reason: DropReason, n: u32) {
        if let Some(slot) = self.by_reason.get_mut(reason as usize) {
            *slot += n;
            self.any = true;
        }
    }

    /// Total number of drops.
    #[inline]
    pub(crate) fn total(&self) -> u32 {
        if self.any { self.by_reason.iter().sum() } else { 0 }
    }

    /// Takes the drops for `reason` out of the tally: packets that are kept after all.
    pub fn take(&mut self, reason: DropReason) -> u32 {
        self.by_reason.get_mut(reason as usize).map_or(0, std::mem::take)
    }

    /// Number of drops for `reason`.
    pub fn get(&self, reason: DropReason) -> u32 {
        self.by_reason.get(reason as usize).copied().unwrap_or(0)
    }
}

/// Counters of one queue in one direction.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct QueueCounters {
    packets: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
    /// Cycles spent on batches taken from a receive queue.
    cycles: AtomicU64,
    drops: [AtomicU64; REASONS],
}

/// Values of [`QueueCounters`] at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueSnapshot {
    /// Packets taken or delivered.
    pub packets: u64,
    /// Their bytes, without preamble and frame check sequence.
    pub bytes: u64,
    /// Batches they came in.
    pub batches: u64,
    /// Drops, in the order of [`DropReason::ALL`].
    pub drops: [u64; REASONS],
}

impl QueueCounters {
    /// Adds one batch, with other threads adding to the same counters.
    #[inline]
    pub fn add_batch(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.batches.fetch_add(1, Relaxed);
    }

    /// Adds one batch without locked instructions: for a caller that is the only one to add meanwhile, by owning
    /// the queue or by holding its lock.
    #[inline]
    pub(crate) fn add_batch_alone(&self, packets: u64, bytes: u64) {
        bump(&self.packets, packets);
        bump(&self.bytes, bytes);
        bump(&self.batches, 1);
    }

    /// Packets taken or delivered.
    pub(crate) fn packets(&self) -> u64 {
        self.packets.load(Relaxed)
    }

    /// Adds cycles spent on a batch, as the only one to add meanwhile.
    #[inline]
    pub(crate) fn add_cycles_alone(&self, cycles: u64) {
        bump(&self.cycles, cycles);
    }

    /// Cycles spent on batches taken from a receive queue.
    pub(crate) fn cycles(&self) -> u64 {
        self.cycles.load(Relaxed)
    }

    /// Adds a batch's drops, if there were any, and empties the tally.
    #[inline]
    pub fn add_drops(&self, drops: &mut Drops) {
        if !drops.any {
            return;
        }
        for (counter, n) in self.drops.iter().zip(drops.by_reason) {
            if n > 0 {
                counter.fetch_add(u64::from(n), Relaxed);
            }
        }
        *drops = Drops::default();
    }

    /// Counts one packet dropped on its way to this queue.
    #[cold]
    pub(crate) fn add_drop(&self, reason: DropReason) {
        self.add_dropped(reason, 1);
    }

    /// Counts packets dropped on their way to this queue, all for one reason.
    #[cold]
    pub(crate) fn add_dropped(&self, reason: DropReason, packets: u32) {
        if let Some(counter) = self.drops.get(reason as usize) {
            counter.fetch_add(packets.into(), Relaxed);
        }
    }

    /// Reads all counters.
    pub fn snapshot(&self) -> QueueSnapshot {
        QueueSnapshot {
            packets: self.packets.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            batches: self.batches.load(Relaxed),
            drops: std::array::from_fn(|i| self.drops.get(i).map_or(0, |d| d.load(Relaxed))),
        }
    }
}

/// Counters of one worker.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct WorkerCounters {
    pub(crate) packets: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) busy_cycles: AtomicU64,
    pub(crate) wakeups: AtomicU64,
    pub(crate) notifications: AtomicU64,
    pub(crate) relieved: AtomicU64,
}

/// Values of [`WorkerCounters`] at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerSnapshot {
    /// Packets switched.
    pub packets: u64,
    /// Batches they came in.
    pub batches: u64,
    /// Cycles spent on batches that held packets (TSC on x86-64).
    pub busy_cycles: u64,
    /// Returns from sleep.
    pub wakeups: u64,
    /// Receivers notified.
    pub notifications: u64,
    /// Times that another thread took over its tasks because a client held it up.
    pub relieved: u64,
}

impl WorkerCounters {
    /// Reads all counters.
    pub fn snapshot(&self) -> WorkerSnapshot {
        WorkerSnapshot {
            packets: self.packets.load(Relaxed),
            batches: self.batches.load(Relaxed),
            busy_cycles: self.busy_cycles.load(Relaxed),
            wakeups: self.wakeups.load(Relaxed),
            notifications: self.notifications.load(Relaxed),
            relieved: self.relieved.load(Relaxed),
        }
    }
}

/// Adds to a counter that only the calling thread writes: no locked instruction.
#[inline]
pub(crate) fn bump(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}
