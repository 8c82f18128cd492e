//! What there is to know of a task: what is shown at its head, and everything else that is stored.

use askama::Template;
use bson::{Bson, Document};
use disbatch_core::accounts::Role;
use disbatch_core::config::TraceUrl;
use disbatch_core::gates::LockRequest;
use disbatch_core::model::{
    FILES, PLUGIN_VERSION, SHADOW_OF, STEPS, TaskFiles, TaskId, TraceContext, number,
};
use disbatch_core::schedules::OPTIONS;
use disbatch_core::tags::{TAGS, TagIndex};
use disbatch_core::task::question::{ANSWER, Awaiting, OnDeadline};

use super::attempts;
use super::life::{exit, who_and_why};
use super::timeline::asked_for;
use crate::ui::files::place;
use crate::ui::names::Link;
use crate::ui::parts::{When, limit_span, waited};
use crate::ui::{integer, plain, pretty};
use crate::values::tag_line;

const SHOWN_BYTES: usize = 64 * 1024;

const ROWS: usize = 50;

/// Fields that have a place of their own on the page.
const KNOWN: &str = "_id after after_failed after_when again answer archived array attempt awaited awaiting born cancel complete ctime \
    deadline dependents exit external failures files final_of freed gate grace group group_slot \
    has_secure_params held history holds_locks lock_round locks max_attempts mtime needs_lock node \
    parameters params plugin_version priority progress queue result run_at saves schedule scheduled_for secure_params shadow_of shadow_tenant \
    started status stderr stdout steps tags timeout unique unsettled waiting_for wants_key";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueLink {
    pub id: Option<String>,
    pub name: String,
    pub there: bool,
    /// Why it is paused or closed.
    pub reason: Option<String>,
    pub title: Option<String>,
    pub max_attempts: Option<i64>,
    pub role: Option<Role>,
    pub shadow: Option<TaskId>,
    /// Which parameters of its tasks are tags.
    pub index: TagIndex,
    /// The tenant that all its tasks have.
    pub tenant: Option<String>,
}

impl QueueLink {
    pub fn most_attempts(&self, task: &Document) -> Option<i64> {
        integer(task, "max_attempts").or(self.max_attempts)
    }
}

/// A set that a task gets or leaves: which of the two, it with its page or that of its version, and which version and files.
type FileLink = (&'static str, Link, String);

#[derive(Template)]
#[template(path = "task/facts.html")]
pub struct Facts<'a> {
    pub task: &'a Document,
    pub queue: QueueLink,
    /// The name of the schedule that has made it, if that is there.
    pub schedule: String,
    /// Where traces are to be seen.
    pub traces: Option<&'a TraceUrl>,
}

#[derive(Debug, Clone, Default, PartialEq, Template)]
#[template(path = "task/outcome.html")]
pub struct OutcomeView {
    id: String,
    result: Option<JsonText>,
    attempts: Vec<Document>,
    others: Vec<(String, JsonText)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JsonText {
    pub text: String,
    pub cut: bool,
}

impl JsonText {
    pub fn of(value: &Bson) -> Self {
        let text = pretty(value);
        let cut = text.len() > SHOWN_BYTES;
        let text = if cut { crate::output::cut(text.into_bytes(), SHOWN_BYTES).text } else { text };
        Self { text, cut }
    }
}

/// Params as rows of a table, if they are an object that a table shows well: names with what they have, text as it is.
pub fn table(params: Option<&Bson>) -> Vec<(String, String)> {
    let Some(params) = params.and_then(Bson::as_document).filter(|params| params.len() <= ROWS) else {
        return Vec::new();
    };
    let text = |value: &Bson| match value {
        Bson::Document(_) | Bson::Array(_) | Bson::Null => pretty(value),
        value => plain(Some(value)),
    };
    let rows: Vec<(String, String)> =
        params.iter().map(|(name, value)| (name.clone(), text(value))).collect();
    let bytes: usize = rows.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes <= SHOWN_BYTES { rows } else { Vec::new() }
}

impl Facts<'_> {
    fn others(&self) -> Vec<(&'static str, String)> {
        let task = self.task;
        let text = |name: &'static str, field: &str| {
            let text = plain(task.get(field));
            (!text.is_empty()).then_some((name, text))
        };
        let seconds = |name: &'static str, field: &str| {
            task.get(field).and_then(number).map(|seconds| (name, limit_span(seconds)))
        };
        let first = [
            attempts::words(task, self.queue.most_attempts(task)).map(|words| ("Attempt", words)),
            text("Plugin version", PLUGIN_VERSION),
            waited(task).map(|waited| ("Waited", waited)),
        ];
        let exit = task.get_document("exit").map(exit).unwrap_or_default();
        let last = [
            task.get_document("cancel").ok().map(|cancel| ("Cancel asked by", who_and_why(cancel))),
            seconds("Time limit", "timeout"),
            seconds("Grace", "grace"),
            text("Unique key", "unique"),
            text("Group", "group"),
            text("Priority", "priority"),
        ];
        let others = first.into_iter().flatten().chain(exit).chain(last.into_iter().flatten());
        others.chain(gates(task)).collect()
    }

    /// The task that it is the shadow of, or its shadow.
    fn shadow(&self) -> Option<(&'static str, String)> {
        let of = self.task.get_object_id(SHADOW_OF).ok().map(|id| ("Shadow of", id.to_hex()));
        of.or(self.queue.shadow.map(|id| ("Its shadow", id.to_string())))
    }

    /// The trace that it was submitted in, and where that is to be seen.
    fn trace(&self) -> Option<(String, String)> {
        let (trace, url) = TraceContext::of_task(self.task).zip(self.traces)?;
        Some((trace.trace_id().to_owned(), url.of(trace.trace_id())))
    }
}

impl OutcomeView {
    pub fn of(id: &str, task: &Document, attempts: &[Document]) -> Self {
        let others = task.iter().filter(|(key, _)| !KNOWN.split(' ').any(|known| known == *key));
        Self {
            id: id.to_owned(),
            result: task.get("result").filter(|result| **result != Bson::Null).map(JsonText::of),
            attempts: attempts.to_vec(),
            others: others.map(|(key, value)| (key.clone(), JsonText::of(value))).collect(),
        }
    }
}

/// What a new task like this one is submitted with besides its params: those options that it has, as fields of a form have them. What was for
/// that one time is none of them, nor its unique key, nor what its queue says of all its tasks: `index` and `tenant` are those of the queue.
pub fn options_again(task: &Document, index: &TagIndex, tenant: Option<&str>) -> Vec<(&'static str, String)> {
    let text = |name: &'static str| match name {
        STEPS => asked_for(task),
        TAGS => tag_line(&index.given(task)),
        FILES => {
            let files = TaskFiles::own_of_field(task.get(FILES)).ok().flatten();
            plain(files.map(|files| Bson::from(files.document())).as_ref())
        }
        "locks" => {
            // Those of its array and its schedule are not for others.
            let locks = task.get_array(name).into_iter().flatten().filter_map(Bson::as_str);
            locks.filter(|lock| lock.parse::<LockRequest>().is_ok()).collect::<Vec<_>>().join(",")
        }
        other => plain(task.get(other)),
    };
    let own_tenant = tenant.is_none().then_some("tenant");
    let all = OPTIONS.into_iter().chain(own_tenant).map(|name| (name, text(name)));
    all.filter(|(_, text)| !text.is_empty()).collect()
}

fn times(task: &Document) -> Vec<(&'static str, When)> {
    let external = task.get_document("external").ok();
    let external = external.filter(|external| external.contains_key("since"));
    let of_service = |field: &str| external.and_then(|external| external.get(field));
    let times = [
        ("Created", task.get("ctime")),
        ("Due", task.get("run_at")),
        ("Scheduled for", task.get("scheduled_for")),
        ("Started", task.get("started")),
        ("Changed", task.get("mtime")),
        ("Deadline", task.get("deadline")),
        ("Given to its web service", of_service("since")),
        ("Web service last heard of", of_service("heard")),
        ("Archived", task.get("archived")),
    ];
    let times = times.map(|(name, value)| (name, When::of(value)));
    times.into_iter().filter(|(_, when)| !when.is_empty()).collect()
}

fn links(task: &Document) -> Vec<FileLink> {
    let Ok(files) = task.get_document(FILES) else { return Vec::new() };
    let input = files.get_document("input").ok().map(|part| {
        let version = integer(part, "taken").or_else(|| integer(part, "version"));
        link("Input files", part, version, "the newest version")
    });
    let output = files.get_document("output").ok();
    let output =
        output.map(|part| link("Output files", part, integer(part, "version"), "when it has succeeded"));
    input.into_iter().chain(output).collect()
}

/// `unknown` is said of a version that is not known yet.
fn link(title: &'static str, part: &Document, version: Option<i64>, unknown: &str) -> FileLink {
    let name = plain(part.get("name"));
    let patterns = part.get_array("patterns").map(Vec::as_slice).unwrap_or_default();
    let patterns: Vec<String> = patterns.iter().map(|pattern| plain(Some(pattern))).collect();
    let of = if patterns.is_empty() { String::new() } else { format!(": {}", patterns.join(", ")) };
    let (option, words) = match version {
        Some(version) => (format!("?.version={version}"), format!("version {version}")),
        None => (String::new(), unknown.to_owned()),
    };
    let address = format!("{}{option}", place(&name));
    (title, Link::to(name, address), format!("{words}{of}"))
}

/// The array that it is an element of, or comes after.
fn array(task: &Document) -> Option<(String, String)> {
    if let Ok(id) = task.get_object_id("final_of") {
        return Some((id.to_hex(), "comes after its elements".to_owned()));
    }
    let array = task.get_document("array").ok()?;
    let id = array.get_object_id("id").ok()?;
    Some((id.to_hex(), format!("element {}", plain(array.get("index")))))
}

/// What it comes after, and what it holds while it runs.
fn gates(task: &Document) -> Vec<(&'static str, String)> {
    let all = |field: &str| task.get_array(field).map(Vec::as_slice).unwrap_or_default();
    let after = match (all("after").len(), plain(task.get("after_when")).as_str()) {
        (0, _) => None,
        (1, "finished") => Some("1 task, however it ends".to_owned()),
        (1, _) => Some("1 task, if that succeeds".to_owned()),
        (several, "finished") => Some(format!("{several} tasks, however they end")),
        (several, "any") => Some(format!("the first of {several} tasks that succeeds")),
        (several, _) => Some(format!("{several} tasks, if all succeed")),
    };
    let locks: Vec<String> = all("locks").iter().map(|lock| plain(Some(lock))).collect();
    let locks = (!locks.is_empty()).then(|| locks.join(", "));
    let after = after.map(|after| ("Comes after", after));
    after.into_iter().chain(locks.map(|locks| ("Locks", locks))).collect()
}

/// What a task asks a person, with the form of its answer; or the answer that it has had.
#[derive(Debug, Template)]
#[template(path = "task/answer.html")]
pub struct AnswerBox<'a> {
    id: &'a str,
    asks: Option<Awaiting>,
    answer: Option<&'a Document>,
}

impl<'a> AnswerBox<'a> {
    pub fn of(id: &'a str, task: &'a Document) -> Self {
        Self { id, asks: Awaiting::of_document(task), answer: task.get_document(ANSWER).ok() }
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{DateTime, doc};
    use serde::Deserialize as _;

    use super::*;

    fn at(seconds: i64) -> DateTime {
        DateTime::from_millis(1_795_163_067_344 + seconds * 1000)
    }

    fn of(task: &Document, queue: QueueLink, traces: Option<&TraceUrl>) -> String {
        Facts { task, queue, schedule: String::new(), traces }.render().unwrap()
    }

    #[test]
    fn facts_are_in_words() {
        let task = doc! {
            "node": "a/<b>", "ctime": at(0), "started": at(5), "mtime": at(9), "attempt": 2, "max_attempts": 3,
            "failures": 1, "timeout": 90_i64, "unique": "<k>", "complete": false, "exit": { "code": 3 },
            "cancel": { "by": "ada", "reason": "<why>" }, "locks": ["db/3", "<x>"], "after": [1, 2],
            "after_when": "any", "external": { "since": at(6), "heard": at(8) },
            "files": { "output": { "name": "<out>", "version": 2_i64 } }, "tags": ["to=<you>"],
        };
        let queue = QueueLink {
            id: Some("6b0003bb686c8275d70dc2f1".into()),
            name: "<mail>".into(),
            there: true,
            ..QueueLink::default()
        };
        let html = of(&task, queue, None);
        for part in [
            "<a href=\"/queues/6b0003bb686c8275d70dc2f1\">&#60;mail&#62;</a>",
            "href=\"/tasks?queue=6b0003bb686c8275d70dc2f1\"",
            "<a href=\"/nodes/a%2F%3Cb%3E\">a/&#60;b&#62;</a>",
            "2 · 1 of 3 failures",
            "<dt>Waited</dt><dd>5.0 s</dd>",
            "<dt>Cancel asked by</dt><dd>ada: &#60;why&#62;</dd>",
            "<dt>Exit code</dt><dd>3</dd>",
            "<dt>Time limit</dt><dd>90 s</dd>",
            "<dt>Comes after</dt><dd>the first of 2 tasks that succeeds</dd>",
            "<dt>Locks</dt><dd>db/3, &#60;x&#62;</dd>",
            "&#60;k&#62;",
            "datetime=\"2026-11-20T08:24:32Z\"",
            "<dt>Output files</dt><dd><a href=\"/files/%3Cout%3E?.version=2\">&#60;out&#62;</a>, version 2</dd>",
            "<dt>Web service last heard of</dt>",
            "datetime=\"2026-11-20T08:24:35Z\"",
            "Storing the output failed.",
            "<dt>Tags</dt><dd><a class=\"chip\" href=\"/tasks?tags=to%3D%3Cyou%3E\">to=&#60;you&#62;</a></dd>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let traced = doc! { "trace": { "parent": parent } };
        let url = disbatch_core::config::Traces::deserialize(
            serde_json::json!({ "url": "https://t/?id={trace_id}&a" }),
        );
        let url = url.unwrap().url;
        let html = of(&traced, QueueLink::default(), url.as_ref());
        let id = "0af7651916cd43dd8448eb211c80319c";
        assert!(
            html.contains(&format!("<a href=\"https://t/?id={id}&#38;a\" rel=\"noreferrer\">{id}</a>")),
            "{html}"
        );
        let gone = QueueLink { name: "q (deleted)".into(), ..QueueLink::default() };
        let html = of(&doc! {}, gone, None);
        assert!(
            html.contains("none yet") && html.contains("q (deleted)") && !html.contains("failed."),
            "{html}"
        );
    }

    #[test]
    fn what_was_asked_for_is_asked_for_again() {
        let task = doc! {
            "params": { "to": "ada" }, "timeout": 90_i64, "grace": 1.5, "backoff": { "base": 2.0 }, "group": "a/b", "priority": 5_i64,
            "tenant": "acme", "tags": ["to=ada", "a, b", "urgent"], "locks": ["array:6b/4", "db/2", "r", "schedule:x"],
            "steps": [{ "name": "get", "status": 1 }],
            "files": { "input": { "name": "data", "taken": 3_i64 }, "output": { "name": "out", "version": 7_i64 } },
            "unique": "k", "deadline": at(0), "run_at": at(0), "after": [ObjectId::new()], "attempt": 3,
        };
        let index = TagIndex::of(vec!["params.to".to_owned()]).unwrap();
        let files = r#"{"input":{"name":"data"},"output":{"name":"out"}}"#;
        let expected = [
            ("timeout", "90"),
            ("grace", "1.5"),
            ("backoff", r#"{"base":2}"#),
            ("group", "a/b"),
            ("priority", "5"),
            ("locks", "db/2,r"),
            ("tags", r#"["a, b","urgent"]"#),
            ("steps", r#"[{"name":"get"}]"#),
            ("files", files),
            ("tenant", "acme"),
        ];
        let again = |tenant| options_again(&task, &index, tenant);
        assert_eq!(again(None), expected.map(|(name, text)| (name, text.to_owned())));
        assert!(again(Some("beta")).iter().all(|(name, _)| *name != "tenant"));
        let of_queue = doc! { "files": { "output": { "name": "logs" }, "of_queue": true }, "locks": "odd" };
        assert!(options_again(&of_queue, &TagIndex::default(), None).is_empty());
    }

    #[test]
    fn everything_that_is_stored_is_shown_somewhere() {
        let long = "x".repeat(100_000);
        let task = doc! {
            "someone_elses": { "a": "<b>" }, "pid": 7, "stdout": "not here", "result": { "long": &long, "<r>": 1 },
        };
        let attempts = [doc! { "attempt": 1, "status": 2, "note": "timed <out>", "stdout": "x" }];
        let html = OutcomeView::of("6b0003bb686c8275d8013333", &task, &attempts).render().unwrap();
        for part in [
            "someone_elses",
            "&#34;a&#34; : &#34;&#60;b&#62;&#34;",
            "<dt>pid</dt>",
            "timed &#60;out&#62;",
            "/tasks/6b0003bb686c8275d8013333/stdout?.attempt=1",
            "Only the first 64 KiB are shown.",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("not here") && html.len() < 90_000, "{}", html.len());
        let nothing = OutcomeView::of("6b0003bb686c8275d8013333", &doc! { "result": Bson::Null }, &[])
            .render()
            .unwrap();
        assert!(!nothing.contains("<h2") && nothing.contains("id=\"task-outcome\""), "{nothing}");
    }

    #[test]
    fn attempts_tell_what_came_of_them() {
        let attempt = doc! {
            "attempt": 1, "status": 2, "started": at(0), "stdout": "x", "stderr": Bson::Null,
            "exit": { "code": 3, "duration": 2 }, "ended": at(2),
        };
        let html = OutcomeView::of("6b0003bb686c8275d8013333", &doc! {}, &[attempt]).render().unwrap();
        for part in [
            "<th scope=\"row\" class=\"number\">1</th>",
            " data-exact>2026-11-20 08:24:27</time></td>",
            "<td data-label=\"How\">Exit code: 3, Run time: 2.0 s</td>",
            "stdout?.attempt=1",
            "<a href=\"/moments?at=2026-11-20T08:24:29Z\">What else happened then</a>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("stderr"), "it has none: {html}");
    }

    #[test]
    fn what_was_taken_and_made_is_linked() {
        let task = doc! { "files": {
            "input": { "name": "data", "patterns": ["*.py", "bin/*"], "taken": 3_i64 },
            "output": { "name": "a b", "version": 7_i64 },
        } };
        let told: Vec<(Option<String>, String)> =
            links(&task).into_iter().map(|(_, link, about)| (link.address, about)).collect();
        let expected =
            [("/files/data?.version=3", "version 3: *.py, bin/*"), ("/files/a%20b?.version=7", "version 7")];
        assert_eq!(told, expected.map(|(address, about)| (Some(address.to_owned()), about.to_owned())));
        let waits = doc! { "files": { "input": { "name": "data" }, "output": { "name": "result" } } };
        let about: Vec<String> = links(&waits).into_iter().map(|(.., about)| about).collect();
        assert_eq!(about, ["the newest version", "when it has succeeded"]);
        assert!(links(&doc! { "files": "odd" }).is_empty());
    }

    fn html(task: &Document) -> String {
        AnswerBox::of("6b0003bb686c8275d8013333", task).render().unwrap()
    }

    #[test]
    fn a_question_has_its_form_and_an_answer_who_gave_it() {
        let at = DateTime::from_millis(1_795_163_067_344);
        let awaiting = doc! {
            "title": "<Go on?>", "form": { "properties": { "go": { "type": "boolean" } } }, "who": ["ann"], "asked": at,
            "deadline": at, "on_deadline": "cancel", "attempt": 1,
        };
        let asks = html(&doc! { "status": -7, "awaiting": awaiting });
        for part in
            ["&#60;Go on?&#62;", "name=\"/go\"", "answer of ann", "the task is cancelled", "/answer/link"]
        {
            assert!(asks.contains(part), "{part} is not in {asks}");
        }
        let answer = doc! { "by": "<ann>", "at": at, "value": { "go": true }, "attempt": 1 };
        let answered = html(&doc! { "status": 1, "answer": answer });
        assert!(answered.contains("&#60;ann&#62;") && answered.contains("&#34;go&#34;:true"), "{answered}");
        let nobodys = doc! { "by": Bson::Null, "at": at, "value": Bson::Null, "attempt": 1 };
        assert!(html(&doc! { "status": 1, "answer": nobodys }).contains("Nobody has answered"));
        assert!(!html(&doc! { "status": -7 }).contains("<section"));
    }
}
