//! A connection to a switch.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use openflow::Message;
use openflow::message::{Body, Header, Hello, Versions};

use crate::VERSION;
use crate::failure::Failure;

/// Time in which the switch has to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection whose versions are negotiated.
pub(crate) struct Connection {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Connection {
    /// Connects to a bridge's management socket.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let stream =
            UnixStream::connect(path).map_err(|error| Failure::Connect { path: path.to_owned(), error })?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let answers = BufReader::new(stream.try_clone()?);
        let mut connection = Self { stream, answers };
        let hello = Body::Hello(Hello::new(Versions::from_iter([VERSION])));
        connection.send(&Message::new(VERSION, 0, hello).into_bytes()?)?;
        Ok(connection)
    }

    /// Sends encoded messages.
    pub(crate) fn send(&mut self, messages: &[u8]) -> Result<(), Failure> {
        Ok(self.stream.write_all(messages)?)
    }

    /// Waits for the answer to the request that has this transaction id and that `is_answer` knows.
    pub(crate) fn wait_for(&mut self, xid: u32, is_answer: fn(&Body) -> bool) -> Result<(), Failure> {
        loop {
            let message = self.read()?;
            match message.body {
                Body::Error(error) => {
                    let name = error.code(VERSION).map(|code| code.name().to_owned());
                    let reason = name.unwrap_or_else(|| format!("{error:?}"));
                    return Err(Failure::Refused { batch: message.xid, reason });
                }
                Body::EchoRequest(content) => {
                    let reply = Message::new(VERSION, message.xid, Body::EchoReply(content));
                    self.send(&reply.into_bytes()?)?;
                }
                body if message.xid == xid && is_answer(&body) => return Ok(()),
                _ => {}
            }
        }
    }

    fn read(&mut self) -> Result<Message, Failure> {
        let mut bytes = vec![0; 8];
        self.answers.read_exact(&mut bytes)?;
        let length = Header::peek(&bytes).map_or(0, |header| usize::from(header.length));
        bytes.resize(length.max(8), 0);
        self.answers.read_exact(bytes.get_mut(8..).unwrap_or_default())?;
        Message::decode(&bytes).map_err(Failure::Decode)
    }
}
