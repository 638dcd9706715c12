//! The streams of a dummy port: frames with their length in front, two bytes, in network byte order.
//!
//! A port connects to one stream, again whenever the connection ends, or listens and talks to all that connect.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use socket_file::{SocketAccess, SocketFile};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::{JoinHandle, JoinSet};

use super::incoming::Incoming;
use super::options::Options;
use super::outgoing::Outgoing;
use super::traffic::{Arrival, Traffic};
use super::{Dummies, StreamState};
use crate::OpenError;

/// Frames that wait for a stream at most.
const QUEUE: usize = 100;
/// The shortest frame: an Ethernet header.
const SHORTEST: usize = 14;
/// Delays between attempts to connect. The first are short: a test that moves its clock forward may not wait for them.
const BACKOFF: std::ops::RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(5);

/// The port's ends.
#[derive(Clone)]
pub(super) struct Ends {
    pub(super) incoming: Arc<Incoming>,
    pub(super) outgoing: Arc<Outgoing>,
    pub(super) traffic: Arc<Traffic>,
    pub(super) dummies: Dummies,
    /// The port's name.
    pub(super) name: Arc<str>,
}

/// Starts the streams of a port; `None` if it has none. Aborting the task ends them.
pub(super) fn start(
    runtime: &tokio::runtime::Handle,
    options: &Options,
    ends: Ends,
) -> Result<Option<JoinHandle<()>>, OpenError> {
    let path = |value: &Option<String>| Some(PathBuf::from(value.as_ref()?.split_once(':')?.1));
    if let Some(path) = path(&options.stream) {
        ends.outgoing.set_stream_state(StreamState::Disconnected);
        return Ok(Some(runtime.spawn(connect(path, ends))));
    }
    let Some(path) = path(&options.pstream) else { return Ok(None) };
    let failed = |error: &dyn std::error::Error| OpenError(format!("pstream: {error}"));
    let (file, listener) =
        SocketFile::listen(&path, SocketAccess::default()).map_err(|error| failed(&error))?;
    let _context = runtime.enter();
    let listener = UnixListener::from_std(listener).map_err(|error| failed(&error))?;
    Ok(Some(runtime.spawn(accept(listener, file, ends))))
}

async fn connect(path: PathBuf, ends: Ends) {
    let mut pause = *BACKOFF.start();
    loop {
        if let Ok(stream) = UnixStream::connect(&path).await {
            pause = *BACKOFF.start();
            let frames = joined(&ends, &stream);
            ends.outgoing.set_stream_state(StreamState::Connected);
            // Whatever ends a connection, the next one follows.
            let _ = converse(stream, &ends, frames).await;
            ends.outgoing.set_stream_state(StreamState::Disconnected);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(*BACKOFF.end());
    }
}

/// `_file` is the listener's, and goes with it.
async fn accept(listener: UnixListener, _file: SocketFile, ends: Ends) {
    let mut streams = JoinSet::new();
    loop {
        while streams.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let ends = ends.clone();
                // Before the first frame that the other end may await.
                let frames = joined(&ends, &stream);
                streams.spawn(async move { converse(stream, &ends, frames).await });
            }
            Err(_) => tokio::time::sleep(*BACKOFF.start()).await,
        }
    }
}

/// Joins another stream to the port, and returns the frames for it.
fn joined(ends: &Ends, stream: &UnixStream) -> Receiver<Vec<u8>> {
    let (sender, frames) = channel(QUEUE);
    ends.outgoing.add_stream(sender, is_own(stream).then(|| ends.traffic.clone()));
    frames
}

/// Whether the other end is in this process.
fn is_own(stream: &UnixStream) -> bool {
    let peer = stream.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok());
    peer == Some(std::process::id())
}

/// Moves frames in both directions until the connection ends.
async fn converse(stream: UnixStream, ends: &Ends, mut frames: Receiver<Vec<u8>>) -> io::Result<()> {
    let is_own = is_own(&stream);
    let (mut reader, mut writer) = stream.into_split();
    let read = async {
        loop {
            let length = usize::from(reader.read_u16().await?);
            if length < SHORTEST {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            let mut frame = vec![0; length];
            reader.read_exact(&mut frame).await?;
            // Nothing waits for the frame.
            let arrival = is_own.then(|| Arrival(ends.traffic.clone()));
            let frame = ends.dummies.tell(&ends.name, frame).await;
            drop(ends.incoming.push(frame, arrival));
        }
    };
    let write = async {
        while let Some(frame) = frames.recv().await {
            // No frame of the fabric is longer than the prefix can tell.
            let Ok(length) = u16::try_from(frame.len()) else { continue };
            let mut bytes = length.to_be_bytes().to_vec();
            bytes.extend_from_slice(&frame);
            writer.write_all(&bytes).await?;
        }
        Ok(())
    };
    tokio::select! {
        done = read => done,
        done = write => done,
    }
}
