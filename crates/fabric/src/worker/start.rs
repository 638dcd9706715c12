//! Starting a worker.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;

use crate::rx::BatchLimits;
use crate::worker::crew::{Crew, spawn};
use crate::worker::duty::Duty;
use crate::worker::handle::WorkerHandle;
use crate::worker::post::Post;
use crate::worker::run::{Pace, work};

/// Starts worker `index`, pinned to `cpu` if given.
pub(crate) fn worker(
    index: usize,
    cpu: Option<usize>,
    limits: BatchLimits,
    pace: Pace,
    crew: &Arc<Crew>,
    post: &Arc<Post>,
) -> std::io::Result<WorkerHandle> {
    let duty = Duty::new(pace)?;
    let (counters, commands) = (duty.counters.clone(), duty.commands.clone());
    let mut hand = crew.hand(post.clone(), limits, format!("worker {index}"))?;
    let crew = crew.clone();
    let (started, answer) = sync_channel(1);
    let thread = spawn(&format!("mswitch-w{index}"), move || {
        let pinned = cpu.map_or(Ok(()), pin);
        let go = pinned.is_ok();
        hand.post.occupy();
        let _ = started.send(pinned);
        if go {
            work(&mut hand, duty, || crew.stopped.load(Relaxed));
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

/// The NUMA node of a CPU, if the kernel knows of nodes.
fn node_of(cpu: usize) -> Option<usize> {
    let entries = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).ok()?;
    let node = |name: std::ffi::OsString| name.to_str()?.strip_prefix("node")?.parse().ok();
    entries.flatten().find_map(|entry| node(entry.file_name()))
}
