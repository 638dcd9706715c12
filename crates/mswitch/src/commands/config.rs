//! `mswitch config`.

use control::file::{FileError, Problem};
use serde::Serialize;

use super::answer;
use crate::cli::ConfigCommand;
use crate::failure::Failure;

/// What `config check --json` prints.
#[derive(Debug, Serialize)]
struct Checked {
    /// The file.
    file: String,
    /// Whether a daemon would take it.
    ok: bool,
    /// Number of bridges, if it would.
    bridges: usize,
    /// Number of ports, if it would.
    ports: usize,
    /// Every mistake, in the order of the file.
    errors: Vec<Mistake>,
}

/// A mistake.
#[derive(Debug, Serialize)]
struct Mistake {
    /// Line, from 1.
    line: usize,
    /// Column in characters, from 1.
    column: usize,
    /// The bridge that it is in.
    bridge: Option<String>,
    /// The port that it is in.
    port: Option<String>,
    /// What is wrong, and what would be right.
    message: String,
}

impl From<&Problem> for Mistake {
    fn from(problem: &Problem) -> Self {
        let Problem { line, column, context, message } = problem.clone();
        Self { line, column, bridge: context.bridge, port: context.port, message }
    }
}

pub(super) fn run(command: ConfigCommand) -> Result<(), Failure> {
    let ConfigCommand::Check { file, output } = command;
    let read = control::file::read(&file);
    let (bridges, ports) = read.as_ref().map_or((0, 0), |config| {
        (config.bridges.len(), config.bridges.iter().map(|bridge| bridge.ports.len()).sum())
    });
    let problems: &[Problem] = match &read {
        Ok(_) => &[],
        Err(FileError { problems, .. }) => problems,
    };
    let errors = problems.iter().map(Mistake::from).collect();
    let checked = Checked { file: file.display().to_string(), ok: read.is_ok(), bridges, ports, errors };
    if output.json || checked.ok {
        answer(output, &checked, |c| {
            format!("{}: good; bridges: {}, ports: {}\n", c.file, c.bridges, c.ports)
        })?;
    }
    Ok(read.map(drop)?)
}
