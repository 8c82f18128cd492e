//! The commands, one file for a topic.

mod admission;
mod arrays;
mod create_tasks;
mod definitions;
mod files;
mod life;
mod nodes;
mod queues;
mod schedules;
mod subscriptions;
mod tasks;
mod tenants;

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap_complete::generate;
use serde_json::Value;

use crate::api::{Answer, ApiError, Client};
use crate::args::{self, Arguments, Command, ListingOptions, Shell, print_usage};
use crate::become_local;
use crate::output::{Table, document, plain, print};

pub async fn run(arguments: Arguments, words: &[OsString]) -> anyhow::Result<ExitCode> {
    let Some(command) = arguments.command else {
        print_usage();
        return Ok(ExitCode::from(1));
    };
    // Boxed, so that the state of one does not weigh on every other.
    match command {
        Command::Completion { shell } => print_completion(shell).map(|()| ExitCode::SUCCESS),
        Command::ManPages { folder } => man_pages(&folder).map(|()| ExitCode::SUCCESS),
        Command::SecretsKey | Command::CreateUsers(_) | Command::User(_) | Command::Token(_) => {
            Err(become_local(words))
        }
        Command::Plugin(_) | Command::Dev(_) | Command::Replay(_) => Err(become_local(words)),
        command => {
            let client = Client::new(&arguments.connection.with_file()?)?;
            let session = Session { client, listing: arguments.listing };
            Box::pin(ask(&session, command)).await.map_err(with_advice)
        }
    }
}

/// A DCI that is asked, and how its answers are printed.
pub struct Session {
    client: Client,
    listing: ListingOptions,
}

impl Session {
    async fn print_list<T: Answer>(&self, path: &str, table: &Table<T>) -> anyhow::Result<()> {
        table.print(&self.client.get(path, None).await?, &self.listing)
    }

    /// Prints the document at a path of the DCI; `as_text` makes it readable for people.
    async fn print_document<T: Answer>(
        &self,
        path: &str,
        as_text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        self.print(&self.client.get(path, None).await?, as_text)
    }

    fn print<T: Answer>(&self, answer: &Value, as_text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        print(&document(answer, &self.listing, as_text)?)
    }
}

async fn ask(session: &Session, command: Command) -> anyhow::Result<ExitCode> {
    let client = &session.client;
    match command {
        Command::Plugins => definitions::list_plugins(session).await?,
        Command::Doctor => return nodes::doctor(session).await,
        Command::Queues { watch } => queues::run(session, watch).await?,
        Command::CreateQueue { name, plugin, threads, sort } => {
            queues::create(client, name, plugin, (threads, sort)).await?;
        }
        Command::UpdateQueue { queue, fields } => queues::update(client, queue, fields).await?,
        Command::DeleteQueue { queue } => queues::delete(client, queue).await?,
        Command::CreateTask { queue, params, options } => {
            create_tasks::run_one(client, queue, params, &options).await?;
        }
        Command::CreateTasks { queue, json, from, options } => {
            let collection = session.listing.collection.clone();
            return create_tasks::run(client, queue, json, (&from, &options), collection).await;
        }
        Command::Life(command) => return Box::pin(life::run(session, command)).await,
        Command::Schedule(command) => return Box::pin(schedules::run(session, command)).await,
        Command::Subscription(command) => subscriptions::run(session, command).await?,
        Command::Calendar(command) => schedules::run_calendar(session, command).await?,
        Command::Tenant(command) => tenants::run(session, command).await?,
        Command::Array(command) => return Box::pin(arrays::run(session, command)).await,
        Command::Workers(command) => return definitions::run(session, command).await,
        Command::Files(command) => return Box::pin(files::run(session, command)).await,
        Command::Tasks { filter, which } => tasks::run(session, filter, &which).await?,
        Command::Search { filter } => tasks::search(session, filter).await?,
        Command::Nodes { command } => nodes::run(session, command.as_ref()).await?,
        Command::UpdateNode { node, fields } => nodes::update(client, node, fields).await?,
        // Done without a client.
        Command::Completion { .. } | Command::ManPages { .. } => {}
        Command::SecretsKey | Command::Dev(_) | Command::Replay(_) => {}
        Command::CreateUsers(_) | Command::User(_) | Command::Token(_) | Command::Plugin(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// The error with what a DCI says in its own words, and with what to do about that.
fn with_advice(error: anyhow::Error) -> anyhow::Error {
    if !error.is::<ApiError>() {
        return error;
    }
    let words = |cause: &(dyn Error + 'static)| match cause.downcast_ref::<ApiError>() {
        Some(error) => error.with_advice(),
        None => cause.to_string(),
    };
    anyhow::Error::msg(error.chain().map(words).collect::<Vec<_>>().join(": "))
}

/// An error in the words of the Perl client, which has these commands, too.
fn in_perls_words(error: ApiError) -> anyhow::Error {
    anyhow::Error::msg(error.to_string())
}

fn required(queue: Option<String>) -> anyhow::Result<String> {
    queue.filter(|name| !name.is_empty()).ok_or_else(|| anyhow::anyhow!("Queue name not given"))
}

/// Turns `a 1 b 2` into a map. The last value of a repeated key counts.
fn pairs(words: Vec<String>) -> anyhow::Result<BTreeMap<String, String>> {
    if !words.len().is_multiple_of(2) {
        anyhow::bail!("Must pass an even number of arguments as key/value pairs");
    }
    let mut words = words.into_iter();
    Ok(std::iter::from_fn(|| Some((words.next()?, words.next()?))).collect())
}

/// The id in a value as the DCI writes it: `{"$oid": ".."}`.
fn oid(value: Option<&Value>) -> String {
    plain(value.and_then(|value| value.get("$oid")).or(value))
}

fn print_completion(shell: Shell) -> anyhow::Result<()> {
    print(&String::from_utf8(script(shell))?)
}

fn script(shell: Shell) -> Vec<u8> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut args::command_for_completion(), "disbatch", &mut script);
    script
}

/// Writes the manual pages: `disbatch.1`, and one for each command.
fn man_pages(folder: &Path) -> anyhow::Result<()> {
    let written = clap_mangen::generate_to(args::command(), folder);
    written.with_context(|| format!("cannot write manual pages to {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_in_pairs() {
        let words = ["b", "1", "a", "2"].map(String::from).to_vec();
        assert_eq!(serde_json::to_string(&pairs(words).unwrap()).unwrap(), r#"{"a":"2","b":"1"}"#);
        let error = pairs(vec!["a".into()]).unwrap_err();
        assert_eq!(error.to_string(), "Must pass an even number of arguments as key/value pairs");
    }

    #[test]
    fn scripts_know_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(script(shell)).unwrap();
            assert!(script.contains("update-node"), "{shell:?}");
            assert!(script.contains("skip-lines"), "{shell:?}");
            // Offered by `tasks` alone.
            let lines = script.lines().filter(|line| line.contains("noterse") || line.contains("--epoch"));
            assert!(!lines.into_iter().any(|line| line.contains("mongo-port")), "{shell:?}");
        }
    }

    #[test]
    fn each_command_has_a_page_with_what_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        man_pages(folder.path()).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap();
        assert!(page("disbatch").contains("disbatch\\-create\\-queue(1)"), "{}", page("disbatch"));
        for (name, shown, hidden) in [
            ("disbatch-tasks", "limit", "collection"),
            ("disbatch-user-add", "no\\-password", "limit"),
            ("disbatch-dev", "demo", "url"),
        ] {
            let page = page(name);
            assert!(page.contains(&format!("\\-\\-{shown}")), "{name} {shown}: {page}");
            assert!(!page.contains(&format!("\\-\\-{hidden}")), "{name} {hidden}: {page}");
            assert!(page.contains("Examples:"), "{name}: {page}");
        }
        let failure = man_pages(&folder.path().join("none")).unwrap_err().to_string();
        assert!(failure.starts_with("cannot write manual pages to /"), "{failure}");
    }
}
