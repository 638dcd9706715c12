//! Checks of options against the machine: missing directories, paths used by other processes.
//!
//! Also finds resources that two ports cannot share. The configuration file and `port add` use the same checks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ports::Spec;
use ports::bounded::within;
use ports::memif::Role;
use ports::tap::Netns;

use crate::socket::{Occupant, occupant};

/// A mistake in a port's options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The option concerned, if it is a single one.
    pub key: Option<String>,
    /// The value found and the value expected.
    pub message: String,
}

/// Time limit for looking at a path.
const LIMIT: Duration = Duration::from_secs(5);

/// Runs the port type's own checks of its options, without opening anything. Checks of paths are limited to five
/// seconds.
pub fn options(spec: &Spec) -> Result<(), Fault> {
    let asked = spec.clone();
    let checked = within(LIMIT, "mswitch-check", move || match &asked {
        Spec::Memif(options) => options.check(),
        Spec::Tap(options) => options.check(),
        Spec::Pcap(options) => options.check(),
        Spec::VhostUser(options) => options.check(),
        Spec::Patch(options) => options.check(),
        Spec::Netdev(options) => options.check(),
        Spec::Dummy(options) => options.check(),
    });
    let message = match checked {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => error.0,
        Err(error) => format!("checking the options: {error}"),
    };
    Err(split(&message, spec))
}

/// Finds the option that a message concerns: messages of port types begin with its name.
fn split(message: &str, spec: &Spec) -> Fault {
    let known = crate::options::known(spec.type_name()).unwrap_or_default();
    let word = message.split([' ', ':']).next().unwrap_or_default();
    // A message about one of the `addresses` begins with `address`.
    let key = known.iter().find(|key| **key == word || key.strip_suffix("es") == Some(word));
    Fault { key: key.map(|key| (*key).to_owned()), message: message.into() }
}

/// Sockets of this switch, which do not count as in use.
#[derive(Debug, Clone, Default)]
pub struct Ours {
    /// Paths that ports of this switch listen on.
    pub sockets: BTreeSet<PathBuf>,
    /// The process of the daemon that the configuration is for, if it is running.
    pub process: Option<u32>,
}

impl Ours {
    /// The sockets of the daemon behind a control socket, if one is running there.
    pub fn of_daemon(control_socket: &Path) -> Self {
        let process = match occupant(control_socket) {
            Ok(Occupant::Process(holder)) => holder.pid,
            _ => None,
        };
        Self { sockets: BTreeSet::new(), process }
    }
}

/// Checks that no other process uses the socket that the port creates.
pub fn in_use(spec: &Spec, ours: &Ours) -> Result<(), Fault> {
    let Some(path) = listens_on(spec).filter(|path| !ours.sockets.contains(*path)) else { return Ok(()) };
    let path_of = path.display();
    let asked = path.to_owned();
    let found = match within(LIMIT, "mswitch-check", move || occupant(&asked)) {
        Ok(found) => found,
        Err(error) => Err(std::io::Error::other(error)),
    };
    let message = match found {
        Ok(Occupant::None | Occupant::Stale) => return Ok(()),
        Ok(Occupant::Process(holder)) if holder.pid.is_some() && holder.pid == ours.process => return Ok(()),
        Ok(Occupant::Process(holder)) => {
            format!("path: {path_of} is in use by {holder}; stop it, or choose another path")
        }
        Ok(Occupant::OtherFile) => {
            format!("path: {path_of} exists and is not a socket; remove it, or choose another path")
        }
        Err(error) => format!("path: {path_of} cannot be used: {error}"),
    };
    Err(Fault { key: Some("path".into()), message })
}

/// Returns the socket that the port creates, if any.
pub fn listens_on(spec: &Spec) -> Option<&Path> {
    match spec {
        Spec::Memif(options) => (options.role == Role::Server).then_some(options.socket.as_path()),
        Spec::Tap(_) | Spec::Netdev(_) | Spec::Pcap(_) | Spec::Patch(_) | Spec::Dummy(_) => None,
        Spec::VhostUser(options) => {
            (options.role == ports::vhost_user::Role::Server).then_some(options.socket.as_path())
        }
    }
}

/// Returns a resource that only one port of a switch can have, in words, and the option that names it.
pub fn exclusive(spec: &Spec, port: &str) -> Option<(String, &'static str)> {
    Some(match spec {
        Spec::Memif(options) => {
            let role = if options.role == Role::Server { "interface" } else { "the connection to interface" };
            (format!("{role} {} of memif socket {}", options.id, options.socket.display()), "path")
        }
        Spec::Tap(options) => {
            (interface(options.interface.as_deref(), options.netns.as_ref(), port), "interface")
        }
        Spec::Netdev(options) => {
            (interface(options.interface.as_deref(), options.netns.as_ref(), port), "interface")
        }
        Spec::Pcap(options) => (format!("the recording {}", options.write.as_ref()?.display()), "write"),
        Spec::VhostUser(options) => (format!("vhost-user socket {}", options.socket.display()), "path"),
        Spec::Patch(options) => (format!("the connection to {}", options.peer), "peer"),
        Spec::Dummy(_) => (format!("the name {port} of a dummy port"), "name"),
    })
}

/// Names an interface in its namespace.
fn interface(interface: Option<&str>, netns: Option<&Netns>, port: &str) -> String {
    let name = interface.unwrap_or(port);
    match netns {
        Some(netns) => format!("interface {name} in namespace {netns}"),
        None => format!("interface {name} in the switch's namespace"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memif(socket: &Path) -> Spec {
        let options = [("path".into(), socket.display().to_string())].into();
        crate::options::from_text("memif", &options).unwrap()
    }

    #[test]
    fn a_missing_directory_is_a_mistake_in_the_path() {
        let fault = options(&memif(Path::new("/no/such/a.sock"))).unwrap_err();
        assert_eq!(fault.key.as_deref(), Some("path"));
        assert!(fault.message.starts_with("path: /no/such is not a directory"), "{}", fault.message);
    }

    #[test]
    fn a_socket_in_use_is_refused_unless_it_is_ours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let spec = memif(&path);
        assert_eq!(in_use(&spec, &Ours::default()), Ok(()));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let fault = in_use(&spec, &Ours::default()).unwrap_err();
        assert!(fault.message.contains(&format!("in use by process {}", std::process::id())), "{fault:?}");
        assert_eq!(in_use(&spec, &Ours { process: Some(std::process::id()), ..Ours::default() }), Ok(()));
        assert_eq!(in_use(&spec, &Ours { sockets: [path.clone()].into(), process: None }), Ok(()));
        drop(listener);
        assert_eq!(in_use(&spec, &Ours::default()), Ok(()), "a stale file is free");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert!(in_use(&spec, &Ours::default()).unwrap_err().message.contains("is not a socket"));
    }
}
