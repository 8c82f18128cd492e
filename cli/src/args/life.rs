//! The commands about a task's life, and those that steer queues and nodes. Unlike the others they do not
//! stand options that nobody knows: one that is left out may be the one that limits what is done.

use std::time::Duration;

use clap::{Args, Subcommand};
use disbatch_wire::bulk::BulkAction;
use disbatch_wire::history::{AuditSearch, MomentSearch};
use serde::Serialize;
use serde_json::Value;

use crate::args::find::{
    BatchOptions, CreatedFilter, GraphOptions, LocksOptions, SetTaskOptions, TagFilter, commas,
};
use crate::args::seconds;
use crate::args::task::{OneTask, TaskOptions, Tasks, parse_id};

#[derive(Debug, Subcommand)]
pub enum LifeCommand {
    /// Create a task, show its output as it comes, and exit as the task ends
    Run(Box<RunOptions>),
    /// Wait until tasks or arrays have ended
    Wait(WaitOptions),
    /// Print the output of a task, or of all tasks of an array
    Logs(LogsOptions),
    /// Write all that is known of an attempt that is over to standard output, as a tar archive for `replay`
    Bundle(BundleOptions),
    /// Cancel tasks or arrays: a task that runs is ended
    Cancel(Tasks),
    /// Queue tasks that have ended once more, and deferred ones before their time
    Retry(Tasks),
    /// Run a task or elements of an array again that have ended, with other params or with those that come after
    Rerun(RerunOptions),
    /// Answer what a task has asked, or show it
    Answer(AnswerOptions),
    /// Say why a task does not run, or what it does; or why a queue does not move
    Explain(ExplainOptions),
    /// Show a task or an array for people
    Show(OneTask),
    /// Show what came of each attempt of a task
    Attempts(OneTask),
    /// Show the statuses that a task has been in
    History(OneTask),
    /// Cancel, retry, archive or delete many tasks
    Bulk(BulkOptions),
    /// Move tasks that have ended to the archive: these, or as `bulk archive` does
    Archive(ArchiveOptions),
    /// Follow what happens to tasks, one line for each change of a status
    Events(EventsOptions),
    /// Show the locks that tasks hold or wait for
    Locks(LocksOptions),
    /// Show the tasks that a task comes after, and those that come after it
    Graph(GraphOptions),
    /// Show who has changed what
    Audit(Box<AuditSearch>),
    /// Submit tasks to several queues with one request
    Batch(BatchOptions),
    /// Change a task that waits: its priority
    SetTask(SetTaskOptions),
    /// Show the bulk jobs, or cancel one
    BulkJobs {
        /// End this one; what it has done is not undone
        #[arg(long, value_name = "ID", value_parser = parse_id)]
        cancel: Option<String>,
    },
    /// Start none of a queue's tasks until `resume`; what runs goes on
    Pause(QueueAndReason),
    /// Start a queue's tasks again
    Resume(OneQueue),
    /// Accept no new tasks in a queue until `open`; those that are there are run
    Close(QueueAndReason),
    /// Accept new tasks in a queue again
    Open(OneQueue),
    /// Set fields of a queue, also those that `update-queue` does not know
    SetQueue {
        /// The queue's name or id
        queue: String,
        /// `field=value`: JSON or text; a dot leads into an object; times may have units; null removes
        #[arg(required = true, value_name = "FIELD=VALUE")]
        fields: Vec<String>,
    },
    /// Show the groups of a queue: what each has waiting, running and got, and when its turn is
    Groups(GroupsOptions),
    /// Show what ran, waited and happened at a moment of the past
    At(MomentSearch),
    /// Compare the latest tasks of a queue with their shadows, which ran in another queue
    Shadow(ShadowOptions),
    /// Claim no more tasks on a node, or take no new tasks, until `undrain`; what runs goes on
    Drain(DrainOptions),
    /// Claim tasks on a node again, or take new tasks again
    Undrain(Drained),
    /// Show whose new tasks are taken, and whether it is safe to upgrade
    Admission,
}

#[derive(Debug, Args)]
pub struct RunOptions {
    /// The queue's name or id
    pub queue: String,
    /// Parameters as one JSON object, or each as `name=text`
    #[arg(value_name = "PARAMS")]
    pub params: Vec<String>,
    #[command(flatten)]
    pub task: TaskOptions,
    /// Print the task's id and do not wait for it
    #[arg(long, conflicts_with = "cancel_on_interrupt")]
    pub detach: bool,
    /// Let ^C cancel the task; by default the task goes on
    #[arg(long)]
    pub cancel_on_interrupt: bool,
    /// Write to a terminal what would control it, too, and not only text and colours
    #[arg(long)]
    pub raw: bool,
}

#[derive(Debug, Args)]
pub struct AnswerOptions {
    /// The task's id
    #[arg(value_name = "ID", value_parser = parse_id)]
    pub id: String,
    /// A field of the answer: JSON or text
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// The whole answer, an object
    #[arg(long, value_name = "JSON", conflicts_with = "set")]
    pub json: Option<String>,
    /// Make a link by which somebody without a login can answer
    #[arg(long, conflicts_with_all = ["set", "json"])]
    pub link: bool,
}

#[derive(Debug, Args)]
pub struct WaitOptions {
    /// Ids of tasks or arrays
    #[arg(required = true, value_name = "ID", value_parser = parse_id)]
    pub ids: Vec<String>,
    /// Give up after this time: 90, 90s, 5m, 2h, 7d
    #[arg(long, value_name = "TIME", value_parser = seconds::parse)]
    pub timeout: Option<Duration>,
    /// Wait only until one of them has ended
    #[arg(long)]
    pub any: bool,
}

#[derive(Debug, Args)]
pub struct LogsOptions {
    /// The task's id
    #[arg(value_name = "ID", value_parser = parse_id)]
    pub id: String,
    /// Go on until the task has ended, with its further attempts
    #[arg(long, short, conflicts_with = "attempt")]
    pub follow: bool,
    /// Print standard error, and not standard output
    #[arg(long, conflicts_with = "both")]
    pub stderr: bool,
    /// Print both, standard error on standard error
    #[arg(long)]
    pub both: bool,
    /// Write to a terminal what would control it, too, and not only text and colours
    #[arg(long)]
    pub raw: bool,
    /// Print the output of this attempt [default: the latest]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub attempt: Option<u32>,
}

#[derive(Debug, Args)]
pub struct BundleOptions {
    /// The task's id
    #[arg(value_name = "ID", value_parser = parse_id)]
    pub id: String,
    /// Which attempt [default: the latest that is over]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub attempt: Option<u32>,
}

#[derive(Debug, Args)]
pub struct BulkOptions {
    /// What to do
    pub action: BulkAction,
    #[command(flatten)]
    pub which: BulkWhich,
}

/// With which tasks something is done, and how.
#[derive(Debug, Default, Args)]
pub struct BulkWhich {
    /// Tasks of this queue, by name or id; `*` for all queues. Needed, save with ids
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Tasks in these statuses, by word or number, with commas between them [default: all that it can be done
    /// with; for retry, those that did not succeed]
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status,
        allow_hyphen_values = true)]
    pub status: Vec<i64>,
    /// Tasks that last changed longer ago: 90s, 5m, 2h, 7d
    #[arg(long, value_name = "TIME", value_parser = seconds::parse)]
    pub older_than: Option<Duration>,
    /// Tasks that this node has or had last
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Tasks of this schedule, by name or id
    #[arg(long, value_name = "SCHEDULE")]
    pub schedule: Option<String>,
    /// Tasks of this group
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Tasks of this tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    #[command(flatten)]
    pub tags: TagFilter,
    #[command(flatten)]
    pub created: CreatedFilter,
    /// Tasks with these ids, with commas between them
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = parse_id)]
    pub id: Vec<String>,
    /// Let a delete leave archived tasks alone
    #[arg(long)]
    pub keep_archived: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Only print how many tasks these are
    #[arg(long)]
    pub preview: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Print the id of the bulk job and do not wait for it
    #[arg(long)]
    pub detach: bool,
}

#[derive(Debug, Args)]
pub struct ArchiveOptions {
    /// Ids of tasks, in place of --queue
    #[arg(value_name = "ID", value_parser = parse_id,
        conflicts_with_all = ["queue", "status", "older_than", "node", "schedule", "group", "tenant", "tag",
            "any_tag", "created_since", "created_until", "id", "keep_archived", "reason", "preview", "yes", "detach"])]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub which: BulkWhich,
}

#[derive(Debug, Args)]
pub struct OneQueue {
    /// The queue's name or id
    pub queue: String,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct ExplainOptions {
    /// The task's id
    #[arg(value_name = "ID", value_parser = parse_id)]
    pub id: Option<String>,
    /// Say what holds the first task of this queue that waits, by its name or id
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
}

#[derive(Debug, Args, Serialize)]
pub struct EventsOptions {
    /// Only tasks of these queues, by name or id, with commas between them
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Only changes to these statuses, by word or number, with commas between them
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status,
        allow_hyphen_values = true)]
    #[serde(serialize_with = "commas", skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<i64>,
    /// Only ends of tasks
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// Only tasks of this schedule, by name or id
    #[arg(long, value_name = "SCHEDULE")]
    pub schedule: Option<String>,
    /// Only tasks of this group
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Only tasks of this tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    pub tags: TagFilter,
    /// Begin after the event with this id, which `--format json` prints as "after" [default: with what happens now]
    #[arg(long, value_name = "ID")]
    #[serde(rename = ".after")]
    pub after: Option<String>,
}

#[derive(Debug, Args)]
pub struct GroupsOptions {
    /// The queue's name or id
    pub queue: String,
    /// Only those whose names begin so
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<String>,
    /// Only those that have tasks waiting
    #[arg(long)]
    pub waiting: bool,
    /// Only those whose names come after this one
    #[arg(long, value_name = "NAME")]
    pub after: Option<String>,
}

#[derive(Debug, Args)]
pub struct ShadowOptions {
    /// The queue's name or id
    pub queue: String,
    /// Show how texts differ, too
    #[arg(long)]
    pub differences: bool,
}

#[derive(Debug, Args, Serialize)]
pub struct RerunOptions {
    /// The id of the task or the array
    #[arg(value_parser = parse_id)]
    #[serde(skip)]
    pub id: String,
    /// Which elements of an array run again: those that failed, which is the default, or all that have ended
    #[arg(long, value_name = "WHICH", value_parser = ["failed", "all"])]
    pub elements: Option<String>,
    /// Which of the tasks that come after it run again, too: those that failed, or all
    #[arg(long, value_name = "WHICH", value_parser = ["none", "failed", "all"], default_value = "none")]
    pub downstream: String,
    /// Other params, as JSON
    #[arg(long, value_name = "JSON", value_parser = object)]
    pub params: Option<Value>,
    /// Why, for those who wonder
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

fn object(text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if value.is_object() { Ok(value) } else { Err("expected an object".to_owned()) }
}

#[derive(Debug, Args)]
pub struct QueueAndReason {
    /// The queue's name or id
    pub queue: String,
    /// Why, for those who wonder
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

pub(in crate::args) fn status(text: &str) -> Result<i64, String> {
    crate::status::from_text(text).ok_or_else(|| {
        format!("no status '{text}': give a number, or one of {}", crate::status::words().join(", "))
    })
}

#[derive(Debug, Args)]
pub struct DrainOptions {
    #[command(flatten)]
    pub what: Drained,
    /// Have running tasks of the node go on elsewhere, where their plugins can be interrupted
    #[arg(long, conflicts_with_all = ["queue", "tenant", "owner", "all"])]
    pub interrupt: bool,
    /// Take new tasks, and hold them until `undrain`
    #[arg(long, conflicts_with_all = ["accept", "node"])]
    pub pause: bool,
    /// Take new tasks although a wider rule says otherwise
    #[arg(long, conflicts_with = "node")]
    pub accept: bool,
    /// Why, for those who are refused
    #[arg(long, value_name = "TEXT", conflicts_with = "node")]
    pub reason: Option<String>,
    /// Wait until nothing of it waits or runs any more
    #[arg(long, conflicts_with_all = ["accept", "node"])]
    pub wait: bool,
}

/// What is drained: a node, or new tasks.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct Drained {
    /// Claim nothing more on this node, by its name or id; what runs goes on
    pub node: Option<String>,
    /// Take no new tasks of this queue, by its name or id
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Take no new tasks for this tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Take no new tasks of this user
    #[arg(long, value_name = "USER")]
    pub owner: Option<String>,
    /// Take no new tasks at all
    #[arg(long)]
    pub all: bool,
}
