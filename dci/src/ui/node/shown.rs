//! The parts of a node's page that change by themselves.

use std::collections::HashMap;

use askama::Template;
use askama::filters::HtmlSafe;
use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_core::model::{Count, Labels, Node, number, whole_number};
use disbatch_core::node::{Addresses, Stats};
use disbatch_core::store::StoreError;

use crate::error::HttpError;
use crate::nodes;
use crate::state::State;
use crate::ui::host::{self, Memory};
use crate::ui::live::Part;
use crate::ui::names::names;
use crate::ui::node_state::{NodeState, Now};
use crate::ui::parts::{Pill, When};
use crate::ui::{StatusView, plain};

/// So many of its tasks are shown.
const MOST: usize = 200;

/// What they are made of.
#[derive(Debug)]
pub(super) struct Facts {
    /// As stored.
    pub node: Document,
    /// Those that are claimed or running there.
    pub tasks: Vec<Document>,
    /// Whether there are more.
    pub more: bool,
    /// The names of queues.
    pub queues: HashMap<ObjectId, String>,
    pub now: Now,
}

/// All of them.
pub(super) struct Shown {
    pub head: Head,
    pub controls: Option<Controls>,
    pub facts: FactList,
    pub notices: Notices,
    pub tasks: TaskTable,
}

#[derive(Template)]
#[template(path = "node/head.html")]
pub(super) struct Head {
    name: String,
    state: Pill,
    seen: When,
}

#[derive(Template)]
#[template(path = "node/controls.html")]
pub(super) struct Controls {
    id: String,
    name: String,
    limit: Option<u64>,
    draining: bool,
    /// Whether a DEN works there that knows how to drain.
    drains: bool,
}

#[derive(Template)]
#[template(path = "node/facts.html")]
pub(super) struct FactList {
    running: String,
    limit: Option<u64>,
    load: String,
    memory: Option<Memory>,
    version: String,
    /// How many tasks its DEN leaves alone.
    aside: i64,
    serves: Option<String>,
    /// Whether schedules fire from there.
    fires: bool,
    labels: String,
    addresses: Vec<(&'static str, String)>,
}

/// What is wrong with it, and what can be done about that.
#[derive(Template)]
#[template(path = "node/notices.html")]
pub(super) struct Notices {
    id: String,
    name: String,
    /// Another DEN uses its name.
    rival: Option<String>,
    /// What was run when it died.
    hook: Option<String>,
    /// Whether it may be removed.
    is_gone: bool,
}

#[derive(Template)]
#[template(path = "node/tasks.html")]
pub(super) struct TaskTable {
    rows: Vec<Row>,
    /// How many there are at most.
    most: Option<usize>,
}

struct Row {
    id: String,
    queue: String,
    queue_id: Option<String>,
    status: StatusView,
    since: When,
    percent: Option<f64>,
    message: String,
}

impl HtmlSafe for Head {}
impl HtmlSafe for Controls {}
impl HtmlSafe for FactList {}
impl HtmlSafe for Notices {}
impl HtmlSafe for TaskTable {}

impl Facts {
    pub async fn gather(state: &State, node: Document) -> Result<Self, StoreError> {
        let store = &state.store;
        let node = nodes::as_it_is(state, node).await?;
        let name = plain(node.get("node"));
        let one_more = i64::try_from(MOST).unwrap_or(i64::MAX).saturating_add(1);
        let (mut tasks, queues, server) = futures::try_join!(
            store.tasks_on_node(&name, one_more),
            store.list_queues(),
            store.server_time(),
        )?;
        let more = tasks.len() > MOST;
        tasks.truncate(MOST);
        let queues = names(&queues);
        Ok(Self { node, tasks, more, queues, now: Now { server, host: store.now() } })
    }
}

impl Shown {
    /// What they show.
    pub fn of(facts: &Facts) -> Self {
        let document = &facts.node;
        let node: Option<Node> = bson::deserialize_from_document(document.clone()).ok();
        let seen = document.get("timestamp");
        let stats = Stats::of_node(document);
        let limit = document.get("maxthreads").and_then(|limit| Count(limit.clone()).get());
        let controls = node.as_ref().map(|node| Controls {
            id: node.id.to_hex(),
            name: plain(document.get("node")),
            limit,
            draining: node.is_draining(),
            drains: node.is_ours(),
        });
        let is = NodeState::of_node(node.as_ref(), seen, &facts.now);
        let addresses = Addresses::of_node(document);
        Self {
            head: Head { name: plain(document.get("node")), state: is.pill(), seen: When::of(seen) },
            controls,
            facts: FactList {
                running: plain(document.get("running")),
                limit,
                load: host::load(&stats),
                memory: Memory::of(&stats),
                version: plain(document.get("version")),
                aside: document.get("aside").and_then(whole_number).unwrap_or(0),
                serves: serves(document),
                fires: document.get("schedules") != Some(&Bson::Boolean(false)),
                labels: Labels::of(document.get_document("labels").ok()).to_string(),
                addresses: [("private", addresses.private), ("public", addresses.public)]
                    .into_iter()
                    .filter(|(_, all)| !all.is_empty())
                    .map(|(kind, all)| (kind, all.join(", ")))
                    .collect(),
            },
            notices: Notices {
                id: node.as_ref().map(|node| node.id.to_hex()).unwrap_or_default(),
                name: plain(document.get("node")),
                rival: document.get_str("rival").ok().map(str::to_owned).filter(|_| is.is_up()),
                hook: hook(document).filter(|_| !is.is_up()),
                is_gone: node.is_some() && !is.is_up(),
            },
            tasks: tasks(facts),
        }
    }

    /// The same, to be sent.
    pub fn parts(&self) -> Result<Vec<Part>, HttpError> {
        let mut parts = vec![
            Part::new("node-head", &self.head)?,
            Part::new("node-notices", &self.notices)?,
            Part::new("node-facts", &self.facts)?,
            Part::new("node-tasks", &self.tasks)?,
        ];
        if let Some(controls) = &self.controls {
            parts.push(Part::new("node-controls", controls)?);
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

fn tasks(facts: &Facts) -> TaskTable {
    let mut rows: Vec<Row> = facts.tasks.iter().map(|task| row(task, &facts.queues)).collect();
    // Ids begin with the time of their creation.
    rows.sort_by(|one, other| one.id.cmp(&other.id));
    TaskTable { rows, most: facts.more.then_some(MOST) }
}

fn row(task: &Document, queues: &HashMap<ObjectId, String>) -> Row {
    let queue = task.get("queue");
    let queue_id = queue.and_then(Bson::as_object_id);
    let name = queue_id.and_then(|id| queues.get(&id)).cloned();
    let progress = task.get("progress").and_then(Bson::as_document);
    let percent = progress.and_then(|progress| progress.get("percent")).and_then(number);
    Row {
        id: task.get_object_id("_id").map(|id| id.to_hex()).unwrap_or_default(),
        queue: name.or_else(|| queue_id.map(|id| id.to_hex())).unwrap_or_else(|| plain(queue)),
        queue_id: queue_id.map(|id| id.to_hex()),
        status: StatusView::of(task),
        since: When::of(task.get("started").or_else(|| task.get("mtime"))),
        percent: percent.filter(|percent| (0.0..=100.0).contains(percent)),
        message: progress
            .and_then(|progress| progress.get_str("message").ok())
            .unwrap_or_default()
            .to_owned(),
    }
}
