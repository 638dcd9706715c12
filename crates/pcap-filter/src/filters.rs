//! A list's expressions, compiled.
//!
//! libpcap compiles on a thread of its own, within a time limit: an expression of the longest length takes it about a
//! second and 60 MB, and more than that for each further byte, but it cannot be stopped, and the names of hosts are
//! resolved meanwhile. A thread that nobody waits for any more ends with the expression that it is at.
//!
//! Invariant: at most [`MOST_THREADS`] threads run, whether somebody waits for them or not.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bpf_jit::{Code, Options, Packet, Unsupported, Verdict};
use packet::bpf::{Instruction, Program, ProgramError};

use logic::excerpt::Mistake;

/// Time limit for all expressions of a list.
const LIMIT: Duration = Duration::from_secs(10);

/// Most threads at a time. Beyond them, nothing is compiled.
const MOST_THREADS: usize = 8;

/// Stack of such a thread: libpcap's optimizer calls itself along an expression's branches.
const STACK: usize = 8 << 20;

/// Loads from here on ask Linux for something that is not in the packet (`SKF_AD_OFF`), such as its direction.
const NOT_IN_PACKET: u32 = -4096_i32 as u32;

/// Threads of this process: each holds a reference while it works.
static THREADS: Threads = Threads(Mutex::new(Vec::new()));

/// Compiled expressions.
pub(crate) struct Filters {
    programs: Box<[Program]>,
    code: Option<Code>,
}

/// Reasons for refusing expressions.
pub(crate) enum Refused {
    /// An expression, by its number from 0.
    Expression(usize, Mistake),
    /// All together.
    List(String),
}

impl Filters {
    /// Compiles expressions. A packet that one of `resume` has kept may go on with the next one.
    pub(crate) fn new(expressions: &[&str], resume: &[usize]) -> Result<Self, Refused> {
        let codes = within_limit(expressions)?;
        let program = |(number, code): (usize, &Vec<Instruction>)| {
            check(code).map_err(|message| Refused::Expression(number, Mistake { at: None, message }))
        };
        let programs = codes.iter().enumerate().map(program).collect::<Result<Box<[_]>, _>>()?;
        let entries: Vec<_> = resume.iter().map(|number| number + 1).collect();
        let code = match bpf_jit::compile(&programs, &entries, &Options::default()) {
            Ok(code) => Some(code),
            Err(Unsupported::Empty) => None,
            Err(error) if error.is_bound() => return Err(Refused::List(error.to_string())),
            Err(error) => {
                tracing::warn!("pcap-filter: no machine code, so expressions are interpreted: {error}");
                None
            }
        };
        Ok(Self { programs, code })
    }

    /// Bytes of machine code; 0 if expressions are interpreted.
    pub(crate) fn code_len(&self) -> usize {
        self.code.as_ref().map_or(0, Code::len)
    }

    /// Runs all expressions over packets; `then` gets number and verdict of those that have one.
    #[inline]
    pub(crate) fn run<'a>(
        &self,
        packets: impl IntoIterator<Item = (&'a [u8], u32)>,
        mut then: impl FnMut(usize, Verdict),
    ) {
        match &self.code {
            Some(code) => code.run(packets.into_iter().map(|(header, len)| Packet::new(header, len)), then),
            None => {
                for (number, (header, len)) in packets.into_iter().enumerate() {
                    if let Some(verdict) = bpf_jit::interpret(&self.programs, 0, header, len) {
                        then(number, verdict);
                    }
                }
            }
        }
    }

    /// Runs the expressions behind one of `resume`, as given to [`Filters::new`], over a packet that it has kept.
    pub(crate) fn resume(&self, after: usize, header: &[u8], len: u32) -> Option<Verdict> {
        match &self.code {
            Some(code) => code.run_one(Packet::new(header, len), after + 1),
            None => self.interpret(after + 1, header, len),
        }
    }

    /// Interprets the expressions from number `from` on.
    pub(crate) fn interpret(&self, from: usize, header: &[u8], len: u32) -> Option<Verdict> {
        bpf_jit::interpret(&self.programs, from, header, len)
    }
}

/// Checks libpcap's code.
fn check(code: &[Instruction]) -> Result<Program, String> {
    let program = Program::new(code).map_err(|error| match error {
        ProgramError::Jump(_) => {
            "it needs a loop (`protochain`), which filters of the switch do not have".into()
        }
        other => other.to_string(),
    })?;
    let is_foreign = |i: &Instruction| i.code & 0xe7 == 0x20 && i.k >= NOT_IN_PACKET;
    match code.iter().any(is_foreign) {
        true => Err("it asks for something that is not in the packet (`inbound`, `outbound`)".into()),
        false => Ok(program),
    }
}

struct Threads(Mutex<Vec<Weak<()>>>);

impl Threads {
    /// Returns a reference for another thread to hold, if there may be one.
    fn admit(&self) -> Result<Arc<()>, Refused> {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| thread.strong_count() > 0);
        if threads.len() >= MOST_THREADS {
            let message = "libpcap is still busy with expressions that take too long; try again later";
            return Err(Refused::List(message.into()));
        }
        let works = Arc::new(());
        threads.push(Arc::downgrade(&works));
        Ok(works)
    }
}

/// Lets libpcap compile, and waits until the limit.
fn within_limit(expressions: &[&str]) -> Result<Vec<Vec<Instruction>>, Refused> {
    let mut works = Some(THREADS.admit()?);
    let own: Vec<_> = expressions.iter().map(|expression| (*expression).to_owned()).collect();
    let (done, results) = sync_channel(own.len());
    let work = move || {
        for (left, expression) in (0..own.len()).rev().zip(&own) {
            let result = libpcap::compile(expression);
            let is_last = left == 0 || result.is_err();
            // Its work is done before others know its result.
            works = works.filter(|_| !is_last);
            // Nobody listens any more when it is too late.
            if done.send(result).is_err() || is_last {
                return;
            }
        }
    };
    let spawned = std::thread::Builder::new().name("mswitch-pcap".into()).stack_size(STACK).spawn(work);
    spawned.map_err(|error| Refused::List(format!("no thread for libpcap: {error}")))?;
    let end = Instant::now() + LIMIT;
    let mut codes = Vec::new();
    for number in 0..expressions.len() {
        let refused = |mistake| Err(Refused::Expression(number, mistake));
        match results.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Ok(code)) => codes.push(code),
            Ok(Err(error)) => {
                let reason = error.reason.trim_start_matches("can't parse filter expression: ");
                return refused(Mistake { at: error.at, message: reason.to_owned() });
            }
            Err(RecvTimeoutError::Timeout) => {
                let message = format!(
                    "compiling the expressions took libpcap more than {} s: shorten this one, or name no hosts",
                    LIMIT.as_secs()
                );
                return refused(Mistake { at: None, message });
            }
            Err(RecvTimeoutError::Disconnected) => {
                return refused(Mistake { at: None, message: "libpcap's compiler failed".into() });
            }
        }
    }
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(expressions: &[&str]) -> (Option<usize>, Option<usize>, String) {
        match Filters::new(expressions, &[]) {
            Ok(_) => panic!("{expressions:?} were accepted"),
            Err(Refused::Expression(number, mistake)) => (Some(number), mistake.at, mistake.message),
            Err(Refused::List(message)) => (None, None, message),
        }
    }

    #[test]
    fn expressions_are_refused_by_number() {
        assert_eq!(refused(&["tcp", "udp prot 5"]), (Some(1), Some(4), "syntax error".into()));
        assert!(refused(&["inbound"]).2.contains("not in the packet"));
        assert!(refused(&["ip6 protochain 6"]).2.contains("loop"));
        assert_eq!(refused(&["1 = 2"]).0, Some(0));
        let long = ["ether[0] = 1"; 300];
        assert_eq!(refused(&long).2, "300 filters are more than 256");
    }

    #[test]
    fn a_list_that_is_refused_leaves_no_thread() {
        // Compiled by optimizing for most of a second, and never compiled here.
        let slow = (10..).scan(String::new(), |text, port| {
            *text += &format!("{}port {port}", if text.is_empty() { "" } else { " or " });
            Some(text.clone())
        });
        let slow = slow.take_while(|text| text.len() <= 1000).last().unwrap();
        let list = ["tcp prot 23", slow.as_str(), slow.as_str(), slow.as_str(), slow.as_str()];
        for _ in 0..50 {
            assert_eq!(refused(&list).0, Some(0));
        }
    }

    #[test]
    fn threads_are_bounded() {
        let threads = Threads(Mutex::default());
        let mut admitted: Vec<_> = (0..MOST_THREADS).map_while(|_| threads.admit().ok()).collect();
        assert!(matches!(threads.admit(), Err(Refused::List(message)) if message.contains("still busy")));
        admitted.pop();
        assert!(threads.admit().is_ok());
    }

    #[test]
    fn interpreted_filters_decide_the_same() {
        let compiled = Filters::new(&["arp", "len > 50", "ip"], &[1]).unwrap_or_else(|_| panic!("refused"));
        let interpreted = Filters { programs: compiled.programs.clone(), code: None };
        let frames = [[8, 0], [8, 6], [0x86, 0xdd]].map(|kind| [&[2; 12][..], &kind, &[0; 46]].concat());
        for filters in [&compiled, &interpreted] {
            let mut found = vec![];
            let packets =
                frames.iter().map(|frame| (&frame[..], 60)).chain([(&frames[0][..], 40), (&[][..], 60)]);
            filters.run(packets, |number, verdict| found.push((number, verdict)));
            let matches = |number| Verdict::Match(number, 262_144);
            let expected = [
                (0, matches(1)),
                (1, matches(0)),
                (2, matches(1)),
                (3, matches(2)),
                (4, Verdict::NeedsMore(0)),
            ];
            assert_eq!(found, expected);
            assert_eq!(filters.resume(1, &frames[0], 60), Some(matches(2)));
            assert_eq!(filters.resume(1, &frames[1], 60), None);
        }
        assert!(compiled.code_len() > 0);
    }

    #[test]
    fn no_expression_keeps_nothing() {
        let filters = Filters::new(&[], &[]).unwrap_or_else(|_| panic!("refused"));
        filters.run([(&[0; 60][..], 60)], |_, _| panic!("kept"));
        assert_eq!(filters.code_len(), 0);
    }
}
