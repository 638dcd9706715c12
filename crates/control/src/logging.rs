//! What the logs of all daemons have in common, whatever their format.

use std::backtrace::{Backtrace, BacktraceStatus};

use tracing::Level;

/// Libraries with verbose logs, such as a line per HTTP/2 frame or compiled function. A name is a prefix: `hyper`
/// includes `hyper_util`.
pub const LIBRARIES: &[&str] =
    &["h2", "hyper", "tonic", "tower", "cranelift", "wasmtime", "regalloc2", "netlink"];

/// Logs panics as errors, on one line with their thread: a panic of a worker ends the daemon (`fabric::vital`), and
/// this line names the reason. If errors are not logged, the default hook reports panics.
pub fn log_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !tracing::enabled!(Level::ERROR) {
            return report(panic);
        }
        let thread = std::thread::current();
        let message = panic.payload_as_str().unwrap_or("of an unknown kind").replace('\n', " ");
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(
            thread = thread.name().unwrap_or("unnamed"),
            at,
            "panic: {message}; this is a bug in mswitch"
        );
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            tracing::error!("backtrace of the panic:\n{backtrace}");
        }
    }));
}
