//! A task's life on its page: what can be done with it, what it waits for, in sentences whose names lead on, how its plugin ended, and
//! its earlier attempts.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, Document};
use disbatch_core::explain::{Explanation, Gate};
use disbatch_core::model::{SHADOW_OF, Status, TaskId, number};

use super::attempts;
use super::facts::QueueLink;
use crate::ui::names::{Called, Link, encoded, end_of};
use crate::ui::parts::{self, When, precise_seconds};
use crate::ui::{StatusView, asks, in_document, plain};

/// So many characters of what a task is called are in its tab.
const TAB: usize = 60;

#[derive(Debug, Clone, PartialEq, Eq, Template)]
#[template(path = "task/head.html")]
pub struct Head {
    id: String,
    /// What it is called; empty if its params do not say it.
    pub title: String,
    status: StatusView,
    pub tab: String,
    /// How many attempts have failed, and when the next one is due.
    retries: Option<(String, When)>,
    ended: bool,
    waiting: bool,
    /// Whether somebody has asked for its end, and why.
    asked: Option<String>,
    may_be_cancelled: bool,
    may_be_retried: bool,
    may_run_now: bool,
    may_be_prioritised: bool,
    may_be_changed: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "task/why.html")]
pub struct Why {
    question: &'static str,
    summary: Linked,
    waits: bool,
    /// What keeps it from running besides, or what is to be known of how it runs.
    gates: Vec<(bool, Linked)>,
    /// What it has to pass besides, and may.
    others: Vec<(bool, Linked)>,
    /// Nodes that cannot claim it, where others can.
    aside: Vec<String>,
    /// What helps: a link, and the dialog that it opens with script.
    helps: Vec<(&'static str, String, Option<&'static str>)>,
    /// The queue that is to be resumed, if that is what helps, and why it is paused.
    resume: Option<(String, Option<String>)>,
    here: String,
}

#[derive(Debug, Clone, Default, PartialEq, Template)]
#[template(path = "task/progress.html")]
pub struct Progress {
    live: bool,
    percent: Option<f64>,
    message: String,
}

impl Head {
    pub fn of(id: &str, task: &Document, queue: &QueueLink, title: String) -> Self {
        let status = Status::stored(task);
        let has_ended = status.is_some_and(Status::has_ended);
        let running = status == Some(Status::Running);
        let is_deferred = status == Some(Status::Deferred);
        let failures = attempts::failures(task, queue.most_attempts(task)).filter(|_| is_deferred);
        let live = status.is_some_and(|status| Status::LIVE.contains(&status));
        let asked = task.get_document("cancel").ok().filter(|_| running).map(who_and_why);
        Self {
            id: id.to_owned(),
            tab: tab(id, &title, status, queue),
            title,
            retries: failures.map(|words| (words, When::of(task.get("run_at")))),
            status: StatusView::of(task),
            ended: has_ended,
            waiting: !has_ended && !running && status != Some(Status::Claimed),
            // Asking twice changes nothing.
            may_be_cancelled: live && asked.is_none(),
            // What is in the archive stays as it is.
            may_be_retried: has_ended && !task.contains_key("archived"),
            may_run_now: is_deferred && !asks(task),
            may_be_prioritised: matches!(status, Some(Status::Queued | Status::Blocked | Status::Deferred)),
            // A new task like it would not be without effects.
            may_be_changed: queue.there && !task.contains_key(SHADOW_OF),
            asked,
        }
    }
}

/// `▶ import, convert a.png …8013333`: what tells the tabs of a browser apart, the most telling first.
fn tab(id: &str, title: &str, status: Option<Status>, queue: &QueueLink) -> String {
    let sign = match status {
        Some(Status::Running) => "▶ ",
        Some(Status::Succeeded) => "✓ ",
        Some(Status::Failed | Status::Terminated | Status::Orphaned) => "✗ ",
        Some(Status::Cancelled) => "⊘ ",
        Some(Status::Queued | Status::Claimed | Status::Deferred | Status::Blocked) => "◷ ",
        _ => "", // Nobody knows what it means.
    };
    let names = [queue.name.as_str(), title].into_iter().filter(|name| !name.is_empty());
    let names = parts::cut(&names.collect::<Vec<_>>().join(": "), TAB);
    let end = id.get(20..).unwrap_or_default();
    format!("{sign}{} …{end}", if names.is_empty() { "Task" } else { &names })
}

pub(super) fn who_and_why(cancel: &Document) -> String {
    let (by, reason) = (plain(cancel.get("by")), plain(cancel.get("reason")));
    [by, reason].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ")
}

impl Why {
    /// What keeps a task from running, or how it runs. Nothing of one that has ended.
    /// `called`: the tasks that sentences name.
    pub fn of(
        (id, task): (&str, &Document),
        queue: &QueueLink,
        called: &Called,
        explanation: Option<Explanation>,
    ) -> Self {
        let is_told = |explained: &Explanation| {
            !explained.status.has_ended() || explained.gates.iter().any(|gate| gate.name == "aside")
        };
        let Some(explanation) = explanation.filter(is_told) else {
            return Self::default();
        };
        let runs = explanation.status == Status::Running;
        let question = match explanation.status {
            Status::Running => "How is it running?",
            ended if ended.has_ended() => "How has it ended?",
            _ => "Why is it not running?", // Nothing else runs.
        };
        let names = names(task, queue, called);
        let summary = Linked::of(&explanation.summary, &names);
        let mut helps = Vec::new();
        for gate in explanation.gates.iter().filter(|gate| gate.is_closed()) {
            for help in help(&gate.name, task, queue) {
                if !helps.contains(&help) {
                    helps.push(help);
                }
            }
        }
        let waits = !runs && explanation.gates.iter().any(Gate::is_closed);
        let is_paused = explanation.gates.iter().any(|gate| gate.name == "queue_paused" && !gate.open);
        let resume = queue.id.clone().filter(|_| is_paused && queue.there);
        // What the summary says is not said twice.
        let gates = explanation.gates.into_iter().filter(|gate| gate.text != explanation.summary);
        // Nodes that cannot claim it are told together.
        let gates = gates.filter(|gate| gate.open || gate.name != Gate::NODE);
        let (gates, others): (Vec<Gate>, Vec<Gate>) = gates.partition(|gate| runs || gate.is_closed());
        let is_claimable = others.iter().any(|gate| gate.name == Gate::NODE);
        let linked = |gates: Vec<Gate>| {
            gates.into_iter().map(|gate| (gate.open, Linked::of(&gate.text, &names))).collect()
        };
        Self {
            question,
            summary,
            waits,
            gates: linked(gates),
            others: linked(others),
            // If no node can, that is what keeps it, and is told above.
            aside: explanation.unable.into_iter().filter(|_| is_claimable).collect(),
            helps,
            resume: resume.map(|id| (id, queue.reason.clone())),
            here: format!("/tasks/{id}"),
        }
    }
}

/// What sentences about a task may name: as they have it, and what is shown of it.
fn names(task: &Document, queue: &QueueLink, called: &Called) -> Vec<(String, Link)> {
    let name = |text: String, address: String| (text.clone(), Link::to(text, address));
    let of_queue = queue.id.as_ref().filter(|_| queue.there && !queue.name.is_empty());
    let of_queue = of_queue.map(|id| name(format!("queue {}", queue.name), format!("/queues/{id}")));
    let lock = task.get_str("needs_lock").ok();
    let lock = lock.map(|lock| name(format!("lock {lock}"), format!("/locks/{}", encoded(lock))));
    let tasks = called.iter().map(|(id, title)| {
        let shown = if title.is_empty() { end_of(id) } else { parts::cut(title, TAB) };
        (id.to_string(), Link::to(shown, format!("/tasks/{id}")))
    });
    of_queue.into_iter().chain(lock).chain(tasks).collect()
}

fn help(gate: &str, task: &Document, queue: &QueueLink) -> Vec<(&'static str, String, Option<&'static str>)> {
    let of_queue =
        |place: &str| queue.id.as_ref().filter(|_| queue.there).map(|id| format!("/queues/{id}{place}"));
    let of_tasks = |status: i32| queue.id.as_ref().map(|id| format!("/tasks?queue={id}&status={status}"));
    let link = |text: &'static str, address: Option<String>| address.map(|address| (text, address, None));
    let helps = match gate {
        "status" if Status::stored(task) == Some(Status::Deferred) => {
            [Some(("Run now", "#now".to_owned(), Some("now"))), None]
        }
        "status" if task.get_str("gate").is_ok_and(|gate| gate == "admission") => {
            [link("Admission rules", Some("/admission".to_owned())), None]
        }
        "queue_limit" => [link("Show the tasks that run", of_tasks(0)), link("Change threads", of_queue(""))],
        "queue_threads" => [link("Set threads", of_queue("")), None],
        "queue_plugin" => [link("Choose a plugin", of_queue("?tab=settings#set-runs")), None],
        "queue_rate" | "group_rate" => [link("Change the rate", of_queue("?tab=settings#set-rates")), None],
        "nodes_alive" | "nodes_able" => [link("Show nodes", Some("/nodes".to_owned())), None],
        "lock" | "lock_turn" => {
            let lock = task.get_str("needs_lock").ok();
            [link("Show the lock", lock.map(|name| format!("/locks/{}", encoded(name)))), None]
        }
        "turn" => [link("Show what waits", of_tasks(-2)), None],
        _ => [None, None], // It passes by itself, or the sentence says what to do.
    };
    helps.into_iter().flatten().collect()
}

impl Progress {
    pub fn of(task: &Document) -> Self {
        let percent = in_document(task, "progress", "percent").and_then(number);
        Self {
            live: Status::stored(task).is_some_and(|status| !status.has_ended()),
            percent: percent.filter(|percent| percent.is_finite()),
            message: plain(in_document(task, "progress", "message")),
        }
    }
}

pub fn exit_words(attempt: &Document) -> String {
    let exit = attempt.get_document("exit").map(exit).unwrap_or_default();
    exit.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
}

pub fn outputs(attempt: &Document) -> impl Iterator<Item = &'static str> {
    let has_output = |stream: &&str| !matches!(attempt.get(stream), None | Some(Bson::Null));
    ["stdout", "stderr"].into_iter().filter(has_output)
}

pub fn exit(exit: &Document) -> Vec<(&'static str, String)> {
    let number = |field: &str| exit.get(field).and_then(number);
    let seconds = |field: &str| number(field).map(precise_seconds);
    let text = |field: &str| Some(plain(exit.get(field))).filter(|text| !text.is_empty());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, which is what is wanted"
    )]
    let memory = number("peak_memory").map(|bytes| parts::bytes(bytes as u64));
    let no_memory = exit.get("oom").and_then(Bson::as_bool).filter(|oom| *oom).map(|_| "yes".to_owned());
    let facts = [
        ("Exit code", text("code")),
        ("Ended by signal", text("signal")),
        ("Ended by", text("reason")),
        ("Out of memory", no_memory),
        ("Over its limit", text("limit")),
        ("Run time", seconds("duration")),
        ("CPU time", seconds("cpu")),
        ("Peak memory", memory),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "task/linked.html")]
struct Linked {
    pieces: Vec<Link>,
}

impl HtmlSafe for Linked {}

impl Linked {
    fn of(text: &str, names: &[(String, Link)]) -> Self {
        let mut pieces = Vec::new();
        let (mut plain, mut at) = (0, 0);
        while let Some(rest) = text.get(at..) {
            let Some(next) = rest.chars().next() else { break };
            let is_start = text.get(..at).is_some_and(|before| !before.ends_with(is_of_word));
            let is_whole =
                |name: &str| rest.strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_of_word));
            match names.iter().find(|(name, _)| is_start && is_whole(name)) {
                Some((name, link)) => {
                    pieces.push(Link::nowhere(text.get(plain..at).unwrap_or_default()));
                    pieces.push(link.clone());
                    at += name.len();
                    plain = at;
                }
                None => at += next.len_utf8(),
            }
        }
        pieces.push(Link::nowhere(text.get(plain..).unwrap_or_default()));
        Self { pieces }
    }
}

/// The ids in text: of tasks, and of what else has one.
pub fn ids(text: &str) -> impl Iterator<Item = TaskId> {
    text.split(|c: char| !is_of_word(c)).filter_map(|word| word.parse().ok())
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;

    #[test]
    fn what_can_be_done_depends_on_the_status() {
        let can = |task: Document| {
            let head = Head::of(
                "6b0003bb686c8275d8013333",
                &task,
                &QueueLink { there: true, ..QueueLink::default() },
                String::new(),
            );
            let html = head.render().unwrap();
            assert_eq!(html.contains("href=\"#cancel\""), head.may_be_cancelled, "{html}");
            assert_eq!(html.contains("href=\"#retry\""), head.may_be_retried, "{html}");
            assert_eq!(html.contains("href=\"#now\""), head.may_run_now, "{html}");
            assert_eq!(html.contains("href=\"#priority\""), head.may_be_prioritised, "{html}");
            let status = Status::stored(&task).map(Status::code);
            assert_eq!(head.may_be_prioritised, matches!(status, Some(-7 | -4 | -2)), "{html}");
            assert_eq!(head.may_run_now, status == Some(-7), "{html}");
            (head.may_be_cancelled, head.may_be_retried)
        };
        for live in [-7, -4, -2, -1, 0] {
            assert_eq!(can(doc! { "status": live }), (true, false), "{live}");
        }
        for ended in [-3, -5, -6, 1, 2, 17] {
            assert_eq!(can(doc! { "status": ended }), (false, true), "{ended}");
        }
        assert_eq!(can(doc! { "status": 0, "cancel": {} }), (false, false));
        assert_eq!(can(doc! { "status": 1, "archived": DateTime::MAX }), (false, false));
        assert_eq!(can(doc! { "status": "odd" }), (false, false));
    }

    #[test]
    fn the_head_tells_scripts_where_the_task_stands() {
        let tells = |task: Document, wanted: &str| {
            let html = Head::of("6b0003bb686c8275d8013333", &task, &QueueLink::default(), String::new())
                .render()
                .unwrap();
            assert!(html.contains(wanted), "{wanted} is not in {html}");
            assert!(!html.contains("#again"), "its queue is gone: {html}");
        };
        tells(doc! { "status": -2 }, "data-ended=\"false\" data-waiting=\"true\"");
        tells(doc! { "status": -1 }, "data-ended=\"false\" data-waiting=\"false\"");
        tells(doc! { "status": 2 }, "data-ended=\"true\" data-waiting=\"false\"");
        tells(
            doc! { "status": 0, "cancel": { "by": "<me>", "reason": "why" } },
            "asked for by &#60;me&#62;: why",
        );
    }

    #[test]
    fn how_a_plugin_ended_is_in_words() {
        let exit = exit(&doc! {
            "signal": 9, "reason": "timeout", "oom": false, "duration": 1.26, "peak_memory": 3_145_728,
        });
        let exit: Vec<(&str, &str)> = exit.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let expected = [
            ("Ended by signal", "9"),
            ("Ended by", "timeout"),
            ("Run time", "1.2 s"),
            ("Peak memory", "3.0 MiB"),
        ];
        assert_eq!(exit, expected);
        assert!(self::exit(&doc! { "duration": "x", "peak_memory": -5.0, "oom": 1 }).len() <= 1);
    }

    fn explained(status: Status, gates: Vec<(&'static str, bool, &str)>) -> String {
        let gate = |(name, open, text): (&'static str, bool, &str)| Gate::new(name, open, text);
        let gates: Vec<Gate> = gates.into_iter().map(gate).collect();
        let summary =
            gates.iter().find(|gate| !gate.open).map_or("Nothing keeps it.", |gate| &gate.text).to_owned();
        let queue = QueueLink {
            id: Some("6b0003bb686c8275d70dc2f1".into()),
            name: "<q>".into(),
            there: true,
            reason: Some("a & b".into()),
            ..QueueLink::default()
        };
        let unable = vec!["2 nodes do not have the plugin <P>: a, b.".to_owned()];
        let explanation = Explanation { status, summary, gates, unable };
        let task = doc! { "status": status.code(), "needs_lock": "db" };
        let called = Called::from([("6b0003bb686c8275d8014444".parse().unwrap(), "say <b>".to_owned())]);
        Why::of(("6b0003bb686c8275d8013333", &task), &queue, &called, Some(explanation)).render().unwrap()
    }

    #[test]
    fn what_is_closed_stands_alone_with_what_helps() {
        let html = explained(
            Status::Queued,
            vec![
                ("queue", true, "The queue <q> is there."),
                ("queue_paused", false, "The queue <q> is paused."),
                ("queue_limit", false, "It is full."),
                ("node", false, "n1: not this one."),
            ],
        );
        let (above, folded) = html.split_once("<details").unwrap();
        for part in [
            "message busy",
            "✗</span> The <a href=\"/queues/6b0003bb686c8275d70dc2f1\">queue &#60;q&#62;</a> is paused.",
            "✗</span> <span>It is full.",
            "href=\"/tasks?queue=6b0003bb686c8275d70dc2f1&#38;status=0\"",
            "Resume queue",
            "data-undo=\"paused=true&amp;reason=a%20%26%20b\"",
        ] {
            assert!(above.contains(part), "{part} is not in {above}");
        }
        assert_eq!(html.matches("is paused").count(), 1, "the summary is not repeated: {html}");
        assert!(folded.contains("1 other check passed") && folded.contains("is there"), "{folded}");
        assert!(
            !folded.contains("n1") && !folded.contains("✗"),
            "what has not passed stands above: {folded}"
        );
    }

    #[test]
    fn nodes_that_cannot_claim_it_are_no_failed_checks_where_another_can() {
        let gates = vec![
            ("queue_limit", false, "It is full, as the task 6b0003bb686c8275d8014444 runs."),
            ("nodes_able", true, "A node can claim it."),
            ("node", false, "a cannot claim it."),
            ("node", true, "c can claim it."),
        ];
        let html = explained(Status::Queued, gates);
        let (above, folded) = html.split_once("<details").unwrap();
        assert!(
            above.contains("the task <a href=\"/tasks/6b0003bb686c8275d8014444\">say &#60;b&#62;</a> runs"),
            "{above}"
        );
        assert!(folded.contains("2 other checks passed") && !folded.contains("✗"), "{folded}");
        assert!(folded.contains("2 nodes do not have the plugin &#60;P&#62;: a, b."), "{folded}");
    }

    #[test]
    fn what_helps_depends_on_what_is_closed() {
        let lock = explained(Status::Blocked, vec![("lock", false, "It wants the lock db alone.")]);
        assert!(
            lock.contains("the <a href=\"/locks/db\">lock db</a> alone") && !lock.contains("Resume"),
            "{lock}"
        );
        let deferred = explained(Status::Deferred, vec![("status", false, "It is deferred.")]);
        assert!(deferred.contains("data-dialog=\"now\""), "{deferred}");
        let rate = explained(Status::Queued, vec![("queue_rate", false, "Soon.")]);
        assert!(rate.contains("?tab=settings#set-rates\""), "{rate}");
        let free = explained(Status::Queued, vec![("queue", true, "It is there.")]);
        assert!(!free.contains("message") && free.contains("What was checked"), "{free}");
    }

    #[test]
    fn only_what_goes_on_is_explained() {
        let running =
            explained(Status::Running, vec![("run", true, "It runs."), ("lease", false, "It is late.")]);
        assert!(running.contains("How is it running?") && !running.contains("<details"), "{running}");
        let none = Why::of(("", &doc! {}), &QueueLink::default(), &Called::default(), None).render().unwrap();
        for none in [explained(Status::Failed, Vec::new()), none] {
            assert!(none.contains("id=\"task-why\"") && !none.contains("<h2"), "{none}");
        }
    }

    #[test]
    fn heads_and_tabs_have_the_names_of_tasks() {
        let queue = QueueLink { name: "<q>".into(), ..QueueLink::default() };
        let task = doc! {
            "status": -7, "failures": 2, "max_attempts": 5, "run_at": DateTime::from_millis(0),
        };
        let html = Head::of("6b0003bb686c8275d8013333", &task, &queue, "say <b>".into()).render().unwrap();
        for part in [
            "<h1>say &#60;b&#62;</h1>",
            "<code>6b0003bb686c8275d8013333</code>",
            "data-tab=\"◷ &#60;q&#62;: say &#60;b&#62; …3333\"",
            "failure 2 of 5, next <time datetime=\"1970-01-01T00:00:00Z\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        let nameless =
            Head::of("6b0003bb686c8275d8013333", &doc! { "status": 1 }, &QueueLink::default(), String::new());
        assert_eq!(nameless.tab, "✓ Task …3333");
        assert!(nameless.render().unwrap().contains("<h1>Task <code>6b0003bb686c8275d8013333</code></h1>"));
    }

    #[test]
    fn progress_is_shown_until_the_end() {
        let shown = |task: Document| Progress::of(&task).render().unwrap();
        let html = shown(doc! { "status": 0, "progress": { "percent": 12.5, "message": "a <b>" } });
        assert!(html.contains("value=\"12.5\"") && html.contains("a &#60;b&#62;"), "{html}");
        let third = shown(doc! { "status": 0, "progress": { "percent": 100.0 / 3.0 } });
        assert!(third.contains(" 33.3 %"), "{third}");
        assert!(!shown(doc! { "status": 1, "progress": { "percent": 12.5 } }).contains("<progress"));
        assert!(!shown(doc! { "status": 0, "progress": { "percent": f64::NAN } }).contains("<progress"));
        assert!(!shown(doc! { "status": -7 }).contains("<progress"));
    }

    fn name(text: &str, shown: &str, address: &str) -> (String, Link) {
        (text.to_owned(), Link::to(shown, address))
    }

    #[test]
    fn names_lead_on_and_all_else_is_text() {
        const ID: &str = "6b0003bb686c8275d8013333";
        let names = [name("queue <m>", "queue <m>", "/queues/1"), name(ID, "say <b>", "/tasks/1")];
        let html = |text: &str| Linked::of(text, &names).render().unwrap();
        assert_eq!(
            html(&format!("é: the queue <m> waits for the task {ID}.")),
            "é: the <a href=\"/queues/1\">queue &#60;m&#62;</a> waits for the task \
             <a href=\"/tasks/1\">say &#60;b&#62;</a>."
        );
        for text in ["the queue m", "6b0003bb686c8275d80133334", "x6b0003bb686c8275d8013333", ""] {
            assert_eq!(html(text), text);
        }
        assert_eq!(html("queue <m>x"), "queue &#60;m&#62;x");
        let ids: Vec<String> =
            ids(&format!("the tasks {ID}, {ID}x and é")).map(|id| id.to_string()).collect();
        assert_eq!(ids, [ID]);
    }
}
