//! `mswitch worker show`: workers, and with several of them their queues.

use control::proto;

use super::logic::printable;
use super::table::{Column, table};
use super::units;

/// One row per worker, with several of them one per queue, and one line per module that does not return.
pub(crate) fn show(reply: &proto::Workers) -> String {
    let mut out = list(&reply.workers);
    if reply.workers.len() > 1 {
        out += "\n";
        out += &queue_list(&reply.workers);
    }
    for stuck in &reply.stuck {
        out += &format!("stuck: {}\n", printable(&stuck.text()));
    }
    out
}

/// One row per worker.
fn list(workers: &[proto::Worker]) -> String {
    let mut columns = vec![
        Column::Right("#"),
        Column::Right("CPU"),
        Column::Right("BUSY"),
        Column::Right("PACKETS"),
        Column::Right("/BATCH"),
        Column::Right("CYCLES/P"),
        Column::Right("WAKE-UPS"),
        Column::Right("NOTIFIED"),
        Column::Right("RELIEVED"),
        Column::Left("QUEUES"),
    ];
    // On a machine with several NUMA nodes.
    let shows_nodes = workers.iter().any(|worker| worker.node != workers[0].node);
    if shows_nodes {
        columns.insert(2, Column::Right("NODE"));
    }
    let row = |worker: &proto::Worker| {
        let mut row = vec![
            worker.index.to_string(),
            worker.cpu.map_or_else(|| "any".into(), |cpu| cpu.to_string()),
            units::percent(worker.busy_share),
            units::count(worker.packets),
            units::ratio(worker.packets_per_batch),
            units::ratio(worker.cycles_per_packet),
            units::count(worker.wakeups),
            units::count(worker.notifications),
            units::count(worker.relieved),
            queues(&worker.queues),
        ];
        if shows_nodes {
            row.insert(2, worker.node.map_or_else(|| "-".into(), |node| node.to_string()));
        }
        row
    };
    table(&columns, workers.iter().map(row).collect(), "no workers")
}

/// `br0/vm1:0,1 br0/vm2:0`
fn queues(queues: &[proto::WorkerQueue]) -> String {
    let mut ports: Vec<(String, Vec<String>)> = Vec::new();
    for queue in queues {
        let port = format!("{}/{}", queue.bridge, queue.port);
        match ports.last_mut().filter(|(last, _)| *last == port) {
            Some((_, numbers)) => numbers.push(queue.queue.to_string()),
            None => ports.push((port, vec![queue.queue.to_string()])),
        }
    }
    ports.iter().map(|(port, numbers)| format!("{port}:{}", numbers.join(","))).collect::<Vec<_>>().join(" ")
}

/// One row per queue, the busiest of each worker first.
fn queue_list(workers: &[proto::Worker]) -> String {
    let columns =
        [Column::Left("QUEUE"), Column::Right("CPU"), Column::Right("BUSY"), Column::Left("WHY THERE")];
    let mut rows = Vec::new();
    for worker in workers {
        let mut queues: Vec<_> = worker.queues.iter().collect();
        queues.sort_by_key(|queue| std::cmp::Reverse(queue.busy_cycles));
        rows.extend(queues.into_iter().map(|queue| {
            vec![
                format!("{}/{}:{}", queue.bridge, queue.port, queue.queue),
                worker.cpu.map_or_else(|| "any".into(), |cpu| cpu.to_string()),
                units::percent(queue.busy_cycles as f64 / worker.elapsed_cycles.max(1) as f64),
                queue.reason.clone(),
            ]
        }));
    }
    table(&columns, rows, "no queues")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_shown_where_they_differ() {
        let worker = |node| proto::Worker { node, ..Default::default() };
        assert!(!list(&[worker(Some(0)), worker(Some(0))]).contains("NODE"));
        let shown = list(&[worker(Some(0)), worker(Some(1)), worker(None)]);
        let nodes: Vec<_> = shown.lines().map(|line| line.split_whitespace().nth(2).unwrap()).collect();
        assert_eq!(nodes, ["NODE", "0", "1", "-"]);
    }

    #[test]
    fn queues_are_grouped_by_port() {
        let queue = |port: &str, queue| proto::WorkerQueue {
            bridge: "b".into(),
            port: port.into(),
            queue,
            ..Default::default()
        };
        assert_eq!(queues(&[queue("x", 0), queue("x", 1), queue("y", 0)]), "b/x:0,1 b/y:0");
    }
}
