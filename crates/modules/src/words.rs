//! What modules say to whoever runs the switch, and why they failed: lines in the daemon's log.
//!
//! A worker leaves its lines here, without waiting for anybody, and the [mender](crate::keeper) writes them. However much there is to
//! say, no more than [`A_SECOND`] lines are written in a second; what is beyond is counted, and that is said.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use fabric::clock;

use crate::keeper;

/// Lines in a second.
const A_SECOND: u32 = 20;
/// The longest line, bytes.
pub(crate) const LONGEST: usize = 512;

struct Line {
    who: String,
    worker: usize,
    text: String,
    fault: bool,
}

static OMITTED: AtomicU32 = AtomicU32::new(0);

fn waiting() -> &'static ArrayQueue<Line> {
    static WAITING: OnceLock<ArrayQueue<Line>> = OnceLock::new();
    WAITING.get_or_init(|| ArrayQueue::new(4 * A_SECOND as usize))
}

/// Whether a line may be written yet in this second, which then has one more.
fn may_speak() -> bool {
    // The second, and how many lines it has.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = u64::from(clock::seconds()) << 32;
    let one_more = |count: u64| match count >> 32 == now >> 32 {
        true if count as u32 >= A_SECOND => None,
        true => Some(count + 1),
        false => Some(now + 1),
    };
    COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
}

/// Has a line written, as far as there is room for one.
#[cold]
pub(crate) fn say(who: &str, worker: usize, text: &[u8], fault: bool) {
    let said = may_speak() && {
        let text = text.get(..text.len().min(LONGEST)).unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        let text = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        waiting().push(Line { who: who.to_owned(), worker, text, fault }).is_ok()
    };
    if said {
        keeper::called();
    } else {
        OMITTED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes what is waiting.
pub(crate) fn write() {
    while let Some(Line { who, worker, text, fault }) = waiting().pop() {
        match fault {
            true => tracing::warn!(module = who, worker, "the module failed: {text}"),
            false => tracing::info!(module = who, worker, "the module says: {text}"),
        }
    }
    let omitted = OMITTED.swap(0, Ordering::Relaxed);
    if omitted > 0 {
        tracing::warn!(lines = omitted, "modules had more to say than is written in a second");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_speak_at_once_are_all_heard_and_no_more_than_so_many() {
        let start = clock::seconds();
        let heard: usize = std::thread::scope(|scope| {
            let speak = || (0..A_SECOND).filter(|_| may_speak()).count();
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(speak)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        let seconds = (clock::seconds() - start + 1) as usize;
        assert!((A_SECOND as usize..=A_SECOND as usize * seconds).contains(&heard), "{heard} in {seconds} s");
    }
}
