//! Looking for tasks, at a cost that does not grow with the tasks that there are.

use std::time::Duration;

use bson::Document;
use disbatch_core::model::TaskId;
use disbatch_core::store::Store;
use disbatch_core::task::pages::{Order, PageQuery, Position};
use futures::TryStreamExt;
use tokio::time::Instant;

use super::search::Search;
use crate::error::HttpError;
use crate::ui::plain;
use crate::ui::tasks::params_of;

/// At most so many tasks are looked at for what no index knows.
const LOOKED_AT: usize = 5_000;

/// So many of them are read at once.
const AT_ONCE: usize = 500;

/// Looking at them takes about so long at most.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub struct ScanResult {
    /// The tasks, the newest first.
    pub tasks: Vec<Document>,
    /// How many were looked at.
    pub looked_at: usize,
    /// Behind which task there may be more; nothing if all have been looked at.
    pub next: Option<TaskId>,
}

/// Finds them.
pub async fn find(store: &Store, search: &Search) -> Result<ScanResult, HttpError> {
    let mut found = ScanResult::default();
    let began = Instant::now();
    let mut position = search.after.map_or(Position::First, Position::After);
    loop {
        let limit = if search.is_read { AT_ONCE } else { search.limit };
        let page = PageQuery { of: search.of.clone(), order: Order::Newest, position, limit };
        let page = store.find_page(&page).await.map_err(HttpError::from_search)?;
        let projection = Some(search.projection.clone());
        let tasks = store.stream_page(&page.ids, search.filter.clone(), projection).await;
        let mut tasks = tasks.map_err(HttpError::from_search)?;
        let last = page.ids.last().copied();
        while let Some(task) = tasks.try_next().await.map_err(HttpError::from_search)? {
            if !contains(&task, &search.text) {
                continue;
            }
            let id = task.get_object_id("_id").ok().map(TaskId);
            found.tasks.push(task);
            if found.tasks.len() >= search.limit {
                let place = page.ids.iter().position(|one| Some(*one) == id).unwrap_or(page.ids.len());
                found.looked_at += place + 1;
                found.next = id.filter(|_| page.more || id != last);
                return Ok(found);
            }
        }
        found.looked_at += page.ids.len();
        let Some(last) = last.filter(|_| page.more) else { return Ok(found) };
        if found.looked_at >= LOOKED_AT || began.elapsed() >= PATIENCE {
            found.next = Some(last);
            return Ok(found);
        }
        position = Position::After(last);
    }
}

fn contains(task: &Document, text: &str) -> bool {
    text.is_empty() || plain(params_of(task)).to_lowercase().contains(text)
}
