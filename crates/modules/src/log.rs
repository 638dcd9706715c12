//! Log of the modules: their messages and failures as lines in the daemon's log.
//!
//! A worker queues its lines without waiting, and the [watchdog](crate::watchdog) writes them. The rate is limited to
//! [`RATE`] lines a second; the log says how many were omitted.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;
use fabric::clock;
use fabric::worker::MAX_WORKERS;

use crate::watchdog;

/// Most lines a second.
const RATE: u32 = 20;
/// Longest line, bytes.
pub(crate) const LONGEST: usize = 512;

/// Source of lines: an instance.
#[derive(Clone)]
pub(crate) struct LogSource {
    pub(crate) module: Arc<str>,
    /// The name of its bridge, once known.
    pub(crate) bridge: Option<Arc<str>>,
    /// Number of its thread; `None`: it carries out commands.
    pub(crate) worker: Option<usize>,
}

struct Line {
    source: LogSource,
    text: String,
    fault: bool,
}

static OMITTED: AtomicU32 = AtomicU32::new(0);

fn waiting() -> &'static ArrayQueue<Line> {
    static WAITING: OnceLock<ArrayQueue<Line>> = OnceLock::new();
    WAITING.get_or_init(|| ArrayQueue::new(4 * RATE as usize))
}

/// Takes one line from this second's budget. Returns false when it is used up.
fn within_rate() -> bool {
    // The second, and how many lines it has.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = u64::from(clock::seconds()) << 32;
    let one_more = |count: u64| match count >> 32 == now >> 32 {
        true if count as u32 >= RATE => None,
        true => Some(count + 1),
        false => Some(now + 1),
    };
    COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
}

/// Returns a module's text without control characters, which could forge lines of the log.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns the beginning of a text, at most this many bytes.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

/// Queues a line, unless the rate or the queue is exhausted.
#[cold]
pub(crate) fn post(source: &LogSource, text: &[u8], fault: bool) {
    let said = within_rate() && {
        let text = text.get(..text.len().min(LONGEST)).unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        let text = one_line(&text);
        waiting().push(Line { source: source.clone(), text, fault }).is_ok()
    };
    if said {
        watchdog::called();
    } else {
        OMITTED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes the queued lines.
pub(crate) fn write() {
    while let Some(Line { source, text, fault }) = waiting().pop() {
        let LogSource { module, bridge, worker } = source;
        let (module, bridge) = (&*module, bridge.as_deref());
        let worker = match worker {
            Some(worker) if worker < MAX_WORKERS => worker.to_string(),
            Some(_) => "stand-in".to_owned(),
            None => "command".to_owned(),
        };
        match fault {
            true => tracing::warn!(module, bridge, %worker, "the module failed: {text}"),
            false => tracing::info!(module, bridge, %worker, "the module says: {text}"),
        }
    }
    let omitted = OMITTED.swap(0, Ordering::Relaxed);
    if omitted > 0 {
        tracing::warn!(lines = omitted, "lines of modules omitted: the limit is {RATE} a second");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_speak_at_once_are_all_heard_and_no_more_than_so_many() {
        let start = clock::seconds();
        let heard: usize = std::thread::scope(|scope| {
            let speak = || (0..RATE).filter(|_| within_rate()).count();
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(speak)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        let seconds = (clock::seconds() - start + 1) as usize;
        assert!((RATE as usize..=RATE as usize * seconds).contains(&heard), "{heard} in {seconds} s");
    }
}
