//! Why a command did not do what it was told, as standard error shows it.

use std::fmt;

/// A message that says what happened and what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self(message.to_string())
    }
}

/// Every line says whose it is: there is one for each mistake in a file.
impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, line) in self.0.lines().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            write!(out, "{newline}mswitch: {line}")?;
        }
        Ok(())
    }
}

impl From<tonic::Status> for Failure {
    fn from(status: tonic::Status) -> Self {
        // What the daemon says has no source: that is the connection's.
        let broken = std::error::Error::source(&status).is_some();
        match status.code() {
            tonic::Code::Unavailable => gone(&status),
            _ if broken => gone(&status),
            tonic::Code::Unimplemented => {
                Self::new("the daemon is of another version and does not know this command; restart it")
            }
            _ => Self::new(status.message()),
        }
    }
}

fn gone(status: &tonic::Status) -> Failure {
    let why = status.message();
    Failure::new(format_args!(
        "the daemon went away ({why}); its log says why, `mswitch daemon` starts it again"
    ))
}

macro_rules! from_errors {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new(error)
            }
        })*
    };
}

from_errors!(
    control::client::ConnectError,
    control::cpulist::CpuListError,
    control::daemon::DaemonError,
    control::file::FileError,
    crate::commands::capture::FilterError,
    std::io::Error,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_signed() {
        assert_eq!(Failure::new("a:1:1: x\na:2:1: y").to_string(), "mswitch: a:1:1: x\nmswitch: a:2:1: y");
    }
}
