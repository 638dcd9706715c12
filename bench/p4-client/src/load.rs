//! Writing as fast as the switch allows, or at a rate.

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;

use crate::controller::Controller;
use crate::failure::Failure;
use crate::requests::Requests;

/// How requests are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Requests on their way.
    pub(crate) in_flight: usize,
    /// Most updates a second.
    pub(crate) rate: Option<u32>,
}

/// Updates that were carried out, and their time.
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
struct Progress {
    start: Instant,
    sent: usize,
    times: Vec<Duration>,
    calls: JoinSet<Result<Duration, Failure>>,
}

impl Load {
    /// Sends requests once.
    pub(crate) async fn once(self, controller: &Controller, requests: &Requests) -> Result<Report, Failure> {
        let mut progress = Progress::new();
        self.send(controller, requests, &mut progress).await?;
        Ok(progress.report())
    }

    /// Sends lists of requests in turns, each after all answers to the one before, for a time. The last round is
    /// completed, so that later lists take back what the first ones do.
    pub(crate) async fn turns(
        self,
        controller: &Controller,
        turns: &[Requests],
        seconds: f64,
    ) -> Result<Report, Failure> {
        let mut progress = Progress::new();
        let end = progress.start + Duration::from_secs_f64(seconds.max(0.0));
        while Instant::now() < end {
            for requests in turns {
                self.send(controller, requests, &mut progress).await?;
            }
        }
        Ok(progress.report())
    }

    async fn send(
        self,
        controller: &Controller,
        requests: &Requests,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        for (request, updates) in &requests.0 {
            while progress.calls.len() >= self.in_flight {
                progress.take_one().await?;
            }
            if let Some(rate) = self.rate {
                let due = Duration::from_secs_f64(progress.sent as f64 / f64::from(rate));
                tokio::time::sleep_until((progress.start + due).into()).await;
            }
            let call = controller.write(request.clone());
            progress.calls.spawn(async move {
                let begin = Instant::now();
                call.await.map(|()| begin.elapsed())
            });
            progress.sent += updates;
        }
        while !progress.calls.is_empty() {
            progress.take_one().await?;
        }
        Ok(())
    }
}

impl Progress {
    fn new() -> Self {
        Self { start: Instant::now(), sent: 0, times: Vec::new(), calls: JoinSet::new() }
    }

    /// Waits for an answer.
    async fn take_one(&mut self) -> Result<(), Failure> {
        if let Some(done) = self.calls.join_next().await {
            self.times.push(done.map_err(std::io::Error::other)??);
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
