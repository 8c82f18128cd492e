//! `disbatch queues [--watch SECONDS]`, `create-queue`, `update-queue` and `delete-queue`

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use crate::api::{Client, segment};
use crate::args::{Format, ListingOptions};
use crate::command::{oid, pairs, required};
use crate::output::{Column, Cut, Screen, Table, list, plain, print, say, visible};

/// Counting tasks more often than this would be work for the database and nothing for the eye.
const SHORTEST: Duration = Duration::from_millis(100);

const TABLE: Table = Table {
    columns: &[
        Column { title: "ID", cell: |queue| plain(queue.get("id")), cut: Cut::Late },
        Column { title: "Plugin", cell: |queue| plain(queue.get("plugin")), cut: Cut::Early },
        Column { title: "Name", cell: |queue| plain(queue.get("name")), cut: Cut::Early },
        Column { title: "Threads", cell: |queue| plain(queue.get("threads")), cut: Cut::Never },
        Column { title: "Queued", cell: |queue| plain(queue.get("queued")), cut: Cut::Never },
        Column { title: "Running", cell: |queue| plain(queue.get("running")), cut: Cut::Never },
        Column { title: "Completed", cell: |queue| plain(queue.get("completed")), cut: Cut::Never },
    ],
    noun: "queues",
};

/// Prints all queues, once or until ^C.
pub async fn run(client: &Client, watch: Option<f64>, options: &ListingOptions) -> anyhow::Result<()> {
    let Some(seconds) = watch else {
        return print(&render(&client.get("/queues", None).await?, options, Screen::of_stdout())?);
    };
    let period = Duration::try_from_secs_f64(seconds).ok().filter(|period| *period >= SHORTEST);
    let period = period.with_context(|| format!("--watch takes seconds from 0.1 on, not {seconds}"))?;
    tokio::select! {
        outcome = watching(client, period, options) => outcome,
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
    }
}

/// Prints the queues again and again. Only the first request must succeed: the DCI may be started again.
async fn watching(client: &Client, period: Duration, options: &ListingOptions) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut first = true;
    loop {
        ticks.tick().await;
        let screen = Screen::of_stdout();
        let text = match client.get("/queues", None).await {
            Ok(queues) => render(&queues, options, screen)?,
            Err(error) if first => return Err(error.into()),
            Err(error) if screen.size.is_some() => format!("{}\n", visible(&error.to_string())),
            Err(error) => {
                say(&error.to_string());
                continue;
            }
        };
        print(&format!("{}{}", separator(first, options.format(), screen), screen.replace(&text)))?;
        first = false;
    }
}

fn separator(first: bool, format: Format, screen: Screen) -> &'static str {
    match (screen.size, format) {
        (Some(_), _) if first => "\x1b[2J",
        (None, Format::Yaml) => "---\n",
        (None, Format::Table) if !first => "\n",
        _ => "", // JSON documents are lines of their own, and a terminal's are replaced.
    }
}

fn render(queues: &Value, options: &ListingOptions, screen: Screen) -> anyhow::Result<String> {
    list(queues, options, |queues| TABLE.render(queues, screen))
}

/// Creates a queue and prints its id.
pub async fn create(
    client: &Client,
    name: Option<String>,
    plugin: Option<String>,
    (threads, sort): (Option<u32>, Option<String>),
) -> anyhow::Result<()> {
    let mut fields = BTreeMap::new();
    fields.extend(threads.map(|threads| ("threads".to_owned(), threads.to_string())));
    fields.extend(sort.map(|sort| ("sort".to_owned(), sort)));
    fields.extend(name.clone().map(|name| ("name".to_owned(), name)));
    fields.extend(plugin.map(|plugin| ("plugin".to_owned(), plugin)));
    let answer = client.post_form("/queues", &fields).await?;
    print(&format!("Created queue {}: {}\n", name.unwrap_or_default(), oid(answer.get("id"))))
}

/// Changes fields of a queue. They travel as a form, so that every value is text.
pub async fn update(client: &Client, queue: Option<String>, fields: Vec<String>) -> anyhow::Result<()> {
    let queue = required(queue)?;
    let fields = pairs(fields)?;
    client.post_form(&format!("/queues/{}", segment(&queue)), &fields).await?;
    print(&format!("Updated queue {queue}: {}\n", serde_json::to_string(&fields)?))
}

pub async fn delete(client: &Client, queue: Option<String>) -> anyhow::Result<()> {
    let queue = required(queue)?;
    client.delete(&format!("/queues/{}", segment(&queue))).await?;
    print(&format!("Deleted queue {queue}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(queues: &[Value]) -> String {
        TABLE.render(queues, Screen::default())
    }

    #[test]
    fn an_empty_table_has_its_titles() {
        assert_eq!(
            table(&[]),
            "ID | Plugin | Name | Threads | Queued | Running | Completed | \n\
             ---+--------+------+---------+--------+---------+-----------+-\n\n0 total queues.\n"
        );
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let queue = serde_json::json!({"id": "6b0003c7686c8275d91f20ef", "plugin": "Demo", "name": "fizz",
            "threads": null, "queued": 0, "running": 0, "completed": 9});
        assert_eq!(
            table(&[queue]),
            "ID                       | Plugin | Name | Threads | Queued | Running | Completed | \n\
             -------------------------+--------+------+---------+--------+---------+-----------+-\n\
             6b0003c7686c8275d91f20ef | Demo   | fizz |         | 0      | 0       | 9         | \n\
             \n1 total queues.\n"
        );
    }
}
