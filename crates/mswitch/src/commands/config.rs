//! `mswitch config`.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use control::client::Client;
use control::file::{FileError, Problem};
use control::proto;
use serde::Serialize;

use super::{answer, print};
use crate::cli::{ConfigCommand, Output};
use crate::failure::Failure;
use crate::render;

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

pub(super) async fn run(client: &mut Client, command: ConfigCommand) -> Result<(), Failure> {
    match command {
        // These need no daemon: see `super::run`.
        ConfigCommand::Check { .. } | ConfigCommand::Reference => Ok(()),
        ConfigCommand::Show { secrets, output } => {
            let config = client.get_config(proto::GetConfigRequest { secrets }).await?.into_inner();
            answer(output, &config, |config| config.toml.clone())
        }
        ConfigCommand::Diff { file, output } => {
            let toml = file.as_deref().map(control::file::text_of).transpose()?;
            let request = proto::DiffConfigRequest { toml, name: name(file.as_deref()) };
            let applied = client.diff_config(request).await?.into_inner();
            answer(output, &applied, render::config::differences)
        }
        ConfigCommand::Apply { file, dry_run, output } => apply(client, &file, dry_run, output).await,
        ConfigCommand::Save { file } => save(client, file).await,
    }
}

fn name(file: Option<&Path>) -> String {
    file.map(|file| file.display().to_string()).unwrap_or_default()
}

async fn apply(client: &mut Client, file: &Path, dry_run: bool, output: Output) -> Result<(), Failure> {
    let toml = control::file::text_of(file)?;
    let request = proto::ApplyConfigRequest { toml, name: name(Some(file)), dry_run };
    let applied = client.apply_config(request).await?.into_inner();
    answer(output, &applied, render::config::differences)?;
    let troubles: Vec<String> = applied
        .outcomes
        .iter()
        .filter(|outcome| !outcome.trouble.is_empty())
        .map(|outcome| format!("{}: {}; the daemon tries it again", outcome.object, outcome.trouble))
        .collect();
    if troubles.is_empty() { Ok(()) } else { Err(Failure::new(troubles.join("\n"))) }
}

/// Writes beside the file and renames, so that it is whole at every moment. A file that is there keeps its owner, group and
/// mode: the daemon may run as another user and must still be able to read it. Only the mode's part for everybody goes when
/// secrets are written.
async fn save(client: &mut Client, file: Option<PathBuf>) -> Result<(), Failure> {
    let config = client.get_config(proto::GetConfigRequest { secrets: true }).await?.into_inner();
    let file = match file {
        Some(file) => file,
        None if config.file.is_empty() => {
            return Err(Failure::new(
                "the daemon was started without a configuration file; say where to save: `mswitch config save FILE`",
            ));
        }
        None => config.file.into(),
    };
    let refused =
        |error: std::io::Error| Failure::new(format_args!("{}: cannot be written: {error}", file.display()));
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut beside = tempfile::NamedTempFile::new_in(folder).map_err(refused)?;
    if let Ok(there) = std::fs::metadata(&file) {
        fchown(beside.as_file(), Some(there.uid()), Some(there.gid())).map_err(refused)?;
        // Secrets are for nobody whom the file's owner and group do not name.
        let told = client.get_config(proto::GetConfigRequest { secrets: false }).await?.into_inner();
        let others = if told.toml == config.toml { 0o7 } else { 0 };
        let mode = Permissions::from_mode(there.mode() & (0o770 | others));
        beside.as_file().set_permissions(mode).map_err(refused)?;
    }
    beside.write_all(config.toml.as_bytes()).map_err(refused)?;
    beside.as_file().sync_all().map_err(refused)?;
    beside.persist(&file).map_err(|error| refused(error.error))?;
    print(&format!("saved to {}\n", file.display()))
}

/// Looks for mistakes, on behalf of the daemon behind `socket` if one is named.
pub(super) fn check(file: &Path, socket: Option<&Path>, output: Output) -> Result<(), Failure> {
    let read = control::file::read_for(file, socket);
    let (bridges, ports) = read.as_ref().map_or((0, 0), |config| (config.bridges.len(), config.ports()));
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
