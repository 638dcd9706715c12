//! `chain`: the packets that each stage sees, and the control plane's view of the stages.

use std::sync::{Arc, Mutex};

use fabric::worker::Threads;
use fabric::{Batch, DropReason, PortIndex, PortSettings, SwitchLogic};
use logic::{CommandInfo, Counter, Kind, Logic, LogicDescription, LogicError, State, Table};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::frames::{number, plain};
use crate::rig::{Client, Rig, make};

/// `test:SCRIPT`: a logic that picks a letter of its script by the packet's number and obeys it.
///
/// `.`: leave it; `0` to `9`: send it to that port; `b`: broadcast; `x`: drop; `e`: increment its last byte and leave
/// it; `E`: increment its last byte and broadcast.
const KINDS: &[Kind] = &[Kind {
    prefix: "test",
    ending: Some(".test"),
    summary: "obeys the script in its name",
    describe: |script| {
        let (name, summary) = (format!("test:{script}"), "obeys the script in its name".into());
        Ok(LogicDescription { name, summary, ..LogicDescription::default() })
    },
    build: |script, params| {
        let name = format!("test:{script}");
        let (script, heard) = (script.as_bytes().to_vec(), Mutex::default());
        Ok(Arc::new(Scripted { name, script, params: params.to_vec(), heard }))
    },
}];

struct Scripted {
    name: String,
    script: Vec<u8>,
    params: Vec<(String, String)>,
    heard: Mutex<Vec<String>>,
}

impl Scripted {
    fn hear(&self, what: String) {
        self.heard.lock().unwrap().push(what);
    }
}

const LAST: usize = 14 + 45;

impl SwitchLogic for Scripted {
    fn forward(&self, batch: &mut Batch<'_>) {
        assert!(batch.packets().next().is_some(), "called with an empty batch");
        for v in batch.packets() {
            let which = usize::from(batch.header(v)[17]) % self.script.len();
            match self.script[which] {
                b'.' => {}
                b'b' => batch.broadcast(v),
                b'x' => batch.discard(v, DropReason::Policed),
                edits @ (b'e' | b'E') => {
                    let own = batch.edit(v).unwrap();
                    batch.header_mut(own).unwrap()[LAST] += 1;
                    if edits == b'E' {
                        batch.broadcast(own);
                    }
                }
                port => batch.send(v, PortIndex(u16::from(port - b'0'))),
            }
        }
    }

    fn prepare(&self, threads: Threads) -> Result<(), String> {
        self.hear(format!("{} threads", threads.numbers().count()));
        if self.script == b"broken" { Err("it is broken".into()) } else { Ok(()) }
    }

    fn ports_changed(&self, ports: &[(PortIndex, Arc<PortSettings>)]) {
        self.hear(format!("{} ports", ports.len()));
    }

    fn port_down(&self, port: PortIndex) {
        self.hear(format!("{} down", port.0));
    }

    fn port_removed(&self, port: PortIndex) {
        self.hear(format!("{} removed", port.0));
    }

    fn worker_removed(&self, worker: usize) {
        self.hear(format!("worker {worker} removed"));
    }
}

impl Logic for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    fn params(&self) -> Vec<(String, String)> {
        self.params.clone()
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter { name: "heard".into(), help: "calls recorded".into(), value: 7 }]
    }

    fn tables(&self) -> Vec<Table> {
        let rows = self.heard.lock().unwrap().iter().map(|heard| vec![heard.clone()]).collect();
        vec![Table { name: "log".into(), columns: vec!["heard".into()], rows, capacity: 0 }]
    }

    fn commands(&self) -> Vec<CommandInfo> {
        vec![CommandInfo { name: "say".into(), usage: "WORD...".into(), help: "repeats".into() }]
    }

    fn call(&self, command: &[String]) -> Result<String, LogicError> {
        match command.split_first() {
            Some((say, words)) if say == "say" => Ok(format!("{}: {}", self.name, words.join(" "))),
            _ => Err(LogicError::unknown_command(&self.name, command, &self.commands())),
        }
    }

    fn hand_over(&self) -> Vec<State> {
        let entries = self.name.clone().into_bytes();
        vec![State { name: "name".into(), key_len: 0, value_len: entries.len() as u32, entries }]
    }

    fn take_over(&self, states: &[State]) {
        for state in states.iter().filter(|state| state.name == "name") {
            self.hear(format!("after {}", String::from_utf8(state.entries.clone()).unwrap()));
        }
    }

    fn tick(&self, now: u32) {
        self.hear(format!("tick {now}"));
    }
}

fn chain_of(stages: &[&str]) -> Result<Arc<dyn Logic>, LogicError> {
    let params: Vec<_> = (1..).zip(stages).map(|(n, stage)| (n.to_string(), stage.to_string())).collect();
    logic::build("chain", &params, KINDS)
}

fn chain(stages: &[&str]) -> Arc<dyn Logic> {
    chain_of(stages).unwrap()
}

/// Returns the calls that each stage recorded.
fn heard(logic: &dyn Logic) -> Vec<Vec<String>> {
    logic.tables().into_iter().map(|table| table.rows.concat()).collect()
}

#[test]
fn later_stages_see_undecided_packets() {
    let rig = Rig::new(1, chain(&["test:1..x.e", "test:.b.....", "learning"]));
    let [a, b, c] = rig.plain_ports();
    a.send_and_settle((0..7).map(|n| plain(0, 1, n)));
    let numbers = |client: &Client| client.take().iter().map(|frame| number(frame)).collect::<Vec<_>>();
    // The first stage sends packets 0 and 6 to b and drops 3; the second broadcasts 1; learning floods the rest.
    assert_eq!((numbers(&b), numbers(&c), numbers(&a)), (vec![0, 1, 2, 4, 5, 6], vec![1, 2, 4, 5], vec![]));
    assert_eq!(rig.drops(&a, DropReason::Policed), 1);
}

#[test]
fn an_edit_shows_in_later_stages_only() {
    let rig = Rig::new(1, chain(&["test:e", "test:E", "test:b"]));
    let [a, b] = rig.plain_ports();
    a.send_and_settle([plain(0, 1, 0)]);
    let frame = b.take().remove(0);
    assert_eq!(frame[LAST], plain(0, 1, 0)[LAST] + 2);
    assert!(b.take().is_empty(), "the third stage was called");
}

#[test]
fn packets_that_the_last_stage_leaves_have_no_destination() {
    let rig = Rig::new(1, chain(&["test:.", "test:.b"]));
    let [a, b] = rig.plain_ports();
    a.send_and_settle((0..4).map(|n| plain(0, 1, n)));
    assert_eq!(b.take().len(), 2);
    assert_eq!(rig.drops(&a, DropReason::NoDestination), 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Packet by packet, a chain does the same as its stages one after the other.
    #[test]
    fn agrees_with_a_model(scripts in vec("[.1be2x.]{1,7}", 1..=16), packets in 1u32..200) {
        let stages: Vec<_> = scripts.iter().map(|script| format!("test:{script}")).collect();
        let rig = Rig::new(1, chain(&stages.iter().map(String::as_str).collect::<Vec<_>>()));
        let clients = rig.plain_ports::<3>();
        clients[0].send_and_settle((0..packets).map(|n| plain(0, 1, n)));
        let mut expected = [const { Vec::new() }; 3];
        let (mut dropped, mut lost) = (0, 0);
        for n in 0..packets {
            let mut frame = plain(0, 1, n);
            let mut said = None;
            for script in &scripts {
                match script.as_bytes()[usize::from(frame[17]) % script.len()] {
                    b'.' => {}
                    b'e' => frame[LAST] += 1,
                    other => said = said.or(Some(other)),
                }
                if said.is_some() {
                    break;
                }
            }
            match said {
                None => lost += 1,
                Some(b'x') => dropped += 1,
                Some(b'b') => expected[1..].iter_mut().for_each(|port| port.push(frame.clone())),
                Some(port) => expected[usize::from(port - b'0')].push(frame),
            }
        }
        for (client, expected) in clients.iter().zip(expected) {
            prop_assert_eq!(client.take(), expected);
        }
        prop_assert_eq!(rig.drops(&clients[0], DropReason::Policed), dropped);
        prop_assert_eq!(rig.drops(&clients[0], DropReason::NoDestination), lost);
    }
}

#[test]
fn every_stage_hears_of_ports_workers_and_time() {
    let logic = chain(&["test:.", "test:b"]);
    let rig = Rig::new(1, logic.clone());
    let [a, b] = rig.plain_ports();
    rig.switch.detach(b.at).unwrap();
    rig.switch.remove_port(b.at).unwrap();
    logic.tick(42);
    rig.switch.add_worker(None).unwrap();
    rig.switch.remove_worker(None).unwrap();
    drop(a);
    let all = heard(&*logic);
    // Three of them stand in for workers.
    assert_eq!(all[0][0], "4 threads");
    let broken = rig.switch.set_logic(rig.bridge, chain(&["hub", "test:broken"])).unwrap_err();
    assert_eq!(broken.to_string(), "stage 2: it is broken");
    assert_eq!(all[0], all[1]);
    let last = ["1 ports", "1 removed", "tick 42", "5 threads", "worker 1 removed"].map(String::from);
    assert!(all[0].ends_with(&last), "{all:?}");
    assert!(all[0].contains(&"1 down".into()), "{all:?}");
}

#[test]
fn the_stages_stay_apart_for_the_control_plane() {
    let logic = chain(&["test:. port=1", "learning ageing=60", "test:b text=\"a b\""]);
    assert_eq!(logic.name(), "chain");
    assert_eq!(
        logic.params(),
        [
            ("1", "test:. port=1"),
            ("2", "learning ageing=60 max-stations=8192 port-share=75 snooping=off"),
            ("3", "test:b text='a b'")
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
    );
    // The parameters that it reports make the same chain again.
    assert_eq!(logic::build("chain", &logic.params(), KINDS).unwrap().params(), logic.params());
    let names: Vec<_> = logic.counters().into_iter().map(|counter| counter.name).collect();
    assert_eq!(names, ["stage1_heard", "stage3_heard"]);
    let names: Vec<_> = logic.tables().into_iter().map(|table| table.name).collect();
    assert_eq!(names, ["stage1_log", "stage3_log"]);
    // The built-in logic knows its sizes without a table.
    let sizes = logic.table_sizes().into_iter().map(|size| size.name);
    let expected = (1..).zip(["test:.", "learning ageing=60", "test:b"]).flat_map(|(number, stage)| {
        let own = chain(&[stage]).table_sizes().into_iter();
        own.map(move |size| size.name.replacen("stage1_", &format!("stage{number}_"), 1))
    });
    assert_eq!(sizes.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let names: Vec<_> = logic.commands().into_iter().map(|command| command.name).collect();
    assert_eq!(names, ["1 say", "3 say"]);
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(logic.call(&words("3 say it twice")).unwrap(), "test:b: it twice");
    let error = |line: &str| logic.call(&words(line)).unwrap_err().to_string();
    assert_eq!(error("say it"), "logic `chain` has no command `say`; its commands are: 1 say, 3 say");
    assert_eq!(error("4 say"), "logic `chain` has no command `4`; its commands are: 1 say, 3 say");
    assert_eq!(error("1"), "the command is missing after stage 1; its commands are: say");
    assert_eq!(error("1 flush"), "logic `test:.` has no command `flush`; its commands are: say");
    let views = |logic: &dyn Logic| (logic.views().stations.is_some(), logic.views().groups.is_some());
    assert_eq!(views(&*logic), (true, false));
    assert_eq!(views(&*chain(&["hub", "learning snooping=on"])), (true, true));
    assert_eq!(views(&*chain(&["hub"])), (false, false));
}

#[test]
fn states_go_from_stage_to_stage() {
    let before = chain(&["test:1", "test:2", "test:x"]);
    let after = chain(&["test:1", "test:b", "test:x"]);
    after.take_over(&before.hand_over());
    assert_eq!(heard(&*after), [["after test:1"], ["after test:2"], ["after test:x"]]);
    // A stage in front moves the others; none inherits what another one does.
    let after = chain(&["test:new", "test:1", "test:2", "test:x", "test:1"]);
    after.take_over(&before.hand_over());
    let expected = [vec![], vec!["after test:1"], vec!["after test:2"], vec!["after test:x"], vec![]];
    assert_eq!(heard(&*after), expected);
    let after = chain(&["test:x", "test:new"]);
    after.take_over(&before.hand_over());
    assert_eq!(heard(&*after), [["after test:x"], ["after test:2"]]);
    // From and to a logic that is no chain: everybody takes what it understands.
    let plain = logic::build("test:b", &[], KINDS).unwrap();
    plain.take_over(&before.hand_over());
    assert_eq!(heard(&*plain), [["after test:1", "after test:2", "after test:x"]]);
    let after = chain(&["test:1", "test:x"]);
    after.take_over(&plain.hand_over());
    assert_eq!(heard(&*after), [["after test:b"], ["after test:b"]]);
}

#[test]
fn a_trace_names_the_stage_of_each_remark() {
    let rig = Rig::new(1, chain(&["test:.x", "hub"]));
    let [a, _b] = rig.plain_ports();
    let trace = |n| rig.switch.trace(a.at, &plain(0, 1, n), packet::Offload::NONE);
    // The scripted logic does not explain itself.
    assert!(trace(0).is_err());
    rig.switch.set_logic(rig.bridge, chain(&["static p0=nowhere", "hub", "learning"])).unwrap();
    let said = trace(0).unwrap();
    let said: Vec<_> = said.remarks.iter().map(|r| r.sentence(|port| format!("p{}", port.0))).collect();
    assert_eq!(
        said,
        [
            "stage 1, static: p0 is wired to `nowhere`, which is not a port of this bridge",
            "stage 1, static: leaves the packet to stage 2",
            "stage 2, hub: it goes to every other port",
            "stage 2, hub: decides",
        ]
    );
    rig.switch.set_logic(rig.bridge, chain(&["static p0=nowhere", "static p0=nowhere"])).unwrap();
    let said = trace(0).unwrap();
    let said: Vec<_> = said.remarks.iter().map(|remark| remark.sentence(|_| String::new())).collect();
    assert_eq!(
        said[said.len() - 3..],
        [
            "stage 2, static: leaves the packet undecided",
            "no stage has decided where it goes",
            "dropped (no-destination): It had nowhere to go: no other port of its VLAN was up, or the logic left it \
             undecided."
        ]
    );
}

#[test]
fn errors_name_their_stage() {
    let refused = |params: &[(&str, &str)]| {
        let params: Vec<_> = params.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        match logic::build("chain", &params, KINDS) {
            Ok(_) => panic!("{params:?} was accepted"),
            Err(error) => error.to_string(),
        }
    };
    for (params, message) in [
        (&[][..], "logic `chain` has no stage 1; number its stages from 1 on, such as 1=learning"),
        (&[("1", "hub"), ("3", "hub")], "logic `chain` has no stage 2; number its stages from 1 on"),
        (
            &[("0", "hub")],
            "logic `chain` has no parameter `0`: its stages are numbered from 1 to 16, such as 1=learning",
        ),
        (&[("17", "hub")], "logic `chain` has no parameter `17`"),
        (&[("01", "hub")], "logic `chain` has no parameter `01`"),
        (&[("first", "hub")], "logic `chain` has no parameter `first`"),
        (&[("1", "hub"), ("1", "hub")], "parameter `1` of logic `chain` is given twice"),
        (
            &[("1", "hub"), ("2", "chain 1=hub")],
            "parameter `2` of logic `chain` cannot be `chain 1=hub`: a logic other than `chain` (write its stages here",
        ),
        (
            &[("1", " ")],
            "parameter `1` of logic `chain` cannot be ` `: a logic's name and its parameters, such as",
        ),
        (&[("1", "hub \"")], "stage 1: the quote \" before `` is not closed"),
        (&[("1", "learning 60")], "stage 1: expected `KEY=VALUE`, found `60`"),
        (
            &[("1", "test:my dir/fire")],
            "stage 1: expected `KEY=VALUE`, found `dir/fire`; quote a path that has blanks",
        ),
        (&[("1", "hub"), ("2", "lerning")], "stage 2: there is no logic `lerning`, did you mean `learning`?"),
        (
            &[("1", "learning aging=1")],
            "stage 1: logic `learning` has no parameter `aging`, did you mean `ageing`?",
        ),
    ] {
        let error = refused(params);
        assert!(error.starts_with(message), "{params:?}: {error}");
    }
}

#[test]
fn chains_are_replaced_without_loss() {
    let rig = Rig::new(2, make("learning", &[]));
    let [a, b] = rig.plain_ports();
    let total = 20_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for from in (0..total).step_by(50) {
                a.send((from..from + 50).map(|n| plain(2, 1, n)));
                a.settle();
            }
        });
        for i in 0..100 {
            let logic = if i % 2 == 0 { chain(&["test:.", "learning"]) } else { make("hub", &[]) };
            rig.switch.set_logic(rig.bridge, logic).unwrap();
        }
    });
    let numbers: Vec<_> = b.take_all(total as usize).iter().map(|frame| number(frame)).collect();
    assert_eq!(numbers, Vec::from_iter(0..total));
}
