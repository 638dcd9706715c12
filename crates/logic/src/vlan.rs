//! VLANs for logics that decide by port: the VLAN that a frame enters and the form in which it leaves (IEEE 802.1Q
//! §6.9, §8.6).
//!
//! A frame is classified once ([`Vlans::enter`]) and then sent to one port or to all of its VLAN. In a bridge without
//! VLAN settings only the tag is read, and nothing is edited.
//!
//! Invariants: a frame leaves a port only if the port is a member of its VLAN; whatever the number of destinations, a
//! packet has at most one header version with a tag and one without; the version that needs an edit is made after all
//! outputs of the other, so the edit never shows in those.

use fabric::port::VlanEgress;
use fabric::{Batch, DropReason, PortIndex, Text, Value, VersionId, VlanMode};
use packet::ether::{self, VlanTag};

/// VLAN settings for the packets of a batch.
pub struct Vlans<'a> {
    /// Those of the ingress port; `None` if no port of the bridge has any.
    ingress: Option<&'a VlanMode>,
}

/// A frame that was let in.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    v: VersionId,
    /// Its VLAN, 0 for none: the FID of independent learning (IEEE 802.1Q §8.8.8).
    pub(crate) vid: u16,
    /// Its tag, or the one that it gets where it leaves tagged.
    tag: VlanTag,
    tagged: bool,
    /// Whether the bridge has VLAN settings.
    aware: bool,
    /// Whether it is not from the sender of this batch, but originated or held: then it may also go to the ingress
    /// port.
    own: bool,
}

impl<'a> Vlans<'a> {
    /// Returns the settings for a batch.
    #[inline]
    pub fn of(batch: &Batch<'a>) -> Self {
        let ingress = if batch.vlan_aware() { batch.vlan(batch.ingress()) } else { None };
        Self { ingress }
    }

    /// Returns whether any port of the bridge has VLAN settings. If none has, frames pass as they are.
    #[inline(always)]
    pub fn are_aware(&self) -> bool {
        self.ingress.is_some()
    }

    /// Classifies and filters a frame at ingress (IEEE 802.1Q §6.9.1, §8.6.2); a frame that may not enter is dropped
    /// and counted.
    #[inline(always)]
    pub fn enter(&self, batch: &mut Batch<'_>, v: VersionId) -> Option<Frame> {
        let tag = ether::vlan_tag(batch.header(v));
        match self.ingress {
            None => {
                let tagged = tag.is_some();
                let tag = tag.unwrap_or_default();
                Some(Frame { v, vid: tag.vid, tag, tagged, aware: false, own: false })
            }
            Some(mode) => classify(mode, batch, v, tag),
        }
    }
}

fn classify(mode: &VlanMode, batch: &mut Batch<'_>, v: VersionId, tag: Option<VlanTag>) -> Option<Frame> {
    let Some(vid) = mode.ingress(tag) else {
        remark_entry(mode, batch, v, tag);
        batch.discard(v, DropReason::Vlan);
        return None;
    };
    if let VlanMode::Tunnel(_) = mode {
        // The customer's tag, if any, and its priority are payload.
        let tag = VlanTag { vid, ..VlanTag::default() };
        return Some(Frame { v, vid, tag, tagged: false, aware: true, own: false });
    }
    let mut v = v;
    let mut tagged = tag.is_some();
    if tag.is_some_and(|tag| tag.vid == 0) && vid != 0 {
        // A priority tag names no VLAN and never leaves as it came. Removing it leaves only two forms to handle; its
        // priority goes into the tag that replaces it.
        v = batch.pop_vlan(v)?;
        tagged = false;
    }
    Some(Frame { v, vid, tag: VlanTag { vid, ..tag.unwrap_or_default() }, tagged, aware: true, own: false })
}

/// Explains why a frame may not enter.
#[cold]
fn remark_entry(mode: &VlanMode, batch: &mut Batch<'_>, v: VersionId, tag: Option<VlanTag>) {
    if !batch.is_explained() {
        return;
    }
    let here = [Value::Port(batch.ingress()), Value::Text(Text::of(mode))];
    let [port, setting] = here;
    let tag = tag.filter(|tag| tag.vid != 0);
    match (mode, tag) {
        (_, None) => {
            batch.remark(v, "{} is {}: without a native VLAN, untagged packets may not enter", &here)
        }
        (VlanMode::Access(_), Some(tag)) => {
            let text = "{} is {}: tagged packets, here of VLAN {}, may not enter";
            batch.remark(v, text, &[port, setting, Value::Number(tag.vid.into())]);
        }
        (_, Some(tag)) => {
            let text = "{} is {}: packets of VLAN {} may not enter";
            batch.remark(v, text, &[port, setting, Value::Number(tag.vid.into())]);
        }
    }
}

/// Ports named, at most, where no port took a packet.
const NAMED: usize = 8;

impl Frame {
    /// A placeholder for no packet.
    pub const NONE: Frame = Frame {
        v: VersionId::FIRST,
        vid: 0,
        tag: VlanTag { pcp: 0, dei: false, vid: 0 },
        tagged: false,
        aware: false,
        own: false,
    };

    /// Makes the frame of a packet that the logic itself [originates](Batch::originate). Its tag names its VLAN;
    /// without a tag it belongs to none until it is [put into one](Frame::retag).
    pub fn originated(batch: &Batch<'_>, v: VersionId) -> Frame {
        let tag = ether::vlan_tag(batch.header(v));
        let (tagged, tag) = (tag.is_some(), tag.unwrap_or_default());
        Frame { v, vid: tag.vid, tag, tagged, aware: batch.vlan_aware(), own: true }
    }

    /// Returns a kept frame for a version that was made from its bytes in another batch.
    pub fn again(self, batch: &Batch<'_>, v: VersionId) -> Frame {
        Frame { v, aware: batch.vlan_aware(), own: true, ..self }
    }

    /// Returns its version.
    #[inline(always)]
    pub fn version(&self) -> VersionId {
        self.v
    }

    /// Returns its VLAN, 0 for none.
    #[inline(always)]
    pub fn vid(&self) -> u16 {
        self.vid
    }

    /// Returns the frame for another version with the same bytes.
    pub fn with_version(self, v: VersionId) -> Frame {
        Frame { v, ..self }
    }

    /// Puts the frame into another VLAN, 0 for none: removes its tag, and lets it leave with the new one where ports
    /// send tagged. Call this before sending it. Returns false if the VLAN does not exist or a version could not be
    /// made; then the frame was dropped and counted.
    pub fn retag(&mut self, batch: &mut Batch<'_>, vid: u16) -> bool {
        if vid > 4094 {
            let text = "VLAN {} does not exist: VLANs are numbered from 1 to 4094";
            batch.remark(self.v, text, &[Value::Number(vid.into())]);
            batch.discard(self.v, DropReason::Vlan);
            return false;
        }
        if self.tagged {
            let Some(v) = batch.pop_vlan(self.v) else { return false };
            (self.v, self.tagged) = (v, false);
        }
        (self.vid, self.tag.vid) = (vid, vid);
        if !self.aware && vid != 0 {
            let Some(v) = batch.push_vlan(self.v, self.tag) else { return false };
            (self.v, self.tagged) = (v, true);
        }
        true
    }

    /// Returns whether the frame leaves a port with a tag; `None` if it may not leave. A frame of no VLAN passes as it
    /// is.
    #[inline]
    fn leaves(&self, mode: &VlanMode) -> Option<bool> {
        match mode.egress(self.vid) {
            VlanEgress::Refused => None,
            _ if self.vid == 0 => Some(self.tagged),
            VlanEgress::Untagged => Some(false),
            VlanEgress::Tagged => Some(true),
        }
    }

    /// Makes the version in the other form than the frame came in.
    fn converted(&self, batch: &mut Batch<'_>) -> Option<VersionId> {
        if self.tagged { batch.pop_vlan(self.v) } else { batch.push_vlan(self.v, self.tag) }
    }

    /// Sends the frame to one port (IEEE 802.1Q §8.6.4, §8.6.5 tagging).
    #[inline(always)]
    pub fn send(&self, batch: &mut Batch<'_>, port: PortIndex) {
        if self.aware && (port != batch.ingress() || self.own) {
            self.send_aware(batch, port);
        } else {
            self.put(batch, self.v, port);
        }
    }

    /// Sends version `v` as it is.
    #[inline(always)]
    fn put(&self, batch: &mut Batch<'_>, v: VersionId, port: PortIndex) {
        match self.own && port == batch.ingress() {
            true => batch.reflect(v),
            false => batch.send(v, port),
        }
    }

    fn send_aware(&self, batch: &mut Batch<'_>, port: PortIndex) {
        let Some(mode) = batch.vlan(port) else {
            return batch.send(self.v, port); // no such port: the fabric counts it
        };
        match self.leaves(mode) {
            None => {
                self.remark_exit(batch, port);
                batch.discard(self.v, DropReason::Vlan);
            }
            Some(tagged) if tagged == self.tagged => self.put(batch, self.v, port),
            Some(_) => {
                if let Some(v) = self.converted(batch) {
                    self.put(batch, v, port);
                }
            }
        }
    }

    /// Sends the frame to every member of its VLAN except its ingress port (IEEE 802.1Q §8.6.3, §8.8.9).
    #[inline]
    pub fn flood(&self, batch: &mut Batch<'_>) {
        if self.aware {
            self.flood_aware(batch);
        } else {
            batch.broadcast(self.v);
        }
        if batch.is_explained() {
            self.remark_flood(batch);
        }
    }

    /// Whether the frame may leave a port by its VLAN setting.
    fn may_leave(&self, batch: &Batch<'_>, port: PortIndex) -> bool {
        !self.aware || batch.vlan(port).is_some_and(|mode| self.leaves(mode).is_some())
    }

    /// Explains that the frame may not leave a port.
    #[cold]
    fn remark_exit(&self, batch: &mut Batch<'_>, port: PortIndex) {
        if !batch.is_explained() {
            return;
        }
        let Some(mode) = batch.vlan(port) else { return };
        let there = [Value::Port(port), Value::Text(Text::of(mode))];
        let [port, setting] = there;
        match self.vid {
            0 => batch.remark(self.v, "{} is {}: packets of no VLAN may not leave there", &there),
            vid => {
                let text = "VLAN {} may not leave {}, which is {}";
                batch.remark(self.v, text, &[Value::Number(vid.into()), port, setting]);
            }
        }
    }

    /// If a flood has reached no port, explains why; in a rehearsal, explains which ports it has left out.
    #[cold]
    fn remark_flood(&self, batch: &mut Batch<'_>) {
        let ingress = batch.ingress();
        let takes = |batch: &Batch<'_>, port| port != ingress && self.may_leave(batch, port);
        if batch.live_ports().iter().any(|port| takes(batch, *port)) {
            if batch.is_rehearsal() {
                self.remark_skipped(batch);
            }
            return;
        }
        let has_members = batch.ports().any(|port| takes(batch, port));
        let mut found = 0;
        for port in batch.ports().filter(|port| *port != ingress) {
            if has_members && !self.may_leave(batch, port) {
                continue;
            }
            if found < NAMED {
                self.remark_silent(batch, port, has_members, found == 0);
            }
            found += 1;
        }
        match found.checked_sub(NAMED) {
            _ if found == 0 => batch.remark(self.v, "the bridge has no other port", &[]),
            None | Some(0) => {}
            Some(1) => batch.remark(self.v, "the same holds for one more port", &[]),
            Some(more) => {
                batch.remark(self.v, "the same holds for {} more ports", &[Value::Number(more as u64)]);
            }
        }
    }

    /// Names the ports that a flood has left out: those outside the VLAN in one remark, of the others [`NAMED`].
    fn remark_skipped(&self, batch: &mut Batch<'_>) {
        let ingress = batch.ingress();
        let (mut outside, mut count, mut silent) = ([Value::None; 3], 0, 0);
        for port in batch.ports().filter(|port| *port != ingress) {
            if !self.may_leave(batch, port) {
                if let Some(place) = outside.get_mut(count) {
                    *place = Value::Port(port);
                }
                count += 1;
            } else if let Some(why) = batch.obstacle(port) {
                if silent < NAMED {
                    batch.remark(self.v, "not to {}, which {}", &[Value::Port(port), Value::Text(why)]);
                }
                silent += 1;
            }
        }
        match silent.saturating_sub(NAMED) {
            0 => {}
            1 => batch.remark(self.v, "not to one more port that takes nothing", &[]),
            more => {
                let values = [Value::Number(more as u64)];
                batch.remark(self.v, "not to {} more ports that take nothing", &values);
            }
        }
        let vlan = Value::Text(match self.vid {
            0 => Text::of("packets of no VLAN"),
            vid => Text::of(format_args!("VLAN {vid}")),
        });
        let [a, b, c] = outside;
        match count {
            0 => {}
            1 => batch.remark(self.v, "not to {}: it does not carry {}", &[a, vlan]),
            2 => batch.remark(self.v, "not to {} and {}: they do not carry {}", &[a, b, vlan]),
            3 => batch.remark(self.v, "not to {}, {} and {}: they do not carry {}", &[a, b, c, vlan]),
            _ => {
                let more = Value::Number(count as u64 - 2);
                let text = "not to {}, {} and {} more ports: they do not carry {}";
                batch.remark(self.v, text, &[a, b, more, vlan]);
            }
        }
    }

    /// Explains why a port took nothing of a flood; the first such remark says first what was looked for.
    fn remark_silent(&self, batch: &mut Batch<'_>, port: PortIndex, is_member: bool, first: bool) {
        let (vid, here) = (Value::Number(self.vid.into()), Value::Port(port));
        let why = match is_member {
            true => batch.obstacle(port).map_or(Value::None, Value::Text),
            false => batch.vlan(port).map_or(Value::None, |mode| Value::Text(Text::of(mode))),
        };
        match (first, is_member, self.aware && self.vid != 0) {
            (false, true, _) => batch.remark(self.v, "{} {}", &[here, why]),
            (false, false, _) => batch.remark(self.v, "{} is {}", &[here, why]),
            (true, true, false) => batch.remark(self.v, "no other port can take it; {} {}", &[here, why]),
            (true, true, true) => {
                batch.remark(self.v, "no other port of VLAN {} can take it; {} {}", &[vid, here, why]);
            }
            (true, false, true) => {
                batch.remark(self.v, "VLAN {} has no other port here; {} is {}", &[vid, here, why]);
            }
            (true, false, false) => {
                batch.remark(self.v, "no other port takes packets of no VLAN; {} is {}", &[here, why]);
            }
        }
    }

    fn flood_aware(&self, batch: &mut Batch<'_>) {
        self.flood_both(batch, batch.live_ports(), &|_, _| true);
    }

    /// Sends the frame to the members of its VLAN among `ports`. Call this once for all destinations: it may edit the
    /// version of the frame.
    pub fn flood_among<'p>(
        &self,
        batch: &mut Batch<'_>,
        ports: impl IntoIterator<Item = &'p PortIndex> + Clone,
    ) {
        self.flood_where(batch, ports, |_, _| true);
    }

    /// Sends the frame as [`Frame::flood_among`] does, to those ports that fulfil a condition.
    pub fn flood_where<'p>(
        &self,
        batch: &mut Batch<'_>,
        ports: impl IntoIterator<Item = &'p PortIndex> + Clone,
        takes: impl Fn(&Batch<'_>, PortIndex) -> bool,
    ) {
        if self.aware {
            self.flood_both(batch, ports.clone(), &takes);
            let explained = if batch.is_explained() { NAMED } else { 0 };
            for port in ports.into_iter().take(explained) {
                if takes(batch, *port) && !self.may_leave(batch, *port) {
                    self.remark_exit(batch, *port);
                }
            }
            return;
        }
        for &port in ports {
            if port != batch.ingress() && takes(batch, port) {
                batch.send(self.v, port);
            }
        }
    }

    fn flood_both<'p>(
        &self,
        batch: &mut Batch<'_>,
        ports: impl IntoIterator<Item = &'p PortIndex> + Clone,
        takes: &impl Fn(&Batch<'_>, PortIndex) -> bool,
    ) {
        if self.flood_form(batch, ports.clone(), takes, self.v, self.tagged)
            && let Some(converted) = self.converted(batch)
        {
            self.flood_form(batch, ports, takes, converted, !self.tagged);
        }
    }

    /// Sends version `v`, which is `tagged` or not, to the members that take this form. Returns whether others take the
    /// other form.
    fn flood_form<'p>(
        &self,
        batch: &mut Batch<'_>,
        ports: impl IntoIterator<Item = &'p PortIndex>,
        takes: &impl Fn(&Batch<'_>, PortIndex) -> bool,
        v: VersionId,
        tagged: bool,
    ) -> bool {
        let mut others = false;
        for &port in ports {
            if port == batch.ingress() || !takes(batch, port) {
                continue;
            }
            match batch.vlan(port).and_then(|mode| self.leaves(mode)) {
                Some(form) if form == tagged => batch.send(v, port),
                Some(_) => others = true,
                None => {}
            }
        }
        others
    }
}
