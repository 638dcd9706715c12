//! Harness of the end-to-end tests: a daemon, network namespaces, DPDK's testpmd, well-behaved and hostile clients.
//!
//! Each resource that a test starts is a value that removes it on drop, so a failed test leaves nothing behind. Names
//! are unique to the process and the value, so tests can run side by side; tests that measure or load the machine hold
//! [`exclusive`].
//!
//! Tests need root. Programs are found beside the test's own (`target/debug/mswitch`) or through `MSWITCH_BIN` and
//! `MEMIF_CHECK_BIN`; the generator is found where `make generator` puts it, or through `MSWITCH_GENERATOR`. `MSWITCH_LONG=1` makes the runs as long as a release requires.

pub mod cards;
mod cgroup;
mod command;
pub mod config;
mod daemon;
pub mod frames;
mod generator;
mod guest;
mod hostile;
mod hugepages;
pub mod impact;
pub mod iperf;
pub mod modules;
mod netns;
pub mod open_vswitch;
mod ping;
mod qmp;
mod service;
mod testpmd;
mod wait;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use cgroup::Cgroup;
pub use command::{Running, binary, output};
pub use daemon::{Daemon, PortView};
pub use generator::Generator;
pub use guest::{Guest, GuestConfig, Migration, boot_files};
pub use hostile::{Hostile, HostileConfig, Peer, memfd, send_bytes};
pub use hugepages::HugePages;
pub use netns::Netns;
pub use ping::ping_all;
pub use qmp::Qmp;
pub use service::Service;
pub use testpmd::{Memory, Testpmd};
pub use wait::{one_of, until};

/// Reason that the harness gave up, worded for the reader of the failed test.
#[derive(thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

impl std::fmt::Debug for Error {
    /// Shows the plain text when an `unwrap` fails.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error {
    /// Creates an error with this text.
    pub fn new(text: impl Into<String>) -> Error {
        Error(text.into())
    }

    /// Returns a function that puts the failed operation in front of an error.
    pub fn while_doing<E: std::fmt::Display>(operation: &str) -> impl Fn(E) -> Error {
        move |error| Error(format!("{operation}: {error}"))
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error(error.to_string())
    }
}

impl From<bench::port::Error> for Error {
    fn from(error: bench::port::Error) -> Error {
        Error(error.to_string())
    }
}

/// Result of a harness function.
pub type Result<T> = std::result::Result<T, Error>;

/// Whether tests run as long as a release requires.
pub fn long() -> bool {
    std::env::var_os("MSWITCH_LONG").is_some_and(|value| value != "0")
}

/// Returns `short`, or `long` for [`long`] runs.
pub fn seconds(short: u64, long: u64) -> Duration {
    Duration::from_secs(if self::long() { long } else { short })
}

/// Reserves the machine for one test within this test program; `cargo test` runs programs one after another.
pub fn exclusive() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    // A failed test has released the machine.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a name unique on this machine, at most 15 bytes long: fit for interfaces and namespaces.
pub fn unique(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}{:x}-{number:x}", std::process::id())
}
