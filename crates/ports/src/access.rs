//! Access to socket files: their directory, owner, group and mode, as users write them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::OpenError;

/// Owner, group and mode of a socket file. `None` leaves the system's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// User id.
    pub owner: Option<u32>,
    /// Group id.
    pub group: Option<u32>,
    /// Mode.
    pub mode: Option<u32>,
}

impl Access {
    /// Reads owner and group by name or number, and the mode in octal.
    pub fn read(owner: Option<&str>, group: Option<&str>, mode: Option<&str>) -> Result<Self, OpenError> {
        let owner = owner.map(|name| {
            name.parse().ok().or_else(|| uzers::get_user_by_name(name).map(|user| user.uid())).ok_or_else(
                || OpenError(format!("owner: there is no user {name:?}; give a name or a number")),
            )
        });
        let group = group.map(|name| {
            name.parse().ok().or_else(|| uzers::get_group_by_name(name).map(|group| group.gid())).ok_or_else(
                || OpenError(format!("group: there is no group {name:?}; give a name or a number")),
            )
        });
        let mode = mode.map(|text| {
            u32::from_str_radix(text.trim_start_matches("0o"), 8)
                .ok()
                .filter(|mode| *mode <= 0o777)
                .ok_or_else(|| OpenError(format!("mode: {text:?} is not an octal mode such as \"0660\"")))
        });
        Ok(Self { owner: owner.transpose()?, group: group.transpose()?, mode: mode.transpose()? })
    }

    /// Applies it to the file, the mode first: only root may change the mode of a file that it gave away.
    pub fn apply(&self, path: &Path) -> std::io::Result<()> {
        if let Some(mode) = self.mode {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        }
        if self.owner.is_some() || self.group.is_some() {
            std::os::unix::fs::chown(path, self.owner, self.group)?;
        }
        Ok(())
    }
}

/// Refuses a socket file whose directory does not exist.
pub(crate) fn check_directory(socket: &Path) -> Result<(), OpenError> {
    let directory = match socket.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if directory.is_dir() {
        return Ok(());
    }
    Err(OpenError(format!(
        "path: {} is not a directory; create it first, or choose another path",
        directory.display()
    )))
}
