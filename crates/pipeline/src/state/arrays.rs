//! Counters, meters and registers: what packets change.
//!
//! All workers share them. Counters are atomic each. Registers are words of 64 bits, least significant first; the lock
//! makes accesses to several words, and [`crate::ir::Stmt::Atomic`], indivisible. A replacement of the program's code
//! leaves arrays in place. Counters and meters take memory once they are used.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::meter::{MeterCell, Rates};
use super::pages::Pages;
use crate::bits::Bits;
use crate::ir::{CounterId, MeterId, Program, RegisterId};

/// Packets and bytes.
#[derive(Debug, Default)]
pub struct Stats {
    /// Packets.
    pub packets: AtomicU64,
    /// Bytes.
    pub bytes: AtomicU64,
}

impl Stats {
    /// Counts one packet.
    pub fn count(&self, bytes: u64) {
        self.packets.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Returns packets and bytes.
    pub fn get(&self) -> (u64, u64) {
        (self.packets.load(Relaxed), self.bytes.load(Relaxed))
    }

    /// Sets packets and bytes.
    pub fn set(&self, packets: u64, bytes: u64) {
        self.packets.store(packets, Relaxed);
        self.bytes.store(bytes, Relaxed);
    }
}

#[derive(Debug)]
struct Cells {
    width: u16,
    words: Vec<AtomicU64>,
}

/// The arrays of a program.
#[derive(Debug)]
pub struct Arrays {
    counters: Vec<Pages<Stats>>,
    meters: Vec<Pages<MeterCell>>,
    registers: Vec<Cells>,
    lock: Mutex<()>,
}

impl Arrays {
    pub(super) fn new(program: &Program) -> Self {
        fn many<T: Default>(n: usize) -> Vec<T> {
            (0..n).map(|_| T::default()).collect()
        }
        let cells = |size: u32, width: u16| Cells {
            width,
            words: many(size as usize * usize::from(width.div_ceil(64))),
        };
        Self {
            counters: program.counters.iter().map(|x| Pages::new(x.size as usize)).collect(),
            meters: program.meters.iter().map(|x| Pages::new(x.size as usize)).collect(),
            registers: program.registers.iter().map(|x| cells(x.size, x.ty.width())).collect(),
            lock: Mutex::new(()),
        }
    }

    /// A counter, if it exists.
    pub fn counter(&self, id: CounterId, index: u64) -> Option<&Stats> {
        self.counters.get(id.index())?.cell(index)
    }

    /// A counter, if it exists and has ever counted, or a cell near it has.
    pub fn used_counter(&self, id: CounterId, index: u64) -> Option<&Stats> {
        self.counters.get(id.index())?.used(index)
    }

    /// A meter; `None`: it does not exist, or it has never been configured and colours everything green.
    pub fn meter(&self, id: MeterId, index: u64) -> Option<&MeterCell> {
        self.meters.get(id.index())?.used(index)
    }

    /// Whether a meter exists.
    pub(super) fn has_meter(&self, id: MeterId, index: u64) -> bool {
        self.meters.get(id.index()).is_some_and(|meters| meters.has(index))
    }

    /// Configures a meter, if it exists.
    pub fn configure_meter(&self, id: MeterId, index: u64, rates: Option<Rates>, now: u64) {
        let cell = self.meters.get(id.index()).and_then(|meters| match rates {
            Some(_) => meters.cell(index),
            None => meters.used(index),
        });
        cell.iter().for_each(|cell| cell.configure(rates, now));
    }

    /// Takes the lock of the registers.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a register, if it exists. The guard proves that nothing else accesses it.
    pub fn read(&self, _guard: &MutexGuard<'_, ()>, id: RegisterId, index: u64) -> Option<Bits> {
        let (width, words) = self.words(id, index)?;
        let bytes: Vec<u8> = words.iter().rev().flat_map(|word| word.load(Relaxed).to_be_bytes()).collect();
        Some(Bits::from_bytes(width, &bytes))
    }

    /// Writes a register; false if it does not exist.
    pub fn write(&self, _guard: &MutexGuard<'_, ()>, id: RegisterId, index: u64, value: &Bits) -> bool {
        let Some((width, words)) = self.words(id, index) else { return false };
        let value = value.resize(width);
        words.iter().zip(value.limbs()).for_each(|(word, limb)| word.store(*limb, Relaxed));
        true
    }

    fn words(&self, id: RegisterId, index: u64) -> Option<(u16, &[AtomicU64])> {
        let cells = self.registers.get(id.index())?;
        let each = usize::from(cells.width.div_ceil(64));
        let first = usize::try_from(index).ok()?.checked_mul(each)?;
        Some((cells.width, cells.words.get(first..first.checked_add(each)?)?))
    }
}
