//! The parts of a node's page that change by themselves.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_core::model::{QueueId, number, whole_number};
use disbatch_core::node::Addresses;
use disbatch_core::store::StoreError;

use crate::error::HttpError;
use crate::state::State;
use crate::ui::live::Part;
use crate::ui::names::{Titles, names};
use crate::ui::node_row::NodeRow;
use crate::ui::node_state::Now;
use crate::ui::node_work::{Hours, OfQueue};
use crate::ui::parts::{When, cut};
use crate::ui::queue::how_it_failed;
use crate::ui::{StatusView, node_state, plain};

/// So many of its tasks are shown.
const MOST: usize = 200;

/// So many of those that failed last.
const FAILED: i64 = 5;

/// So many characters of params are shown.
const PARAMS: usize = 160;

#[derive(Debug)]
pub(super) struct Facts {
    /// As stored.
    pub node: Document,
    /// Those that are claimed or running there.
    pub tasks: Vec<Document>,
    pub more: bool,
    /// Those that failed there last.
    pub failed: Vec<Document>,
    /// What all nodes did within the last hour.
    pub hours: Arc<Hours>,
    /// The names of queues.
    pub queues: HashMap<ObjectId, String>,
    pub titles: Titles,
    pub now: Now,
}

/// What the page shows. Its blocks are the parts that change by themselves.
#[derive(Template)]
#[template(path = "node/parts.html", blocks = ["head", "controls", "facts", "notices", "tasks", "work", "failures"])]
pub(super) struct NodeParts {
    pub node: NodeRow,
    /// How many tasks its DEN leaves alone.
    aside: i64,
    serves: Option<String>,
    /// Whether schedules fire from there.
    fires: bool,
    addresses: Vec<(&'static str, String)>,
    /// Another DEN uses its name.
    rival: Option<String>,
    /// What was run when it died.
    hook: Option<String>,
    rows: Vec<Row>,
    failed: Vec<Row>,
    work: Vec<OfQueue>,
    /// The names of queues.
    queues: HashMap<ObjectId, String>,
    /// How many of its tasks are shown, if there are more.
    most: Option<usize>,
}

/// A task.
struct Row {
    id: String,
    title: String,
    queue: String,
    queue_id: Option<String>,
    params: String,
    error: String,
    status: StatusView,
    since: When,
    percent: Option<f64>,
    message: String,
}

impl Facts {
    pub async fn gather(state: &State, node: Document) -> Result<Self, StoreError> {
        let store = &state.store;
        let (node, now) = node_state::as_it_is(state, node).await?;
        let name = plain(node.get("node"));
        let one_more = i64::try_from(MOST).unwrap_or(i64::MAX).saturating_add(1);
        let (mut tasks, queues, nodes) = futures::try_join!(
            store.tasks_on_node(&name, one_more),
            store.list_queues(),
            store.list_nodes(),
        )?;
        let ids: Vec<QueueId> = queues.iter().map(|queue| queue.id).collect();
        let (failed, hours, titles) = futures::try_join!(
            store.failed_on_node(&name, &ids, FAILED),
            state.work.hours(state, &nodes),
            state.titles(&queues),
        )?;
        let more = tasks.len() > MOST;
        tasks.truncate(MOST);
        let queues = names(&queues);
        Ok(Self { node, tasks, more, failed, hours, queues, titles, now })
    }
}

impl NodeParts {
    pub fn of(facts: &Facts) -> Self {
        let document = &facts.node;
        let node = NodeRow::of(0, document, &facts.now);
        let Addresses { private, public } = Addresses::of_node(document);
        let addresses = [("private", private), ("public", public)].into_iter();
        let mut rows: Vec<Row> = facts.tasks.iter().map(|task| row(task, facts)).collect();
        // Ids begin with the time of their creation.
        rows.sort_by(|one, other| one.id.cmp(&other.id));
        Self {
            failed: facts.failed.iter().map(|task| row(task, facts)).collect(),
            work: OfQueue::all(&facts.hours, document),
            queues: facts.queues.clone(),
            aside: document.get("aside").and_then(whole_number).unwrap_or(0),
            serves: serves(document),
            fires: document.get("schedules") != Some(&Bson::Boolean(false)),
            addresses: addresses
                .filter(|(_, all)| !all.is_empty())
                .map(|(kind, all)| (kind, all.join(", ")))
                .collect(),
            rival: document.get_str("rival").ok().map(str::to_owned).filter(|_| node.state.is_up()),
            hook: hook(document).filter(|_| !node.state.is_up()),
            node,
            rows,
            most: facts.more.then_some(MOST),
        }
    }

    pub fn parts(&self) -> Result<Vec<Part>, HttpError> {
        let mut parts = vec![
            Part::new("node-head", &self.as_head())?,
            Part::new("node-notices", &self.as_notices())?,
            Part::new("node-facts", &self.as_facts())?,
            Part::new("node-tasks", &self.as_tasks())?,
            Part::new("node-work", &self.as_work())?,
            Part::new("node-failures", &self.as_failures())?,
        ];
        if self.node.is_known {
            parts.push(Part::new("node-controls", &self.as_controls())?);
        }
        Ok(parts)
    }
}

/// What was run when it died, and what came of it.
fn hook(node: &Document) -> Option<String> {
    let hook = node.get_document("hook").ok()?;
    let by = plain(hook.get("by"));
    Some(match hook.get_str("outcome") {
        Ok(outcome) => format!("When it died, {by} ran on_dead_node: {outcome}."),
        Err(_) => format!("When it died, {by} began to run on_dead_node."),
    })
}

/// Which queues its configuration restricts it to, if it does.
fn serves(node: &Document) -> Option<String> {
    let serves = node.get_document("serves").ok()?;
    let count = |key: &str| serves.get_array(key).ok().map(Vec::len);
    let queues = |count: usize| format!("{count} queue{}", if count == 1 { "" } else { "s" });
    match (count("active"), count("ignored")) {
        (Some(active), _) => Some(format!("only {} (activequeues of its configuration)", queues(active))),
        (None, Some(0)) | (None, None) => None,
        (None, Some(ignored)) => {
            Some(format!("all but {} (ignorequeues of its configuration)", queues(ignored)))
        }
    }
}

fn row(task: &Document, Facts { queues, titles, .. }: &Facts) -> Row {
    let queue = task.get("queue");
    let queue_id = queue.and_then(Bson::as_object_id);
    let name = queue_id.and_then(|id| queues.get(&id)).cloned();
    let progress = task.get("progress").and_then(Bson::as_document);
    let percent = progress.and_then(|progress| progress.get("percent")).and_then(number);
    Row {
        id: task.get_object_id("_id").map(|id| id.to_hex()).unwrap_or_default(),
        title: titles.of_task(task),
        queue: name.or_else(|| queue_id.map(|id| id.to_hex())).unwrap_or_else(|| plain(queue)),
        queue_id: queue_id.map(|id| id.to_hex()),
        params: cut(&plain(task.get("params")), PARAMS),
        error: how_it_failed(task),
        status: StatusView::of(task),
        since: When::of(task.get("started").or_else(|| task.get("mtime"))),
        percent: percent.filter(|percent| (0.0..=100.0).contains(percent)),
        message: progress
            .and_then(|progress| progress.get_str("message").ok())
            .unwrap_or_default()
            .to_owned(),
    }
}
