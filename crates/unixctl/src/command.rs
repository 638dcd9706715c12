//! Commands by name, with the number of arguments that they take.
//!
//! Invariant: a command's function is called only with a possible number of arguments.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::RangeInclusive;

/// The result of a command: text for standard output, or an error.
pub type Reply = Result<String, String>;

type Run = Box<dyn Fn(&[String]) -> Reply + Send + Sync>;

struct Command {
    usage: &'static str,
    arguments: RangeInclusive<usize>,
    run: Run,
}

/// Commands by name.
#[derive(Default)]
pub struct Commands(BTreeMap<&'static str, Command>);

impl Commands {
    /// Creates the set of commands that every daemon has: `list-commands` and `version`.
    pub fn new(version: &'static str) -> Self {
        let mut commands = Self::default();
        commands.add("version", "", 0..=0, move |_| Ok(version.into()));
        // Answered by `call`, which knows all commands.
        commands.add("list-commands", "", 0..=0, |_| Ok(String::new()));
        commands
    }

    /// Adds a command. `usage` names its arguments. `run` may block.
    pub fn add(
        &mut self,
        name: &'static str,
        usage: &'static str,
        arguments: RangeInclusive<usize>,
        run: impl Fn(&[String]) -> Reply + Send + Sync + 'static,
    ) {
        self.0.insert(name, Command { usage, arguments, run: Box::new(run) });
    }

    /// Runs a command.
    pub fn call(&self, name: &str, arguments: &[String]) -> Reply {
        let Some(command) = self.0.get(name) else {
            return Err(format!(
                "\"{name}\" is not a valid command (use \"list-commands\" to see those that are)"
            ));
        };
        let (least, most) = (*command.arguments.start(), *command.arguments.end());
        if arguments.len() < least {
            return Err(format!("\"{name}\" command requires at least {least} arguments"));
        }
        if arguments.len() > most {
            return Err(format!("\"{name}\" command takes at most {most} arguments"));
        }
        if name == "list-commands" {
            return Ok(self.list());
        }
        (command.run)(arguments)
    }

    fn list(&self) -> String {
        let mut list = String::from("The available commands are:\n");
        for (name, command) in &self.0 {
            // Writing to a string does not fail.
            let _ = writeln!(list, "{}", format!("  {name:<23} {}", command.usage).trim_end());
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_counted_before_a_command_runs() {
        let mut commands = Commands::new("ovs-vswitchd (test) 3.1.0");
        commands.add("fdb/show", "bridge", 1..=1, |arguments| Ok(arguments.concat()));
        let call = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).into()).collect();
            commands.call(&words[0], &words[1..])
        };
        assert_eq!(call(&["fdb/show", "br0"]).as_deref(), Ok("br0"));
        assert_eq!(call(&["fdb/show"]), Err("\"fdb/show\" command requires at least 1 arguments".into()));
        assert_eq!(call(&["version", "x"]), Err("\"version\" command takes at most 0 arguments".into()));
        let unknown = "\"x\" is not a valid command (use \"list-commands\" to see those that are)";
        assert_eq!(call(&["x"]), Err(unknown.into()));
        assert_eq!(
            call(&["list-commands"]).as_deref(),
            Ok("The available commands are:\n  fdb/show                bridge\n  list-commands\n  version\n")
        );
    }
}
