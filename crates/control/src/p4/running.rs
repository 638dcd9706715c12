//! A bridge with the logic `p4`: the logic, its program and its server, as configured.
//!
//! Invariants:
//! - A change of the program's file is installed in the running logic: tables whose shape agrees keep their entries,
//!   and controllers stay connected. A program that cannot run changes nothing.
//! - A change of addresses, of the device id, of roles or of TLS restarts the server alone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric::SwitchError;
use fabric::switch::BridgeId;
use p4logic::{P4, PortFacts, Settings};
use p4runtime::Server;
use p4switch::Device;
use tokio::task::JoinHandle;

use super::load::Loaded;
use super::settings::P4Config;
use crate::openflow::Place;
use crate::state::Bridge;

/// A running bridge.
pub(crate) struct Running {
    name: String,
    place: Place,
    logic: Arc<P4>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` after a failure to start it.
    server: Option<Server>,
    /// The settings in effect; `None` after a failure.
    applied: Option<P4Config>,
    /// The end of the server.
    stopping: Option<JoinHandle<()>>,
}

impl Running {
    /// Makes the logic with its server.
    pub(crate) fn start(
        place: &Place,
        name: &str,
        config: &P4Config,
        loaded: Loaded,
    ) -> Result<Arc<Self>, String> {
        let Loaded { program, program_settings } = loaded;
        let settings = Settings { program, program_settings, seed: fastrand::u64(..) };
        let logic = P4::new(settings).map_err(|error| error.to_string())?;
        let running = Self { name: name.into(), place: place.clone(), logic, state: Mutex::default() };
        {
            let mut state = running.lock();
            state.server = Some(running.start_server(config)?);
            state.applied = Some(config.clone());
        }
        Ok(Arc::new(running))
    }

    /// Returns the logic.
    pub(crate) fn logic(&self) -> &Arc<P4> {
        &self.logic
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the logic run another program, which takes over the state of the one before.
    pub(crate) fn replace(&self, loaded: Loaded) -> Result<(), String> {
        self.logic.configure(loaded.program, loaded.program_settings).map_err(|error| error.to_string())
    }

    /// Applies the settings. Returns the result if anything changed. Blocks for up to a second while streams end.
    pub(crate) fn follow(&self, wanted: &P4Config) -> Option<Result<(), String>> {
        let mut state = self.lock();
        if state.applied.as_ref() == Some(wanted) {
            return None;
        }
        let done = self.apply(&mut state, wanted);
        state.applied = done.is_ok().then(|| wanted.clone());
        Some(done)
    }

    fn apply(&self, state: &mut State, wanted: &P4Config) -> Result<(), String> {
        if let Some(server) = state.server.take() {
            self.place.runtime.block_on(server.shutdown());
        }
        state.server = Some(self.start_server(wanted)?);
        Ok(())
    }

    fn start_server(&self, config: &P4Config) -> Result<Server, String> {
        let settings = p4runtime::Settings {
            listen: config.addresses(&self.place.control, &self.name),
            access: self.place.access,
            tls: config.tls_files(),
            devices: [0, config.device_id.into()].into(),
            roles: config.roles.clone(),
            only_listed_roles: config.only_listed_roles,
            ..p4runtime::Settings::default()
        };
        let device: Arc<dyn Device> = self.logic.clone();
        Server::start(&self.place.runtime, settings, device)
            .map_err(|error| format!("{error}; `listen` of `[bridge.p4]` names other addresses"))
    }

    /// Begins [`Running::stop`], so that several bridges stop in the time of one.
    pub(crate) fn begin_stop(&self) {
        let mut state = self.lock();
        if let Some(server) = state.server.take() {
            state.stopping = Some(self.place.runtime.spawn(server.shutdown()));
        }
    }

    /// Ends all streams and removes the sockets. Blocks for up to a second.
    pub(crate) fn stop(&self) {
        self.begin_stop();
        let stopping = self.lock().stopping.take();
        if let Some(stopping) = stopping {
            // A task that has panicked has ended, too.
            let _ = self.place.runtime.block_on(stopping);
        }
    }

    /// Joins the logic to its bridge in the fabric: packets of controllers.
    pub(crate) fn join(&self, bridge: BridgeId) -> Result<(), SwitchError> {
        self.logic.set_injector(self.place.switch.injector(bridge)?);
        self.logic.set_interfaces(self.place.interfaces.clone(), bridge);
        Ok(())
    }

    /// Gives the interfaces back, because another logic has the bridge.
    pub(crate) fn leave_interfaces(&self) {
        self.logic.leave_interfaces();
    }

    /// Tells the logic of the bridge's ports.
    pub(crate) fn tell_ports(&self, bridge: &Bridge) {
        let facts =
            |port: &crate::state::Port| PortFacts { index: port.at.port, number: port.config.p4_port };
        self.logic.set_ports(&bridge.ports.values().map(facts).collect::<Vec<_>>());
    }
}
