//! Usage errors: clap's, with remedies that clap does not know.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::cli::Cli;

/// Parses the command line. As with clap, help and errors end the process, an error with exit code 2.
pub(crate) fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| improve(error).exit())
}

/// Replaces clap's advice to pass an unknown flag as a value, which helps only at `logic call`.
fn improve(mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    if usage.contains("mswitch logic call") {
        return error;
    }
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) => flag.clone(),
        _ => return error,
    };
    error.remove(ContextKind::Suggested);
    if usage.contains("mswitch port set") && is_flag_of_port_add(&flag) {
        let advice = format!(
            "`port set` cannot change `{flag}`; remove the port with `mswitch port del` and add it again"
        );
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    }
    error
}

fn is_flag_of_port_add(flag: &str) -> bool {
    let command = Cli::command();
    let add = command.find_subcommand("port").and_then(|port| port.find_subcommand("add"));
    let name = flag.trim_start_matches('-');
    add.is_some_and(|add| add.get_arguments().any(|argument| argument.get_long() == Some(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> String {
        improve(Cli::try_parse_from(line.split(' ')).unwrap_err()).to_string()
    }

    #[test]
    fn a_flag_of_port_add_is_explained_at_port_set() {
        assert_eq!(
            error("mswitch port set br0 vm1 --netns blue"),
            "error: unexpected argument '--netns' found\n\n  tip: `port set` cannot change `--netns`; remove the port \
             with `mswitch port del` and add it again\n\n\
             Usage: mswitch port set <BRIDGE> <PORT>\n\nFor more information, try '--help'.\n"
        );
    }

    #[test]
    fn a_flag_is_not_offered_as_a_value() {
        for line in
            ["mswitch port set br0 vm1 --colour red", "mswitch port del br0 vm1 --force", "mswitch status -x"]
        {
            let error = error(line);
            assert!(
                error.starts_with("error: unexpected argument") && !error.contains("as a value"),
                "{error}"
            );
        }
        // `logic call` accepts it as a value.
        assert!(error("mswitch logic call br0 --rules").contains("use '-- --rules'"));
    }
}
