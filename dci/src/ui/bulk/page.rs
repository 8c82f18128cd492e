//! A page of the list of bulk jobs, the latest first.

use bson::oid::ObjectId;
use disbatch_core::bulk::{BulkFrom, BulkJob};
use disbatch_core::store::{Store, StoreError};

use crate::api::bulk::DEFAULT_LIMIT;
use crate::bulk;
use crate::error::HttpError;
use crate::params::Params;
use crate::ui::text;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    from: BulkFrom,
    limit: i64,
}

#[derive(Debug)]
pub struct JobsPage {
    /// The latest first.
    pub jobs: Vec<BulkJob>,
    /// Before which others are.
    pub previous: Option<ObjectId>,
    /// After which others are.
    pub next: Option<ObjectId>,
}

impl Page {
    pub fn of(params: &Params) -> Result<Self, HttpError> {
        let job = |name: &str| {
            let given = text(params.options.get(name));
            let wrong = |_| HttpError::bad_request(format!("'.{name}' must be the id of a bulk job"));
            (!given.is_empty()).then(|| ObjectId::parse_str(&given).map_err(wrong)).transpose()
        };
        let from = match (job("after")?, job("before")?) {
            (Some(job), _) => BulkFrom::After(job),
            (None, Some(job)) => BulkFrom::Before(job),
            (None, None) => BulkFrom::Latest,
        };
        Ok(Self { from, limit: bulk::limit(params, DEFAULT_LIMIT)? })
    }

    pub async fn find(self, store: &Store) -> Result<JobsPage, StoreError> {
        // One more tells whether there are more.
        Ok(self.cut(store.list_bulk_from(self.from, self.limit + 1).await?))
    }

    fn cut(self, mut jobs: Vec<BulkJob>) -> JobsPage {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let more = jobs.len() > limit;
        let (before, after) = match self.from {
            BulkFrom::Latest => (false, more),
            BulkFrom::After(_) => (true, more),
            BulkFrom::Before(_) => (more, true),
        };
        if matches!(self.from, BulkFrom::Before(_)) {
            jobs.drain(..jobs.len().saturating_sub(limit));
        }
        jobs.truncate(limit);
        let (first, last) = (jobs.first().map(|job| job.id), jobs.last().map(|job| job.id));
        JobsPage { previous: first.filter(|_| before), next: last.filter(|_| after), jobs }
    }

    /// Where it is, as addresses have it.
    pub fn place(self) -> Option<(&'static str, ObjectId)> {
        match self.from {
            BulkFrom::Latest => None,
            BulkFrom::After(job) => Some(("after", job)),
            BulkFrom::Before(job) => Some(("before", job)),
        }
    }

    /// The address of a page that is as long.
    pub fn address(self, path: &str, place: Option<(&str, ObjectId)>) -> String {
        let limit = (self.limit != DEFAULT_LIMIT).then(|| format!(".limit={}", self.limit));
        let place = place.map(|(way, job)| format!(".{way}={job}"));
        let query: Vec<String> = limit.into_iter().chain(place).collect();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
    }
}

#[cfg(test)]
mod tests {
    use disbatch_core::bulk::State as JobState;
    use serde_json::json;

    use super::*;
    use crate::ui::bulk::job::tests::job;

    #[test]
    fn jobs_come_a_page_at_a_time() {
        let id = |n: u8| ObjectId::from_bytes([n; 12]);
        let jobs = |ids: &[u8]| -> Vec<BulkJob> {
            ids.iter().map(|n| BulkJob { id: id(*n), ..job(JobState::Done) }).collect()
        };
        let cut = |from, ids: &[u8]| {
            let found = Page { from, limit: 2 }.cut(jobs(ids));
            (found.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), found.previous, found.next)
        };
        assert_eq!(cut(BulkFrom::Latest, &[9, 8, 7]), (vec![id(9), id(8)], None, Some(id(8))));
        assert_eq!(cut(BulkFrom::After(id(8)), &[7]), (vec![id(7)], Some(id(7)), None));
        assert_eq!(
            cut(BulkFrom::Before(id(4)), &[7, 6, 5]),
            (vec![id(6), id(5)], Some(id(6)), Some(id(5))),
            "those next to it"
        );
        let options = json!({"limit": "2", "after": id(8).to_hex()});
        let asked = Params { options: options.as_object().unwrap().clone(), ..Params::default() };
        let page = Page::of(&asked).unwrap();
        assert_eq!(page, Page { from: BulkFrom::After(id(8)), limit: 2 });
        let address = page.address("/ui/bulk", page.place());
        assert_eq!(address, format!("/ui/bulk?.limit=2&.after={}", id(8)));
        let usual = Page::of(&Params::default()).unwrap();
        assert_eq!(usual.address("/bulk", usual.place()), "/bulk");
        let odd = json!({"before": "<x>"});
        let odd = Params { options: odd.as_object().unwrap().clone(), ..Params::default() };
        assert_eq!(Page::of(&odd).unwrap_err().status(), 400);
    }
}
