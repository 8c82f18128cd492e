//! What the help of each command shows.
//!
//! In the Perl client options may stand before or after the command, so all its options are global. Here each
//! is shown by the commands alone that take it; the others accept it still, without a word, as Perl does.

use clap::{Arg, Command};

use super::{accounts, files, find, plugins, schedules, subscriptions, tenants};

/// What `--config` is for a command that is about the installation and not about a DCI.
const CONFIGURATION: &str = "Configuration file of Disbatch [default: /etc/disbatch/config.json]";

/// The options of a command that prints a list or a document.
pub(super) const LIST: &[&str] = &["format", "pretty"];

/// What a command's help shows.
pub(super) struct Shape {
    /// The command's name, after that of its group if it is in one.
    pub(super) name: &'static str,
    /// The global options that it takes, beside those of the connection if it speaks to a DCI.
    pub(super) options: &'static [&'static str],
    /// Whether it speaks to a DCI.
    pub(super) connects: bool,
    pub(super) examples: &'static str,
}

impl Shape {
    /// Whether the command takes this global option; those of the connection are not hidden.
    fn takes(&self, arg: &Arg) -> bool {
        (self.connects && !arg.is_hide_set()) || self.options.contains(&arg.get_id().as_str())
    }

    /// The option with the help that is right for the command.
    fn describe(&self, arg: &Arg) -> Arg {
        let arg = arg.clone();
        if arg.get_id() == "config" && self.options.contains(&"config") {
            return arg.help(CONFIGURATION).help_heading(None::<&str>);
        }
        arg
    }
}

pub(super) const fn shape(
    name: &'static str,
    options: &'static [&'static str],
    examples: &'static str,
) -> Shape {
    Shape { name, options, connects: true, examples }
}

static SHAPES: [Shape; 49] = [
    shape("plugins", &["format", "pretty"], "disbatch plugins\n  disbatch plugins --format json"),
    shape(
        "doctor",
        &["format", "pretty"],
        "disbatch doctor\n  disbatch doctor --format json | jq '.findings[] | select(.level == \"error\")'\n\n\
         Exit status: 0 all is well, 1 there are warnings, 2 there are errors, 255 the DCI could not be asked.",
    ),
    shape(
        "queues",
        &["format", "pretty"],
        "disbatch queues\n  disbatch queues --watch 5\n  disbatch queues --format json | jq '.[] | select(.queued > 0)'",
    ),
    shape("create-queue", &[], "disbatch create-queue mail Disbatch::Plugin::Shell --threads 4"),
    shape(
        "update-queue",
        &[],
        "disbatch update-queue mail threads 8\n  disbatch update-queue mail name post threads 0",
    ),
    shape("delete-queue", &[], "disbatch delete-queue mail"),
    shape(
        "create-task",
        &[],
        "disbatch create-task mail command 'echo hello'\n  \
         disbatch create-task mail command 'make report' --delay 2h --timeout 10m --unique report\n  \
         disbatch create-task mail command ./fetch --secure-params-file password.json\n  \
         disbatch create-task mail command ./report --after 6b0003bb686c8275d8013333 --lock db",
    ),
    shape(
        "create-tasks",
        &["collection"],
        "disbatch create-tasks mail '[{\"command\":\"date\"},{\"command\":\"hostname\"}]'\n  \
         disbatch create-tasks mail --collection people '{\"filter\":{},\"params\":{\"user\":\"document.name\"}}'\n  \
         disbatch create-tasks mail --file tasks.ndjson\n  \
         zcat tasks.ndjson.gz | disbatch create-tasks mail --file - --skip-lines 20000",
    ),
    shape(
        "tasks",
        &["count", "fields", "limit", "skip", "epoch", "terse", "noterse", "full", "format", "pretty"],
        "disbatch tasks --status failed,orphaned --since 1h\n  \
         disbatch tasks --queue mail --status queued --limit 20 --format json\n  \
         disbatch tasks --node node1.example.com --text ashley --until 2026-11-20\n  \
         disbatch tasks '{\"queue\":\"6b0003bb686c8275d70dc2f1\",\"status\":-2}' --count\n  \
         disbatch tasks '{\"id\":\"6b0003bb686c8275d8013333\"}' --full --pretty",
    ),
    shape(
        "search",
        &["options", "count", "terse", "noterse", "format", "pretty"],
        "disbatch search '{\"params.user\":\"ashley\"}' --count\n  \
         disbatch search '{\"status\":2}' --options '{\"limit\":5,\"sort\":{\"_id\":-1}}' --noterse --pretty",
    ),
    shape(
        "nodes",
        &["format", "pretty"],
        "disbatch nodes\n  disbatch nodes --format yaml\n  disbatch nodes rm node7.example.com",
    ),
    shape("nodes rm", &[], "disbatch nodes rm node7.example.com"),
    shape(
        "update-node",
        &[],
        "disbatch update-node node1.example.com maxthreads 16\n  \
         disbatch update-node node1.example.com maxthreads null",
    ),
    Shape {
        name: "completion",
        options: &[],
        connects: false,
        examples: "source <(disbatch completion bash)\n  disbatch completion zsh > ~/.zfunc/_disbatch\n  \
                   disbatch completion fish > ~/.config/fish/completions/disbatch.fish",
    },
    Shape {
        name: "man-pages",
        options: &[],
        connects: false,
        examples: "disbatch man-pages /usr/local/share/man/man1",
    },
    Shape {
        name: "secrets-key",
        options: &[],
        connects: false,
        examples: "(umask 077; disbatch secrets-key > /etc/disbatch/secrets.key)",
    },
    Shape {
        name: "create-users",
        options: &["config"],
        connects: false,
        examples: "disbatch create-users --config /etc/disbatch/config.json --root_user root\n  \
                   disbatch create-users --config config.json --create_root < password.txt",
    },
    Shape {
        name: "dev",
        options: &[],
        connects: false,
        examples: "disbatch dev\n  disbatch dev --demo --exit\n  disbatch dev --port 9090 --data /tmp/disbatch",
    },
    shape(
        "run",
        &[],
        "disbatch run mail command='make report'\n  \
         disbatch run mail '{\"command\":\"date\"}' --timeout 5m --max-attempts 3\n  \
         disbatch run mail command=date --detach\n\n\
         ^C leaves the task running and says how to go on, unless --cancel-on-interrupt is given.\n\n\
         Exit status: 0 succeeded, 102 failed, 103 terminated, 105 cancelled, 106 orphaned, 3 to 99 the plugin's own \
         status, 100 one above 99; 130 left with ^C; 2 wrong option, 255 it could not be created or followed.",
    ),
    shape(
        "wait",
        &[],
        "disbatch wait 6b0003bb686c8275d8013333 && echo succeeded\n  \
         disbatch wait --timeout 2h 6b0003bb686c8275d8013333 6b0003bb686c8275d8013334\n\n\
         Exit status: that of the first task given that did not succeed (with --any, of the first to end): \
         0 succeeded, 102 failed, 103 terminated, 105 cancelled, 106 orphaned, 3 to 99 the plugin's own status, 100 \
         one above 99; 124 not ended within --timeout; 2 wrong option, 255 the DCI could not be asked.",
    ),
    shape(
        "logs",
        &[],
        "disbatch logs 6b0003bb686c8275d8013333\n  disbatch logs -f --both 6b0003bb686c8275d8013333\n  \
         disbatch logs --stderr --attempt 1 6b0003bb686c8275d8013333",
    ),
    shape(
        "bundle",
        &[],
        "disbatch bundle 6b0003bb686c8275d8013333 > run.tar\n  disbatch bundle 6b0003bb686c8275d8013333 --attempt 1 > first.tar",
    ),
    shape(
        "cancel",
        &[],
        "disbatch cancel 6b0003bb686c8275d8013333 --reason 'wrong file'\n  \
         disbatch cancel 6b0003bb686c8275d8013333 6b0003bb686c8275d8013334",
    ),
    shape("retry", &[], "disbatch retry 6b0003bb686c8275d8013333 --reason 'disk was full'"),
    shape(
        "rerun",
        &[],
        "disbatch rerun 6b0003bb686c8275d8013333 --downstream failed\n  \
         disbatch rerun 6b0003bb686c8275d8013333 --params '{\"to\":\"you\"}' --reason 'wrong address'\n  \
         disbatch rerun 6b0003bb686c8275d8000000 --elements all --downstream all",
    ),
    shape("explain", LIST, "disbatch explain 6b0003bb686c8275d8013333\n  disbatch explain --queue mail"),
    shape("show", LIST, "disbatch show 6b0003bb686c8275d8013333"),
    shape("attempts", LIST, "disbatch attempts 6b0003bb686c8275d8013333"),
    shape("history", LIST, "disbatch history 6b0003bb686c8275d8013333"),
    shape(
        "bulk",
        &[],
        "disbatch bulk cancel --queue mail --status queued,deferred\n  \
         disbatch bulk retry --queue mail --status failed --preview\n  \
         disbatch bulk delete --queue mail --status 1 --older-than 30d --yes",
    ),
    shape(
        "archive",
        &[],
        "disbatch archive 6b0003bb686c8275d8013333\n  disbatch archive --queue mail --older-than 7d --yes",
    ),
    shape(
        "events",
        &["limit", "format"],
        "disbatch events --queue mail --ended\n  \
         disbatch events --status failed,orphaned --format json | while read -r event; do ./tell \"$event\"; done\n  \
         disbatch events --limit 1 --queue mail --status succeeded",
    ),
    shape(
        "locks",
        &["limit", "format", "pretty"],
        "disbatch locks\n  disbatch locks db\n  disbatch locks --prefix array: --format json",
    ),
    shape(
        "graph",
        &["limit", "format", "pretty"],
        "disbatch graph 6b0003bb686c8275d8013333\n  disbatch graph 6b0003bb686c8275d8013333 --depth 10",
    ),
    shape(
        "audit",
        &["limit", "format", "pretty"],
        "disbatch audit --queue mail --what 'queue update'\n  \
         disbatch audit --user ashley --from 2026-11-20 --format json",
    ),
    shape(
        "batch",
        LIST,
        "disbatch batch tasks.ndjson\n  \
         echo '[{\"queue\":\"mail\",\"params\":{\"n\":1}},{\"queue\":\"post\",\"params\":{\"n\":2},\".after\":-1}]' \\\n    \
         | disbatch batch -\n\n\
         Exit status: 0 all entries were accepted, 255 one was rejected or the DCI could not be asked.",
    ),
    shape(
        "set-task",
        &[],
        "disbatch set-task 6b0003bb686c8275d8013333 --priority 10 --reason 'the boss waits'",
    ),
    shape(
        "answer",
        &[],
        "disbatch answer 6b0003bb686c8275d8013333\n  \
         disbatch answer 6b0003bb686c8275d8013333 --set go=true --set comment='looks good'\n  \
         disbatch answer 6b0003bb686c8275d8013333 --json '{\"go\":true}'\n  \
         disbatch answer 6b0003bb686c8275d8013333 --link",
    ),
    shape("bulk-jobs", LIST, "disbatch bulk-jobs\n  disbatch bulk-jobs --cancel 6b0003bb686c8275d8013333"),
    shape("pause", &[], "disbatch pause mail --reason 'the mail server moves'"),
    shape("resume", &[], "disbatch resume mail"),
    shape("close", &[], "disbatch close mail --reason 'use post instead'"),
    shape("open", &[], "disbatch open mail"),
    shape(
        "set-queue",
        &[],
        "disbatch set-queue mail max_attempts=3 backoff.base=10s timeout=1h\n  \
         disbatch set-queue mail on_orphan=requeue retention.archive_after=7d\n  \
         disbatch set-queue mail rate.n=100 rate.per=1h\n  \
         disbatch set-queue mail policy=fair 'weights={\"acme\":3}' group_threads=4\n  \
         disbatch set-queue mail version=1.3.0\n  \
         disbatch set-queue mail canary.version=1.4.0 canary.share=0.05\n  \
         disbatch set-queue mail timeout=null",
    ),
    shape(
        "groups",
        &["limit", "format", "pretty"],
        "disbatch groups mail\n  disbatch groups mail --waiting --prefix acme/",
    ),
    shape(
        "at",
        &["format", "pretty"],
        "disbatch at 03:12\n  disbatch at '2026-11-27 03:12' --around 30m --queue mail",
    ),
    shape(
        "shadow",
        &["limit", "format", "pretty"],
        "disbatch shadow mail\n  disbatch shadow mail --differences --limit 20",
    ),
    shape(
        "drain",
        &[],
        "disbatch drain node1.example.com\n  \
         disbatch drain --queue mail --reason 'the mail server is upgraded' --wait\n  \
         disbatch drain --all --pause\n  disbatch drain --owner anna --accept",
    ),
    shape("undrain", &[], "disbatch undrain node1.example.com\n  disbatch undrain --queue mail"),
];

/// The shape of the command `name`.
fn shape_of(name: &str) -> Option<&'static Shape> {
    let groups = accounts::SHAPES.iter().chain(&schedules::SHAPES).chain(&find::SHAPES);
    let groups = groups
        .chain(&plugins::SHAPES)
        .chain(&files::SHAPES)
        .chain(&subscriptions::SHAPES)
        .chain(&tenants::SHAPES);
    SHAPES.iter().chain(groups).find(|shape| shape.name == name)
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
    let Some(shape) = shape_of(&name) else { return command };
    let shown = globals.iter().filter(|arg| shape.takes(arg) && (arg.is_hide_set() || !shape.connects));
    let shown: Vec<Arg> = shown.map(|arg| shape.describe(arg).hide(false)).collect();
    let hidden = globals.iter().filter(|arg| !shape.takes(arg) && !arg.is_hide_set());
    let hidden: Vec<Arg> = hidden.map(|arg| arg.clone().hide(true)).collect();
    command.args(shown).args(hidden).after_help(format!("Examples:\n  {}", shape.examples))
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
    command.args(shape_of(&name).into_iter().flat_map(taken))
}

/// An option of one command alone.
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
