//! One connection, whatever its transport: bytes in, messages to the switch, its messages out.
//!
//! One task does both directions, so that nothing is shared. A turn processes at most [`TURN`] messages, ends with the
//! first one behind [`TURN_TIME`], and then yields; requests are not read while replies pile up, which bounds the
//! memory of a peer that reads nothing.

use std::io;
use std::pin::pin;
use std::time::Duration;

use openflow::error::{ErrorCode, reply};
use openflow::message::Body;
use openflow::{Message, Version};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::clock;
use crate::frames::{BadLength, Frames};
use crate::shared::Connected;
use crate::timers::{Due, Policy, Timers};

/// Messages of one connection that are processed before others have their turn. To yield costs more than two
/// changes of flows: the runtime wakes its other thread, which may take the connection over.
const TURN: usize = 512;
/// Nanoseconds after which a message ends its turn.
const TURN_TIME: u64 = 1_000_000;
/// Bytes of one read: more changes of flows than a turn has time for.
const READ: usize = 64 << 10;
/// Bytes on the way out above which no further message is taken from the switch.
const WRITE: usize = 64 << 10;

/// A transport.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Told to stop when its sender is dropped.
pub(crate) type Stop = watch::Receiver<()>;

/// Waits for the order to stop.
pub(crate) async fn stopped(stop: &mut Stop) {
    while stop.changed().await.is_ok() {}
}

/// Reasons for a connection's end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("the peer closed the connection")]
    Closed,
    #[error("{0}")]
    Io(io::Error),
    #[error("no hello within {0:?}")]
    NoHello(Duration),
    #[error("no common version of OpenFlow")]
    NoVersion,
    #[error("a message's length is shorter than its header")]
    BadLength,
    #[error("no answer to an echo request within {0:?}")]
    Inactive(Duration),
    #[error("the peer took no data for {0:?}")]
    Stalled(Duration),
    #[error("the switch has too many connections")]
    TooMany,
    #[error("the agent stopped")]
    Stopped,
}

/// Messages on their way out.
#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
}

impl Outgoing {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }

    fn advance(&mut self, count: usize) {
        self.written += count;
        if self.written >= self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
        }
    }
}

/// Serves a connection to its end.
pub(crate) async fn serve(
    connected: &Connected,
    stream: impl Stream,
    policy: &Policy,
    mut stop: Stop,
) -> End {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut stop = pin!(stopped(&mut stop));
    let mut frames = Frames::default();
    let mut chunk = vec![0; READ];
    let mut out = Outgoing::default();
    let mut timers = Timers::new();
    let mut end: Option<End> = None;
    // TLS may hold back what it was given.
    let mut is_flushed = true;
    let mut was_sending = false;
    loop {
        let status = connected.fetch(&mut out.bytes, WRITE);
        if status.is_closed && end.is_none() {
            end = Some(End::NoVersion);
        }
        if end.is_some() {
            timers.ended();
            if out.bytes.is_empty() && is_flushed {
                break;
            }
        }
        let is_reading = end.is_none() && status.is_ready;
        let has_frame = is_reading && frames.has_next();
        let is_sending = !out.bytes.is_empty() || !is_flushed;
        if is_sending && !was_sending {
            timers.progressed();
        }
        was_sending = is_sending;
        let due = timers.next(policy, status.version.is_some(), is_sending);
        tokio::select! {
            put = put(&mut writer, out.rest()), if is_sending => match put {
                Ok(Put::Written(0)) => return end.unwrap_or(End::Closed),
                Ok(Put::Written(count)) => {
                    is_flushed = false;
                    out.advance(count);
                    timers.progressed();
                    // A peer that makes room is alive, though its echo reply may be far behind.
                    if !out.bytes.is_empty() {
                        timers.heard();
                    }
                }
                Ok(Put::Flushed) => is_flushed = true,
                Err(error) => return end.unwrap_or(End::Io(error)),
            },
            read = reader.read(&mut chunk), if is_reading && !has_frame => match read {
                Ok(0) => end = Some(End::Closed),
                Ok(count) => frames.push(chunk.get(..count).unwrap_or_default()),
                Err(error) => return End::Io(error),
            },
            () = tokio::task::yield_now(), if has_frame => {
                end = take_turn(connected, &mut frames, &mut out, &mut timers);
                connected.note_changes();
            }
            () = connected.rung() => {}
            () = connected.report() => {}
            () = &mut stop, if end.is_none() => end = Some(End::Stopped),
            due = reached(due) => match due {
                Due::Probe => {
                    probe(connected, &mut out, status.version);
                    timers.probed();
                }
                Due::NoHello => return End::NoHello(policy.handshake),
                Due::Stalled => return End::Stalled(policy.stall),
                Due::Inactive => return End::Inactive(policy.probe.unwrap_or_default()),
                Due::Cut => break,
            },
        }
    }
    let end = end.unwrap_or(End::Closed);
    if matches!(end, End::NoVersion | End::BadLength)
        && let Some(cut) = timers.cut()
        && writer.shutdown().await.is_ok()
    {
        // Closing a socket with input unread would destroy the error that is on its way.
        let rest = async { while reader.read(&mut chunk).await.is_ok_and(|count| count > 0) {} };
        let _ = timeout_at(cut, rest).await;
    }
    end
}

/// What became of bytes on their way out.
enum Put {
    /// The transport has taken so many of them.
    Written(usize),
    /// It holds none back.
    Flushed,
}

/// Gives bytes to the transport, or has it send all that it was given.
async fn put(writer: &mut (impl AsyncWrite + Unpin), rest: &[u8]) -> io::Result<Put> {
    match rest.is_empty() {
        true => writer.flush().await.map(|()| Put::Flushed),
        false => writer.write(rest).await.map(Put::Written),
    }
}

/// Processes messages, until others have their turn. Returns the reason if the connection ends.
fn take_turn(
    connected: &Connected,
    frames: &mut Frames,
    out: &mut Outgoing,
    timers: &mut Timers,
) -> Option<End> {
    timers.heard();
    let begin = clock::monotonic();
    for _ in 0..TURN {
        match frames.next() {
            Ok(Some(message)) => {
                let received = connected.receive(message);
                // The clock is read once a message.
                if !received.is_ready || received.at.saturating_sub(begin) >= TURN_TIME {
                    break;
                }
            }
            Ok(None) => break,
            Err(BadLength(header)) => {
                // Replies to the messages before it come first.
                if let Some(version) = connected.fetch(&mut out.bytes, usize::MAX).version {
                    send(connected, out, reply(ErrorCode::BrcBadLen, &header, version));
                }
                return Some(End::BadLength);
            }
        }
    }
    None
}

fn probe(connected: &Connected, out: &mut Outgoing, version: Option<Version>) {
    if let Some(version) = version {
        send(connected, out, Message::new(version, 0, Body::EchoRequest(vec![])));
    }
}

/// Sends a message that the switch does not know of.
fn send(connected: &Connected, out: &mut Outgoing, message: Message) {
    // Every version has echo requests and errors.
    if let Ok(bytes) = message.into_bytes() {
        connected.copy(&bytes);
        out.bytes.extend_from_slice(&bytes);
    }
}

async fn reached(due: Option<(Instant, Due)>) -> Due {
    match due {
        Some((at, due)) => {
            sleep_until(at).await;
            due
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
