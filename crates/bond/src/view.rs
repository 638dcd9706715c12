//! What packets need to know of a bond: for the data path, which never changes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::BUCKETS;

/// Bytes sent by each bucket, counted by the data path. All views of a bond share them.
#[derive(Debug)]
pub struct Loads(Box<[AtomicU64; BUCKETS]>);

impl Default for Loads {
    fn default() -> Self {
        Self(Box::new([const { AtomicU64::new(0) }; BUCKETS]))
    }
}

impl Loads {
    /// Counts bytes sent by a bucket.
    #[inline]
    pub fn add(&self, bucket: usize, bytes: u32) {
        if let Some(load) = self.0.get(bucket) {
            load.fetch_add(bytes.into(), Relaxed);
        }
    }

    /// Takes the bytes counted since the last call, by bucket.
    pub(crate) fn take(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|load| load.swap(0, Relaxed))
    }
}

/// Packets that a member admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Admission {
    /// Packets to one station.
    pub stations: bool,
    /// Packets to groups.
    pub groups: bool,
    /// Whether a packet is refused if its sender is known at a port outside the bond: it is the bond's own, come back
    /// over another member.
    pub unless_moved: bool,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// Its name.
    pub name: String,
    /// Whether it may carry packets as far as LACP is concerned.
    pub is_live: bool,
    /// Packets that it admits, unless [`Output::Plain`].
    pub admits: Admission,
}

/// Choice of the member that sends. Members are numbered as [`View::members`] has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// There is no choice: the members are ports of their own.
    Plain,
    /// No member: packets are dropped.
    Nothing,
    /// One member.
    Member(usize),
    /// By source address and VLAN, with a basis.
    BySource(u32, Box<[Option<usize>; BUCKETS]>),
    /// By flow, with a basis.
    ByFlow(u32, Box<[Option<usize>; BUCKETS]>),
}

/// A bond as packets see it.
#[derive(Debug, Clone)]
pub struct View {
    /// Its name.
    pub name: String,
    /// Its members.
    pub members: Vec<MemberView>,
    /// The member that sends.
    pub output: Output,
    /// Whether LACPDUs are for the bond.
    pub takes_pdus: bool,
    /// Bytes sent.
    pub loads: Arc<Loads>,
}

impl View {
    /// Whether packets see no difference.
    pub fn is_equal(&self, other: &Self) -> bool {
        self.name == other.name
            && self.members == other.members
            && self.output == other.output
            && self.takes_pdus == other.takes_pdus
            && Arc::ptr_eq(&self.loads, &other.loads)
    }
}
