//! HTTP/1.1 as far as a benchmark needs it (RFC 9112): GET and HEAD, connections that stay open, bodies of any length.
//!
//! Clients are hostile. Invariants: a request has at most [`LONGEST`] bytes; a client that does not go on with its
//! handshake or request or does not read its answer is disconnected after [`PATIENCE`], an idle one after [`IDLE`].

use std::fmt::Write;

use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};

/// Longest request without a body, bytes.
const LONGEST: usize = 8 << 10;
const PATIENCE: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(60);
/// Longest body of an answer, bytes.
const LONGEST_BODY: usize = 64 << 20;

/// Bytes of bodies: their content does not matter.
static BODY: [u8; 16 << 10] = [b'x'; 16 << 10];

/// What serving a connection has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Bytes were read or written.
    Moved,
    /// The client or the stack is the next to act.
    Waiting,
    /// The connection is over.
    Ended,
}

/// The connection of one socket of the stack.
pub(crate) struct Connection {
    request: Vec<u8>,
    answer: Answer,
    /// Time of the last byte moved.
    last: Instant,
}

/// What is left of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    head: Vec<u8>,
    sent: usize,
    body: usize,
    is_last: bool,
}

impl Answer {
    fn is_sent(&self) -> bool {
        self.sent == self.head.len() && self.body == 0
    }
}

impl Connection {
    pub(crate) fn new(now: Instant) -> Self {
        Self { request: Vec::new(), answer: Answer::default(), last: now }
    }

    /// Reads requests and writes answers as far as the socket allows.
    pub(crate) fn serve(&mut self, socket: &mut tcp::Socket<'_>, now: Instant) -> Progress {
        if !socket.is_open() {
            return Progress::Ended;
        }
        // Neither before the handshake has ended nor after the connection was closed here.
        let is_open = socket.may_send();
        let moved = is_open && self.talk(socket);
        if moved {
            self.last = now;
        }
        let is_idle = is_open && self.request.is_empty() && self.answer.is_sent();
        if now - self.last > if is_idle { IDLE } else { PATIENCE } {
            socket.abort();
        }
        if moved { Progress::Moved } else { Progress::Waiting }
    }

    /// Answers requests until the client or the socket's room is the next to act.
    fn talk(&mut self, socket: &mut tcp::Socket<'_>) -> bool {
        let mut moved = false;
        loop {
            moved |= self.send(socket);
            if !self.answer.is_sent() {
                break;
            }
            if self.answer.is_last {
                socket.close();
                break;
            }
            moved |= self.receive(socket);
            match head_len(&self.request) {
                Some(len) => {
                    let head: Vec<u8> = self.request.drain(..len).collect();
                    self.answer = answer(&head);
                }
                None if self.request.len() >= LONGEST => {
                    self.answer = refusal("431 Request Header Fields Too Large");
                }
                None if !socket.may_recv() => {
                    socket.close();
                    break;
                }
                None => break,
            }
        }
        moved
    }

    fn receive(&mut self, socket: &mut tcp::Socket<'_>) -> bool {
        let room = LONGEST.saturating_sub(self.request.len());
        let taken = socket.recv(|data| {
            let part = data.get(..data.len().min(room)).unwrap_or_default();
            self.request.extend_from_slice(part);
            (part.len(), part.len())
        });
        taken.is_ok_and(|taken| taken > 0)
    }

    fn send(&mut self, socket: &mut tcp::Socket<'_>) -> bool {
        let mut moved = false;
        while !self.answer.is_sent() {
            let Answer { head, sent, body, .. } = &mut self.answer;
            let part = match head.get(*sent..).filter(|rest| !rest.is_empty()) {
                Some(rest) => rest,
                None => BODY.get(..BODY.len().min(*body)).unwrap_or_default(),
            };
            match socket.send_slice(part) {
                Ok(0) => break,
                Ok(written) if *sent < head.len() => *sent += written,
                Ok(written) => *body -= written,
                // The client has gone.
                Err(_) => {
                    self.answer = Answer { is_last: true, ..Answer::default() };
                    break;
                }
            }
            moved = true;
        }
        moved
    }
}

/// Length of a complete request in front, with the empty line that ends it.
fn head_len(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// Answers a complete request.
fn answer(head: &[u8]) -> Answer {
    let Ok(head) = std::str::from_utf8(head) else { return refusal("400 Bad Request") };
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(path), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return refusal("400 Bad Request");
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return refusal("505 HTTP Version Not Supported");
    }
    if !matches!(method, "GET" | "HEAD") {
        return refusal("405 Method Not Allowed");
    }
    let fields = lines.filter_map(|line| line.split_once(':'));
    let field = |name: &str| {
        let mut named = fields.clone().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value.trim())
    };
    if field("transfer-encoding").is_some() || field("content-length").is_some_and(|length| length != "0") {
        return refusal("413 Content Too Large");
    }
    let is_last = match field("connection") {
        Some(option) => option.eq_ignore_ascii_case("close"),
        None => version == "HTTP/1.0",
    };
    let text = "served by a stack in user space\n";
    let (own, length) = match path.strip_prefix('/') {
        Some("") => (text, text.len()),
        Some(digits) => match digits.parse() {
            Ok(length) if length <= LONGEST_BODY => ("", length),
            _ => return refusal("404 Not Found"),
        },
        None => return refusal("400 Bad Request"),
    };
    let mut answer = text_head("200 OK", length, is_last);
    if method == "GET" {
        answer.head.extend_from_slice(own.as_bytes());
        answer.body = length - own.len();
    }
    answer
}

/// An answer that ends the connection.
fn refusal(status: &str) -> Answer {
    text_head(status, 0, true)
}

fn text_head(status: &str, length: usize, is_last: bool) -> Answer {
    let mut head = String::new();
    // Writing to a String cannot fail.
    let _ = write!(head, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nContent-Type: text/plain\r\n");
    head += if is_last { "Connection: close\r\n\r\n" } else { "Connection: keep-alive\r\n\r\n" };
    Answer { head: head.into_bytes(), sent: 0, body: 0, is_last }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(request: &str) -> (String, usize, bool) {
        let answer = answer(request.as_bytes());
        let head = String::from_utf8(answer.head).unwrap();
        (head.split("\r\n").next().unwrap().replace("HTTP/1.1 ", ""), answer.body, answer.is_last)
    }

    #[test]
    fn requests_get_what_they_ask_for() {
        let ok = |body, is_last| ("200 OK".to_owned(), body, is_last);
        assert_eq!(told("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), ok(0, false));
        assert_eq!(told("GET /65536 HTTP/1.1\r\n\r\n"), ok(65_536, false));
        assert_eq!(told("HEAD /65536 HTTP/1.1\r\nConnection: Close\r\n\r\n"), ok(0, true));
        assert_eq!(told("GET /1 HTTP/1.0\r\n\r\n"), ok(1, true));
        assert_eq!(told("GET /1 HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"), ok(1, false));
        for (request, status) in [
            ("GET /\r\n\r\n", "400 Bad Request"),
            ("GET x HTTP/1.1\r\n\r\n", "400 Bad Request"),
            ("GET / HTTP/2\r\n\r\n", "505 HTTP Version Not Supported"),
            ("PUT / HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", "413 Content Too Large"),
            ("GET /here HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("GET /99999999999 HTTP/1.1\r\n\r\n", "404 Not Found"),
        ] {
            assert_eq!(told(request), (status.into(), 0, true), "{request}");
        }
    }

    #[test]
    fn a_request_ends_with_an_empty_line() {
        assert_eq!(head_len(b"GET / HTTP/1.1\r\n\r\nGET"), Some(18));
        assert_eq!(head_len(b"GET / HTTP/1.1\r\n"), None);
    }
}
