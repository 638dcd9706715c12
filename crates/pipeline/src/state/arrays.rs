//! Counters, meters and registers: what packets change.
//!
//! All workers share them. Counters are atomic each. Registers are words of 64 bits, least significant first; the lock
//! makes accesses to several words, and [`crate::ir::Stmt::Atomic`], indivisible. A replacement of the program's code
//! leaves arrays in place. Counters and meters take memory once they are used.
//!
//! Others than workers may have registers and meters, too, in memory of theirs ([`SharedArrays`]). The lock is a word of
//! that memory then, too, which they hold for moments only.

use std::fmt::Debug;
use std::hint::spin_loop;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::meter::{METER_WORDS, Meter, MeterCell, Rates, meter_words};
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

/// Registers and meters in memory that others use, too.
pub trait SharedArrays: Debug + Send + Sync {
    /// The cells of a register array of at most 64 bits, a word each; `None` if it is not shared.
    fn cells(&self, register: RegisterId) -> Option<&[AtomicU64]>;

    /// The words of a meter array, [`METER_WORDS`] for each; `None` if it is not shared.
    fn meters(&self, meter: MeterId) -> Option<&[AtomicU64]>;

    /// The lock: 1 while somebody holds it, else 0.
    fn lock(&self) -> &AtomicU64;
}

/// Attempts to get a lock that others hold before the thread lets others run.
const ATTEMPTS: u32 = 1000;

/// The lock of registers, held.
#[derive(Debug)]
pub struct RegisterGuard<'a> {
    _own: MutexGuard<'a, ()>,
    /// The lock of those that share registers.
    shared: Option<&'a AtomicU64>,
}

impl Drop for RegisterGuard<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            shared.store(0, Release);
        }
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
    shared: OnceLock<Box<dyn SharedArrays>>,
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
            shared: OnceLock::new(),
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
    #[inline]
    pub fn meter(&self, id: MeterId, index: u64) -> Option<Meter<'_>> {
        if self.shared.get().is_some()
            && let Some(words) = self.shared_meter(id, index)
        {
            return Some(Meter::Shared(words, self)).filter(|_| has_rates(words));
        }
        self.meters.get(id.index())?.used(index).map(Meter::Own)
    }

    /// The words of a meter that is shared.
    fn shared_meter(&self, id: MeterId, index: u64) -> Option<&[AtomicU64]> {
        let words = self.shared.get()?.meters(id)?;
        let first = usize::try_from(index).ok()?.checked_mul(METER_WORDS)?;
        words.get(first..first.checked_add(METER_WORDS)?)
    }

    /// Whether a meter exists.
    pub(super) fn has_meter(&self, id: MeterId, index: u64) -> bool {
        self.meters.get(id.index()).is_some_and(|meters| meters.has(index))
    }

    /// Configures a meter, if it exists.
    pub fn configure_meter(&self, id: MeterId, index: u64, rates: Option<Rates>, now: u64) {
        if let Some(words) = self.shared_meter(id, index) {
            let _guard = self.lock();
            return words.iter().zip(meter_words(rates, now)).for_each(|(to, word)| to.store(word, Relaxed));
        }
        let cell = self.meters.get(id.index()).and_then(|meters| match rates {
            Some(_) => meters.cell(index),
            None => meters.used(index),
        });
        cell.iter().for_each(|cell| cell.configure(rates, now));
    }

    /// Keeps registers and meters in memory that others use, too, from now on; the first call only. Values go along, but
    /// for what packets write meanwhile.
    pub fn share(&self, shared: Box<dyn SharedArrays>) {
        for (i, own) in self.registers.iter().enumerate() {
            let cells = shared.cells(RegisterId::at(i)).into_iter().flatten();
            cells.zip(&own.words).for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        }
        for (i, own) in self.meters.iter().enumerate() {
            let words = shared.meters(MeterId::at(i)).unwrap_or_default();
            for (to, index) in words.chunks(METER_WORDS).zip(0..) {
                let from = own.used(index).map(MeterCell::words);
                to.iter().zip(from.into_iter().flatten()).for_each(|(to, word)| to.store(word, Relaxed));
            }
        }
        // A second caller keeps its own.
        let _ = self.shared.set(shared);
    }

    /// Takes the lock of the registers.
    #[inline]
    pub fn lock(&self) -> RegisterGuard<'_> {
        let own = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = self.shared.get().map(|shared| take(shared.lock()));
        RegisterGuard { _own: own, shared }
    }

    /// Reads a register, if it exists. The guard proves that nothing else accesses it.
    pub fn read(&self, _guard: &RegisterGuard<'_>, id: RegisterId, index: u64) -> Option<Bits> {
        let (width, words) = self.words(id, index)?;
        if let [word] = words {
            return Some(Bits::from_u64(width, word.load(Relaxed)));
        }
        let limbs: Vec<u64> = words.iter().map(|word| word.load(Relaxed)).collect();
        Some(Bits::from_limbs(width, &limbs))
    }

    /// Writes a register; false if it does not exist.
    pub fn write(&self, _guard: &RegisterGuard<'_>, id: RegisterId, index: u64, value: &Bits) -> bool {
        let Some((width, words)) = self.words(id, index) else { return false };
        if let [word] = words {
            word.store(value.low_u64() & (u64::MAX >> (64 - width.clamp(1, 64))), Relaxed);
            return true;
        }
        let value = value.resize(width);
        words.iter().zip(value.limbs()).for_each(|(word, limb)| word.store(*limb, Relaxed));
        true
    }

    fn words(&self, id: RegisterId, index: u64) -> Option<(u16, &[AtomicU64])> {
        let cells = self.registers.get(id.index())?;
        let each = usize::from(cells.width.div_ceil(64));
        let first = usize::try_from(index).ok()?.checked_mul(each)?;
        let shared = self.shared.get().and_then(|shared| shared.cells(id));
        let words = shared.unwrap_or(&cells.words);
        Some((cells.width, words.get(first..first.checked_add(each)?)?))
    }
}

fn has_rates(meter: &[AtomicU64]) -> bool {
    meter.first().is_some_and(|kind| kind.load(Relaxed) != 0)
}

/// Takes the lock of those that share registers. Of this process, one thread at a time is here.
#[cold]
fn take(lock: &AtomicU64) -> &AtomicU64 {
    let mut attempts = 0;
    while lock.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
        attempts += 1;
        match attempts % ATTEMPTS {
            0 => std::thread::yield_now(),
            _ => spin_loop(),
        }
    }
    lock
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Checked, text};

    use super::super::meter::Color;

    /// Words of the first register, the lock, and words of two meters.
    #[derive(Debug, Clone)]
    struct Words(Arc<[AtomicU64; 27]>);

    impl SharedArrays for Words {
        fn cells(&self, register: RegisterId) -> Option<&[AtomicU64]> {
            (register.index() == 0).then(|| &self.0[..2])
        }

        fn meters(&self, meter: MeterId) -> Option<&[AtomicU64]> {
            (meter.index() == 0).then(|| &self.0[3..])
        }

        fn lock(&self) -> &AtomicU64 {
            &self.0[2]
        }
    }

    #[test]
    fn others_share_registers_and_their_lock() {
        let program = "program p { register a[2]: bit<48>; register b[2]: bit<100>; block out {} stage s { control out; } }";
        let arrays = Arrays::new(&Checked::new(text::parse(program).unwrap()).unwrap());
        let [a, b] = [0, 1].map(RegisterId::at);
        let read = |id, index| arrays.read(&arrays.lock(), id, index).map(|value| value.low_u128());
        arrays.write(&arrays.lock(), a, 1, &Bits::from_u64(48, 7));
        arrays.write(&arrays.lock(), b, 1, &Bits::from_u128(100, 1 << 90));
        let words = Words(Arc::new(std::array::from_fn(|i| AtomicU64::new(if i == 2 { 0 } else { 1 }))));
        arrays.share(Box::new(words.clone()));
        assert_eq!((read(a, 0), read(a, 1), read(a, 2)), (Some(0), Some(7), None));
        words.0[0].store(u64::MAX, Relaxed);
        // Bits beyond the width are nobody's.
        assert_eq!((read(a, 0), read(b, 1)), (Some((1 << 48) - 1), Some(1 << 90)));
        arrays.write(&arrays.lock(), a, 0, &Bits::from_u64(48, 9));
        assert_eq!(words.0[0].load(Relaxed), 9);

        let guard = arrays.lock();
        assert_eq!(words.lock().load(Relaxed), 1);
        drop(guard);
        assert_eq!(words.lock().swap(1, Relaxed), 0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| read(a, 0));
            assert!(!waits.is_finished());
            words.lock().store(0, Release);
            assert_eq!(waits.join().unwrap(), Some(9));
        });
    }

    #[test]
    fn shared_meters_are_the_same_meters() {
        let program =
            "program p { meter a[2]: bytes; meter b[2]: bytes; block out {} stage s { control out; } }";
        let program = Checked::new(text::parse(program).unwrap()).unwrap();
        let ([own, shared], meter) = ([(); 2].map(|()| Arrays::new(&program)), MeterId::at(0));
        let words = Words(Arc::new([0; 27].map(AtomicU64::new)));
        let two = Rates::Two { rate: 1_000, burst: 2_000, peak_rate: u64::MAX, peak_burst: u64::MAX };
        let single = Rates::Single { rate: u64::MAX, burst: 1_500, excess: 3 };
        // One is configured before, the other one behind.
        own.configure_meter(meter, 1, Some(two), 5);
        shared.configure_meter(meter, 1, Some(two), 5);
        shared.share(Box::new(words));
        own.configure_meter(meter, 0, Some(single), 5);
        shared.configure_meter(meter, 0, Some(single), 5);
        let both = |index: u64| [&own, &shared].map(|arrays| arrays.meter(meter, index).unwrap());
        for (index, rates) in [(0, single), (1, two)] {
            assert_eq!(both(index).map(Meter::rates), [Some(rates); 2]);
            for now in [5, 6, 7, 1_000, 1_000_000, 999, u64::MAX / 4] {
                for before in [Color::Green, Color::Yellow, Color::Red] {
                    let [a, b] = both(index).map(|meter| meter.foresee(700, before, now));
                    assert_eq!(a, b);
                    assert_eq!(both(index).map(|meter| meter.color(700, before, now)), [a; 2]);
                }
            }
        }
        // Without rates there is none; others are not shared.
        shared.configure_meter(meter, 0, None, 9);
        assert!(shared.meter(meter, 0).is_none() && shared.meter(meter, 2).is_none());
        shared.configure_meter(MeterId::at(1), 0, Some(two), 9);
        assert!(matches!(shared.meter(MeterId::at(1), 0), Some(Meter::Own(_))));
    }
}
