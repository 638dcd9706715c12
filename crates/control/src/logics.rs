//! The logics of this switch: built-in ones, and those loaded from modules.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use logic::{Chain, Kind, Logic, LogicDescription, LogicError};
use ports::bounded::{Unfinished, within};

use crate::openflow::{self, LOGIC, with_openflow};
use crate::p4::{self, with_p4};

/// Logics of other crates: `pcap-filter` and `inspect`, and the kinds of modules.
pub(crate) const KINDS: &[Kind] = &{
    let mut kinds = [pcap_filter::KIND; 2 + modules::KINDS.len()];
    kinds[1] = inspect::KIND;
    let mut i = 0;
    while i < modules::KINDS.len() {
        kinds[i + 2] = modules::KINDS[i];
        i += 1;
    }
    kinds
};

/// Time limit for building or describing a logic: a large module compiles for seconds, and reading its file may block.
const BUILD_LIMIT: Duration = Duration::from_secs(30);

/// Checks that the logic called `name` exists and accepts the parameters.
pub(crate) fn check(name: &str, params: &[(String, String)]) -> Result<(), LogicError> {
    if p4::is_p4(name) {
        return load_p4(name, params).map(drop);
    }
    match (name, params.first()) {
        (LOGIC, None) => Ok(()),
        (LOGIC, Some((param, _))) => Err(LogicError::UnknownParam {
            logic: LOGIC.into(),
            param: param.clone(),
            nearest: None,
            known: Vec::new(),
        }),
        _ => build(name, params).map(drop),
    }
}

/// Loads the program of a logic that is `p4` or `p4:FILE`.
pub(crate) fn load_p4(name: &str, params: &[(String, String)]) -> Result<p4::Loaded, LogicError> {
    let (file, given) = (name.to_owned(), params.to_vec());
    bounded(name, params, move || p4::load(&file, &given))
}

/// Builds the logic called `name`, which has no connections: [`LOGIC`] and `p4` have a bridge.
pub(crate) fn build(name: &str, params: &[(String, String)]) -> Result<Arc<dyn Logic>, LogicError> {
    let (file, given) = (name.to_owned(), params.to_vec());
    bounded(name, params, move || logic::build(&file, &given, KINDS)).map_err(with_connections)
}

/// Describes the logic called `name`.
pub(crate) fn describe(name: &str) -> Result<LogicDescription, LogicError> {
    if name == LOGIC {
        return Ok(openflow::describe());
    }
    if p4::is_p4(name) {
        return Ok(p4::describe());
    }
    let file = name.to_owned();
    bounded(name, &[], move || logic::describe(&file, KINDS)).map_err(with_connections)
}

/// Adds the logics with connections to what an error knows.
fn with_connections(error: LogicError) -> LogicError {
    with_p4(with_openflow(error))
}

/// Does `work`, which loads the logic called `name`, within the time limit.
fn bounded<T: Send + 'static>(
    name: &str,
    params: &[(String, String)],
    work: impl FnOnce() -> Result<T, LogicError> + Send + 'static,
) -> Result<T, LogicError> {
    let builder = Arc::new(OnceLock::new());
    let own = builder.clone();
    let done = within(BUILD_LIMIT, "mswitch-logic", move || {
        let _ = own.set(std::thread::current().id());
        work()
    });
    done.unwrap_or_else(|error| {
        let compiling = builder.get().and_then(|thread| modules::compiling(*thread));
        let error = unfinished(name, params, compiling, &error);
        tracing::warn!("{error}");
        Err(error)
    })
}

/// Returns the error for a logic that was not loaded in time; `compiling` is the module that is being compiled.
fn unfinished(
    name: &str,
    params: &[(String, String)],
    compiling: Option<String>,
    error: &Unfinished,
) -> LogicError {
    let Some(file) = compiling else {
        return LogicError::Module { file: name.into(), message: error.to_string() };
    };
    let message = format!(
        "compiling it takes longer than {} s and continues in the background; repeat the command to wait for it",
        BUILD_LIMIT.as_secs()
    );
    let stage = if name == file { None } else { Chain::stage_of(params, &file) };
    let error = LogicError::Module { file, message };
    match stage {
        Some(number) => LogicError::Stage { number, error: Box::new(error) },
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_compilation_is_named_with_its_stage() {
        let late = Unfinished::Late(BUILD_LIMIT);
        let said = |name: &str, params: &[(String, String)], compiling: Option<&str>| {
            unfinished(name, params, compiling.map(str::to_owned), &late).to_string()
        };
        let rest = "compiling it takes longer than 30 s and continues in the background; repeat the command to wait for it";
        assert_eq!(said("wasm:/a.wasm", &[], Some("wasm:/a.wasm")), format!("wasm:/a.wasm: {rest}"));
        let stages = [("1", "hub"), ("2", "'wasm:/my fw.wasm' a=b")].map(|(k, v)| (k.into(), v.into()));
        assert_eq!(
            said("chain", &stages, Some("wasm:/my fw.wasm")),
            format!("stage 2: wasm:/my fw.wasm: {rest}")
        );
        assert_eq!(
            said("native:/a.so", &[], None),
            "native:/a.so: not finished within 30 s: blocked by a file system or the kernel"
        );
    }
}
