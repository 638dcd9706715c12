//! `three-tuple`: protocol stacks of user processes beside the host's own, on the host's addresses.
//!
//! A client of a port reserves endpoints: protocol, local address, local port. Packets to reserved endpoints go to the
//! port that reserved them, all others to the host; what a stack or the host sends goes to a reservation or to the
//! uplink. A stack sends from its own reservations only, and shares the MAC address of the host (mSwitch, section 5.3).
//!
//! Parts: `request` reads requests, `ledger` keeps reservations, `hold` keeps the host off them, `lookup` finds
//! them, `fields` reads packets, `decide` decides about them, `office` hands everything over to
//! the next logic, `server` and `policy` admit clients.
//!
//! Invariant: a packet of a stack whose source that stack has not reserved leaves through no port.

mod commands;
mod decide;
mod explain;
mod fields;
mod hold;
mod holder;
mod ledger;
mod lookup;
mod office;
mod policy;
pub mod request;
mod server;
mod statistics;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fabric::worker::Threads;
use fabric::{Batch, PortIndex, PortSettings, SwitchLogic, VersionId};
use packet::{MacAddr, ether};

use crate::security::admits;
use crate::vlan::{Frame, Vlans};
use crate::{LogicError, LogicInfo, ParamDescription, ParamKind, params};
use decide::{Fate, Sender, Situation};
use explain::remark;
use fields::Seen;
use ledger::{Ledger, Terms};
use lookup::Lookup;
use office::Office;
use policy::Policy;
use server::Server;
use statistics::Statistics;

pub(crate) const INFO: LogicInfo = LogicInfo {
    name: "three-tuple",
    summary: "user-level stacks on the host's addresses: ports get the <protocol, address, port> that they reserve",
    params: param_descriptions,
    build: |params, _| Ok(Arc::new(ThreeTuple::new(params)?)),
};

/// Bytes of a packet with long extension headers that are looked at.
const LOOK: usize = 512;

/// Longest name of a file, bytes; the kernel's limit for a socket is 107.
const MAX_PATH: u64 = 107;

const RULES: &str = "rules for clients other than root, separated by semicolons: `uid=`, `gid=`, `port=`, \
                     `protocol=`, `address=`, `ports=`";

fn param_descriptions() -> Vec<ParamDescription> {
    let port = |name: &str, help: &str| ParamDescription::new(name, ParamKind::Port, help);
    let text = |name: &str, max, help: &str| ParamDescription::new(name, ParamKind::Text { max }, help);
    vec![
        port("host", "the port of the host's stack"),
        port("uplink", "the port to the network"),
        text("socket", MAX_PATH, "the Unix socket where clients reserve; an absolute path")
            .optional("reservations are made with `mswitch logic call` only"),
        text("allow", 8192, RULES).or(""),
        text("netns", 255, "the host's network namespace: a name under /run/netns or an absolute path")
            .optional("the daemon's"),
        ParamDescription::new("mac", ParamKind::Mac, "the host's MAC address")
            .optional("taken from the host's packets"),
        ParamDescription::new(
            "max-ports",
            ParamKind::number(1..=1_000_000, "local ports"),
            "largest number of reserved local ports; each takes an open file",
        )
        .or(16_384),
    ]
}

/// The logic `three-tuple`. See the module's documentation.
pub struct ThreeTuple {
    values: params::Values,
    terms: Arc<Terms>,
    socket: Option<PathBuf>,
    mac: Option<MacAddr>,
    office: OnceLock<Arc<Office>>,
    /// Server of the socket, from the preparation until the first announcement of ports.
    server: Mutex<Option<Arc<Server>>>,
    is_active: OnceLock<()>,
    host: AtomicU16,
    uplink: AtomicU16,
    statistics: Statistics,
}

impl ThreeTuple {
    /// Makes the logic. Parameters: `host` and `uplink` at least.
    pub fn new(given: &[(String, String)]) -> Result<Self, LogicError> {
        let values = params::check(&INFO.describe(), given)?;
        let bad = |name: &str, expected: String| {
            LogicError::bad_value(INFO.name, name, values.text(name), expected)
        };
        let (host, uplink) = (values.text("host").to_owned(), values.text("uplink").to_owned());
        if host == uplink {
            return Err(bad("uplink", format!("a port other than `{host}`, which is the host's,")));
        }
        let policy =
            Policy::parse(values.text("allow")).map_err(|error| bad("allow", format!("{error}: a rule")))?;
        let socket = Some(values.text("socket")).filter(|path| !path.is_empty()).map(PathBuf::from);
        if socket.as_ref().is_some_and(|path| !path.is_absolute()) {
            return Err(bad("socket", "an absolute path".into()));
        }
        let netns = Some(values.text("netns")).filter(|name| !name.is_empty());
        let netns = netns.map(|name| Path::new("/run/netns").join(name));
        let max_ports = usize::try_from(values.number("max-ports")).unwrap_or(usize::MAX);
        let mac = match values.get("mac") {
            Some(params::ParamValue::Mac(mac)) => Some(*mac),
            _ => None,
        };
        Ok(Self {
            terms: Arc::new(Terms { host, uplink, netns, max_ports, policy }),
            values,
            socket,
            mac,
            office: OnceLock::new(),
            server: Mutex::default(),
            is_active: OnceLock::new(),
            host: AtomicU16::new(PortIndex::NONE.0),
            uplink: AtomicU16::new(PortIndex::NONE.0),
            statistics: Statistics::new(),
        })
    }

    fn ledger(&self) -> &Arc<Ledger> {
        &self.office.get_or_init(Office::new).ledger
    }

    /// Returns what decides about a batch; `None` before the first ports are announced.
    #[inline(always)]
    fn situation<'a>(&'a self, batch: &Batch<'_>, lookup: &'a Lookup) -> Option<Situation<'a>> {
        let ledger = &self.office.get()?.ledger;
        let (ingress, host) = (batch.ingress(), PortIndex(self.host.load(Relaxed)));
        let uplink = PortIndex(self.uplink.load(Relaxed));
        let sender = match ingress {
            port if port == uplink => Sender::Uplink,
            port if port == host => Sender::Host,
            _ => Sender::Stack,
        };
        Some(Situation {
            lookup,
            ledger,
            sender,
            ingress,
            host,
            uplink,
            mac: ledger.mac(),
            tags: batch.vlan_aware(),
            now: batch.now(),
            is_rehearsal: batch.is_rehearsal(),
        })
    }

    /// Learns the host's MAC address from its packets. Once it is known, only a packet from a reserved address changes
    /// it: other interfaces behind the host's port have addresses of their own.
    #[inline(always)]
    fn learn_mac(&self, batch: &Batch<'_>, it: &Situation<'_>) {
        if it.sender != Sender::Host || self.mac.is_some() || it.is_rehearsal {
            return;
        }
        let Some(v) = batch.packets().next() else { return };
        let Some((_, mac)) = ether::addresses(batch.header(v)) else { return };
        if Some(mac) != it.mac {
            adopt_mac(batch, it, v, mac);
        }
    }

    /// Consecutive packets of one flow are decided once, and consecutive packets for one port are sent together.
    #[inline(never)]
    fn switch_plain(&self, batch: &mut Batch<'_>, it: &Situation<'_>) {
        // The packets `first..end` go to `port` and are not sent yet; `last` is the flow of packet `end - 1`.
        const NO_PACKET: u16 = u16::MAX;
        let (mut last, mut first, mut end, mut port) = (None, NO_PACKET, NO_PACKET, PortIndex::NONE);
        for v in batch.packets() {
            let number = v.number() as u16;
            let flow = it.plain(batch.header(v), batch.len(v));
            if number == end && flow.is_some() && flow == last {
                end += 1;
                continue;
            }
            let fate = match flow {
                Some(flow) => it.fate_of_flow(flow),
                None => self.fate_slowly(batch, v, it),
            };
            if fate == Fate::To(port) && number == end {
                end += 1;
                last = flow;
                continue;
            }
            batch.send_range(first, end, port);
            match fate {
                Fate::To(to) => (last, first, end, port) = (flow, number, number + 1, to),
                other => {
                    (last, first, end) = (None, NO_PACKET, NO_PACKET);
                    self.settle(batch, it, v, None, other);
                }
            }
        }
        batch.send_range(first, end, port);
    }

    #[cold]
    fn fate_slowly(&self, batch: &mut Batch<'_>, v: VersionId, it: &Situation<'_>) -> Fate {
        if Seen::is_cut(batch.header(v), batch.len(v)) {
            batch.pull(v, LOOK);
        }
        it.fate(batch.header(v), batch.len(v))
    }

    /// [`ThreeTuple::switch_plain`] with VLANs, port security and explanations.
    #[inline(never)]
    fn switch<const EXPLAINED: bool>(&self, batch: &mut Batch<'_>, it: &Situation<'_>) {
        let vlans = Vlans::of(batch);
        let security = batch.security();
        for v in batch.packets() {
            if let Some(security) = security
                && !ether::addresses(batch.header(v)).is_some_and(|(_, src)| admits(security, batch, v, src))
            {
                continue;
            }
            let Some(frame) = vlans.enter(batch, v) else { continue };
            let flow = it.plain(batch.header(v), batch.len(v));
            let fate = match flow {
                Some(flow) => it.fate_of_flow(flow),
                None => self.fate_slowly(batch, v, it),
            };
            if EXPLAINED {
                let seen = flow.map_or_else(|| Seen::of(batch.header(v), batch.len(v), it.tags), Seen::from);
                remark(batch, v, it, seen, fate);
            }
            self.settle(batch, it, v, Some(&frame), fate);
        }
    }

    /// Sends or drops a packet.
    fn settle(
        &self,
        batch: &mut Batch<'_>,
        it: &Situation<'_>,
        v: VersionId,
        frame: Option<&Frame>,
        fate: Fate,
    ) {
        let send = |batch: &mut Batch<'_>, port| match frame {
            Some(frame) => frame.send(batch, port),
            None => batch.send(v, port),
        };
        match fate {
            Fate::To(port) => send(batch, port),
            Fate::Everyone => match frame {
                Some(frame) => {
                    frame.flood_among(batch, std::iter::once(&it.host).chain(it.lookup.stacks()));
                }
                None => {
                    send(batch, it.host);
                    it.lookup.stacks().iter().for_each(|port| send(batch, *port));
                }
            },
            Fate::Refused(why) => {
                if !it.is_rehearsal {
                    self.statistics.count(it.ingress, why);
                }
                batch.discard(v, why.reason());
            }
        }
    }
}

#[cold]
fn adopt_mac(batch: &Batch<'_>, it: &Situation<'_>, v: VersionId, mac: MacAddr) {
    let is_reserved = || match Seen::of(batch.header(v), batch.len(v), it.tags) {
        Seen::Flow { source, .. } => it.lookup.is_reserved(source.address),
        Seen::Question { source, .. } => it.lookup.is_reserved(source),
        _ => false,
    };
    if mac.is_station() && (it.mac.is_none() || is_reserved()) {
        it.ledger.set_mac(mac);
    }
}

impl SwitchLogic for ThreeTuple {
    fn forward(&self, batch: &mut Batch<'_>) {
        let Some(office) = self.office.get() else { return };
        let lookup = office.ledger.lookup();
        let Some(it) = self.situation(batch, &lookup) else { return };
        self.learn_mac(batch, &it);
        match batch.security().is_some() || batch.vlan_aware() {
            true => self.switch::<false>(batch, &it),
            false => self.switch_plain(batch, &it),
        }
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        let Some(office) = self.office.get() else { return true };
        let lookup = office.ledger.lookup();
        if let Some(it) = self.situation(batch, &lookup) {
            self.learn_mac(batch, &it);
            self.switch::<true>(batch, &it);
        }
        true
    }

    fn prepare(&self, _threads: Threads) -> Result<(), String> {
        if self.is_active.get().is_some() {
            return Ok(());
        }
        let office = self.office.get_or_init(Office::new);
        let server = office.prepare(&self.terms, self.socket.as_deref())?;
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
        Ok(())
    }

    fn ports_changed(&self, ports: &[(PortIndex, Arc<PortSettings>)]) {
        let office = self.office.get_or_init(Office::new);
        office.ledger.set_ports(ports.iter().map(|(at, settings)| (settings.name.clone(), *at)));
        if self.is_active.set(()).is_ok() {
            let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
            office.activate(self.terms.clone(), server);
            self.mac.iter().for_each(|mac| office.ledger.set_mac(*mac));
        }
        for (role, name) in [(&self.host, &self.terms.host), (&self.uplink, &self.terms.uplink)] {
            let at = ports.iter().find(|(_, settings)| settings.name == *name);
            role.store(at.map_or(PortIndex::NONE, |(at, _)| *at).0, Relaxed);
        }
    }

    /// Ends the reservations of the port: its client has gone.
    fn port_down(&self, port: PortIndex) {
        self.ledger().release_port(port);
    }

    fn port_removed(&self, port: PortIndex) {
        self.ledger().release_port(port);
        self.statistics.forget(port);
    }
}
