//! The parts of a queue's page that change by themselves.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, Document};
use disbatch_core::counters::count::Amount;

use super::charts::length;
use super::facts::{Facts, Statuses};
use crate::error::HttpError;
use crate::ui::live::Part;
use crate::ui::node_state::NodeState;
use crate::ui::parts::{Pill, When, grouped};
use crate::ui::{StatusView, plain};

/// All of them.
pub(super) struct Shown {
    pub head: Head,
    pub notices: Notices,
    pub controls: Controls,
    pub figures: Figures,
    pub statuses: StatusList,
}

#[derive(Template)]
#[template(path = "queue/head.html")]
pub(super) struct Head {
    name: String,
    plugin: String,
    states: Vec<Pill>,
}

/// What keeps its tasks from running, or from coming.
#[derive(Template)]
#[template(path = "queue/notices.html")]
pub(super) struct Notices {
    /// Whether it is as somebody wanted it, and what it is.
    notices: Vec<(bool, String)>,
}

#[derive(Template)]
#[template(path = "queue/controls.html")]
pub(super) struct Controls {
    id: String,
    name: String,
    threads: u64,
    paused: bool,
    accepting: bool,
    reason: String,
}

#[derive(Template)]
#[template(path = "queue/figures.html")]
pub(super) struct Figures {
    waiting: u64,
    oldest: When,
    running: u64,
    threads: u64,
    ended: u64,
    failed: u64,
    waited: String,
    ran: String,
}

#[derive(Template)]
#[template(path = "queue/statuses.html")]
pub(super) struct StatusList {
    rows: Vec<Tally>,
}

struct Tally {
    status: StatusView,
    tasks: String,
    none: bool,
    link: String,
}

impl HtmlSafe for Head {}
impl HtmlSafe for Notices {}
impl HtmlSafe for Controls {}
impl HtmlSafe for Figures {}
impl HtmlSafe for StatusList {}

impl Shown {
    /// What they show.
    pub fn of(facts: &Facts) -> Self {
        Self {
            head: head(facts),
            notices: Notices { notices: notices(facts) },
            controls: controls(facts),
            figures: figures(facts),
            statuses: StatusList { rows: facts.tallies.iter().map(|tally| row(facts, *tally)).collect() },
        }
    }

    /// The same, to be sent.
    ///
    /// # Errors
    /// They cannot be rendered.
    pub fn parts(&self) -> Result<Vec<Part>, HttpError> {
        Ok(vec![
            Part::new("queue-head", &self.head)?,
            Part::new("queue-notices", &self.notices)?,
            Part::new("queue-controls", &self.controls)?,
            Part::new("queue-figures", &self.figures)?,
            Part::new("queue-statuses", &self.statuses)?,
        ])
    }
}

fn head(facts: &Facts) -> Head {
    let queue = &facts.queue;
    let mut states = Vec::new();
    if queue.is_paused() {
        states.push(Pill { tone: "paused", word: "paused" });
    }
    if !queue.is_accepting() {
        states.push(Pill { tone: "closed", word: "accepts no tasks" });
    }
    if states.is_empty() {
        states.push(Pill { tone: "open", word: "open" });
    }
    Head { name: facts.name(), plugin: plain(queue.plugin.as_ref()), states }
}

fn notices(facts: &Facts) -> Vec<(bool, String)> {
    let queue = &facts.queue;
    let because = queue.reason().map(|reason| format!(": {reason}")).unwrap_or_default();
    let mut notices = Vec::new();
    if queue.is_paused() {
        notices.push((true, format!("Nothing of it is claimed, as it is paused{because}")));
    } else if queue.thread_limit() == 0 {
        notices.push((false, "Nothing of it is claimed, as its threads are 0.".to_owned()));
    }
    if !queue.is_accepting() {
        notices.push((true, format!("It accepts no tasks{because}")));
    }
    notices.extend(without_node(facts).map(|text| (false, text)));
    notices
}

/// Why no node can run its tasks, if that is known. What Perl's nodes have is not.
fn without_node(facts: &Facts) -> Option<String> {
    let plugin = match facts.queue.plugin_name() {
        Ok(Some(plugin)) => plugin,
        Ok(None) => return Some("It has no plugin, so nothing can run its tasks.".to_owned()),
        Err(error) => return Some(format!("Nothing can run its tasks: {error}.")),
    };
    let is_up = |node: &&Document| NodeState::of(node, &facts.now) == NodeState::Alive;
    let may_have = |node: &Document| match node.get("plugins").and_then(Bson::as_array) {
        Some(plugins) => plugins.iter().any(|found| found.as_str() == Some(plugin.as_str())),
        None => true,
    };
    let mut up = facts.nodes.iter().filter(is_up).peekable();
    if up.peek().is_none() {
        return Some("No node is alive that claims tasks.".to_owned());
    }
    (!up.any(may_have)).then(|| format!("No node that is alive has its plugin {plugin}."))
}

fn controls(facts: &Facts) -> Controls {
    let queue = &facts.queue;
    Controls {
        id: queue.id.to_string(),
        name: facts.name(),
        threads: queue.thread_limit(),
        paused: queue.is_paused(),
        accepting: queue.is_accepting(),
        reason: queue.reason().unwrap_or_default().to_owned(),
    }
}

fn figures(facts: &Facts) -> Figures {
    let slow =
        |times: &disbatch_core::series::Histogram| times.percentile(95).map(length).unwrap_or_default();
    Figures {
        waiting: facts.tasks(Statuses::One(-2)),
        oldest: facts.oldest.map(When::at).unwrap_or_default(),
        running: facts.tasks(Statuses::One(-1)) + facts.tasks(Statuses::One(0)),
        threads: facts.queue.thread_limit(),
        ended: facts.hour.ended.total(),
        failed: facts.hour.ended.failed,
        waited: slow(&facts.hour.waited),
        ran: slow(&facts.hour.ran),
    }
}

fn row(facts: &Facts, (of, amount): (Statuses, Amount)) -> Tally {
    let id = facts.queue.id;
    let (status, link) = match of {
        Statuses::One(code) => (StatusView::from_code(code), format!("/tasks?queue={id}&status={code}")),
        Statuses::Held => {
            (StatusView { code: "-8 and below".into(), word: "held" }, format!("/tasks?queue={id}"))
        }
        Statuses::Finished => {
            (StatusView { code: "3 and above".into(), word: "finished" }, format!("/tasks?queue={id}"))
        }
    };
    let tasks = match amount {
        Amount::Exactly(tasks) => grouped(tasks),
        Amount::MoreThan(tasks) => format!("more than {}", grouped(tasks)),
    };
    Tally { status, none: amount == Amount::Exactly(0), tasks, link }
}
