//! Draws the screen of a full-screen program as SVG.
//!
//! `terminal-svg ROWS COLUMNS <OUTPUT >PICTURE`: OUTPUT is the program's terminal output (`script` records it). The
//! picture shows the last screen before the program restored the terminal. Equal screens give equal pictures: without
//! times, random identifiers or fonts of this machine.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::process::ExitCode;

use vt100::{Cell, Color, Screen};

/// Size of a cell in pixels.
const CELL: (u32, u32) = (8, 17);
/// Space around the screen.
const MARGIN: u32 = 14;
/// Distance of the baseline from a line's top.
const BASE: u32 = 13;
/// Default colours.
const BACKGROUND: &str = "#16191d";
const FOREGROUND: &str = "#d5d9de";
/// The 16 colours that terminals name.
const NAMED: [&str; 16] = [
    "#16191d", "#e06c6c", "#7ec27e", "#d9b25f", "#6ca3e0", "#c07ed0", "#5fbdbd", "#d5d9de", "#7a828c",
    "#ff8a8a", "#9be09b", "#f2cf7f", "#8dbdf5", "#dba0e8", "#80dcdc", "#ffffff",
];
/// Sequence that leaves the alternate screen.
const RESTORE: &[u8] = b"\x1b[?1049l";

fn main() -> ExitCode {
    let numbers: Vec<u16> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [rows, columns] = numbers[..] else {
        eprintln!("usage: terminal-svg ROWS COLUMNS <OUTPUT >PICTURE");
        return ExitCode::from(2);
    };
    let mut output = Vec::new();
    let drawn = std::io::stdin()
        .read_to_end(&mut output)
        .and_then(|_| std::io::stdout().write_all(picture(&output, rows, columns).as_bytes()));
    match drawn {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("terminal-svg: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Draws the last screen before the terminal was restored.
fn picture(output: &[u8], rows: u16, columns: u16) -> String {
    let end = output.windows(RESTORE.len()).rposition(|bytes| bytes == RESTORE).unwrap_or(output.len());
    let mut parser = vt100::Parser::new(rows, columns, 0);
    parser.process(output.get(..end).unwrap_or(output));
    svg(parser.screen())
}

fn svg(screen: &Screen) -> String {
    let (rows, columns) = screen.size();
    let (width, height) = (u32::from(columns) * CELL.0 + 2 * MARGIN, u32::from(rows) * CELL.1 + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" \
         font-size=\"13\" fill=\"{FOREGROUND}\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    );
    for row in 0..rows {
        let mut column = 0;
        while column < columns {
            let run = run(screen, row, column);
            draw(&mut svg, screen, row, column, &run);
            column += run.columns;
        }
    }
    svg + "</svg>\n"
}

/// Neighbouring cells of one style.
struct Run {
    columns: u16,
    text: String,
}

fn run(screen: &Screen, row: u16, start: u16) -> Run {
    let mut run = Run { columns: 0, text: String::new() };
    let style = |column| screen.cell(row, column).map(style);
    while start + run.columns < screen.size().1 && style(start + run.columns) == style(start) {
        let text = screen.cell(row, start + run.columns).map_or("", Cell::contents);
        run.text += if text.is_empty() { " " } else { text };
        run.columns += 1;
    }
    run
}

/// Foreground, background, bold, dim, underlined.
fn style(cell: &Cell) -> (Color, Color, bool, bool, bool) {
    let (front, back) = (cell.fgcolor(), cell.bgcolor());
    let (front, back) = match cell.inverse() {
        true => (or(back, Color::Idx(0)), or(front, Color::Idx(7))),
        false => (front, back),
    };
    (front, back, cell.bold(), cell.dim(), cell.underline())
}

fn or(color: Color, default: Color) -> Color {
    if color == Color::Default { default } else { color }
}

fn draw(svg: &mut String, screen: &Screen, row: u16, column: u16, run: &Run) {
    let Some(cell) = screen.cell(row, column) else { return };
    let (front, back, bold, dim, underline) = style(cell);
    let (x, y) = (u32::from(column) * CELL.0 + MARGIN, u32::from(row) * CELL.1 + MARGIN);
    let width = u32::from(run.columns) * CELL.0;
    if let Some(back) = hex(back) {
        let height = CELL.1;
        _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{back}\"/>"
        );
    }
    // Each word has its own position, so columns stay aligned whatever the font's width.
    let mut at = 0;
    for word in run.text.split_inclusive("  ") {
        let cells = word.chars().count();
        let shown = word.trim_end();
        let blanks = shown.chars().take_while(|c| *c == ' ').count();
        let shown = shown.trim_start();
        if !shown.is_empty() {
            let x = x + u32::try_from(at + blanks).unwrap_or(0) * CELL.0;
            let length = u32::try_from(shown.chars().count()).unwrap_or(0) * CELL.0;
            let mut attributes = String::new();
            if let Some(front) = hex(front) {
                _ = write!(attributes, " fill=\"{front}\"");
            }
            for (on, attribute) in [
                (bold, " font-weight=\"bold\""),
                (dim, " opacity=\"0.6\""),
                (underline, " text-decoration=\"underline\""),
            ] {
                attributes += if on { attribute } else { "" };
            }
            let text = shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let y = y + BASE;
            _ = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\" xml:space=\"preserve\"{attributes}>{text}</text>"
            );
        }
        at += cells;
    }
}

/// A colour in SVG's notation; `None` for the default.
fn hex(color: Color) -> Option<String> {
    match color {
        Color::Default => None,
        Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
        Color::Idx(index) => Some(match index {
            0..=15 => NAMED[usize::from(index)].to_owned(),
            // The cube of 6 × 6 × 6 colours, then shades of grey.
            16..=231 => {
                let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
                let n = index - 16;
                format!("#{:02x}{:02x}{:02x}", level(n / 36), level(n / 6 % 6), level(n % 6))
            }
            232..=255 => format!("#{0:02x}{0:02x}{0:02x}", 8 + 10 * (index - 232)),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_screen_is_drawn_with_its_styles() {
        let output =
            b"\x1b[?1049hold\x1b[2J\x1b[H\x1b[7mA  <B>\x1b[0m\r\n\x1b[2;31mdown\x1b[0m\x1b[?1049lshell";
        let drawn = picture(output, 2, 10);
        let lines: Vec<&str> = drawn.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "<rect x=\"14\" y=\"14\" width=\"48\" height=\"17\" fill=\"#d5d9de\"/>",
                "<text x=\"14\" y=\"27\" textLength=\"8\" xml:space=\"preserve\" fill=\"#16191d\">A</text>",
                "<text x=\"38\" y=\"27\" textLength=\"24\" xml:space=\"preserve\" fill=\"#16191d\">&lt;B&gt;</text>",
                "<text x=\"14\" y=\"44\" textLength=\"32\" xml:space=\"preserve\" fill=\"#e06c6c\" opacity=\"0.6\">down</text>",
                "</svg>",
            ]
        );
        assert_eq!(drawn, picture(output, 2, 10));
    }
}
