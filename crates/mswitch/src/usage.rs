//! Usage errors: clap's, with remedies that clap does not know.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::cli::Cli;

/// Parses the command line. As with clap, help and errors end the process, an error with exit code 2.
pub(crate) fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| improve(error).exit())
}

/// Commands of `ovs-vsctl`, and those that do the same here.
const COMMANDS_OF_OVS: &[(&str, &str)] = &[
    ("add-br", "`mswitch bridge add BRIDGE`"),
    ("del-br", "`mswitch bridge del BRIDGE`"),
    ("list-br", "`mswitch bridge list`"),
    ("add-port", "`mswitch port add BRIDGE PORT --type TYPE`"),
    ("del-port", "`mswitch port del BRIDGE PORT`"),
    ("list-ports", "`mswitch port list BRIDGE`"),
    ("show", "`mswitch status`, `mswitch port list` or `mswitch config show`"),
];

/// The advice for an argument as `ovs-vsctl` takes it.
fn of_ovs(argument: &str) -> Option<String> {
    let name = argument.trim_start_matches('-').split('=').next()?;
    let advice = match name {
        "tag" => "the VLAN of an access port is `--vlan access:10`",
        "may-exist" => {
            "the option follows the command: `mswitch port add BRIDGE PORT --type TYPE --may-exist`"
        }
        "if-exists" => "the option follows the command: `mswitch port del BRIDGE PORT --if-exists`",
        "trunks" => "the VLANs of a trunk port are `--vlan trunk:10,20-29`",
        _ => return None,
    };
    Some(advice.into())
}

fn advise(error: &mut clap::Error, advice: String) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
}

/// Replaces clap's advice to pass an unknown flag as a value, which only `logic call` has a use for, and names the
/// equivalents of Open vSwitch's words.
fn improve(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(command)) = error.get(ContextKind::InvalidSubcommand)
        && let Some((_, ours)) = COMMANDS_OF_OVS.iter().find(|(theirs, _)| theirs == command)
    {
        error.remove(ContextKind::SuggestedSubcommand);
        advise(&mut error, format!("the command is {ours}"));
        return error;
    }
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
        advise(&mut error, advice);
    } else if let Some(advice) = of_ovs(&flag) {
        error.remove(ContextKind::SuggestedArg);
        advise(&mut error, advice);
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
    fn words_of_open_vswitch_lead_to_ours() {
        for (line, advice) in [
            ("mswitch add-br br0", "the command is `mswitch bridge add BRIDGE`"),
            ("mswitch add-port br0 vm1", "the command is `mswitch port add BRIDGE PORT --type TYPE`"),
            ("mswitch show", "the command is `mswitch status`, `mswitch port list` or `mswitch config show`"),
            (
                "mswitch port add br0 vm1 --type tap tag=10",
                "the VLAN of an access port is `--vlan access:10`",
            ),
            (
                "mswitch --may-exist bridge add br0",
                "the option follows the command: `mswitch port add BRIDGE PORT --type TYPE --may-exist`",
            ),
            (
                "mswitch --if-exists bridge del br0",
                "the option follows the command: `mswitch port del BRIDGE PORT --if-exists`",
            ),
            ("mswitch port set br0 vm1 --tag 10", "the VLAN of an access port is `--vlan access:10`"),
            (
                "mswitch port set br0 vm1 trunks=10,20",
                "the VLANs of a trunk port are `--vlan trunk:10,20-29`",
            ),
        ] {
            let error = error(line);
            assert_eq!(error.lines().nth(2), Some(format!("  tip: {advice}").as_str()), "{line}: {error}");
            assert_eq!(error.matches("tip:").count(), 1, "{error}");
        }
    }

    /// Commands that are recommended exist.
    #[test]
    fn our_commands_exist() {
        let ours = COMMANDS_OF_OVS.iter().flat_map(|(_, ours)| ours.split('`').skip(1).step_by(2));
        for line in ours {
            let words = line.split(' ').skip(1).take_while(|word| word.starts_with(char::is_lowercase));
            let command = Cli::command();
            words.fold(&command, |command, word| {
                command.find_subcommand(word).unwrap_or_else(|| panic!("{line}"))
            });
        }
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
