//! The parts of a queue's page that change by themselves.

use askama::Template;
use askama::filters::HtmlSafe;

use super::charts::length;
use super::facts::{Facts, Statuses};
use crate::error::HttpError;
use crate::ui::lacking::Lacking;
use crate::ui::live::Part;
use crate::ui::names::label;
use crate::ui::node_state::NodeState;
use crate::ui::parts::{Pill, When};
use crate::ui::tally::Tally;
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
    rows: Vec<Row>,
}

struct Row {
    status: StatusView,
    tasks: String,
    none: bool,
    /// Where these tasks are found, if that can be said.
    link: Option<String>,
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
            statuses: StatusList { rows: facts.tallies.iter().map(|tally| row(facts, tally)).collect() },
        }
    }

    /// The same, to be sent.
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
    Head { name: label(queue), plugin: plain(queue.plugin.as_ref()), states }
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
    notices.extend(queue.unknown_sort().map(|sort| {
        let text = format!("Its order (sort), \"{sort}\", is unknown: the default order is used.");
        (false, text)
    }));
    notices.extend(lacks(facts).map(|text| (false, text)));
    notices
}

/// Why no node can run its tasks, if that is known.
fn lacks(facts: &Facts) -> Option<String> {
    let nodes = facts.nodes.iter().map(|node| (NodeState::of(node, &facts.now), node));
    Some(match Lacking::of(&facts.queue, nodes)? {
        Lacking::Plugin => "It has no plugin, so nothing can run its tasks.".to_owned(),
        Lacking::UsablePlugin(why) => format!("Nothing can run its tasks: {why}."),
        Lacking::Node => "No node is alive that claims tasks.".to_owned(),
        Lacking::NodeWith(plugin) => format!("No node that is alive has its plugin {plugin}."),
    })
}

fn controls(facts: &Facts) -> Controls {
    let queue = &facts.queue;
    Controls {
        id: queue.id.to_string(),
        name: label(queue),
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

fn row(facts: &Facts, (of, tally): &(Statuses, Tally)) -> Row {
    let status = match of {
        Statuses::One(code) => StatusView::from_code(*code),
        Statuses::Held => StatusView { code: "-8 and below".into(), word: "held" },
        Statuses::Finished => StatusView { code: "3 and above".into(), word: "finished" },
    };
    Row { status, tasks: tally.words(), none: tally.is_none(), link: tally.link(facts.queue.id) }
}
