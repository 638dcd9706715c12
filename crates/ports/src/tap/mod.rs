//! TAP ports: an interface of the host's stack, in any network namespace.
//!
//! The interface is made when the port opens and vanishes when the port is closed or the process ends: it belongs to
//! the file descriptors that are its queues. Frames cross after a `virtio_net_hdr`, so that 64 KiB segments and partial
//! checksums pass uncut in both directions as far as the kernel supports it.
//!
//! Invariants: a port is attached from its opening until it is closed, or its interface or its namespace's name is
//! deleted from outside; after that nothing of it remains in the switch. No file descriptor of the interface outlives [`Port::close`].

mod device;
mod egress;
mod holder;
mod interface;
mod options;
mod queue;

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use fabric::OnFault;
use fabric::switch::PortRef;
use fabric::{Attachment, Caps, Egress, Fault, RxQueue, Switch};
use tokio::task::AbortHandle;

use crate::bounded::within;
use crate::guard::CLOSING;
use crate::host_ports::{Host, HostPorts, Key};
use crate::name_watch::{self, Identity};
pub use crate::netns::Netns;
use crate::offload_names::offload_names;
use crate::{Environment, Link, OpenError, Port, Spec, Status, netns};
use device::{Device, State};
pub use options::{Address, Options};

/// Makes the interface and attaches it to its port of the switch.
pub fn open(options: &Options, at: PortRef, env: &Environment) -> Result<Box<dyn Port>, OpenError> {
    options.check()?;
    let settings = env.switch.settings(at).map_err(|error| OpenError(error.to_string()))?;
    let name = options.interface_name(&settings.name)?;
    let (its_name, its_options) = (name.clone(), options.clone());
    let (device, identity) = netns::run(move || {
        let identity = match &its_options.netns {
            Some(netns) => {
                let file = netns::open(netns)?;
                netns::enter(netns, file.as_fd())?;
                name_watch::identity(&file).ok()
            }
            None => None,
        };
        let device = Device::create(&its_name, its_options.queues, its_options.offloads)?;
        interface::configure(&its_name, device.index(&its_name)?, &its_options)?;
        Ok((device, identity))
    })?;
    let queues = device.queues.clone();
    let caps = device.caps;
    let port = Arc::new_cyclic(|this: &Weak<Inner>| Inner {
        this: this.clone(),
        switch: env.switch.clone(),
        hosts: env.hosts.clone(),
        key: (at.bridge, settings.name.clone()),
        lent_mtu: Mutex::default(),
        at,
        name,
        options: Mutex::new(options.clone()),
        caps,
        end: OnceLock::new(),
        device: Mutex::new(Some(device)),
        follower: OnceLock::new(),
    });
    let attachment = Attachment {
        rx: queues.iter().map(|fd| Box::new(queue::TapQueue(fd.clone())) as Box<dyn RxQueue>).collect(),
        tx: queues.iter().map(|fd| Arc::new(egress::TapEgress(fd.clone())) as Arc<dyn Egress>).collect(),
        caps,
        mtu: options.mtu,
        on_fault: on_fault(&port, env.runtime.clone()),
    };
    env.switch.attach(at, attachment).map_err(|error| OpenError(error.to_string()))?;
    env.hosts.join(port.key.clone(), port.this.clone());
    if let (Some(netns), Some(identity)) = (&options.netns, identity) {
        follow(&port, netns, identity, env);
    }
    Ok(Box::new(TapPort(port)))
}

/// Ends the port when its namespace's name no longer leads to the namespace. The port's descriptors would keep a deleted
/// namespace alive.
fn follow(port: &Arc<Inner>, netns: &Netns, identity: Identity, env: &Environment) {
    let _entered = env.runtime.enter();
    let Some(watched) = env.namespaces.watch_name(netns, identity) else { return };
    let this = Arc::downgrade(port);
    let follower = env.runtime.spawn(async move {
        let reason = watched.gone().await;
        let Some(port) = this.upgrade() else { return };
        if port.end.set(End::Namespace(reason)).is_ok() {
            // A failure would be a panic, which is logged.
            let _ = tokio::task::spawn_blocking(move || port.detach()).await;
        }
    });
    // Set once.
    let _ = port.follower.set(follower.abort_handle());
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
    /// MTU that a netdev port has given the interface, together with addresses.
    lent_mtu: Mutex<Option<u32>>,
    at: PortRef,
    /// The interface's name when it was made.
    name: String,
    options: Mutex<Options>,
    caps: Caps,
    /// Event that ended the port.
    end: OnceLock<End>,
    /// `None` once the port is detached. The lock is held while detaching, so workers must not take it.
    device: Mutex<Option<Device>>,
    /// Follows the namespace's name.
    follower: OnceLock<AbortHandle>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(follower) = self.follower.get() {
            follower.abort();
        }
    }
}

impl Inner {
    fn device(&self) -> MutexGuard<'_, Option<Device>> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn options(&self) -> MutexGuard<'_, Options> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lent_mtu(&self) -> MutexGuard<'_, Option<u32>> {
        self.lent_mtu.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the MTU: now, or when it is no longer lent.
    fn set_mtu(&self, mtu: u32) -> Result<(), OpenError> {
        let lent = self.lent_mtu();
        if lent.is_none() {
            self.apply_mtu(mtu)?;
        }
        self.options().mtu = mtu;
        Ok(())
    }

    /// Changes the MTU of the interface and of the switch: first of the side that has to accept larger frames.
    fn apply_mtu(&self, mtu: u32) -> Result<(), OpenError> {
        let Options { mtu: before, netns, .. } = self.options().clone();
        let held = self.device();
        // An interface that was moved is still looked up in its original namespace: the new one is unknown.
        let Some(device) = held.as_ref() else {
            return Err(OpenError(format!("interface `{}` is gone", self.name)));
        };
        let index = device.index(&self.name)?;
        let name = self.name.clone();
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
            // The kernel waits until the interface is unreferenced, and processes in its namespace may hold references
            // for long.
            if let Err(error) = within(CLOSING, "mswitch-tap", move || drop(device)) {
                tracing::warn!(interface = self.name, "removing the TAP interface: {error}");
            }
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
        let mut lent = self.lent_mtu();
        if *lent == mtu {
            return;
        }
        *lent = mtu;
        let set = match mtu {
            Some(mtu) => {
                self.switch.set_client_mtu(self.at, mtu).map_err(|error| OpenError(error.to_string()))
            }
            // It may have been set meanwhile.
            None => {
                let own = self.options().mtu;
                self.apply_mtu(own)
            }
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
        let lent = *self.0.lent_mtu();
        let details = [
            ("interface", Some(interface)),
            ("netns", Some(netns)),
            ("queues", Some(options.queues.to_string())),
            ("offloads", Some(offload_names(&self.0.caps))),
            ("mtu", Some(lent.unwrap_or(options.mtu).to_string())),
            ("host", self.0.hosts.user(&self.0.key).map(|user| format!("has the addresses of {user}"))),
        ];
        let details = details.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Status { link, details: details.collect() }
    }

    fn reconfigure(&self, spec: &Spec) -> Result<bool, OpenError> {
        let Spec::Tap(wanted) = spec else { return Ok(false) };
        let but_mtu = Options { mtu: wanted.mtu, ..self.0.options().clone() };
        if but_mtu != *wanted {
            return Ok(false);
        }
        self.0.set_mtu(wanted.mtu)?;
        Ok(true)
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
