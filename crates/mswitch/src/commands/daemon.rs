//! `mswitch daemon`.

use std::io::IsTerminal;
use std::path::PathBuf;

use control::model::Config;
use tracing_subscriber::EnvFilter;

use crate::cli::DaemonArgs;
use crate::failure::Failure;

/// Reads the configuration, lets the command line override it, and runs.
pub(super) fn run(args: &DaemonArgs, socket: Option<PathBuf>) -> Result<(), Failure> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    let config = match &args.config {
        Some(file) => control::file::read_for(file, socket.as_deref())?,
        None => Config::default(),
    };
    let mut settings = config.daemon.clone();
    if let Some(list) = &args.workers {
        settings.workers = control::cpulist::parse_online(list)
            .map_err(|error| Failure::new(format_args!("--workers: {error}")))?;
    }
    settings.poll |= args.poll;
    if let Some(address) = &args.metrics {
        let address = address.parse().map_err(|error| Failure::new(format_args!("--metrics: {error}")))?;
        settings.metrics = Some(address);
    }
    settings.socket = socket.or(settings.socket);
    Ok(control::daemon::run(&config, &settings, args.config.clone())?)
}
