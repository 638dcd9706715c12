//! The interfaces of a network namespace, as rtnetlink reports them.
//!
//! All netdev ports of a namespace share one [`Namespace`]: a socket that the kernel notifies, a table of interfaces
//! that follows the notifications, and a signal at each change. If notifications are lost, the table is read anew.
//!
//! Invariants: the table holds at most one entry for an index; an interface that takes the index of a removed one has
//! another `born`. Without changes in the namespace nothing runs. A namespace's owner can make the switch read
//! notifications, not store them: memory is bounded by the number of interfaces.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use packet::ether::MacAddr;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::shield::Shields;
use crate::OpenError;
use crate::name_watch::{self, Directories, Identity, NameWatch};
use crate::netlink::{
    DONE, DUMP, ERROR, INTERRUPTED, Message, Messages, REQUEST, ROOM, attributes, messages, number, receive,
    socket, text_of,
};
use crate::netns::{self, Netns};
use crate::watch::{Watchable, watch as watch_socket};

/// `RTMGRP_LINK`.
const GROUP_LINK: u32 = 1;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
/// Length of an `ifinfomsg`.
const IFINFO: usize = 16;
/// `ARPHRD_ETHER`.
const ETHERNET: u16 = 1;
/// Room for notifications in the socket, bytes.
const BUFFER: usize = 1 << 20;
/// Attempts to read a table that keeps changing.
const ATTEMPTS: u32 = 20;
/// Time until the table is read again after the kernel refused that.
const RETRY: Duration = Duration::from_millis(100);

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) index: u32,
    /// Distinguishes interfaces that have the same index one after the other.
    pub(super) born: u64,
    pub(super) name: String,
    pub(super) mac: Option<MacAddr>,
    pub(super) mtu: u32,
    /// Administratively up.
    pub(super) up: bool,
    /// Its medium can carry traffic.
    pub(super) running: bool,
    pub(super) loopback: bool,
    pub(super) ethernet: bool,
    /// Index of the bridge, bond or alike that it belongs to.
    pub(super) master: Option<u32>,
    /// Kind of a virtual interface, such as `veth`; empty for hardware.
    pub(super) kind: String,
}

impl Interface {
    /// Returns its name for users: the kernel allows control characters in names.
    pub(super) fn label(&self) -> String {
        printable(&self.name)
    }
}

/// Replaces control characters.
pub(super) fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The interfaces of a namespace, by index.
#[derive(Debug, Default)]
struct Table {
    interfaces: BTreeMap<u32, Interface>,
    /// Interfaces seen so far.
    births: u64,
    /// Those of the current reading, while the table is read anew.
    found: Option<Vec<u32>>,
    /// The current reading was disturbed by a change.
    disturbed: bool,
}

/// Effect of messages on the table.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Effect {
    changed: bool,
    /// A reading has ended.
    read: bool,
    /// The kernel refused a reading.
    refused: bool,
}

impl Table {
    fn take_in(&mut self, bytes: &[u8]) -> Effect {
        let mut effect = Effect::default();
        for message in messages(bytes) {
            self.disturbed |= message.flags & INTERRUPTED != 0;
            match message.kind {
                RTM_NEWLINK => effect.changed |= self.put(&message),
                RTM_DELLINK => {
                    if let Some((index, ..)) = header(&message).filter(|(.., family)| *family == 0) {
                        effect.changed |= self.interfaces.remove(&index).is_some();
                    }
                }
                DONE => {
                    if let Some(found) = self.found.take() {
                        let before = self.interfaces.len();
                        self.interfaces.retain(|index, _| found.contains(index));
                        effect.changed |= before != self.interfaces.len();
                    }
                    effect.read = true;
                }
                ERROR if self.found.take().is_some() => effect.refused = true,
                _ => {}
            }
        }
        effect
    }

    /// Notes that notifications were lost. Returns whether to read the table anew now: a reading that is under way is
    /// repeated when it has ended, because the kernel refuses a second one.
    fn lose(&mut self) -> bool {
        self.disturbed = true;
        self.found.is_none()
    }

    /// Adds or changes an interface; returns whether anything changed.
    fn put(&mut self, message: &Message<'_>) -> bool {
        // Bridges report their ports under a family of their own.
        let Some((index, flags, kind, _)) = header(message).filter(|(.., family)| *family == 0) else {
            return false;
        };
        if let Some(found) = &mut self.found {
            found.push(index);
        }
        let before = self.interfaces.get(&index);
        let is = |flag: libc::c_int| flags & flag as u32 != 0;
        let mut now = Interface {
            index,
            born: before.map_or(self.births, |before| before.born),
            name: String::new(),
            mac: None,
            mtu: 0,
            up: is(libc::IFF_UP),
            running: is(libc::IFF_RUNNING),
            loopback: is(libc::IFF_LOOPBACK),
            ethernet: kind == ETHERNET,
            master: None,
            kind: String::new(),
        };
        for (kind, value) in message.attributes(IFINFO) {
            match kind {
                IFLA_ADDRESS => now.mac = value.try_into().ok().map(MacAddr),
                IFLA_IFNAME => now.name = text_of(value),
                IFLA_MTU => now.mtu = number(value).unwrap_or_default(),
                IFLA_MASTER => now.master = number(value),
                IFLA_LINKINFO => {
                    let kind = attributes(value).find(|(kind, _)| *kind == IFLA_INFO_KIND);
                    now.kind = kind.map(|(_, value)| text_of(value)).unwrap_or_default();
                }
                _ => {}
            }
        }
        if before == Some(&now) {
            return false;
        }
        self.births += u64::from(before.is_none());
        self.interfaces.insert(index, now);
        true
    }
}

/// Returns index, flags, hardware type and family of a link message.
fn header(message: &Message<'_>) -> Option<(u32, u32, u16, u8)> {
    let [family, _, k0, k1, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *message.body.first_chunk::<IFINFO>()?;
    let (index, flags) = (u32::from_ne_bytes([i0, i1, i2, i3]), u32::from_ne_bytes([f0, f1, f2, f3]));
    Some((index, flags, u16::from_ne_bytes([k0, k1]), family))
}

/// Socket that the kernel notifies.
struct Notifications(OwnedFd);

impl AsRawFd for Notifications {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

// SAFETY: the descriptor is never replaced.
unsafe impl Watchable for Notifications {}

impl Notifications {
    /// Begins to read the table anew.
    fn ask(&self, table: &Mutex<Table>) -> Result<(), Errno> {
        let mut table = lock(table);
        let mut request = Messages::default();
        request.begin(RTM_GETLINK, REQUEST | DUMP, 1, &[0; IFINFO]);
        request.send(&self.0)?;
        (table.found, table.disturbed) = (Some(Vec::new()), false);
        Ok(())
    }

    /// Reads the table for the first time.
    fn read_all(&self, table: &Mutex<Table>) -> Result<(), Errno> {
        let mut room = vec![0; ROOM];
        for _ in 0..ATTEMPTS {
            self.ask(table)?;
            loop {
                match receive(&self.0, &mut room) {
                    Ok(bytes) => {
                        let effect = lock(table).take_in(bytes);
                        if effect.refused {
                            return Err(Errno::BUSY);
                        }
                        if effect.read {
                            break;
                        }
                    }
                    Err(Errno::NOBUFS) => drop(lock(table).lose()),
                    Err(error) => return Err(error),
                }
            }
            if !lock(table).disturbed {
                return Ok(());
            }
        }
        Err(Errno::BUSY)
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A namespace with netdev ports. See the module.
pub(super) struct Namespace {
    name: Option<Netns>,
    /// The namespace's file; `None` for the switch's own.
    file: Option<OwnedFd>,
    identity: Identity,
    table: Arc<Mutex<Table>>,
    changes: watch::Sender<()>,
    /// Reason why the namespace's name no longer leads to it.
    gone: Arc<OnceLock<String>>,
    /// A socket in the namespace, for queries about its interfaces.
    socket: OwnedFd,
    shields: Arc<Shields>,
    follower: AbortHandle,
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Namespace {
    fn open(
        name: Option<Netns>,
        file: Option<OwnedFd>,
        identity: Identity,
        directories: &Directories,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Arc<Self>, OpenError> {
        if let (Some(name), Some(file)) = (&name, &file) {
            netns::enter(name, file.as_fd())?;
        }
        let place = place(name.as_ref());
        let refused = |error: Errno| OpenError(format!("{place}: its interfaces cannot be read: {error}"));
        let notifications = Notifications(socket(None, GROUP_LINK).map_err(refused)?);
        // Best effort: lost notifications only cost another reading.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&notifications.0, BUFFER);
        let table = Arc::<Mutex<Table>>::default();
        notifications.read_all(&table).map_err(refused)?;
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
                .map_err(refused)?;
        let changes = watch::Sender::new(());
        let entered = runtime.enter();
        let notifications = watch_socket(notifications)
            .map_err(|error| OpenError(format!("{place}: its interfaces cannot be followed: {error}")))?;
        let name_watch = name.as_ref().and_then(|name| directories.watch(name, identity));
        drop(entered);
        let gone = Arc::<OnceLock<String>>::default();
        let (table_of, changes_of, gone_of) = (table.clone(), changes.clone(), gone.clone());
        let follower = runtime.spawn(async move {
            tokio::select! {
                reason = name_watch::gone(name_watch.as_ref()) => {
                    // Set once.
                    let _ = gone_of.set(reason);
                    changes_of.send_replace(());
                }
                () = follow(notifications, table_of, &changes_of) => {}
            }
        });
        let follower = follower.abort_handle();
        let shields = Arc::default();
        Ok(Arc::new(Self { name, file, identity, table, changes, gone, socket, shields, follower }))
    }

    /// Returns a receiver that sees a change whenever an interface changes.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Returns the interface with this index and birth, or else the one of this name.
    pub(super) fn find(&self, known: Option<(u32, u64)>, name: &str) -> Option<Interface> {
        let table = lock(&self.table);
        let known = known.and_then(|(index, born)| table.interfaces.get(&index).filter(|i| i.born == born));
        known.or_else(|| table.interfaces.values().find(|interface| interface.name == name)).cloned()
    }

    /// Returns name and kind of the interface with this index.
    pub(super) fn name_and_kind(&self, index: u32) -> Option<(String, String)> {
        lock(&self.table).interfaces.get(&index).map(|i| (i.label(), i.kind.clone()))
    }

    /// Returns the reason if the namespace's name no longer leads to it.
    pub(super) fn gone(&self) -> Option<String> {
        self.gone.get().cloned()
    }

    /// Returns the shields of its interfaces.
    pub(super) fn shields(&self) -> Arc<Shields> {
        self.shields.clone()
    }

    /// Returns a socket in the namespace.
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Describes the namespace in a sentence.
    pub(super) fn place(&self) -> String {
        place(self.name.as_ref())
    }

    /// Returns the inode of its file.
    pub(super) fn inode(&self) -> u64 {
        self.identity.1
    }

    /// Runs `task` on a thread in the namespace, and waits for its end.
    pub(super) fn run<T: Send + 'static>(
        self: &Arc<Self>,
        task: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
    ) -> Result<T, OpenError> {
        netns::run(self.within(task))
    }

    /// Runs `task` on a thread in the namespace, and waits for its end, for at most `limit`.
    pub(super) fn run_for<T: Send + 'static>(
        self: &Arc<Self>,
        limit: Duration,
        task: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
    ) -> Result<T, OpenError> {
        netns::run_for(limit, self.within(task))
    }

    /// Returns a task that enters the namespace first.
    fn within<T>(
        self: &Arc<Self>,
        task: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
    ) -> impl FnOnce() -> Result<T, OpenError> + Send + 'static {
        let namespace = self.clone();
        move || {
            if let (Some(name), Some(file)) = (&namespace.name, &namespace.file) {
                netns::enter(name, file.as_fd())?;
            }
            task()
        }
    }
}

fn place(netns: Option<&Netns>) -> String {
    netns.map_or_else(
        || "the switch's network namespace".into(),
        |netns| format!("network namespace `{netns}`"),
    )
}

/// Follows notifications until aborted.
async fn follow(
    notifications: AsyncFd<Notifications>,
    table: Arc<Mutex<Table>>,
    changes: &watch::Sender<()>,
) {
    let mut room = vec![0; ROOM];
    let mut ask = false;
    loop {
        if ask && let Err(error) = notifications.get_ref().ask(&table) {
            tracing::warn!(%error, "cannot read the interfaces of a network namespace; retrying");
            tokio::time::sleep(RETRY).await;
            continue;
        }
        ask = false;
        let Ok(mut ready) = notifications.readable().await else { return };
        let socket = &notifications.get_ref().0;
        match rustix::net::recv(socket, &mut room[..], RecvFlags::DONTWAIT) {
            Ok((len, _)) => {
                let effect = {
                    let mut table = lock(&table);
                    let effect = table.take_in(room.get(..len).unwrap_or_default());
                    ask = effect.refused || effect.read && std::mem::take(&mut table.disturbed);
                    effect
                };
                if effect.changed {
                    changes.send_replace(());
                }
                if effect.refused {
                    tokio::time::sleep(RETRY).await;
                }
            }
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(Errno::INTR) => {}
            Err(Errno::NOBUFS) => ask = lock(&table).lose(),
            Err(error) => {
                tracing::error!(%error, "the interfaces of a network namespace are no longer followed");
                return;
            }
        }
    }
}

/// The MTU of an interface, which others may change. The interface exists, but the notification of its creation may be
/// unread yet.
pub(crate) struct MtuWatch {
    namespace: Arc<Namespace>,
    changes: watch::Receiver<()>,
    followed: FollowedMtu,
}

/// What a watch knows of its interface.
struct FollowedMtu {
    index: u32,
    /// `None` until the table has the interface.
    born: Option<u64>,
    mtu: u32,
}

/// State of the interface of a watch.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// It has another MTU than before.
    Changed(u32),
    /// Nothing is new.
    Same,
    /// It is gone.
    Gone,
}

impl FollowedMtu {
    fn look(&mut self, table: &Table) -> Seen {
        let now = match (table.interfaces.get(&self.index), self.born) {
            (None, None) => return Seen::Same,
            (Some(now), born) if born.is_none_or(|born| born == now.born) => now,
            _ => return Seen::Gone,
        };
        self.born = Some(now.born);
        if std::mem::replace(&mut self.mtu, now.mtu) == now.mtu { Seen::Same } else { Seen::Changed(now.mtu) }
    }
}

impl MtuWatch {
    /// Waits for another MTU, and returns it; `None` once the interface is gone from its namespace.
    pub(crate) async fn changed(&mut self) -> Option<u32> {
        loop {
            let seen = self.followed.look(&lock(&self.namespace.table));
            match seen {
                Seen::Changed(mtu) => return Some(mtu),
                Seen::Gone => return None,
                Seen::Same => self.changes.changed().await.ok()?,
            }
        }
    }
}

/// The namespaces that have ports.
#[derive(Clone, Default)]
pub struct Namespaces {
    /// Those that have netdev ports, by the identity of their files.
    all: Arc<Mutex<BTreeMap<Identity, Weak<Namespace>>>>,
    directories: Directories,
}

impl Namespaces {
    /// Watches the name of a namespace, which has this identity. `None` if the name cannot be watched. Must be called in
    /// the context of a runtime.
    pub(crate) fn watch_name(&self, name: &Netns, identity: Identity) -> Option<NameWatch> {
        self.directories.watch(name, identity)
    }

    /// Watches the MTU of the interface with this index, which was `mtu` when last read.
    pub(crate) fn watch_mtu(
        &self,
        netns: Option<&Netns>,
        (index, mtu): (u32, u32),
        runtime: &tokio::runtime::Handle,
    ) -> Result<MtuWatch, OpenError> {
        let namespace = self.get(netns, runtime)?;
        let changes = namespace.changes();
        Ok(MtuWatch { namespace, changes, followed: FollowedMtu { index, born: None, mtu } })
    }

    /// Returns a namespace; opens it if no port has done so.
    pub(super) fn get(
        &self,
        name: Option<&Netns>,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Arc<Namespace>, OpenError> {
        let (namespaces, name, runtime) = (self.clone(), name.cloned(), runtime.clone());
        netns::run(move || {
            let file = name.as_ref().map(netns::open).transpose()?;
            let identity = match &file {
                Some(file) => rustix::fs::fstat(file),
                None => rustix::fs::stat("/proc/thread-self/ns/net"),
            };
            let identity = identity.map(|identity| (identity.st_dev, identity.st_ino)).map_err(|error| {
                OpenError(format!("{}: cannot be identified: {error}", place(name.as_ref())))
            })?;
            let mut all = namespaces.all.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, namespace| namespace.strong_count() > 0);
            let known = all.get(&identity).and_then(Weak::upgrade);
            if let Some(namespace) = known.filter(|namespace| namespace.gone().is_none()) {
                return Ok(namespace);
            }
            let namespace = Namespace::open(name, file, identity, &namespaces.directories, &runtime)?;
            all.insert(identity, Arc::downgrade(&namespace));
            Ok(namespace)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, flags: u32, name: &str) -> Messages {
        let mut fixed = [0; IFINFO];
        fixed[2..4].copy_from_slice(&ETHERNET.to_ne_bytes());
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
        fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
        let mut message = Messages::default();
        message
            .begin(RTM_NEWLINK, 0, 0, &fixed)
            .attribute(IFLA_IFNAME, &crate::netlink::text(name))
            .attribute(IFLA_MTU, &1500_u32.to_ne_bytes())
            .attribute(IFLA_ADDRESS, &[2, 0, 0, 0, 0, 1])
            .nested(IFLA_LINKINFO, &[(IFLA_INFO_KIND, b"veth\0")]);
        message
    }

    fn removal(index: u32) -> Messages {
        let mut fixed = [0; IFINFO];
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
        let mut message = Messages::default();
        message.begin(RTM_DELLINK, 0, 0, &fixed);
        message
    }

    #[test]
    fn the_table_follows_notifications() {
        let mut table = Table::default();
        let changed = |table: &mut Table, message: Messages| table.take_in(message.as_bytes()).changed;
        let up = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
        assert!(changed(&mut table, link(3, up, "a")));
        assert!(!changed(&mut table, link(3, up, "a")), "nothing is new");
        let first = table.interfaces[&3].clone();
        assert_eq!((first.name.as_str(), first.mtu, first.kind.as_str()), ("a", 1500, "veth"));
        assert!(first.up && first.running && first.ethernet && !first.loopback);
        assert!(changed(&mut table, link(3, 0, "b")), "renamed and down");
        assert_eq!(table.interfaces[&3].born, first.born);
        assert!(changed(&mut table, removal(3)));
        assert!(!changed(&mut table, removal(3)));
        assert!(changed(&mut table, link(3, up, "a")));
        assert_ne!(table.interfaces[&3].born, first.born, "another interface of the same index");
    }

    #[test]
    fn the_mtu_of_an_interface_is_followed_from_its_first_notification_on() {
        let mut table = Table::default();
        let mut followed = FollowedMtu { index: 3, born: None, mtu: 1400 };
        assert_eq!(followed.look(&table), Seen::Same, "the notification is unread yet");
        table.take_in(link(3, 0, "a").as_bytes());
        assert_eq!(followed.look(&table), Seen::Changed(1500));
        assert_eq!(followed.look(&table), Seen::Same);
        table.take_in(removal(3).as_bytes());
        assert_eq!(followed.look(&table), Seen::Gone);
        table.take_in(link(3, 0, "a").as_bytes());
        assert_eq!(followed.look(&table), Seen::Gone, "another interface of the same index");
    }

    #[test]
    fn a_reading_forgets_interfaces_whose_removal_was_missed() {
        let mut table = Table::default();
        for index in [1, 2, 3] {
            table.take_in(link(index, 0, &format!("i{index}")).as_bytes());
        }
        table.found = Some(Vec::new());
        table.take_in(link(2, 0, "i2").as_bytes());
        let mut done = Messages::default();
        done.begin(DONE, INTERRUPTED, 1, &[0; 4]);
        assert_eq!(table.take_in(done.as_bytes()), Effect { changed: true, read: true, ..Effect::default() });
        assert_eq!(table.interfaces.keys().collect::<Vec<_>>(), [&2]);
        assert!(table.disturbed);
    }

    #[test]
    fn notifications_lost_during_a_reading_do_not_start_another_one() {
        let mut table = Table::default();
        assert!(table.lose());
        table.found = Some(Vec::new());
        table.take_in(link(2, 0, "i2").as_bytes());
        assert!(!table.lose(), "the reading is under way");
        table.take_in(link(3, 0, "i3").as_bytes());
        let mut done = Messages::default();
        done.begin(DONE, 0, 1, &[0; 4]);
        assert!(table.take_in(done.as_bytes()).read && table.disturbed, "it is repeated");
        assert_eq!(table.interfaces.len(), 2);
        // A refusal ends a reading without an effect on the table.
        table.found = Some(Vec::new());
        let mut refusal = Messages::default();
        refusal.begin(ERROR, 0, 1, &(-libc::EBUSY).to_ne_bytes());
        assert_eq!(table.take_in(refusal.as_bytes()), Effect { refused: true, ..Effect::default() });
        table.take_in(done.as_bytes());
        assert_eq!(table.interfaces.len(), 2);
    }
}
