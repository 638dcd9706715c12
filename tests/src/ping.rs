//! Pings of which none may be lost.

use crate::{Error, Netns, Result};

/// How long all answers may take, seconds.
const LIMIT: &str = "60";

/// Sends `count` echo requests, one each `interval` seconds, each of which must be answered; returns what ping said.
///
/// With `-c` alone, ping waits for the last answers no longer than twice the longest round trip before, so that a machine that
/// stands still for a moment would count as loss. With a deadline it goes on until it has had so many answers: where one is
/// lost, a later request takes its place, and its number shows that.
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
    // One more where an answer came after the next request was sent.
    let all = numbers.len() >= count as usize && numbers.iter().copied().eq(1..=numbers.len() as u32);
    match all {
        true => Ok(output),
        false => Err(Error(format!("not all were answered: {output}"))),
    }
}
