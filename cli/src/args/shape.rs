//! What the help of each command shows.
//!
//! In the Perl client options may stand before or after the command, so all its options are global. Here each
//! is shown by the commands alone that take it; the others accept it still, without a word, as Perl does.

use std::collections::HashMap;
use std::sync::LazyLock;

use clap::{Arg, Command};

/// What `--config` is for a command that is about the installation and not about a DCI.
const CONFIGURATION: &str = "Configuration file of Disbatch [default: /etc/disbatch/config.json]";

struct Shape {
    /// The global options that it takes, beside those of the connection if it speaks to a DCI.
    options: Vec<&'static str>,
    connects: bool,
    examples: &'static str,
}

impl Shape {
    /// Whether the command takes this global option; those of the connection are not hidden.
    fn takes(&self, arg: &Arg) -> bool {
        (self.connects && !arg.is_hide_set()) || self.options.contains(&arg.get_id().as_str())
    }

    fn describe(&self, arg: &Arg) -> Arg {
        let arg = arg.clone();
        if arg.get_id() == "config" && self.options.contains(&"config") {
            return arg.help(CONFIGURATION).help_heading(None::<&str>);
        }
        arg
    }
}

static SHAPES: LazyLock<HashMap<&str, Shape>> =
    LazyLock::new(|| include_str!("help.txt").split("\n# ").skip(1).filter_map(shape).collect());

/// The shape in a block of the file: a line with the command's name and its options, and the help below that.
fn shape(block: &'static str) -> Option<(&'static str, Shape)> {
    let (head, examples) = block.split_once('\n')?;
    let (name, options) = head.split_once(':')?;
    let options: Vec<&str> = options.split_whitespace().collect();
    let connects = !options.contains(&"offline");
    Some((name, Shape { options, connects, examples: examples.trim_end() }))
}

/// The name of a command in the group `group`, which is empty for those that are in none.
fn full_name(group: &str, command: &Command) -> String {
    format!("{group} {}", command.get_name()).trim_start().to_owned()
}

/// The command line with the help of each command as its shape has it.
pub fn arrange(command: Command) -> Command {
    let globals: Vec<Arg> = command.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    command.mut_subcommands(|subcommand| shaped(subcommand, "", &globals))
}

/// A command of a group, and those that are in it, as their shapes have them.
fn shaped(command: Command, group: &str, globals: &[Arg]) -> Command {
    let name = full_name(group, &command);
    let command = command.mut_subcommands(|subcommand| shaped(subcommand, &name, globals));
    let Some(shape) = SHAPES.get(name.as_str()) else { return command };
    let shown = globals.iter().filter(|arg| shape.takes(arg) && (arg.is_hide_set() || !shape.connects));
    let shown: Vec<Arg> = shown.map(|arg| shape.describe(arg).hide(false)).collect();
    let hidden = globals.iter().filter(|arg| !shape.takes(arg) && !arg.is_hide_set());
    let hidden: Vec<Arg> = hidden.map(|arg| arg.clone().hide(true)).collect();
    command.args(shown).args(hidden).after_help(format!("Examples:\n{}", shape.examples))
}

/// The command line for completion scripts, which would offer hidden options too: each command has what it
/// takes and nothing else.
pub fn without_hidden(command: &Command) -> Command {
    let globals: Vec<Arg> = command.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    let subcommands = command.get_subcommands().map(|subcommand| completed(subcommand.clone(), "", &globals));
    let of_connection = globals.iter().filter(|arg| !arg.is_hide_set());
    let of_connection = of_connection.map(|arg| local(arg.clone()));
    Command::new("disbatch").args(of_connection).subcommands(subcommands)
}

/// A command of a group, and those that are in it, with the options that they take.
fn completed(command: Command, group: &str, globals: &[Arg]) -> Command {
    let name = full_name(group, &command);
    let command = command.mut_subcommands(|subcommand| completed(subcommand, &name, globals));
    let taken = |shape: &'static Shape| {
        globals.iter().filter(|arg| shape.takes(arg)).map(|arg| local(shape.describe(arg)))
    };
    command.args(SHAPES.get(name.as_str()).into_iter().flat_map(taken))
}

fn local(arg: Arg) -> Arg {
    arg.hide(false).global(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    fn help(name: &str) -> String {
        let mut command = args::command();
        command.build();
        let mut found = &mut command;
        for word in name.split(' ') {
            found = found.find_subcommand_mut(word).unwrap();
        }
        found.render_long_help().to_string()
    }

    #[test]
    fn options_are_shown_where_they_are_taken() {
        for (name, shown, hidden) in [
            ("tasks", "--limit", "--collection"),
            ("create-tasks", "--collection", "--limit"),
            ("search", "--options", "--skip"),
            ("queues", "--url", "--terse"),
            ("dev", "--demo", "--limit"),
            ("dev", "--port", "--password"),
            ("create-users", "Configuration file of Disbatch", "--url"),
            ("user add", "Configuration file of Disbatch", "--url"),
            ("user add", "--no-password", "--format"),
            ("user list", "--format", "--token"),
            ("token create", "--days", "--username"),
            ("queues", "--token", "--days"),
        ] {
            let help = help(name);
            assert!(help.contains(shown), "{name} {shown}: {help}");
            assert!(!help.contains(hidden), "{name} {hidden}: {help}");
        }
    }

    #[test]
    fn every_command_has_an_example() {
        let command = args::command();
        let groups = command.get_subcommands();
        let inner = groups.flat_map(|group| {
            group.get_subcommands().map(|command| full_name(group.get_name(), command)).collect::<Vec<_>>()
        });
        let names: Vec<String> =
            command.get_subcommands().map(|command| full_name("", command)).chain(inner).collect();
        assert!(names.contains(&"token revoke".to_owned()), "{names:?}");
        assert_eq!(names.len(), SHAPES.len(), "{names:?}");
        for name in names {
            let help = help(&name);
            let examples = help.split_once("Examples:").unwrap_or_else(|| panic!("{name}: {help}")).1;
            assert!(examples.contains(&format!("disbatch {name}")), "{name}: {examples}");
        }
    }

    #[test]
    fn the_global_help_is_about_the_connection() {
        let help = args::command().render_help().to_string();
        assert!(help.contains("DISBATCH_URL") && !help.contains("--terse"), "{help}");
    }
}
