//! Looking for what params contain, one task after the other: no index knows.

use std::time::Duration;

use bson::Document;
use disbatch_core::model::TaskId;
use disbatch_core::store::Store;
use disbatch_core::task::TaskQuery;
use disbatch_core::task::pages::{PageQuery, Position};
use futures::TryStreamExt;
use tokio::time::Instant;

use super::super::columns::{Row, params};
use super::{Plan, ResultPage};
use crate::error::HttpError;
use crate::ui::plain;

/// At most so many tasks are looked at for what their params contain.
const LOOKED_AT: usize = 5_000;

/// So many of them are read at once.
const AT_ONCE: usize = 500;

/// Looking at them takes about so long at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// What comes of looking at one task after the other.
struct Look<'a> {
    plan: &'a Plan,
    began: Instant,
    rows: Vec<Row>,
    looked_at: usize,
}

impl Plan {
    /// Looks at so many tasks for what their params contain.
    pub(super) async fn look(&self, store: &Store) -> Result<ResultPage, HttpError> {
        let mut look = Look { plan: self, began: Instant::now(), rows: Vec::new(), looked_at: 0 };
        let next = match &self.page {
            Some(page) => {
                self.look_in_order(store, &mut look, page).await?.map(|id| ("after", id.to_string()))
            }
            None => self.look_along(store, &mut look).await?.map(|skip| ("skip", skip.to_string())),
        };
        let is_first = match &self.page {
            Some(page) => page.position == Position::First,
            None => self.query.skip == 0,
        };
        Ok(ResultPage {
            rows: look.rows,
            next,
            is_first,
            looked_at: Some(look.looked_at),
            ..ResultPage::default()
        })
    }

    /// Returns behind which task to go on.
    async fn look_in_order(
        &self,
        store: &Store,
        look: &mut Look<'_>,
        page: &PageQuery,
    ) -> Result<Option<TaskId>, HttpError> {
        let mut position = page.position;
        loop {
            let some = PageQuery { position, limit: AT_ONCE, ..page.clone() };
            let found = store.find_page(&some).await.map_err(HttpError::from_search)?;
            let last = found.ids.last().copied();
            let mut tasks = self.tasks(store, &found.ids).await?;
            while let Some(task) = tasks.try_next().await.map_err(HttpError::from_search)? {
                look.at(&task);
                if look.is_over() {
                    let id = task.get_object_id("_id").ok().map(TaskId);
                    return Ok(id.filter(|_| found.more || id != last));
                }
            }
            let Some(last) = last.filter(|_| found.more) else { return Ok(None) };
            // It may be that nothing of this page is there any more.
            if look.is_over() {
                return Ok(Some(last));
            }
            position = Position::After(last);
        }
    }

    /// The same in the order of the server. Returns how many to skip.
    async fn look_along(&self, store: &Store, look: &mut Look<'_>) -> Result<Option<u64>, HttpError> {
        let query = TaskQuery { limit: i64::try_from(LOOKED_AT).ok(), ..self.query.clone() };
        let mut tasks = store.stream_tasks(query).await.map_err(HttpError::from_search)?;
        while let Some(task) = tasks.try_next().await.map_err(HttpError::from_search)? {
            look.at(&task);
            if look.is_over() {
                return Ok(Some(self.query.skip.saturating_add(look.looked_at as u64)));
            }
        }
        Ok(None)
    }

    pub(super) fn is_in(&self, task: &Document) -> bool {
        plain(params(task)).to_lowercase().contains(&self.text)
    }
}

impl Look<'_> {
    fn at(&mut self, task: &Document) {
        self.looked_at += 1;
        if self.plan.is_in(task) {
            self.rows.push(self.plan.row(task));
        }
    }

    /// Whether there are enough, or it has taken long enough.
    fn is_over(&self) -> bool {
        let is_full = self.rows.len() >= self.plan.limit;
        is_full || self.looked_at >= LOOKED_AT || self.began.elapsed() >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;
    use futures::stream;
    use serde_json::json;

    use super::super::tests::plan;
    use super::*;

    #[tokio::test]
    async fn of_tasks_only_their_rows_are_kept_and_no_more_than_fit() {
        let plan = plan(json!({}), json!({"text": "x", "limit": 2})).unwrap();
        let task = |n: u8| {
            let params = doc! { "a": "x".repeat(100_000) };
            doc! { "_id": ObjectId::from_bytes([n; 12]), "params": params }
        };
        let rows = plan.rows(stream::iter((0..3).map(|n| Ok(task(n))))).await.unwrap();
        assert!(rows.iter().all(|row| format!("{row:?}").len() < 2_000) && rows.len() == 3);
        let mut look = Look { plan: &plan, began: Instant::now(), rows: Vec::new(), looked_at: 0 };
        look.at(&doc! { "params": "other" });
        look.at(&task(1));
        assert!(!look.is_over());
        look.at(&task(2));
        assert!(look.is_over(), "the page is full");
        assert_eq!((look.looked_at, look.rows.len()), (3, 2));
        let late = Look { plan: &plan, began: Instant::now() - PATIENCE, rows: Vec::new(), looked_at: 1 };
        assert!(late.is_over());
    }
}
