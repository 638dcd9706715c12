//! A switch that is compared: what it is told, and what it answers.

use openflow::message::{
    AsyncMasks, Body, FlowModCommand, GroupModCommand, Hello, PacketProperty, SwitchConfig, Versions,
};
use openflow::multipart::{FlowStatsRequest, Multipart, Reply, Request};
use openflow::{Message, PortNo, Version, text, version};

use crate::case::{Burst, Case};

/// The version of the connections.
pub const VERSION: Version = Version::V1_3;

/// Type of the frames that mark the end of a packet's results.
pub const MARKER: u16 = 0x9999;

/// The flow for markers.
const MARKING: &str = "table=0,priority=65535,dl_type=0x9999,actions=ALL,IN_PORT,CONTROLLER";

/// Why a comparison cannot go on.
#[derive(Debug)]
pub enum Error {
    /// Open vSwitch does not run, or has ended.
    OpenVSwitch(std::io::Error),
    /// Anything else.
    Other(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::OpenVSwitch(error) => write!(f, "Open vSwitch: {error}"),
            Error::Other(text) => f.write_str(text),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error::OpenVSwitch(error)
    }
}

/// Result of what may end the comparison.
pub type Result<T> = std::result::Result<T, Error>;

/// What became of one packet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// Frames that left, in the order of their ports, then of time.
    pub outputs: Vec<(u32, Vec<u8>)>,
    /// Packets for the controller: reason, table, cookie, metadata, user data and bytes.
    pub packet_ins: Vec<String>,
}

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// For each group, then each flow: the error that refused it.
    pub refusals: Vec<Option<String>>,
    /// For each packet.
    pub packets: Vec<Observed>,
    /// Flows with their counters, as `ovs-ofctl dump-flows` prints them, sorted.
    pub flows: Vec<String>,
}

/// A switch.
pub trait Subject {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Sends messages, a barrier last, and returns all replies up to the barrier's.
    ///
    /// # Errors
    /// The switch does not answer.
    fn exchange(&mut self, messages: &[Vec<u8>]) -> Result<Vec<Message>>;

    /// Sends packets to a port, one after the other.
    ///
    /// # Errors
    /// The switch does not answer.
    fn send(&mut self, burst: &Burst) -> Result<Vec<Observed>>;

    /// Makes sure that the next packet meets the flows as they are, and that all packets are counted.
    ///
    /// # Errors
    /// The switch does not answer.
    fn settle(&mut self) -> Result<()>;

    /// Runs a case.
    ///
    /// # Errors
    /// The case cannot be written as messages, or the switch does not answer.
    fn run(&mut self, case: &Case) -> Result<Outcome> {
        let replies = self.exchange(&messages(case)?)?;
        let mut outcome = Outcome::default();
        let first = FIRST_CHANGE;
        for xid in first..first + (case.groups.len() + case.rules.len()) as u32 {
            let error = replies.iter().filter(|reply| reply.xid == xid).find_map(|reply| match &reply.body {
                Body::Error(error) => Some(match error.code(VERSION) {
                    Some(code) => code.name().to_owned(),
                    None => format!("{error:?}"),
                }),
                _ => None,
            });
            outcome.refusals.push(error);
        }
        self.settle()?;
        for burst in &case.bursts {
            if case.learns() {
                for packet in &burst.packets {
                    let one = Burst { port: burst.port, packets: vec![packet.clone()] };
                    outcome.packets.extend(self.send(&one)?);
                    self.settle()?;
                }
            } else {
                outcome.packets.extend(self.send(burst)?);
            }
        }
        if outcome.packets.len() != case.packets() {
            let (found, sent) = (outcome.packets.len(), case.packets());
            return Err(Error::Other(format!("{}: {found} results of {sent} packets", self.name())));
        }
        self.settle()?;
        outcome.flows = flows(&self.exchange(&[flow_request(), barrier()])?);
        Ok(outcome)
    }
}

/// Transaction id of a case's first group or flow.
const FIRST_CHANGE: u32 = 1000;

fn encode(xid: u32, body: Body) -> Vec<u8> {
    Message::new(VERSION, xid, body).encode().unwrap_or_default()
}

/// A request for a barrier.
pub fn barrier() -> Vec<u8> {
    encode(1, Body::BarrierRequest)
}

/// Messages that begin a connection.
pub fn greeting() -> Vec<Vec<u8>> {
    let all = AsyncMasks { packet_in: 0x3f, packet_in_secondary: 0x3f, ..AsyncMasks::default() };
    vec![
        encode(1, Body::Hello(Hello::new(Versions::from_iter([VERSION])))),
        encode(2, Body::SetConfig(SwitchConfig { flags: 0, miss_send_len: u16::MAX })),
        encode(3, Body::SetAsync(all)),
        encode(4, Body::SetPacketInFormat(2)),
        barrier(),
    ]
}

/// Messages that replace all flows and groups by a case's.
///
/// # Errors
/// A group or flow cannot be written as a message.
pub fn messages(case: &Case) -> Result<Vec<Vec<u8>>> {
    let flow = |xid, text: &str, command| {
        let flow = text::parse_flow(text, command, VERSION)
            .map_err(|error| Error::Other(format!("{text}: {error}")))?;
        Message::new(VERSION, xid, Body::FlowMod(Box::new(flow)))
            .encode()
            .map_err(|error| Error::Other(format!("{text}: {error}")))
    };
    let group = |xid, text: &str, command| {
        let group = text::parse_group(text, command, VERSION)
            .map_err(|error| Error::Other(format!("{text}: {error}")))?;
        Message::new(VERSION, xid, Body::GroupMod(group))
            .encode()
            .map_err(|error| Error::Other(format!("{text}: {error}")))
    };
    let mut messages = vec![
        flow(2, "", FlowModCommand::Delete)?,
        group(3, "", GroupModCommand::Delete)?,
        flow(4, MARKING, FlowModCommand::Add)?,
    ];
    let mut xid = FIRST_CHANGE..;
    for (text, xid) in case.groups.iter().zip(xid.by_ref()) {
        messages.push(group(xid, text, GroupModCommand::Add)?);
    }
    for (rule, xid) in case.rules.iter().zip(xid) {
        messages.push(flow(xid, &rule.to_string(), FlowModCommand::Add)?);
    }
    messages.push(barrier());
    Ok(messages)
}

fn flow_request() -> Vec<u8> {
    let request = FlowStatsRequest {
        table_id: version::table::ALL,
        out_port: PortNo::ANY,
        out_group: version::group::ANY,
        ..FlowStatsRequest::default()
    };
    encode(2, Body::MultipartRequest(Multipart { more: false, content: Request::Flow(request) }))
}

/// Flows of statistics replies, without their age.
fn flows(replies: &[Message]) -> Vec<String> {
    let mut lines = vec![];
    for reply in replies {
        let Body::MultipartReply(Multipart { content: Reply::Flow(flows), .. }) = &reply.body else {
            continue;
        };
        for flow in flows {
            let line = text::flow_entry_text(flow, VERSION).unwrap_or_else(|error| error.to_string());
            // Open vSwitch writes some actions in another form.
            let line = line.split(" actions=").next().unwrap_or_default();
            let parts: Vec<_> =
                line.trim().split(", ").filter(|part| !part.starts_with("duration")).collect();
            let line = parts.join(", ");
            if !line.contains("dl_type=0x9999") {
                lines.push(line);
            }
        }
    }
    lines.sort();
    lines
}

/// A packet for the controller, in words; `None` for other messages, and the bytes of a packet.
pub fn packet_in(message: &Message) -> Option<(String, Vec<u8>)> {
    let Body::PacketIn2(packet) = &message.body else { return None };
    let mut bytes = vec![];
    let mut words = vec![];
    for property in &packet.0 {
        match property {
            PacketProperty::Packet(data) => bytes.clone_from(&data.0),
            PacketProperty::Metadata(fields) => {
                let mut names: Vec<_> = fields
                    .0
                    .iter()
                    .filter_map(|oxm| {
                        Some(format!("{}={:#x}", oxm.field().map(|field| field.name)?, oxm.value_number()))
                    })
                    .collect();
                names.sort();
                words.push(format!("metadata {}", names.join(",")));
            }
            other => words.push(format!("{other:?}")),
        }
    }
    words.sort();
    Some((format!("{} {}", words.join(" "), hex(&bytes)), bytes))
}

/// The marker behind the packet with this number in a burst.
pub fn marker(number: usize) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend(MARKER.to_be_bytes());
    frame.extend((number as u32).to_be_bytes());
    frame.resize(60, 0);
    frame
}

/// Whether a frame is a marker.
pub fn is_marker(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&MARKER.to_be_bytes()) && frame.get(..12) == Some(&[2; 12])
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
