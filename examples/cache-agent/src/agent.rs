//! What the agent does when: decisions as they come, and a reading every second.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::Options;
use crate::cache::{Cache, Change};
use crate::failure::Failure;
use crate::switch::Switch;

/// Time between readings.
const PERIOD: Duration = Duration::from_secs(1);

/// Numbers since the last line of the log.
#[derive(Debug, Default)]
struct Tally {
    inserted: usize,
    modified: usize,
    evicted: usize,
    expired: usize,
    failed: usize,
}

impl Tally {
    fn count(&mut self, changes: &[Change]) {
        for change in changes {
            let number = match change {
                Change::Insert(..) => &mut self.inserted,
                Change::Modify(..) => &mut self.modified,
                Change::Evict(_) => &mut self.evicted,
                Change::Expire(_) => &mut self.expired,
            };
            *number += 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.inserted + self.modified + self.evicted + self.expired + self.failed == 0
    }
}

/// Runs until a signal ends it.
pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut agent = Agent {
        switch: Switch::connect(options).await?,
        cache: Cache::new(options.entries as usize),
        tally: Tally::default(),
    };
    agent.measure().await?;
    println!(
        "ready: role {:?}, flows {}/{}, generation {}",
        options.role,
        agent.cache.len(),
        agent.cache.most(),
        agent.cache.generation()
    );
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            list = agent.switch.digests() => {
                let list = list?;
                let decisions = agent.switch.names().decisions(&list);
                let changes = agent.cache.decided(&decisions);
                agent.change(&changes).await?;
                // Only now: without its entry, the flow's next packets would be told again.
                agent.switch.acknowledge(&list).await?;
            }
            _ = ticks.tick() => agent.measure().await?,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    println!("ends: flows {}/{} stay in the cache", agent.cache.len(), agent.cache.most());
    Ok(())
}

struct Agent {
    switch: Switch,
    cache: Cache,
    tally: Tally,
}

impl Agent {
    /// Carries out changes. What the table has after a failure is read anew.
    async fn change(&mut self, changes: &[Change]) -> Result<(), Failure> {
        let written = self.switch.change(changes).await?;
        self.tally.count(changes);
        let Some(first) = written.first else { return Ok(()) };
        self.tally.failed += written.failed;
        eprintln!("{} of {} updates failed; first: {first}", written.failed, changes.len());
        let reading = self.switch.read().await?;
        if written.is_full {
            self.cache.limit(reading.entries.len());
            eprintln!(
                "the limit of the role is reached: the cache keeps {} flows from now on",
                self.cache.most()
            );
        }
        let generation = reading.generation.unwrap_or(self.cache.generation());
        // What is old or too much goes with the next reading.
        self.cache.found(&reading.entries, generation);
        Ok(())
    }

    /// Reads what is there, removes what is old, and logs what has changed.
    async fn measure(&mut self) -> Result<(), Failure> {
        let reading = self.switch.read().await?;
        if !reading.is_subscribed {
            self.switch.subscribe().await?;
        }
        let generation = reading.generation.unwrap_or(self.cache.generation());
        let (hits, changes) = self.cache.measured(&reading.entries, generation);
        self.change(&changes).await?;
        let Tally { inserted, modified, evicted, expired, failed } = &self.tally;
        if !self.tally.is_empty() {
            println!(
                "flows {}/{}, generation {generation}, hits {hits}; inserted {inserted}, changed {modified}, \
                 evicted {evicted}, expired {expired}, failed {failed}",
                self.cache.len(),
                self.cache.most(),
            );
            self.tally = Tally::default();
        }
        Ok(())
    }
}
