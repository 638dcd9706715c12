//! Execution of effects: turns a program's effects into outputs of the fabric.
//!
//! The received packet is its first version. A packet with a single output is edited in place; otherwise every form but
//! the received one gets a version of its own, so that all of them refer to the bytes as they were received.

use bond::lacp::pdu;
use fabric::{Batch, DropReason, PortIndex, Text, Value, VersionId};
use logic::Key;
use logic::vlan::{Frame, Vlans};
use match_action::{Form, Run, append, replace};
use ofswitch::{Sample, Switch};
use packet::{MacAddr, ether};
use pipeline::interp::{Dropped, Exit};

use crate::bonds::Bonds;
use crate::effect::EffectRef;
use crate::plane::{Local, Plane};
use crate::ports::PortMap;
use crate::samples::Sampled;
use crate::tally::{Other, bump};
use crate::tree::skipped;
use crate::upcalls::Purpose;

/// Executes effects of the packets of a batch.
pub(crate) struct Executor<'a> {
    pub(crate) plane: &'a Plane,
    pub(crate) local: &'a Local,
    pub(crate) ports: &'a PortMap,
    /// OpenFlow number of the ingress port.
    pub(crate) number: u32,
    /// Packets that are left to the learning bridge.
    pub(crate) normal: bool,
    /// Whether the logic's thread has something to do.
    pub(crate) has_upcalls: bool,
    /// Nothing is forwarded, and nothing goes to controllers: the spanning tree only lets the ingress port learn.
    pub(crate) is_mute: bool,
    /// The port that a packet of the batch left to last, and its number: one that [`Executor::plain_port`] permits.
    plain: Option<(u32, PortIndex)>,
}

impl<'a> Executor<'a> {
    pub(crate) fn new(plane: &'a Plane, local: &'a Local, ports: &'a PortMap, number: u32) -> Self {
        let (normal, has_upcalls, is_mute, plain) = (false, false, false, None);
        Self { plane, local, ports, number, normal, has_upcalls, is_mute, plain }
    }
}

impl Executor<'_> {
    /// Executes the only effect on a received packet that is not traced, if it is a plain one: an output to another port,
    /// in no queue, of the packet as it was received or without pending offloads. Returns whether it is.
    #[inline]
    pub(crate) fn sends(
        &self,
        batch: &mut Batch<'_>,
        v: VersionId,
        effect: &EffectRef<'_>,
        run: &mut Run,
    ) -> bool {
        let EffectRef::Output { to: Exit::Port(number), form, queue: 0 } = effect else { return false };
        self.plain_port(batch, *number).is_some_and(|port| run.add_as(batch, v, form, port))
    }

    /// The port of this number, if it is another one that sends.
    #[inline]
    pub(crate) fn plain_port(&self, batch: &Batch<'_>, number: u32) -> Option<PortIndex> {
        let port = self.ports.index(number)?;
        (port != batch.ingress() && self.ports.sends(port)).then_some(port)
    }

    /// Executes the output of a packet, as it was received, to a port: together with those of `run`, if that is another
    /// port that sends. Not for packets that are traced.
    #[inline]
    pub(crate) fn leave(&mut self, batch: &mut Batch<'_>, v: VersionId, number: u32, run: &mut Run) {
        if self.plain.is_none_or(|(known, _)| known != number) {
            self.plain = self.plain_port(batch, number).map(|port| (number, port));
        }
        match self.plain {
            Some((_, port)) => run.add(batch, v, port),
            None => {
                run.send(batch);
                self.execute(batch, v, std::iter::once(EffectRef::leaves(number, batch.len(v))));
            }
        }
    }

    /// Executes the output of each packet of a batch, as it was received, to a port.
    pub(crate) fn leave_all(&mut self, batch: &mut Batch<'_>, number: u32) {
        if let Some(port) = self.plain_port(batch, number) {
            return batch.send_all(port);
        }
        for v in batch.packets() {
            let leaves = EffectRef::leaves(number, batch.len(v));
            self.execute(batch, v, std::iter::once(leaves));
        }
    }

    /// Executes the program's effects on a packet.
    pub(crate) fn execute<'e>(
        &mut self,
        batch: &mut Batch<'_>,
        v: VersionId,
        effects: impl ExactSizeIterator<Item = EffectRef<'e>> + Clone,
    ) {
        let single = effects.len() == 1;
        let fails = !single && effects.clone().any(|effect| effect.failure().is_some());
        let mut made: Option<(Form<'e>, u16, VersionId)> = None;
        let mut is_left = false;
        for effect in effects {
            match effect {
                // Dropped with the packet.
                EffectRef::Output { .. } if fails => {}
                EffectRef::Output { to, .. } if self.is_mute => {
                    if to == Exit::Fallback {
                        self.learn(batch, v);
                    }
                }
                EffectRef::Controllers { .. } if self.is_mute => {}
                EffectRef::Output { to, form, queue } => {
                    let version = match made {
                        Some((before, other, version)) if before == form && other == queue => Some(version),
                        _ => version(batch, v, &form, queue, single),
                    };
                    let Some(version) = version else { continue };
                    made = Some((form, queue, version));
                    is_left |= self.output(batch, version, to, queue, single);
                }
                EffectRef::Controllers { reason, limit, data, form } => {
                    remark(
                        batch,
                        v,
                        "it goes to the controllers, reason {}",
                        &[Value::Number(reason.into())],
                    );
                    self.upcall(batch, v, Some(&form), data, || Purpose::Controllers { reason, limit });
                }
                EffectRef::Digest(id, values) => {
                    if let Some(sample) = Switch::sample_of(id, values) {
                        self.sample(batch, v, &sample);
                        continue;
                    }
                    remark(batch, v, "it teaches a flow", &[]);
                    self.upcall(batch, v, None, &[], || Purpose::Digest(id, values.to_vec()));
                }
                EffectRef::Drop(reason) => {
                    if effect.failure().is_some() {
                        self.report(batch, v);
                    }
                    self.dropped(batch, v, reason);
                }
            }
        }
        self.normal |= is_left;
        if !is_left && batch.is_open(v) {
            if self.is_mute {
                return self.shut(batch, v);
            }
            batch.consume(v);
        }
    }

    /// Gives a packet, as it was received, to the sampler.
    fn sample(&self, batch: &mut Batch<'_>, v: VersionId, sample: &Sample) {
        remark(
            batch,
            v,
            "it is sampled for the set of collectors {}",
            &[Value::Number(sample.collectors.into())],
        );
        if batch.is_rehearsal() {
            return;
        }
        bump(&self.local.tally.samples);
        if let Some(sampler) = &*self.plane.sampler.load() {
            let (front, length) = (batch.header(v), batch.len(v));
            let sampled = Sampled::new(sample, batch.ingress(), self.ports, front, length);
            sampler.sample(Some(batch.worker()), &sampled);
        }
    }

    /// Sends a version; returns whether the packet is left to the learning bridge.
    fn output(&mut self, batch: &mut Batch<'_>, v: VersionId, to: Exit, queue: u16, single: bool) -> bool {
        match to {
            Exit::Port(number) => match self.ports.index(number) {
                Some(port) => self.send(batch, v, port, queue),
                None => batch.discard(v, DropReason::NoPort),
            },
            Exit::Flood | Exit::All => self.flood(batch, v, to == Exit::All),
            Exit::Fallback => {
                remark(batch, v, "it is forwarded like by a learning bridge (NORMAL)", &[]);
                if single && !self.ports.is_restricted() {
                    return true;
                }
                self.normal(batch, v);
            }
        }
        false
    }

    fn send(&self, batch: &mut Batch<'_>, v: VersionId, port: PortIndex, queue: u16) {
        if !self.ports.sends(port) {
            return self.refuse(batch, v, port);
        }
        remark(batch, v, "it goes to {}", &[Value::Port(port)]);
        match queue {
            // `IN_PORT`: the program sends nothing else back.
            _ if port == batch.ingress() => batch.reflect(v),
            0 => batch.send(v, port),
            queue => batch.send_to_queue(v, port, queue),
        }
    }

    /// Drops a version for a port that does not send.
    fn refuse(&self, batch: &mut Batch<'_>, v: VersionId, port: PortIndex) {
        match self.ports.blocks(port) {
            Some(protocol) => {
                self.count(batch, Other::SpanningTree);
                remark(batch, v, skipped(protocol), &[]);
            }
            None => {
                self.count(batch, Other::PortConfiguration);
                remark(batch, v, "controllers do not let {} send", &[Value::Port(port)]);
            }
        }
        batch.discard(v, DropReason::Logic);
    }

    fn flood(&self, batch: &mut Batch<'_>, v: VersionId, all: bool) {
        let mut any = false;
        let ingress = batch.ingress();
        for port in self.ports.all() {
            let wants = if all { self.ports.sends(*port) } else { self.ports.floods(*port) };
            if *port != ingress && wants && batch.reaches(*port) {
                any = true;
                batch.send(v, *port);
            }
        }
        remark(batch, v, if all { "it goes to all other ports" } else { "it is flooded" }, &[]);
        if !any {
            self.count(batch, Other::NoDestination);
            batch.discard(v, DropReason::NoDestination);
        }
    }

    /// Forwards a version like a learning bridge, to the ports that controllers let flood and send.
    pub(crate) fn normal(&self, batch: &mut Batch<'_>, v: VersionId) {
        // Tags may be changed on the way.
        let v = if batch.vlan_aware() { batch.copy(v) } else { Some(v) };
        let Some(v) = v else { return };
        let Some((dst, src)) = ether::addresses(batch.header(v)) else { return };
        let learning = &self.plane.learning;
        let Some(frame) = Vlans::of(batch).enter(batch, v) else { return };
        if !self.hear(batch, v, &frame, dst, src) {
            return;
        }
        if ether::is_reserved_group(dst) {
            return batch.discard(v, DropReason::ReservedGroup);
        }
        let known =
            if dst.is_multicast() { None } else { learning.fdb().lookup(logic::Key::new(frame.vid(), dst)) };
        match known {
            Some(port) => self.send_known(batch, v, &frame, port),
            None if dst.is_multicast()
                && !dst.is_broadcast()
                && self.ports.bonds().is_none()
                && let Some(members) = learning.destinations(batch, v, dst, frame.vid()) =>
            {
                remark(batch, v, "it goes to members of its group and to routers", &[]);
                frame.flood_where(batch, members.ports(), |batch, port| {
                    self.ports.floods(port) && batch.reaches(port)
                });
            }
            None if dst.is_multicast() || batch.may_flood_unknown(v) => {
                remark(batch, v, "it is flooded", &[]);
                let bonds = self.ports.bonds();
                if let Some(bonds) = bonds {
                    self.flood_bonds(batch, v, &frame, bonds);
                }
                frame.flood_where(batch, self.ports.all(), |batch, port| {
                    let is_bonded = bonds.is_some_and(|bonds| bonds.member(port).is_some());
                    !is_bonded && self.ports.floods(port) && batch.reaches(port)
                });
            }
            None => {}
        }
    }

    /// Learns where a packet came from; false if it was dropped there.
    pub(crate) fn hear(
        &self,
        batch: &mut Batch<'_>,
        v: VersionId,
        frame: &Frame,
        dst: MacAddr,
        src: MacAddr,
    ) -> bool {
        let learning = &self.plane.learning;
        let (key, now) = (Key::new(frame.vid(), src), batch.now());
        let bonds = self.ports.bonds();
        let Some((bonds, member)) = bonds.and_then(|bonds| Some((bonds, bonds.member(batch.ingress())?)))
        else {
            if let Some(bonds) = bonds {
                bonds.note(batch.header(v), key, now);
            }
            return batch.is_rehearsal() || learning.hear(batch, v, frame.vid(), src);
        };
        let admits = member.admits;
        let is_admitted = if dst.is_multicast() { admits.groups } else { admits.stations };
        if !is_admitted {
            remark(batch, v, "{} does not take it for its bond", &[Value::Port(batch.ingress())]);
            self.drop_at_bond(batch, v);
            return false;
        }
        if admits.unless_moved
            && let Some(port) = learning.fdb().lookup(key)
            && bonds.came_back(member, port, batch.header(v), key, now)
        {
            remark(
                batch,
                v,
                "its source is at {}: it has come back from the bond's peer",
                &[Value::Port(port)],
            );
            self.drop_at_bond(batch, v);
            return false;
        }
        if !batch.is_rehearsal()
            && src.is_station()
            && let Some(lead) = bonds.lead(member.bond)
        {
            learning.fdb().learn_unclaimed(key, lead, now, |key| batch.claim(key.vid(), key.mac()));
        }
        true
    }

    fn drop_at_bond(&self, batch: &mut Batch<'_>, v: VersionId) {
        self.count(batch, Other::Bond);
        batch.discard(v, DropReason::Logic);
    }

    /// Sends a packet to the port of a known station.
    fn send_known(&self, batch: &mut Batch<'_>, v: VersionId, frame: &Frame, port: PortIndex) {
        let member = self.ports.bonds().and_then(|bonds| Some((bonds, bonds.member(port)?.bond)));
        let port = match member {
            None => port,
            Some((bonds, bond)) if bonds.member(batch.ingress()).is_some_and(|from| from.bond == bond) => {
                return batch.discard(v, DropReason::SamePort);
            }
            Some((bonds, bond)) => match self.choose(batch, v, frame, bonds, bond) {
                Some(port) => port,
                None => {
                    remark(batch, v, "no member of its destination's bond may send", &[]);
                    return self.drop_at_bond(batch, v);
                }
            },
        };
        if self.ports.sends(port) {
            return frame.send(batch, port);
        }
        self.refuse(batch, v, port);
    }

    /// Floods a packet to all bonds but the one that it came from. Each gets a version of its own, in the form that its
    /// member takes; `v` stays as it is.
    fn flood_bonds(&self, batch: &mut Batch<'_>, v: VersionId, frame: &Frame, bonds: &Bonds) {
        let from = bonds.member(batch.ingress()).map(|member| member.bond);
        for bond in bonds.numbers().filter(|bond| Some(*bond) != from) {
            if let Some(port) = self.choose(batch, v, frame, bonds, bond)
                && self.ports.floods(port)
                && batch.reaches(port)
                && let Some(own) = batch.copy(v)
                && let Some(frame) = Vlans::of(batch).enter(batch, own)
            {
                frame.flood_among(batch, &[port]);
            }
        }
    }

    /// Chooses the member of a bond that sends a packet.
    fn choose(
        &self,
        batch: &Batch<'_>,
        v: VersionId,
        frame: &Frame,
        bonds: &Bonds,
        bond: usize,
    ) -> Option<PortIndex> {
        bonds.choose(bond, batch.header(v), frame.vid(), batch.len(v), !batch.is_rehearsal())
    }

    /// Hands frames of Slow Protocols from members of bonds to the control side; returns whether there were any.
    pub(crate) fn take_pdus(&mut self, batch: &mut Batch<'_>) -> bool {
        let takes = |bonds: &Bonds| bonds.takes_pdus(batch.ingress()) && batch.injection_mark() == 0;
        if !self.ports.bonds().is_some_and(takes) {
            return false;
        }
        let mut any = false;
        for v in batch.packets() {
            if pdu::Frame::is_slow(batch.header(v)) {
                any = true;
                remark(batch, v, "it is for LACP", &[]);
                self.hand_over(batch, v, Purpose::Pdu);
            }
        }
        any
    }

    /// Hands a frame of a link protocol to the control side, unless its port has sent too many in this second.
    pub(crate) fn hand_over(&mut self, batch: &mut Batch<'_>, v: VersionId, purpose: Purpose) {
        if batch.is_rehearsal() || self.ports.admits_frame(batch.ingress(), batch.now()) {
            return self.upcall(batch, v, None, &[], || purpose.clone());
        }
        remark(batch, v, "{} has sent too many such frames", &[Value::Port(batch.ingress())]);
        bump(&self.local.tally.lost);
        batch.discard(v, DropReason::ControllerQueue);
    }

    /// Counts a drop that the program does not know.
    pub(crate) fn count(&self, batch: &Batch<'_>, reason: Other) {
        if !batch.is_rehearsal() {
            self.local.tally.drop_other(reason);
        }
    }

    fn dropped(&self, batch: &mut Batch<'_>, v: VersionId, reason: Dropped) {
        if !batch.is_rehearsal() {
            self.local.tally.dropped(reason);
        }
        let (counted, name) = match reason {
            Dropped::Reason(id) => {
                let miss = id.index() == Switch::miss_reason();
                let name = Switch::drop_reasons().get(id.index()).map_or("", String::as_str);
                (if miss { DropReason::NoDestination } else { DropReason::Logic }, name)
            }
            Dropped::NoDestination => (DropReason::NoDestination, "no action sends it anywhere"),
            Dropped::Limit(_) | Dropped::NoExtern(_) => (DropReason::Logic, "it causes too much work"),
        };
        if batch.is_explained() {
            remark(batch, v, "it is dropped: {}", &[Value::Text(Text::of(name))]);
        }
        batch.discard(v, counted);
    }

    /// Has the logic's thread log how a packet exceeds a limit, now and then.
    fn report(&mut self, batch: &mut Batch<'_>, v: VersionId) {
        if !batch.is_rehearsal() && self.local.may_report(batch.now()) {
            self.upcall(batch, v, None, &[], || Purpose::Failed);
        }
    }

    /// Hands a packet, in a form of its own, to the logic's thread. Checksums are completed and large packets segmented
    /// before.
    pub(crate) fn upcall(
        &mut self,
        batch: &mut Batch<'_>,
        v: VersionId,
        form: Option<&Form<'_>>,
        data: &[u8],
        purpose: impl Fn() -> Purpose,
    ) {
        if batch.is_rehearsal() {
            return batch.consume(v);
        }
        let form = form.filter(|form| !form.is_received(batch.header(v), batch.len(v)));
        if batch.offload(v).is_none() {
            let whole = Form { head: &[], from: 0, to: batch.len(v) };
            return self.push(batch, v, (v, form.unwrap_or(&whole)), data, purpose());
        }
        let Some(copy) = batch.copy(v) else { return };
        if let Some(form) = form
            && !replace(batch, copy, form.head, form.from, form.to)
        {
            return;
        }
        let Some(plain) = batch.make_plain(copy) else { return };
        for version in plain {
            let whole = Form { head: &[], from: 0, to: batch.len(version) };
            // Each segment of a packet that is not changed is as if it had been received so.
            let received = if form.is_none() { version } else { v };
            self.push(batch, received, (version, &whole), data, purpose());
        }
    }

    /// `received`: the packet as it was received; `sent`: a version, and the form of it that goes up.
    fn push(
        &mut self,
        batch: &mut Batch<'_>,
        received: VersionId,
        sent: (VersionId, &Form<'_>),
        data: &[u8],
        purpose: Purpose,
    ) {
        let tally = &self.local.tally;
        let (v, form) = sent;
        let pauses = matches!(purpose, Purpose::Controllers { reason, .. } if Switch::is_pause(reason));
        let is_of_link = matches!(purpose, Purpose::Pdu | Purpose::Bpdu | Purpose::Intercepted(_));
        let pushed = self.local.upcalls.push(is_of_link, |slot| {
            slot.clear();
            slot.purpose = purpose;
            slot.port = self.number;
            slot.data.extend_from_slice(data);
            slot.packet.extend_from_slice(form.head);
            append(batch, v, form.from, form.to, &mut slot.packet);
            if pauses {
                append(batch, received, 0, batch.len(received), &mut slot.received);
            }
        });
        if pushed {
            bump(&tally.upcalls);
            self.has_upcalls = true;
            return batch.consume(v);
        }
        bump(&tally.lost);
        batch.discard(v, DropReason::ControllerQueue);
    }
}

/// Records a finding if the batch is traced.
#[inline]
pub(crate) fn remark(batch: &mut Batch<'_>, v: VersionId, text: &'static str, values: &[Value]) {
    if batch.is_explained() {
        batch.remark(v, text, values);
    }
}

/// The version of a packet that has a form, for a queue; `None` if it was dropped. With a single one, the packet itself
/// is changed. Queue 0 is the one in which the packet came, if it came from another bridge.
fn version(
    batch: &mut Batch<'_>,
    v: VersionId,
    form: &Form<'_>,
    queue: u16,
    single: bool,
) -> Option<VersionId> {
    let is_received = form.is_received(batch.header(v), batch.len(v));
    if is_received && queue == 0 {
        return Some(v);
    }
    let version = if single { v } else { batch.copy(v)? };
    if !is_received && !replace(batch, version, form.head, form.from, form.to) {
        return None;
    }
    if queue != 0 {
        batch.set_class(version, queue);
    }
    Some(version)
}
