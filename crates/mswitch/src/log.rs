//! The daemon's log on standard error: with time and colours for people, with neither for the journal.
//!
//! The journal adds the time itself, and reads the priority from a number at the start of a line (sd-daemon(3)).
//! `RUST_LOG` sets the log level; the default is `info`. Levels above `info` apply to mswitch only, not to its
//! libraries, unless `RUST_LOG` names them.

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
    let filter = filter(std::env::var(EnvFilter::DEFAULT_ENV).ok().as_deref());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if is_journal() {
        log.with_ansi(false).event_format(Journal).init();
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init();
    }
    log_panics();
}

/// Libraries with verbose logs, such as a line per HTTP/2 frame or compiled function. A name is a prefix: `hyper`
/// includes `hyper_util`.
const LIBRARIES: &[&str] =
    &["h2", "hyper", "tonic", "tower", "cranelift", "wasmtime", "regalloc2", "netlink"];

/// Returns the filter for a value of `RUST_LOG`; `info` if it is missing or invalid.
fn filter(asked: Option<&str>) -> EnvFilter {
    let Some(asked) = asked.and_then(|asked| EnvFilter::try_new(asked).ok().map(|filter| (asked, filter)))
    else {
        return EnvFilter::new("info");
    };
    let (text, filter) = asked;
    if filter.max_level_hint().is_some_and(|most| most <= Level::INFO) {
        return filter;
    }
    let targets = |name: &str| text.split(',').any(|directive| directive.trim().starts_with(name));
    let quiet = LIBRARIES.iter().filter(|name| !targets(name)).map(|name| format!("{name}=info"));
    let all: Vec<_> = quiet.chain([text.to_owned()]).collect();
    EnvFilter::try_new(all.join(",")).unwrap_or(filter)
}

/// Logs panics as errors, on one line with their thread: a panic of a worker ends the daemon (`fabric::vital`), and
/// this line names the reason. If errors are not logged, the default hook reports panics.
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

/// Returns whether standard error is the journal. The service manager names the journal's file (systemd.exec(5)), since
/// standard error may have been redirected.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(std::io::stderr()).is_ok_and(|file| stream == format!("{}:{}", file.st_dev, file.st_ino))
}

/// Format of journal lines, such as `<6>memif connected bridge="br0" port="vm1"`.
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

/// Returns the priority of a level (syslog(3)).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the filter's directives.
    fn directives(asked: Option<&str>) -> Vec<String> {
        let text = filter(asked).to_string();
        let mut directives: Vec<_> = text.split(',').map(str::to_owned).collect();
        directives.sort();
        directives
    }

    #[test]
    fn libraries_log_below_info_only_if_named() {
        assert_eq!(directives(None), ["info"]);
        assert_eq!(directives(Some("no such=level")), ["info"]);
        assert_eq!(directives(Some("warn")), ["warn"]);
        let quiet = ["cranelift=info", "debug", "h2=info", "hyper=info", "netlink=info", "regalloc2=info"];
        assert_eq!(directives(Some("debug"))[..6], quiet);
        let named = directives(Some("debug,h2=trace,hyper_util=debug"));
        assert!(
            named.contains(&"h2=trace".to_owned()) && named.contains(&"tonic=info".to_owned()),
            "{named:?}"
        );
        assert!(!named.iter().any(|directive| directive.starts_with("hyper=")), "{named:?}");
        assert!(directives(Some("control=debug")).contains(&"h2=info".to_owned()));
    }
}
