//! Simulated switches against theory and published figures.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use crossbar::simulate::{Discipline, Outcome, Pattern, Setup, Traffic, run};
use crossbar::{Diagonals, Hairpins, Heaviest, Islip, Lookup, Patterns};

const UNIFORM: Traffic = Traffic { pattern: Pattern::Uniform, load: 0.99, burst: 1.0 };

fn setup(ports: usize, hairpins: Hairpins, traffic: Traffic) -> Setup {
    Setup { ports, hairpins, traffic, slots: 50_000, warm_up: 10_000, seed: 7 }
}

fn heaviest(setup: &Setup) -> Outcome {
    let patterns = Patterns::new(setup.ports, setup.hairpins).unwrap();
    run(setup, Discipline::Scheduled(&mut Heaviest::new(Arc::new(patterns))))
}

#[test]
fn queues_at_the_inputs_saturate_where_karol_found() {
    // Karol, Hluchyj, Morgan, "Input versus output queueing on a space-division packet switch", 1987, table I; 0.5858 for
    // many ports.
    for (ports, published) in [(2, 0.75), (4, 0.6553), (8, 0.6184)] {
        let setup = setup(ports, Hairpins::Allowed, Traffic { load: 1.0, ..UNIFORM });
        let carried = run(&setup, Discipline::Fifo).carried;
        assert!((carried - published).abs() < 0.005, "{ports} ports: {carried}");
    }
    let setup = setup(64, Hairpins::Allowed, Traffic { load: 1.0, ..UNIFORM });
    let carried = run(&Setup { slots: 20_000, ..setup }, Discipline::Fifo).carried;
    assert!((0.5858..0.6).contains(&carried), "{carried}");
}

#[test]
fn queues_at_the_outputs_delay_as_the_formula_says() {
    // The same: the mean wait in a queue that up to N packets join in a slot, and one leaves.
    for (ports, load) in [(2, 0.5), (4, 0.8), (16, 0.9)] {
        let setup = setup(ports, Hairpins::Allowed, Traffic { load, ..UNIFORM });
        let delay = run(&setup, Discipline::OutputQueues).delays.mean();
        let formula = (ports as f64 - 1.0) / ports as f64 * load / (2.0 * (1.0 - load));
        assert!((delay / formula - 1.0).abs() < 0.05, "{ports} ports, load {load}: {delay}, {formula}");
    }
}

#[test]
fn schedulers_carry_a_uniform_load_of_0_99() {
    for ports in [2, 3, 4, 5] {
        let setup = setup(ports, Hairpins::Forbidden, UNIFORM);
        for (name, outcome) in [
            ("lookup", run(&setup, Discipline::Scheduled(&mut Lookup::new(ports).unwrap()))),
            ("heaviest", heaviest(&setup)),
            ("diagonals", run(&setup, Discipline::Scheduled(&mut Diagonals::new(Hairpins::Forbidden)))),
        ] {
            assert!(outcome.carried >= 0.98, "{name}, {ports} ports: {}", outcome.carried);
        }
    }
    for hairpins in [Hairpins::Allowed, Hairpins::Forbidden] {
        let setup = setup(16, hairpins, UNIFORM);
        let carried = run(&setup, Discipline::Scheduled(&mut Diagonals::new(hairpins))).carried;
        assert!(carried >= 0.98, "diagonals, 16 ports, hairpins {hairpins:?}: {carried}");
    }
    let setup = setup(16, Hairpins::Allowed, UNIFORM);
    let carried = run(&setup, Discipline::Scheduled(&mut Islip::new(4))).carried;
    assert!(carried >= 0.98, "iSLIP, 16 ports: {carried}");
}

#[test]
fn islip_leaves_a_card_idle_where_cards_do_not_send_to_themselves() {
    // Why line cards are not scheduled by it.
    for ports in [4, 5] {
        let setup = setup(ports, Hairpins::Forbidden, UNIFORM);
        let carried = run(&setup, Discipline::Scheduled(&mut Islip::new(4))).carried;
        let without_one = (ports as f64 - 1.0) / ports as f64;
        assert!((carried - without_one).abs() < 0.01, "{ports} ports: {carried}");
    }
}

#[test]
fn the_heaviest_matching_carries_what_no_round_robin_does() {
    let diagonal = Traffic { pattern: Pattern::Diagonal, ..UNIFORM };
    let setup = setup(5, Hairpins::Forbidden, diagonal);
    let islip = run(&setup, Discipline::Scheduled(&mut Islip::new(3)));
    let heaviest = heaviest(&setup);
    assert!(heaviest.carried > 0.98 * heaviest.offered, "{} of {}", heaviest.carried, heaviest.offered);
    assert!(islip.carried < 0.95 * islip.offered, "{} of {}", islip.carried, islip.offered);
}

#[test]
fn a_hot_spot_costs_little_more_than_at_best() {
    let hotspot = Traffic { pattern: Pattern::Hotspot, load: 0.95, burst: 1.0 };
    let outcome = heaviest(&setup(5, Hairpins::Forbidden, hotspot));
    assert!(outcome.carried > 0.99 * outcome.offered);
    // The best that queues at the outputs could do.
    let setup = setup(5, Hairpins::Forbidden, hotspot);
    let bound = run(&setup, Discipline::OutputQueues).delays.mean();
    assert!(outcome.delays.mean() < 1.5 * bound, "{} against {bound}", outcome.delays.mean());
}

#[test]
fn no_queue_starves_under_more_than_the_outputs_take() {
    // Twice as much for the first output as it takes: its queues grow, and the oldest packet is still served in order.
    let overload = Traffic { pattern: Pattern::Hotspot, load: 2.0, burst: 1.0 };
    let setup = Setup { slots: 10_000, warm_up: 0, ..setup(5, Hairpins::Forbidden, overload) };
    let outcome = heaviest(&setup);
    let hot: Vec<u64> = (1..5).map(|input| outcome.served[input * 5]).collect();
    let (least, most) = (hot.iter().min().unwrap(), hot.iter().max().unwrap());
    assert!(*least * 100 > *most * 95, "{hot:?}");
    assert!(hot.iter().sum::<u64>() > 9_900, "the first output idles: {hot:?}");
}

#[test]
fn bursts_delay_longer() {
    let delay = |burst| {
        let traffic = Traffic { load: 0.8, burst, ..UNIFORM };
        heaviest(&setup(4, Hairpins::Forbidden, traffic)).delays.mean()
    };
    let (single, bursts) = (delay(1.0), delay(16.0));
    assert!(bursts > 5.0 * single, "{single} {bursts}");
}

#[test]
fn runs_are_repeatable() {
    let setup = setup(4, Hairpins::Forbidden, UNIFORM);
    let setup = Setup { slots: 1_000, ..setup };
    assert_eq!(heaviest(&setup), heaviest(&setup));
    assert_ne!(heaviest(&setup), heaviest(&Setup { seed: 8, ..setup }));
}
