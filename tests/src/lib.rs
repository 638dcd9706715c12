//! What the end-to-end tests stand on: a daemon, network namespaces, DPDK's testpmd, well-behaved and hostile clients.
//!
//! Everything that a test starts is a value whose drop removes it, so that a test that fails leaves nothing behind.
//! Names are unique to the process and the value, so that tests can run side by side; those that measure or load the
//! machine hold [`exclusive`].
//!
//! Tests need root. Binaries are found beside the test's own (`target/debug/mswitch`), or are named in `MSWITCH_BIN` and
//! `MEMIF_CHECK_BIN`. `MSWITCH_LONG=1` makes the runs as long as a release asks for.

mod cgroup;
mod command;
pub mod config;
mod daemon;
pub mod frames;
mod guest;
mod hostile;
mod hugepages;
pub mod judges;
pub mod modules;
mod netns;
mod ping;
mod qmp;
mod testpmd;
mod wait;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use cgroup::Cgroup;
pub use command::{Running, binary, output};
pub use daemon::{Daemon, PortView};
pub use guest::{Guest, GuestConfig, Migration, boot_files};
pub use hostile::{Hostile, HostileConfig, Peer, memfd, send_bytes};
pub use hugepages::HugePages;
pub use netns::Netns;
pub use ping::ping_all;
pub use qmp::Qmp;
pub use testpmd::{Memory, Testpmd};
pub use wait::{one_of, until};

/// Why a part of the harness gave up: a sentence for whoever reads the failed test.
#[derive(thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

impl std::fmt::Debug for Error {
    /// What a failed `unwrap` shows: the text as it is.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error {
    /// The error with this text.
    pub fn new(text: impl Into<String>) -> Error {
        Error(text.into())
    }

    /// Turns another error into one that says what was being done.
    pub fn while_doing<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> Error {
        move |error| Error(format!("{what}: {error}"))
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

/// What the harness returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Whether runs are to be as long as a release asks for.
pub fn long() -> bool {
    std::env::var_os("MSWITCH_LONG").is_some_and(|value| value != "0")
}

/// `short`, or `long` where [`long`] runs are wanted.
pub fn seconds(short: u64, long: u64) -> Duration {
    Duration::from_secs(if self::long() { long } else { short })
}

/// The machine for one test alone, as far as the tests of one program go; different programs run one after another.
pub fn exclusive() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    // A test that failed while it had the machine has given it back.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name that nothing else has, at most 15 bytes long: fit for interfaces and namespaces.
pub fn unique(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}{:x}-{number:x}", std::process::id())
}
