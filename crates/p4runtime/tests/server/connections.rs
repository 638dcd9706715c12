//! Connections: sockets, handshakes, limits, the end.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use p4runtime::{Listen, Server, Settings, StartError};
use p4runtime_proto::v1::CapabilitiesRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tonic::Code;

use super::fake::Fake;
use super::world::{Client, World, soon};

async fn is_served(mut client: Client) -> bool {
    soon(client.capabilities(CapabilitiesRequest::default())).await.is_ok()
}

/// Waits until the server closes the connection; returns what it sent.
async fn closed(mut stream: UnixStream) -> Vec<u8> {
    let mut received = vec![];
    let _ = soon(stream.read_to_end(&mut received)).await;
    received
}

#[tokio::test]
async fn the_end_is_told_and_leaves_no_socket() {
    let world = World::new(|settings| settings.access.mode = 0o600);
    let mode = std::fs::metadata(&world.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut controller = world.claimed(1).await;
    let end = tokio::spawn(async move { (controller.end().await, controller) });
    soon(world.server.shutdown()).await;
    let (status, mut controller) = soon(end).await.unwrap();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "the server is stopping"));
    assert!(!world.socket.exists());
    assert!(controller.write(1, vec![]).await.is_err());
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let world = World::new(|_| ());
    let start = |path: &std::path::Path| {
        let settings = Settings { listen: vec![Listen::Unix(path.into())], ..Settings::default() };
        Server::start(&Handle::current(), settings, Arc::new(Fake::default()))
    };
    let error = start(&world.socket).err().unwrap();
    assert!(matches!(&error, StartError::Unix(_)), "{error}");
    let stale = world.socket.with_extension("stale");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    let server = start(&stale).unwrap();
    assert!(is_served(world.client().await).await);
    drop(server);
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap();
    let settings = Settings { listen: vec![Listen::Tcp(address)], ..Settings::default() };
    let error = Server::start(&Handle::current(), settings, Arc::new(Fake::default())).err().unwrap();
    assert!(error.to_string().starts_with(&format!("cannot listen on tcp:{address}: ")), "{error}");
    let settings = Settings { devices: Default::default(), ..Settings::default() };
    let error = Server::start(&Handle::current(), settings, Arc::new(Fake::default())).err().unwrap();
    assert!(matches!(error, StartError::NoDevice));
}

#[tokio::test]
async fn other_protocols_and_silence_are_cut_off() {
    let world = World::new(|settings| settings.limits.handshake = std::time::Duration::from_millis(200));
    let mut other = UnixStream::connect(&world.socket).await.unwrap();
    other.write_all(b"GET / HTTP/1.1\r\nHost: switch\r\n\r\n").await.unwrap();
    assert_eq!(closed(other).await, b"");
    let silent = UnixStream::connect(&world.socket).await.unwrap();
    assert_eq!(closed(silent).await, b"");
    // HTTP/2, then garbage: a frame of an unknown type with a length beyond all limits.
    let mut garbage = UnixStream::connect(&world.socket).await.unwrap();
    garbage.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    garbage.write_all(&[0xff; 4096]).await.unwrap();
    closed(garbage).await;
    assert!(is_served(world.client().await).await);
}

#[tokio::test]
async fn unfinished_handshakes_give_way_to_new_connections() {
    let world = World::new(|settings| settings.limits.handshakes = 2);
    let mut silent = vec![];
    for _ in 0..3 {
        silent.push(UnixStream::connect(&world.socket).await.unwrap());
    }
    assert_eq!(closed(silent.remove(0)).await, b"", "the oldest one");
    assert!(is_served(world.client().await).await);
}

#[tokio::test]
async fn connections_are_limited() {
    let world = World::new(|settings| settings.limits.connections = 2);
    let (one, two) = (world.client().await, world.client().await);
    assert!(is_served(one.clone()).await && is_served(two.clone()).await);
    assert_eq!(closed(UnixStream::connect(&world.socket).await.unwrap()).await, b"");
    drop(one);
    // Its place is free soon.
    soon(async {
        loop {
            let mut stream = UnixStream::connect(&world.socket).await.unwrap();
            let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
            if stream.read_u8().await.is_ok() {
                break;
            }
        }
    })
    .await;
    assert!(is_served(two).await);
}
