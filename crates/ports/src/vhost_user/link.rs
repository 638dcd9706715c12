//! A front-end that is connected: hear what it says, watch over its rings, take it down.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use clientmem::{ClientFd, Closer};
use fabric::switch::PortRef;
use fabric::{Fault, Switch};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use vhost_user::features::device;
use vhost_user::session::{Limits, Session};
use vhost_user::socket::{ReceiveError, Received, Receiver, send};

use super::device::Plug;
use super::options::Options;
use super::pace::{CHANGE, MESSAGE, Pace};
use crate::log_limit::{Admitted, LogLimit};
use crate::{Link, Status, StatusCell};

/// How long the rest of a message may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// A vhost-user port, whether or not anyone is connected.
pub(super) struct PortState {
    pub(super) at: PortRef,
    pub(super) options: Options,
    pub(super) log: LogLimit,
    pub(super) pace: Pace,
    /// Closes connections and what front-ends sent: one limit for all that come to this port.
    pub(super) closer: Closer,
    switch: Arc<Switch>,
    status: StatusCell,
    /// True once the port is being closed.
    closing: watch::Sender<bool>,
    /// Whether the port is administratively up; rings run only then.
    admin_up: watch::Sender<bool>,
}

/// A session and the rings that it runs: what only one thread at a time may have.
struct Served {
    session: Session,
    plug: Plug,
}

impl PortState {
    pub(super) fn new(at: PortRef, switch: Arc<Switch>, options: Options) -> Self {
        let (log, status, closing) = (LogLimit::default(), StatusCell::default(), watch::Sender::new(false));
        let admin_up = watch::Sender::new(switch.settings(at).map_or(true, |settings| settings.admin_up));
        let (pace, closer) = (Pace::default(), Closer::default());
        let port = Self { at, options, log, pace, closer, switch, status, closing, admin_up };
        port.set_down("no front-end has connected yet".into());
        port
    }

    pub(super) fn status(&self) -> Status {
        self.status.get()
    }

    /// The port's name, for logs.
    pub(super) fn name(&self) -> String {
        self.switch.settings(self.at).map(|s| s.name).unwrap_or_default()
    }

    /// Lets rings run or stops them.
    pub(super) fn set_admin(&self, up: bool) {
        self.admin_up.send_replace(up);
    }

    /// Ends what goes on at this port.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
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
        vec![("socket".into(), self.options.socket.display().to_string())]
    }

    /// Serves a front-end until it ends or is thrown out. Returns when no worker uses its memory any more.
    pub(super) async fn serve(&self, control: AsyncFd<ClientFd>) {
        let peer = rustix::net::sockopt::socket_peercred(control.get_ref()).ok();
        let peer = peer.map(|peer| ("peer".to_owned(), format!("process {}", peer.pid.as_raw_nonzero())));
        let (report, mut faults) = mpsc::channel(1);
        let Options { queues: queue_pairs, memory_slots, .. } = self.options;
        let limits = Limits { queue_pairs, regions: memory_slots.into(), ..Limits::default() };
        let mut served = Box::new(Served {
            session: Session::new(limits, self.options.features()),
            plug: Plug::new(self.switch.clone(), self.at, report),
        });
        self.show(&served, peer.as_slice());
        if let Some(Admitted { suppressed }) = self.log.admit() {
            tracing::info!(port = self.name(), suppressed, "vhost-user front-end connected");
        }
        let mut receiver = Receiver::new(self.closer.clone());
        let mut admin_up = self.admin_up.subscribe();
        // Whoever connects to a port that is down is to be paused first of all.
        admin_up.mark_changed();
        let reason = loop {
            let received = tokio::select! {
                biased;
                fault = faults.recv() => break served.plug.blame(fault.unwrap_or(Fault::Protocol)),
                () = self.closing() => break "the port is being removed".to_owned(),
                // The sender lives as long as `self`: waiting cannot fail.
                _ = admin_up.changed() => None,
                received = async {
                    self.pace.room().await;
                    receive(&control, &mut receiver).await
                } => Some(received),
            };
            let Some(received) = received else {
                let paused = !*admin_up.borrow_and_update();
                // Stopping rings waits for workers.
                let done = tokio::task::spawn_blocking(move || {
                    let outcome = served.session.set_paused(paused, &mut served.plug);
                    served.plug.conclude();
                    (served, outcome)
                });
                match done.await {
                    Ok((back, outcome)) => {
                        served = back;
                        if let Err(refusal) = outcome {
                            break refusal.to_string();
                        }
                    }
                    // Only when the runtime is shutting down, which has closed the port before.
                    Err(error) => return self.set_down(error.to_string()),
                }
                self.show(&served, peer.as_slice());
                continue;
            };
            let received = match received {
                Ok(Some(received)) => received,
                Ok(None) => break "the front-end closed the connection".into(),
                Err(error) => break error.to_string(),
            };
            let (code, asks) = (received.header.code, received.header.need_reply);
            // Mapping memory takes its time, and stopping rings waits for workers: not on a thread that other ports'
            // sockets need.
            let handled = tokio::task::spawn_blocking(move || {
                let outcome = served.handle(received);
                (served, outcome)
            });
            let (answer, failure) = match handled.await {
                Ok((back, outcome)) => {
                    served = back;
                    self.pace.spend(MESSAGE + CHANGE * served.plug.take_changes());
                    match outcome {
                        Ok(answer) => (answer, None),
                        Err(reason) => {
                            // Who asked is told that it went wrong; what did is for the switch's owner.
                            let asked = asks && served.session.answers_all();
                            (asked.then(|| vhost_user::message::Answer::Number(1).encode(code)), Some(reason))
                        }
                    }
                }
                // Only when the runtime is shutting down, which has closed the port before.
                Err(error) => return self.set_down(error.to_string()),
            };
            if failure.is_none() {
                // Before the answer: who has it can see what it did.
                self.show(&served, peer.as_slice());
            }
            if let Some(answer) = answer
                && let Err(error) = send(control.as_fd(), &answer, &[])
            {
                break failure.unwrap_or_else(|| unanswered(&error));
            }
            if let Some(reason) = failure {
                break reason;
            }
        };
        // As above: it waits for workers.
        let closed = tokio::task::spawn_blocking(move || {
            served.session.close(&mut served.plug);
            served.plug.conclude();
        });
        let _ = closed.await;
        self.pace.spend(CHANGE);
        if let Some(Admitted { suppressed }) = self.log.admit() {
            tracing::info!(port = self.name(), reason, suppressed, "vhost-user front-end disconnected");
        }
        self.set_down(reason);
    }

    /// Says how it is.
    fn show(&self, served: &Served, peer: &[(String, String)]) {
        let mut details = self.facts();
        details.extend_from_slice(peer);
        if let Some(features) = served.session.features() {
            let names = device::NAMES.iter().filter(|(bit, _)| features & bit != 0).map(|(_, name)| *name);
            details.push(("features".into(), names.collect::<Vec<_>>().join(" ")));
        }
        let link = match served.plug.facts() {
            Some(facts) => {
                details.extend(facts);
                Link::Up
            }
            None if !*self.admin_up.borrow() => {
                Link::Down("administratively down: the front-end's rings are stopped".into())
            }
            None => Link::Down("the front-end is connected and has not started a queue".into()),
        };
        self.status.set(Status { link, details });
    }
}

impl Served {
    fn handle(&mut self, received: Received) -> Result<Option<Vec<u8>>, String> {
        let outcome = self.session.handle(received, &mut self.plug);
        self.plug.conclude();
        outcome.map_err(|refusal| refusal.to_string())
    }
}

/// Why an answer cannot be sent.
fn unanswered(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock => "the front-end does not read the answers that it asks for".into(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => "the front-end closed the connection".into(),
        _ => format!("cannot answer on the control socket: {error}"),
    }
}

/// Receives one message.
async fn receive(
    control: &AsyncFd<ClientFd>,
    receiver: &mut Receiver,
) -> Result<Option<Received>, ReceiveError> {
    loop {
        let mut ready = if receiver.is_within_message() {
            let rest = tokio::time::timeout(PATIENCE, control.readable()).await;
            rest.map_err(|_| ReceiveError::Stalled)??
        } else {
            control.readable().await?
        };
        match receiver.receive(control.get_ref().as_fd()) {
            Err(error) if error.would_block() => ready.clear_ready(),
            other => return other,
        }
    }
}
