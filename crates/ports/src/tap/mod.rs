//! TAP ports: an interface of the host's stack, in any network namespace.
//!
//! The interface is made when the port opens and vanishes when the port is closed or the process ends: it belongs to
//! the file descriptors that are its queues. With `persist` it remains for the next start, and vanishes when the port
//! is removed from the configuration. A TAP interface that others made is taken and left in place (`acquire`); another
//! interface of that name is attached as a netdev port would (`as_netdev`). Frames cross after a `virtio_net_hdr`, so
//! that 64 KiB segments and partial checksums pass uncut in both directions as far as the kernel supports it.
//!
//! Invariants: a port is attached from its opening until it is closed, or its interface or its namespace's name is
//! deleted from outside; after that nothing of it remains in the switch. No file descriptor of the interface outlives
//! [`Port::close`].

mod acquire;
mod as_netdev;
mod device;
mod egress;
mod holder;
mod interface;
mod lookup;
pub(crate) mod options;
mod queue;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use fabric::OnFault;
use fabric::switch::PortRef;
use fabric::{Attachment, Caps, Egress, Fault, RxQueue, Switch};
use tokio::task::AbortHandle;

use crate::bounded::within;
use crate::guard::CLOSING;
use crate::host_ports::{Host, HostPorts, Key};
use crate::name_watch::{self, Identity};
use crate::netdev::MtuWatch;
pub use crate::netns::Netns;
use crate::offload_names::offload_names;
use crate::{Environment, Link, OpenError, Port, Spec, Status, netns};
use acquire::{Maker, Source, Tap};
use device::{Device, State};
use options::DEFAULT_MTU;
pub use options::{Address, Options};

/// Shortest time between two changes of the MTU: a namespace's owner can change it in a loop, and each change rebuilds
/// the bridge's state.
const PACE: Duration = Duration::from_millis(20);

/// Makes the interface, or takes an existing one, and attaches it to its port of the switch.
pub fn open(options: &Options, at: PortRef, env: &Environment) -> Result<Box<dyn Port>, OpenError> {
    options.check()?;
    let settings = env.switch.settings(at).map_err(|error| OpenError(error.to_string()))?;
    let name = options.interface_name(&settings.name)?;
    let (its_name, its_options) = (name.clone(), options.clone());
    let (source, identity) = netns::run(move || {
        let identity = match &its_options.netns {
            Some(netns) => {
                let file = netns::open(netns)?;
                netns::enter(netns, file.as_fd())?;
                name_watch::identity(&file).ok()
            }
            None => None,
        };
        Ok((acquire::get(&its_name, &its_options)?, identity))
    })?;
    let Tap { device, index, mtu, maker } = match source {
        Source::Tap(tap) => tap,
        Source::Other(kind) => return as_netdev::open(&kind, &name, options, at, env),
    };
    let queues = device.queues.clone();
    let caps = device.caps;
    let port = Arc::new_cyclic(|this: &Weak<Inner>| Inner {
        this: this.clone(),
        switch: env.switch.clone(),
        hosts: env.hosts.clone(),
        key: (at.bridge, settings.name.clone()),
        mtu: Mutex::new(Mtu { own: mtu, lent: None }),
        at,
        name,
        index,
        maker,
        options: Mutex::new(options.clone()),
        caps,
        end: OnceLock::new(),
        persistent: AtomicBool::new(maker == Maker::EarlierPort),
        device: Mutex::new(Some(device)),
        followers: OnceLock::new(),
    });
    let attachment = Attachment {
        rx: queues.iter().map(|fd| Box::new(queue::TapQueue(fd.clone())) as Box<dyn RxQueue>).collect(),
        tx: queues.iter().map(|fd| Arc::new(egress::TapEgress(fd.clone())) as Arc<dyn Egress>).collect(),
        caps,
        mtu,
        on_fault: on_fault(&port, env.runtime.clone()),
    };
    if let Err(error) = env.switch.attach(at, attachment) {
        // Another client may be attached there, and stays.
        port.device().take().into_iter().for_each(|device| port.release(device));
        return Err(OpenError(error.to_string()));
    }
    // On a failure its end detaches it.
    let opened = TapPort(port.clone());
    port.apply_persistence()?;
    env.hosts.join(port.key.clone(), port.this.clone());
    follow(&port, identity, env)?;
    Ok(Box::new(opened))
}

/// Deletes the persistent interface that a port called `port` with these options has left, unless `successor`, the port's
/// next options, can go on with it. For a port that is not open; an interface that somebody holds, or whose alias is not
/// the switch's, remains.
pub fn discard(options: &Options, port: &str, successor: Option<&Options>) -> Result<(), OpenError> {
    let name = options.interface_name(port)?;
    let goes_on =
        |next: &Options| options.can_become(next) && next.interface_name(port).is_ok_and(|next| next == name);
    if !options.persist || successor.is_some_and(goes_on) {
        return Ok(());
    }
    let netns = options.netns.clone();
    netns::run(move || {
        if let Some(netns) = &netns {
            // The interface ends with its namespace.
            if !netns.path().exists() {
                return Ok(());
            }
            netns::enter(netns, netns::open(netns)?.as_fd())?;
        }
        acquire::delete_left(&name)
    })
}

/// Starts the tasks that follow the namespace's name and the interface's MTU. The latter only of an interface that
/// somebody else may configure: it existed before.
fn follow(port: &Arc<Inner>, identity: Option<Identity>, env: &Environment) -> Result<(), OpenError> {
    let netns = port.options().netns.clone();
    let mut followers = Vec::new();
    if port.maker != Maker::Port {
        let changes = env.namespaces.watch_mtu(netns.as_ref(), (port.index, port.mtu().own), &env.runtime)?;
        followers.push(follow_mtu(port, changes, env));
    }
    if let (Some(netns), Some(identity)) = (&netns, identity) {
        followers.extend(follow_namespace(port, netns, identity, env));
    }
    // Set once.
    let _ = port.followers.set(followers);
    Ok(())
}

/// Tells the switch the interface's MTU when others change it.
fn follow_mtu(port: &Arc<Inner>, mut changes: MtuWatch, env: &Environment) -> AbortHandle {
    let this = Arc::downgrade(port);
    let follower = env.runtime.spawn(async move {
        while let Some(mtu) = changes.changed().await {
            let Some(port) = this.upgrade() else { return };
            // A failure would be a panic, which is logged.
            let _ = tokio::task::spawn_blocking(move || port.mtu_changed(mtu)).await;
            tokio::time::sleep(PACE).await;
        }
    });
    follower.abort_handle()
}

/// Ends the port when its namespace's name no longer leads to the namespace. The port's descriptors would keep a deleted
/// namespace alive.
fn follow_namespace(
    port: &Arc<Inner>,
    netns: &Netns,
    identity: Identity,
    env: &Environment,
) -> Option<AbortHandle> {
    let _entered = env.runtime.enter();
    let watched = env.namespaces.watch_name(netns, identity)?;
    let this = Arc::downgrade(port);
    let follower = env.runtime.spawn(async move {
        let reason = watched.gone().await;
        let Some(port) = this.upgrade() else { return };
        if port.end.set(End::Namespace(reason)).is_ok() {
            // A failure would be a panic, which is logged.
            let _ = tokio::task::spawn_blocking(move || port.detach()).await;
        }
    });
    Some(follower.abort_handle())
}

/// Returns the handler that workers call when the interface is gone. It does not block them: the detaching, which waits
/// for workers, happens on another thread.
fn on_fault(port: &Arc<Inner>, runtime: tokio::runtime::Handle) -> OnFault {
    // The switch keeps this while the port is attached; it must not keep the port alive.
    let port = Arc::downgrade(port);
    Arc::new(move |fault| {
        let Some(port) = port.upgrade() else { return };
        // Every queue may report it; the first is enough.
        if port.end.set(End::Fault(fault)).is_ok() {
            runtime.spawn(async move { tokio::task::spawn_blocking(move || port.detach()).await });
        }
    })
}

/// Event that ended a port.
enum End {
    Fault(Fault),
    /// The namespace's name no longer leads to the namespace, for this reason.
    Namespace(String),
}

struct Inner {
    this: Weak<Inner>,
    switch: Arc<Switch>,
    hosts: HostPorts,
    /// Its name as a host port.
    key: Key,
    mtu: Mutex<Mtu>,
    at: PortRef,
    /// The interface's name when the port was opened.
    name: String,
    /// The interface's index in its namespace.
    index: u32,
    maker: Maker,
    /// The switch has made the interface persistent.
    persistent: AtomicBool,
    options: Mutex<Options>,
    caps: Caps,
    /// Event that ended the port.
    end: OnceLock<End>,
    /// `None` once the port is detached. The lock is held while detaching, so workers must not take it.
    device: Mutex<Option<Device>>,
    /// Tasks that follow the namespace's name and the interface.
    followers: OnceLock<Vec<AbortHandle>>,
}

/// MTU of the interface, bytes.
struct Mtu {
    /// Its own.
    own: u32,
    /// The one that a netdev port has given it, together with addresses.
    lent: Option<u32>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.followers.get().into_iter().flatten().for_each(AbortHandle::abort);
    }
}

impl Inner {
    fn device(&self) -> MutexGuard<'_, Option<Device>> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn options(&self) -> MutexGuard<'_, Options> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mtu(&self) -> MutexGuard<'_, Mtu> {
        self.mtu.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the MTU: now, or when it is no longer lent. Without one, an interface of the switch has the default, and
    /// one that others made keeps its own.
    fn set_mtu(&self, wanted: Option<u32>) -> Result<(), OpenError> {
        let mut mtu = self.mtu();
        let own = match (wanted, self.maker) {
            (Some(wanted), _) => wanted,
            (None, Maker::Others { .. }) => mtu.own,
            (None, _) => DEFAULT_MTU,
        };
        // The known one may be behind that of the interface.
        if mtu.lent.is_none() && (mtu.own != own || wanted.is_some()) {
            self.apply_mtu(mtu.own, own)?;
        }
        mtu.own = own;
        self.options().mtu = wanted;
        Ok(())
    }

    /// Changes the MTU of the interface and of the switch: first of the side that has to accept larger frames.
    fn apply_mtu(&self, before: u32, mtu: u32) -> Result<(), OpenError> {
        let netns = self.options().netns.clone();
        if self.device().is_none() {
            return Err(OpenError(format!("interface `{}` is gone", self.name)));
        }
        let (name, index) = (self.name.clone(), self.index);
        // An interface that was moved is still looked up in its original namespace: the new one is unknown.
        let set = move || netns::run_in(netns.as_ref(), move || interface::set_mtu(&name, index, mtu));
        let tell = || self.switch.set_client_mtu(self.at, mtu).map_err(|error| OpenError(error.to_string()));
        if mtu > before {
            set()?;
            tell()
        } else {
            tell()?;
            set()
        }
    }

    /// Tells the switch that the interface has another MTU. One that was given for a host's addresses is told by those
    /// who give it.
    fn mtu_changed(&self, now: u32) {
        let mut mtu = self.mtu();
        if mtu.own == now || mtu.lent.is_some() || self.hosts.user(&self.key).is_some() {
            return;
        }
        mtu.own = now;
        if let Err(error) = self.switch.set_client_mtu(self.at, now) {
            // The port was removed from the switch, and thus detached.
            tracing::debug!(interface = self.name, %error, "TAP port was detached already");
        }
    }

    /// Lets the interface outlive the port, or not, as the options say. An interface that others made, or that somebody
    /// has made his own, outlives it.
    fn apply_persistence(&self) -> Result<(), OpenError> {
        let Options { persist, netns, .. } = self.options().clone();
        if matches!(self.maker, Maker::Others { .. }) || persist == self.persistent.load(Relaxed) {
            return Ok(());
        }
        if !persist && self.given_away() {
            tracing::info!(
                interface = self.name,
                "the interface remains: its alias is no longer the switch's"
            );
            return Ok(());
        }
        let (name, index) = (self.name.clone(), self.index);
        let alias = if persist { lookup::ALIAS } else { "" };
        netns::run_in(netns.as_ref(), move || interface::set_alias(&name, index, alias))?;
        self.set_persistent(persist)
    }

    fn set_persistent(&self, on: bool) -> Result<(), OpenError> {
        let held = self.device();
        let Some(device) = held.as_ref() else { return Ok(()) };
        device.set_persistent(on).map_err(|error| {
            OpenError(format!(
                "interface `{}`: the kernel refused to change its lifetime: {error}",
                self.name
            ))
        })?;
        self.persistent.store(on, Relaxed);
        Ok(())
    }

    /// Returns whether somebody has changed the alias of the persistent interface, and thus made it his own.
    fn given_away(&self) -> bool {
        let (netns, index) = (self.options().netns.clone(), self.index);
        let find = move || lookup::find_index(index).map_err(|error| OpenError(error.to_string()));
        matches!(netns::run_in(netns.as_ref(), find), Ok(Some(found)) if !found.ours)
    }

    /// Returns whether a port with these options goes on with the interface. It finds the interface by its present name.
    fn suits(&self, next: &Options) -> bool {
        let (multi_queue, state) = match self.device().as_ref() {
            Some(device) => (device.multi_queue, device.state()),
            None => return false,
        };
        let (State::Up(present) | State::AdminDown(present)) = state else { return false };
        self.options().can_become(next)
            && next.interface_name(&self.key.1).is_ok_and(|name| name == present)
            && (next.queues == 1 || multi_queue)
    }

    /// Leaves a persistent interface to the port's next options, without what these no longer give it, or lets it
    /// vanish with the port.
    fn leave(&self, next: Option<&Options>) -> Result<(), OpenError> {
        if !self.persistent.load(Relaxed) {
            return Ok(());
        }
        match next.filter(|next| self.suits(next)) {
            Some(next) => {
                let (before, after) = (self.options().clone(), next.clone());
                let (name, index) = (self.name.clone(), self.index);
                let netns = before.netns.clone();
                netns::run_in(netns.as_ref(), move || interface::withdraw(&name, index, &before, &after))
            }
            None if self.given_away() => {
                tracing::info!(
                    interface = self.name,
                    "the interface remains: its alias is no longer the switch's"
                );
                Ok(())
            }
            None => self.set_persistent(false),
        }
    }

    /// Removes the queues from the switch and closes them, once: later another port may be attached there. Addresses of
    /// another interface return first.
    fn detach(&self) {
        self.hosts.leave(&self.key, &(self.this.clone() as Weak<dyn Host>));
        let mut held = self.device();
        if let Some(device) = held.take() {
            if let Err(error) = self.switch.detach(self.at) {
                // The port was removed from the switch, and thus detached.
                tracing::debug!(interface = self.name, %error, "TAP port was detached already");
            }
            self.release(device);
        }
    }

    /// Closes the queues.
    fn release(&self, device: Device) {
        let (name, index, maker) = (self.name.clone(), self.index, self.maker);
        let netns = self.options().netns.clone();
        let release = move || {
            if let Maker::Others { gso_max_size } = maker {
                // Best effort: the namespace may have been deleted.
                let restore = move || interface::set_gso_max_size(&name, index, gso_max_size);
                let _ = netns::run_in(netns.as_ref(), restore);
            }
            device.release();
        };
        // The kernel waits until the interface is unreferenced, and processes in its namespace may hold references for
        // long.
        if let Err(error) = within(CLOSING, "mswitch-tap", release) {
            tracing::warn!(interface = self.name, "removing the TAP interface: {error}");
        }
    }

    fn deleted(name: &str) -> Link {
        Link::Down(format!("interface `{name}` was deleted"))
    }

    /// Returns whether traffic can pass, and the interface's present name.
    fn link(&self) -> (Link, String) {
        let held = self.device();
        let name = self.name.clone();
        match (self.end.get(), held.as_ref()) {
            (Some(End::Fault(Fault::Device(rustix::io::Errno::BADFD))), _) => (Self::deleted(&name), name),
            (Some(End::Fault(fault)), _) => (Link::Down(fault.to_string()), name),
            (Some(End::Namespace(reason)), _) => (Link::Down(reason.clone()), name),
            (None, None) => (Link::Down("the port is closed".into()), name),
            (None, Some(device)) => match device.state() {
                State::Up(name) => (Link::Up, name),
                State::AdminDown(name) => {
                    let options = self.options();
                    let netns = options.netns.as_ref();
                    let reason = format!(
                        "interface `{name}` is set down{}; `{}` sets it up",
                        netns::place(netns),
                        netns::ip(netns, &format!("link set {name} up"))
                    );
                    (Link::Down(reason), name)
                }
                // No packet has come yet that would show it to a worker.
                State::Gone => (Self::deleted(&name), name),
            },
        }
    }
}

impl Host for Inner {
    fn interface(&self) -> Option<String> {
        match self.device().as_ref()?.state() {
            State::Up(name) | State::AdminDown(name) => Some(name),
            State::Gone => None,
        }
    }

    fn lend_mtu(&self, mtu: Option<u32>) {
        let mut held = self.mtu();
        if held.lent == mtu {
            return;
        }
        let lent = std::mem::replace(&mut held.lent, mtu);
        let set = match mtu {
            Some(mtu) => {
                self.switch.set_client_mtu(self.at, mtu).map_err(|error| OpenError(error.to_string()))
            }
            // It may have been set meanwhile.
            None => self.apply_mtu(lent.unwrap_or(held.own), held.own),
        };
        if let Err(error) = set {
            // A port that is being closed needs no MTU any more.
            tracing::debug!(interface = self.name, error = error.0, "the MTU of the host port is unchanged");
        }
    }
}

struct TapPort(Arc<Inner>);

impl Port for TapPort {
    fn status(&self) -> Status {
        let (link, interface) = self.0.link();
        let options = self.0.options().clone();
        let netns = options.netns.as_ref().map_or_else(|| "the switch's".to_owned(), ToString::to_string);
        let mtu = {
            let mtu = self.0.mtu();
            mtu.lent.unwrap_or(mtu.own)
        };
        let lifetime = match (self.0.maker, self.0.persistent.load(Relaxed)) {
            (Maker::Others { .. }, _) => Some("made by others; remains when the port is removed"),
            (_, true) => Some("remains when the daemon ends; `port del` removes it"),
            (_, false) => None,
        };
        let details = [
            ("interface", Some(interface)),
            ("netns", Some(netns)),
            ("queues", Some(options.queues.to_string())),
            ("offloads", Some(offload_names(&self.0.caps))),
            ("mtu", Some(mtu.to_string())),
            ("lifetime", lifetime.map(str::to_owned)),
            ("host", self.0.hosts.user(&self.0.key).map(|user| format!("has the addresses of {user}"))),
        ];
        let details = details.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Status { link, details: details.collect() }
    }

    fn speed(&self) -> Option<u32> {
        Some(crate::VIRTUAL_SPEED)
    }

    fn reconfigure(&self, spec: &Spec) -> Result<bool, OpenError> {
        let Spec::Tap(wanted) = spec else { return Ok(false) };
        let before = self.0.options().clone();
        if (Options { mtu: wanted.mtu, persist: wanted.persist, ..before.clone() }) != *wanted {
            return Ok(false);
        }
        if before.mtu != wanted.mtu {
            self.0.set_mtu(wanted.mtu)?;
        }
        self.0.options().persist = wanted.persist;
        self.0.apply_persistence().inspect_err(|_| self.0.options().persist = before.persist)?;
        Ok(true)
    }

    fn notice(&self) -> Option<String> {
        matches!(self.0.maker, Maker::Others { .. }).then(|| {
            format!("interface `{}` existed already: the port uses it, and leaves it in place", self.0.name)
        })
    }

    fn remove(&self, successor: Option<&Spec>) {
        let next = match successor {
            Some(Spec::Tap(next)) => Some(next),
            _ => None,
        };
        if let Err(error) = self.0.leave(next) {
            tracing::warn!(interface = self.0.name, "the persistent interface remains as it is: {error}");
        }
        self.close();
    }

    fn lost(&self) -> Option<String> {
        let gone = self.0.end.get().is_some()
            || self.0.device().as_ref().is_some_and(|device| matches!(device.state(), State::Gone));
        match self.0.link().0 {
            Link::Down(reason) if gone => Some(reason),
            _ => None,
        }
    }

    fn close(&self) {
        self.0.detach();
    }
}

impl Drop for TapPort {
    fn drop(&mut self) {
        self.0.detach();
    }
}
