//! Protection of a port against its clients, the same for all port types with clients: options, their checks and their
//! state.

use std::time::{Duration, Instant};

use clientmem::{ClientFd, Closer, MOST_UNCLOSED};
use fabric::switch::PortRef;
use fabric::{AttachOptions, Attachment, Switch};
use tokio::sync::watch;

use crate::faults::{Alarm, DEFAULT_HOLD_OFF, Faults, Limit};
use crate::pace::{DEFAULT_RATE, Pace};
use crate::{OpenError, Process};

/// Time for a port to close; work that is still blocked then ends by itself.
pub(crate) const CLOSING: Duration = Duration::from_secs(1);

pub(crate) fn default_message_rate() -> u32 {
    DEFAULT_RATE
}

pub(crate) fn default_unclosed_descriptors() -> u32 {
    MOST_UNCLOSED as u32
}

pub(crate) fn default_hold_off() -> u32 {
    DEFAULT_HOLD_OFF
}

/// Checks the options.
pub(crate) fn check_guards(
    message_rate: u32,
    unclosed_descriptors: u32,
    hold_off: u32,
) -> Result<(), OpenError> {
    for (key, value, least, most) in [
        ("message-rate", message_rate, 10, 1_000_000),
        ("unclosed-descriptors", unclosed_descriptors, 1, 65_536),
        ("hold-off", hold_off, 0, 3600),
    ] {
        if !(least..=most).contains(&value) {
            return Err(OpenError(format!("{key}: {value} is out of range, must be {least} to {most}")));
        }
    }
    Ok(())
}

/// Protection of a port.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Pace of the control plane's work for clients.
    pub(crate) pace: Pace,
    /// Closes descriptors that clients sent, connections included.
    pub(crate) closer: Closer,
    pub(crate) faults: Faults,
}

impl Guard {
    pub(crate) fn new(message_rate: u32, unclosed_descriptors: u32, hold_off: u32, alarm: Alarm) -> Self {
        Self {
            pace: Pace::new(message_rate),
            closer: Closer::with_limit(unclosed_descriptors as usize),
            faults: Faults::new(alarm, hold_off),
        }
    }

    /// Waits until there is room for more work of `client`.
    pub(crate) async fn room(&self, client: &str) {
        if let Some(wait) = self.pace.wait() {
            let rate = self.pace.rate();
            let limit = Limit { option: "message-rate", value: rate.into() };
            let reason = format!("it sends more than {rate} messages a second; the excess waits");
            self.faults.reached(client, limit, &reason);
            tokio::time::sleep(wait).await;
        }
    }
}

/// Describes the client behind a connection: its process, and its own name if it gave one.
pub(crate) fn client(control: &ClientFd, name: &str) -> String {
    let process = Process::behind(control).map_or("unknown process".into(), |process| process.to_string());
    if name.is_empty() { process } else { format!("{process}, \"{name}\"") }
}

/// Does `work`, which a client may block, on a thread of its own. Once `closing` is ready, waits for at most
/// [`CLOSING`] more; returns `None` then, or when the runtime shuts down. A result that comes too late is dropped on
/// its thread.
pub(crate) async fn off_thread<T: Send + 'static>(
    closing: impl Future<Output = ()>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let late = async {
        closing.await;
        tokio::time::sleep(CLOSING).await;
    };
    tokio::select! {
        biased;
        done = tokio::task::spawn_blocking(work) => done.ok(),
        () = late => None,
    }
}

/// Attaches the queues of a client to a port, unless the port is closing. If the port is reopened while this attaches
/// late, the successor keeps its place.
pub(crate) fn attach(
    switch: &Switch,
    at: PortRef,
    attachment: Attachment,
    options: AttachOptions,
    closing: &watch::Receiver<bool>,
) -> Result<(), String> {
    let removed = || Err("the port is being removed".to_owned());
    if *closing.borrow() {
        return removed();
    }
    switch.attach_with(at, attachment, options).map_err(|error| error.to_string())?;
    if *closing.borrow() {
        // Fails only if the port is gone, and thus detached.
        let _ = switch.detach(at);
        return removed();
    }
    Ok(())
}

/// Waits for a port to close, at most a little longer than [`CLOSING`] after `since`.
pub(crate) fn await_closed<T>(
    runtime: &tokio::runtime::Handle,
    since: Instant,
    closed: impl Future<Output = T>,
) -> Option<T> {
    // The task itself gives up after CLOSING; this waits for that.
    let limit = (since + CLOSING + CLOSING / 4).into();
    runtime.block_on(async { tokio::time::timeout_at(limit, closed).await }).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn blocked_work_is_awaited_until_the_port_closes() {
        assert_eq!(off_thread(std::future::pending(), || 7).await, Some(7));
        assert_eq!(off_thread(std::future::ready(()), || 7).await, Some(7), "closing leaves time");
        let (release, released) = channel::<()>();
        let begun = Instant::now();
        let held = off_thread(std::future::ready(()), move || released.recv().is_ok());
        assert_eq!(held.await, None);
        assert!((CLOSING..3 * CLOSING).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        drop(release);
    }

    #[tokio::test]
    async fn a_client_that_sends_too_much_is_named() {
        let guard = Guard::new(1000, 128, 30, Alarm::default());
        guard.pace.spend(10_000);
        guard.room("process 1").await;
        assert_eq!(guard.faults.summary(), None);
        guard.pace.spend(20);
        guard.room("process 1").await;
        let last = guard.faults.summary().unwrap().last;
        assert_eq!(last.client, "process 1");
        assert_eq!(last.limit, Some(Limit { option: "message-rate", value: 1000 }));
        assert_eq!(guard.faults.held_off(), Duration::ZERO);
    }
}
