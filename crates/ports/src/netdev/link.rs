//! The link of a netdev port: follows its interface, and attaches the port to the switch while the interface can carry
//! traffic.
//!
//! The port looks for an interface of the configured name. Once it has found one that it may have, it follows that
//! interface by index, whatever it is called, until the interface is removed or moved to another namespace; then it
//! looks for the name again. Each change in the namespace leads to one call of [`Inner::adapt`], on a thread for
//! blocking work, at most every [`PACE`].
//!
//! While the interface is down or has no carrier, the port stays attached with its link down: attaching an XDP program
//! makes many network cards lose their carrier, so that attaching anew for a carrier would never end.
//!
//! Invariants: the port is attached to the switch only while it holds the interface's shield, and with a host port a
//! [`Lease`], but for the moment in which these end; after [`Inner::close`] none of them exists.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use fabric::switch::PortRef;
use fabric::{AttachOptions, Attachment, Caps, OnFault, Switch};
use tokio::sync::{Notify, watch};

use super::KERNEL_DROPS;
use super::af_packet::Stall;
use super::driver::{self, Opened, Statistics};
use super::ethtool::{bus_address, speed_and_duplex};
use super::handover::{self, Followed, HostPort, Lease, Unleased};
use super::links::{Interface, Namespace, printable};
use super::options::Options;
use super::shield::Shield;
use crate::host_ports::User;
use crate::netns::{self, Netns};
use crate::numa::{self, Topology};
use crate::offload_names::offload_names;
use crate::{Environment, Link, OpenError, Status, XdpInterfaces};

/// Shortest time between two changes: a namespace's owner can change an interface in a loop, and each change rebuilds
/// the bridge's state.
const PACE: Duration = Duration::from_millis(20);
/// Time until another attempt to attach an interface that was refused for a reason that no notification ends.
const RETRY: Duration = Duration::from_secs(5);
/// Largest MTU: with the Ethernet header it makes the longest packet of the fabric.
const MAX_MTU: u32 = fabric::rx::MAX_PACKET - 14;

/// Reason for not being attached.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Obstacle {
    /// The interface is missing or cannot carry traffic: the port waits for a notification.
    Waiting(String),
    /// The port may not have the interface, or the kernel refused.
    Refused(String),
}

impl Obstacle {
    /// Replaces control characters: the kernel allows them in names of interfaces.
    fn printable(self) -> Self {
        match self {
            Obstacle::Waiting(reason) => Obstacle::Waiting(printable(&reason)),
            Obstacle::Refused(reason) => Obstacle::Refused(printable(&reason)),
        }
    }

    fn reason(&self) -> &str {
        match self {
            Obstacle::Waiting(reason) | Obstacle::Refused(reason) => reason,
        }
    }
}

/// A netdev port.
pub(super) struct Inner {
    namespace: Arc<Namespace>,
    /// Configured name of the interface.
    name: String,
    /// The port, for others who want the interface.
    owner: String,
    switch: Arc<Switch>,
    at: PortRef,
    /// Port that has the host's addresses while this port has the interface.
    host: Option<HostPort>,
    runtime: tokio::runtime::Handle,
    interfaces: XdpInterfaces,
    held: Mutex<Held>,
    shown: Mutex<Shown>,
    /// Wakes the follower for another reason than a notification.
    kick: Arc<Notify>,
    /// Whether its receive rings have stopped.
    stall: Arc<Stall>,
    closing: watch::Sender<bool>,
    this: Weak<Inner>,
}

/// What the port holds. Locked while it changes, which waits for workers: these must not take the lock.
struct Held {
    options: Options,
    closed: bool,
    interface: Option<Interface>,
    /// The host's addresses at the host port.
    lease: Option<Lease>,
    shield: Option<Shield>,
    attached: Option<Attached>,
}

/// Queues that are attached to the switch.
struct Attached {
    /// In the list of interfaces with XDP programs.
    _joined: Option<xsk::Joined<PortRef>>,
    /// The kernel's counters of them.
    statistics: Box<dyn Statistics>,
    /// What they were opened with.
    options: Options,
    /// MTU of the interface when the switch was last told.
    mtu: u32,
    /// The link is up.
    up: bool,
}

/// State for users.
#[derive(Default)]
struct Shown {
    obstacle: Option<Obstacle>,
    interface: Option<Interface>,
    /// Place of the host's addresses.
    host: Option<String>,
    /// The host port was open at the last attempt.
    host_open: bool,
    /// Name of the shield's table.
    table: Option<String>,
    caps: Option<Caps>,
    /// The driver with the reason for its choice, and the number of queues.
    driver: Option<(String, usize)>,
    /// Mbit/s.
    speed: Option<u32>,
    duplex: Option<&'static str>,
    /// NUMA node of the network card.
    node: Option<usize>,
    options: Options,
    /// Packets that the kernel has dropped since the port was opened.
    dropped: u64,
    /// Fault that a worker met, or other reason to attach the interface again.
    fault: Option<String>,
    /// Time of the next attempt after a refusal.
    retry: Option<Instant>,
}

impl Inner {
    /// Opens the port. Fails if the interface exists and the port may not have it.
    pub(super) fn open(
        namespace: Arc<Namespace>,
        name: String,
        owner: String,
        options: Options,
        at: PortRef,
        env: &Environment,
    ) -> Result<Arc<Self>, OpenError> {
        let changes = namespace.changes();
        let hosts = env.hosts.changes();
        let kick = Arc::<Notify>::default();
        let inner = Arc::new_cyclic(|this| Self {
            namespace,
            name,
            owner,
            switch: env.switch.clone(),
            at,
            host: options.host.as_deref().map(|host| HostPort::new(&env.hosts, at.bridge, host)),
            runtime: env.runtime.clone(),
            interfaces: env.interfaces.clone(),
            shown: Mutex::new(Shown { options: options.clone(), ..Shown::default() }),
            held: Mutex::new(Held {
                options,
                closed: false,
                interface: None,
                lease: None,
                shield: None,
                attached: None,
            }),
            stall: Stall::new(kick.clone()),
            kick,
            closing: watch::Sender::new(false),
            this: this.clone(),
        });
        if let Some(Obstacle::Refused(reason)) = inner.adapt() {
            inner.close();
            return Err(OpenError(reason));
        }
        inner.runtime.spawn(follow(
            inner.this.clone(),
            (changes, hosts),
            inner.kick.clone(),
            inner.closing.subscribe(),
        ));
        Ok(inner)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the runtime for the control side.
    pub(super) fn runtime(&self) -> tokio::runtime::Handle {
        self.runtime.clone()
    }

    /// Returns the interface's present name, or else the configured one.
    pub(super) fn name(&self) -> String {
        self.shown().interface.as_ref().map_or_else(|| self.name.clone(), Interface::label)
    }

    /// Returns whether there is anything to do for [`Inner::adapt`]. A failed attempt may itself change the host port,
    /// and the carrier of the interface: these do not lead to the next attempt.
    fn is_outdated(&self) -> bool {
        let shown = self.shown();
        let known = shown.interface.as_ref();
        let mut now = self.namespace.find(known.map(|i| (i.index, i.born)), &self.name);
        let refused = matches!(shown.obstacle, Some(Obstacle::Refused(_)));
        if let (Some(now), Some(known), true) = (&mut now, known, refused) {
            now.running = known.running;
        }
        let host_open = if refused { shown.host_open } else { shown.host.is_some() };
        let host = self.host.as_ref().is_some_and(|host| host.is_open() != host_open);
        let due = shown.retry.is_some_and(|retry| retry <= Instant::now());
        now.as_ref() != known
            || due
            || host
            || self.stall.has_stopped()
            || shown.fault.is_some()
            || self.namespace.gone().is_some()
    }

    /// Makes the port match its interface. Returns the reason if it is not attached afterwards.
    fn adapt(&self) -> Option<Obstacle> {
        let mut held = self.held();
        if held.closed {
            return None;
        }
        let host_open = self.host.as_ref().is_some_and(HostPort::is_open);
        let fault = self.shown().fault.take();
        let obstacle = match fault {
            // Attached again with the next attempt.
            Some(fault) => Some(Obstacle::Refused(format!("interface `{}`: {fault}; retrying", self.name()))),
            None => self.try_adapt(&mut held).err(),
        };
        let obstacle = obstacle.map(Obstacle::printable);
        if let Some(obstacle) = &obstacle {
            // Before the switch reports the change.
            self.shown().obstacle = Some(obstacle.clone());
            match obstacle {
                Obstacle::Waiting(_) => self.set_link(&mut held, false),
                // The host is reachable until the next attempt.
                Obstacle::Refused(_) if self.host.is_some() => self.give_back(&mut held),
                Obstacle::Refused(_) => self.detach(&mut held),
            }
        }
        let mut shown = self.shown();
        shown.host_open = host_open;
        shown.retry = matches!(obstacle, Some(Obstacle::Refused(_))).then(|| Instant::now() + RETRY);
        shown.interface = held.interface.clone();
        shown.host = held.lease.as_ref().and_then(Lease::describe);
        shown.table = held.shield.as_ref().and_then(Shield::table).map(str::to_owned);
        shown.options = held.options.clone();
        shown.obstacle = obstacle.clone();
        obstacle
    }

    fn try_adapt(&self, held: &mut Held) -> Result<(), Obstacle> {
        let waiting = |reason: String| Err(Obstacle::Waiting(reason));
        if let Some(gone) = self.namespace.gone() {
            self.let_go(held, &gone);
            return waiting(gone);
        }
        let known = held.interface.as_ref().map(|interface| (interface.index, interface.born));
        let Some(interface) = self.namespace.find(known, &self.name) else {
            let missing = format!(
                "interface `{}` does not exist in {}; waiting for it",
                self.name,
                self.namespace.place()
            );
            self.let_go(held, &missing);
            return waiting(missing);
        };
        let name = interface.label();
        let netns = held.options.netns.clone();
        let netns = netns.as_ref();
        if known.is_some_and(|known| known != (interface.index, interface.born)) {
            self.let_go(held, &format!("interface `{}` was removed", self.name));
        }
        if let Err(reason) = self.check(&interface, netns) {
            self.let_go(held, &reason);
            held.interface = Some(interface);
            return Err(Obstacle::Refused(reason));
        }
        let before = held.interface.replace(interface.clone());
        if let Some(before) = before.filter(|before| before.name != interface.name) {
            let from = before.label();
            tracing::info!(port = self.owner, from, to = name, "the interface was renamed");
        }
        if let Some(host) = self.host.as_ref().filter(|host| !host.is_open()) {
            self.give_back(held);
            return waiting(host.missing());
        }
        self.hold(held, &interface)?;
        if !interface.up {
            return waiting(format!(
                "interface `{name}` is set down{}; `{}` sets it up",
                netns::place(netns),
                netns::ip(netns, &format!("link set {name} up"))
            ));
        }
        if !interface.running {
            return waiting(format!(
                "interface `{name}` has no carrier: its cable is unplugged, or its peer is down"
            ));
        }
        self.begin_lease(held, &interface)?;
        self.attach(held, &interface).map_err(|error| {
            let refused = Obstacle::Refused(error.0);
            if held.attached.is_none() {
                // The link is still up if the queues were to be replaced.
                self.shown().obstacle = Some(refused.clone().printable());
                let _ = self.switch.detach(self.at);
            }
            refused
        })?;
        self.commit_lease(held)
    }

    /// Keeps other ports from the interface, and its packets from the host's own stack. With a host port, the latter
    /// begins when the host's addresses can move.
    fn hold(&self, held: &mut Held, interface: &Interface) -> Result<(), Obstacle> {
        let refused = |error: OpenError| Obstacle::Refused(error.0);
        let shield = match &mut held.shield {
            Some(shield) => shield,
            none => {
                let (name, index, owner) = (interface.name.clone(), interface.index, self.owner.clone());
                let shields = self.namespace.shields();
                let claimed = self.namespace.run(move || Shield::claim(&shields, &name, index, &owner));
                none.insert(claimed.map_err(refused)?)
            }
        };
        if self.host.is_none() || shield.table().is_some() {
            shield.raise(&interface.name, self.host.is_some()).map_err(refused)?;
        }
        Ok(())
    }

    /// Prepares the host port for the host's addresses, then cuts the host off from the interface.
    fn begin_lease(&self, held: &mut Held, interface: &Interface) -> Result<(), Obstacle> {
        let Some(host) = &self.host else { return Ok(()) };
        if held.lease.as_ref().is_some_and(Lease::is_lost) {
            return Err(Obstacle::Refused(handover::LOST.to_owned()));
        }
        if held.lease.is_none() {
            let user = self.this.clone() as Weak<dyn User>;
            let lease = Lease::begin(host, &self.owner, user, &self.namespace, interface);
            held.lease = Some(lease.map_err(|unleased| match unleased {
                Unleased::Waiting(reason) => Obstacle::Waiting(reason),
                Unleased::Refused(reason) => Obstacle::Refused(reason),
            })?);
        }
        let shield = held.shield.as_mut().map_or(Ok(()), |shield| shield.raise(&interface.name, true));
        shield.map_err(|error| Obstacle::Refused(error.0))
    }

    /// Moves the host's addresses, unless they have moved already.
    fn commit_lease(&self, held: &mut Held) -> Result<(), Obstacle> {
        let Some(lease) = &mut held.lease else { return Ok(()) };
        lease.commit(&self.namespace, &self.this).map_err(|error| Obstacle::Refused(error.0))
    }

    /// Moves what has appeared at the interface to the host port. Returns what to follow from now on; `None` if the
    /// host's addresses are no longer there.
    pub(super) fn follow_host(&self) -> Option<Followed> {
        let followed = self.held().lease.as_mut()?.follow(&self.namespace);
        self.check_lease(followed)
    }

    /// Starts another guardian. Returns as [`Inner::follow_host`] does.
    pub(super) fn guard_host_again(&self) -> Option<Followed> {
        let followed = {
            let mut held = self.held();
            let lease = held.lease.as_mut()?;
            let followed = lease.guard_again(&self.namespace);
            self.shown().host = lease.describe();
            followed
        };
        self.check_lease(followed)
    }

    /// Gives the interface up until the next attempt if its lease was lost.
    fn check_lease(&self, followed: Option<Followed>) -> Option<Followed> {
        if followed.is_none() {
            self.adapt();
            self.kick.notify_one();
        }
        followed
    }

    /// Refuses interfaces that are of no use to a switch, or belong to another.
    fn check(&self, interface: &Interface, netns: Option<&Netns>) -> Result<(), String> {
        let name = interface.label();
        if interface.loopback {
            return Err(format!("interface `{name}` is a loopback interface, which no other host is behind"));
        }
        if !interface.ethernet {
            return Err(format!("interface `{name}` carries no Ethernet frames"));
        }
        let Some(master) = interface.master else { return Ok(()) };
        let (master, kind) =
            self.namespace.name_and_kind(master).unwrap_or_else(|| (master.to_string(), "".into()));
        let kind = if kind.is_empty() { "interface" } else { &kind };
        Err(format!(
            "interface `{name}` belongs to {kind} `{master}`; remove it there with `{}`",
            netns::ip(netns, &format!("link set {name} nomaster"))
        ))
    }

    /// Attaches the port, or changes how it is attached.
    fn attach(&self, held: &mut Held, interface: &Interface) -> Result<(), OpenError> {
        let refused = |error: fabric::SwitchError| OpenError(error.to_string());
        let mtu = interface.mtu.min(MAX_MTU);
        let stays = |open: &&mut Attached| {
            open.options == held.options && open.statistics.fits(interface.mtu) && !self.stall.has_stopped()
        };
        if let Some(attached) = held.attached.as_mut().filter(stays) {
            if attached.mtu != interface.mtu {
                self.switch.set_client_mtu(self.at, mtu).map_err(refused)?;
                attached.mtu = interface.mtu;
            }
            if !attached.up {
                self.show_speed(interface);
                self.set_link(held, true);
            }
            return Ok(());
        }
        // With both open, packets would come twice.
        if let Some(Attached { statistics, .. }) = held.attached.take() {
            self.switch.suspend(self.at).map_err(refused)?;
            self.shown().dropped += statistics.dropped();
        }
        let Opened { rx, tx, caps, statistics, driver, reason, xdp } =
            driver::open(&self.namespace, interface, &held.options, &self.stall, &self.runtime)?;
        let queues = rx.len();
        let attachment = Attachment { rx, tx, caps, mtu, on_fault: self.on_fault() };
        let node = Topology::host().of_device(&bus_address(self.namespace.socket(), &interface.name));
        let placed = AttachOptions { placement: numa::near(node), ..AttachOptions::default() };
        // Whoever hears of the link asks for its speed.
        self.show_speed(interface);
        self.switch.attach_with(self.at, attachment, placed).map_err(refused)?;
        let options = held.options.clone();
        let _joined = xdp.map(|xdp| self.interfaces.join(self.at, xdp));
        held.attached = Some(Attached { _joined, statistics, options, mtu: interface.mtu, up: true });
        let mut shown = self.shown();
        shown.caps = Some(caps);
        shown.node = node;
        shown.driver = Some((format!("{driver} ({reason})"), queues));
        Ok(())
    }

    /// Returns the speed of the interface in Mbit/s, if it is known.
    pub(super) fn speed(&self) -> Option<u32> {
        self.shown().speed
    }

    fn show_speed(&self, interface: &Interface) {
        let (speed, duplex) = speed_and_duplex(self.namespace.socket(), &interface.name);
        let mut shown = self.shown();
        (shown.speed, shown.duplex) = (speed, duplex);
    }

    /// Sets the link up or down, if the port is attached.
    fn set_link(&self, held: &mut Held, up: bool) {
        let Some(attached) = held.attached.as_mut().filter(|attached| attached.up != up) else { return };
        attached.up = up;
        if let Err(error) = self.switch.set_link(self.at, up) {
            // The port was removed from the switch, and thus detached.
            tracing::debug!(port = self.owner, %error, "netdev port was detached already");
        }
    }

    /// Returns the handler that workers call when a socket fails. It does not block them.
    fn on_fault(&self) -> OnFault {
        // The switch keeps this while the port is attached; it must not keep the port alive.
        let this = self.this.clone();
        Arc::new(move |fault| {
            let Some(inner) = this.upgrade() else { return };
            inner.shown().fault = Some(fault.to_string());
            inner.kick.notify_one();
        })
    }

    /// Gives the interface up, for this reason.
    fn let_go(&self, held: &mut Held, reason: &str) {
        self.shown().obstacle = Some(Obstacle::Waiting(reason.to_owned()));
        self.give_back(held);
        held.interface = None;
    }

    /// Detaches the port from the switch, and gives the host its interface and its addresses.
    fn give_back(&self, held: &mut Held) {
        let returned = held.lease.take().and_then(|lease| lease.release(&self.namespace));
        if returned.is_some() {
            // First, so that no packet is lost: the host's stack takes what arrives twice only once.
            held.shield = None;
        }
        self.detach(held);
        held.shield = None;
        if let Some(returned) = returned {
            returned.finish(&self.namespace);
        }
        self.shown().host = None;
    }

    /// Detaches the port from the switch, if it is attached. The interface stays its own.
    fn detach(&self, held: &mut Held) {
        let Some(Attached { statistics, .. }) = held.attached.take() else { return };
        if let Err(error) = self.switch.detach(self.at) {
            // The port was removed from the switch, and thus detached.
            tracing::debug!(port = self.owner, %error, "netdev port was detached already");
        }
        let mut shown = self.shown();
        shown.dropped += statistics.dropped();
        (shown.caps, shown.speed, shown.duplex, shown.driver) = (None, None, None, None);
    }

    /// Begins to close the port on another thread.
    pub(super) fn begin_close(&self) {
        let Some(inner) = self.this.upgrade() else { return };
        self.runtime.spawn_blocking(move || inner.close());
    }

    /// Closes the port, or waits until it is closed.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
        let mut held = self.held();
        if !std::mem::replace(&mut held.closed, true) {
            self.let_go(&mut held, "the port is closed");
        }
    }

    /// Returns whether the host's addresses are at another port meanwhile.
    pub(super) fn has_host(&self) -> bool {
        self.host.is_some()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.held.try_lock().is_ok_and(|held| held.closed)
    }

    /// Changes driver and queues; keeps the former ones if the kernel refuses these.
    pub(super) fn reconfigure(&self, wanted: &Options) -> Result<bool, OpenError> {
        let before = {
            let mut held = self.held();
            let but_driver = Options { driver: wanted.driver, queues: wanted.queues, ..held.options.clone() };
            if held.closed || but_driver != *wanted {
                return Ok(false);
            }
            std::mem::replace(&mut held.options, wanted.clone())
        };
        let Some(Obstacle::Refused(reason)) = self.adapt() else { return Ok(true) };
        self.held().options = before;
        self.adapt();
        // The follower retries what was refused.
        self.kick.notify_one();
        Err(OpenError(reason))
    }

    /// Returns the reason why only reopening the port can help: its namespace is gone, and another one may have taken
    /// its name.
    pub(super) fn lost(&self) -> Option<String> {
        self.namespace.gone()
    }

    pub(super) fn status(&self) -> Status {
        if let Ok(held) = self.held.try_lock()
            && let Some(Attached { statistics, .. }) = &held.attached
        {
            let mut shown = self.shown();
            shown.dropped += statistics.dropped();
            if let Some(lost) = statistics.lost() {
                shown.fault = Some(lost.into());
                self.kick.notify_one();
            }
        }
        let shown = self.shown();
        let interface = shown.interface.as_ref();
        let name = interface.map_or_else(|| self.name.clone(), Interface::label);
        let options = &shown.options;
        let (driver, queues) = match &shown.driver {
            Some((driver, queues)) => (driver.clone(), queues.to_string()),
            None => (options.driver.to_string(), options.queues.to_string()),
        };
        let netns = options.netns.as_ref().map_or_else(|| "the switch's".to_owned(), ToString::to_string);
        let details = [
            ("driver", Some(driver)),
            ("interface", Some(name)),
            ("netns", Some(netns)),
            ("index", interface.map(|interface| interface.index.to_string())),
            ("mac", interface.and_then(|interface| interface.mac).map(|mac| mac.to_string())),
            ("mtu", interface.map(|interface| interface.mtu.to_string())),
            ("speed", shown.speed.map(|speed| format!("{speed} Mbit/s"))),
            ("duplex", shown.duplex.map(str::to_owned)),
            (numa::DETAIL, shown.node.map(|node| node.to_string())),
            ("queues", Some(queues)),
            ("offloads", shown.caps.as_ref().map(offload_names)),
            (KERNEL_DROPS, Some(shown.dropped.to_string())),
            ("host", shown.host.clone().or_else(|| shown.table.as_ref().map(cut_off))),
        ];
        let details = details.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let link = match &shown.obstacle {
            None => Link::Up,
            Some(obstacle) => Link::Down(obstacle.reason().to_owned()),
        };
        Status { link, details: details.collect() }
    }
}

fn cut_off(table: &String) -> String {
    format!("cut off by nftables table netdev {table}")
}

impl User for Inner {
    fn host_left(&self) {
        self.adapt();
    }
}

/// Follows changes of interfaces and of host ports until the port is closed.
async fn follow(
    port: Weak<Inner>,
    (mut changes, mut hosts): (watch::Receiver<()>, watch::Receiver<()>),
    kick: Arc<Notify>,
    mut closing: watch::Receiver<bool>,
) {
    loop {
        let Some(inner) = port.upgrade() else { return };
        let retry = inner.shown().retry;
        drop(inner);
        let retry = async {
            match retry {
                Some(retry) => tokio::time::sleep_until(retry.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return,
            () = kick.notified() => {}
            changed = changes.changed() => if changed.is_err() { return },
            changed = hosts.changed() => if changed.is_err() { return },
            () = retry => {}
        }
        let Some(inner) = port.upgrade() else { return };
        if !inner.is_outdated() {
            continue;
        }
        if tokio::task::spawn_blocking(move || inner.adapt()).await.is_err() {
            return;
        }
        tokio::time::sleep(PACE).await;
    }
}
