//! Ports of a line card on the command line: `1,2` or `1-4,8`.

use std::str::FromStr;

use control::p4::port_numbers;
use p4::split::LAST_PORT;

/// P4 ports of a line card.
#[derive(Debug, Clone)]
pub(crate) struct CardPorts(pub(crate) Vec<u32>);

impl FromStr for CardPorts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        port_numbers(text, LAST_PORT).map(Self)
    }
}
