//! What decides where packets go: the logics that ship with the switch, and how one is chosen by name.
//!
//! A logic implements [`fabric::SwitchLogic`] for the data plane and [`Logic`] for the people who run it. A new
//! one is one file and one line in [`LIST`].
//!
//! Invariants of the crate: the data plane neither blocks nor allocates nor panics in here, whatever bytes a
//! packet consists of; a logic knows ports by index and settings only, never their type.
#![forbid(unsafe_code)]

use std::sync::Arc;

mod error;
pub mod fdb;
mod learning;
mod params;
mod security;
mod snooping;
mod source_guard;
mod static_pairs;
mod vlan;

pub use error::LogicError;
pub use fdb::{Admission, Fdb, FdbChange, FdbEntry, FdbError, FdbEvent, FdbStats, Foresight};
pub use learning::Learning;
pub use snooping::GroupEntry;
pub use static_pairs::StaticPairs;

/// Every logic there is.
pub const LIST: &[LogicInfo] = &[learning::INFO, static_pairs::INFO];

/// A logic as the control plane sees it.
pub trait Logic: fabric::SwitchLogic {
    /// The name it is chosen by, as in [`LIST`].
    fn name(&self) -> &'static str;

    /// Its parameters as they are in effect, defaults included.
    fn params(&self) -> Vec<(String, String)>;

    /// Its filtering database (IEEE 802.1Q §8.8), if it has one.
    fn fdb(&self) -> Option<&Fdb> {
        None
    }

    /// Where packets to groups go, if it listens for that; `None`: it does not.
    fn groups(&self) -> Option<Vec<GroupEntry>> {
        None
    }

    /// Time passes: called by the control plane every few seconds with the seconds of [`fabric::clock`].
    fn tick(&self, _now_seconds: u32) {}
}

type Build = fn(&[(String, String)]) -> Result<Arc<dyn Logic>, LogicError>;

/// What can be said about a logic without making one.
#[derive(Debug, Clone, Copy)]
pub struct LogicInfo {
    /// The name it is chosen by.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The parameters it takes.
    pub params: &'static [ParamInfo],
    build: Build,
}

/// A parameter of a logic.
#[derive(Debug, Clone, Copy)]
pub struct ParamInfo {
    /// Its name; in capitals where the user supplies the name.
    pub name: &'static str,
    /// What it means and which values it takes.
    pub help: &'static str,
    /// What holds when it is not given.
    pub default: &'static str,
}

/// Makes the logic called `name`.
pub fn build(name: &str, params: &[(String, String)]) -> Result<Arc<dyn Logic>, LogicError> {
    let info = LIST.iter().find(|info| info.name == name).ok_or_else(|| LogicError::unknown_logic(name))?;
    (info.build)(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(given: &[(&str, &str)]) -> Vec<(String, String)> {
        given.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    fn refused(name: &str, given: &[(&str, &str)]) -> String {
        match build(name, &params(given)) {
            Ok(_) => panic!("{name} {given:?} was accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_logic_can_be_made_and_names_itself() {
        for info in LIST {
            let logic = build(info.name, &[]).unwrap();
            assert_eq!(logic.name(), info.name);
            assert!(!info.summary.is_empty());
        }
    }

    #[test]
    fn parameters_take_effect_and_defaults_show() {
        let logic = build("learning", &params(&[("ageing", "0")])).unwrap();
        let expected = [("ageing", "0"), ("max-stations", "8192"), ("snooping", "off")];
        assert_eq!(logic.params(), params(&expected));
        assert!(logic.groups().is_none());
        let logic = build("learning", &params(&[("snooping", "on"), ("unregistered", "routers")])).unwrap();
        let expected = [("snooping", "on"), ("snooping-timeout", "260"), ("unregistered", "routers")];
        assert_eq!(logic.params()[2..], params(&expected));
        assert_eq!(logic.groups(), Some(vec![]));
        let logic = build("static", &params(&[("a", "b")])).unwrap();
        assert_eq!(logic.params(), params(&[("a", "b")]));
        assert!(logic.fdb().is_none());
    }

    #[test]
    fn errors_say_what_would_be_right() {
        assert_eq!(
            refused("lerning", &[]),
            "there is no logic `lerning`, did you mean `learning`? The logics are: learning, static"
        );
        assert_eq!(refused("zzz", &[]), "there is no logic `zzz`; the logics are: learning, static");
        assert_eq!(
            refused("learning", &[("aging", "1")]),
            "logic `learning` has no parameter `aging`, did you mean `ageing`? \
             Its parameters are: ageing, max-stations, snooping, snooping-timeout, unregistered"
        );
        assert_eq!(
            refused("learning", &[("ageing", "soon")]),
            "parameter `ageing` of logic `learning` cannot be `soon`: \
             a whole number from 0 to 1000000 is expected"
        );
        assert!(refused("learning", &[("max-stations", "0")]).contains("from 1 to"));
        assert_eq!(
            refused("learning", &[("snooping", "yes")]),
            "parameter `snooping` of logic `learning` cannot be `yes`: `off` or `on` is expected"
        );
        assert!(refused("learning", &[("ageing", "1"), ("ageing", "2")]).contains("given twice"));
        assert!(refused("static", &[("a", "a")]).contains("itself"));
        assert!(refused("static", &[("a", "")]).contains("name of a port"));
        let ambiguous = refused("static", &[("a", "x"), ("b", "x")]);
        assert!(ambiguous.contains("x=a") && ambiguous.contains("x=b"), "{ambiguous}");
    }
}
