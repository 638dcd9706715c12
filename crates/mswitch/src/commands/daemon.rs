//! `mswitch daemon`.

use std::path::PathBuf;

use control::model::Config;

use super::{absolute, socket_for, socket_of_environment};
use crate::cli::DaemonArgs;
use crate::failure::Failure;

/// Reads the configuration, lets the command line override it, and runs.
pub(super) fn run(args: &DaemonArgs, socket: Option<PathBuf>) -> Result<(), Failure> {
    crate::log::start();
    // Commands in other directories read and write the file by this path.
    let file = args.config.as_deref().map(absolute).transpose()?;
    let socket = match &file {
        Some(file) => socket_for(file, socket),
        None => socket.or_else(socket_of_environment),
    };
    let config = match &file {
        Some(file) if !file.try_exists().unwrap_or(true) => {
            return Err(Failure::new(format_args!(
                "cannot read {}: no such file; create it, or start without --config",
                file.display()
            )));
        }
        Some(file) => {
            let parsed = control::file::read_for(file, socket.as_deref())?;
            for note in parsed.note_lines(file) {
                tracing::warn!("{note}");
            }
            parsed.config
        }
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
    if let (None, Some(used), Some(other)) = (&socket, &settings.socket, socket_of_environment())
        && *used != other
    {
        tracing::warn!(
            "the control socket is {}, as the file says; MSWITCH_SOCKET names {}, where commands do not reach this daemon",
            used.display(),
            other.display()
        );
    }
    settings.socket = socket.or(settings.socket);
    Ok(control::daemon::run(&config, &settings, args.workers.is_some(), file)?)
}
