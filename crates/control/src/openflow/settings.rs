//! Settings of a bridge's OpenFlow connections: `[bridge.openflow]` in the file.
//!
//! Invariant: settings that the file's reader accepts are written as text that it accepts again.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use logic::SnoopingSettings;
use ofagent::{FailMode, Target, TargetError, TlsFiles};
use ofswitch::TableLimit;
use openflow::Version;
use ports::bounded::within;

/// Settings of a bridge's OpenFlow connections. They have no effect while the bridge's logic is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenFlowConfig {
    /// Controllers, without duplicates.
    pub controllers: Vec<Target>,
    /// Whether there is a controller besides to which no connection is possible, so that the bridge is not one without
    /// controllers. The configuration file has no key for it.
    pub has_unusable: bool,
    /// Behaviour without a controller.
    pub fail_mode: FailMode,
    /// Versions that controllers may choose from, oldest first.
    pub versions: Vec<Version>,
    /// The bridge's id; `None`: derived from the machine, the control socket and the bridge's name.
    pub datapath_id: Option<DatapathId>,
    /// The management socket.
    pub management: SocketPlace,
    /// The snoop socket.
    pub snoop: SocketPlace,
    /// Seconds of silence after which a controller is asked for an echo; 0: never.
    pub probe: u32,
    /// Longest delay before a controller is called again, in seconds.
    pub max_backoff: u32,
    /// Largest number of flows.
    pub max_flows: u32,
    /// Whether flows, groups and meters outlive the daemon.
    pub keep_flows: bool,
    /// Whether flows, groups and meters go when the bridge gets its first controller to connect to or loses its last one, and when its
    /// fail mode changes without one. The configuration file has no key for it.
    pub flush_flows: bool,
    /// Sizes of flow tables, and what happens when they are full. The configuration file has no key for it.
    pub table_limits: BTreeMap<u8, TableLimit>,
    /// Seconds after which a bundle that is not used is discarded. The configuration file has no key for it.
    pub bundle_idle: u32,
    /// Whether packets may wait in the switch while controllers see their beginnings. The configuration file has no key
    /// for it.
    pub buffers: bool,
    /// Seconds after which `NORMAL` forgets a silent station. The configuration file has no key for it.
    pub ageing: u32,
    /// Most stations that `NORMAL` knows, all of which may be at one port; `None`: the default of the logic `learning`,
    /// and its share of a port. The configuration file has no key for it.
    pub stations: Option<u32>,
    /// Snooping of groups by `NORMAL`. The configuration file has no key for it.
    pub snooping: Option<SnoopingSettings>,
    /// Names of flow tables, all different.
    pub tables: BTreeMap<u8, String>,
    /// Files for controllers with TLS, in the order of [`TLS_KEYS`].
    pub tls: [Option<PathBuf>; 3],
}

impl Default for OpenFlowConfig {
    fn default() -> Self {
        Self {
            controllers: Vec::new(),
            has_unusable: false,
            fail_mode: FailMode::Standalone,
            versions: Version::ALL.to_vec(),
            datapath_id: None,
            management: SocketPlace::Beside,
            snoop: SocketPlace::Beside,
            probe: DEFAULT_PROBE,
            max_backoff: DEFAULT_BACKOFF,
            max_flows: MAX_FLOWS,
            keep_flows: false,
            flush_flows: false,
            table_limits: BTreeMap::new(),
            bundle_idle: DEFAULT_BUNDLE_IDLE,
            buffers: true,
            ageing: AGEING,
            stations: None,
            snooping: None,
            tables: BTreeMap::new(),
            tls: [None, None, None],
        }
    }
}

/// Settings that `mswitch openflow set` changes; `None` leaves one as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenFlowChange {
    /// Controllers, in place of all others.
    pub controllers: Option<Vec<Target>>,
    /// Behaviour without a controller.
    pub fail_mode: Option<FailMode>,
    /// Versions, in place of all others.
    pub versions: Option<Vec<Version>>,
    /// The bridge's id.
    pub datapath_id: Option<DatapathId>,
    /// Files for controllers with TLS, in the order of [`TLS_KEYS`].
    pub tls: [Option<PathBuf>; 3],
}

impl OpenFlowChange {
    /// Applies the change.
    pub(crate) fn apply(self, config: &mut OpenFlowConfig) {
        let Self { controllers, fail_mode, versions, datapath_id, tls } = self;
        config.controllers = controllers.unwrap_or_else(|| std::mem::take(&mut config.controllers));
        config.fail_mode = fail_mode.unwrap_or(config.fail_mode);
        config.versions = versions.unwrap_or_else(|| std::mem::take(&mut config.versions));
        config.datapath_id = datapath_id.or(config.datapath_id);
        for (file, changed) in config.tls.iter_mut().zip(tls).filter(|(_, changed)| changed.is_some()) {
            *file = changed;
        }
    }
}

/// Time limit for reading the files for TLS.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// Seconds after which a silent station is forgotten (IEEE 802.1Q table 8-6).
const AGEING: u32 = 300;

const DEFAULT_PROBE: u32 = 5;
/// Seconds, as in Open vSwitch.
pub const DEFAULT_BUNDLE_IDLE: u32 = 10;
const DEFAULT_BACKOFF: u32 = 8;
/// The most controllers.
pub const MAX_CONTROLLERS: usize = 16;
/// The most flows, and the default.
pub const MAX_FLOWS: u32 = 2_000_000;
/// Most bytes of a flow table's name; messages have 32 with its terminator.
const MAX_TABLE_NAME: usize = 31;
/// Seconds of the longest probe interval and the longest delay.
const MAX_SECONDS: u32 = 3600;

/// Keys of the files for controllers with TLS.
pub const TLS_KEYS: [&str; 3] = ["private-key", "certificate", "ca-cert"];

impl OpenFlowConfig {
    /// Returns whether there is a controller to connect to, possible or not.
    pub fn has_active(&self) -> bool {
        self.has_unusable || self.controllers.iter().any(|target| !target.is_passive())
    }

    /// Returns the files for controllers with TLS; `None` if one of them is missing.
    pub fn tls_files(&self) -> Option<TlsFiles> {
        let [Some(private_key), Some(certificate), Some(ca_certificate)] = self.tls.clone() else {
            return None;
        };
        Some(TlsFiles { private_key, certificate, ca_certificate })
    }

    /// Checks that controllers with TLS have their files. `reads`: also that the files can be used.
    pub fn check_tls(&self, reads: bool) -> Result<(), SettingError> {
        let Some(target) = self.controllers.iter().find(|target| target.is_tls()) else { return Ok(()) };
        let files = self.tls_files().ok_or_else(|| SettingError::NoTlsFiles(target.to_string()))?;
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

/// The place of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketPlace {
    /// Beside the control socket, with the bridge's name.
    Beside,
    /// At a path.
    At(PathBuf),
    /// Nowhere.
    Off,
}

impl SocketPlace {
    /// Returns the path of the socket of `bridge` whose name ends in `ending`, beside the control socket `control`.
    pub fn path(&self, control: &Path, bridge: &str, ending: &str) -> Option<PathBuf> {
        match self {
            SocketPlace::Off => None,
            SocketPlace::At(path) => Some(path.clone()),
            SocketPlace::Beside => Some(control.with_file_name(format!("{bridge}.{ending}"))),
        }
    }
}

/// Identifies a bridge to controllers: 16 bits and a MAC address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatapathId(pub u64);

impl fmt::Display for DatapathId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

/// Reasons for refusing a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A controller's address cannot be parsed.
    #[error("{0}; write for example `tcp:192.0.2.1:6653`")]
    Target(#[from] TargetError),
    /// A relative path, whose meaning would depend on the daemon's directory.
    #[error("`{0}` is relative to the daemon's working directory; write an absolute path")]
    Relative(String),
    /// A controller with TLS lacks files.
    #[error("`{0}` needs files in PEM: set `private-key`, `certificate` and `ca-cert`")]
    NoTlsFiles(String),
    /// The files for TLS cannot be used.
    #[error("{0}; `ovs-pki` makes such files")]
    Tls(String),
    /// There are too many controllers.
    #[error("{0} controllers are too many; the most are {MAX_CONTROLLERS}")]
    TooMany(usize),
    /// An unknown fail mode.
    #[error("`{0}` is not a fail mode; expected `standalone` or `secure`")]
    FailMode(String),
    /// An unknown version.
    #[error("`{0}` is not a version of OpenFlow; expected `1.0` to `1.5`")]
    Version(String),
    /// No version.
    #[error("there is no version; name one at least, or remove the key for all")]
    NoVersion,
    /// An invalid datapath id.
    #[error(
        "`{0}` is not a datapath id; expected 16 hexadecimal digits, not all 0, such as `00000242ac110002`"
    )]
    DatapathId(String),
    /// A key of `tables` is not a table's number.
    #[error("`{0}` is not the number of a flow table; expected 0 to {last}", last = ofswitch::TABLES - 1)]
    TableNumber(String),
    /// An invalid name of a table.
    #[error(
        "`{0}` is not a name of a flow table; expected a letter, then up to 30 letters, digits, `.`, `_` or `-`"
    )]
    TableName(String),
    /// Two tables have the same name.
    #[error("tables {0} and {1} have the same name; choose another one")]
    SameTableName(u8, u8),
    /// A number out of range.
    #[error("{value} is out of range; expected {least} to {most}")]
    Range {
        /// The value.
        value: i64,
        /// The smallest one.
        least: u32,
        /// The largest one.
        most: u32,
    },
}

/// Parses controllers. A controller that is there twice counts once.
pub fn parse_controllers<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Vec<Target>, SettingError> {
    let mut controllers: Vec<Target> = Vec::new();
    for text in texts {
        let target: Target = text.parse()?;
        if let Target::Unix(path) | Target::Punix(path) = &target
            && !path.is_absolute()
        {
            return Err(SettingError::Relative(path.display().to_string()));
        }
        if !controllers.contains(&target) {
            controllers.push(target);
        }
    }
    match controllers.len() {
        0..=MAX_CONTROLLERS => Ok(controllers),
        many => Err(SettingError::TooMany(many)),
    }
}

/// Parses versions, such as `1.3`.
pub fn parse_versions<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Vec<Version>, SettingError> {
    let mut versions = Vec::new();
    for text in texts {
        let version = Version::ALL.into_iter().find(|version| version_name(*version) == text);
        versions.push(version.ok_or_else(|| SettingError::Version(text.into()))?);
    }
    versions.sort();
    versions.dedup();
    if versions.is_empty() { Err(SettingError::NoVersion) } else { Ok(versions) }
}

/// Returns the name of a version in the file.
pub fn version_name(version: Version) -> String {
    format!("1.{}", version.number() - 1)
}

/// Parses a fail mode.
pub fn parse_fail_mode(text: &str) -> Result<FailMode, SettingError> {
    match text {
        "secure" => Ok(FailMode::Secure),
        "standalone" => Ok(FailMode::Standalone),
        other => Err(SettingError::FailMode(other.into())),
    }
}

/// Returns the name of a fail mode.
pub fn fail_mode_name(mode: FailMode) -> &'static str {
    match mode {
        FailMode::Secure => "secure",
        FailMode::Standalone => "standalone",
    }
}

/// Parses a datapath id.
pub fn parse_datapath_id(text: &str) -> Result<DatapathId, SettingError> {
    let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u64::from_str_radix(text, 16).ok().filter(|id| is_hex && *id != 0);
    id.map(DatapathId).ok_or_else(|| SettingError::DatapathId(text.into()))
}

/// Parses the number of a flow table.
pub fn parse_table_number(text: &str) -> Result<u8, SettingError> {
    let number = text.parse().ok().filter(|number: &u8| *number < ofswitch::TABLES);
    // `07` and `+7` would be second keys of table 7.
    number.filter(|number| number.to_string() == text).ok_or_else(|| SettingError::TableNumber(text.into()))
}

/// Parses the name of a flow table: one that `ovs-ofctl` shows without quotes, and that fits messages.
pub fn parse_table_name(text: &str) -> Result<String, SettingError> {
    let is_name = openflow::text::is_table_name(text) && text.len() <= MAX_TABLE_NAME;
    is_name.then(|| text.to_owned()).ok_or_else(|| SettingError::TableName(text.into()))
}

/// Parses the path of a file.
pub fn parse_file(text: &str) -> Result<PathBuf, SettingError> {
    match Path::new(text) {
        path if path.is_absolute() => Ok(path.into()),
        _ => Err(SettingError::Relative(text.into())),
    }
}

/// Parses the place of a socket: a path, or `off`.
pub fn parse_socket(text: &str) -> Result<SocketPlace, SettingError> {
    match text {
        "off" => Ok(SocketPlace::Off),
        path if Path::new(path).is_absolute() => Ok(SocketPlace::At(path.into())),
        path => Err(SettingError::Relative(path.into())),
    }
}

/// Checks a probe interval; 0 means none.
pub fn check_probe(value: i64) -> Result<u32, SettingError> {
    in_range(value, 0, MAX_SECONDS)
}

/// Checks the longest delay before a controller is called again.
pub fn check_backoff(value: i64) -> Result<u32, SettingError> {
    in_range(value, 1, MAX_SECONDS)
}

/// Checks the largest number of flows.
pub fn check_flows(value: i64) -> Result<u32, SettingError> {
    in_range(value, 1, MAX_FLOWS)
}

fn in_range(value: i64, least: u32, most: u32) -> Result<u32, SettingError> {
    let fits = u32::try_from(value).ok().filter(|value| (least..=most).contains(value));
    fits.ok_or(SettingError::Range { value, least, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_parse() {
        let controllers = parse_controllers(["tcp:127.0.0.1", "ptcp:6634", "tcp:127.0.0.1:6653"]).unwrap();
        assert_eq!(
            controllers.iter().map(Target::to_string).collect::<Vec<_>>(),
            ["tcp:127.0.0.1:6653", "ptcp:6634"]
        );
        assert_eq!(parse_versions(["1.3", "1.0", "1.3"]).unwrap(), [Version::V1_0, Version::V1_3]);
        assert_eq!(parse_datapath_id("00000242AC110002").unwrap().to_string(), "00000242ac110002");
        assert_eq!(parse_socket("off"), Ok(SocketPlace::Off));
        for mode in [FailMode::Secure, FailMode::Standalone] {
            assert_eq!(parse_fail_mode(fail_mode_name(mode)), Ok(mode));
        }
    }

    #[test]
    fn tables_have_numbers_and_names() {
        assert_eq!((parse_table_number("0"), parse_table_number("253")), (Ok(0), Ok(253)));
        for text in ["254", "256", "07", "+7", "acl", ""] {
            let error = parse_table_number(text).unwrap_err().to_string();
            assert_eq!(error, format!("`{text}` is not the number of a flow table; expected 0 to 253"));
        }
        let long = "a".repeat(32);
        assert_eq!(parse_table_name(&long[1..]), Ok(long[1..].to_owned()));
        for text in [&long, "", "7", "a b", "a\"", "ä", "-"] {
            let error = parse_table_name(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is not a name of a flow table; ")), "{error}");
        }
    }

    #[test]
    fn errors_name_the_remedy() {
        let message = |error: SettingError| error.to_string();
        assert_eq!(
            message(parse_controllers(["localhost:6653"]).unwrap_err()).split_once(';').unwrap().1,
            " write for example `tcp:192.0.2.1:6653`"
        );
        assert!(message(parse_controllers(["unix:a.sock"]).unwrap_err()).contains("write an absolute path"));
        let mut config = OpenFlowConfig {
            controllers: parse_controllers(["ssl:10.0.0.1"]).unwrap(),
            ..Default::default()
        };
        let missing =
            "`ssl:10.0.0.1:6653` needs files in PEM: set `private-key`, `certificate` and `ca-cert`";
        assert_eq!(message(config.check_tls(false).unwrap_err()), missing);
        config.tls = ["/no/key", "/no/cert", "/no/ca"].map(|file| Some(file.into()));
        assert_eq!(config.check_tls(false), Ok(()));
        assert!(
            message(config.check_tls(true).unwrap_err())
                .starts_with("/no/key: cannot be read as a private key")
        );
        let many: Vec<_> = (1..=17).map(|port| format!("tcp:10.0.0.1:{port}")).collect();
        let many = parse_controllers(many.iter().map(String::as_str)).unwrap_err();
        assert_eq!(message(many), "17 controllers are too many; the most are 16");
        for (text, expected) in [("2.0", "expected `1.0` to `1.5`"), ("OpenFlow13", "expected `1.0`")] {
            assert!(message(parse_versions([text]).unwrap_err()).contains(expected));
        }
        assert!(message(parse_versions([]).unwrap_err()).contains("name one at least"));
        for text in ["1", "0000000000000000", "0x00000242ac1100", "+000000000000001"] {
            assert!(
                message(parse_datapath_id(text).unwrap_err()).contains("expected 16 hexadecimal digits"),
                "{text}"
            );
        }
        assert_eq!(message(check_backoff(0).unwrap_err()), "0 is out of range; expected 1 to 3600");
    }

    #[test]
    fn sockets_are_beside_the_control_socket() {
        let path = |place: SocketPlace| place.path(Path::new("/run/m/c.sock"), "br0", "mgmt");
        assert_eq!(path(SocketPlace::Beside), Some("/run/m/br0.mgmt".into()));
        assert_eq!(path(SocketPlace::At("/x".into())), Some("/x".into()));
        assert_eq!(path(SocketPlace::Off), None);
    }
}
