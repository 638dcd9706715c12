//! One connection: messages in and out of a stream.
//!
//! Invariant: [`Connection::turn`] may be dropped at any await without losing or repeating a byte.

use std::io;

use serde_json::Value as Json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until};

use crate::message::Message;
use crate::remote::Stream;
use crate::splitter::{SplitError, Splitter};

const READ_SIZE: usize = 64 * 1024;

/// What a turn did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It received or sent bytes.
    Moved,
    /// The deadline passed.
    Deadline,
    /// The peer closed the connection.
    Closed,
}

pub(crate) struct Connection {
    reader: ReadHalf<Box<dyn Stream>>,
    writer: WriteHalf<Box<dyn Stream>>,
    splitter: Splitter,
    read: Vec<u8>,
    out: Vec<u8>,
    /// Bytes of `out` already sent.
    sent: usize,
    /// When bytes last arrived.
    pub(crate) heard: Instant,
}

impl Connection {
    pub(crate) fn new(stream: Box<dyn Stream>, max_message: usize) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self {
            reader,
            writer,
            splitter: Splitter::new(max_message),
            read: vec![0; READ_SIZE],
            out: Vec::new(),
            sent: 0,
            heard: Instant::now(),
        }
    }

    /// Queues a message.
    pub(crate) fn send(&mut self, message: &Message) {
        let json: Json = message.encode();
        self.out.drain(..self.sent.min(self.out.len()));
        self.sent = 0;
        self.out.extend_from_slice(json.to_string().as_bytes());
    }

    /// Returns the number of bytes that wait to be sent.
    pub(crate) fn backlog(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Returns the next message received, as text.
    pub(crate) fn next_message(&mut self) -> Result<Option<&[u8]>, SplitError> {
        self.splitter.next_message()
    }

    /// Waits until bytes have been received or sent.
    pub(crate) async fn turn(&mut self, deadline: Option<Instant>) -> io::Result<Turn> {
        let waiting = self.out.get(self.sent..).unwrap_or_default();
        tokio::select! {
            count = self.reader.read(&mut self.read) => {
                let count = count?;
                if count == 0 {
                    return Ok(Turn::Closed);
                }
                self.heard = Instant::now();
                self.splitter.push(self.read.get(..count).unwrap_or_default());
                Ok(Turn::Moved)
            }
            count = self.writer.write(waiting), if !waiting.is_empty() => {
                match count? {
                    0 => Ok(Turn::Closed),
                    count => {
                        self.sent += count;
                        Ok(Turn::Moved)
                    }
                }
            }
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                Ok(Turn::Deadline)
            }
        }
    }
}
