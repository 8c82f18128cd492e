//! A table of tasks, whose rows change by themselves: it shows of each what its visitor chooses.

use std::ops::Range;

use askama::Template;
use askama::filters::HtmlSafe;
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::bulk::Action;
use disbatch_core::model::number;
use disbatch_core::tags::TAGS;
use disbatch_core::task::ERROR;
use serde_json::Value;

use super::search::tags_of;
use super::statuses::given;
use crate::ui::names::{self, QueueNames};
use crate::ui::parts::{self, When, cut, precise_seconds};
use crate::ui::{StatusView, in_document, integer, plain};

const EXCERPT: usize = 160;

/// A value that is larger is not read for its beginning alone.
pub const MOST_BYTES: i32 = 16 * 1024;

/// What is shown instead.
pub const TOO_LARGE: &str = "(more than 16 KiB: see the task)";

const LARGE: [&str; 5] = ["params", "parameters", "array", "progress", "result"];

disbatch_values::words! {
    /// As people read them, in the order in which they are shown.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Column {
        Queue = "Queue",
        Status = "Status",
        Error = "Error",
        Node = "Node",
        Created = "Created",
        Changed = "Changed",
        /// How long it waited before its last attempt began.
        Waited = "Waited",
        Ran = "Ran",
        Exit = "Exit",
        Progress = "Progress",
        Attempt = "Attempt",
        Due = "Due",
        Result = "Result",
        Params = "Params",
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// A queue, and its id if it has one.
    Queue(Option<String>, String),
    Status(StatusView),
    Node(String),
    Time(When),
    Number(String),
    Code(String),
    Error(String),
    Params(Excerpt, Vec<(String, String)>),
    /// Percents, if they are known, and words.
    Progress(Option<f64>, String),
}

impl Column {
    pub const USUAL: [Self; 6] =
        [Self::Queue, Self::Status, Self::Node, Self::Created, Self::Changed, Self::Params];

    /// The usual ones of tasks with these statuses: of failed ones, why they failed is among them.
    pub fn usual(statuses: &[String]) -> Vec<Self> {
        let fails = |status: &String| {
            status.parse().is_ok_and(|status: i64| status >= 2 || matches!(status, -6 | -3))
        };
        let mut usual = Self::USUAL.to_vec();
        if statuses.iter().any(fails) {
            usual.insert(2, Self::Error);
        }
        usual
    }

    const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Queue => &["queue"],
            Self::Status => &["status", "awaiting.asked", "failures", "run_at", "exit.reason", "cancel.by"],
            Self::Node => &["node"],
            Self::Created => &["ctime"],
            Self::Changed => &["mtime"],
            Self::Waited => &["ctime", "run_at", "started"],
            Self::Ran => &["exit.duration"],
            Self::Exit => &["exit.code", "exit.signal"],
            Self::Progress => &["progress"],
            Self::Attempt => &["attempt"],
            Self::Due => &["run_at"],
            Self::Result => &["result"],
            Self::Error => &[ERROR],
            Self::Params => &["params", "parameters", TAGS],
        }
    }

    pub fn name(self) -> String {
        self.as_str().to_lowercase()
    }

    pub const fn is_number(self) -> bool {
        matches!(self, Self::Waited | Self::Ran | Self::Exit | Self::Attempt)
    }

    pub const fn is_spare(self, columns: usize) -> bool {
        match self {
            Self::Node | Self::Created => columns >= Self::USUAL.len(),
            Self::Params => columns > Self::USUAL.len(),
            _ => false, // All others are shown because somebody has chosen them.
        }
    }

    /// Those that an option names, in their order; the usual ones of these statuses if it names none.
    pub fn chosen(option: Option<&Value>, statuses: &[String]) -> Vec<Self> {
        let named = given(option);
        let chosen: Vec<Self> =
            Self::ALL.into_iter().filter(|column| named.contains(&column.name())).collect();
        if chosen.is_empty() { Self::usual(statuses) } else { chosen }
    }

    /// What is to be read of tasks for `columns`. Of values that may be large and of which only the beginning is shown,
    /// the server sends small ones only.
    pub fn projection(columns: &[Self]) -> Document {
        let fields = columns.iter().flat_map(|column| column.fields());
        // What can be done to a task is said by its status, and what it is called by its queue and its params.
        let fields = fields.chain(&names::FIELDS);
        fields.fold(doc! { "_id": 1, "status": 1 }, |mut projection, field| {
            let value = if LARGE.contains(field) { unless_large(field) } else { Bson::Int32(1) };
            projection.insert(*field, value);
            projection
        })
    }

    /// A field of a task. In params, `hit` is marked, which is in lower case.
    pub fn cell(self, task: &Document, names: &QueueNames, hit: &str) -> Cell {
        let ended = task.get_document("exit").ok();
        match self {
            Self::Queue => queue(task.get("queue"), names),
            Self::Status => Cell::Status(StatusView::of(task)),
            Self::Node => Cell::Node(plain(task.get("node"))),
            Self::Created => Cell::Time(When::of(task.get("ctime"))),
            Self::Changed => Cell::Time(When::of(task.get("mtime"))),
            Self::Due => Cell::Time(When::of(task.get("run_at"))),
            Self::Waited => Cell::Number(parts::waited(task).unwrap_or_default()),
            Self::Ran => Cell::Number(ran(ended)),
            Self::Exit => Cell::Number(exit(ended)),
            Self::Progress => {
                let (percent, words) = progress(task);
                Cell::Progress(percent, words)
            }
            Self::Attempt => Cell::Number(plain(task.get("attempt"))),
            Self::Result => Cell::Code(cut(&plain(task.get("result")), EXCERPT)),
            // What was tried again by hand may have it from before.
            Self::Error if integer(task, "status") == Some(1) => Cell::Error(String::new()),
            Self::Error => Cell::Error(cut(&plain(task.get(ERROR)), EXCERPT)),
            Self::Params => Cell::Params(Excerpt::of(&plain(params(task)), hit, EXCERPT), tags_of(task)),
        }
    }
}

#[derive(Debug, Template)]
#[template(path = "tasks/table.html")]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
}

impl HtmlSafe for Table {}

#[derive(Debug, Template)]
#[template(path = "tasks/row.html")]
pub struct Row {
    pub id: String,
    title: String,
    /// What can be done to it: names of actions.
    can: String,
    width: usize,
    /// None: the task is not there any more, or in the archive.
    cells: Option<Vec<(Column, Cell)>>,
    is_archived: bool,
}

impl HtmlSafe for Row {}

impl Row {
    /// The row of a task. `names` are those of queues; `hit` is marked in its params, and is in lower case.
    pub fn of(task: &Document, columns: &[Column], names: &QueueNames, hit: &str) -> Self {
        let cells = columns.iter().map(|column| (*column, column.cell(task, names, hit))).collect();
        let id = task.get_object_id("_id").map(ObjectId::to_hex).unwrap_or_default();
        let status = integer(task, "status");
        let can = Action::ALL.iter().filter(|action| status.is_some_and(|status| action.applies_to(status)));
        let can = can.map(|action| action.as_str()).collect::<Vec<_>>().join(" ");
        Self { id, title: String::new(), can, width: columns.len(), cells: Some(cells), is_archived: false }
    }

    pub fn called(self, title: String) -> Self {
        Self { title, ..self }
    }

    pub fn of_gone(id: ObjectId, columns: &[Column], is_archived: bool) -> Self {
        let (id, width) = (id.to_hex(), columns.len());
        Self { id, title: String::new(), can: String::new(), width, cells: None, is_archived }
    }
}

/// An expression for a field: what it is, or what is shown instead of a large value.
pub fn unless_large(field: &str) -> Bson {
    let value = format!("${field}");
    // Only the size of a document can be asked for.
    let size = doc! { "$bsonSize": { "value": &value } };
    let large = doc! { "$gt": [size, MOST_BYTES] };
    doc! { "$cond": [large, { "$literal": TOO_LARGE }, value] }.into()
}

/// The parameters of a task, under their old name if need be.
pub fn params(task: &Document) -> Option<&Bson> {
    task.get("params").filter(|params| **params != Bson::Null).or_else(|| task.get("parameters"))
}

fn queue(value: Option<&Bson>, names: &QueueNames) -> Cell {
    match value {
        Some(Bson::ObjectId(id)) => {
            let name = names.get(id).cloned().unwrap_or_else(|| format!("{id} (deleted)"));
            Cell::Queue(names.contains_key(id).then(|| id.to_hex()), name)
        }
        other => Cell::Queue(None, plain(other)),
    }
}

/// How far its plugin says it is: percents, if they are known, and words.
pub fn progress(task: &Document) -> (Option<f64>, String) {
    let percent = in_document(task, "progress", "percent").and_then(number);
    let message = plain(in_document(task, "progress", "message"));
    (percent.filter(|percent| percent.is_finite()), cut(&message, EXCERPT))
}

pub fn ran(ended: Option<&Document>) -> String {
    let seconds = ended.and_then(|exit| exit.get("duration")).and_then(number);
    seconds.map(precise_seconds).unwrap_or_default()
}

pub fn exit(ended: Option<&Document>) -> String {
    let known = |name: &str| plain(ended.and_then(|exit| exit.get(name)));
    match (known("code"), known("signal")) {
        (code, _) if !code.is_empty() => code,
        (_, signal) if !signal.is_empty() => format!("signal {signal}"),
        _ => String::new(), // It has not ended, or nobody noted how.
    }
}

/// So many characters are shown before what was found, where that is not at the beginning.
const BEFORE: usize = 40;

/// The beginning of a text, or what is around the first place where something was found in it, which is marked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// Its pieces in order, and whether each is what was looked for.
    pub pieces: Vec<(bool, String)>,
}

impl Excerpt {
    /// At most `most` characters of `text`, with every `hit` in them marked, whichever case it has there. `hit` is in lower
    /// case; if it is empty, nothing is marked.
    pub fn of(text: &str, hit: &str, most: usize) -> Self {
        let begin = begin(text, hit, most);
        let shown = cut(text.get(begin..).unwrap_or_default(), most);
        let mut pieces = Vec::new();
        if begin > 0 {
            pieces.push((false, "…".to_owned()));
        }
        let mut end = 0;
        for hit in hits(&shown, hit) {
            pieces.push((false, shown.get(end..hit.start).unwrap_or_default().to_owned()));
            pieces.push((true, shown.get(hit.clone()).unwrap_or_default().to_owned()));
            end = hit.end;
        }
        pieces.push((false, shown.get(end..).unwrap_or_default().to_owned()));
        pieces.retain(|(_, piece)| !piece.is_empty());
        Self { pieces }
    }

    pub fn plain(&self) -> String {
        self.pieces.iter().map(|(_, piece)| piece.as_str()).collect()
    }
}

/// Where in `text` to begin, so that the first hit is among the characters that are shown.
fn begin(text: &str, hit: &str, most: usize) -> usize {
    if hit.is_empty() {
        return 0;
    }
    let lower = text.to_lowercase();
    let before = lower.find(hit).and_then(|at| lower.get(..at)).map_or(0, |before| before.chars().count());
    if before + hit.chars().count() <= most {
        return 0;
    }
    text.char_indices().nth(before.saturating_sub(BEFORE)).map_or(0, |(at, _)| at)
}

/// Where `hit` is in a short text, which may be in another case. Hits side by side are one.
fn hits(text: &str, hit: &str) -> Vec<Range<usize>> {
    if hit.is_empty() {
        return Vec::new();
    }
    let (mut lower, mut from) = (String::new(), Vec::new());
    for (at, letter) in text.char_indices() {
        lower.extend(letter.to_lowercase());
        // In lower case a letter may have another length.
        from.resize(lower.len(), at);
    }
    from.push(text.len());
    let mut hits: Vec<Range<usize>> = Vec::new();
    for (at, hit) in lower.match_indices(hit) {
        let (Some(start), Some(end)) = (from.get(at), from.get(at + hit.len())) else { continue };
        match hits.last_mut() {
            Some(last) if last.end == *start => last.end = *end,
            _ => hits.push(*start..*end),
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bson::DateTime;
    use serde_json::json;

    use super::*;

    const QUEUE: &str = "6b0003bb686c8275d70dc2f1";
    const TASK: &str = "6b0003bb686c8275d8013333";

    #[test]
    fn columns_are_chosen_by_name_and_are_the_usual_ones_otherwise() {
        let of = |value: Value| Column::chosen(Some(&value), &[]);
        assert_eq!(of(json!("params,queue")), [Column::Queue, Column::Params]);
        assert_eq!(of(json!(["ran", "exit", "nope"])), [Column::Ran, Column::Exit]);
        for none in [json!(""), json!("<x>"), json!([]), json!({}), json!(5)] {
            assert_eq!(of(none), Column::USUAL);
        }
        assert_eq!(Column::chosen(None, &["1".into(), "-2".into()]), Column::USUAL);
        assert!(Column::chosen(None, &["2".into()]).contains(&Column::Error), "why they failed");
    }

    #[test]
    fn only_what_is_shown_is_read() {
        let projection = Column::projection(&[Column::Queue, Column::Ran, Column::Exit]);
        let names: Vec<&String> = projection.keys().collect();
        assert_eq!(
            names,
            [
                "_id",
                "status",
                "queue",
                "exit.duration",
                "exit.code",
                "exit.signal",
                "params",
                "parameters",
                "array",
                "final_of"
            ],
            "and what it is called"
        );
        for column in Column::ALL {
            let fields = Column::projection(&[column]);
            assert!(!fields.contains_key("stdout") && !fields.contains_key("history"), "{column:?}");
            let mut may_be_large = LARGE.iter().filter_map(|field| fields.get(*field));
            assert!(may_be_large.all(|how| how.as_document().is_some()), "{column:?}: {fields}");
        }
    }

    #[test]
    fn cells_tell_what_there_is() {
        let at = |seconds: i64| Bson::DateTime(DateTime::from_millis(1_795_163_067_344 + seconds * 1000));
        let task = doc! {
            "ctime": at(0), "started": at(90), "exit": { "duration": 2.5, "code": 3 }, "attempt": 2,
            "progress": { "percent": 12.5, "message": "a <b>" }, "error": "no <disk>", "parameters": { "a": "x".repeat(999) },
        };
        let cell = |column: Column| column.cell(&task, &HashMap::new(), "");
        assert_eq!(cell(Column::Waited), Cell::Number("1 min 30 s".into()));
        assert_eq!(cell(Column::Ran), Cell::Number("2.5 s".into()));
        assert_eq!(cell(Column::Exit), Cell::Number("3".into()));
        assert_eq!(cell(Column::Attempt), Cell::Number("2".into()));
        assert_eq!(cell(Column::Progress), Cell::Progress(Some(12.5), "a <b>".into()));
        let Cell::Params(params, _) = cell(Column::Params) else { panic!("no params") };
        assert_eq!(params.plain().chars().count(), EXCERPT + 1);
        assert_eq!(cell(Column::Error), Cell::Error("no <disk>".into()));
        let killed =
            doc! { "exit": { "code": Bson::Null, "signal": 9 }, "run_at": at(60), "started": at(61) };
        assert_eq!(Column::Exit.cell(&killed, &HashMap::new(), ""), Cell::Number("signal 9".into()));
        assert_eq!(Column::Waited.cell(&killed, &HashMap::new(), ""), Cell::Number("1.0 s".into()));
    }

    #[test]
    fn tasks_of_whatever_shape_have_cells() {
        let odd = doc! { "queue": 5, "exit": 1, "progress": "x", "started": "soon", "ctime": "then", "params": ["<"] };
        for task in [&odd, &doc! {}] {
            for column in Column::ALL {
                let _shown = column.cell(task, &HashMap::new(), "");
            }
        }
        let gone = doc! { "queue": ObjectId::from_bytes([1; 12]) };
        let Cell::Queue(None, name) = Column::Queue.cell(&gone, &HashMap::new(), "") else {
            panic!("a queue")
        };
        assert!(name.ends_with("(deleted)"), "{name}");
    }

    #[test]
    fn rows_show_tasks_as_text() {
        let queue = ObjectId::parse_str(QUEUE).unwrap();
        let names = HashMap::from([(queue, "q<1>".to_owned())]);
        let task = doc! {
            "_id": ObjectId::parse_str(TASK).unwrap(), "queue": queue, "status": 1, "node": "<vm>",
            "params": { "text": "<script>\"x\"</script>" }, "progress": { "percent": 50, "message": "<b>" },
            "ctime": bson::DateTime::from_millis(1_795_163_067_344), "result": { "a": "&" },
            "tags": ["to=<you>"],
        };
        let row = Row::of(&task, &Column::ALL, &names, "script");
        let html = Table { columns: Column::ALL.to_vec(), rows: vec![row] }.render().unwrap();
        for part in [
            "<tr id=\"task-6b0003bb686c8275d8013333\">",
            "<a href=\"/tasks/6b0003bb686c8275d8013333\">",
            "name=\"ids\" value=\"6b0003bb686c8275d8013333\"",
            "<a class=\"name\" href=\"/queues/6b0003bb686c8275d70dc2f1\">q&#60;1&#62;</a>",
            "succeeded",
            "&#60;vm&#62;",
            "datetime=\"2026-11-20T08:24:27Z\"",
            "&#60;<mark>script</mark>&#62;",
            "data-can=\"retry archive delete\"",
            "value=\"50\"",
            "&#60;b&#62;",
            "<a class=\"chip\" href=\"/tasks?tags=to%3D%3Cyou%3E\">to=&#60;you&#62;</a>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
        assert_eq!(html.matches("<th scope=\"col\"").count(), Column::ALL.len() + 1);
    }

    #[test]
    fn rows_of_any_shape_and_length_are_rows() {
        let long = "x".repeat(10_000);
        let tasks = [
            doc! { "_id": ObjectId::parse_str(TASK).unwrap() },
            doc! { "_id": "odd", "queue": &long, "status": "<x>", "node": &long, "params": &long },
        ];
        let rows = tasks.iter().map(|task| Row::of(task, &Column::ALL, &HashMap::new(), "")).collect();
        let html = Table { columns: Column::ALL.to_vec(), rows }.render().unwrap();
        assert_eq!(html.matches("<tr id=").count(), 2, "{html}");
        assert!(html.contains("no status") && html.contains("&#60;x&#62;"), "{html}");
        let gone = |is_archived| {
            let row = Row::of_gone(ObjectId::parse_str(TASK).unwrap(), &Column::USUAL, is_archived);
            row.render().unwrap()
        };
        for (is_archived, word) in [(false, ">deleted<"), (true, ">archived<")] {
            let html = gone(is_archived);
            assert!(html.contains("colspan=\"6\"") && html.contains(word), "{html}");
            assert!(!html.contains("checkbox"), "nothing can be done with it: {html}");
            assert_eq!(html.contains("href=\"/tasks/6b0003bb686c8275d8013333\""), is_archived, "{html}");
        }
    }

    fn marked(text: &str, hit: &str, most: usize) -> String {
        let piece =
            |(is_hit, piece): &(bool, String)| if *is_hit { format!("[{piece}]") } else { piece.clone() };
        Excerpt::of(text, hit, most).pieces.iter().map(piece).collect()
    }

    #[test]
    fn hits_are_marked_in_any_case() {
        assert_eq!(marked("To ADA, from ada", "ada", 99), "To [ADA], from [ada]");
        assert_eq!(marked("abc", "", 2), "ab…");
        assert_eq!(marked("ÄÖ ẞ", "ö", 99), "Ä[Ö] ẞ");
        assert_eq!(marked("İİa", "a", 99), "İİ[a]");
        assert_eq!(marked("abc", "x", 99), "abc");
        assert_eq!(marked("axxxb", "x", 99), "a[xxx]b", "it is one");
    }

    #[test]
    fn what_is_far_behind_is_shown_with_what_is_around_it() {
        let text = format!("{}needle{}", "é".repeat(500), "x".repeat(500));
        assert_eq!(marked(&text, "needle", 50), format!("…{}[needle]xxxx…", "é".repeat(BEFORE)));
        assert_eq!(Excerpt::of(&text, "needle", 50).plain().chars().count(), 52);
    }
}
