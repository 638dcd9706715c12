//! A process at its limit of open files reports messages with descriptors as errors. This test runs alone in its
//! process, because it lowers the limit.
#![allow(clippy::unwrap_used)]

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vhost_user::message::{Request, RingDescriptor};
use vhost_user::socket::{Receiver, send};

#[test]
fn descriptors_without_room() {
    let (theirs, ours) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let call = Request::SetVringCall(RingDescriptor { ring: 0, present: true });
    send(theirs.as_fd(), &call.encode(false), &[theirs.as_fd()]).unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).unwrap();
    let mut files: Vec<OwnedFd> = Vec::new();
    while let Ok(file) = theirs.as_fd().try_clone_to_owned() {
        files.push(file);
    }
    let mut receiver = Receiver::default();
    let error = receiver.receive(ours.as_fd()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no room for the message's file descriptors: the limit of open files is reached; raise it (`ulimit -n`)"
    );
    drop((files, theirs, ours));
    let (theirs, ours) = UnixStream::pair().unwrap();
    send(theirs.as_fd(), &call.encode(false), &[theirs.as_fd()]).unwrap();
    let received = Receiver::default().receive(ours.as_fd()).unwrap().unwrap();
    assert_eq!(received.descriptors.len(), 1);
}
