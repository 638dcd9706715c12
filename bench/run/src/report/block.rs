//! Blocks of a report, and how they look in Markdown and in HTML.

use std::fmt::Write;

use crate::plot::escape;

/// A block.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Block {
    /// Heading: 1 is the report's title.
    Heading(u8, String),
    /// Text.
    Paragraph(String),
    /// Lines of a list.
    List(Vec<String>),
    /// A caption, names of columns, and rows.
    Table { caption: String, head: Vec<String>, rows: Vec<Vec<String>> },
    /// Name of its file without ending, and the picture.
    Plot { name: String, svg: String },
    /// Lines of a shell.
    Commands(Vec<String>),
}

/// Names and pictures of all plots.
pub(super) fn plots(blocks: &[Block]) -> impl Iterator<Item = (&str, &str)> {
    blocks.iter().filter_map(|block| match block {
        Block::Plot { name, svg } => Some((name.as_str(), svg.as_str())),
        _ => None,
    })
}

/// Text on one line, in which nothing is HTML: messages of programs hold anything.
fn inline(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    escape(&lines.join(" "))
}

/// The report in Markdown; plots are files beside it.
pub(super) fn markdown(blocks: &[Block]) -> String {
    let mut text = String::new();
    for block in blocks {
        // Writing to a string does not fail.
        let _ = match block {
            Block::Heading(level, heading) => {
                writeln!(text, "{} {}", "#".repeat(usize::from(*level)), inline(heading))
            }
            Block::Paragraph(words) => writeln!(text, "{}", inline(words)),
            Block::List(items) => items.iter().try_for_each(|item| writeln!(text, "- {}", inline(item))),
            Block::Table { caption, head, rows } => {
                let row = |cells: &[String]| {
                    let cells: Vec<String> =
                        cells.iter().map(|cell| inline(cell).replace('|', "\\|")).collect();
                    format!("| {} |", cells.join(" | "))
                };
                let rule = format!("|{}", " --- |".repeat(head.len()));
                let body: Vec<String> = rows.iter().map(|cells| row(cells)).collect();
                writeln!(text, "{}\n\n{}\n{rule}\n{}", inline(caption), row(head), body.join("\n"))
            }
            Block::Plot { name, .. } => writeln!(text, "![{name}](plots/{name}.svg)"),
            Block::Commands(lines) => writeln!(text, "```sh\n{}\n```", lines.join("\n")),
        };
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

const HEAD: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
    content=\"width=device-width\">\n<title>Benchmark of software switches</title>\n<style>\n\
    body{font:15px/1.5 DejaVu Sans,Verdana,Helvetica,sans-serif;color:#222;max-width:62em;margin:2em auto;padding:0 1em}\n\
    table{border-collapse:collapse;margin:1em 0}caption{text-align:left;padding:.3em 0}\n\
    th,td{border-bottom:1px solid #ddd;padding:.25em .7em;text-align:right;white-space:nowrap}\n\
    th:first-child,td:first-child{text-align:left}th{border-bottom:2px solid #888}\n\
    pre{background:#f5f5f5;padding:.8em;overflow-x:auto}svg{max-width:100%;height:auto;display:block;margin:1em 0}\n\
    </style>\n</head>\n<body>\n";

/// The report in HTML, in one file.
pub(super) fn html(blocks: &[Block]) -> String {
    let mut text = HEAD.to_owned();
    for block in blocks {
        let _ = match block {
            Block::Heading(level, heading) => writeln!(text, "<h{level}>{}</h{level}>", escape(heading)),
            Block::Paragraph(words) => writeln!(text, "<p>{}</p>", escape(words)),
            Block::List(items) => {
                let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
                writeln!(text, "<ul>\n{items}</ul>")
            }
            Block::Table { caption, head, rows } => {
                let row = |cells: &[String], tag: &str| {
                    let cells: String =
                        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
                    format!("<tr>{cells}</tr>\n")
                };
                let body: String = rows.iter().map(|cells| row(cells, "td")).collect();
                writeln!(
                    text,
                    "<table>\n<caption>{}</caption>\n{}{body}</table>",
                    escape(caption),
                    row(head, "th")
                )
            }
            Block::Plot { svg, .. } => writeln!(text, "{svg}"),
            Block::Commands(lines) => writeln!(text, "<pre>{}</pre>", escape(&lines.join("\n"))),
        };
    }
    text + "</body>\n</html>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_hold_everything_and_escape_it() {
        let blocks = [
            Block::Heading(2, "A & B".into()),
            Block::Table {
                caption: "rates".into(),
                head: vec!["peer".into(), "64 B".into()],
                rows: vec![vec!["a|b\nc".into(), "<1".into()]],
            },
            Block::Plot { name: "p".into(), svg: "<svg/>".into() },
            Block::Commands(vec!["a >b".into()]),
        ];
        assert_eq!(
            markdown(&blocks),
            "## A &amp; B\n\nrates\n\n| peer | 64 B |\n| --- | --- |\n| a\\|b c | &lt;1 |\n\n![p](plots/p.svg)\n\n```sh\na >b\n```\n"
        );
        let html = html(&blocks);
        for part in ["<h2>A &amp; B</h2>", "<td>&lt;1</td>", "<svg/>", "<pre>a &gt;b</pre>"] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert_eq!(plots(&blocks).collect::<Vec<_>>(), [("p", "<svg/>")]);
    }
}
