//! Machine code of the one program that all bridges have.

use std::sync::{Arc, Mutex, PoisonError};

use codegen::{Code, Options, Unsupported};
use match_action::Subject;
use pipeline::state::State;

/// The flow tables of a bridge.
pub(crate) const TABLES: Subject =
    Subject { name: "OpenFlow tables", limits: ofswitch::LIMITS, compile: program };

/// Compiles the program once: it takes much of a second.
fn program(state: &State, options: &Options) -> Result<Arc<Code>, Unsupported> {
    static PROGRAM: Mutex<Option<Arc<Code>>> = Mutex::new(None);
    let mut program = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(code) = &*program {
        return Ok(code.clone());
    }
    let code = Arc::new(codegen::compile(state.program(), options)?);
    *program = Some(code.clone());
    Ok(code)
}
