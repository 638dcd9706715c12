//! The log in Open vSwitch's format: time, number, module, level and message, separated by `|` (ovs-vswitchd(8)).

mod pattern;

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use control::logging;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, filter, reload};

use crate::args::{Args, Levels, MODULES, Verbosity};
pub(crate) use pattern::Patterns;
use pattern::{Line, Shared};

/// A log file that can be opened again, after it has been moved away.
#[derive(Debug, Clone)]
pub(crate) struct LogFile(Arc<(PathBuf, Mutex<File>)>);

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new((path.into(), Mutex::new(Self::append(path)?)))))
    }

    fn append(path: &Path) -> io::Result<File> {
        File::options().create(true).append(true).open(path)
    }

    /// Writes nothing more until the file is opened again.
    pub(crate) fn close(&self) -> io::Result<()> {
        let (_, file) = &*self.0;
        *file.lock().unwrap_or_else(PoisonError::into_inner) =
            File::options().write(true).open("/dev/null")?;
        Ok(())
    }

    /// Opens the file of that name again.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        let (path, file) = &*self.0;
        *file.lock().unwrap_or_else(PoisonError::into_inner) = Self::append(path)?;
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.1.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log, for commands.
#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) file: Option<LogFile>,
    levels: Arc<Mutex<Levels>>,
    patterns: Patterns,
    /// Applies levels.
    apply: Arc<dyn Fn(Levels) + Send + Sync>,
}

impl Log {
    /// Changes levels or patterns; see [`Levels::apply`] and [`Patterns::apply`].
    pub(crate) fn set(&self, spec: &str) -> Result<(), String> {
        if let Some(done) = self.patterns.apply(spec) {
            return done;
        }
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        levels.apply(spec)?;
        (self.apply)(*levels);
        Ok(())
    }

    /// Describes the levels of the destinations.
    pub(crate) fn list(&self) -> String {
        let levels = *self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let file = if self.file.is_some() { name(levels.file.all) } else { "OFF" };
        let rule = "-------";
        format!(
            "{:<17}console    syslog    file\n{:<17}{rule}    ------    ------\n{:<17}{:<11}OFF       {file}\n",
            "",
            "",
            "all",
            name(levels.console.all)
        )
    }
}

/// Name of the least important level that is written.
fn name(level: LevelFilter) -> &'static str {
    level.into_level().map_or("OFF", self::level)
}

/// Starts logging.
pub(crate) fn start(args: &Args) -> Result<Log, String> {
    let open = |path: &PathBuf| LogFile::open(path).map_err(|error| format!("{}: {error}", path.display()));
    let file = args.log_file.as_ref().map(open).transpose()?;
    let (writer, patterns) = (file.clone(), args.patterns.clone());
    let (file_levels, set_file) = reload::Layer::new(targets(args.levels.file));
    let (console_levels, set_console) = reload::Layer::new(targets(args.levels.console));
    let to_file = writer.map(|file| {
        tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .event_format(Vlog::new(&patterns.file))
            .with_writer(move || file.clone())
            .with_filter(file_levels)
    });
    let console = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .event_format(Vlog::new(&patterns.console))
        .with_writer(io::stderr)
        .with_filter(console_levels);
    tracing_subscriber::registry().with(to_file).with(console).init();
    logging::log_panics();
    let apply = move |wanted: Levels| {
        // The layers live as long as the process.
        let _ = set_file.reload(targets(wanted.file));
        let _ = set_console.reload(targets(wanted.console));
    };
    Ok(Log { file, patterns, levels: Arc::new(Mutex::new(args.levels)), apply: Arc::new(apply) })
}

fn targets(levels: Verbosity) -> filter::Targets {
    let level = levels.all;
    // Libraries are verbose below warnings.
    let libraries = logging::LIBRARIES.iter().map(|name| (*name, level.min(LevelFilter::WARN)));
    // All are named: one's name may start with another's.
    let own = MODULES.into_iter().zip(levels.own).map(|(name, own)| (name, own.unwrap_or(level)));
    filter::Targets::new().with_default(level).with_targets(libraries).with_targets(own)
}

/// Writes lines such as `2026-01-01T00:00:00.000Z|00001|plan|INFO|bridge "br0" added`.
struct Vlog {
    written: AtomicU64,
    pattern: Shared,
    start: Instant,
}

impl Vlog {
    fn new(pattern: &Shared) -> Self {
        Self { written: AtomicU64::new(0), pattern: pattern.clone(), start: Instant::now() }
    }
}

impl<S, N> FormatEvent<S, N> for Vlog
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
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let number = self.written.fetch_add(1, Relaxed) + 1;
        let target = event.metadata().target();
        let module = target.rsplit("::").next().unwrap_or(target);
        let mut message = String::new();
        context.format_fields(Writer::new(&mut message), event)?;
        let line = Line {
            time: &format!("{}Z", milliseconds(&time)),
            number,
            module,
            level: level(*event.metadata().level()),
            message: &message,
            running: self.start.elapsed().as_millis(),
        };
        writeln!(writer, "{}", self.pattern.get().line(&line))
    }
}

/// Cuts a time after its milliseconds.
fn milliseconds(time: &str) -> &str {
    let end = time.find('.').map_or(time.len(), |point| point + 4);
    time.get(..end).unwrap_or(time)
}

fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERR",
        Level::WARN => "WARN",
        Level::INFO => "INFO",
        Level::DEBUG | Level::TRACE => "DBG",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds() {
        assert_eq!(milliseconds("2026-01-01T00:00:00.123456Z"), "2026-01-01T00:00:00.123");
        assert_eq!(milliseconds("unknown"), "unknown");
    }

    #[test]
    fn a_log_file_that_was_moved_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
        let mut log = LogFile::open(&path).unwrap();
        log.write_all(b"a").unwrap();
        std::fs::rename(&path, &old).unwrap();
        log.reopen().unwrap();
        log.write_all(b"b").unwrap();
        assert_eq!(
            (std::fs::read(path).unwrap(), std::fs::read(old).unwrap()),
            (b"b".to_vec(), b"a".to_vec())
        );
    }
}
