//! Ports of a line card on the command line: `1,2` or `1-4,8`.

use std::str::FromStr;

use p4::split::LAST_PORT;

/// P4 ports of a line card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CardPorts(pub(crate) Vec<u32>);

impl FromStr for CardPorts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut ports = Vec::new();
        for part in text.split(',') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to) = (number(from)?, number(to)?);
            if from > to {
                return Err(format!("`{part}` contains no port"));
            }
            ports.extend(from..=to);
        }
        Ok(Self(ports))
    }
}

fn number(text: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|number| *number <= LAST_PORT);
    number.ok_or_else(|| format!("`{text}` is no port: ports have numbers from 0 to {LAST_PORT}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers_and_ranges() {
        let parse = |text: &str| text.parse::<CardPorts>().map(|ports| ports.0);
        assert_eq!(parse("1"), Ok(vec![1]));
        assert_eq!(parse("1,3-5, 9"), Ok(vec![1, 3, 4, 5, 9]));
        assert_eq!(parse("5-3"), Err("`5-3` contains no port".into()));
        assert_eq!(parse("eth0"), Err("`eth0` is no port: ports have numbers from 0 to 509".into()));
        assert_eq!(parse("511"), Err("`511` is no port: ports have numbers from 0 to 509".into()));
    }
}
