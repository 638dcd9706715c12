//! The command line of Open vSwitch's daemons (ovs-vswitchd(8)).
//!
//! Paths that are not absolute are in the run directory or the log directory, as Open vSwitch has it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command};
use ovsdb::Remote;
use tracing::level_filters::LevelFilter;

use crate::dummy::{Level, Types};
use crate::log::Patterns;

const PROGRAM: &str = "ovs-vswitchd";

/// The command line, with defaults from the environment.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) database: Remote,
    pub(crate) rundir: PathBuf,
    pub(crate) pidfile: Option<PathBuf>,
    pub(crate) overwrite_pidfile: bool,
    pub(crate) detach: bool,
    pub(crate) monitor: bool,
    pub(crate) no_chdir: bool,
    pub(crate) unixctl: Option<PathBuf>,
    pub(crate) log_file: Option<PathBuf>,
    pub(crate) levels: Levels,
    /// Formats of the log's lines.
    pub(crate) patterns: Patterns,
    /// Types of datapaths and interfaces.
    pub(crate) types: Types,
    /// Options that have no effect here.
    pub(crate) ignored: Vec<String>,
}

/// Modules of Open vSwitch that this daemon's log has, too; each can have a level of its own.
pub(crate) const MODULES: [&str; 4] =
    [crate::seen::DPIF, crate::seen::DPIF_NETDEV, "ofproto_dpif", ofagent::LOG_OF_MESSAGES];

/// Log levels of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verbosity {
    /// That of modules without one of their own.
    pub(crate) all: LevelFilter,
    /// Those of [`MODULES`].
    pub(crate) own: [Option<LevelFilter>; MODULES.len()],
}

impl Verbosity {
    const fn of(all: LevelFilter) -> Self {
        Self { all, own: [None; MODULES.len()] }
    }

    /// Sets the level of modules by their places, or of all.
    fn set(&mut self, modules: &[usize], level: LevelFilter) {
        match modules {
            [] => *self = Self::of(level),
            modules => {
                let own = self.own.iter_mut().enumerate().filter(|(at, _)| modules.contains(at));
                own.for_each(|(_, own)| *own = Some(level));
            }
        }
    }
}

/// Log levels of the destinations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Levels {
    pub(crate) console: Verbosity,
    pub(crate) file: Verbosity,
}

impl Default for Levels {
    fn default() -> Self {
        Self { console: Verbosity::of(LevelFilter::INFO), file: Verbosity::of(LevelFilter::INFO) }
    }
}

impl Levels {
    /// Applies a specification such as `console:emer`, `dbg` or `dpif:file:warn`. Levels of modules other than
    /// [`MODULES`] are ignored: modules have other names here.
    pub(crate) fn apply(&mut self, spec: &str) -> Result<(), String> {
        let (mut level, mut console, mut file, mut other) = (None, false, false, false);
        let mut modules = Vec::new();
        for word in spec.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
            let word = word.to_ascii_lowercase();
            match word.as_str() {
                "off" | "emer" => level = Some(LevelFilter::OFF),
                "err" => level = Some(LevelFilter::ERROR),
                "warn" => level = Some(LevelFilter::WARN),
                "info" => level = Some(LevelFilter::INFO),
                "dbg" => level = Some(LevelFilter::DEBUG),
                "console" => console = true,
                "file" => file = true,
                "any" => {}
                name if MODULES.contains(&name) => modules.extend(MODULES.iter().position(|it| *it == name)),
                name if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => other = true,
                name => return Err(format!("`{name}` is not a module, a destination or a level")),
            }
        }
        if other {
            return Ok(());
        }
        let level = level.unwrap_or(LevelFilter::DEBUG);
        let both = !console && !file;
        if console || both {
            self.console.set(&modules, level);
        }
        if file || both {
            self.file.set(&modules, level);
        }
        Ok(())
    }
}

/// Options that are accepted for the sake of those who pass them, and have no effect yet.
const IGNORED: [&str; 8] = [
    "mlockall",
    "no-self-confinement",
    "private-key",
    "certificate",
    "ca-cert",
    "peer-ca-cert",
    "bootstrap-ca-cert",
    "syslog-target",
];

impl Args {
    /// Parses the command line of the process; ends the process for `--help`, `--version` and mistakes.
    pub(crate) fn parse() -> Self {
        let found = command().get_matches_from(prepared(std::env::args_os()));
        Self::read(&found, |variable| std::env::var_os(variable).map(Into::into)).unwrap_or_else(|message| {
            command().error(clap::error::ErrorKind::ValueValidation, message).exit()
        })
    }

    fn read(found: &clap::ArgMatches, environment: impl Fn(&str) -> Option<PathBuf>) -> Result<Self, String> {
        let rundir = environment("OVS_RUNDIR").unwrap_or_else(|| "/var/run/openvswitch".into());
        let logdir = environment("OVS_LOGDIR").unwrap_or_else(|| "/var/log/openvswitch".into());
        // An option without a value stands for its default.
        let path = |option: &str, folder: &Path, default: &str| {
            let mut given = found.try_get_many::<PathBuf>(option).ok().flatten()?;
            Some(folder.join(given.next().cloned().unwrap_or_else(|| default.into())))
        };
        let present =
            |option: &str| found.value_source(option) == Some(clap::parser::ValueSource::CommandLine);
        let optional = |option: &str, folder: &Path, default: &str| {
            path(option, folder, default).or_else(|| present(option).then(|| folder.join(default)))
        };
        if let Some(user) = found.get_one::<String>("user") {
            return Err(format!("--user={user}: the daemon does not change its user; start it as that user"));
        }
        let database = match found.get_one::<String>("database") {
            Some(text) => text.parse().map_err(|error: ovsdb::RemoteError| error.to_string())?,
            None => Remote::Unix(rundir.join("db.sock")),
        };
        let (mut levels, patterns) = (Levels::default(), Patterns::default());
        if found.get_flag("detach") {
            // Whoever starts a daemon reads its errors; the rest is in the file.
            levels.console = Verbosity::of(LevelFilter::WARN);
        }
        let level = match present("enable-dummy") {
            true => Level::of(found.get_one::<String>("enable-dummy").map(String::as_str))?,
            false => Level::Off,
        };
        let types = Types { level, no_system: found.get_flag("disable-system") };
        for spec in found.get_many::<String>("verbose").into_iter().flatten() {
            let done = patterns.apply(spec).unwrap_or_else(|| levels.apply(spec));
            done.map_err(|error| format!("--verbose={spec}: {error}"))?;
        }
        let unixctl = match found.get_one::<PathBuf>("unixctl") {
            Some(path) if path.as_os_str() == "none" => None,
            Some(path) => Some(rundir.join(path)),
            None => Some(rundir.join(format!("{PROGRAM}.{}.ctl", std::process::id()))),
        };
        Ok(Args {
            pidfile: optional("pidfile", &rundir, "ovs-vswitchd.pid"),
            log_file: optional("log-file", &logdir, "ovs-vswitchd.log"),
            overwrite_pidfile: found.get_flag("overwrite-pidfile"),
            detach: found.get_flag("detach"),
            monitor: found.get_flag("monitor"),
            no_chdir: found.get_flag("no-chdir"),
            ignored: IGNORED
                .iter()
                .filter(|option| present(option))
                .map(|option| format!("--{option}"))
                .collect(),
            database,
            rundir,
            unixctl,
            levels,
            patterns,
            types,
        })
    }
}

/// Separates `-vSPEC`, and gives a lone `-v` its meaning.
fn prepared(words: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    words.map(|word| match word.to_str() {
        Some("-v" | "--verbose") => "--verbose=any:any:dbg".into(),
        Some(text) if text.starts_with("-v") => {
            format!("--verbose={}", text.get(2..).unwrap_or_default()).into()
        }
        _ => word,
    })
}

fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
    };
    let value = |name: &'static str| Arg::new(name).long(name).require_equals(true);
    let file = |name: &'static str, help: &'static str| {
        value(name).num_args(0..=1).help(help).value_name("FILE").value_parser(clap::value_parser!(PathBuf))
    };
    let ignored = IGNORED
        .iter()
        .map(|name| Arg::new(*name).long(*name).num_args(0..=1).require_equals(true).hide(true));
    Command::new(PROGRAM)
        .version(VERSION_LINE)
        .about("mswitch in the place of Open vSwitch's daemon, configured by its database")
        .disable_version_flag(true)
        .arg(
            Arg::new("version")
                .long("version")
                .short('V')
                .help("Print the version")
                .action(ArgAction::Version),
        )
        .arg(Arg::new("database").help("The database server: unix:PATH or tcp:HOST:PORT"))
        .arg(flag("detach", "Run in the background; return once the first configuration is applied"))
        .arg(flag("monitor", "Start the daemon again if it crashes"))
        .arg(flag("no-chdir", "Stay in the current folder"))
        .arg(flag("overwrite-pidfile", "Replace the pidfile of a running process"))
        .arg(file("pidfile", "Write the process id to FILE, and lock it"))
        .arg(file("log-file", "Write the log to FILE"))
        .arg(
            value("unixctl")
                .help("The control socket, or `none`")
                .value_name("SOCKET")
                .value_parser(clap::value_parser!(PathBuf)),
        )
        .arg(
            value("verbose")
                .help("Log levels: [console|file:]off|emer|err|warn|info|dbg")
                .value_name("SPEC")
                .action(ArgAction::Append),
        )
        .arg(
            value("enable-dummy")
                .num_args(0..=1)
                .help("Have datapaths and interfaces within the process, for tests; `system`, `override`: only those")
                .value_name("LEVEL"),
        )
        .arg(flag("disable-system", "Refuse datapaths of the type `system`"))
        // Routes of the host are not looked at.
        .arg(flag("disable-system-route", "Ignored").hide(true))
        // Threads are not placed for dummies.
        .arg(value("dummy-numa").hide(true))
        .arg(value("user").hide(true))
        .args(ignored)
}

/// `--version` prints the program's name in front of it.
const VERSION_LINE: &str = {
    let (_, rest) = crate::VERSION.split_at(PROGRAM.len() + 1);
    rest
};

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Args, String> {
        let words = std::iter::once("ovs-vswitchd").chain(words.iter().copied()).map(OsString::from);
        let found = command().try_get_matches_from(prepared(words)).map_err(|error| error.to_string())?;
        Args::read(&found, |variable| (variable == "OVS_RUNDIR").then(|| "/r".into()))
    }

    #[test]
    fn the_command_line_of_ovs_ctl_is_understood() {
        let args = read(&[
            "unix:/r/db.sock",
            "-vconsole:emer",
            "-vsyslog:err",
            "-vfile:info",
            "--mlockall",
            "--no-chdir",
            "--log-file=/l/ovs-vswitchd.log",
            "--pidfile=/r/ovs-vswitchd.pid",
            "--detach",
            "--monitor",
        ])
        .unwrap();
        assert_eq!(args.database, Remote::Unix("/r/db.sock".into()));
        assert!(args.detach && args.monitor && args.no_chdir && !args.overwrite_pidfile);
        assert_eq!(args.pidfile.unwrap(), Path::new("/r/ovs-vswitchd.pid"));
        assert_eq!(args.log_file.unwrap(), Path::new("/l/ovs-vswitchd.log"));
        assert_eq!(args.levels.console, Verbosity::of(LevelFilter::OFF));
        assert_eq!(args.levels.file, Verbosity::of(LevelFilter::INFO));
        assert_eq!(args.ignored, ["--mlockall"]);
    }

    #[test]
    fn defaults_are_in_the_directories() {
        let args = read(&["--pidfile", "--log-file", "--enable-dummy=override"]).unwrap();
        assert_eq!(args.database, Remote::Unix("/r/db.sock".into()));
        assert_eq!(args.pidfile.unwrap(), Path::new("/r/ovs-vswitchd.pid"));
        assert_eq!(args.log_file.unwrap(), Path::new("/var/log/openvswitch/ovs-vswitchd.log"));
        let pid = std::process::id();
        assert_eq!(args.unixctl.unwrap(), Path::new("/r").join(format!("ovs-vswitchd.{pid}.ctl")));
        assert_eq!(args.ignored, [""; 0]);
        assert_eq!(args.types, Types { level: Level::Override, no_system: false });
        let system = read(&["--enable-dummy", "--disable-system", "--disable-system-route"]).unwrap().types;
        assert_eq!(system, Types { level: Level::Types, no_system: true });
        assert_eq!(read(&[]).unwrap().pidfile, None);
        assert_eq!(read(&["--unixctl=none"]).unwrap().unixctl, None);
        assert_eq!(read(&["--pidfile=x.pid"]).unwrap().pidfile.unwrap(), Path::new("/r/x.pid"));
    }

    #[test]
    fn mistakes_are_refused() {
        assert!(read(&["/r/db.sock"]).unwrap_err().contains("expected unix:PATH or tcp:HOST[:PORT]"));
        assert!(read(&["--enable-dummy=x"]).unwrap_err().contains("expected `system` or `override`"));
        assert!(read(&["--user=ovs"]).unwrap_err().contains("does not change its user"));
        assert!(read(&["--frobnicate"]).unwrap_err().contains("--frobnicate"));
        assert!(read(&["-vco/nsole"]).unwrap_err().contains("`co/nsole`"));
    }

    #[test]
    fn levels_follow_their_specifications() {
        let mut levels = Levels::default();
        for (spec, console, file) in [
            ("dbg", LevelFilter::DEBUG, LevelFilter::DEBUG),
            ("file:warn", LevelFilter::DEBUG, LevelFilter::WARN),
            ("bridge:file:dbg", LevelFilter::DEBUG, LevelFilter::WARN),
            ("ANY:any:off", LevelFilter::OFF, LevelFilter::OFF),
        ] {
            levels.apply(spec).unwrap();
            assert_eq!(
                (levels.console, levels.file),
                (Verbosity::of(console), Verbosity::of(file)),
                "{spec}"
            );
        }
        levels.apply("dpif:file:dbg").unwrap();
        assert_eq!(levels.console, Verbosity::of(LevelFilter::OFF));
        assert_eq!(levels.file.own, [Some(LevelFilter::DEBUG), None, None, None]);
        levels.apply("vconn").unwrap();
        assert_eq!(levels.console.own[3], Some(LevelFilter::DEBUG));
        levels.apply("file:info").unwrap();
        assert_eq!(levels.file, Verbosity::of(LevelFilter::INFO), "a level of all modules is one of each");
    }

    #[test]
    fn the_version_is_that_of_an_open_vswitch() {
        assert!(crate::VERSION.contains("Open vSwitch"), "ovs-ctl looks for these words");
        assert_eq!(crate::VERSION.split(' ').next_back(), Some("3.1.0"));
        let shown = command().try_get_matches_from(["ovs-vswitchd", "--version"]).unwrap_err().to_string();
        assert_eq!(shown.trim_end(), crate::VERSION);
    }
}
