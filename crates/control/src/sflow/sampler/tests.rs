//! Tests of what the samplers of bridges share, and of port numbers.

use super::*;

#[test]
fn a_new_worker_has_tallies_of_the_ports_that_are_there() {
    let sampler = BridgeSampler::new(Arc::new(Sampler::new(1)), 0);
    sampler.prepare(Threads::of(1));
    sampler.interest(PortIndex(200), "p");
    sampler.prepare(Threads::of(2));
    assert!(sampler.picks(1, PortIndex(200), 7), "a rate of 1 picks every batch");
    assert!(!sampler.picks(2, PortIndex(200), 7), "there is no worker 2");
    assert!(!sampler.picks(1, PortIndex(7), 7), "there is no port 7");
    assert_eq!(sampler.totals(PortIndex(200)), (7, 0));
}

#[test]
fn port_numbers_convert_back() {
    assert_eq!(if_index(0, PortIndex(0)), 1);
    assert_eq!(if_index(0, PortIndex(4095)), 4096);
    assert_eq!(if_index(1, PortIndex(0)), 4097);
    for (bridge, port) in [(0, 0), (0, 4095), (1, 0), (4094, 4095), (262_142, 7)] {
        assert_eq!(port_of(if_index(bridge, PortIndex(port))), (bridge, PortIndex(port)));
    }
}
