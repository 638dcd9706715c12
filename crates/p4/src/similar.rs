//! Similar names: what a misspelt word may have meant.

/// Longest word that is compared.
const LONGEST: usize = 64;
/// Most candidates that are compared.
const MOST: usize = 1000;

/// The candidate most similar to a word, if one differs by few letters.
pub fn similar<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    if length > LONGEST {
        return None;
    }
    let most = length.div_ceil(3).min(3);
    candidates
        .into_iter()
        .take(MOST)
        .filter(|c| *c != word && c.len() <= LONGEST && c.len().abs_diff(word.len()) <= 2 * most)
        .filter_map(|c| Some((distance(word, c, most)?, c)))
        .filter(|(distance, c)| *distance < c.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}

/// Number of letters to insert, remove, replace or swap with their neighbour, if it is at most `most`; case counts less
/// than a letter: not at all, once.
fn distance(a: &str, b: &str, most: usize) -> Option<usize> {
    if a.eq_ignore_ascii_case(b) {
        return Some(1).filter(|one| *one <= most);
    }
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    let mut last_a = None;
    for (i, x) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        let mut last_b = None;
        for (j, &y) in b.iter().enumerate() {
            if i.abs_diff(j) > most {
                next.push(most + 1);
                continue;
            }
            let cost = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX / 2);
            let mut least = (cost(&row, j + 1) + 1).min(cost(&next, j) + 1);
            least = least.min(cost(&row, j) + usize::from(x != y));
            if j > 0 && last_a == Some(y) && last_b == Some(x) {
                least = least.min(cost(&before, j - 1) + 1);
            }
            next.push(least);
            last_b = Some(y);
        }
        last_a = Some(x);
        before = std::mem::replace(&mut row, next);
        // Costs only grow from row to row; a swap begins two rows above.
        if before.iter().chain(&row).all(|cost| *cost > most) {
            return None;
        }
    }
    row.last().copied().filter(|cost| *cost <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_letters_differ() {
        let words = ["header", "header_union", "struct", "transition", "in"];
        assert_eq!(similar("hedaer", words), Some("header"));
        assert_eq!(similar("Struct", words), Some("struct"));
        assert_eq!(similar("transtion", words), Some("transition"));
        assert_eq!(similar("packet", words), None);
        assert_eq!(similar("x", words), None);
        assert_eq!(similar("header", ["header"]), None);
    }

    #[test]
    fn a_swap_is_one_change() {
        assert_eq!(distance("hedaer", "header", 3), Some(1));
        assert_eq!(distance("abc", "", 3), Some(3));
        assert_eq!(distance("kitten", "sitting", 3), Some(3));
        assert_eq!(distance("kitten", "sitting", 2), None);
    }
}
