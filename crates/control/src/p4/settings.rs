//! Settings of a bridge's P4Runtime server: `[bridge.p4]` in the file.
//!
//! Invariant: settings that the file's reader accepts are written as text that it accepts again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use p4runtime::{LimitedRole, Listen, ListenError, TlsFiles};
use p4switch::ObjectKind;
use ports::bounded::within;

/// Settings of a bridge's P4Runtime server. They have no effect while the bridge's logic is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct P4Config {
    /// Addresses, without duplicates; `None`: a socket beside the control socket. With files for TLS, those of TCP speak
    /// it.
    pub listen: Option<Vec<Listen>>,
    /// Device id; 0 stands for the bridge, too.
    pub device_id: u32,
    /// Files for clients with TLS, in the order of [`TLS_KEYS`].
    pub tls: [Option<PathBuf>; 3],
    /// Roles with limits, by name.
    pub roles: BTreeMap<String, LimitedRole>,
    /// Whether clients may claim only these.
    pub only_listed_roles: bool,
}

impl Default for P4Config {
    fn default() -> Self {
        let (listen, tls, roles, only_listed_roles) = Default::default();
        Self { listen, device_id: 1, tls, roles, only_listed_roles }
    }
}

/// Keys of the files for clients with TLS.
pub const TLS_KEYS: [&str; 3] = ["private-key", "certificate", "ca-cert"];

/// Keys of the lists of objects that a role has.
pub const ROLE_LISTS: [(&str, ObjectKind); 7] = [
    ("tables", ObjectKind::Table),
    ("action-profiles", ObjectKind::ActionProfile),
    ("counters", ObjectKind::Counter),
    ("meters", ObjectKind::Meter),
    ("registers", ObjectKind::Register),
    ("value-sets", ObjectKind::ValueSet),
    ("digests", ObjectKind::Digest),
];

/// The most roles: as many as a server remembers.
const MAX_ROLES: usize = 64;
/// Bytes of the longest name of a role.
const MAX_ROLE_NAME: usize = 256;
/// The most addresses.
const MAX_LISTEN: usize = 16;
/// Time limit for reading the files for TLS.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// Reasons for refusing a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// An address cannot be parsed.
    #[error("{0}; write for example `tcp:127.0.0.1:9559`")]
    Listen(String),
    /// A relative path, whose meaning would depend on the daemon's directory.
    #[error("`{0}` is relative to the daemon's working directory; write an absolute path")]
    Relative(String),
    /// Too many addresses.
    #[error("{0} addresses are too many; the most are {MAX_LISTEN}")]
    TooMany(usize),
    /// Some files for TLS are missing.
    #[error("TLS needs `private-key` and `certificate`, both files in PEM")]
    NoTlsFiles,
    /// TLS is not possible with the files.
    #[error("{0}")]
    Tls(String),
    /// A number out of range.
    #[error("{0} is out of range; expected 1 to 4294967295")]
    Range(i64),
    /// A number of entries out of range.
    #[error("{0} is out of range; expected 0 to 4294967295")]
    Entries(i64),
    /// A role's name is empty or too long.
    #[error("the name has {0} bytes; expected 1 to {MAX_ROLE_NAME}")]
    RoleName(usize),
    /// Two roles have the same name.
    #[error("there is another role `{0}`; give each role its own name")]
    RoleExists(String),
    /// Too many roles.
    #[error("{0} roles are too many; the most are {MAX_ROLES}")]
    TooManyRoles(usize),
    /// An object's name is empty.
    #[error("a name is empty; expected the name or alias of an object in the P4Info")]
    NoObject,
}

impl From<ListenError> for SettingError {
    fn from(error: ListenError) -> Self {
        SettingError::Listen(error.to_string())
    }
}

impl P4Config {
    /// Returns the addresses of `bridge`, whose socket is beside the control socket `control` by default.
    pub fn addresses(&self, control: &Path, bridge: &str) -> Vec<Listen> {
        let beside = || vec![Listen::Unix(control.with_file_name(format!("{bridge}.p4rt")))];
        self.listen.clone().unwrap_or_else(beside)
    }

    /// Returns the files for clients with TLS; `None` if one of them is missing.
    pub fn tls_files(&self) -> Option<TlsFiles> {
        let [Some(private_key), Some(certificate), client_ca] = self.tls.clone() else { return None };
        Some(TlsFiles { private_key, certificate, client_ca })
    }

    /// Checks the addresses together, and that TLS has its files. `reads`: also that the files can be used.
    pub fn check(&self, reads: bool) -> Result<(), SettingError> {
        let listen = self.listen.as_deref().unwrap_or_default();
        if listen.len() > MAX_LISTEN {
            return Err(SettingError::TooMany(listen.len()));
        }
        if self.roles.len() > MAX_ROLES {
            return Err(SettingError::TooManyRoles(self.roles.len()));
        }
        if self.tls.iter().all(Option::is_none) {
            return Ok(());
        }
        let files = self.tls_files().ok_or(SettingError::NoTlsFiles)?;
        if !reads {
            return Ok(());
        }
        // Paths may be on a file system that blocks.
        match within(READ_LIMIT, "mswitch-check", move || files.check()) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(SettingError::Tls(error.to_string())),
            Err(error) => Err(SettingError::Tls(error.to_string())),
        }
    }
}

/// Parses an address.
pub fn parse_listen(text: &str) -> Result<Listen, SettingError> {
    let listen: Listen = text.parse()?;
    match &listen {
        Listen::Unix(path) if !path.is_absolute() => Err(SettingError::Relative(path.display().to_string())),
        _ => Ok(listen),
    }
}

/// Parses the path of a file.
pub fn parse_file(text: &str) -> Result<PathBuf, SettingError> {
    match Path::new(text) {
        path if path.is_absolute() => Ok(path.into()),
        _ => Err(SettingError::Relative(text.into())),
    }
}

/// Checks a device id.
pub fn check_device_id(value: i64) -> Result<u32, SettingError> {
    u32::try_from(value).ok().filter(|value| *value > 0).ok_or(SettingError::Range(value))
}

/// Checks a role's name.
pub fn check_role_name(name: &str) -> Result<(), SettingError> {
    match name.len() {
        1..=MAX_ROLE_NAME => Ok(()),
        bytes => Err(SettingError::RoleName(bytes)),
    }
}

/// Checks the names of a role's objects.
pub fn check_objects(names: Vec<String>) -> Result<BTreeSet<String>, SettingError> {
    match names.iter().any(String::is_empty) {
        true => Err(SettingError::NoObject),
        false => Ok(names.into_iter().collect()),
    }
}

/// Checks a number of entries.
pub fn check_entries(value: i64) -> Result<u64, SettingError> {
    u32::try_from(value).map(u64::from).map_err(|_| SettingError::Entries(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_together() {
        let mut config = P4Config::default();
        assert_eq!(config.check(true), Ok(()));
        let beside = config.addresses(Path::new("/run/m/c.sock"), "br0");
        assert_eq!(beside, [Listen::Unix("/run/m/br0.p4rt".into())]);
        config.listen = Some(vec![parse_listen("tcp:127.0.0.1:9559").unwrap()]);
        assert_eq!(config.check(true), Ok(()));
        config.tls[1] = Some("/no/certificate".into());
        assert_eq!(config.check(false), Err(SettingError::NoTlsFiles));
        config.tls = [Some("/no/key".into()), Some("/no/certificate".into()), None];
        assert_eq!(config.check(false), Ok(()));
        assert!(config.check(true).unwrap_err().to_string().starts_with("/no/key"));
        config.listen = Some(vec![parse_listen("tcp:127.0.0.1:9559").unwrap(); 17]);
        assert_eq!(config.check(false), Err(SettingError::TooMany(17)));
    }

    #[test]
    fn errors_name_the_remedy() {
        let relative = parse_listen("unix:a.sock").unwrap_err().to_string();
        assert_eq!(
            relative,
            "`a.sock` is relative to the daemon's working directory; write an absolute path"
        );
        let wrong = parse_listen("127.0.0.1:9559").unwrap_err().to_string();
        assert!(wrong.ends_with("; write for example `tcp:127.0.0.1:9559`"), "{wrong}");
        let range = check_device_id(0).unwrap_err().to_string();
        assert_eq!(range, "0 is out of range; expected 1 to 4294967295");
    }
}
