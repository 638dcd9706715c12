//! Logics.

use control::proto;

use super::pairs;

/// `mswitch logic show`.
pub(crate) fn show(logic: &proto::Logic) -> String {
    let params = if logic.params.is_empty() { "none".into() } else { pairs(&logic.params) };
    format!("logic       {}\nparameters  {params}\n", logic.name)
}

/// `mswitch logic list`: each with its parameters and what it can be asked to do.
pub(crate) fn list(logics: &[proto::LogicType]) -> String {
    let mut out = String::new();
    for logic in logics {
        out += &format!("{}: {}\n", logic.name, logic.summary);
        for param in &logic.params {
            out += &format!("    {}: {}\n", param.name, param.summary);
            out += &format!("        {} (default: {})\n", param.expected, param.default);
        }
        out += &commands(&logic.commands);
    }
    if logics.iter().any(|logic| logic.from_file && logic.name.ends_with(":FILE")) {
        out += "`mswitch logic list NAME:FILE` says what a file takes\n";
    }
    out
}

/// What a logic can be asked to do: a line each.
fn commands(commands: &[proto::LogicCommand]) -> String {
    let line = |command: &proto::LogicCommand| {
        let words = format!("{} {}", command.name, command.usage);
        format!("    call {}: {}\n", words.trim_end(), command.summary)
    };
    commands.iter().map(line).collect()
}
