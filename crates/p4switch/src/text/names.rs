//! Names: whole, or their ends.

use p4::similar::similar;

/// Finds a name: the equal one, else the only one that ends in it behind a dot.
///
/// # Errors
/// There is none, or several.
pub(super) fn find<'n, T>(
    what: &str,
    wanted: &str,
    items: impl Iterator<Item = (&'n str, T)> + Clone,
) -> Result<T, String> {
    let wanted = wanted.strip_prefix('.').unwrap_or(wanted);
    if let Some((_, item)) = items.clone().find(|(name, _)| *name == wanted) {
        return Ok(item);
    }
    let mut ends = items.clone().filter(|(name, _)| is_end(name, wanted));
    match (ends.next(), ends.next()) {
        (Some((_, item)), None) => Ok(item),
        (Some((one, _)), Some((other, _))) => {
            Err(format!("{what} {wanted} may be {one} or {other}: write more of the name"))
        }
        (None, _) => {
            let names = || items.clone().map(|(name, _)| name);
            let ends = names().flat_map(|name| [name, last(name)]);
            let known: Vec<&str> = names().take(10).collect();
            Err(match similar(wanted, ends) {
                Some(similar) => format!("unknown {what} {wanted}: did you mean {similar}?"),
                None if known.is_empty() => format!("unknown {what} {wanted}: there are none"),
                None => format!("unknown {what} {wanted} (known: {})", known.join(", ")),
            })
        }
    }
}

/// The shortest end of a name that no other has, and that is no word with a meaning of its own.
pub(super) fn short<'n>(
    name: &'n str,
    others: impl Iterator<Item = &'n str> + Clone,
    words: &[&str],
) -> String {
    let starts = name.char_indices().rev().filter(|(_, c)| *c == '.').map(|(at, _)| at + 1).chain([0]);
    for start in starts {
        let Some(end) = name.get(start..).filter(|end| !end.is_empty()) else { continue };
        let fits = others.clone().filter(|other| *other == end || is_end(other, end)).count();
        let is_other = others.clone().any(|other| other == end && other != name);
        if fits == 1 && !is_other && !words.contains(&end) && is_plain(end) {
            return end.to_owned();
        }
    }
    if is_plain(name) && !words.contains(&name) {
        return name.to_owned();
    }
    // A dot in front says that it is a name.
    format!("\".{name}\"")
}

fn is_end(name: &str, end: &str) -> bool {
    name.strip_suffix(end).is_some_and(|front| front.ends_with('.'))
}

fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Whether a name needs no quotes.
fn is_plain(name: &str) -> bool {
    !name.starts_with('.') && name.chars().all(|c| c.is_ascii_alphanumeric() || "._$:".contains(c))
}
