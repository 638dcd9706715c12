//! Splits a line into words: at white space that is not within quotes or parentheses.

/// The words of a line, without its comment. Quotes are taken off where they surround a name.
pub(super) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut depth) = (false, 0_u32);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted && depth == 0 && word.is_empty() => break,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth = depth.checked_sub(1).ok_or("`)` without `(`")?,
            _ => {}
        }
        if c.is_whitespace() && !quoted && depth == 0 {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            continue;
        }
        word.push(c);
    }
    if quoted {
        return Err("a quote is not closed".to_owned());
    }
    if depth > 0 {
        return Err("`(` without `)`".to_owned());
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    Ok(words)
}

/// Splits at a character that is not within quotes.
pub(super) fn split_once(text: &str, at: char) -> Option<(&str, &str)> {
    let mut quoted = false;
    for (i, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if c == at && !quoted => return Some((text.get(..i)?, text.get(i + c.len_utf8()..)?)),
            _ => {}
        }
    }
    None
}

/// A name without its quotes.
pub(super) fn unquoted(name: &str) -> &str {
    let name = name.trim();
    name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name)
}
