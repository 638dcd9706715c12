//! A connected front-end: handling its messages, watching its rings, taking it down.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clientmem::ClientFd;
use fabric::switch::PortRef;
use fabric::{Fault, Switch};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use vhost_user::features::device;
use vhost_user::session::{Limits, Session};
use vhost_user::socket::{ReceiveError, Received, Receiver, send};

use super::device::Plug;
use super::options::Options;
use crate::faults::Alarm;
use crate::first_touch::FirstTouchLimit;
use crate::guard::{Guard, client, off_thread};
use crate::log_limit::{Admitted, LogLimit};
use crate::pace::{CHANGE, MESSAGE};
use crate::{Link, Status, StatusCell};

/// Longest time for the rest of a message.
const PATIENCE: Duration = Duration::from_secs(3);

/// State of a vhost-user port, with or without a front-end.
pub(super) struct PortState {
    pub(super) at: PortRef,
    pub(super) options: Options,
    pub(super) log: LogLimit,
    pub(super) guard: Guard,
    first_touch: Arc<FirstTouchLimit>,
    switch: Arc<Switch>,
    status: StatusCell,
    /// True once the port is being closed.
    closing: watch::Sender<bool>,
    closing_since: OnceLock<Instant>,
    /// Whether the port is administratively up; rings run only then.
    admin_up: watch::Sender<bool>,
}

/// A session and the rings that it runs, used by one thread at a time.
struct Served {
    session: Session,
    plug: Plug,
    closing: watch::Receiver<bool>,
}

impl PortState {
    pub(super) fn new(at: PortRef, switch: Arc<Switch>, options: Options, alarm: Alarm) -> Self {
        let (log, status, closing) = (LogLimit::default(), StatusCell::default(), watch::Sender::new(false));
        let admin_up = watch::Sender::new(switch.settings(at).map_or(true, |settings| settings.admin_up));
        let guard = Guard::new(options.message_rate, options.unclosed_descriptors, options.hold_off, alarm);
        let first_touch = Arc::new(FirstTouchLimit::new(options.first_touch_limit));
        let closing_since = OnceLock::new();
        let port =
            Self { at, options, log, guard, first_touch, switch, status, closing, closing_since, admin_up };
        port.set_down("no front-end has connected yet".into());
        port
    }

    pub(super) fn status(&self) -> Status {
        let mut status = self.status.get();
        status.details.push(self.first_touch.fact());
        status
    }

    /// Returns the port's name, for logs.
    pub(super) fn name(&self) -> String {
        self.switch.settings(self.at).map(|s| s.name).unwrap_or_default()
    }

    /// Returns the name of the port's bridge, for logs.
    pub(super) fn bridge(&self) -> String {
        self.switch.bridge_name(self.at.bridge).unwrap_or_default()
    }

    /// Lets rings run or stops them.
    pub(super) fn set_admin(&self, up: bool) {
        self.admin_up.send_replace(up);
    }

    /// Ends this port's connection. Returns the time at which this began.
    pub(super) fn begin_close(&self) -> Instant {
        self.closing.send_replace(true);
        *self.closing_since.get_or_init(Instant::now)
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

    /// Serves a front-end until it leaves or is disconnected. Returns when no worker uses its memory any more.
    pub(super) async fn serve(&self, control: AsyncFd<ClientFd>) {
        let client = client(control.get_ref(), "");
        let Guard { pace, closer, faults: record } = &self.guard;
        let (report, mut faults) = mpsc::channel(1);
        let Options { queues: queue_pairs, memory_slots, .. } = self.options;
        let limits = Limits { queue_pairs, regions: memory_slots.into(), ..Limits::default() };
        let mut session = Session::new(limits, self.options.features());
        session.count_first_touch(self.first_touch.next_client());
        let (closing, first_touch) = (self.closing.subscribe(), self.first_touch.clone());
        let plug = Plug::new(self.switch.clone(), self.at, report, closing, first_touch);
        let mut served = Box::new(Served { session, plug, closing: self.closing.subscribe() });
        self.show(&served, &client);
        if let Some(Admitted { suppressed }) = self.log.admit() {
            tracing::info!(
                bridge = self.bridge(),
                port = self.name(),
                suppressed,
                "vhost-user front-end connected"
            );
        }
        let mut receiver = Receiver::new(closer.clone());
        let mut admin_up = self.admin_up.subscribe();
        // A front-end that connects to a port that is down is paused first.
        admin_up.mark_changed();
        let reason = loop {
            let received = tokio::select! {
                biased;
                fault = faults.recv() => {
                    let fault = fault.unwrap_or(Fault::Protocol);
                    let reason = served.plug.describe_fault(fault);
                    record.found(&client, fault, &reason, self.first_touch.reached());
                    break reason;
                }
                () = self.closing() => break "the port is being removed".to_owned(),
                // The sender lives as long as `self`: waiting cannot fail.
                _ = admin_up.changed() => None,
                received = async {
                    self.guard.room(&client).await;
                    receive(&control, &mut receiver).await
                } => Some(received),
            };
            let Some(received) = received else {
                let paused = !*admin_up.borrow_and_update();
                // Stopping rings waits for workers.
                let done = self.work(served, move |session, plug| session.set_paused(paused, plug)).await;
                let Some((back, outcome)) = done else { return self.set_down("the port was removed".into()) };
                served = back;
                if let Err(refusal) = outcome {
                    break refusal.to_string();
                }
                self.show(&served, &client);
                continue;
            };
            let received = match received {
                Ok(Some(received)) => received,
                Ok(None) => break "the front-end closed the connection".into(),
                Err(error) => {
                    self.bad_message(&client, &error);
                    break error.to_string();
                }
            };
            let (code, asks) = (received.header.code, received.header.need_reply);
            // Mapping memory takes time, and stopping rings waits for workers: not on a thread that other ports'
            // sockets need.
            let handled = self.work(served, move |session, plug| session.handle(received, plug)).await;
            let Some((back, outcome)) = handled else { return self.set_down("the port was removed".into()) };
            served = back;
            pace.spend(MESSAGE + CHANGE * served.plug.take_changes());
            let (answer, failure) = match outcome {
                Ok(answer) => (answer, None),
                Err(refusal) => {
                    let reason = refusal.to_string();
                    if !*self.closing.borrow() {
                        record.refused(&client, &reason);
                    }
                    // The front-end learns only that its request failed; the reason is for the switch's operator.
                    let asked = asks && served.session.answers_all();
                    (asked.then(|| vhost_user::message::Answer::Number(1).encode(code)), Some(reason))
                }
            };
            if failure.is_none() {
                // Before the answer: a front-end that has the answer can see the effect.
                self.show(&served, &client);
            }
            if let Some(answer) = answer
                && let Err(error) = send(control.as_fd(), &answer, &[])
            {
                let reason = unanswered(&error);
                if error.kind() == ErrorKind::WouldBlock {
                    record.refused(&client, &reason);
                }
                break failure.unwrap_or(reason);
            }
            if let Some(reason) = failure {
                break reason;
            }
        };
        // As above: this waits for workers.
        let _ = self.work(served, |session, plug| session.close(plug)).await;
        pace.spend(CHANGE);
        if let Some(Admitted { suppressed }) = self.log.admit() {
            tracing::info!(
                bridge = self.bridge(),
                port = self.name(),
                reason,
                suppressed,
                "vhost-user front-end disconnected"
            );
        }
        self.set_down(reason);
    }

    /// Works on a session, on a thread of its own. Returns `None` if the port closes while the client or a worker
    /// blocks the work; that thread then does the rest.
    async fn work<T: Send + 'static>(
        &self,
        mut served: Box<Served>,
        work: impl FnOnce(&mut Session, &mut Plug) -> T + Send + 'static,
    ) -> Option<(Box<Served>, T)> {
        let done = off_thread(self.closing(), move || {
            let Served { session, plug, closing } = &mut *served;
            let outcome = work(session, plug);
            if *closing.borrow() {
                session.close(plug);
            }
            plug.conclude();
            (served, outcome)
        });
        done.await
    }

    /// Records a malformed message of a front-end.
    fn bad_message(&self, client: &str, error: &ReceiveError) {
        let Guard { closer, faults, .. } = &self.guard;
        match error {
            ReceiveError::Unclosed(_) => faults.unclosed(client, closer, &error.to_string()),
            // Not its fault, or its death.
            ReceiveError::Io(_) | ReceiveError::NoRoom | ReceiveError::Cut => {}
            _ => faults.refused(client, &error.to_string()),
        }
    }

    /// Updates the port's status.
    fn show(&self, served: &Served, client: &str) {
        let mut details = self.facts();
        details.push(("client".into(), client.into()));
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

/// Describes the failure to send an answer.
fn unanswered(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock => "the front-end does not read the replies that it requests".into(),
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
