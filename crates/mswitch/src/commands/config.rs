//! `mswitch config`.

mod save;

use std::path::{Path, PathBuf};

use control::client::Client;
use control::file::{FileError, Parsed, Problem};
use control::proto;
use serde::Serialize;

use super::{absolute, answer, note, print};
use crate::cli::{ConfigCommand, Output};
use crate::failure::Failure;
use crate::render;

/// The reply of `config check --json`.
#[derive(Debug, Serialize)]
struct Checked {
    /// The file.
    file: String,
    /// Whether a daemon accepts it.
    ok: bool,
    /// Number of bridges; 0 with mistakes.
    bridges: usize,
    /// Number of ports; 0 with mistakes.
    ports: usize,
    /// Every mistake, in the order of the file.
    errors: Vec<Found>,
    /// Notes on a file without mistakes, in the order of the file.
    notes: Vec<Found>,
}

/// A mistake or a note.
#[derive(Debug, Serialize)]
struct Found {
    /// Line, from 1; absent when the file cannot be read.
    line: Option<usize>,
    /// Column in characters, from 1; absent when the file cannot be read.
    column: Option<usize>,
    /// Bridge of the mistake.
    bridge: Option<String>,
    /// Port of the mistake.
    port: Option<String>,
    /// The value found and the value expected.
    message: String,
}

impl From<&Problem> for Found {
    fn from(problem: &Problem) -> Self {
        let Problem { position, context, message } = problem.clone();
        let (line, column) = position.map(|position| (position.line, position.column)).unzip();
        Self { line, column, bridge: context.bridge, port: context.port, message }
    }
}

pub(super) async fn run(client: &mut Client, command: ConfigCommand) -> Result<(), Failure> {
    match command {
        // These need no daemon: see `super::run`.
        ConfigCommand::Check { .. } | ConfigCommand::Reference => Ok(()),
        ConfigCommand::Show { secrets, output } => {
            let request = proto::GetConfigRequest { secrets, text: None, keep_daemon: false };
            let config = client.get_config(request).await?.into_inner();
            answer(output, &config, |config| config.toml.clone())
        }
        ConfigCommand::Diff { file, output } => {
            let toml = file.as_deref().map(control::file::text_of).transpose()?;
            let request = proto::DiffConfigRequest { toml, name: name(file.as_deref()) };
            let applied = client.diff_config(request).await?.into_inner();
            answer(output, &applied, render::config::differences)?;
            print_notes(&applied, output);
            if applied.differences.is_empty() { Ok(()) } else { Err(Failure::differs()) }
        }
        ConfigCommand::Apply { file, dry_run, output } => {
            let file = match file {
                Some(file) => file,
                None => own_file(client, "apply").await?,
            };
            apply(client, &file, dry_run, output).await
        }
        ConfigCommand::Save { file } => save::run(client, file.as_deref()).await,
    }
}

fn name(file: Option<&Path>) -> String {
    file.map(|file| file.display().to_string()).unwrap_or_default()
}

/// Returns the file that the daemon was started with; `verb` is the subcommand that needs it.
async fn own_file(client: &mut Client, verb: &str) -> Result<PathBuf, Failure> {
    let request = proto::GetConfigRequest { secrets: false, text: None, keep_daemon: false };
    let file = client.get_config(request).await?.into_inner().file;
    match file.as_str() {
        "" => Err(no_file(verb)),
        file => Ok(file.into()),
    }
}

fn no_file(verb: &str) -> Failure {
    Failure::new(format_args!(
        "the daemon was started without a configuration file; name the file: `mswitch config {verb} FILE`"
    ))
}

/// Prints the notes of a reply; in JSON they are part of the reply.
fn print_notes(applied: &proto::Applied, output: Output) {
    if !output.json {
        applied.notes.iter().for_each(note);
    }
}

async fn apply(client: &mut Client, file: &Path, dry_run: bool, output: Output) -> Result<(), Failure> {
    let toml = control::file::text_of(file)?;
    let request = proto::ApplyConfigRequest { toml, name: name(Some(file)), dry_run };
    let applied = client.apply_config(request).await?.into_inner();
    let path = absolute(file)?;
    answer(output, &applied, |applied| render::config::applied(applied, &path, dry_run))?;
    print_notes(&applied, output);
    let troubles: Vec<String> = applied
        .outcomes
        .iter()
        .filter(|outcome| !outcome.trouble.is_empty())
        .map(|outcome| format!("{}: {}; the daemon retries", outcome.object, outcome.trouble))
        .collect();
    if troubles.is_empty() { Ok(()) } else { Err(Failure::new(troubles.join("\n"))) }
}

/// Checks a file for the daemon behind `socket`.
pub(super) fn check(file: &Path, socket: Option<&Path>, output: Output) -> Result<(), Failure> {
    let read = control::file::read_for(file, socket);
    let (bridges, ports, notes): (_, _, &[Problem]) = match &read {
        Ok(Parsed { config, notes }) => (config.bridges.len(), config.ports(), notes),
        Err(_) => (0, 0, &[]),
    };
    let errors: &[Problem] = match &read {
        Ok(_) => &[],
        Err(FileError { problems, .. }) => problems,
    };
    let [errors, notes] = [errors, notes].map(|found| found.iter().map(Found::from).collect());
    let checked = Checked { file: name(Some(file)), ok: read.is_ok(), bridges, ports, errors, notes };
    if output.json || checked.ok {
        answer(output, &checked, |c| {
            format!("{}: no mistakes; bridges: {}, ports: {}\n", c.file, c.bridges, c.ports)
        })?;
    }
    let parsed = read?;
    if !output.json {
        parsed.note_lines(file).iter().for_each(note);
    }
    Ok(())
}
