//! `ofproto/trace`, `ofproto/trace-packet-out`: what a bridge would do with a packet, with datapath actions at the end
//! (ovs-vswitchd(8)).
//!
//! The switch itself rehearses the packet; a packet that leaves through a patch port goes on in the other bridge.

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use control::desired::Desired;
use control::proto::TracePacketRequest;
use fabric::port::VlanEgress;
use ofswitch::{Dependency, Effect, Failure};
use openflow::{PortNo, Version};
use packet::dscp;
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
///
/// `name`: the datapath's, such as `system@ovs-system`.
pub(crate) fn add(
    commands: &mut Commands,
    desired: &Arc<Desired>,
    numbers: &Arc<Mutex<Numbers>>,
    name: &'static str,
) {
    let (desired, numbers) = (desired.clone(), numbers.clone());
    let tracer = move |words: &[String], sends: bool| {
        let numbers = numbers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let tracer = Tracer::new(&desired, datapath::ports(&desired, &numbers));
        if sends { tracer.packet_out(words, name) } else { tracer.run(words, name) }
    };
    let trace = tracer.clone();
    let usage = "{[dp_name] odp_flow | bridge br_flow} [-generate|packet]";
    commands.add("ofproto/trace", usage, 1..=usize::MAX, move |words| trace(words, false));
    let usage = "{[dp_name] odp_flow | bridge br_flow} [packet] actions";
    commands.add("ofproto/trace-packet-out", usage, 2..=usize::MAX, move |words| tracer(words, true));
}

/// What becomes of a packet that an interface receives.
pub(crate) struct Way {
    /// The first bridge.
    pub(crate) bridge: String,
    /// The interface's number in the datapath.
    pub(crate) number: u32,
    pub(crate) megaflow: odp::Megaflow,
    /// Datapath actions.
    pub(crate) actions: String,
}

impl Way {
    /// Traces a packet that an interface would receive now.
    pub(crate) fn of(
        desired: &Desired,
        numbers: &Numbers,
        interface: &str,
        packet: &[u8],
    ) -> Result<Self, String> {
        let ports = datapath::ports(desired, numbers);
        let port = ports.iter().find(|port| port.name == interface && port.number.is_some());
        let port = port.cloned().ok_or_else(|| format!("{interface}: no such interface"))?;
        let tracer = Tracer::new(desired, ports);
        let mut actions = odp::Sequence::of(packet);
        tracer.bridge(&port, packet, 0, BRIDGES, &mut String::new(), &mut actions)?;
        let megaflow = odp::Megaflow::of(packet, tracer.depends.into_inner());
        let actions = actions.text().to_owned();
        Ok(Self { number: port.number.unwrap_or_default(), bridge: port.bridge, megaflow, actions })
    }
}

/// What is to be traced.
struct Subject {
    port: DatapathPort,
    packet: Vec<u8>,
    generates: bool,
}

/// Adds a part of a packet to those that its way depends on.
fn add_to(depends: &mut Vec<Dependency>, part: Dependency) {
    match depends.iter_mut().find(|other| other.key == part.key) {
        Some(other) => other.mask |= part.mask,
        None => depends.push(part),
    }
}

struct Tracer<'a> {
    desired: &'a Desired,
    ports: Vec<DatapathPort>,
    /// Passes through bridges that are left.
    left: Cell<usize>,
    /// What the packet's way depends on so far.
    depends: RefCell<Vec<Dependency>>,
}

impl<'a> Tracer<'a> {
    fn new(desired: &'a Desired, ports: Vec<DatapathPort>) -> Self {
        Self { ports, desired, left: Cell::new(PASSES), depends: RefCell::default() }
    }

    /// Adds a field that a packet's way depends on.
    fn depend_on(&self, key: &'static str, mask: u128, actions: &mut odp::Sequence) {
        let mut depends = self.depends.borrow_mut();
        add_to(&mut depends, Dependency { key, mask });
        actions.depend(&depends);
    }

    /// Adds what a packet's way through a bridge depends on.
    fn depend(&self, from: &DatapathPort, packet: &[u8], actions: &mut odp::Sequence) {
        let number = from.openflow_number();
        let mut depends = self.depends.borrow_mut();
        let mut parts = self.desired.state().dependencies(&from.bridge, number, packet);
        if self.mirrors_by_vlan(&from.bridge) {
            parts.push(Dependency { key: "vlan_tci", mask: 0x1fff });
        }
        parts.into_iter().for_each(|part| add_to(&mut depends, part));
        actions.depend(&depends);
    }

    /// Traces a packet that a port receives.
    fn run(&self, words: &[String], name: &str) -> Reply {
        let subject = self.subject(words, name)?;
        let mut text = format!("bridge(\"{}\")\n", subject.port.bridge);
        let mut actions = odp::Sequence::of(&subject.packet);
        self.bridge(&subject.port, &subject.packet, 0, BRIDGES, &mut text, &mut actions)?;
        let (bridge, number) = (&subject.port.bridge, subject.port.openflow_number());
        let failure = self.desired.state().foresee_failure(bridge, number, &subject.packet);
        self.close(&subject, failure, &mut text, &actions);
        if subject.generates {
            let dummies = self.desired.state().dummies();
            dummies.receive(&subject.port.name, vec![subject.packet]).map_err(|error| error.to_string())?;
        }
        Ok(text)
    }

    /// Traces a packet that a controller sends, with actions.
    fn packet_out(&self, words: &[String], name: &str) -> Reply {
        let (list, words) = words.split_last().ok_or("expected actions")?;
        let subject = self.subject(words, name)?;
        let list = openflow::text::parse_actions(list, Version::V1_5).map_err(|error| error.to_string())?;
        let bridge = &subject.port.bridge;
        let number = subject.port.openflow_number();
        let foreseen = self.desired.state().rehearse_packet_out(bridge, number, &subject.packet, list);
        let (steps, effects) = foreseen.ok_or("the bridge has no flow tables")??;
        let mut text = format!("bridge(\"{bridge}\")\n");
        let mut actions = odp::Sequence::of(&subject.packet);
        self.depend(&subject.port, &subject.packet, &mut actions);
        self.execute(&subject.port, (&steps, &effects), 0, BRIDGES, &mut text, &mut actions)?;
        self.close(&subject, None, &mut text, &actions);
        Ok(text)
    }

    /// Ends a trace.
    fn close(&self, subject: &Subject, failure: Option<Failure>, text: &mut String, actions: &odp::Sequence) {
        let port = match subject.port.openflow {
            Some(LOCAL) => "LOCAL".into(),
            None if subject.port.is_nowhere() => "ANY".into(),
            number => number.unwrap_or_default().to_string(),
        };
        let changed = match actions.now() == subject.packet {
            true => "unchanged".into(),
            false => odp::matching(&port, actions.now()),
        };
        let megaflow = odp::Megaflow::of(&subject.packet, self.depends.take()).matching(&port);
        let actions = actions.text();
        if let Some(failure) = failure {
            let _ = writeln!(text, "    it exceeds a limit: {}", failure.limit());
        }
        let _ = write!(text, "\nFinal flow: {changed}\nMegaflow: {megaflow}\nDatapath actions: {actions}\n");
        if let Some(failure) = failure {
            let _ = writeln!(text, "Translation failed ({failure}), packet is dropped.");
        }
    }

    /// Reads what is to be traced; `name`: the datapath's.
    fn subject(&self, words: &[String], name: &str) -> Result<Subject, String> {
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
            [_, _, _] => return Err("Trailing garbage in packet data".into()),
            _ => return Err("expected a bridge and a flow".into()),
        };
        let is_datapath = text.contains('(');
        let is_datapaths = |word| datapath::is_named(name, word);
        let is_bridge = |word: &str| self.ports.iter().any(|port| port.bridge == word);
        match bridge {
            Some(word) if is_datapath && !is_datapaths(word) => return Err("Cannot find the datapath".into()),
            Some(word) if !is_datapath && !is_bridge(word) => return Err(format!("{word}: unknown bridge")),
            None if !is_datapath => {
                return Err(format!("syntax error at {text} (or the bridge name was omitted)"));
            }
            _ => {}
        }
        // Packets do not come twice: nothing is kept of them.
        let again = text.split("recirc_id(").nth(1).and_then(|rest| rest.split([')', '/']).next());
        if let Some(number) = again.filter(|number| is_datapath && !matches!(*number, "0" | "0x0")) {
            return Err(format!("no recirculation data for recirc_id {number}"));
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
            (None, _) => return Err(format!("no OpenFlow port for datapath port {wanted}")),
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

    /// Traces a packet from a port, where it came in a queue; adds steps to `text` and actions to `actions`.
    fn bridge(
        &self,
        from: &DatapathPort,
        packet: &[u8],
        queue: u32,
        depth: usize,
        text: &mut String,
        actions: &mut odp::Sequence,
    ) -> Result<(), String> {
        let depth = depth.checked_sub(1).ok_or("the packet passes too many bridges")?;
        // Copies that bridges flood to each other multiply at every crossing.
        let left = self.left.get().checked_sub(1).ok_or("copies of the packet pass too many bridges")?;
        self.left.set(left);
        self.depend(from, packet, actions);
        if from.is_absent() {
            return self.rehearse(from, packet, queue, depth, text, actions);
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
            let queue = if output.class == 0 { queue } else { output.class };
            self.output(port, (&output.packet, queue), limit, depth, text, actions)?;
        }
        Ok(())
    }

    /// Whether a bridge's mirrors choose packets by their VLANs.
    fn mirrors_by_vlan(&self, bridge: &str) -> bool {
        let bridges = self.desired.state().bridges();
        let mirrors = bridges.get(bridge).and_then(|it| self.desired.state().switch().mirrors(it.id).ok());
        let by_vlan = |mirror: &fabric::Mirror| mirror.vlans.is_some() || mirror.into_vlan.is_some();
        mirrors.is_some_and(|mirrors| mirrors.iter().any(|(mirror, _)| by_vlan(mirror)))
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

    /// Continues with a packet that leaves through a port in a queue.
    fn output(
        &self,
        port: &DatapathPort,
        (packet, queue): (&[u8], u32),
        limit: Option<u32>,
        depth: usize,
        text: &mut String,
        actions: &mut odp::Sequence,
    ) -> Result<(), String> {
        if let Some(number) = port.number {
            if queue != actions.queue() {
                self.depend_on("skb_priority", u128::MAX, actions);
            }
            if dscp::of(packet) != dscp::of(actions.now()) {
                self.depend_on("nw_tos", u128::from(dscp::MAX) << 2, actions);
            }
            actions.output(number, packet, queue, limit);
        } else if let Some(peer) = self.peer(port) {
            let _ = writeln!(text, "bridge(\"{}\")", peer.bridge);
            self.bridge(&peer, packet, queue, depth, text, actions)?;
        }
        Ok(())
    }

    /// Traces a packet from a port that is not there: through the flow tables alone.
    fn rehearse(
        &self,
        from: &DatapathPort,
        packet: &[u8],
        queue: u32,
        depth: usize,
        text: &mut String,
        actions: &mut odp::Sequence,
    ) -> Result<(), String> {
        let in_port = from.openflow.and_then(|number| u32::try_from(number).ok()).unwrap_or_default();
        let rehearsal = self.desired.state().rehearse(&from.bridge, PortNo(in_port), packet);
        let (steps, effects) = rehearsal.ok_or("the bridge has no flow tables")?;
        self.execute(from, (&steps, &effects), queue, depth, text, actions)
    }

    /// Continues with what the flow tables alone make of a packet.
    fn execute(
        &self,
        from: &DatapathPort,
        (steps, effects): (&[String], &[Effect]),
        queue: u32,
        depth: usize,
        text: &mut String,
        actions: &mut odp::Sequence,
    ) -> Result<(), String> {
        for step in steps {
            let _ = writeln!(text, "    {step}");
        }
        for effect in effects {
            match effect {
                Effect::Output { port: number, packet, queue: chosen } => {
                    let number = match *number {
                        PortNo::LOCAL => LOCAL,
                        number => i64::from(number.0),
                    };
                    let is_it =
                        |port: &&DatapathPort| port.bridge == from.bridge && port.openflow == Some(number);
                    match self.ports.iter().find(is_it) {
                        Some(port) => {
                            let queue = if *chosen == 0 { queue } else { (*chosen).into() };
                            self.output(port, (packet, queue), None, depth, text, actions)?;
                        }
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
