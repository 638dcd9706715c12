//! The daemon's log on standard error: for people with time and colours, for the journal with neither.
//!
//! The journal has the time already, and takes a line's importance from a number in front of it (sd-daemon(3)).
//! `RUST_LOG` chooses what is logged; without it everything from `info` on.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::io::IsTerminal;

use rustix::fs::fstat;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Starts logging.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if is_journal() {
        log.with_ansi(false).event_format(Journal).init();
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init();
    }
    log_panics();
}

/// Has panics logged as errors, on one line with their thread: a panic of a worker ends the daemon (`fabric::vital`), and
/// this line is what remains of the reason. Where errors are not logged, panics are reported as without this.
fn log_panics() {
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

/// Whether standard error is the journal: the service manager says which file that would be (systemd.exec(5)), since
/// somebody may have sent it elsewhere meanwhile.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(std::io::stderr()).is_ok_and(|file| stream == format!("{}:{}", file.st_dev, file.st_ino))
}

/// `<6>memif connected port="vm1"`
struct Journal;

impl<S, N> FormatEvent<S, N> for Journal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// Priorities of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}
