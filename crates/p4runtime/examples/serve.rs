//! Serves a P4 program without ports, to try controllers on: entries are written and read as in a switch, and a packet
//! that a controller sends comes back to it.
//!
//! ```sh
//! cargo run -p mswitch-p4runtime --example serve -- tcp:127.0.0.1:9559
//! ```
#![allow(clippy::expect_used, reason = "an example ends with its first error")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use p4::preprocess::Options;
use p4runtime::{Server, Settings, TlsFiles};
use p4runtime_proto::v1::write_request::Atomicity;
use p4runtime_proto::v1::{
    DigestListAck, Entity, ForwardingPipelineConfig, PacketOut, StreamMessageResponse, Update,
    stream_message_response,
};
use p4switch::{Code, Device, Failure, InstallAction, Listener, Program, Switch, WriteFailure};
use tokio::runtime::Handle;

/// A program without ports.
struct Unplugged {
    started: Instant,
    running: Mutex<Option<Running>>,
    listener: Mutex<Option<Listener>>,
}

struct Running {
    switch: Switch,
    config: Arc<ForwardingPipelineConfig>,
}

impl Unplugged {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

fn no_program() -> Failure {
    Failure::new(Code::FailedPrecondition, "there is no program; set one by SetForwardingPipelineConfig")
}

impl Device for Unplugged {
    fn write(&self, updates: &[Update], atomicity: Atomicity) -> Result<(), WriteFailure> {
        let mut running = self.running();
        running.as_mut().ok_or_else(no_program)?.switch.write(updates, atomicity, self.now())
    }

    fn read(&self, entities: &[Entity], emit: &mut dyn FnMut(Vec<Entity>) -> bool) -> Result<(), Failure> {
        self.running().as_ref().ok_or_else(no_program)?.switch.read(entities, self.now(), emit)
    }

    fn install(
        &self,
        action: InstallAction,
        config: Option<&ForwardingPipelineConfig>,
    ) -> Result<(), Failure> {
        let config =
            config.ok_or_else(|| Failure::new(Code::Unimplemented, "this example saves no program"))?;
        let invalid = |error: String| Failure::new(Code::InvalidArgument, error);
        let text =
            std::str::from_utf8(&config.p4_device_config).map_err(|error| invalid(error.to_string()))?;
        let program = Program::text("program.p4", text, &Options::default())
            .map_err(|error| invalid(error.to_string()))?;
        if action != InstallAction::Verify {
            let config = ForwardingPipelineConfig { p4info: Some((*program.info).clone()), ..config.clone() };
            let switch = Switch::new(Arc::new(program));
            *self.running() = Some(Running { switch, config: Arc::new(config) });
        }
        Ok(())
    }

    fn config(&self) -> Option<Arc<ForwardingPipelineConfig>> {
        self.running().as_ref().map(|running| running.config.clone())
    }

    fn packet_out(&self, packet: &PacketOut) -> Result<(), Failure> {
        let running = self.running();
        let switch = &running.as_ref().ok_or_else(no_program)?.switch;
        let packet = switch.packet_in(&switch.packet_out(packet)?);
        let update = Some(stream_message_response::Update::Packet(packet));
        if let Some(listener) = &*self.listener.lock().unwrap_or_else(PoisonError::into_inner) {
            listener(StreamMessageResponse { update });
        }
        Ok(())
    }

    fn acknowledge(&self, _: &DigestListAck) -> Result<(), Failure> {
        Err(Failure::new(Code::InvalidArgument, "this example sends no digests"))
    }

    fn listen(&self, listener: Listener) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }
}

/// `serve ADDRESS [CERTIFICATE KEY [CLIENTS' AUTHORITY]]`.
#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let listen =
        arguments.next().expect("usage: serve unix:PATH|tcp:ADDRESS:PORT [CERTIFICATE KEY [AUTHORITY]]");
    let listen = listen.parse().expect("the address can be used");
    let tls = arguments.next().zip(arguments.next()).map(|(certificate, private_key)| TlsFiles {
        private_key: private_key.into(),
        certificate: certificate.into(),
        client_ca: arguments.next().map(Into::into),
    });
    let settings = Settings { listen: vec![listen], tls, ..Settings::default() };
    let device = Unplugged { started: Instant::now(), running: Mutex::default(), listener: Mutex::default() };
    let server = Server::start(&Handle::current(), settings, Arc::new(device)).expect("the server starts");
    for listen in server.listening() {
        println!("listening on {listen}");
    }
    tokio::signal::ctrl_c().await.expect("signals can be waited for");
    server.shutdown().await;
}
