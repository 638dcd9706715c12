//! `mswitch man`: manual pages, generated from the definition of the command line.

use std::io::Write;
use std::path::Path;

use clap::{ArgAction, CommandFactory};
use clap_mangen::Man;

use crate::cli::Cli;
use crate::failure::Failure;

/// Section of every page.
const ENVIRONMENT: &str = "\
.SH ENVIRONMENT
.TP
MSWITCH_SOCKET
The daemon\\(aqs control socket, unless \\fB\\-\\-socket\\fR names it. \\fBmswitch daemon\\fR reads its file first: \
\\fB\\-\\-socket\\fR, then \\fIsocket\\fR in the file, then this variable.";

/// Writes `mswitch.1` and a page for every command below it, such as `mswitch-port-add.1`.
pub(super) fn pages(directory: &Path, date: &str) -> Result<(), Failure> {
    let write_error = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| Failure::new(format_args!("cannot write {path}: {error}"))
    };
    std::fs::create_dir_all(directory).map_err(write_error(directory))?;
    // `mswitch help` repeats the pages, so it has none, and no page refers to one.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    for (typed, command) in with_subcommands(command, "mswitch".into()) {
        let file = directory.join(format!("{}.1", page_name(&typed)));
        let text = page(&typed, command, date).map_err(write_error(&file))?;
        std::fs::write(&file, text).map_err(write_error(&file))?;
    }
    Ok(())
}

/// Returns a command and its subcommands, as they are typed.
fn with_subcommands(command: clap::Command, typed: String) -> Vec<(String, clap::Command)> {
    let below: Vec<_> = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
        .flat_map(|below| with_subcommands(below.clone(), format!("{typed} {}", below.get_name())))
        .collect();
    std::iter::once((typed, command)).chain(below).collect()
}

/// Returns the name of a command's page. Commands may have dashes of their own.
fn page_name(typed: &str) -> String {
    typed.replace(' ', "-")
}

fn page(typed: &str, command: clap::Command, date: &str) -> std::io::Result<Vec<u8>> {
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (has_arguments, has_commands) =
        (command.get_arguments().next().is_some(), command.get_subcommands().next().is_some());
    let synopsis = synopsis(typed, &command);
    let man = Man::new(command.display_name(page_name(typed)).bin_name(typed).after_help(""))
        .date(date)
        .source(concat!("mswitch ", env!("CARGO_PKG_VERSION")))
        .manual("mswitch manual");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    writeln!(text, ".SH SYNOPSIS\n{synopsis}")?;
    man.render_description_section(&mut text)?;
    if has_arguments {
        man.render_options_section(&mut text)?;
    }
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    writeln!(text, "{ENVIRONMENT}")?;
    // Verbatim, without filling or hyphenation.
    let examples: Vec<&str> = examples.lines().skip(1).map(str::trim).collect();
    if !examples.is_empty() {
        writeln!(text, ".SH EXAMPLES\n.nf")?;
        for line in examples {
            writeln!(text, "{}", line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq"))?;
        }
        writeln!(text, ".fi")?;
    }
    if let Some(above) = above(typed) {
        writeln!(text, ".SH \"SEE ALSO\"\n{above}")?;
    }
    Ok(text)
}

/// Returns the command line of a command, with the values of its options.
fn synopsis(typed: &str, command: &clap::Command) -> String {
    let mut words = vec![format!("\\fB{}\\fR", dashes(typed))];
    let shown = || command.get_arguments().filter(|argument| !argument.is_hide_set());
    for option in shown() {
        let Some(flag) = option.get_long().filter(|flag| !["help", "version"].contains(flag)) else {
            continue;
        };
        let value = value_of(option).filter(|_| option.get_action().takes_values());
        let value = value.map(|value| format!(" \\fI{}\\fR", dashes(&value))).unwrap_or_default();
        words.push(optional(option, format!("\\fB\\-\\-{}\\fR{value}", dashes(flag))));
    }
    for argument in shown().filter(|argument| argument.is_positional()) {
        let value = value_of(argument).unwrap_or_default();
        let several = if matches!(argument.get_action(), ArgAction::Append) { "..." } else { "" };
        words.push(optional(argument, format!("\\fI{}\\fR{several}", dashes(&value))));
    }
    if command.has_subcommands() {
        words.push("\\fICOMMAND\\fR".into());
    }
    words.join(" ")
}

fn value_of(argument: &clap::Arg) -> Option<String> {
    Some(argument.get_value_names()?.first()?.to_string())
}

fn optional(argument: &clap::Arg, text: String) -> String {
    if argument.is_required_set() { text } else { format!("[{text}]") }
}

/// Escapes dashes, which roff would set as hyphens.
fn dashes(text: &str) -> String {
    text.replace('-', "\\-")
}

/// Returns the pages of the commands above a command.
fn above(typed: &str) -> Option<String> {
    let mut pages = Vec::new();
    let mut typed = typed;
    while let Some((above, _)) = typed.rsplit_once(' ') {
        pages.push(format!("\\fB{}\\fR(1)", dashes(&page_name(above))));
        typed = above;
    }
    (!pages.is_empty()).then(|| pages.join(", "))
}
