//! An established memif connection, in either role: attaching its rings, watching it, taking it down.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use clientmem::{ClientFd, Closer};
use fabric::rx::MAX_PACKET;
use fabric::switch::PortRef;
use fabric::{AttachOptions, Attachment, Caps, Egress, Fault, RxQueue, SharedMemory, Switch, TxRing};
use memif::client::Layout;
use memif::message::Message;
use memif::socket;
use memif::{Connection, RingParts};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};

use super::options::{Role, Settings};
use super::rings::{Client, Rx, Server, Side, Tx};
use crate::faults::Alarm;
use crate::first_touch::FirstTouchLimit;
use crate::guard::{Guard, attach, off_thread};
use crate::log_limit::{Admitted, LogLimit};
use crate::numa::{self, Topology};
use crate::pace::CHANGE;
use crate::{Link, Status, StatusCell};

/// State of a memif port, with or without a connection.
pub(super) struct PortState {
    pub(super) at: PortRef,
    pub(super) settings: Settings,
    pub(super) log: LogLimit,
    pub(super) guard: Guard,
    pub(super) first_touch: FirstTouchLimit,
    switch: Arc<Switch>,
    status: StatusCell,
    /// True once the port is being closed.
    closing: watch::Sender<bool>,
    closing_since: OnceLock<Instant>,
    /// True while a connection has the port, from its INIT until it is detached.
    taken: watch::Sender<bool>,
}

/// Memory regions of a peer.
struct Regions(Arc<memif::Memory>);

impl SharedMemory for Regions {
    fn take_away(&self) {
        self.0.void();
    }

    fn wait_for_holes(&self) {
        self.0.wait_for_holes();
    }
}

/// End of a connection.
pub(super) enum End {
    /// The peer ended it or is gone.
    Peer(String),
    /// The switch ends it, and tells the peer this reason.
    Ours(String),
}

/// The right to be the port's only connection, given back on drop.
pub(super) struct Lease(Arc<PortState>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.taken.send_replace(false);
    }
}

/// Role of the switch in a connection, which tells how its rings are used.
pub(super) enum LocalRole {
    /// The switch serves.
    Server,
    /// The switch is the client, with this layout.
    Client(Layout),
}

impl PortState {
    pub(super) fn new(at: PortRef, switch: Arc<Switch>, settings: Settings, alarm: Alarm) -> Self {
        let Settings { message_rate, unclosed_descriptors, hold_off, .. } = settings;
        let port = Self {
            at,
            first_touch: FirstTouchLimit::new(settings.first_touch_limit),
            settings,
            log: LogLimit::default(),
            guard: Guard::new(message_rate, unclosed_descriptors, hold_off, alarm),
            switch,
            status: StatusCell::default(),
            closing: watch::Sender::new(false),
            closing_since: OnceLock::new(),
            taken: watch::Sender::new(false),
        };
        port.set_down("no client has connected yet".into());
        port
    }

    pub(super) fn status(&self) -> Status {
        let mut status = self.status.get();
        if self.settings.role == Role::Server {
            status.details.push(self.first_touch.fact());
        }
        status
    }

    /// Returns the port's name, for peers and logs.
    pub(super) fn name(&self) -> String {
        self.switch.settings(self.at).map(|s| s.name).unwrap_or_default()
    }

    /// Returns the name of the port's bridge, for logs.
    pub(super) fn bridge(&self) -> String {
        self.switch.bridge_name(self.at.bridge).unwrap_or_default()
    }

    /// Takes the port for a connection, unless another has it or it is being closed.
    pub(super) fn take(self: &Arc<Self>) -> Option<Lease> {
        if *self.closing.borrow() {
            return None;
        }
        let won = self.taken.send_if_modified(|taken| !std::mem::replace(taken, true));
        won.then(|| Lease(self.clone()))
    }

    /// Returns whether a connection has the port.
    pub(super) fn is_taken(&self) -> bool {
        *self.taken.borrow()
    }

    /// Ends this port's connection. Returns the time at which this began.
    pub(super) fn begin_close(&self) -> Instant {
        self.closing.send_replace(true);
        *self.closing_since.get_or_init(Instant::now)
    }

    /// Waits until this port's connection is gone.
    pub(super) async fn closed(&self) {
        // Fails only if the sender is gone, which `self` owns.
        let _ = self.taken.subscribe().wait_for(|taken| !*taken).await;
    }

    /// Waits until the port is being closed.
    pub(super) async fn closing(&self) {
        // The sender lives as long as `self`: waiting cannot fail.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    pub(super) fn set_down(&self, reason: String) {
        self.status.set(Status { link: Link::Down(reason), details: self.facts() });
    }

    fn facts(&self) -> Vec<(String, String)> {
        vec![
            ("socket".into(), self.settings.address.to_string()),
            ("id".into(), self.settings.id.to_string()),
        ]
    }

    /// Serves an established connection until it ends, and takes it down. Returns when no worker uses its memory any
    /// more. Sends the peer `greeting` as soon as packets pass.
    pub(super) async fn serve(
        self: &Arc<Self>,
        connection: Connection,
        role: LocalRole,
        control: &AsyncFd<ClientFd>,
        client: &str,
        greeting: Option<Message>,
    ) -> End {
        let mut details = self.facts();
        details.push(("client".into(), client.into()));
        details.push(("peer".into(), connection.peer_name.clone()));
        details.push(("peer-interface".into(), connection.peer_if_name.clone()));
        details.push(("rx-queues".into(), describe(rx_side(&connection, &role))));
        details.push(("tx-queues".into(), describe(tx_side(&connection, &role))));

        let (report, mut faults) = mpsc::channel(1);
        let memory: Arc<dyn SharedMemory> = Arc::new(Regions(connection.memory.clone()));
        let rings = connection.s2m.iter().chain(&connection.m2s);
        let pages = rings.filter_map(|parts| NonNull::new(parts.ring.head_ptr().cast_mut()));
        let node = Topology::host().of_memory(pages);
        details.extend(numa::detail(node));
        let placement = numa::near(node);
        let options = AttachOptions { memory: Some(memory), placement };
        let (switch, at, closing) = (self.switch.clone(), self.at, self.closing.subscribe());
        // This reads the peer's memory and waits for workers: not on a thread that other ports' sockets need.
        let attached = off_thread(self.closing(), move || {
            attach(&switch, at, attachment(connection, &role, report), options, &closing)
        });
        match attached.await {
            Some(Ok(())) => {}
            Some(Err(reason)) => return End::Ours(reason),
            None => return End::Ours("the port is being removed".into()),
        }
        self.guard.pace.spend(CHANGE);
        self.status.set(Status { link: Link::Up, details });
        if let Some(Admitted { suppressed }) = self.log.admit() {
            tracing::info!(bridge = self.bridge(), port = self.name(), suppressed, "memif connected");
        }

        let greeted = greeting.map_or(Ok(()), |greeting| socket::send(control.as_fd(), &greeting, None));
        let end = tokio::select! {
            biased;
            Err(error) = std::future::ready(greeted) => End::Ours(error.to_string()),
            Some(fault) = faults.recv() => {
                let reason = self.describe_fault(fault);
                self.guard.faults.found(client, fault, &reason, self.first_touch.reached());
                End::Ours(reason)
            }
            end = self.peer_ends(control, client) => end,
            () = self.closing() => End::Ours("the port is being removed".into()),
        };
        let (switch, at) = (self.switch.clone(), self.at);
        // Detaching waits for workers: as above.
        off_thread(self.closing(), move || switch.detach(at)).await;
        self.guard.pace.spend(CHANGE);
        end
    }

    /// Records a malformed message of a peer.
    pub(super) fn bad_message(&self, client: &str, error: &socket::RecvError) {
        let Guard { closer, faults, .. } = &self.guard;
        match error {
            socket::RecvError::Unclosed(_) => faults.unclosed(client, closer, &error.to_string()),
            // Not the peer's fault.
            socket::RecvError::Io(_) | socket::RecvError::NoRoom => {}
            _ => faults.refused(client, &error.to_string()),
        }
    }

    /// Waits for the peer to end an established connection: by a message, by leaving, or by an unexpected message.
    async fn peer_ends(&self, control: &AsyncFd<ClientFd>, client: &str) -> End {
        match receive(control, &self.guard.closer).await {
            Ok(Some((Message::Disconnect { reason, .. }, _))) => {
                End::Peer(format!("the peer disconnected: {reason}"))
            }
            Ok(Some((message, _))) => {
                let reason = format!("unexpected {} while connected", message.type_name());
                self.guard.faults.refused(client, &reason);
                End::Ours(reason)
            }
            Ok(None) => End::Peer("the peer closed the control connection".into()),
            Err(error) => {
                self.bad_message(client, &error);
                End::Ours(error.to_string())
            }
        }
    }

    /// Describes a fault.
    fn describe_fault(&self, fault: Fault) -> String {
        let reason = if fault == Fault::Memory { self.first_touch.reason() } else { None };
        reason.unwrap_or_else(|| fault.to_string())
    }

    /// Records and logs the end of a connection, and tells the peer if the switch ended it.
    pub(super) fn ended(&self, end: End, control: &impl AsFd) {
        let reason = match end {
            End::Peer(reason) => reason,
            End::Ours(reason) => {
                // Best effort: a peer that does not read loses the reason.
                let _ = socket::send(control.as_fd(), &Message::disconnect(reason.as_str()), None);
                reason
            }
        };
        if let Some(Admitted { suppressed }) = self.log.admit() {
            tracing::info!(
                bridge = self.bridge(),
                port = self.name(),
                reason,
                suppressed,
                "memif disconnected"
            );
        }
        self.set_down(reason);
    }
}

/// Receives one message.
pub(super) async fn receive(
    control: &AsyncFd<ClientFd>,
    closer: &Closer,
) -> Result<Option<(Message, Option<ClientFd>)>, socket::RecvError> {
    loop {
        let mut ready = match control.readable().await {
            Ok(ready) => ready,
            Err(error) => return Err(error.into()),
        };
        match socket::recv(control.get_ref().as_fd(), closer) {
            Err(error) if error.would_block() => ready.clear_ready(),
            other => return other,
        }
    }
}

fn rx_side<'a>(connection: &'a Connection, role: &LocalRole) -> &'a [RingParts] {
    match role {
        LocalRole::Server => &connection.s2m,
        LocalRole::Client(_) => &connection.m2s,
    }
}

fn tx_side<'a>(connection: &'a Connection, role: &LocalRole) -> &'a [RingParts] {
    match role {
        LocalRole::Server => &connection.m2s,
        LocalRole::Client(_) => &connection.s2m,
    }
}

fn describe(rings: &[RingParts]) -> String {
    let sizes: Vec<_> = rings.iter().map(|parts| parts.ring.size().to_string()).collect();
    format!("{} (ring size {})", rings.len(), if sizes.is_empty() { "-".into() } else { sizes.join(", ") })
}

fn attachment(connection: Connection, role: &LocalRole, report: mpsc::Sender<Fault>) -> Attachment {
    let (rx, tx) = match role {
        LocalRole::Server => (
            connection.s2m.into_iter().map(|parts| boxed(Rx::served(parts))).collect(),
            connection.m2s.into_iter().map(|parts| egress(Tx::new(parts, Server))).collect(),
        ),
        LocalRole::Client(layout) => {
            let own = |queue| Client(*layout, queue);
            let (rx, tx) = (connection.m2s.into_iter().zip(0..), connection.s2m.into_iter().zip(0..));
            (
                rx.map(|(parts, queue)| boxed(Rx::own(parts, own(queue)))).collect(),
                tx.map(|(parts, queue)| egress(Tx::new(parts, own(queue)))).collect(),
            )
        }
    };
    Attachment {
        rx,
        tx,
        caps: Caps::default(),
        mtu: MAX_PACKET,
        on_fault: Arc::new(move |fault| {
            // The first fault is the reason; later ones are ignored.
            let _ = report.try_send(fault);
        }),
    }
}

fn boxed(rx: impl RxQueue + 'static) -> Box<dyn RxQueue> {
    Box::new(rx)
}

fn egress<S: Side>((backing, start): (Tx<S>, u32)) -> Arc<dyn Egress> {
    Arc::new(TxRing::new(backing, (), start))
}
