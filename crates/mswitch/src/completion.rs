//! Shell completion: a script for the shell, and the candidates that the script requests at each TAB.
//!
//! clap's completion engine knows commands and options. The running daemon knows bridges, ports, logics and parameters
//! ([`live`]). A TAB must neither hang the shell nor print errors into the command line: the daemon has [`live::LIMIT`]
//! to answer, and a failure yields no candidates.

mod line;
mod live;

use std::ffi::OsString;
use std::fmt::Write;
use std::sync::Arc;

use clap::{Arg, Command, CommandFactory};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, complete,
};

use crate::cli::{Cli, Shell};
use live::Words;

/// Returns the script that makes a shell request candidates.
pub(crate) fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => include_str!("completion/mswitch.bash"),
        Shell::Zsh => include_str!("completion/_mswitch"),
        Shell::Fish => include_str!("completion/mswitch.fish"),
    }
}

/// Returns the reply to a shell's script: one candidate per line, for zsh and fish with a tab and a description.
///
/// zsh and fish pass the words up to the cursor. bash passes `$COMP_WORDBREAKS` and the line up to the cursor, because
/// it splits words at `=` and `:` and expects candidates for the last part only.
pub(crate) fn reply(shell: Shell, arguments: Vec<OsString>) -> String {
    let mut reply = String::new();
    match shell {
        Shell::Bash => {
            let [breaks, line] = arguments.as_slice() else { return reply };
            let typed = line::Typed::parse(&line.to_string_lossy());
            let before = typed.before(&breaks.to_string_lossy());
            for candidate in candidates(typed.words.iter().map(OsString::from).collect()) {
                let value = candidate.get_value().to_string_lossy();
                if let Some(rest) = value.strip_prefix(before).and_then(|rest| typed.quote(rest)) {
                    _ = writeln!(reply, "{rest}");
                }
            }
        }
        Shell::Zsh | Shell::Fish => {
            for candidate in candidates(arguments) {
                let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
                let help = help.lines().next().unwrap_or_default();
                _ = writeln!(reply, "{}\t{help}", candidate.get_value().to_string_lossy());
            }
        }
    }
    reply
}

/// Returns candidates for the last word.
fn candidates(words: Vec<OsString>) -> Vec<CompletionCandidate> {
    let Some((last, before)) = words.split_last() else { return Vec::new() };
    let is_empty = last.is_empty();
    let mut command = annotated(Cli::command(), &mut Vec::new(), &Arc::new(Words::new(before)));
    let cursor = words.len() - 1;
    let mut found = complete(&mut command, words, cursor, None).unwrap_or_default();
    // clap offers hidden candidates if there are no others.
    found.retain(|candidate| !candidate.is_hide_set());
    // For an empty word, names come without the list of options.
    let is_option =
        |candidate: &CompletionCandidate| candidate.get_value().to_string_lossy().starts_with('-');
    if is_empty && !found.iter().all(is_option) {
        found.retain(|candidate| !is_option(candidate));
    }
    found
}

/// Adds candidates to the arguments of a command and of its subcommands.
fn annotated(command: Command, path: &mut Vec<String>, words: &Arc<Words>) -> Command {
    let command = command.mut_args(|arg| with_candidates(arg, path, words));
    command.mut_subcommands(|below| {
        path.push(below.get_name().to_owned());
        let below = annotated(below, path, words);
        path.pop();
        below
    })
}

/// Adds candidates to an argument. The ids of arguments are field names in `cli.rs`.
fn with_candidates(arg: Arg, path: &[String], words: &Arc<Words>) -> Arg {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let fixed = |values: &'static [&'static str]| {
        ArgValueCandidates::new(move || values.iter().map(|value| CompletionCandidate::new(*value)).collect())
    };
    let ask = |question: fn(&Words) -> Vec<CompletionCandidate>| {
        let words = Arc::clone(words);
        ArgValueCandidates::new(move || question(&words))
    };
    let id = arg.get_id().as_str().to_owned();
    if path == ["port", "add"] && words.lacks_option(&id) {
        return arg.hide(true);
    }
    match (path.as_slice(), id.as_str()) {
        (["port", "add"], "port") => arg,
        (["bridge", "del" | "show" | "groups"], "name") | (_, "bridge") => arg.add(ask(Words::bridges)),
        (["mirror", "del"], "name") => arg.add(ask(Words::mirrors)),
        (_, "port" | "ports" | "from" | "to") => arg.add(ask(Words::ports)),
        (["logic", "list"], "name") | (_, "logic") => arg.add(completer(words, Words::logics)),
        (_, "params") => arg.add(completer(words, Words::params)),
        (["logic", "call"], "command") => arg.add(ask(Words::commands)),
        (["logic", "show"], "table") => arg.add(ask(Words::tables)),
        (["port", "add"], "kind") => arg.add(fixed(ports::Spec::TYPES)),
        (["port", "add"], "others") => arg.add(ask(Words::options)),
        (["port", "add"], "host") => arg.add(ask(Words::tap_ports)),
        (["port", "add"], "peer") => arg.add(ask(Words::patch_ports)),
        (["port", "add"], "path" | "read" | "write") => arg.add(ArgValueCompleter::new(PathCompleter::any())),
        (["port", "add"], "role") => arg.add(fixed(&["server", "client"])),
        (["port", "add"], "driver") => arg.add(fixed(&["auto", "af-packet", "af-xdp"])),
        (["port", "add"], "offloads") => arg.add(fixed(&["true", "false"])),
        (_, "isolated" | "sticky" | "persist" | "busy-poll") => arg.add(fixed(&["on", "off"])),
        (_, "fail_mode") => arg.add(fixed(&["standalone", "secure"])),
        (_, "versions") => arg.add(fixed(&["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"])),
        (_, "file" | "private_key" | "certificate" | "ca_cert") => {
            arg.add(ArgValueCompleter::new(PathCompleter::any()))
        }
        (_, "kinds") => arg.add(fixed(control::events::KINDS)),
        _ => arg,
    }
}

/// Returns a completer whose candidates depend on the current word.
fn completer(
    words: &Arc<Words>,
    question: fn(&Words, &str) -> Vec<CompletionCandidate>,
) -> ArgValueCompleter {
    let words = Arc::clone(words);
    ArgValueCompleter::new(move |typed: &std::ffi::OsStr| question(&words, &typed.to_string_lossy()))
}
