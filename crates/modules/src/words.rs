//! What modules say to whoever runs the switch, and why they failed: lines in the daemon's log.
//!
//! A worker leaves its lines here, and the [mender](crate::keeper) writes them. However much there is to say, no more than
//! [`A_SECOND`] lines are written in a second; what is beyond is counted, and that is said.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, TryLockError};

use fabric::clock;

use crate::keeper;

/// Lines in a second.
const A_SECOND: u32 = 20;
/// The longest line, bytes.
pub(crate) const LONGEST: usize = 512;

struct Line {
    who: String,
    text: String,
    fault: bool,
}

struct Lines {
    waiting: Vec<Line>,
    second: u32,
    count: u32,
}

static LINES: Mutex<Lines> = Mutex::new(Lines { waiting: Vec::new(), second: 0, count: 0 });
static OMITTED: AtomicU32 = AtomicU32::new(0);

/// Has a line written, as far as there is room for one.
#[cold]
pub(crate) fn say(who: &str, text: &[u8], fault: bool) {
    let omit = || {
        OMITTED.fetch_add(1, Ordering::Relaxed);
    };
    // Whoever has the lock has it for as long as it takes to move a line; who switches packets does not wait for that.
    let mut lines = match LINES.try_lock() {
        Ok(lines) => lines,
        Err(TryLockError::Poisoned(lines)) => lines.into_inner(),
        Err(TryLockError::WouldBlock) => return omit(),
    };
    let now = clock::seconds();
    if lines.second != now {
        (lines.second, lines.count) = (now, 0);
    }
    if lines.count >= A_SECOND {
        return omit();
    }
    lines.count += 1;
    let text = text.get(..text.len().min(LONGEST)).unwrap_or_default();
    let text = String::from_utf8_lossy(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    lines.waiting.push(Line { who: who.to_owned(), text, fault });
    drop(lines);
    keeper::called();
}

/// Writes what is waiting.
pub(crate) fn write() {
    let waiting = match LINES.lock() {
        Ok(mut lines) => std::mem::take(&mut lines.waiting),
        Err(poisoned) => std::mem::take(&mut poisoned.into_inner().waiting),
    };
    for Line { who, text, fault } in waiting {
        match fault {
            true => tracing::warn!(module = who, "the module failed: {text}"),
            false => tracing::info!(module = who, "the module says: {text}"),
        }
    }
    let omitted = OMITTED.swap(0, Ordering::Relaxed);
    if omitted > 0 {
        tracing::warn!(lines = omitted, "modules had more to say than is written in a second");
    }
}
