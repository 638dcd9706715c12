//! The sockets of the server: some listen, one for each connection that may begin at any moment, the others serve.
//!
//! A stack asks each of its sockets about each packet. So there are no more than are needed: a socket is made when one
//! of those that listen gets a client, and removed when its client has gone.
//!
//! Invariant: [`SPARE`] sockets listen, unless there are as many connections as there may be.

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;

use crate::http::{Connection, Progress};

/// Room for a connection's requests and answers, bytes.
const RECEIVE: usize = 8 << 10;
const SEND: usize = 128 << 10;

/// Sockets that listen.
const SPARE: usize = 16;

/// The server's sockets.
pub(crate) struct Listener {
    port: u16,
    most: usize,
    sockets: SocketSet<'static>,
    listening: Vec<SocketHandle>,
    serving: Vec<(SocketHandle, Connection)>,
}

impl Listener {
    /// Listens on a port, for at most so many connections at a time.
    pub(crate) fn new(port: u16, most: usize) -> Self {
        let mut listener = Self {
            port,
            most,
            sockets: SocketSet::new(Vec::new()),
            listening: Vec::new(),
            serving: Vec::new(),
        };
        listener.listen();
        listener
    }

    /// Returns the sockets, for the stack.
    pub(crate) fn sockets(&mut self) -> &mut SocketSet<'static> {
        &mut self.sockets
    }

    fn listen(&mut self) {
        while self.listening.len() < SPARE {
            if self.listening.len() + self.serving.len() >= self.most && !self.reclaim() {
                return;
            }
            let buffer = |size| SocketBuffer::new(vec![0; size]);
            let mut socket = Socket::new(buffer(RECEIVE), buffer(SEND));
            socket.set_nagle_enabled(false);
            socket.set_ack_delay(None);
            if socket.listen(self.port).is_err() {
                return; // port 0 only
            }
            self.listening.push(self.sockets.add(socket));
        }
    }

    /// Removes a socket that only waits for late packets (TIME-WAIT, RFC 9293 §3.6.1). Returns whether there was one.
    fn reclaim(&mut self) -> bool {
        let waits =
            |handle: &SocketHandle| self.sockets.get::<Socket<'_>>(*handle).state() == State::TimeWait;
        let Some(place) = self.serving.iter().position(|(handle, _)| waits(handle)) else { return false };
        let (handle, _) = self.serving.swap_remove(place);
        self.sockets.remove(handle);
        true
    }

    /// Takes the sockets that have got a client, and lets others listen in their place. Call it after each packet: the
    /// next one may begin another connection.
    pub(crate) fn accept(&mut self, now: Instant) {
        let Self { sockets, listening, serving, .. } = self;
        listening.retain(|handle| {
            let listens = sockets.get::<Socket<'_>>(*handle).state() == State::Listen;
            if !listens {
                serving.push((*handle, Connection::new(now)));
            }
            listens
        });
        self.listen();
    }

    /// Serves all connections as far as they go. Returns whether any has moved.
    pub(crate) fn serve(&mut self, now: Instant) -> bool {
        let Self { sockets, serving, .. } = self;
        let mut moved = false;
        serving.retain_mut(|(handle, connection)| {
            let progress = connection.serve(sockets.get_mut(*handle), now);
            if progress == Progress::Ended {
                sockets.remove(*handle);
            }
            moved |= progress == Progress::Moved;
            progress != Progress::Ended
        });
        self.listen();
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_come_and_go_with_clients() {
        let mut listener = Listener::new(80, 20);
        assert_eq!(listener.listening.len(), SPARE);
        // A client that goes at once: its socket is closed.
        let first = listener.listening[0];
        listener.sockets.get_mut::<Socket<'_>>(first).abort();
        listener.accept(Instant::ZERO);
        assert_eq!((listener.listening.len(), listener.serving.len()), (SPARE, 1));
        assert!(!listener.serve(Instant::ZERO));
        assert_eq!((listener.listening.len(), listener.serving.len()), (SPARE, 0));
        assert_eq!(listener.sockets.iter().count(), SPARE);
    }

    #[test]
    fn connections_are_bounded() {
        let mut listener = Listener::new(80, 3);
        for handle in listener.listening.clone() {
            listener.sockets.get_mut::<Socket<'_>>(handle).abort();
        }
        listener.accept(Instant::ZERO);
        assert_eq!((listener.listening.len(), listener.serving.len()), (0, 3));
    }
}
