//! `GET /files` for people: the sets of files that tasks take and leave.

pub mod one;

use actix_web::http::StatusCode;
use askama::Template;
use disbatch_core::files::SetSummary;

use crate::access::Who;
use crate::files;
use crate::params::Params;
use crate::state::State;
use crate::ui::bulk::encoded;
use crate::ui::{self, Rendered};

#[derive(Template)]
#[template(path = "files.html")]
struct FilesPage {
    sets: Vec<SetSummary>,
    /// The address of the page behind this one.
    next: String,
    /// Whether the page's reader may make file sets.
    stores: bool,
}

/// The page of a set.
pub fn place(name: &str) -> String {
    format!("/files/{}", encoded(name))
}

/// The page.
pub async fn render(state: &State, who: &Who, params: &Params) -> Rendered {
    let query = files::query(who, params)?;
    let sets = state.store.filesets(&query).await?;
    let is_full = i64::try_from(sets.len()).is_ok_and(|sets| sets >= query.limit);
    let last = sets.last().filter(|_| is_full);
    let next =
        last.map(|last| format!("/files?.limit={}&.after={}", query.limit, encoded(&last.latest.name)));
    let page = FilesPage { next: next.unwrap_or_default(), stores: files::may_store(who).is_ok(), sets };
    ui::render(StatusCode::OK, &page)
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{DateTime, doc};

    use super::*;

    fn set() -> SetSummary {
        let at = DateTime::from_millis(1_795_163_067_344);
        let latest = doc! {
            "_id": ObjectId::from_bytes([1; 12]), "name": "data", "version": 3_i64, "state": "done", "count": 1_200_i64,
            "bytes": 2_048_i64, "created": at, "committed": at, "by": "<ann>", "tenant": "<acme>",
            "task": ObjectId::from_bytes([2; 12]),
        };
        let latest = bson::deserialize_from_document(latest).unwrap();
        SetSummary { latest, versions: 2, bytes: 4_096 }
    }

    #[test]
    fn a_set_is_told_by_its_newest_version() {
        let html = FilesPage { sets: vec![set()], next: "/files?.after=data".to_owned(), stores: true };
        let html = html.render().unwrap();
        for part in [
            "href=\"/files/data\"",
            "1,200",
            "2.0 KiB",
            "4.0 KiB",
            "&#60;ann&#62;",
            "&#60;acme&#62;",
            "href=\"/tasks/020202020202020202020202\"",
            "rel=\"next\" href=\"/files?.after=data\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<ann>") && !html.contains(" style="), "{html}");
        let none = |stores| FilesPage { sets: vec![], next: String::new(), stores }.render().unwrap();
        assert!(
            none(true).contains("There are no file sets yet.") && none(true).contains("disbatch files put")
        );
        assert!(!none(false).contains("disbatch files put"));
    }
}
