//! Bounded queue of messages to one controller.
//!
//! Invariant: messages leave in the order in which they came; one that finds no room is refused, and none is dropped
//! later, except where the whole queue fails.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio_stream::Stream;
use tonic::Status;

/// Messages that have room in a queue that is full for others.
const SPARE: usize = 64;

/// Reasons why a message is not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no room.
    Full,
    /// Nobody reads any more.
    Closed,
}

/// Room of a queue. A message longer than all bytes has room in an empty queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    room: Room,
    state: Mutex<State<T>>,
    taken: Condvar,
    /// Notified when a condition of [`Outbox::wait`] may have become true.
    changed: Notify,
}

#[derive(Debug)]
struct State<T> {
    queue: VecDeque<(T, usize)>,
    bytes: usize,
    /// Messages that were taken.
    progress: u64,
    /// No message comes any more; an error is for the reader.
    end: Option<Result<(), Status>>,
    closed: bool,
    reader: Option<Waker>,
}

impl<T> Outbox<T> {
    /// Makes a queue with its reader's end.
    pub(crate) fn new(room: Room) -> (Arc<Self>, Outgoing<T>) {
        let state =
            State { queue: VecDeque::new(), bytes: 0, progress: 0, end: None, closed: false, reader: None };
        let outbox =
            Arc::new(Self { room, state: Mutex::new(state), taken: Condvar::new(), changed: Notify::new() });
        (outbox.clone(), Outgoing { outbox, places: vec![] })
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a message of `bytes` without waiting.
    pub(crate) fn push(&self, message: T, bytes: usize) -> Result<(), Refused> {
        let mut state = self.state();
        if state.is_over() {
            return Err(Refused::Closed);
        }
        if !state.has_room(self.room, bytes) {
            return Err(Refused::Full);
        }
        state.push(message, bytes);
        Ok(())
    }

    /// Queues a message that must not be lost: [`SPARE`] places are kept for such messages.
    pub(crate) fn push_important(&self, message: T, bytes: usize) -> Result<(), Refused> {
        let mut state = self.state();
        if state.is_over() {
            return Err(Refused::Closed);
        }
        if state.queue.len() >= self.room.messages.saturating_add(SPARE) {
            return Err(Refused::Full);
        }
        state.push(message, bytes);
        Ok(())
    }

    /// Queues a message; blocks while there is no room, up to `stall` without progress of the reader.
    pub(crate) fn push_waiting(&self, message: T, bytes: usize, stall: Duration) -> Result<(), Refused> {
        let mut state = self.state();
        let (mut progress, mut since) = (state.progress, Instant::now());
        while !state.is_over() && !state.has_room(self.room, bytes) {
            if state.progress != progress {
                (progress, since) = (state.progress, Instant::now());
            }
            let Some(left) = stall.checked_sub(since.elapsed()) else { return Err(Refused::Full) };
            state = self.taken.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.is_over() {
            return Err(Refused::Closed);
        }
        state.push(message, bytes);
        Ok(())
    }

    /// Ends the queue once its messages have been read.
    pub(crate) fn finish(&self, end: Result<(), Status>) {
        let mut state = self.state();
        state.end.get_or_insert(end);
        state.wake();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Ends the queue at once.
    pub(crate) fn fail(&self, status: Status) {
        let mut state = self.state();
        state.clear();
        state.end = Some(Err(status));
        state.wake();
        drop(state);
        self.taken.notify_all();
        self.changed.notify_waiters();
    }

    /// Messages that were taken, or `None` if nobody waits for more.
    pub(crate) fn progress(&self) -> Option<u64> {
        let state = self.state();
        (!state.is_done()).then_some(state.progress)
    }

    /// Waits until nobody reads any more, or no message comes any more.
    pub(crate) async fn closed(&self) {
        self.wait(State::is_over).await;
    }

    /// Waits until nobody waits for messages any more.
    pub(crate) async fn drained(&self) {
        self.wait(State::is_done).await;
    }

    async fn wait(&self, condition: impl Fn(&State<T>) -> bool) {
        loop {
            let changed = self.changed.notified();
            if condition(&self.state()) {
                return;
            }
            changed.await;
        }
    }
}

impl<T> State<T> {
    fn is_over(&self) -> bool {
        self.closed || self.end.is_some()
    }

    fn is_done(&self) -> bool {
        self.closed || (self.end.is_some() && self.queue.is_empty())
    }

    fn has_room(&self, room: Room, bytes: usize) -> bool {
        self.queue.is_empty()
            || (self.queue.len() < room.messages && self.bytes.saturating_add(bytes) <= room.bytes)
    }

    fn push(&mut self, message: T, bytes: usize) {
        self.queue.push_back((message, bytes));
        self.bytes += bytes;
        self.wake();
    }

    fn clear(&mut self) {
        self.queue = VecDeque::new();
        self.bytes = 0;
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// The reader's end; dropping it closes the queue.
#[derive(Debug)]
pub(crate) struct Outgoing<T> {
    outbox: Arc<Outbox<T>>,
    /// Places that the reader occupies.
    places: Vec<OwnedSemaphorePermit>,
}

impl<T> Outgoing<T> {
    /// Keeps places until the reader is gone.
    pub(crate) fn keep(&mut self, place: OwnedSemaphorePermit) {
        self.places.push(place);
    }
}

impl<T> Stream for Outgoing<T> {
    type Item = Result<T, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.outbox.state();
        if let Some((message, bytes)) = state.queue.pop_front() {
            state.bytes -= bytes;
            state.progress += 1;
            let is_done = state.is_done();
            drop(state);
            self.outbox.taken.notify_all();
            if is_done {
                self.outbox.changed.notify_waiters();
            }
            return Poll::Ready(Some(Ok(message)));
        }
        match &mut state.end {
            None => {
                state.reader = Some(context.waker().clone());
                Poll::Pending
            }
            Some(end) => Poll::Ready(std::mem::replace(end, Ok(())).err().map(Err)),
        }
    }
}

impl<T> Drop for Outgoing<T> {
    fn drop(&mut self) {
        let mut state = self.outbox.state();
        state.closed = true;
        state.clear();
        drop(state);
        self.outbox.taken.notify_all();
        self.outbox.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    fn outbox(messages: usize, bytes: usize) -> (Arc<Outbox<u32>>, Outgoing<u32>) {
        Outbox::new(Room { messages, bytes })
    }

    #[tokio::test]
    async fn messages_and_bytes_are_bounded_and_keep_their_order() {
        let (outbox, mut reader) = outbox(3, 10);
        assert_eq!(outbox.push(0, 50), Ok(()), "an empty queue has room for any message");
        assert_eq!(outbox.push(1, 1), Err(Refused::Full));
        assert_eq!(reader.next().await.unwrap().unwrap(), 0);
        for message in 1..=3 {
            outbox.push(message, 1).unwrap();
        }
        assert_eq!(outbox.push(4, 1), Err(Refused::Full));
        assert_eq!(reader.next().await.unwrap().unwrap(), 1);
        assert_eq!(outbox.push(5, 9), Err(Refused::Full));
        outbox.push(6, 8).unwrap();
        outbox.finish(Err(Status::aborted("end")));
        assert_eq!(outbox.push(7, 1), Err(Refused::Closed));
        for message in [2, 3, 6] {
            assert_eq!(reader.next().await.unwrap().unwrap(), message);
        }
        assert_eq!(outbox.progress(), None);
        assert_eq!(reader.next().await.unwrap().unwrap_err().message(), "end");
        assert!(reader.next().await.is_none());
    }

    #[test]
    fn important_messages_have_room_of_their_own() {
        let (outbox, _reader) = outbox(2, 10);
        outbox.push(0, 10).unwrap();
        assert_eq!(outbox.push(1, 1), Err(Refused::Full));
        (0..=SPARE as u32).try_for_each(|message| outbox.push_important(message, 1)).unwrap();
        assert_eq!(outbox.push_important(1, 1), Err(Refused::Full));
    }

    #[tokio::test]
    async fn a_failure_comes_before_what_waits() {
        let (outbox, mut reader) = outbox(3, 10);
        outbox.push(1, 1).unwrap();
        outbox.fail(Status::aborted("failed"));
        outbox.closed().await;
        assert_eq!(reader.next().await.unwrap().unwrap_err().message(), "failed");
        assert!(reader.next().await.is_none());
    }

    #[tokio::test]
    async fn a_writer_waits_for_its_reader_until_it_stalls() {
        let (outbox, mut reader) = outbox(1, 10);
        outbox.push(1, 1).unwrap();
        assert_eq!(outbox.push_waiting(2, 1, Duration::ZERO), Err(Refused::Full));
        let writer = std::thread::spawn({
            let outbox = outbox.clone();
            move || (2..100).try_for_each(|message| outbox.push_waiting(message, 1, Duration::from_secs(60)))
        });
        for message in 1..50 {
            assert_eq!(reader.next().await.unwrap().unwrap(), message);
        }
        drop(reader);
        assert_eq!(writer.join().unwrap(), Err(Refused::Closed));
        outbox.closed().await;
    }
}
