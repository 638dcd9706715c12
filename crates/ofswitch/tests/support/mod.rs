//! A switch with a connection, driven by flows as text.
#![allow(dead_code, reason = "not every test uses all of it")]

use ofswitch::{ConnectionId, ConnectionKind, Effect, Limits, PortInfo, Settings, Switch};
use openflow::message::{Body, FlowModCommand, Hello, Versions};
use openflow::{Message, PortNo, Version, text};

pub(crate) struct World {
    pub(crate) switch: Switch,
    pub(crate) connection: ConnectionId,
    pub(crate) version: Version,
    pub(crate) now: u64,
    xid: u32,
}

pub(crate) const SECOND: u64 = 1_000_000_000;

impl World {
    pub(crate) fn new(version: Version) -> Self {
        Self::with(version, Limits::default())
    }

    pub(crate) fn with(version: Version, limits: Limits) -> Self {
        let mut switch = Switch::new(Settings { limits, ..Settings::default() });
        for number in 1..=4 {
            let address = [2, 0, 0, 0, 0, number as u8];
            let info = PortInfo::new(PortNo(number), format!("p{number}"), address);
            switch.set_port(info, 0).unwrap();
        }
        let connection = connect(&mut switch, version);
        World { switch, connection, version, now: 0, xid: 1 }
    }

    pub(crate) fn send(&mut self, body: Body) {
        self.xid += 1;
        let bytes = Message::new(self.version, self.xid, body).encode().unwrap();
        self.switch.receive(self.connection, &bytes, self.now);
    }

    /// Messages that wait for the connection.
    pub(crate) fn messages(&mut self) -> Vec<Message> {
        let next = || self.switch.next_message(self.connection);
        std::iter::from_fn(next).map(|bytes| Message::decode(&bytes).unwrap()).collect()
    }

    /// Names of the errors that wait.
    pub(crate) fn errors(&mut self) -> Vec<&'static str> {
        let version = self.version;
        let name = |message: Message| match message.body {
            Body::Error(error) => error.code(version).map(|code| code.name()),
            _ => None,
        };
        self.messages().into_iter().filter_map(name).collect()
    }

    pub(crate) fn flow_mod(&mut self, command: FlowModCommand, flow: &str) {
        let flow = text::parse_flow(flow, command, self.version).unwrap();
        self.send(Body::FlowMod(Box::new(flow)));
    }

    /// Adds a flow, which is accepted.
    pub(crate) fn add(&mut self, flow: &str) {
        self.flow_mod(FlowModCommand::Add, flow);
        assert_eq!(self.errors(), [""; 0], "{flow}");
    }

    pub(crate) fn packet(&mut self, port: u32, packet: &[u8]) -> Vec<String> {
        self.switch.packet(PortNo(port), packet, self.now).iter().map(show).collect()
    }
}

pub(crate) fn connect(switch: &mut Switch, version: Version) -> ConnectionId {
    let connection = switch.connect(ConnectionKind::Controller).unwrap();
    let hello = Body::Hello(Hello::new(Versions::from_iter([version])));
    switch.receive(connection, &Message::new(version, 1, hello).encode().unwrap(), 0);
    switch.next_message(connection).unwrap();
    connection
}

pub(crate) fn show(effect: &Effect) -> String {
    match effect {
        Effect::Output { port, packet, queue: 0 } => format!("{port}: {}", hex(packet)),
        Effect::Output { port, packet, queue } => format!("{port}.{queue}: {}", hex(packet)),
        Effect::Normal { packet, .. } => format!("normal: {}", hex(packet)),
        Effect::Sample { sample, .. } => {
            format!("sample {} {} {}", sample.collectors, sample.domain, sample.point)
        }
        Effect::Drop(reason) => format!("drop: {reason}"),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// UDP from 10.0.0.1:1000 to 10.0.0.2:2000 with right checksums.
pub(crate) const UDP: &str = "020000000002 020000000001 0800 45000020 00000000 40 11 66cb 0a000001 0a000002 03e8 07d0 000c 5b95 41424344";

pub(crate) fn udp() -> Vec<u8> {
    unhex(UDP)
}

/// Whether the checksums of an untagged IPv4 packet with UDP or TCP hold.
pub(crate) fn checksums_hold(packet: &[u8]) -> bool {
    let sum = |bytes: &[u8], start: u32| {
        let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
        let mut sum = start + words.sum::<u32>();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum
    };
    let (header, payload) = (&packet[14..34], &packet[34..]);
    let pseudo = sum(&header[12..20], u32::from(header[9]) + payload.len() as u32);
    sum(header, 0) == 0xffff && sum(payload, pseudo) == 0xffff
}
