//! Lists of P4 port numbers as people write them: `3` or `3-4,8`.

/// Reads a list of numbers up to `most`; an empty text is an empty list.
///
/// # Errors
/// The part that is wrong, and what was expected.
pub fn port_numbers(text: &str, most: u16) -> Result<Vec<u32>, String> {
    let number = |text: &str| {
        let number = text.trim().parse::<u16>().ok().filter(|number| *number <= most);
        number
            .map(u32::from)
            .ok_or_else(|| format!("`{text}` is no port: ports have numbers from 0 to {most}"))
    };
    let mut numbers = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (number(from)?, number(to)?);
        if from > to {
            return Err(format!("`{part}` contains no port"));
        }
        numbers.extend(from..=to);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_numbers_and_ranges() {
        let read = |text| port_numbers(text, 509);
        assert_eq!(read(""), Ok(vec![]));
        assert_eq!(read("1"), Ok(vec![1]));
        assert_eq!(read("1,3-5, 9"), Ok(vec![1, 3, 4, 5, 9]));
        assert_eq!(read("5-3"), Err("`5-3` contains no port".into()));
        for wrong in ["eth0", "510", "-1", "1,,2"] {
            let text = read(wrong).unwrap_err();
            assert!(text.contains("ports have numbers from 0 to 509"), "{text}");
        }
    }
}
