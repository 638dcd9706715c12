//! Numbers of the switching threads, and data that exists once for each of them.
//!
//! Workers are numbered from 0 without gaps, also after one was removed: the last one takes its place. The numbers of
//! stand-ins follow the largest that a worker can have. So a number below [`MAX_WORKERS`] is a worker's, and does not
//! change when workers come and go.
//!
//! Invariant: data of a thread is made before the thread starts and stays when it ends, for the next thread with its
//! number. So a thread reads its own without a lock.

use std::sync::OnceLock;

/// Most workers of a switch.
pub const MAX_WORKERS: usize = 128;

/// Stand-in threads: as many clients can hold workers up at once without effect on others.
pub(crate) const STAND_INS: usize = 3;

/// Bound of the numbers of threads.
pub const MAX_THREADS: usize = MAX_WORKERS + STAND_INS;

/// Threads of a switch: its workers and their stand-ins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads {
    workers: usize,
}

impl Threads {
    /// Threads of a switch with so many workers.
    pub fn of(workers: usize) -> Self {
        Self { workers: workers.min(MAX_WORKERS) }
    }

    /// Numbers of the threads.
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        (0..self.workers).chain(MAX_WORKERS..MAX_THREADS)
    }
}

/// One value for each thread. See the module.
pub struct PerThread<T>(Box<[OnceLock<Box<T>>]>);

impl<T> Default for PerThread<T> {
    fn default() -> Self {
        Self((0..MAX_THREADS).map(|_| OnceLock::new()).collect())
    }
}

impl<T> PerThread<T> {
    /// Makes the values that `threads` do not have yet; `make` gets the thread's number.
    pub fn prepare<E>(&self, threads: Threads, mut make: impl FnMut(usize) -> Result<T, E>) -> Result<(), E> {
        for number in threads.numbers() {
            if let Some(place) = self.0.get(number)
                && place.get().is_none()
            {
                // An error means that another caller was faster.
                let _ = place.set(Box::new(make(number)?));
            }
        }
        Ok(())
    }

    /// Value of thread `number`.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&T> {
        self.0.get(number)?.get().map(Box::as_ref)
    }

    /// The values, by number of the thread.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.0.iter().enumerate().filter_map(|(number, place)| Some((number, place.get()?.as_ref())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_made_once() {
        let values = PerThread::default();
        let made = std::cell::RefCell::new(Vec::new());
        let make = |number| {
            made.borrow_mut().push(number);
            Ok::<_, ()>(number)
        };
        values.prepare(Threads::of(1), make).unwrap();
        assert_eq!(values.get(1), None);
        values.prepare(Threads::of(3), make).unwrap();
        values.prepare(Threads::of(2), make).unwrap();
        assert_eq!(made.take(), [0, 128, 129, 130, 1, 2]);
        assert_eq!(values.get(129), Some(&129));
        assert_eq!(values.get(MAX_THREADS), None);
        assert_eq!(values.iter().map(|(number, _)| number).collect::<Vec<_>>(), [0, 1, 2, 128, 129, 130]);
    }

    #[test]
    fn an_error_leaves_what_was_made() {
        let values = PerThread::default();
        let refuse = |number| if number == 2 { Err("no") } else { Ok(number) };
        assert_eq!(values.prepare(Threads::of(4), refuse), Err("no"));
        assert_eq!((values.get(1), values.get(2)), (Some(&1), None));
    }
}
