//! The settings of a queue, each with what it means. Each group of them is a form of its own, so that saving one does
//! not touch what somebody else has changed in another.

mod nodes;
mod rates;
mod turns;

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, Document};
use disbatch_core::model::{Queue, number};

use crate::ui::bulk::encoded;
use crate::ui::parts::rough;
use crate::ui::plain;

/// All of them.
#[derive(Template)]
#[template(path = "queue/settings.html")]
pub(super) struct Settings {
    id: String,
    groups: Vec<Group>,
}

impl HtmlSafe for Settings {}

/// What is saved together.
struct Group {
    /// Also the id of its heading.
    name: &'static str,
    title: &'static str,
    about: &'static str,
    settings: Vec<Setting>,
    /// What takes a change back: what there was before, as a query string.
    undo: String,
}

struct Setting {
    /// As the API has it.
    name: &'static str,
    label: &'static str,
    meaning: String,
    control: Control,
}

enum Control {
    Text {
        value: String,
        most: u32,
    },
    Number {
        value: String,
        least: &'static str,
        step: &'static str,
        unset: &'static str,
    },
    /// Text that may be left out.
    Line {
        value: String,
        most: u32,
        unset: &'static str,
    },
    Choice(Vec<Choice>),
}

struct Choice {
    value: String,
    label: String,
    chosen: bool,
}

impl Settings {
    /// Those of `queue`, which may have one of `plugins`.
    pub fn of(queue: &Queue, plugins: &[String]) -> Self {
        let groups = [
            named(queue),
            plugin(queue, plugins),
            turns::turns(queue),
            rates::rates(queue),
            nodes::nodes(queue),
            attempts(queue),
            lost(queue),
            ended(queue),
        ];
        Self { id: queue.id.to_string(), groups: groups.into() }
    }
}

impl Group {
    fn new(name: &'static str, title: &'static str, about: &'static str, settings: Vec<Setting>) -> Self {
        let pair = |setting: &Setting| format!("{}={}", setting.name, encoded(&setting.value()));
        let undo = settings.iter().map(pair).collect::<Vec<_>>().join("&");
        Self { name, title, about, settings, undo }
    }
}

impl Setting {
    fn new(name: &'static str, label: &'static str, meaning: &str, control: Control) -> Self {
        Self { name, label, meaning: meaning.to_owned(), control }
    }

    /// A number; empty if it is not set.
    fn number(
        (name, label): (&'static str, &'static str),
        stored: Option<&Bson>,
        (least, step, unset): (&'static str, &'static str, &'static str),
        meaning: &str,
    ) -> Self {
        let value = plain(stored);
        Self::new(name, label, meaning, Control::Number { value, least, step, unset })
    }

    /// A length of time, which is told in larger units too.
    fn seconds(
        names: (&'static str, &'static str),
        stored: Option<&Bson>,
        unset: &'static str,
        meaning: &str,
    ) -> Self {
        let mut setting = Self::number(names, stored, ("0", "any", unset), meaning);
        let long = stored.and_then(number).filter(|seconds| (120.0..1e12).contains(seconds));
        if let Some(seconds) = long {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked: positive and small"
            )]
            let seconds = seconds as u64;
            setting.meaning.push_str(&format!(" Now about {}.", rough(seconds)));
        }
        setting
    }

    /// One of a few words, or nothing.
    fn choice(
        names: (&'static str, &'static str),
        stored: Option<&Bson>,
        words: &[(&str, &str)],
        meaning: &str,
    ) -> Self {
        let now = plain(stored);
        let choice = |(value, label): &(&str, &str)| Choice {
            value: (*value).to_owned(),
            label: (*label).to_owned(),
            chosen: *value == now,
        };
        Self::new(names.0, names.1, meaning, Control::Choice(words.iter().map(choice).collect()))
    }

    fn value(&self) -> String {
        match &self.control {
            Control::Text { value, .. } | Control::Number { value, .. } | Control::Line { value, .. } => {
                value.clone()
            }
            Control::Choice(choices) => {
                let chosen = choices.iter().find(|choice| choice.chosen);
                chosen.map(|choice| choice.value.clone()).unwrap_or_default()
            }
        }
    }
}

fn named(queue: &Queue) -> Group {
    let name = Control::Text { value: queue.display_name(), most: 200 };
    let order = [
        ("", "not set: the oldest first, as far as the index has it"),
        ("fifo", "fifo: the oldest first"),
        ("lifo", "lifo: the newest first"),
    ];
    let order = Setting::choice(
        ("sort", "Order"),
        queue.sort.as_ref(),
        &order,
        "Which of its waiting tasks is claimed next.",
    );
    let name = Setting::new("name", "Name", "What people call it. No other queue may have the same.", name);
    Group::new("named", "Name and order", "What it is called, and which task is next.", vec![name, order])
}

fn plugin(queue: &Queue, plugins: &[String]) -> Group {
    let now = plain(queue.plugin.as_ref());
    let choice = |name: &String| Choice { value: name.clone(), label: name.clone(), chosen: *name == now };
    let mut choices: Vec<Choice> = plugins.iter().map(choice).collect();
    if !plugins.contains(&now) {
        choices.insert(0, Choice { label: format!("{now} (not known here)"), value: now, chosen: true });
    }
    let meaning = "Which plugin runs its tasks, those that wait included.";
    let plugin = Setting::new("plugin", "Plugin", meaning, Control::Choice(choices));
    Group::new("runs", "Plugin", "What runs its tasks.", vec![plugin])
}

fn attempts(queue: &Queue) -> Group {
    let field = |name: &str| queue.rest.get(name);
    let empty = Document::new();
    let backoff = field("backoff").and_then(Bson::as_document).unwrap_or(&empty);
    let settings = vec![
        Setting::number(
            ("max_attempts", "Attempts"),
            field("max_attempts"),
            ("1", "1", "1"),
            "How often a task may be tried that fails. Not set: once, or three times if only its runner dies and such tasks are requeued.",
        ),
        Setting::seconds(
            ("timeout", "Timeout (s)"),
            field("timeout"),
            "none",
            "How long an attempt may take. A plugin that takes longer is ended, and the attempt has failed.",
        ),
        Setting::seconds(
            ("grace", "Grace (s)"),
            field("grace"),
            "10",
            "How long a plugin that is to end has between SIGTERM and SIGKILL.",
        ),
        Setting::seconds(
            ("backoff.base", "First pause (s)"),
            backoff.get("base"),
            "1",
            "How long to wait before the next attempt: this, times the factor for each failure.",
        ),
        Setting::number(
            ("backoff.factor", "Factor"),
            backoff.get("factor"),
            ("0", "any", "2"),
            "By what the pause grows with each failure.",
        ),
        Setting::seconds(
            ("backoff.max", "Longest pause (s)"),
            backoff.get("max"),
            "3600",
            "No pause is longer.",
        ),
        Setting::number(
            ("backoff.jitter", "Jitter"),
            backoff.get("jitter"),
            ("0", "any", "0.1"),
            "By which part, up to 1, pauses are made longer or shorter at random, so that not all tasks come back at once.",
        ),
    ];
    Group::new(
        "attempts",
        "Attempts",
        "What becomes of a task that fails. A task's own options come first.",
        settings,
    )
}

fn lost(queue: &Queue) -> Group {
    let field = |name: &str| queue.rest.get(name);
    let orphan =
        [("", "not set: fail"), ("fail", "fail: it is orphaned"), ("requeue", "requeue: it is tried again")];
    let lease = [
        ("", "not set: keep on, or stop if orphans are requeued"),
        ("keep", "keep: the plugin goes on"),
        ("stop", "stop: the plugin is ended"),
    ];
    let settings = vec![
        Setting::choice(
            ("on_orphan", "A dead runner's task"),
            field("on_orphan"),
            &orphan,
            "What becomes of a task whose runner dies. It may have run in part, so requeue only what is safe to repeat.",
        ),
        Setting::choice(
            ("on_lost_lease", "Cut off from the database"),
            field("on_lost_lease"),
            &lease,
            "What a runner does that cannot reach the database until its lease is over.",
        ),
        Setting::seconds(
            ("unleased_limit", "Limit without a lease (s)"),
            field("unleased_limit"),
            "none",
            "After what time a running task is given up whose runner renews no lease, as Perl's do not.",
        ),
    ];
    Group::new("lost", "Lost runners", "What becomes of a task whose runner or node is gone.", settings)
}

fn ended(queue: &Queue) -> Group {
    let empty = Document::new();
    let retention = queue.rest.get("retention").and_then(Bson::as_document).unwrap_or(&empty);
    let settings = vec![
        Setting::seconds(
            ("retention.archive_after", "Archive after (s)"),
            retention.get("archive_after"),
            "never",
            "After what time ended tasks move to the archive, where they can still be found.",
        ),
        Setting::seconds(
            ("retention.delete_after", "Delete after (s)"),
            retention.get("delete_after"),
            "never",
            "After what time ended tasks are deleted, with their output, archived or not.",
        ),
    ];
    Group::new("ended", "Ended tasks", "How long they are kept. Janitors of DENs see to it.", settings)
}
