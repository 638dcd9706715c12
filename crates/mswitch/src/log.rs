//! The daemon's log on standard error: with time and colours for people, with neither for the journal.
//!
//! The journal adds the time itself, and reads the priority from a number at the start of a line (sd-daemon(3)).
//! `RUST_LOG` sets the log level; the default is `info`. Levels above `info` apply to mswitch only, not to its
//! libraries, unless `RUST_LOG` names them.

use std::fmt;
use std::io::IsTerminal;

use control::logging;
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
    logging::log_panics();
}

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
    let quiet = logging::LIBRARIES.iter().filter(|name| !targets(name)).map(|name| format!("{name}=info"));
    let all: Vec<_> = quiet.chain([text.to_owned()]).collect();
    EnvFilter::try_new(all.join(",")).unwrap_or(filter)
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
