//! Workers are added and removed while traffic flows, by command and by file; nothing is lost, doubled or reordered.
//! Eight workers share two CPUs, so that each is interrupted at any point.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bench::pace::Rate;
use bench::port::Rings;
use bench::session::{Background, Options, Session};
use e2e::{Daemon, config, exclusive, seconds, until};
use fastrand::Rng;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(20);
const QUEUES: u16 = 4;

/// CPU and number of queues of each worker.
fn workers(daemon: &Daemon) -> Vec<(u64, usize)> {
    let shown = daemon.json(&["worker", "show"]).unwrap();
    let queues = |worker: &Value| worker["queues"].as_array().map_or(0, Vec::len);
    let workers = shown["workers"].as_array().unwrap().iter();
    workers.map(|worker| (worker["cpu"].as_u64().unwrap_or(99), queues(worker))).collect()
}

fn cpus(daemon: &Daemon) -> Vec<u64> {
    workers(daemon).into_iter().map(|(cpu, _)| cpu).collect()
}

fn sorted(mut cpus: Vec<u64>) -> Vec<u64> {
    cpus.sort_unstable();
    cpus
}

/// Error message of a command that is refused.
fn refused(daemon: &Daemon, arguments: &[&str]) -> String {
    let done = daemon.cli(arguments).unwrap();
    assert_eq!(done.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(done.stderr).unwrap()
}

fn packets(daemon: &Daemon) -> u64 {
    daemon.ports("br0").unwrap().iter().map(|port| port.received()).sum()
}

#[test]
fn eight_workers_on_two_cpus_come_and_go_and_nothing_is_lost_or_reordered() {
    let _machine = exclusive();
    let ports = config::memif("a", 0, "") + &config::memif("b", 1, "");
    let daemon = Daemon::start_with(&(config::bridge("br0", "learning") + &ports), "0-1x4").unwrap();
    assert_eq!(cpus(&daemon), [0, 0, 0, 0, 1, 1, 1, 1]);
    let mut options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
    options.rings = Rings { queues: QUEUES, ..Rings::default() };
    options.flows = 16;
    options.sizes = "60-1500".parse().unwrap();
    options.rate = Rate::Pps(20_000.0);
    options.duration = Duration::from_secs(600);
    options.least = 10_000;
    let stop = AtomicBool::new(false);
    let mut rng = Rng::with_seed(15);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| Session::connect(options).unwrap().run(&stop).unwrap());
        // Ends the client also when the test fails.
        let _stop = Stop(&stop);
        let queues = || workers(&daemon).iter().map(|(_, queues)| queues).sum::<usize>();
        until("the clients to be connected", LIMIT, || Ok((queues() == 8).then_some(()))).unwrap();
        assert!(workers(&daemon).iter().all(|(_, queues)| *queues == 1), "{:?}", workers(&daemon));
        let (began, mut rounds) = (Instant::now(), 0);
        while began.elapsed() < seconds(5, 60) || rounds < 2 {
            let mut left = 8;
            while left > 1 {
                let (port, queue) = (["a", "b"][rng.usize(..2)], rng.u16(..QUEUES).to_string());
                let cpu = cpus(&daemon)[rng.usize(..left)].to_string();
                daemon.run(&["worker", "pin", "br0", port, &queue, &cpu]).unwrap();
                daemon.run(&["worker", "unpin", "br0", port, &queue]).unwrap();
                daemon.run(&["worker", "remove", &cpu]).unwrap();
                left -= 1;
                assert_eq!(workers(&daemon).len(), left);
            }
            let before = packets(&daemon);
            until("one worker to switch packets", LIMIT, || Ok((packets(&daemon) > before).then_some(())))
                .unwrap();
            assert_eq!(workers(&daemon)[0].1, 8, "it has all queues");
            let has = |wanted: u64| cpus(&daemon).iter().filter(|cpu| **cpu == wanted).count();
            let (zero, one) = (4 - has(0), 4 - has(1));
            daemon.run(&["worker", "add", &format!("0x{zero},1x{one}")]).unwrap();
            assert_eq!(workers(&daemon).len(), 8);
            rounds += 1;
        }
        println!("{rounds} rounds");
        // Packets that a new worker switches are captured, too.
        let cpu = cpus(&daemon)[7];
        for queue in 0..QUEUES {
            daemon.run(&["worker", "pin", "br0", "a", &queue.to_string(), &cpu.to_string()]).unwrap();
        }
        let file = daemon.path("captured");
        daemon.run(&["capture", "br0", "--port", "a", "--count", "500", "--write", &file]).unwrap();
        stop.store(true, Relaxed);
        let report = client.join().unwrap();
        assert!(report.ok, "{report}");
    });
}

/// Ends the client.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A daemon whose file has the list of workers, or none.
fn from_file(cpus: Option<&str>) -> Daemon {
    Daemon::start_with(&file(cpus), "").unwrap()
}

fn file(cpus: Option<&str>) -> String {
    let workers = cpus.map_or_else(String::new, |cpus| format!("[daemon]\nworkers = \"{cpus}\"\n"));
    workers + &config::bridge("br0", "learning") + &config::memif("a", 0, "") + &config::memif("b", 1, "")
}

/// Changes the list of workers in the daemon's file.
fn edit(daemon: &Daemon, before: &str, after: &str) {
    let path = daemon.path("config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, after) = (format!("workers = \"{before}\""), format!("workers = \"{after}\""));
    assert!(text.contains(&before), "{text}");
    std::fs::write(path, text.replace(&before, &after)).unwrap();
}

#[test]
fn the_file_and_commands_change_one_list() {
    let daemon = from_file(Some("0"));
    edit(&daemon, "0", "0-1");
    let applied = daemon.run(&["config", "apply"]).unwrap();
    assert!(applied.starts_with("~ workers\n    workers: 0 -> 0,1\n"), "{applied}");
    assert_eq!(cpus(&daemon), [0, 1]);
    daemon.run(&["worker", "remove", "0"]).unwrap();
    assert_eq!(cpus(&daemon), [1]);
    assert!(daemon.differences(None).unwrap().contains("workers: 1 -> 0,1"));
    assert_eq!(daemon.json(&["status"]).unwrap()["unsaved"], 1);
    daemon.run(&["config", "save"]).unwrap();
    assert_eq!(daemon.differences(None).unwrap(), "");
    edit(&daemon, "1", "0x2");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(daemon.pid().cast_signed()).unwrap(),
        rustix::process::Signal::HUP,
    )
    .unwrap();
    until("SIGHUP to be obeyed", LIMIT, || Ok((cpus(&daemon) == [0, 0]).then_some(()))).unwrap();
    let logged = || daemon.log().contains("workers changed: workers: 1 -> 0x2");
    until("the change to be logged", LIMIT, || Ok(logged().then_some(()))).unwrap();
    for (arguments, reason) in [
        (
            ["worker", "add", "0"],
            "CPU 0 has a worker already; another one would share the CPU with it (for tests, `0x1` adds one)",
        ),
        (["worker", "add", "9999"], "CPU 9999 is not online; online CPUs: "),
        (["worker", "remove", "1"], "no worker runs on CPU 1; CPUs with workers: 0x2"),
        (
            ["worker", "remove", "0x2"],
            "the last worker cannot be removed; add another one first, with `mswitch worker add`",
        ),
    ] {
        let refusal = refused(&daemon, &arguments);
        assert!(refusal.contains(reason), "{refusal}");
    }
}

#[test]
fn a_worker_to_which_a_queue_is_pinned_goes_when_the_queue_is_released() {
    let _machine = exclusive();
    let daemon = from_file(Some("0-1"));
    let mut options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
    options.rate = Rate::Pps(1000.0);
    options.duration = Duration::from_secs(600);
    options.least = 1;
    let client = Background::start(options).unwrap();
    daemon.wait_up("br0", "a").unwrap();
    daemon.run(&["worker", "pin", "br0", "a", "0", "1"]).unwrap();
    let pinned = "queue 0 of port \"a\" in bridge \"br0\" is pinned to CPU 1; release it first, with `mswitch worker unpin br0 a 0`";
    let refusal = refused(&daemon, &["worker", "remove", "1"]);
    assert!(refusal.contains(pinned), "{refusal}");
    assert_eq!(daemon.differences(None).unwrap(), "", "a refused command changes nothing");
    // The file's list stays wanted, and other changes are not refused meanwhile.
    edit(&daemon, "0-1", "0");
    let applied = daemon.cli(&["config", "apply"]).unwrap();
    let told = String::from_utf8([applied.stdout, applied.stderr].concat()).unwrap();
    assert!(told.contains(pinned), "{told}");
    assert_eq!(cpus(&daemon), [0, 1]);
    let status = daemon.run(&["status"]).unwrap();
    assert!(status.contains("workers") && status.contains(pinned), "{status}");
    daemon.run(&["bridge", "add", "br1"]).unwrap();
    daemon.run(&["bridge", "del", "br1"]).unwrap();
    // Nor are other changes of the workers; one that is refused for another reason leaves nothing behind.
    daemon.run(&["worker", "add", "0x2"]).unwrap();
    assert_eq!(sorted(cpus(&daemon)), [0, 0, 0, 1]);
    daemon.run(&["worker", "remove", "0x2"]).unwrap();
    assert_eq!(sorted(cpus(&daemon)), [0, 1]);
    daemon.run(&["worker", "unpin", "br0", "a", "0"]).unwrap();
    until("the worker to be removed", LIMIT, || Ok((cpus(&daemon) == [0]).then_some(()))).unwrap();
    let shown = daemon.json(&["worker", "show"]).unwrap();
    assert!(shown.to_string().contains("moved when the worker on CPU 1 was removed"), "{shown}");
    let report = client.stop().unwrap();
    assert!(report.ok, "{report}");
}

/// The queue that is pinned there goes with its port.
#[test]
fn a_file_removes_a_worker_and_the_port_whose_queue_is_pinned_to_it() {
    let _machine = exclusive();
    let daemon = from_file(Some("0x2,1"));
    let mut options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
    options.rate = Rate::Pps(1000.0);
    options.duration = Duration::from_secs(600);
    options.least = 1;
    let client = Background::start(options).unwrap();
    daemon.wait_up("br0", "a").unwrap();
    daemon.wait_up("br0", "b").unwrap();
    // Queue 0 of port b is at the second worker on CPU 0, from which it moves if that is removed.
    for (port, cpu) in [("a", "1"), ("b", "1"), ("a", "0"), ("b", "0"), ("a", "1")] {
        daemon.run(&["worker", "pin", "br0", port, "0", cpu]).unwrap();
    }
    daemon.run(&["worker", "unpin", "br0", "b", "0"]).unwrap();
    assert_eq!(workers(&daemon), [(0, 0), (0, 1), (1, 1)]);
    // Nothing changes if one of several workers cannot be removed.
    let refusal = refused(&daemon, &["worker", "remove", "0-1"]);
    assert!(refusal.contains("queue 0 of port \"a\" in bridge \"br0\" is pinned to CPU 1"), "{refusal}");
    assert_eq!(workers(&daemon), [(0, 0), (0, 1), (1, 1)]);
    let report = client.stop().unwrap();
    assert!(report.ok, "{report}");
    let text = "[daemon]\nworkers = \"0\"\n".to_owned() + &config::bridge("br0", "learning");
    std::fs::write(daemon.path("config.toml"), text).unwrap();
    daemon.run(&["config", "apply"]).unwrap();
    assert_eq!(cpus(&daemon), [0]);
    assert_eq!(daemon.differences(None).unwrap(), "");
}

#[test]
fn a_list_of_the_command_line_that_is_the_files_takes_precedence_too() {
    let daemon = Daemon::start_with(&file(Some("0")), "0").unwrap();
    edit(&daemon, "0", "0-1");
    let note = "`workers` of the daemon has no effect: it was started with --workers, which takes precedence";
    for arguments in [&["config", "apply", "--dry-run"][..], &["config", "diff"], &["config", "apply"]] {
        let told = daemon.cli(arguments).unwrap();
        let told = String::from_utf8([told.stdout, told.stderr].concat()).unwrap();
        assert!(told.contains(note), "{arguments:?}: {told}");
    }
    assert_eq!(cpus(&daemon), [0]);
}

#[test]
fn the_list_of_the_command_line_takes_precedence() {
    let daemon = Daemon::start_with(&file(Some("0")), "1").unwrap();
    assert_eq!(cpus(&daemon), [1]);
    daemon.run(&["worker", "add", "0"]).unwrap();
    assert_eq!(cpus(&daemon), [1, 0]);
    edit(&daemon, "0", "0x3");
    let applied = daemon.cli(&["config", "apply"]).unwrap();
    let notes = String::from_utf8(applied.stderr).unwrap();
    let note = "`workers` of the daemon has no effect: it was started with --workers, which takes precedence";
    assert!(notes.contains(note), "{notes}");
    assert!(!daemon.log().contains("workers changed: workers: 0 -> 0x3"), "{}", daemon.log());
    assert_eq!(cpus(&daemon), [1, 0]);
    // What commands change is not the file's list.
    daemon.run(&["config", "save"]).unwrap();
    let saved = std::fs::read_to_string(daemon.path("config.toml")).unwrap();
    assert!(saved.contains("workers = \"0x3\""), "{saved}");
}

#[test]
fn workers_on_cpus_replace_the_one_without() {
    let daemon = from_file(None);
    assert_eq!(cpus(&daemon), [99]);
    let added = daemon.cli(&["worker", "add", "0-1"]).unwrap();
    let note = String::from_utf8(added.stderr).unwrap();
    assert_eq!(note, "mswitch: note: the worker that was not pinned to a CPU is replaced\n");
    assert_eq!(sorted(cpus(&daemon)), [0, 1]);
}

/// CPUs on which the first thread of that name may run.
fn allowed(daemon: &Daemon, name: &str) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().flatten();
    let read = |task: &std::path::Path, name| std::fs::read_to_string(task.join(name)).unwrap_or_default();
    let found = tasks.map(|task| task.path()).find(|task| read(task, "comm").trim() == name);
    let status = read(&found.expect(name), "status");
    // proc_pid_status(5): ranges, such as "0-1,4".
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let ranges = list.split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    ranges.flat_map(|(first, last)| first.parse().unwrap()..=last.parse().unwrap()).collect()
}

/// Waits until the watchdog may run on these of CPUs 0 and 1, and no others of them: after late looks it is elsewhere for a
/// second.
fn watchdog_may_use(daemon: &Daemon, expected: [bool; 2]) {
    let now = || [0, 1].map(|cpu| allowed(daemon, "mswitch-watch").contains(&cpu));
    until(&format!("the watchdog to be allowed {expected:?}"), LIMIT, || {
        Ok((now() == expected).then_some(()))
    })
    .unwrap();
}

#[test]
fn the_watchdog_runs_beside_the_workers() {
    let daemon = from_file(None);
    watchdog_may_use(&daemon, [true, true]);
    daemon.run(&["worker", "add", "0"]).unwrap();
    assert_eq!(cpus(&daemon), [0]);
    watchdog_may_use(&daemon, [false, true]);
    daemon.run(&["worker", "add", "1"]).unwrap();
    let no_others = allowed(&daemon, "mswitch-janitor") == [0, 1];
    watchdog_may_use(&daemon, [no_others, no_others]);
    daemon.run(&["worker", "remove", "0"]).unwrap();
    watchdog_may_use(&daemon, [true, false]);
}
