//! mswitch's OpenFlow switch, without ports: the interpreter or generated code runs its flows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use codegen::{Effects, Engine, Options, Worker};
use ofswitch::{ConnectionId, ConnectionKind, Effect, Follower, LIMITS, PortCounters, PortInfo, Settings};
use ofswitch::{Surroundings, Switch};
use openflow::message::PortConfig;
use openflow::{Message, PortNo};
use pipeline::interp::{self, Exit, Received};
use pipeline::ir::ActionId;
use pipeline::state::{Bundle, State};

use crate::case::{Burst, PORTS};
use crate::subject::{Error, Observed, Result, Subject, greeting, packet_in};

/// An engine, and why it does not follow its switch any more.
#[derive(Debug)]
struct Followed {
    engine: Engine,
    failure: Option<String>,
}

/// Generated code that follows a switch.
struct Code {
    followed: Arc<Mutex<Followed>>,
    worker: Worker,
    random: u64,
    /// Whether the code is specialised before packets come.
    specialised: bool,
}

/// A switch of this project.
pub struct Ours {
    switch: Switch,
    connection: ConnectionId,
    /// `None`: the interpreter runs packets.
    code: Option<Code>,
}

/// Keeps the engine in step with its switch.
#[derive(Debug)]
struct Following(Arc<Mutex<Followed>>);

fn lock(followed: &Mutex<Followed>) -> MutexGuard<'_, Followed> {
    followed.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Follower for Following {
    fn applied(&mut self, state: &State, bundle: &Bundle) {
        let mut followed = lock(&self.0);
        if let Err(unsupported) = followed.engine.follow(state, bundle) {
            followed.failure = Some(format!("a change cannot be compiled: {unsupported}"));
        }
    }

    fn forgotten(&mut self, actions: &[ActionId]) {
        lock(&self.0).engine.forget(actions);
    }

    fn configured(&mut self, _: &[(PortNo, PortConfig)]) {}

    fn flags(&mut self, flags: u64) {
        lock(&self.0).engine.expect_flags(flags);
    }

    fn counters(&mut self, _: PortNo) -> Option<PortCounters> {
        None
    }
}

impl Ours {
    /// A switch whose packets the interpreter runs.
    ///
    /// # Errors
    /// The switch refuses ports or connections.
    pub fn interpreted() -> Result<Self> {
        let mut switch = Switch::new(Settings::default());
        for number in 1..=PORTS {
            let address = [2, 0, 0, 0, 1, number as u8];
            let name = format!("p{number}");
            let number = PortNo(number);
            let port = PortInfo::new(number, name, address);
            switch.set_port(port, 0).map_err(|error| Error::Other(error.to_string()))?;
        }
        let connection = switch.connect(ConnectionKind::Service);
        let connection = connection.ok_or_else(|| Error::Other("too many connections".to_owned()))?;
        let mut ours = Self { switch, connection, code: None };
        ours.exchange(&greeting())?;
        Ok(ours)
    }

    /// A switch whose packets run generated code, specialised for the flows or not.
    ///
    /// # Errors
    /// The program cannot be compiled.
    pub fn compiled(specialised: bool) -> Result<Self> {
        let mut ours = Self::interpreted()?;
        let options = Options { limits: LIMITS, ..Options::default() };
        let engine =
            Engine::new(ours.switch.state(), options).map_err(|error| Error::Other(error.to_string()))?;
        let followed = Arc::new(Mutex::new(Followed { engine, failure: None }));
        ours.switch.set_follower(|_| Box::new(Following(followed.clone())));
        ours.code = Some(Code { followed, worker: Worker::new(), random: 1, specialised });
        Ok(ours)
    }

    /// Whether packets run code that is specialised for the flows. Some tables have none.
    pub fn is_specialised(&self) -> bool {
        self.code.as_ref().is_some_and(|code| lock(&code.followed).engine.is_specialised())
    }

    /// Packet-ins that wait.
    fn packet_ins(&mut self) -> Vec<String> {
        let next = || self.switch.next_message(self.connection);
        std::iter::from_fn(next)
            .filter_map(|bytes| Some(packet_in(&Message::decode(&bytes).ok()?)?.0))
            .collect()
    }

    /// Frames that leave when the interpreter runs a packet.
    fn interpret(&mut self, port: u32, packet: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let effects = self.switch.packet(PortNo(port), packet, 0);
        effects
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Output { port, packet, .. } => Some((port.0, packet)),
                _ => None,
            })
            .collect()
    }

    /// Frames that leave when generated code runs a packet.
    fn execute(&mut self, port: u32, packet: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let Some(code) = &mut self.code else { return vec![] };
        let received = Received::whole(packet, port);
        let is_live = |number: u32| (1..=PORTS).contains(&number);
        let mut surroundings = Surroundings { now: 0, random: &mut code.random, is_live: &is_live };
        let (mut effects, mut fates) = (Effects::default(), vec![]);
        let views = lock(&code.followed).engine.views();
        code.worker.run_batch(
            &views.load(),
            &mut surroundings,
            std::iter::once(received),
            &mut effects,
            &mut fates,
        );
        let mut outputs = vec![];
        for effect in effects.to_interp_each(&fates, [received.len]).concat() {
            match effect {
                interp::Effect::Output { to, packet: form, .. } => {
                    let bytes = form.bytes(&received);
                    match to {
                        Exit::Port(number) if is_live(number) => outputs.push((number, bytes)),
                        Exit::Flood | Exit::All => outputs.extend(
                            (1..=PORTS)
                                .filter(|number| *number != port)
                                .map(|number| (number, bytes.clone())),
                        ),
                        _ => {}
                    }
                }
                interp::Effect::Controller { reason, packet: form, limit, data, .. } => {
                    self.switch.send_to_controllers(reason, limit, &data, &form.bytes(&received), None, 0);
                }
                interp::Effect::Digest { digest, values } => {
                    self.switch.process_digest(digest, &values, 0);
                }
                interp::Effect::Drop(_) => {}
            }
        }
        outputs
    }
}

impl Subject for Ours {
    fn name(&self) -> &'static str {
        match &self.code {
            None => "the interpreter",
            Some(code) if code.specialised => "specialised code",
            Some(_) => "generated code",
        }
    }

    fn exchange(&mut self, messages: &[Vec<u8>]) -> Result<Vec<Message>> {
        let mut replies = vec![];
        for message in messages {
            self.switch.receive(self.connection, message, 0);
            while let Some(bytes) = self.switch.next_message(self.connection) {
                replies.extend(Message::decode(&bytes));
            }
        }
        match self.code.as_ref().and_then(|code| lock(&code.followed).failure.take()) {
            Some(failure) => Err(Error::Other(failure)),
            None => Ok(replies),
        }
    }

    fn send(&mut self, burst: &Burst) -> Result<Vec<Observed>> {
        let mut observed = vec![];
        for packet in &burst.packets {
            let mut outputs = match self.code {
                None => self.interpret(burst.port, packet),
                Some(_) => self.execute(burst.port, packet),
            };
            outputs.sort_by_key(|(port, _)| *port);
            observed.push(Observed { outputs, packet_ins: self.packet_ins() });
        }
        Ok(observed)
    }

    fn settle(&mut self) -> Result<()> {
        if let Some(code) = self.code.as_ref().filter(|code| code.specialised) {
            lock(&code.followed).engine.improve();
        }
        Ok(())
    }
}
