//! Pings that fail on any loss.

use crate::{Error, Netns, Result};

/// Time limit for all answers, in seconds.
const LIMIT: &str = "60";

/// Sends `count` echo requests at this interval in seconds and returns ping's output; an unanswered request is an
/// error.
///
/// With `-c` alone, ping waits for the last answers at most twice the longest round trip so far, so a stalled machine
/// would count as loss. With a deadline, ping continues until it has `count` answers: a lost answer is replaced by a
/// later one, whose number reveals the loss.
pub fn ping_all(from: &Netns, to: &str, count: u32, interval: &str) -> Result<String> {
    let requests = count.to_string();
    let output = from.run(&["ping", "-n", "-i", interval, "-c", &requests, "-w", LIMIT, to])?;
    let answers = output.lines().filter(|line| !line.contains("DUP!"));
    let numbers = answers.filter_map(|line| {
        let (_, rest) = line.split_once("icmp_seq=")?;
        rest.split(' ').next()?.parse::<u32>().ok()
    });
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable();
    // An answer that arrives after the next request was sent adds one.
    let all = numbers.len() >= count as usize && numbers.iter().copied().eq(1..=numbers.len() as u32);
    match all {
        true => Ok(output),
        false => Err(Error(format!("an echo request was not answered: {output}"))),
    }
}
