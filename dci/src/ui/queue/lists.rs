//! The tasks of a queue that somebody is most likely to look for: those that run, those that failed last, and those that are next.

use bson::{Bson, Document, doc};
use disbatch_core::model::{Policy, Queue, Sort, Status, TaskId};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::pages::{Order, PageQuery, Position, Selection};
use disbatch_core::task::{ERROR, TaskQuery};
use futures::TryStreamExt;

use crate::ui::names::{Titles, title_of};
use crate::ui::parts::{When, cut};
use crate::ui::tasks::columns::{Column, params, progress};
use crate::ui::{StatusView, plain};

const RUNNING: usize = 10;

const FEW: usize = 5;

const EXCERPT: usize = 100;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub id: String,
    pub title: String,
    pub status: StatusView,
    pub node: String,
    /// Since when it runs or waits, or when it ended.
    pub at: When,
    /// How far it is: percents, if they are known, and words.
    pub progress: (Option<f64>, String),
    pub error: String,
}

#[derive(Debug, Default)]
pub(super) struct Lists {
    pub running: Vec<Line>,
    pub failed: Vec<Line>,
    pub next: Vec<Line>,
}

impl Lists {
    pub async fn gather(store: &Store, queue: &Queue, titles: &Titles) -> Result<Self, StoreError> {
        let first = async |statuses: &[Status], order: Order, limit: usize| {
            let statuses = Some(statuses.iter().map(|status| status.code()).collect());
            let of = Selection { statuses, ..Selection::of_queue(queue.id) };
            let page = PageQuery { of, order, position: Position::First, limit };
            Ok::<_, StoreError>(store.find_page(&page).await?.rows)
        };
        let next = async {
            let order = match queue.policy() {
                Policy::Sorted(Sort::Lifo) => Order::Newest,
                Policy::Sorted(Sort::Fifo | Sort::Default) | Policy::Fair | Policy::Priority => Order::Oldest,
            };
            let (mut ids, rest) =
                futures::try_join!(preferred(store, queue), first(&[Status::Queued], order, FEW))?;
            let others = rest.into_iter().filter(|id| !ids.contains(id)).collect::<Vec<_>>();
            ids.extend(others);
            ids.truncate(FEW);
            Ok::<_, StoreError>(ids)
        };
        let (running, failed, next) = futures::try_join!(
            first(&[Status::Claimed, Status::Running], Order::Oldest, RUNNING),
            first(&[Status::Failed, Status::Orphaned], Order::Newest, FEW),
            next,
        )?;
        let all: Vec<TaskId> = running.iter().chain(&failed).chain(&next).copied().collect();
        let found: Vec<Document> = if all.is_empty() {
            Vec::new()
        } else {
            store.stream_page(&all, doc! {}, Some(projection())).await?.try_collect().await?
        };
        let lines = |ids: &[TaskId], at: &[&str]| {
            let task = |id: &TaskId| found.iter().find(|task| task.get_object_id("_id").ok() == Some(id.0));
            ids.iter()
                .filter_map(|id| Some(Line::of(task(id)?, at, titles.template(queue.id.0))))
                .collect::<Vec<Line>>()
        };
        Ok(Self {
            running: lines(&running, &["started", "mtime"]),
            failed: lines(&failed, &["mtime"]),
            next: lines(&next, &["run_at", "ctime"]),
        })
    }
}

/// Those that a queue by priority prefers: with the highest priority first, and of the same priority the oldest.
async fn preferred(store: &Store, queue: &Queue) -> Result<Vec<TaskId>, StoreError> {
    if queue.policy() != Policy::Priority {
        return Ok(Vec::new());
    }
    let filter = doc! { "queue": queue.id, "status": Status::Queued, "priority": { "$gt": 0 } };
    let query = TaskQuery {
        filter,
        limit: i64::try_from(FEW).ok(),
        projection: Some(doc! { "_id": 1 }),
        sort: Some(doc! { "priority": -1, "_id": 1 }),
        ..TaskQuery::default()
    };
    let found = store.search_tasks(query).await?;
    Ok(found.iter().filter_map(|task| task.get_object_id("_id").ok().map(TaskId)).collect())
}

fn projection() -> Document {
    let mut projection = Column::projection(&[
        Column::Status,
        Column::Node,
        Column::Created,
        Column::Changed,
        Column::Waited,
        Column::Progress,
        Column::Exit,
        Column::Error,
        Column::Params,
    ]);
    projection.remove("tags");
    projection
}

impl Line {
    fn of(task: &Document, at: &[&str], template: Option<&str>) -> Self {
        Self {
            id: task.get_object_id("_id").map(|id| id.to_hex()).unwrap_or_default(),
            title: title(task, template),
            status: StatusView::of(task),
            node: plain(task.get("node")),
            at: When::of(at.iter().find_map(|name| task.get(*name).filter(|value| **value != Bson::Null))),
            progress: progress(task),
            error: how_it_failed(task),
        }
    }
}

/// What tells a task from others: what its queue calls it, or else the beginning of its parameters.
fn title(task: &Document, template: Option<&str>) -> String {
    let title = title_of(task, template);
    if !title.is_empty() {
        return title;
    }
    let text = plain(params(task));
    let text = if text == "{}" { "" } else { &text };
    cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), EXCERPT)
}

/// How a task ended that failed, and why, as far as it has said so.
pub fn how_it_failed(task: &Document) -> String {
    let (how, why) = (end(task), cut(&plain(task.get(ERROR)), EXCERPT));
    match (how.is_empty(), why.is_empty()) {
        (_, true) => how,
        (true, false) => why,
        // One that has printed nothing has no other reason.
        (false, false) if how == why || how.strip_prefix("killed by ") == Some(why.as_str()) => how,
        (false, false) => format!("{how}: {why}"),
    }
}

fn end(task: &Document) -> String {
    let exit = task.get_document("exit").ok();
    let known = |name: &str| plain(exit.and_then(|exit| exit.get(name)));
    match (known("reason").as_str(), known("code"), known("signal")) {
        ("timeout", ..) => "timed out".to_owned(),
        ("deadline", ..) => "past its deadline".to_owned(),
        (_, code, _) if !code.is_empty() => format!("exit code {code}"),
        (_, _, signal) if !signal.is_empty() => format!("killed by signal {signal}"),
        (reason, ..) => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn a_task_is_a_line_whatever_it_has() {
        let at = |seconds: i64| DateTime::from_millis(1_795_163_067_344 + seconds * 1000);
        let task = doc! {
            "_id": ObjectId::from_bytes([1; 12]), "status": 0, "node": "n1", "mtime": at(5), "started": at(1),
            "params": { "command": "for i in\n 1 2" }, "progress": { "percent": 12.5, "message": "half" },
        };
        let line = Line::of(&task, &["started", "mtime"], None);
        assert_eq!(Line::of(&task, &[], Some("loop: {command}")).title, "loop: for i in 1 2");
        assert_eq!(
            (line.title.as_str(), line.status.word, line.node.as_str()),
            ("for i in 1 2", "running", "n1")
        );
        assert_eq!((line.at, line.progress), (When::at(at(1)), (Some(12.5), "half".to_owned())));
        let title = |params: Bson| title(&doc! { "params": params }, None);
        assert_eq!(
            [title(doc! { "a": 1 }.into()), title(doc! {}.into()), title(Bson::Null)],
            ["{\"a\":1}", "", ""]
        );
        let error = |exit: Bson| how_it_failed(&doc! { "exit": exit });
        assert_eq!(error(doc! { "code": 3 }.into()), "exit code 3");
        assert_eq!(error(doc! { "code": Bson::Null, "signal": 9 }.into()), "killed by signal 9");
        assert_eq!(error(doc! { "reason": "timeout", "signal": 9 }.into()), "timed out");
        assert_eq!([error(Bson::Null), error("x".into())], ["", ""]);
        let failed = doc! { "exit": { "code": 3 }, "error": "no such file" };
        assert_eq!(how_it_failed(&failed), "exit code 3: no such file");
        assert_eq!(how_it_failed(&doc! { "error": "no such file" }), "no such file");
        for (exit, error, said) in [
            (doc! { "code": 3 }, "exit code 3", "exit code 3"),
            (doc! { "signal": 9 }, "signal 9", "killed by signal 9"),
            (doc! { "code": 3 }, "3", "exit code 3: 3"),
        ] {
            assert_eq!(how_it_failed(&doc! { "exit": exit, "error": error }), said);
        }
        assert!(Line::of(&doc! { "progress": 1, "status": "x" }, &["ctime"], None).at.is_empty());
    }
}
