//! The snoop socket: copies of the messages to and from a controller, for `ovs-ofctl snoop`.
//!
//! As in Open vSwitch, an observer is given the leading controller when it connects and keeps it; without one it is
//! disconnected. Copies are dropped, never waited for: at most [`MOST_WAITING`] bytes wait for an observer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ofswitch::ConnectionId;
use openflow::message::{Body, Hello, Versions};
use openflow::{Message, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::connection::{Stop, Stream, stopped};
use crate::shared::SharedSwitch;

/// Bytes waiting for an observer above which copies for it are dropped.
const MOST_WAITING: usize = 1 << 20;

/// Observers of all controllers.
#[derive(Debug, Default)]
pub(crate) struct Snoopers {
    list: Mutex<Vec<Snooper>>,
    /// Length of the list, so that nothing is locked without observers.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Snooper {
    of: ConnectionId,
    copies: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

impl Snoopers {
    /// Copies a message of a connection to its observers.
    pub(crate) fn copy(&self, of: ConnectionId, message: &[u8]) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        for snooper in self.lock().iter().filter(|snooper| snooper.of == of) {
            if snooper.waiting.load(Ordering::Relaxed) < MOST_WAITING {
                snooper.waiting.fetch_add(message.len(), Ordering::Relaxed);
                // An observer that has gone is about to be removed.
                let _ = snooper.copies.send(message.to_vec());
            }
        }
    }

    /// Ends the observers of a connection.
    pub(crate) fn forget(&self, of: ConnectionId) {
        self.retain(|snooper| snooper.of != of);
    }

    fn add(&self, of: ConnectionId) -> (mpsc::UnboundedReceiver<Vec<u8>>, Arc<AtomicUsize>) {
        let (copies, receiver) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let mut list = self.lock();
        list.push(Snooper { of, copies, waiting: waiting.clone() });
        self.count.store(list.len(), Ordering::Relaxed);
        (receiver, waiting)
    }

    fn retain(&self, keep: impl Fn(&Snooper) -> bool) {
        let mut list = self.lock();
        list.retain(keep);
        self.count.store(list.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Snooper>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves an observer to its end.
pub(crate) async fn serve(shared: &SharedSwitch, stream: impl Stream, stall: Duration, mut stop: Stop) {
    let Some(of) = shared.leading_controller() else { return };
    let (mut copies, waiting) = shared.snoopers.add(of);
    if !shared.is_connected(of) {
        shared.snoopers.forget(of);
    }
    let (mut reader, mut writer) = tokio::io::split(stream);
    let hello = Message::new(Version::V1_5, 0, Body::Hello(Hello::new(Versions::from_iter(Version::ALL))));
    let mut next = hello.into_bytes().ok();
    let mut ignored = [0; 512];
    while let Some(message) = next.take() {
        if !matches!(timeout(stall, writer.write_all(&message)).await, Ok(Ok(()))) {
            break;
        }
        loop {
            tokio::select! {
                copy = copies.recv() => {
                    waiting.fetch_sub(copy.as_ref().map_or(0, Vec::len), Ordering::Relaxed);
                    next = copy;
                    break;
                }
                // What an observer says is ignored, but its end is not.
                read = reader.read(&mut ignored) => if !read.is_ok_and(|count| count > 0) { break },
                () = stopped(&mut stop) => break,
            }
        }
    }
    drop(copies);
    shared.snoopers.retain(|snooper| !snooper.copies.is_closed());
}

#[cfg(test)]
mod tests {
    use ofswitch::{ConnectionKind, Settings, Switch};
    use tokio::io::duplex;
    use tokio::sync::watch;

    use super::*;

    /// A controller that has said hello.
    fn controller(shared: &Arc<SharedSwitch>) -> crate::shared::Connected {
        let connected = shared.connect(ConnectionKind::Controller, "tcp:127.0.0.1").unwrap();
        connected.receive(&[4, 0, 0, 8, 0, 0, 0, 1]);
        connected
    }

    #[tokio::test(start_paused = true)]
    async fn an_observer_that_reads_nothing_costs_no_more_than_the_limit() {
        let shared = SharedSwitch::new(Switch::new(Settings::default()), |_| ());
        let connected = controller(&shared);
        let (observer, ours) = duplex(64);
        let (_stop, stop) = watch::channel(());
        let serving = shared.clone();
        let served = tokio::spawn(async move { serve(&serving, ours, Duration::from_secs(15), stop).await });
        while shared.snoopers.count.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            connected.copy(&[0; 60_000]);
        }
        let waiting = shared.snoopers.lock()[0].waiting.load(Ordering::Relaxed);
        assert!((MOST_WAITING..MOST_WAITING + 60_000).contains(&waiting), "{waiting}");
        // It is disconnected after the stall.
        served.await.unwrap();
        assert_eq!(shared.snoopers.count.load(Ordering::Relaxed), 0);
        drop(observer);
    }

    #[tokio::test(start_paused = true)]
    async fn an_observer_ends_with_its_controller() {
        let shared = SharedSwitch::new(Switch::new(Settings::default()), |_| ());
        let connected = controller(&shared);
        let (mut observer, ours) = duplex(1024);
        let (_stop, stop) = watch::channel(());
        let serving = shared.clone();
        let served = tokio::spawn(async move { serve(&serving, ours, Duration::from_secs(15), stop).await });
        observer.read_u8().await.unwrap();
        connected.copy(&[9; 8]);
        drop(connected);
        let mut rest = vec![];
        observer.read_to_end(&mut rest).await.unwrap();
        assert!(rest.ends_with(&[9; 8]));
        served.await.unwrap();
    }
}
