//! Writing as fast as the switch allows, or at a rate.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::connection::Connection;
use crate::failure::Failure;
use crate::requests::{Request, Requests, is_closed};

/// How requests are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Requests on their way.
    pub(crate) in_flight: usize,
    /// Most flow-mods a second.
    pub(crate) rate: Option<u32>,
}

/// Flow-mods that were carried out, and their time.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    updates: usize,
    requests: usize,
    seconds: f64,
    updates_per_second: f64,
    /// From a request to its answer: median, 99th percentile and maximum.
    milliseconds: [f64; 3],
}

/// What has been sent and answered.
struct Progress<'a> {
    connection: Connection,
    start: Instant,
    sent: usize,
    times: Vec<Duration>,
    /// Requests that are not answered yet, and when they were sent.
    waiting: VecDeque<(&'a Request, Instant)>,
}

impl Load {
    /// Sends lists of requests in turns, each after all answers to the one before: once, or for a time. The last round
    /// is completed, so that later lists take back what the first ones do.
    pub(crate) fn run(
        self,
        connection: Connection,
        turns: &[Requests],
        seconds: Option<f64>,
    ) -> Result<Report, Failure> {
        let (start, times, waiting) = (Instant::now(), Vec::new(), VecDeque::new());
        let mut progress = Progress { connection, start, sent: 0, times, waiting };
        let end = seconds.map(|seconds| start + Duration::from_secs_f64(seconds.max(0.0)));
        loop {
            for requests in turns {
                self.send(requests, &mut progress)?;
            }
            if end.is_none_or(|end| Instant::now() >= end) {
                return Ok(progress.report());
            }
        }
    }

    fn send<'a>(self, requests: &'a Requests, progress: &mut Progress<'a>) -> Result<(), Failure> {
        for request in &requests.0 {
            while progress.waiting.len() >= self.in_flight {
                progress.take_one()?;
            }
            if let Some(rate) = self.rate {
                let due = progress.start + Duration::from_secs_f64(progress.sent as f64 / f64::from(rate));
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            if !request.before.is_empty() {
                progress.connection.send(&request.before)?;
                progress.connection.wait_for(request.xid, is_closed)?;
            }
            progress.waiting.push_back((request, Instant::now()));
            progress.connection.send(&request.messages)?;
            progress.sent += request.updates;
        }
        while !progress.waiting.is_empty() {
            progress.take_one()?;
        }
        Ok(())
    }
}

impl Progress<'_> {
    /// Waits for the next answer.
    fn take_one(&mut self) -> Result<(), Failure> {
        if let Some((request, begin)) = self.waiting.pop_front() {
            self.connection.wait_for(request.xid, request.is_answer)?;
            self.times.push(begin.elapsed());
        }
        Ok(())
    }

    fn report(mut self) -> Report {
        let seconds = self.start.elapsed().as_secs_f64();
        self.times.sort_unstable();
        let at = |share: f64| {
            let index = (self.times.len().saturating_sub(1) as f64 * share).round() as usize;
            self.times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        Report {
            updates: self.sent,
            requests: self.times.len(),
            seconds,
            updates_per_second: self.sent as f64 / seconds.max(1e-9),
            milliseconds: [at(0.5), at(0.99), at(1.0)],
        }
    }
}
