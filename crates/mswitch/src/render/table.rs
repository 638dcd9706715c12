//! Aligned columns, wrapped to the terminal's width.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Title and alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column<'a> {
    /// Left-aligned, for words.
    Left(&'a str),
    /// Right-aligned, for numbers.
    Right(&'a str),
}

/// Renders a table with a header, or `nothing` if there are no rows.
pub(crate) fn table(columns: &[Column<'_>], rows: Vec<Vec<String>>, nothing: &str) -> String {
    if rows.is_empty() {
        return format!("{nothing}\n");
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    // Lines for a pipe or a file are not wrapped: programs read them.
    match terminal_width() {
        Some(width) => table.set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    table.set_header(columns.iter().map(|column| match column {
        Column::Left(name) | Column::Right(name) => *name,
    }));
    table.add_rows(rows);
    for (i, column) in columns.iter().enumerate() {
        let last = i + 1 == columns.len();
        if let Some(style) = table.column_mut(i) {
            style.set_padding((0, if last { 0 } else { 2 }));
            if matches!(column, Column::Right(_)) {
                style.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    format!("{}\n", table.trim_fmt())
}

/// Returns the terminal's width; `None` if standard output is not a terminal.
fn terminal_width() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(if size.ws_col > 0 { size.ws_col } else { 80 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_left_numbers_right() {
        let columns = [Column::Left("PORT"), Column::Right("PACKETS")];
        let rows = vec![vec!["a".into(), "1".into()], vec!["bcdef".into(), "1,000".into()]];
        assert_eq!(table(&columns, rows, "none"), "PORT   PACKETS\na            1\nbcdef    1,000\n");
    }

    #[test]
    fn an_empty_table_has_a_message() {
        assert_eq!(table(&[Column::Left("PORT")], Vec::new(), "no ports"), "no ports\n");
    }
}
