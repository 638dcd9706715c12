//! Starting a worker.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
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
    let group = group.clone();
    let (started, answer) = sync_channel(1);
    let thread = spawn(&format!("mswitch-w{index}"), move || {
        let pinned = cpu.map_or(Ok(()), pin);
        let go = pinned.is_ok();
        runner.info.occupy();
        let _ = started.send(pinned);
        if go {
            work(&mut runner, state, || group.stopped.load(Relaxed));
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
    Ok(WorkerHandle { cpu, node, counters, commands, thread })
}

fn pin(cpu: usize) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "no such CPU"));
    }
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// NUMA node of a CPU, if the kernel knows its nodes.
fn node_of(cpu: usize) -> Option<usize> {
    let entries = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).ok()?;
    let node = |name: std::ffi::OsString| name.to_str()?.strip_prefix("node")?.parse().ok();
    entries.flatten().find_map(|entry| node(entry.file_name()))
}
