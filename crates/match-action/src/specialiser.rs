//! The thread that specialises code soon after entries have changed: one for all bridges.
//!
//! Until then packets run code that is for any entries, several times as slow. Entries come in bursts, and controllers
//! that react to packets change them all the time: a bridge waits for a while before each specialisation, and longer
//! after one that took long.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::compiled::Compiled;

/// Time for which changes gather.
const PAUSE: Duration = Duration::from_millis(100);
/// Rest of a bridge after a specialisation, in units of its duration: a bridge takes a tenth of a CPU at most.
pub(crate) const REST: u32 = 9;

static QUEUE: LazyLock<Queue<Compiled>> = LazyLock::new(Queue::default);

/// Starts the thread, unless it runs.
pub(crate) fn start() -> std::io::Result<()> {
    static RUNS: Mutex<bool> = Mutex::new(false);
    let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    if !*runs {
        std::thread::Builder::new().name("code".into()).spawn(run)?;
        *runs = true;
    }
    Ok(())
}

fn run() {
    loop {
        let Some(compiled) = QUEUE.next().upgrade() else { continue };
        compiled.wish.begin();
        let begin = Instant::now();
        compiled.specialise();
        compiled.wish.end(begin.elapsed());
    }
}

/// A bridge's wish for specialised code.
#[derive(Debug, Default)]
pub(crate) struct Wish(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_pending: bool,
    earliest: Option<Instant>,
}

impl Wish {
    /// Entries have changed: `bridge` is specialised soon.
    pub(crate) fn add(&self, bridge: &Weak<Compiled>) {
        if let Some(due) = self.due() {
            QUEUE.add(due, bridge.clone());
        }
    }

    /// Returns when the specialisation is due, unless it has been asked for already.
    fn due(&self) -> Option<Instant> {
        let mut state = self.lock();
        let is_new = !std::mem::replace(&mut state.is_pending, true);
        let due = Instant::now() + PAUSE;
        is_new.then(|| state.earliest.map_or(due, |earliest| due.max(earliest)))
    }

    /// Changes from now on wish for another specialisation.
    fn begin(&self) {
        self.lock().is_pending = false;
    }

    fn end(&self, took: Duration) {
        self.lock().earliest = Some(Instant::now() + took * REST);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bridges in the order in which they are due.
#[derive(Debug)]
struct Queue<T> {
    jobs: Mutex<BinaryHeap<Reverse<Job<T>>>>,
    changed: Condvar,
}

/// Jobs are compared by their times.
#[derive(Debug)]
struct Job<T> {
    due: Instant,
    bridge: Weak<T>,
}

impl<T> PartialEq for Job<T> {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl<T> Eq for Job<T> {}

impl<T> PartialOrd for Job<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Job<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { jobs: Mutex::default(), changed: Condvar::new() }
    }
}

impl<T> Queue<T> {
    fn add(&self, due: Instant, bridge: Weak<T>) {
        self.lock().push(Reverse(Job { due, bridge }));
        self.changed.notify_one();
    }

    /// Waits for the next bridge that is due.
    fn next(&self) -> Weak<T> {
        let mut jobs = self.lock();
        loop {
            let now = Instant::now();
            let wait = jobs.peek().map(|Reverse(job)| job.due.saturating_duration_since(now));
            jobs = match wait {
                None => self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => match jobs.pop() {
                    Some(Reverse(job)) => return job.bridge,
                    None => jobs,
                },
                Some(wait) => {
                    let waited = self.changed.wait_timeout(jobs, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, BinaryHeap<Reverse<Job<T>>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn wishes_that_come_together_are_one() {
        let wish = Wish::default();
        let begin = Instant::now();
        let due = wish.due().unwrap();
        assert!(due >= begin + PAUSE, "changes gather");
        assert_eq!(wish.due(), None);
        wish.begin();
        wish.end(Duration::from_secs(60));
        let next = wish.due().unwrap();
        assert!(next >= begin + Duration::from_secs(540), "a long specialisation is followed by a long rest");
    }

    #[test]
    fn bridges_come_when_they_are_due() {
        let queue: Queue<u32> = Queue::default();
        let bridges = [1, 2, 3].map(Arc::new);
        let [first, second, third] = bridges.each_ref().map(Arc::downgrade);
        let now = Instant::now();
        queue.add(now + Duration::from_millis(60), third);
        queue.add(now, first);
        std::thread::scope(|scope| {
            let order = scope.spawn(|| [(); 3].map(|()| *queue.next().upgrade().unwrap()));
            queue.add(now + Duration::from_millis(30), second);
            assert_eq!(order.join().unwrap(), [1, 2, 3]);
        });
        assert!(now.elapsed() >= Duration::from_millis(60));
    }
}
