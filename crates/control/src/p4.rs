//! Bridges with the logic `p4`: what is theirs besides ports.
//!
//! [`settings`] has `[bridge.p4]`, `load` reads the logic's parameters and its program, `port_numbers` lists of ports, `running` has the program and the
//! server of a bridge, `describe` the logic's description.

mod describe;
mod load;
mod port_numbers;
mod running;
pub mod settings;

pub use load::functions;
pub use port_numbers::port_numbers;
pub use settings::P4Config;

pub(crate) use describe::{describe, with_p4};
pub(crate) use load::{Loaded, load};
pub(crate) use running::Running;

/// Name of the logic; `p4:FILE` names a program, too.
pub const LOGIC: &str = "p4";

/// Parameters of the logic.
const CPU_PORT: &str = "cpu-port";
const LINK: &str = "link";
const BEHIND_LINK: &str = "behind-link";
const XDP: &str = "xdp";
const INCLUDE: &str = "include";
const DEFINE: &str = "define";
const FUNCTIONS: &str = "functions";
const P4INFO: &str = "p4info";

/// Returns whether a logic is this one, with or without a program.
pub fn is_p4(name: &str) -> bool {
    name == LOGIC || program(name).is_some()
}

/// Returns the program's file in the name of a logic.
pub fn program(name: &str) -> Option<&str> {
    name.strip_prefix("p4:").filter(|file| !file.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_a_program() {
        assert_eq!((is_p4("p4"), program("p4")), (true, None));
        assert_eq!((is_p4("p4:/a.p4"), program("p4:/a.p4")), (true, Some("/a.p4")));
        assert!(!is_p4("p4:"));
        assert!(!is_p4("p4x"));
    }
}
