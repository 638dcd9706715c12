//! The place of an error. libpcap reports none, but its parser stops at the first word that it does not accept: so the
//! parser is given one word more at a time, followed by a word that makes its *lexer* fail. The lexer's complaint means
//! that the parser accepted all words before.

use crate::code_of;

/// A word that the lexer refuses: an incomplete Ethernet address.
const PROBE: &str = "1:2:";

/// Returns the place of the first word that libpcap does not accept; the length of the expression if a word is missing
/// at its end, `None` if it accepts all words but not their meaning as a whole.
pub(crate) fn of(expression: &str) -> Option<usize> {
    if expression.contains('\0') {
        return None;
    }
    let words = words(expression);
    let is_accepted = |(_, end): &(usize, usize)| {
        let front = expression.get(..*end).unwrap_or_default();
        code_of(&format!("{front} {PROBE}"), false).is_err_and(|reason| reason.contains(PROBE))
    };
    // Once refused, always refused.
    match words.get(words.partition_point(is_accepted)) {
        Some((start, _)) => Some(*start),
        None => {
            let reason = code_of(expression, false).err()?;
            reason.contains("syntax error").then_some(expression.len())
        }
    }
}

/// Returns start and end of each word or sign.
fn words(expression: &str) -> Vec<(usize, usize)> {
    let mut words: Vec<(usize, usize)> = Vec::new();
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '\\');
    let mut before = ' ';
    for (at, c) in expression.char_indices() {
        let end = at + c.len_utf8();
        match words.last_mut() {
            Some(last) if is_word(c) && is_word(before) => last.1 = end,
            _ if !c.is_whitespace() => words.push((at, end)),
            _ => {}
        }
        before = c;
    }
    words
}
