//! `ofproto/trace`: what a bridge would do with a packet, with datapath actions at the end (ovs-vswitchd(8)).
//!
//! The switch itself rehearses the packet; a packet that leaves through a patch port goes on in the other bridge.

use std::cell::Cell;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use control::desired::Desired;
use control::proto::TracePacketRequest;
use fabric::port::VlanEgress;
use ofswitch::Effect;
use openflow::PortNo;
use ports::Spec;
use unixctl::{Commands, Reply};

use crate::datapath::{self, DatapathPort};
use crate::follow::Numbers;
use crate::numbers::LOCAL;
use crate::odp;

/// Bridges that a packet passes at most.
const BRIDGES: usize = 16;
/// Passes of all copies of a packet through bridges at most.
const PASSES: usize = 256;

/// Adds the command.
pub(crate) fn add(commands: &mut Commands, desired: &Arc<Desired>, numbers: &Arc<Mutex<Numbers>>) {
    let usage = "{[dp_name] odp_flow | bridge br_flow} [-generate|packet]";
    let (desired, numbers) = (desired.clone(), numbers.clone());
    commands.add("ofproto/trace", usage, 1..=usize::MAX, move |words| {
        let numbers = numbers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ports = datapath::ports(&desired, &numbers);
        Tracer { ports, desired: &desired, left: Cell::new(PASSES) }.run(words)
    });
}

/// What is to be traced.
struct Subject {
    port: DatapathPort,
    packet: Vec<u8>,
    generates: bool,
}

struct Tracer<'a> {
    desired: &'a Desired,
    ports: Vec<DatapathPort>,
    /// Passes through bridges that are left.
    left: Cell<usize>,
}

impl Tracer<'_> {
    fn run(&self, words: &[String]) -> Reply {
        let subject = self.subject(words)?;
        let mut text = format!("bridge(\"{}\")\n", subject.port.bridge);
        let mut actions = odp::Sequence::of(&subject.packet);
        self.bridge(&subject.port, &subject.packet, BRIDGES, &mut text, &mut actions)?;
        let port = match subject.port.openflow {
            Some(LOCAL) => "LOCAL".into(),
            None if subject.port.is_nowhere() => "ANY".into(),
            number => number.unwrap_or_default().to_string(),
        };
        let changed = match actions.now() == subject.packet {
            true => "unchanged".into(),
            false => odp::matching(&port, actions.now()),
        };
        let _ = write!(text, "\nFinal flow: {changed}\nDatapath actions: {}\n", actions.text());
        if subject.generates {
            let dummies = self.desired.state().dummies();
            dummies.receive(&subject.port.name, vec![subject.packet]).map_err(|error| error.to_string())?;
        }
        Ok(text)
    }

    fn subject(&self, words: &[String]) -> Result<Subject, String> {
        let mut generates = false;
        let mut rest = Vec::new();
        let mut packet = None;
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            match word {
                "-generate" | "--generate" => generates = true,
                "-consistent" | "--consistent" => {}
                "--ct-next" => _ = words.next(),
                word => rest.push(word),
            }
        }
        if let [.., last] = &rest[..]
            && rest.len() > 1
            && let Ok(bytes) = control::hex::parse(last)
        {
            packet = Some(bytes);
            rest.pop();
        }
        let (bridge, text) = match &rest[..] {
            [text] => (None, *text),
            [bridge, text] => (Some(*bridge), *text),
            _ => return Err("expected a bridge and a flow".into()),
        };
        let is_datapath = text.contains('(');
        if let Some(bridge) = bridge
            && !is_datapath
            && !self.ports.iter().any(|port| port.bridge == bridge)
        {
            return Err(format!("{bridge}: unknown bridge"));
        }
        let text = self.with_numbers(text, is_datapath, bridge);
        let described = odp::described(&text)?;
        let packet = packet.unwrap_or(described.packet);
        if let (None, Some(bridge), false) = (described.in_port, bridge, is_datapath) {
            if generates {
                return Err("the packet comes from no port (in_port)".into());
            }
            let port = DatapathPort::nowhere(bridge);
            return Ok(Subject { port, packet, generates });
        }
        let own = if is_datapath { None } else { u32::try_from(LOCAL).ok() };
        let wanted = described.in_port.ok_or("the flow has no ingress port (in_port)")?;
        // The number that `LOCAL` has since OpenFlow 1.1.
        let wanted = if !is_datapath && wanted == PortNo::LOCAL.0 { own.unwrap_or(wanted) } else { wanted };
        let port = self.ports.iter().find(|port| match is_datapath {
            true => port.number == Some(wanted),
            false => {
                bridge.is_none_or(|bridge| port.bridge == bridge) && port.openflow == Some(i64::from(wanted))
            }
        });
        let port = match (port, bridge) {
            (Some(port), _) => port.clone(),
            // OpenFlow's tables can be asked about a port that is not there.
            (None, Some(bridge)) if !is_datapath && !generates => {
                DatapathPort::absent(bridge, i64::from(wanted))
            }
            (None, _) => return Err(format!("port {wanted} does not exist")),
        };
        Ok(Subject { port, packet, generates })
    }

    /// Replaces the name of an ingress port by its number.
    fn with_numbers(&self, text: &str, is_datapath: bool, bridge: Option<&str>) -> String {
        let (before, after) = if is_datapath { ("in_port(", ")") } else { ("in_port=", "") };
        let mut ports =
            self.ports.iter().filter(|port| is_datapath || bridge.is_none_or(|it| it == port.bridge));
        let named = ports.find_map(|port| {
            let name = text.split(before).nth(1)?.split([',', ')', ' ']).next()?;
            let number = if is_datapath { port.number.map(i64::from) } else { port.openflow };
            (port.name == name).then_some((name, number?))
        });
        match named {
            Some((name, number)) => {
                text.replacen(&format!("{before}{name}{after}"), &format!("{before}{number}{after}"), 1)
            }
            None => text.to_owned(),
        }
    }

    /// Traces a packet from a port; adds steps to `text` and actions to `actions`.
    fn bridge(
        &self,
        from: &DatapathPort,
        packet: &[u8],
        depth: usize,
        text: &mut String,
        actions: &mut odp::Sequence,
    ) -> Result<(), String> {
        let depth = depth.checked_sub(1).ok_or("the packet passes too many bridges")?;
        // Copies that bridges flood to each other multiply at every crossing.
        let left = self.left.get().checked_sub(1).ok_or("copies of the packet pass too many bridges")?;
        self.left.set(left);
        if from.is_absent() {
            return self.rehearse(from, packet, depth, text, actions);
        }
        let state = self.desired.state();
        let trace = if from.is_nowhere() {
            control::trace::from_nowhere(state, &from.bridge, packet)
        } else {
            let request = TracePacketRequest {
                bridge: from.bridge.clone(),
                port: from.name.clone(),
                packet: packet.to_vec(),
            };
            control::trace::once(state, &request)
        };
        let trace = trace.map_err(|error| error.to_string())?;
        for step in &trace.steps {
            let _ = writeln!(text, "    {step}");
        }
        for drop in &trace.drops {
            let _ = writeln!(text, "    dropped: {drop}");
        }
        for output in trace.outputs.iter().filter(|output| output.drop_reason.is_empty()) {
            let port = self.ports.iter().find(|port| port.bridge == from.bridge && port.name == output.port);
            let Some(port) = port else { continue };
            let limit = if output.mirrored { self.snaplen(port) } else { None };
            self.output(port, &output.packet, limit, depth, text, actions)?;
        }
        Ok(())
    }

    /// Bytes that a mirror's copies to a port may have.
    fn snaplen(&self, port: &DatapathPort) -> Option<u32> {
        let bridges = self.desired.state().bridges();
        let bridge = bridges.get(&port.bridge)?;
        let vlan = &bridge.ports.get(&port.name)?.config.settings.vlan;
        let mirrors = self.desired.state().switch().mirrors(bridge.id).ok()?;
        let copies = mirrors.iter().map(|(mirror, _)| mirror).find(|mirror| match mirror.into_vlan {
            Some(into) => vlan.egress(into.get()) != VlanEgress::Refused,
            None => mirror.to == port.name,
        });
        copies?.cut
    }

    /// Continues with a packet that leaves through a port.
    fn output(
        &self,
        port: &DatapathPort,
        packet: &[u8],
        limit: Option<u32>,
        depth: usize,
        text: &mut String,
        actions: &mut odp::Sequence,
    ) -> Result<(), String> {
        if let Some(number) = port.number {
            actions.output(number, packet, limit);
        } else if let Some(peer) = self.peer(port) {
            let _ = writeln!(text, "bridge(\"{}\")", peer.bridge);
            self.bridge(&peer, packet, depth, text, actions)?;
        }
        Ok(())
    }

    /// Traces a packet from a port that is not there: through the flow tables alone.
    fn rehearse(
        &self,
        from: &DatapathPort,
        packet: &[u8],
        depth: usize,
        text: &mut String,
        actions: &mut odp::Sequence,
    ) -> Result<(), String> {
        let in_port = from.openflow.and_then(|number| u32::try_from(number).ok()).unwrap_or_default();
        let rehearsal = self.desired.state().rehearse(&from.bridge, PortNo(in_port), packet);
        let (steps, effects) = rehearsal.ok_or("the bridge has no flow tables")?;
        for step in &steps {
            let _ = writeln!(text, "    {step}");
        }
        for effect in &effects {
            match effect {
                Effect::Output { port: number, packet, .. } => {
                    let number = match *number {
                        PortNo::LOCAL => LOCAL,
                        number => i64::from(number.0),
                    };
                    let is_it =
                        |port: &&DatapathPort| port.bridge == from.bridge && port.openflow == Some(number);
                    match self.ports.iter().find(is_it) {
                        Some(port) => self.output(port, packet, None, depth, text, actions)?,
                        None => {
                            let _ = writeln!(text, "    output to port {number}, which does not exist");
                            actions.becomes(packet);
                        }
                    }
                }
                Effect::Normal { packet, .. } => {
                    let _ = writeln!(text, "    forwarded like by a learning bridge (NORMAL)");
                    actions.becomes(packet);
                }
                Effect::Sample { .. } | Effect::Drop(_) => {}
            }
        }
        Ok(())
    }

    /// The other end of a patch port.
    fn peer(&self, port: &DatapathPort) -> Option<DatapathPort> {
        let bridges = self.desired.state().bridges();
        let Spec::Patch(options) = &bridges.get(&port.bridge)?.ports.get(&port.name)?.config.spec else {
            return None;
        };
        let is_peer =
            |other: &&DatapathPort| other.bridge == options.peer.bridge && other.name == options.peer.port;
        self.ports.iter().find(is_peer).cloned()
    }
}
