//! `disbatch queues [--watch SECONDS]`, `create-queue`, `update-queue`, `delete-queue`, `groups QUEUE` and `shadow QUEUE`

use std::time::Duration;

use anyhow::Context;
use disbatch_wire::queues::{Queue, QueueGroup, QueueGroups, ShadowPair, Shadows};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use crate::api::{Client, given, segment};
use crate::args::{Format, GroupsOptions, ListingOptions, ShadowOptions, seconds};
use crate::command::{Session, in_perls_words, oid, pairs, required};
use crate::output::{Column, Cut, Screen, Table, list, plain, print, say, visible};

/// Counting tasks more often than this would be work for the database and nothing for the eye.
const SHORTEST: Duration = Duration::from_millis(100);

const QUEUES: Table<Queue> = Table {
    columns: &[
        Column { title: "ID", cell: |queue| queue.id.clone(), cut: Cut::Late },
        Column { title: "Plugin", cell: |queue| plain(Some(&queue.plugin)), cut: Cut::Early },
        Column { title: "Name", cell: |queue| plain(Some(&queue.name)), cut: Cut::Early },
        Column { title: "Threads", cell: |queue| plain(Some(&queue.threads)), cut: Cut::Never },
        Column { title: "Queued", cell: |queue| queue.queued.to_string(), cut: Cut::Never },
        Column { title: "Running", cell: |queue| queue.running.to_string(), cut: Cut::Never },
        Column { title: "Completed", cell: |queue| queue.completed.to_string(), cut: Cut::Never },
    ],
    noun: "queues",
};

pub async fn run(session: &Session, watch: Option<f64>) -> anyhow::Result<()> {
    let Session { client, listing: options } = session;
    let Some(seconds) = watch else {
        let queues = client.get("/queues", None).await.map_err(in_perls_words)?;
        return print(&render(&queues, options, Screen::of_stdout())?);
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
            Err(error) if first => return Err(in_perls_words(error)),
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
    list(queues, options, |queues| QUEUES.render(queues, screen))
}

pub async fn create(
    client: &Client,
    name: Option<String>,
    plugin: Option<String>,
    (threads, sort): (Option<u32>, Option<String>),
) -> anyhow::Result<()> {
    let threads = threads.map(|threads| threads.to_string());
    let fields = [("threads", threads), ("sort", sort), ("name", name.clone()), ("plugin", plugin)];
    let fields = fields.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?)));
    let answer = client.post_form("/queues", &fields.collect()).await.map_err(in_perls_words)?;
    print(&format!("Created queue {}: {}\n", name.unwrap_or_default(), oid(answer.get("id"))))
}

/// Changes fields of a queue. They travel as a form, so that every value is text.
pub async fn update(client: &Client, queue: Option<String>, fields: Vec<String>) -> anyhow::Result<()> {
    let queue = required(queue)?;
    let fields = pairs(fields)?;
    client.post_form(&format!("/queues/{}", segment(&queue)), &fields).await.map_err(in_perls_words)?;
    print(&format!("Updated queue {queue}: {}\n", serde_json::to_string(&fields)?))
}

pub async fn delete(client: &Client, queue: Option<String>) -> anyhow::Result<()> {
    let queue = required(queue)?;
    client.delete(&format!("/queues/{}", segment(&queue))).await.map_err(in_perls_words)?;
    print(&format!("Deleted queue {queue}\n"))
}

const GROUPS: Table<QueueGroup> = Table {
    columns: &[
        Column { title: "Group", cell: group_name, cut: Cut::Early },
        Column { title: "Waiting", cell: waiting_of_group, cut: Cut::Never },
        Column { title: "Running", cell: |group| group.running.to_string(), cut: Cut::Never },
        Column { title: "Got", cell: |group| group.started.to_string(), cut: Cut::Never },
        Column { title: "Used (s)", cell: |group| format!("{:.1}", group.used), cut: Cut::Never },
        Column { title: "Weight", cell: |group| group.weight.to_string(), cut: Cut::Never },
        Column { title: "Next turn", cell: |group| group.why.clone(), cut: Cut::Early },
    ],
    noun: "groups",
};

pub async fn groups(session: &Session, which: &GroupsOptions) -> anyhow::Result<()> {
    let path = format!("/queues/{}/groups", segment(&which.queue));
    let page = session.client.get(&path, Some(&groups_asked_for(which, &session.listing))).await?;
    session.print(&page, |page| groups_text(page, Screen::of_stdout()))
}

fn groups_asked_for(which: &GroupsOptions, options: &ListingOptions) -> Value {
    Value::Object(given([
        (".prefix", which.prefix.clone().map(Value::from)),
        (".after", which.after.clone().map(Value::from)),
        (".waiting", which.waiting.then(|| Value::from(1))),
        (".limit", options.limit.map(Value::from)),
    ]))
}

fn groups_text(page: &QueueGroups, screen: Screen) -> String {
    match &page.next {
        Some(next) => {
            format!("{}The next ones: --after '{next}'\n", GROUPS.render_some(&page.groups, screen))
        }
        None => GROUPS.render(&page.groups, screen),
    }
}

fn group_name(group: &QueueGroup) -> String {
    if group.group.is_empty() { "(no group)".to_owned() } else { group.group.clone() }
}

fn waiting_of_group(group: &QueueGroup) -> String {
    format!("{}{}", group.waiting, if group.more_waiting { "+" } else { "" })
}

const PAIRS: Table<ShadowPair> = Table {
    columns: &[
        Column { title: "Task", cell: |pair| pair.task.clone(), cut: Cut::Never },
        Column { title: "Shadow", cell: |pair| pair.shadow.clone(), cut: Cut::Never },
        Column { title: "Was", cell: |pair| time(pair.was), cut: Cut::Never },
        Column { title: "Is", cell: |pair| time(pair.is), cut: Cut::Never },
        Column { title: "Outcome", cell: pair_outcome, cut: Cut::Late },
    ],
    noun: "pairs",
};

pub async fn shadow(session: &Session, which: &ShadowOptions) -> anyhow::Result<()> {
    let path = format!("/queues/{}/shadow", segment(&which.queue));
    let asked = session.listing.limit.map(|limit| json!({ ".limit": limit }));
    let found = session.client.get(&path, asked.as_ref()).await?;
    session.print(&found, |found| shadow_text(found, which.differences, Screen::of_stdout()))
}

fn shadow_text(shadows: &Shadows, with_differences: bool, screen: Screen) -> String {
    if shadows.shadow.is_none() {
        return "the queue has no shadow\n".to_owned();
    }
    let Shadows { same, different, slower, faster, task_failed, shadow_failed, compared, .. } = shadows;
    let mut text = format!(
        "{}{same} same, {different} different, {slower} slower, {faster} faster. Only the task failed: {task_failed}, only the shadow: {shadow_failed}.\n",
        PAIRS.render(compared, screen)
    );
    for pair in compared.iter().filter(|_| with_differences) {
        for own in &pair.differences {
            text.push_str(&format!("\n{} {}\n", pair.task, own.name));
            text.extend(own.difference.lines().map(|line| format!("{}\n", visible(line))));
        }
    }
    text
}

fn time(seconds: Option<f64>) -> String {
    seconds.map_or_else(String::new, seconds::words)
}

fn pair_outcome(pair: &ShadowPair) -> String {
    if pair.different.is_empty() {
        return pair.verdict.clone();
    }
    format!("{}: {}", pair.verdict, pair.different.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::read;

    fn table(queues: &[Queue]) -> String {
        QUEUES.render(queues, Screen::default())
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
            table(&[read(queue).unwrap()]),
            "ID                       | Plugin | Name | Threads | Queued | Running | Completed | \n\
             -------------------------+--------+------+---------+--------+---------+-----------+-\n\
             6b0003c7686c8275d91f20ef | Demo   | fizz |         | 0      | 0       | 9         | \n\
             \n1 total queues.\n"
        );
    }

    #[test]
    fn groups_are_lines_and_it_is_said_that_there_are_more() {
        let ann = json!({
            "group": "ann", "waiting": 1_000, "more_waiting": true, "running": 2, "started": 40, "finished": 38, "used": 1.26,
            "weight": 3, "why": "its turn is next",
        });
        let none = json!({
            "group": "", "waiting": 0, "more_waiting": false, "running": 0, "started": 0, "finished": 0, "used": 0,
            "weight": 1, "why": "",
        });
        let page = json!({ "groups": [none, ann], "next": "ann" });
        let text = groups_text(&read(page).unwrap(), Screen::default());
        assert!(text.contains("(no group) | 0       |"), "{text}");
        assert!(
            text.contains("ann        | 1000+   | 2       | 40  | 1.3      | 3      | its turn is next |"),
            "{text}"
        );
        assert!(text.ends_with("\n2 groups of more.\nThe next ones: --after 'ann'\n"), "{text}");
    }

    #[test]
    fn only_what_is_given_is_asked() {
        let mut which = GroupsOptions { queue: "q".into(), prefix: None, waiting: false, after: None };
        assert_eq!(groups_asked_for(&which, &ListingOptions::default()), json!({}));
        (which.prefix, which.waiting) = (Some("a/".into()), true);
        let options = ListingOptions { limit: Some(5), ..ListingOptions::default() };
        assert_eq!(
            groups_asked_for(&which, &options),
            json!({ ".prefix": "a/", ".waiting": 1, ".limit": 5 })
        );
    }

    #[test]
    fn pairs_are_lines_and_differences_come_if_they_are_wanted() {
        let pair = json!({
            "task": "a", "shadow": "b", "verdict": "different", "different": ["status", "stdout"], "was": 1.5, "is": null,
            "differences": [{ "name": "stdout", "difference": "-two\n+2\n" }],
        });
        let found = json!({
            "queue": "q", "shadow": "n", "share": 1.0, "pairs": 1, "same": 0, "different": 1, "slower": 0, "faster": 0,
            "task_failed": 0, "shadow_failed": 1, "compared": [pair],
        });
        let short = shadow_text(&read(found.clone()).unwrap(), false, Screen::default());
        assert!(short.contains("different: status, stdout") && !short.contains("+2"), "{short}");
        assert!(short.ends_with("Only the task failed: 0, only the shadow: 1.\n"), "{short}");
        assert!(
            shadow_text(&read(found).unwrap(), true, Screen::default()).ends_with("\na stdout\n-two\n+2\n")
        );
        let none = json!({
            "queue": "q", "shadow": null, "share": null, "pairs": 0, "same": 0, "different": 0, "slower": 0, "faster": 0,
            "task_failed": 0, "shadow_failed": 0, "compared": [],
        });
        assert_eq!(shadow_text(&read(none).unwrap(), true, Screen::default()), "the queue has no shadow\n");
    }
}
