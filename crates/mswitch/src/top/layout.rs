//! Tables with a maximum width: columns are omitted by rank, words are shortened, lines never wrap.

/// Alignment of a column's cells, and the limit of shortening them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cells {
    /// Right-aligned numbers, never shortened: a shortened number is wrong.
    Number,
    /// Left-aligned words, shortened to no less than this many characters.
    Words(usize),
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) cells: Cells,
    /// Order of omission: the highest rank is omitted first, 0 never.
    pub(super) rank: u8,
}

/// Blanks between columns.
const GAP: usize = 2;

/// Shortens `text` to `width` characters; `…` replaces the end of a longer text.
pub(super) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    if width == 0 { kept } else { kept + "…" }
}

/// Returns the lines of a table, header first, none longer than `width`.
pub(super) fn table(
    columns: &[Column],
    titles: &[String],
    rows: &[Vec<String>],
    width: usize,
) -> Vec<String> {
    let longest = |i: usize| {
        let cells = rows.iter().filter_map(|row| row.get(i));
        cells.chain(titles.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    // Index, current width, full width.
    let mut kept: Vec<(usize, usize, usize)> = columns
        .iter()
        .enumerate()
        .map(|(i, column)| {
            let best = longest(i);
            match column.cells {
                Cells::Number => (i, best, best),
                Cells::Words(least) => (i, best.min(least), best),
            }
        })
        .collect();
    let needed = |kept: &[(usize, usize, usize)]| {
        kept.iter().map(|(_, now, _)| now).sum::<usize>() + GAP * kept.len().saturating_sub(1)
    };
    while needed(&kept) > width {
        let rank = |place: &usize| kept.get(*place).and_then(|(i, ..)| columns.get(*i)).map_or(0, |c| c.rank);
        match (0..kept.len()).max_by_key(rank).filter(|place| rank(place) > 0) {
            Some(place) => drop(kept.remove(place)),
            None => break,
        }
    }
    // Each remaining character goes to the narrowest shortened column.
    for _ in needed(&kept)..width {
        match kept.iter_mut().filter(|(_, now, best)| now < best).min_by_key(|(_, now, _)| *now) {
            Some((_, now, _)) => *now += 1,
            None => break,
        }
    }
    let line = |cells: &[String]| {
        let mut text = String::new();
        for (i, wide, _) in &kept {
            if !text.is_empty() {
                text.push_str("  ");
            }
            let cell = shorten(cells.get(*i).map_or("", String::as_str), *wide);
            match columns.get(*i).map(|column| column.cells) {
                Some(Cells::Number) => text.push_str(&format!("{cell:>wide$}")),
                _ => text.push_str(&format!("{cell:<wide$}")),
            }
        }
        shorten(text.trim_end(), width)
    };
    std::iter::once(line(titles)).chain(rows.iter().map(|row| line(row))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column { title: "NAME", cells: Cells::Words(4), rank: 0 },
        Column { title: "PACKETS", cells: Cells::Number, rank: 0 },
        Column { title: "MSG", cells: Cells::Words(3), rank: 1 },
    ];

    fn lines(width: usize) -> Vec<String> {
        let titles = COLUMNS.map(|column| column.title.to_owned());
        let rows = [vec!["a-long-name".into(), "12".into(), "because".into()]];
        table(&COLUMNS, &titles, &rows, width)
    }

    #[test]
    fn wide_tables_show_everything() {
        assert_eq!(lines(80), ["NAME         PACKETS  MSG", "a-long-name       12  because"]);
    }

    #[test]
    fn words_are_shortened_before_columns_are_omitted() {
        assert_eq!(lines(22), ["NAME    PACKETS  MSG", "a-lon…       12  beca…"]);
        assert_eq!(lines(18), ["NAME  PACKETS  MSG", "a-l…       12  be…"]);
        assert_eq!(lines(17), ["NAME      PACKETS", "a-long-…       12"]);
    }

    #[test]
    fn no_line_exceeds_the_width() {
        for width in 0..40 {
            for line in lines(width) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }
}
