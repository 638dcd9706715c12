//! Errors of opening a socket.

use rustix::io::Errno;

/// A step that the kernel refused.
#[derive(Debug, thiserror::Error, Clone, Copy, PartialEq, Eq)]
#[error("{step}: {}", reason(*.errno))]
pub struct Error {
    /// The step, such as "binding the AF_XDP socket".
    pub step: &'static str,
    /// The kernel's answer.
    pub errno: Errno,
}

impl Error {
    /// Returns a function that adds the step to an error of the system.
    pub(crate) fn at<E: Into<Errno>>(step: &'static str) -> impl Fn(E) -> Error {
        move |errno| Error { step, errno: errno.into() }
    }
}

/// The reason with the remedy, where the cause is known.
fn reason(errno: Errno) -> String {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            format!("{errno}; CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF are needed")
        }
        Errno::NOBUFS | Errno::NOMEM => {
            format!(
                "{errno}; raise RLIMIT_MEMLOCK (`LimitMEMLOCK=` of a systemd unit), or grant CAP_IPC_LOCK"
            )
        }
        Errno::OPNOTSUPP | Errno::INVAL => format!("{errno}; the driver or the kernel does not support it"),
        other => other.to_string(),
    }
}
