//! Controllers written here against an agent: over Unix sockets and TCP, made and accepted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::Duration;

use ofagent::{Agent, FailMode, Settings, StartError};
use openflow::message::{Body, PacketOut, Role, RoleMessage};
use openflow::{PortNo, action};
use support::{Peer, VERSION, World, punix, set_port, unix};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};

async fn accept(listener: &UnixListener) -> Peer<UnixStream> {
    Peer::greet(listener.accept().await.unwrap().0).await
}

#[tokio::test]
async fn a_controller_that_restarts_is_connected_again() {
    let world = World::new(|settings, path| settings.controllers = vec![unix(&path.join("c"))]);
    let path = world.path("c");
    world.until("refused", |world| world.controller().last_error.is_some()).await;
    let error = world.controller().last_error.unwrap();
    assert_eq!(error, "No such file or directory (os error 2)");
    assert!(!world.controller().is_connected());
    for _ in 0..2 {
        let listener = UnixListener::bind(&path).unwrap();
        let mut controller = accept(&listener).await;
        controller.barrier().await;
        let state = world.controller();
        assert!(state.is_connected() && state.connections.len() == 1);
        assert_eq!((state.connections[0].version, state.connections[0].role), (Some(VERSION), Role::Equal));
        std::fs::remove_file(&path).unwrap();
        drop((listener, controller));
        world.until("disconnected", |world| !world.controller().is_connected()).await;
    }
    world.agent.shutdown().await;
}

#[tokio::test]
async fn roles_and_asynchronous_messages() {
    let world = World::new(|settings, path| {
        settings.controllers = vec![unix(&path.join("c1")), unix(&path.join("c2"))];
    });
    let listeners = ["c1", "c2"].map(|name| UnixListener::bind(world.path(name)).unwrap());
    let mut first = accept(&listeners[0]).await;
    let mut second = accept(&listeners[1]).await;
    for controller in [&mut first, &mut second] {
        let primary = RoleMessage { role: Role::Primary, short_id: 0, generation_id: 1 };
        let reply = controller.ask(Body::RoleRequest(primary)).await;
        assert!(matches!(reply, Body::RoleReply(RoleMessage { role: Role::Primary, .. })));
    }
    let roles: Vec<Role> = world.agent.controllers().iter().map(|state| state.connections[0].role).collect();
    assert_eq!(roles, [Role::Secondary, Role::Primary]);
    assert!(matches!(first.read().await.unwrap().body, Body::RoleStatus(_)));
    set_port(&world.switch, 2, false);
    for controller in [&mut first, &mut second] {
        assert!(matches!(controller.read().await.unwrap().body, Body::PortStatus(_)));
    }
    world.agent.shutdown().await;
}

#[tokio::test]
async fn controllers_are_accepted_over_tcp() {
    let world = World::new(|settings, _| settings.controllers = vec!["ptcp:0:[::1]".parse().unwrap()]);
    world.until("listening", |world| world.controller().address.is_some()).await;
    let address = world.controller().address.unwrap();
    let mut controller = Peer::greet(TcpStream::connect(address).await.unwrap()).await;
    controller.barrier().await;
    let state = world.controller();
    assert!(state.is_connected());
    assert!(state.connections[0].peer.starts_with("tcp:[::1]:"), "{state:?}");
    // Asynchronous messages only for those that ask.
    set_port(&world.switch, 2, false);
    controller.send(5, Body::BarrierRequest).await;
    assert_eq!(controller.read().await.unwrap().body, Body::BarrierReply);
    world.agent.shutdown().await;
    assert_eq!(controller.read().await, None);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_passive_target_waits_until_it_can_listen() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p");
    let other = UnixListener::bind(&path).unwrap();
    let target = punix(&path);
    let world = World::new(|settings, _| settings.controllers = vec![target]);
    world.until("refused", |world| world.controller().last_error.is_some()).await;
    let error = world.controller().last_error.unwrap();
    assert_eq!(error, format!("{}: another process listens on this socket", path.display()));
    drop(other);
    world.until("free", |_| std::os::unix::net::UnixStream::connect(&path).is_ok()).await;
    let mut controller = Peer::greet(UnixStream::connect(&path).await.unwrap()).await;
    controller.barrier().await;
    world.agent.shutdown().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn connections_above_the_limit_are_refused_until_one_goes() {
    let world = World::new(|settings, path| {
        settings.controllers = vec![punix(&path.join("p"))];
        settings.limits.passive = 2;
    });
    let path = world.path("p");
    world.until("listening", |_| path.exists()).await;
    let mut first = Peer::greet(UnixStream::connect(&path).await.unwrap()).await;
    let mut second = Peer::greet(UnixStream::connect(&path).await.unwrap()).await;
    let mut third = UnixStream::connect(&path).await.unwrap();
    assert_eq!(third.read(&mut [0; 8]).await.unwrap_or(0), 0);
    assert_eq!(world.controller().refused, 1);
    first.barrier().await;
    // Other sockets have limits of their own.
    Peer::greet(UnixStream::connect(world.path("br0.mgmt")).await.unwrap()).await.barrier().await;
    drop(first);
    world.until("one left", |world| world.controller().connections.len() == 1).await;
    let mut fourth = Peer::greet(UnixStream::connect(&path).await.unwrap()).await;
    fourth.barrier().await;
    second.barrier().await;
    world.agent.shutdown().await;
}

#[tokio::test]
async fn tools_above_the_limit_are_refused_and_controllers_are_not() {
    let world = World::new(|settings, path| {
        settings.controllers = vec![punix(&path.join("p"))];
        settings.limits.management = 1;
    });
    let mut tool = Peer::greet(UnixStream::connect(world.path("br0.mgmt")).await.unwrap()).await;
    let mut refused = UnixStream::connect(world.path("br0.mgmt")).await.unwrap();
    assert_eq!(refused.read(&mut [0; 8]).await.unwrap_or(0), 0);
    let path = world.path("p");
    world.until("listening", |_| path.exists()).await;
    Peer::greet(UnixStream::connect(&path).await.unwrap()).await.barrier().await;
    tool.barrier().await;
    world.agent.shutdown().await;
}

#[tokio::test]
async fn bad_input_ends_only_its_connection() {
    let world = World::new(|settings, path| settings.controllers = vec![punix(&path.join("p"))]);
    let path = world.path("p");
    world.until("listening", |_| path.exists()).await;
    let mut good = Peer::greet(UnixStream::connect(&path).await.unwrap()).await;
    // No hello; lengths below a header; no OpenFlow at all; the longest message, cut off.
    let inputs: [&[u8]; 4] = [
        &[4, 18, 0, 8, 0, 0, 0, 1],
        &[4, 0, 0, 0, 0, 0, 0, 1],
        b"GET / HTTP/1.1\r\n\r\n",
        &[4, 2, 0xff, 0xff],
    ];
    for input in inputs {
        let mut bad = UnixStream::connect(&path).await.unwrap();
        bad.write_all(input).await.unwrap();
        bad.shutdown().await.unwrap();
        let mut rest = vec![];
        let _ = bad.read_to_end(&mut rest).await;
        good.barrier().await;
    }
    // Messages of unknown kinds are refused one by one.
    let mut odd = Peer::greet(UnixStream::connect(&path).await.unwrap()).await;
    for kind in 30..=255 {
        odd.stream.write_all(&[4, kind, 0, 9, 0, 0, 0, kind, 1]).await.unwrap();
        let reply = odd.read().await.unwrap();
        assert!(matches!(reply.body, Body::Error(_)) && reply.xid == u32::from(kind), "{reply:?}");
    }
    odd.barrier().await;
    good.barrier().await;
    drop(odd);
    world.until("one left", |world| world.controller().connections.len() == 1).await;
    world.agent.shutdown().await;
}

#[tokio::test]
async fn a_controller_that_reads_nothing_leaves_others_alone() {
    let world = World::new(|settings, path| {
        settings.controllers = vec![unix(&path.join("c1")), unix(&path.join("c2"))];
        settings.probe = None;
        settings.limits.controller_stall = Duration::from_millis(300);
    });
    let listeners = ["c1", "c2"].map(|name| UnixListener::bind(world.path(name)).unwrap());
    let mut deaf = accept(&listeners[0]).await;
    let mut good = accept(&listeners[1]).await;
    deaf.barrier().await;
    good.barrier().await;
    let mut flips = 0;
    let is_deaf_cut = |world: &World| {
        let [first, _] = world.agent.controllers().try_into().unwrap();
        first.last_error.as_deref() == Some("the peer took no data for 300ms")
    };
    while !is_deaf_cut(&world) {
        for _ in 0..1000 {
            flips += 1;
            set_port(&world.switch, 1, flips % 2 == 0);
        }
        for _ in 0..1000 {
            assert!(matches!(good.read().await.unwrap().body, Body::PortStatus(_)));
        }
    }
    good.barrier().await;
    world.agent.shutdown().await;
}

#[tokio::test]
async fn fail_mode() {
    let start = |mode| {
        World::new(move |settings, path| {
            settings.controllers = vec![unix(&path.join("c"))];
            settings.fail_mode = mode;
            settings.probe = Some(Duration::from_millis(200));
        })
    };
    let secure = start(FailMode::Secure);
    let mut world = start(FailMode::Standalone);
    let path = world.path("c");
    world.until("standalone", |world| world.agent.is_standalone()).await;
    assert!(!secure.agent.is_standalone());
    let listener = UnixListener::bind(&path).unwrap();
    let mut controller = accept(&listener).await;
    controller.barrier().await;
    assert!(!world.agent.is_standalone());
    std::fs::remove_file(&path).unwrap();
    let lost = std::time::Instant::now();
    drop((listener, controller));
    world.until("standalone", |world| world.agent.is_standalone()).await;
    assert!(lost.elapsed() >= Duration::from_millis(600));
    // A bridge without controllers to connect to has none to wait for.
    let listener = UnixListener::bind(&path).unwrap();
    accept(&listener).await.barrier().await;
    world.until("connected", |world| !world.agent.is_standalone()).await;
    world.agent.set_controllers(vec![]).unwrap();
    assert!(world.agent.is_standalone());
    world.agent.shutdown().await;
    secure.agent.shutdown().await;
}

#[tokio::test]
async fn controllers_that_stay_keep_their_connections() {
    let mut world = World::new(|settings, path| {
        settings.controllers = vec![unix(&path.join("c1")), unix(&path.join("c2"))];
        settings.limits.controllers = 2;
    });
    let [target1, target2, target3] = ["c1", "c2", "c3"].map(|name| unix(&world.path(name)));
    let listeners = ["c1", "c2", "c3"].map(|name| UnixListener::bind(world.path(name)).unwrap());
    let mut first = accept(&listeners[0]).await;
    let mut second = accept(&listeners[1]).await;
    let all = vec![target1, target2.clone(), target3.clone()];
    let error = world.agent.set_controllers(all).unwrap_err();
    assert_eq!(error.to_string(), "3 controllers (at most 2)");
    world.agent.set_controllers(vec![target2.clone(), target3, target2]).unwrap();
    let mut third = accept(&listeners[2]).await;
    assert_eq!(first.read().await, None);
    second.barrier().await;
    third.barrier().await;
    assert_eq!(world.agent.controllers().len(), 2);
    world.agent.shutdown().await;
}

#[tokio::test]
async fn packets_of_controllers_cause_effects() {
    let world = World::new(|settings, path| settings.controllers = vec![punix(&path.join("p"))]);
    let path = world.path("p");
    world.until("listening", |_| path.exists()).await;
    let mut controller = Peer::greet(UnixStream::connect(&path).await.unwrap()).await;
    let output = action::Action::Output(action::Output { port: PortNo(3), max_len: 0 });
    let packet = PacketOut {
        buffer_id: openflow::version::NO_BUFFER,
        actions: vec![output],
        data: vec![9; 60],
        ..PacketOut::default()
    };
    controller.send(2, Body::PacketOut(packet)).await;
    controller.barrier().await;
    let effects = world.effects.lock().unwrap().clone();
    assert_eq!(effects, [ofswitch::Effect::Output { port: PortNo(3), packet: vec![9; 60], queue: 0 }]);
    world.agent.shutdown().await;
}

#[tokio::test]
async fn sockets_are_removed_at_the_end_and_kept_from_a_second_agent() {
    let world = World::new(|_, _| ());
    let paths = ["br0.mgmt", "br0.snoop"].map(|name| world.path(name));
    assert!(paths.iter().all(|path| path.exists()));
    let settings = Settings { management: Some(paths[0].clone()), ..Settings::default() };
    let second = Agent::start(&tokio::runtime::Handle::current(), world.switch.clone(), settings.clone());
    assert!(matches!(second.unwrap_err(), StartError::Socket(_)));
    let directory = world.directory;
    world.agent.shutdown().await;
    assert!(paths.iter().all(|path| !path.exists()));
    let third = Agent::start(&tokio::runtime::Handle::current(), world.switch, settings).unwrap();
    assert!(paths[0].exists());
    third.shutdown().await;
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
