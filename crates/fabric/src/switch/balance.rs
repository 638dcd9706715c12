//! Balancing: receive queues follow load, from busy workers to less busy ones.
//!
//! While a worker is awake, the watchdog calls the [listener](Switch::on_load) four times a second, and that has
//! [`Switch::balance`] called on a thread that may wait. It compares the cycles that packets of each queue took since
//! the last look, and moves queues off the busiest worker. A queue that moves takes its next batch at its new worker
//! after its last batch at the old one has completed; nothing is lost or reordered.
//!
//! Moving costs a few cold caches, so a queue stays where it is unless that helps: a worker counts as busy from
//! [`BUSY`] on, a move must make the busiest of the two less busy by [`GAIN`], and a queue that has moved stays for
//! [`REST`]. A queue leaves the NUMA node of its memory or device only for [`FAR_GAIN`]. Pinned queues stay. With all
//! workers asleep nothing here runs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Assigned, Assignment, Placement, PortRef, Switch};
use crate::clock;
use crate::worker::handle::WorkerHandle;
use crate::worker::tasks::Token;
pub use crate::worker::thread_group::LoadListener;

/// Shares of a worker's time are compared over periods between these: shorter ones say little, and longer ones include
/// time in which nobody looked because all slept.
const PERIOD: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(1);

/// Share of its time from which a worker is busy.
const BUSY: f64 = 0.5;

/// Least improvement of the busier of two workers, as a share of its time, for which a queue moves.
const GAIN: f64 = 0.1;

/// The same for a worker that is [full](FULL): its queues get less time than they could use.
const FULL_GAIN: f64 = 0.02;

/// Share of its time from which a worker is full.
const FULL: f64 = 0.9;

/// The same for a queue that leaves the NUMA node of its memory or device.
const FAR_GAIN: f64 = 0.3;

/// Time for which a queue that has moved stays.
const REST: Duration = Duration::from_secs(1);

/// Time for a queue to come from its worker. Commands wait meanwhile; a queue that a client holds up stays.
const PATIENCE: Duration = Duration::from_millis(100);

/// Most moves in a look: each waits for a batch.
const MOST_MOVES: usize = 8;

/// A receive queue that was moved because its worker was busy.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// Its port.
    pub port: PortRef,
    /// Its number in the port.
    pub queue: u16,
    /// CPU of the previous worker.
    pub from: Option<usize>,
    /// CPU of its worker.
    pub to: Option<usize>,
    /// Percentage of its time that the previous worker spent on packets.
    pub busy: u8,
}

/// Counters at the last look.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// On the cycle counter.
    at: u64,
    workers: Vec<u64>,
    queues: BTreeMap<Token, u64>,
}

impl Assigned {
    /// Whether the queue may move now.
    fn may_move(&self, now: u64) -> bool {
        self.why != Assignment::Pinned && clock::to_duration(now.wrapping_sub(self.moved)) >= REST
    }
}

/// Load of a worker.
#[derive(Debug, Clone, Copy)]
struct WorkerLoad {
    /// Share of its time spent on packets.
    busy: f64,
    cpu: Option<usize>,
    node: Option<usize>,
}

/// Load of a queue that may move.
#[derive(Debug, Clone, Copy)]
struct QueueLoad {
    worker: usize,
    /// Share of its worker's time.
    busy: f64,
    near: Placement,
}

/// Chooses moves: the positions of queues, and their new workers.
fn plan(mut workers: Vec<WorkerLoad>, mut queues: Vec<QueueLoad>) -> Vec<(usize, usize)> {
    let mut moves = Vec::new();
    while moves.len() < MOST_MOVES
        && let Some((i, to)) = best_move(&workers, &queues)
        && let Some(queue) = queues.get_mut(i)
    {
        let from = std::mem::replace(&mut queue.worker, to);
        // One move in a look is enough for a queue.
        let busy = std::mem::take(&mut queue.busy);
        for (worker, load) in [(from, -busy), (to, busy)] {
            if let Some(worker) = workers.get_mut(worker) {
                worker.busy += load;
            }
        }
        moves.push((i, to));
    }
    moves
}

/// Chooses the move that makes the busiest worker, and the queue's next one, less busy than any other.
fn best_move(workers: &[WorkerLoad], queues: &[QueueLoad]) -> Option<(usize, usize)> {
    let (from, source) = workers.iter().enumerate().max_by(|(_, a), (_, b)| a.busy.total_cmp(&b.busy))?;
    let mut best = None;
    for (i, queue) in queues.iter().enumerate().filter(|(_, queue)| queue.worker == from) {
        for (to, target) in workers.iter().enumerate().filter(|(to, _)| *to != from) {
            let (left, right) = (source.busy - queue.busy, target.busy + queue.busy);
            let excess = source.busy - left.max(right) - least_gain(source, target, queue.near);
            // Among equals, the smallest queue and the worker with most time left.
            let better = |&(_, most, least): &((usize, usize), f64, f64)| (most, -least) < (excess, -right);
            if excess >= 0.0 && best.as_ref().is_none_or(better) {
                best = Some(((i, to), excess, right));
            }
        }
    }
    best.filter(|_| source.busy >= BUSY).map(|(chosen, ..)| chosen)
}

/// The least gain for which a queue moves.
fn least_gain(source: &WorkerLoad, target: &WorkerLoad, near: Placement) -> f64 {
    let leaves = near.is_near(source.cpu, source.node) && !near.is_near(target.cpu, target.node);
    match () {
        () if leaves => FAR_GAIN,
        () if source.busy >= FULL => FULL_GAIN,
        () => GAIN,
    }
}

impl Switch {
    /// Sets the listener that is called at intervals while a worker is awake, on a thread that must not wait: it has
    /// [`Switch::balance`] called. Only the first call has an effect.
    pub fn on_load(&self, listener: LoadListener) {
        self.group.on_load(listener);
    }

    /// Moves receive queues from busy workers to less busy ones, by the load since the last call. Returns the moves.
    pub fn balance(&self) -> Vec<Moved> {
        let mut state = self.lock();
        if state.workers.len() < 2 {
            return Vec::new();
        }
        let now = clock::cycles();
        let since = now.wrapping_sub(state.look.at);
        let share = |now: u64, then: u64| now.wrapping_sub(then) as f64 / since.max(1) as f64;
        let super::State { bridges, workers, look, .. } = &mut *state;
        let next = Look {
            at: now,
            workers: workers.iter().map(|worker| worker.handle.counters.snapshot().busy_cycles).collect(),
            queues: BTreeMap::new(),
        };
        let before = std::mem::replace(look, next);
        let (mut places, mut queues) = (Vec::new(), Vec::new());
        for (id, bridge) in bridges {
            for (index, port) in (0u16..).zip(&bridge.ports) {
                let Some((port, attached)) =
                    port.as_ref().and_then(|port| Some((port, port.attached.as_ref()?)))
                else {
                    continue;
                };
                for ((number, queue), counters) in (0u16..).zip(&attached.rx).zip(&port.rx) {
                    let cycles = counters.cycles();
                    look.queues.insert(queue.token, cycles);
                    let busy = before.queues.get(&queue.token).map_or(0.0, |then| share(cycles, *then));
                    if queue.may_move(now) && busy > 0.0 {
                        places.push((PortRef { bridge: *id, port: crate::PortIndex(index) }, number));
                        queues.push(QueueLoad { worker: queue.worker, busy, near: attached.near });
                    }
                }
            }
        }
        if !PERIOD.contains(&clock::to_duration(since)) || before.workers.is_empty() {
            return Vec::new();
        }
        let workers: Vec<_> = (workers.iter().zip(&look.workers).zip(&before.workers))
            .map(|((worker, now), then)| WorkerLoad {
                busy: share(*now, *then),
                cpu: worker.handle.cpu,
                node: worker.handle.node,
            })
            .collect();
        let busy: Vec<_> = workers.iter().map(|worker| worker.busy).collect();
        let moves = plan(workers, queues);
        let carry_out = |(i, to): (usize, usize)| {
            let (port, queue) = *places.get(i)?;
            let assigned = state.queue(port, queue).ok()?;
            // Also if it does not come: then it rests before the next attempt.
            assigned.moved = now;
            let from = assigned.worker;
            let percent = (busy.get(from).copied().unwrap_or(0.0) * 100.0) as u8;
            let (old, new) = (state.workers.cpu_of(from), state.workers.cpu_of(to));
            let why = Assignment::Moved { from: old, busy: percent };
            let take = |worker: &WorkerHandle, token| worker.try_to_move(token, PATIENCE);
            state.move_queue(port, queue, to, why, take).ok()?;
            Some(Moved { port, queue, from: old, to: new, busy: percent })
        };
        // Until one is held up: where one waits, others would, too.
        moves.into_iter().map_while(carry_out).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two workers on each of the NUMA nodes 0 and 1.
    fn workers<const N: usize>(busy: [f64; N]) -> Vec<WorkerLoad> {
        let worker = |(cpu, busy)| WorkerLoad { busy, cpu: Some(cpu), node: Some(cpu / 2) };
        busy.into_iter().enumerate().map(worker).collect()
    }

    fn queue(worker: usize, busy: f64) -> QueueLoad {
        QueueLoad { worker, busy, near: Placement::default() }
    }

    fn near(node: usize, queue: QueueLoad) -> QueueLoad {
        QueueLoad { near: Placement { cpu: None, node: Some(node) }, ..queue }
    }

    #[test]
    fn a_busy_worker_sheds_the_queue_that_evens_loads_most() {
        let queues = vec![queue(0, 0.1), queue(0, 0.4), queue(0, 0.3), queue(1, 0.1)];
        assert_eq!(plan(workers([0.8, 0.1]), queues), [(2, 1)]);
    }

    #[test]
    fn queues_stay_where_moving_does_not_help() {
        // Nobody waits for long.
        assert_eq!(plan(workers([0.45, 0.0]), vec![queue(0, 0.2), queue(0, 0.25)]), []);
        // The whole load would move.
        assert_eq!(plan(workers([0.95, 0.0]), vec![queue(0, 0.95)]), []);
        // All are as busy.
        let both = vec![queue(0, 0.35), queue(0, 0.35), queue(1, 0.35), queue(1, 0.3)];
        assert_eq!(plan(workers([0.7, 0.65]), both), []);
        assert_eq!(plan(Vec::new(), Vec::new()), []);
    }

    #[test]
    fn a_small_queue_leaves_a_full_worker() {
        assert_eq!(plan(workers([0.98, 0.0]), vec![queue(0, 0.95), queue(0, 0.03)]), [(1, 1)]);
        assert_eq!(plan(workers([0.88, 0.0]), vec![queue(0, 0.85), queue(0, 0.03)]), []);
    }

    #[test]
    fn many_queues_spread_in_one_look() {
        let queues: Vec<_> = (0..4).map(|_| queue(0, 0.24)).collect();
        let moves = plan(workers([0.96, 0.0, 0.0, 0.0]), queues);
        // Two at one worker take no more than half of its time.
        assert_eq!(moves.len(), 2, "{moves:?}");
        assert_ne!(moves[0].1, moves[1].1, "{moves:?}");
    }

    #[test]
    fn queues_keep_to_their_node_unless_much_is_gained() {
        // Workers 2 and 3, on the other node, are idle.
        let queues = vec![near(0, queue(0, 0.3)), near(0, queue(0, 0.3)), near(0, queue(1, 0.1))];
        assert_eq!(plan(workers([0.6, 0.1, 0.0, 0.0]), queues)[0].1, 1);
        let queues = vec![near(0, queue(0, 0.31)), near(0, queue(0, 0.31)), near(0, queue(1, 0.55))];
        let moves = plan(workers([0.62, 0.55, 0.0, 0.0]), queues);
        assert_eq!(moves.len(), 1, "{moves:?}");
        assert!(moves[0].1 >= 2, "{moves:?}");
        let queues = vec![near(0, queue(0, 0.25)), near(0, queue(0, 0.3)), near(0, queue(1, 0.5))];
        assert_eq!(plan(workers([0.55, 0.5, 0.0, 0.0]), queues), []);
        // On its way back, nothing holds a queue.
        let queues = vec![near(1, queue(0, 0.2)), queue(0, 0.35)];
        assert_eq!(plan(workers([0.55, 0.0, 0.3, 0.3]), queues)[0].0, 1);
    }

    #[test]
    fn plans_never_make_the_busiest_worker_busier_and_come_to_rest() {
        proptest::proptest!(|(
            places in proptest::collection::vec((0usize..8, 0.0f64..0.4, 0usize..3), 0..64)
        )| {
            let mut queues: Vec<_> = places
                .iter()
                .map(|(worker, busy, node)| if *node < 2 { near(*node, queue(*worker, *busy)) } else { queue(*worker, *busy) })
                .collect();
            let load = |queues: &[QueueLoad]| {
                let mut busy = [0.0; 8];
                queues.iter().for_each(|queue| busy[queue.worker] += queue.busy);
                busy
            };
            for _ in 0..64 {
                let before = load(&queues);
                let moves = plan(workers(before), queues.clone());
                for (i, to) in &moves {
                    queues[*i].worker = *to;
                }
                let most = |busy: [f64; 8]| busy.into_iter().fold(0.0, f64::max);
                proptest::prop_assert!(most(load(&queues)) <= most(before) + 1e-9);
                if moves.is_empty() {
                    return Ok(());
                }
            }
            proptest::prop_assert!(false, "the queues keep moving");
        });
    }
}
