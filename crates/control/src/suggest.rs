//! Suggestions for an unknown name: the nearest known name, and the list of all.

/// Lists names as alternatives: `a`, `b` or `c`.
pub fn one_of<S: AsRef<str>>(known: &[S]) -> String {
    let quoted: Vec<String> = known.iter().map(|name| format!("`{}`", name.as_ref())).collect();
    match quoted.as_slice() {
        [] => "nothing".into(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Returns the text that follows "unknown …": the nearest known name, if one is similar, and the list of all.
pub fn instead<S: AsRef<str>>(wrong: &str, known: &[S]) -> String {
    let all = format!("expected {}", one_of(known));
    match nearest(wrong, known) {
        Some(name) if known.len() > 1 => format!("did you mean `{name}`? ({all})"),
        _ => all,
    }
}

/// Returns the known name that is most similar to a wrong one, if any is similar.
pub fn nearest<'a, S: AsRef<str>>(wrong: &str, known: &'a [S]) -> Option<&'a str> {
    known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(wrong, name.as_ref()), name.as_ref()))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 4)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_name_is_suggested_and_all_are_listed() {
        assert_eq!(
            instead("sokcet", &["id", "role", "socket"]),
            "did you mean `socket`? (expected `id`, `role` or `socket`)"
        );
    }

    #[test]
    fn without_a_similar_name_all_are_listed() {
        assert_eq!(instead("colour", &["id", "role"]), "expected `id` or `role`");
        assert_eq!(instead("x", &["only"]), "expected `only`");
    }
}
