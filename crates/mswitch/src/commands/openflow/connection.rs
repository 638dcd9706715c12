//! A connection to a bridge's management socket: what `ovs-ofctl` does, without it.
//!
//! Invariant: the bridge never waits for this side: at most [`BATCH`] messages are under way before its replies are read.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use openflow::error::{ErrorCode, ErrorMessage};
use openflow::message::{Body, BundleAdd, BundleControl, BundleControlKind, BundleFlags, Hello, Versions};
use openflow::multipart::{Multipart, Reply, Request};
use openflow::{Message, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::failure::Failure;

/// Messages that are sent before replies are read.
const BATCH: usize = 512;

/// The bundle of a command; a connection has one.
const BUNDLE: u32 = 1;

pub(super) struct Connection {
    stream: UnixStream,
    version: Version,
    last: u32,
}

impl Connection {
    /// Connects, with the newest version that the bridge has and that is not newer than `newest`.
    pub(super) async fn open(path: &Path, newest: Version) -> Result<Self, Failure> {
        let stream = UnixStream::connect(path).await.map_err(|error| {
            let remedy = match error.kind() {
                ErrorKind::PermissionDenied => "; it has the owner, group and mode of the control socket",
                _ => "",
            };
            Failure::new(format_args!("management socket {}: {error}{remedy}", path.display()))
        })?;
        let mut connection = Self { stream, version: newest, last: 0 };
        let ours = Version::ALL.into_iter().filter(|version| *version <= newest);
        let ours = Versions::from_iter(ours);
        connection.send(Body::Hello(Hello::new(ours))).await?;
        let bytes = connection.receive_bytes().await?;
        let (header, hello) = Hello::decode_any(&bytes).map_err(Failure::new)?;
        let common = ours.newest_common(hello.versions(header.version));
        connection.version = common.ok_or_else(|| {
            Failure::new(format_args!(
                "the bridge speaks no version of OpenFlow up to {newest}; see its `versions`"
            ))
        })?;
        Ok(connection)
    }

    /// Returns the version.
    pub(super) fn version(&self) -> Version {
        self.version
    }

    async fn send(&mut self, body: Body) -> Result<u32, Failure> {
        self.last = self.last.wrapping_add(1);
        let bytes = Message::new(self.version, self.last, body).into_bytes().map_err(Failure::new)?;
        self.stream.write_all(&bytes).await.map_err(gone)?;
        Ok(self.last)
    }

    async fn receive_bytes(&mut self) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; openflow::message::HEADER];
        self.stream.read_exact(&mut bytes).await.map_err(gone)?;
        let length = match bytes.get(2..4) {
            Some(&[high, low]) => usize::from(u16::from_be_bytes([high, low])),
            _ => 0,
        };
        if length < bytes.len() {
            return Err(Failure::new("the bridge sent a message without a length; this is a bug in mswitch"));
        }
        let body = bytes.len();
        bytes.resize(length, 0);
        self.stream.read_exact(bytes.get_mut(body..).unwrap_or_default()).await.map_err(gone)?;
        Ok(bytes)
    }

    /// Returns the next message that is no question of the bridge.
    async fn receive(&mut self) -> Result<Message, Failure> {
        loop {
            let bytes = self.receive_bytes().await?;
            let message = Message::decode(&bytes).map_err(Failure::new)?;
            if let Body::EchoRequest(content) = message.body {
                let reply = Message::new(self.version, message.xid, Body::EchoReply(content));
                let bytes = reply.into_bytes().map_err(Failure::new)?;
                self.stream.write_all(&bytes).await.map_err(gone)?;
                continue;
            }
            return Ok(message);
        }
    }

    /// Asks for a list. Returns its parts.
    pub(super) async fn list(&mut self, request: Request) -> Result<Vec<Reply>, Failure> {
        let id = self.send(Body::MultipartRequest(Multipart { more: false, content: request })).await?;
        let mut parts = Vec::new();
        loop {
            let message = self.receive().await?;
            match message.body {
                Body::MultipartReply(reply) if message.xid == id => {
                    parts.push(reply.content);
                    if !reply.more {
                        return Ok(parts);
                    }
                }
                Body::Error(error) if message.xid == id => return Err(refused(&error, self.version)),
                _ => {}
            }
        }
    }

    /// Makes changes. Several are one bundle, of which the bridge makes all or none.
    pub(super) async fn change(&mut self, changes: Vec<Change>) -> Result<(), Failure> {
        let mut asked = BTreeMap::new();
        if changes.len() <= 1 || self.version < Version::V1_4 {
            for batch in batches(changes) {
                for Change { body, text } in batch {
                    let id = self.send(body).await.map_err(|failure| named(&text, failure))?;
                    asked.insert(id, text);
                }
                self.settle(Body::BarrierRequest, &asked).await?;
                asked.clear();
            }
            return Ok(());
        }
        let flags = BundleFlags::ATOMIC | BundleFlags::ORDERED;
        let control =
            |kind| Body::BundleControl(BundleControl { bundle: BUNDLE, kind, flags, properties: Vec::new() });
        self.settle(control(BundleControlKind::OpenRequest), &asked).await?;
        for batch in batches(changes) {
            for Change { body, text } in batch {
                let id = self.last.wrapping_add(1);
                let message = Message::new(self.version, id, body).into_bytes();
                let message = message.map_err(|error| named(&text, Failure::new(error)))?;
                let add = BundleAdd { bundle: BUNDLE, flags, message, trailing: Vec::new() };
                self.send(Body::BundleAdd(add)).await.map_err(|failure| named(&text, failure))?;
                asked.insert(id, text);
            }
            self.settle(Body::BarrierRequest, &asked).await?;
        }
        self.settle(control(BundleControlKind::CommitRequest), &asked).await
    }

    /// Sends a request and waits for its reply. Returns the first error meanwhile, with the text of the change that caused
    /// it. `asked`: the texts of changes.
    async fn settle(&mut self, request: Body, asked: &BTreeMap<u32, String>) -> Result<(), Failure> {
        let id = self.send(request).await?;
        let mut first = None;
        loop {
            let message = self.receive().await?;
            if let Body::Error(error) = &message.body {
                let failure = refused(error, self.version);
                let failure = match asked.get(&message.xid) {
                    Some(text) => named(text, failure),
                    None => failure,
                };
                first = first.or(Some(failure));
            }
            if message.xid == id {
                return first.map_or(Ok(()), Err);
            }
        }
    }
}

/// A change, and the text that asks for it.
pub(super) struct Change {
    pub(super) body: Body,
    pub(super) text: String,
}

/// Splits changes into parts of [`BATCH`].
fn batches(changes: Vec<Change>) -> impl Iterator<Item = Vec<Change>> {
    let mut rest = changes.into_iter();
    std::iter::from_fn(move || {
        let batch: Vec<Change> = rest.by_ref().take(BATCH).collect();
        (!batch.is_empty()).then_some(batch)
    })
}

fn named(text: &str, failure: Failure) -> Failure {
    failure.about(text)
}

/// Returns the reason for which the bridge refuses a request.
fn refused(error: &ErrorMessage, version: Version) -> Failure {
    match error.code(version) {
        Some(code) => match remedy(code) {
            Some(remedy) => Failure::new(format_args!("refused with {code}; {remedy}")),
            None => Failure::new(format_args!("refused with {code}")),
        },
        None => {
            Failure::new(format_args!("refused with error {}, {}", error.numbers.kind, error.numbers.code))
        }
    }
}

/// Returns what to do about an error that people meet.
fn remedy(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::BmcBadPrereq => "name the protocol of a field, as in `ip,nw_dst=10.0.0.1`",
        ErrorCode::BacMatchInconsistent => {
            "match the protocol that the action changes, as in `ip,actions=dec_ttl`"
        }
        ErrorCode::BacBadOutGroup => "add the group first",
        ErrorCode::MmfcUnknownMeter => "add the meter first",
        ErrorCode::FmfcTableFull => "`max-flows` of the bridge limits its flows",
        _ => return None,
    })
}

fn gone(error: std::io::Error) -> Failure {
    Failure::new(format_args!("the bridge closed the connection: {error}"))
}
