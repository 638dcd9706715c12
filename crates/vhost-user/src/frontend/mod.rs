//! The front-end's side, for tests and tools: a [`Connection`] that sends any request, and a [`NetDevice`] with its own
//! driver.

mod device;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

pub use device::{DeviceConfig, HEADER_LEN, NetDevice, PacketHeader};

use crate::driver::DriverError;
use crate::message::{Answer, DecodeError, Request};
use crate::socket::{ReceiveError, Receiver, dial, send};
use crate::virtqueue::ConfigError;

/// Time allowed for a back-end to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Reasons for a front-end's failure.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// The socket failed.
    #[error("control socket: {0}")]
    Io(#[from] io::Error),
    /// No answer was received.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// An answer cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The back-end has closed the connection.
    #[error("the back-end closed the connection")]
    Closed,
    /// The answer does not match the request.
    #[error("{0} was answered with {1:?}")]
    Answer(&'static str, Answer),
    /// A required feature is not offered.
    #[error("the back-end does not offer features {0:#x}")]
    NotOffered(u64),
    /// A queue cannot be made.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device broke a rule.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The device violated a rule of network devices.
    #[error("{0}")]
    Device(&'static str),
}

/// A connection with a back-end.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    receiver: Receiver,
}

impl Connection {
    /// Connects to a listening back-end.
    pub fn dial(path: &Path) -> io::Result<Connection> {
        Connection::new(dial(path)?)
    }

    /// Makes a connection over a stream socket.
    pub fn new(socket: OwnedFd) -> io::Result<Connection> {
        ioctl_fionbio(&socket, false)?;
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, direction, Some(ANSWER_TIMEOUT))?;
        }
        Ok(Connection { socket, receiver: Receiver::default() })
    }

    /// Returns the socket, for messages that no front-end should send.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a request that has no answer.
    pub fn tell(&mut self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<(), FrontendError> {
        Ok(send(self.socket.as_fd(), &request.encode(false), descriptors)?)
    }

    /// Sends a request and waits for its answer; `need_reply` asks for one where the protocol makes it optional.
    pub fn ask(
        &mut self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
        need_reply: bool,
    ) -> Result<Answer, FrontendError> {
        send(self.socket.as_fd(), &request.encode(need_reply), descriptors)?;
        let received = self.receiver.receive(self.socket.as_fd())?.ok_or(FrontendError::Closed)?;
        Ok(Answer::decode(&received.header, &received.payload)?)
    }

    /// Sends a request whose answer is a number.
    pub fn number(&mut self, request: &Request, what: &'static str) -> Result<u64, FrontendError> {
        match self.ask(request, &[], false)? {
            Answer::Number(number) => Ok(number),
            other => Err(FrontendError::Answer(what, other)),
        }
    }

    /// Whether the back-end has closed the connection. Does not wait.
    pub fn is_closed(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Waits until the back-end closes the connection.
    pub fn wait_closed(&mut self) -> Result<(), FrontendError> {
        while self.receiver.receive(self.socket.as_fd())?.is_some() {}
        Ok(())
    }
}
