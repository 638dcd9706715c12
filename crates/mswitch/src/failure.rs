//! Failures of a command: the message on standard error, and the exit code.

use std::fmt;

/// Exit code of a command that is refused or fails.
const FAILED: u8 = 1;

/// Exit code of wrong usage, and of a failed comparison as in diff(1).
const USAGE: u8 = 2;

/// A message with the reason and the remedy, and an exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), code: FAILED }
    }

    /// Wrong usage.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), code: USAGE }
    }

    /// Puts the thing concerned in front of the message.
    pub(crate) fn about(self, what: impl fmt::Display) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// The result of a comparison that found differences, without a message.
    pub(crate) fn differs() -> Self {
        Self { message: String::new(), code: FAILED }
    }

    /// Turns a failure into that of a comparison, whose exit code 1 means differences.
    pub(crate) fn of_comparison(self) -> Self {
        if self.is_silent() { self } else { Self { code: USAGE, ..self } }
    }

    /// Returns whether the failure has no message.
    pub(crate) fn is_silent(&self) -> bool {
        self.message.is_empty()
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

/// Each line begins with the program's name, as every mistake in a file has a line.
impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, line) in self.message.lines().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            write!(out, "{newline}mswitch: {line}")?;
        }
        Ok(())
    }
}

impl From<tonic::Status> for Failure {
    fn from(status: tonic::Status) -> Self {
        // Only connection errors have a source.
        let broken = std::error::Error::source(&status).is_some();
        match status.code() {
            tonic::Code::Unavailable => gone(),
            _ if broken => gone(),
            tonic::Code::Unimplemented => Self::new(
                "the daemon has another version, which does not support this command; restart the daemon",
            ),
            _ => Self::new(status.message()),
        }
    }
}

/// The connection broke. Its reason is in the terms of HTTP/2, which say nothing about the daemon.
fn gone() -> Failure {
    Failure::new(
        "the daemon has ended, or closed the connection; see its log; `mswitch daemon` starts it again",
    )
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
    bench_run::Error,
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
    fn every_line_begins_with_the_program() {
        assert_eq!(Failure::new("a:1:1: x\na:2:1: y").to_string(), "mswitch: a:1:1: x\nmswitch: a:2:1: y");
    }

    #[test]
    fn a_broken_connection_has_no_terms_of_http() {
        let status = tonic::Status::unavailable("h2 protocol error: error reading a body from connection");
        assert_eq!(
            Failure::from(status).to_string(),
            "mswitch: the daemon has ended, or closed the connection; see its log; `mswitch daemon` starts it again"
        );
    }

    #[test]
    fn a_comparison_that_fails_is_trouble() {
        assert_eq!(
            (Failure::differs().of_comparison().code(), Failure::new("x").of_comparison().code()),
            (1, 2)
        );
    }
}
