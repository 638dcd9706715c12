//! Attacks of single clients on everybody else, and what bystanders and operators notice of them: one file for each kind.
//! `e2e::judges` says who judges, `src/bin/attacker` holds the attackers, and [`trial`] how they are compared.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Tests of attacks, each over both protocols.
macro_rules! attacks {
    ($($(#[$doc:meta])* $name:ident: $attack:literal;)*) => {$(
        $(#[$doc])*
        mod $name {
            #[test]
            fn memif() {
                crate::trial::judge($attack, "memif");
            }

            #[test]
            fn vhost_user() {
                crate::trial::judge($attack, "vhost-user");
            }
        }
    )*};
}

/// Tests of attacks that only a front-end can make: a memif client changes nothing but by coming again.
macro_rules! front_ends {
    ($($(#[$doc:meta])* $name:ident: $attack:literal;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            crate::trial::judge($attack, "vhost-user");
        }
    )*};
}

mod closing;
mod kept;
mod restarts;
mod stalled;
mod stations;
mod talk;
mod trial;
mod truncated;
mod wakeups;
