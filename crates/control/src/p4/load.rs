//! The logic's name and parameters, and the program that they name.

use std::path::Path;
use std::sync::Arc;

use logic::{LogicError, Values, params};
use p4::preprocess::Options;
use p4logic::{Link, ProgramSettings};
use p4switch::{LoadError, Program};
use pipeline::env::Functions;

use super::{
    BEHIND_LINK, CPU_PORT, DEFINE, FUNCTIONS, INCLUDE, LINK, LOGIC, P4INFO, XDP, describe, port_numbers,
    program,
};

/// Most bytes of an error in a program.
const MOST_TEXT: usize = 4000;

/// What the logic starts with.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    /// Program.
    pub(crate) program: Option<Arc<Program>>,
    /// Settings that programs depend on.
    pub(crate) program_settings: ProgramSettings,
}

/// Reads the parameters of a logic, and the program that its name has.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn load(name: &str, params: &[(String, String)]) -> Result<Loaded, LogicError> {
    let values = params::check(&describe(), params)?;
    let port = |name| u32::try_from(values.number(name)).ok().filter(|number| *number > 0);
    let cpu_port = port(CPU_PORT);
    let behind = port_numbers(values.text(BEHIND_LINK), u16::MAX).map_err(|message| LogicError::Mistake {
        logic: LOGIC.into(),
        param: BEHIND_LINK.into(),
        message,
    })?;
    let link = Link { number: port(LINK), behind: behind.into_iter().collect() };
    let functions = functions(values.text(FUNCTIONS))?;
    let xdp = values.is_on(XDP);
    let program_settings = ProgramSettings { cpu_port, link, functions, xdp, params: params.to_vec() };
    let Some(file) = program(name) else { return Ok(Loaded { program: None, program_settings }) };
    let refused = |error| LogicError::Module { file: name.into(), message: reason(error) };
    let program = read(Path::new(file), &values).map_err(refused)?;
    Ok(Loaded { program: Some(Arc::new(program)), program_settings })
}

/// Loads a native module with functions for programs; none without a file.
///
/// # Errors
/// It cannot be loaded.
pub fn functions(file: &str) -> Result<Option<Arc<dyn Functions>>, LogicError> {
    if file.is_empty() {
        return Ok(None);
    }
    let refused = |message| LogicError::Module { file: file.into(), message };
    native(Path::new(file)).map(Some).map_err(refused)
}

#[cfg(feature = "native")]
fn native(file: &Path) -> Result<Arc<dyn Functions>, String> {
    Ok(Arc::new(modules::P4Functions::load(file)?))
}

#[cfg(not(feature = "native"))]
fn native(_: &Path) -> Result<Arc<dyn Functions>, String> {
    Err("this build has no native modules".into())
}

/// Reads a program: source text or, with a P4Info, whose path may be relative to the program's folder, BMv2's JSON.
fn read(file: &Path, values: &Values) -> Result<Program, LoadError> {
    match values.text(P4INFO) {
        "" if file.extension().is_some_and(|extension| extension == "json") => {
            Err(LoadError::Program(format!(
                "{} is JSON: name the P4Info that p4c wrote with it, --param {P4INFO}=FILE",
                file.display()
            )))
        }
        "" => Program::file(file, &options(values)),
        info => Program::bmv2_file(file, &file.parent().unwrap_or(Path::new("")).join(info)),
    }
}

fn options(values: &Values) -> Options {
    let list = |name: &str, between: char| {
        let texts = values.text(name).split(between).filter(|text| !text.is_empty());
        texts.map(str::to_owned).collect::<Vec<_>>()
    };
    let include = list(INCLUDE, ':').into_iter().map(Into::into).collect();
    Options { include, defines: list(DEFINE, ',') }
}

/// Why a program cannot run, for people.
fn reason(error: LoadError) -> String {
    let mut message = match error {
        LoadError::Program(text) => format!("the program cannot run\n{text}"),
        other => other.to_string(),
    };
    if message.len() > MOST_TEXT {
        message.truncate(message.floor_char_boundary(MOST_TEXT));
        message.push_str("\n... `mswitch p4 check` shows the rest");
    }
    message.trim_end().into()
}
