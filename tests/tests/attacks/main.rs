//! Attacks of single clients on all others, and their effect on bystanders and operators: one file for each kind of
//! attack. `e2e::impact` measures the effect, `src/bin/attacker` contains the attackers, and [`trial`] compares attack
//! and baseline.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Tests of attacks, each over both protocols.
macro_rules! attacks {
    ($($(#[$doc:meta])* $name:ident: $attack:literal;)*) => {$(
        $(#[$doc])*
        mod $name {
            #[test]
            fn memif() {
                crate::trial::run($attack, "memif");
            }

            #[test]
            fn vhost_user() {
                crate::trial::run($attack, "vhost-user");
            }
        }
    )*};
}

/// Tests of attacks that only a front-end can make: a memif client can only reconnect to change anything.
macro_rules! front_ends {
    ($($(#[$doc:meta])* $name:ident: $attack:literal;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            crate::trial::run($attack, "vhost-user");
        }
    )*};
}

mod leaks;
mod requests;
mod restarts;
mod slow_close;
mod stalled;
mod stations;
mod trial;
mod truncated;
mod wakeups;
