//! `mswitch config save`.
//!
//! The command writes the file with the permissions of its user: a user of the control socket must not gain the
//! daemon's access to files. The daemon edits the text, since it has the configuration.

use std::fs::Permissions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use control::client::Client;
use control::proto;

use super::{absolute, is_same, no_file, note, print};
use crate::failure::Failure;
use crate::render;

/// Saves to `file`, or to the file that the daemon was started with.
pub(super) async fn run(client: &mut Client, file: Option<&Path>) -> Result<(), Failure> {
    let whole = get(client, true, None, false).await?;
    let own = (!whole.file.is_empty()).then(|| PathBuf::from(&whole.file));
    let file = match (file, &own) {
        (Some(file), _) => absolute(file)?,
        (None, Some(own)) => absolute(own)?,
        (None, None) => return Err(no_file("save")),
    };
    let shown = file.display();
    // A symbolic link stays: its target is replaced.
    let target = match std::fs::canonicalize(&file) {
        Ok(target) => target,
        Err(error) if error.kind() == ErrorKind::NotFound => file.clone(),
        Err(error) => return Err(Failure::new(format_args!("{shown}: {error}"))),
    };
    let is_own = || own.as_ref().is_some_and(|own| is_same(own, &target));
    let (edited, is_new) = match std::fs::read_to_string(&target) {
        Ok(text) => (get(client, true, Some(text), is_own()).await?, false),
        Err(error) if error.kind() == ErrorKind::NotFound => (whole.clone(), true),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            (proto::Config { rewritten: Some("it is not UTF-8".into()), ..whole.clone() }, false)
        }
        Err(error) => return Err(Failure::new(format_args!("{shown}: {error}"))),
    };
    let has_secrets = get(client, false, None, false).await?.toml != whole.toml;
    let loses = edited.rewritten.is_some() || !edited.overwritten.is_empty();
    let backup = match loses {
        true if !is_new => Some(back_up(&target).map_err(|error| {
            Failure::new(format_args!(
                "{shown}: cannot make a backup: {}; the file is unchanged",
                plain(&error)
            ))
        })?),
        _ => None,
    };
    replace(&target, &edited.toml, has_secrets)
        .map_err(|error| Failure::new(format_args!("{shown}: cannot write the file: {}", plain(&error))))?;
    print(&format!("saved to {shown}\n"))?;
    let is_own = is_own();
    if is_own {
        // An error means that the daemon has ended, and compares no more files.
        let _ = client.report_saved(proto::ReportSavedRequest { toml: edited.toml.clone() }).await;
    }
    if let (Some(reason), Some(backup)) = (&edited.rewritten, &backup) {
        note(format_args!(
            "the file was rewritten without its comments, because {reason}; the original is {}",
            backup.display()
        ));
    }
    if let (false, Some(backup)) = (edited.overwritten.is_empty(), &backup) {
        note(format_args!(
            "the file had edits that were never applied, and the running configuration replaced them; the original is {}",
            backup.display()
        ));
        edited.overwritten.iter().map(render::config::line).for_each(note);
    }
    if let Some(own) = own.filter(|_| !is_own) {
        note(format_args!("the daemon starts from {}, which is unchanged", own.display()));
    }
    Ok(())
}

async fn get(
    client: &mut Client,
    secrets: bool,
    text: Option<String>,
    keep_daemon: bool,
) -> Result<proto::Config, Failure> {
    let request = proto::GetConfigRequest { secrets, text, keep_daemon };
    Ok(client.get_config(request).await?.into_inner())
}

/// Makes a backup: a hard link with an unused name.
fn back_up(file: &Path) -> io::Result<PathBuf> {
    let mut number = 1;
    loop {
        let mut backup = file.as_os_str().to_owned();
        backup.push(if number == 1 { ".bak".to_owned() } else { format!(".bak{number}") });
        let backup = PathBuf::from(backup);
        match std::fs::hard_link(file, &backup) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            linked => return linked.map(|()| backup),
        }
    }
}

/// Replaces a file by a rename: readers see the old or the new file. An existing file keeps its owner, group and mode:
/// the daemon may run as another user and must still be able to read it. A file with secrets loses the permissions of
/// others.
fn replace(file: &Path, text: &str, has_secrets: bool) -> io::Result<()> {
    let folder = file.parent().unwrap_or(file);
    let mut beside = tempfile::Builder::new().prefix(".mswitch-save-").tempfile_in(folder)?;
    if let Ok(there) = std::fs::metadata(file) {
        fchown(beside.as_file(), Some(there.uid()), Some(there.gid()))?;
        let others = if has_secrets { 0 } else { 0o7 };
        let mode = Permissions::from_mode(there.mode() & (0o770 | others));
        beside.as_file().set_permissions(mode)?;
    }
    beside.write_all(text.as_bytes())?;
    beside.as_file().sync_all()?;
    beside.persist(file).map(drop).map_err(|error| error.error)
}

/// Returns the system's error without the name of the temporary file.
fn plain(error: &io::Error) -> String {
    // tempfile wraps the system's error in one of its own.
    if error.get_ref().is_some() { io::Error::from(error.kind()).to_string() } else { error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_no_temporary_name() {
        let folder = tempfile::tempdir().unwrap();
        let error = replace(&folder.path().join("no/such/file"), "", false).unwrap_err();
        assert!(error.to_string().contains(".mswitch-save-"), "{error}");
        assert_eq!(plain(&error), "entity not found");
        let is_directory = replace(folder.path(), "", false).unwrap_err();
        assert!(!plain(&is_directory).contains(".mswitch-save-"), "{is_directory}");
    }

    #[test]
    fn backups_do_not_replace_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.toml");
        for (text, name) in [("1", "f.toml.bak"), ("2", "f.toml.bak2"), ("3", "f.toml.bak3")] {
            std::fs::write(folder.path().join("new"), text).unwrap();
            std::fs::rename(folder.path().join("new"), &file).unwrap();
            assert_eq!(back_up(&file).unwrap(), folder.path().join(name));
            assert_eq!(std::fs::read_to_string(folder.path().join(name)).unwrap(), text);
        }
    }
}
