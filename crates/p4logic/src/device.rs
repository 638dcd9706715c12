//! What controllers do with the logic.

use std::sync::{Arc, PoisonError};

use fabric::{InjectError, Injection, clock};
use p4runtime_proto::v1::entity::Entity as Kind;
use p4runtime_proto::v1::write_request::Atomicity;
use p4runtime_proto::v1::{DigestListAck, Entity, ForwardingPipelineConfig, PacketOut, Update};
use p4switch::{Access, Code, Device, Failure, InstallAction, Listener, Program, WriteFailure};

use crate::installed::{Installed, Loaded};
use crate::{P4, StartError};

fn no_program() -> Failure {
    Failure::new(
        Code::FailedPrecondition,
        "there is no program yet: set the forwarding pipeline config first",
    )
}

impl P4 {
    /// Uses the program that runs.
    pub(crate) fn with<R>(&self, run: impl FnOnce(&mut Installed) -> R) -> Result<R, Failure> {
        let mut control = self.core.control();
        control.installed.as_mut().map(run).ok_or_else(no_program)
    }

    /// The program that runs.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`: there is none.
    pub fn program(&self) -> Result<Arc<Program>, Failure> {
        self.with(|installed| installed.switch.program().clone())
    }

    fn commit(&self, loaded: Loaded, reconcile: bool) -> Result<(), Failure> {
        self.core.commit(loaded, reconcile).map_err(|error| match error {
            StartError::Function(reason) => Failure::new(Code::InvalidArgument, reason),
            other => Failure::new(Code::Internal, other.to_string()),
        })
    }
}

/// Compiles the program of a configuration.
fn load(config: Option<&ForwardingPipelineConfig>) -> Result<Loaded, Failure> {
    let missing = || Failure::new(Code::InvalidArgument, "the request has no config");
    let config = config.ok_or_else(missing)?;
    let program = Arc::new(Program::from_config(config)?);
    Ok(Loaded { program, config: Arc::new(config.clone()) })
}

/// Whether an entity is about counts, which cards have a part of.
fn has_counts(entity: &Entity) -> bool {
    match &entity.entity {
        Some(Kind::CounterEntry(_) | Kind::DirectCounterEntry(_)) => true,
        Some(Kind::TableEntry(entry)) => entry.counter_data.is_some(),
        _ => false,
    }
}

impl Device for P4 {
    fn write(
        &self,
        updates: &[Update],
        atomicity: Atomicity,
        access: Option<&Access>,
    ) -> Result<(), WriteFailure> {
        let (result, has_digests) = self.with(|installed| {
            if updates.iter().filter_map(|update| update.entity.as_ref()).any(has_counts) {
                // What cards have counted before is not to be added to what is set now.
                installed.collect();
            }
            let now = clock::nanoseconds();
            let result = match access {
                Some(access) => installed.switch.write_as(access, updates, atomicity, now),
                None => installed.switch.write(updates, atomicity, now),
            };
            (result, installed.has_digests)
        })?;
        if has_digests {
            // Lists may be due at another time.
            self.core.plane.bell.ring();
        }
        result
    }

    /// The lock is taken anew for each part: neither a large answer nor a slow reader holds up writes and packets for
    /// controllers.
    fn read(&self, entities: &[Entity], emit: &mut dyn FnMut(Vec<Entity>) -> bool) -> Result<(), Failure> {
        let program = self.with(|installed| {
            if entities.iter().any(has_counts) {
                installed.collect();
            }
            installed.running.number
        })?;
        for entity in entities {
            let mut from = None;
            loop {
                let (part, next) = self.with(|installed| match installed.running.number == program {
                    true => installed.switch.read_part(entity, from, clock::nanoseconds()),
                    false => Err(Failure::new(Code::Aborted, "the program was replaced: read again")),
                })??;
                if !part.is_empty() && !emit(part) {
                    return Ok(());
                }
                match next {
                    Some(next) => from = Some(next),
                    None => break,
                }
            }
        }
        Ok(())
    }

    fn install(
        &self,
        action: InstallAction,
        config: Option<&ForwardingPipelineConfig>,
    ) -> Result<(), Failure> {
        let reconcile = action == InstallAction::ReconcileAndCommit;
        // Others that install do not wait for the front end.
        let loaded = match action {
            InstallAction::Commit => {
                let saved = self.core.control().saved.clone();
                let none =
                    || Failure::new(Code::FailedPrecondition, "no program was saved (VERIFY_AND_SAVE)");
                saved.ok_or_else(none)?
            }
            _ => load(config)?,
        };
        self.core
            .program_settings()
            .check(&loaded.program)
            .map_err(|reason| Failure::new(Code::InvalidArgument, reason))?;
        match action {
            InstallAction::Verify => Ok(()),
            InstallAction::VerifyAndSave => {
                self.core.control().saved = Some(loaded);
                Ok(())
            }
            InstallAction::VerifyAndCommit | InstallAction::Commit | InstallAction::ReconcileAndCommit => {
                let _turn = self.core.installing.lock().unwrap_or_else(PoisonError::into_inner);
                let program = loaded.program.clone();
                self.commit(loaded, reconcile)?;
                if action == InstallAction::Commit {
                    // Another one may have been saved meanwhile.
                    let is_it = |saved: &mut Loaded| Arc::ptr_eq(&saved.program, &program);
                    self.core.control().saved.take_if(is_it);
                }
                Ok(())
            }
        }
    }

    fn config(&self) -> Option<Arc<ForwardingPipelineConfig>> {
        self.with(|installed| installed.config.clone()).ok()
    }

    fn packet_out(&self, packet: &PacketOut) -> Result<(), Failure> {
        let bytes = self.with(|installed| installed.switch.packet_out(packet))??;
        match self.core.inject(&bytes, 0, Injection::Logic) {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                let code = match &error {
                    InjectError::Full => Code::ResourceExhausted,
                    InjectError::Length(_) | InjectError::Offload(_) => Code::InvalidArgument,
                    InjectError::Gone => Code::Unavailable,
                };
                Err(Failure::new(code, error.to_string()))
            }
            None => Err(Failure::new(Code::Unavailable, "the bridge is not ready for packets yet")),
        }
    }

    fn acknowledge(&self, ack: &DigestListAck) -> Result<(), Failure> {
        self.with(|installed| installed.switch.acknowledge(ack))??;
        self.core.plane.bell.ring();
        Ok(())
    }

    fn listen(&self, listener: Listener) {
        self.core.listener.store(Some(Arc::new(listener)));
    }
}
