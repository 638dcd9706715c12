//! Starting a worker's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;

use crate::rx::BatchLimits;
use crate::worker::handle::WorkerHandle;
use crate::worker::run::{Pace, work};
use crate::worker::state::WorkerState;
use crate::worker::thread_group::{ThreadGroup, spawn};
use crate::worker::thread_info::ThreadInfo;

/// Starts worker `index`, pinned to `cpu` if given.
pub(crate) fn worker(
    index: usize,
    cpu: Option<usize>,
    limits: BatchLimits,
    pace: Pace,
    group: &Arc<ThreadGroup>,
    info: &Arc<ThreadInfo>,
) -> std::io::Result<WorkerHandle> {
    let state = WorkerState::new(pace)?;
    let (counters, commands) = (state.counters.clone(), state.commands.clone());
    let mut runner = group.runner(info.clone(), limits, format!("worker {index}"))?;
    let removed = Arc::new(AtomicBool::new(false));
    let (unpinned, group, ends) = (group.unpinned, group.clone(), removed.clone());
    let (started, answer) = sync_channel(1);
    let thread = spawn(&format!("mswitch-w{index}"), move || {
        runner.info.occupy();
        let pinned = if cpu.is_some() { runner.info.pin(cpu, &unpinned) } else { Ok(()) };
        let go = pinned.is_ok();
        let _ = started.send(pinned);
        if go {
            work(&mut runner, state, || group.stopped.load(Relaxed) || ends.load(Relaxed));
        }
    })?;
    match answer.recv() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            return Err(std::io::Error::new(
                error.kind(),
                format!("worker {index} cannot run on CPU {}: {error}", cpu.unwrap_or(0)),
            ));
        }
        Err(_) => return Err(std::io::Error::other(format!("worker {index} did not start"))),
    }
    let node = cpu.and_then(node_of);
    let (info, thread) = (info.clone(), Arc::new(thread));
    Ok(WorkerHandle { info, cpu, node, unpinned, counters, commands, removed, thread })
}

/// NUMA node of a CPU, if the kernel knows its nodes.
pub(crate) fn node_of(cpu: usize) -> Option<usize> {
    let entries = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).ok()?;
    let node = |name: std::ffi::OsString| name.to_str()?.strip_prefix("node")?.parse().ok();
    entries.flatten().find_map(|entry| node(entry.file_name()))
}
