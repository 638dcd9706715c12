//! What clients can make the daemon write.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use bench::session::{Options, Session};
use e2e::{Daemon, config, until};

/// Lines in the log about memif clients.
fn lines(daemon: &Daemon) -> usize {
    daemon.log().lines().filter(|line| line.contains("memif ")).count()
}

#[test]
fn a_client_that_comes_and_goes_does_not_fill_the_log() {
    let ports = config::memif("a", 0, "") + &config::memif("b", 1, "");
    let daemon = Daemon::start(&(config::bridge("br0", "learning") + &ports)).unwrap();
    let come_and_go = || {
        let options = Options::new(vec![daemon.memif("memif", 0), daemon.memif("memif", 1)]);
        drop(Session::connect(options).unwrap());
        daemon.wait_down("br0", "a", "closed").unwrap();
        daemon.wait_down("br0", "b", "closed").unwrap();
    };
    for _ in 0..10 {
        come_and_go();
    }
    // Two ports, two lines each a round, would be forty.
    let said = lines(&daemon);
    assert!((20..30).contains(&said), "{said} lines: {}", daemon.log());
    until("a line that says how many were left out", Duration::from_secs(30), || {
        come_and_go();
        Ok(daemon.log().contains("suppressed=").then_some(()))
    })
    .unwrap();
}
