//! `GET /files` for people: the sets of files that tasks take and leave; and `GET /files/:name`: a version, its files, and the
//! versions that there are besides.

use actix_web::web::{Data, Path};
use askama::Template;
use disbatch_core::accounts::Role;
use disbatch_core::files::{FileEntry, SetSummary};

use crate::access::Who;
use crate::api::{Answer, redirect};
use crate::files::Page;
use crate::openapi::JSON_OR_PAGE;
use crate::params::Params;
use crate::state::State;
use crate::ui::names::encoded;
use crate::ui::{Rendered, text};
use crate::{api, files, ui};

#[derive(Template)]
#[template(path = "files.html")]
struct FilesPage {
    sets: Vec<SetSummary>,
    /// The address of the page behind this one.
    next: String,
    /// Whether the page's reader may make file sets.
    stores: bool,
}

pub fn place(name: &str) -> String {
    format!("/files/{}", encoded(name))
}

pub async fn render(state: Data<State>, who: Who, params: Params) -> Rendered {
    let query = files::query(&who, &params)?;
    let sets = state.store.filesets(&query).await?;
    let is_full = i64::try_from(sets.len()).is_ok_and(|sets| sets >= query.limit);
    let last = sets.last().filter(|_| is_full);
    let next =
        last.map(|last| format!("/files?.limit={}&.after={}", query.limit, encoded(&last.latest.name)));
    let page = FilesPage { next: next.unwrap_or_default(), stores: files::may_store(&who).is_ok(), sets };
    ui::render(&page)
}

#[derive(Template)]
#[template(path = "fileset.html")]
struct SetPage {
    page: Page,
    prefix: String,
    /// Whether the page's reader may remove it.
    stores: bool,
}

pub async fn render_one(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Rendered {
    let page = files::page(&state, &who, &name, &params).await?;
    let stores = files::role_on(&who, page.set.tenant.as_deref()) >= Some(Role::Submitter);
    let prefix = text(params.options.get("prefix"));
    ui::render(&SetPage { page, prefix, stores })
}

impl SetPage {
    /// The address of the page behind this one.
    fn next(&self) -> String {
        let (place, version) = (place(&self.page.set.name), self.page.set.version);
        let prefix = encoded(&self.prefix);
        let next = self.page.next.as_deref().map(encoded);
        next.map_or_else(String::new, |next| {
            format!("{place}?.version={version}&.prefix={prefix}&.after={next}")
        })
    }

    fn address(&self, entry: &FileEntry) -> String {
        let parts: Vec<String> = entry.path.split('/').map(encoded).collect();
        let set = &self.page.set;
        format!("{}/content/{}?.version={}", place(&set.name), parts.join("/"), set.version)
    }
}

/// Removes a file set, or the version that `.version` says, and leads to the list of sets.
#[utoipa::path(
    post, path = "/ui/files/{name}/delete", tag = "service", operation_id = "deleteFileSetByForm",
    params(("name" = String, Path, description = "The name of the set.", example = "data")),
    request_body(
        content = Value, content_type = "application/x-www-form-urlencoded", example = json!({".version": "3"}),
    ),
    responses(
        (status = 303, description = "Removed; the list of sets is next."),
        (status = 400, description = "The option is wrong. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
        (status = 404, description = "There is no such version. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
    ),
)]
pub async fn remove(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    redirect::lead(api::files::remove(state, who, name, params).await, "/files")
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{DateTime, doc};
    use disbatch_core::files::{ContentId, FileSet};

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

    fn page(stores: bool) -> String {
        let at = DateTime::from_millis(1_795_163_067_344);
        let set = |version: i64| -> FileSet {
            let set = doc! {
                "_id": ObjectId::from_bytes([1; 12]), "name": "data", "version": version, "state": "done", "count": 1_i64,
                "bytes": 3_i64, "created": at, "committed": at, "by": "<ann>",
            };
            bson::deserialize_from_document(set).unwrap()
        };
        let entry = doc! {
            "path": "a b/<c>.csv", "file": ContentId::of(b"abc"), "size": 3_i64, "mode": 0o644_i64, "mtime": at,
        };
        let entry: FileEntry = bson::deserialize_from_document(entry).unwrap();
        let page = Page {
            set: set(3),
            versions: vec![set(3), set(2)],
            entries: vec![entry],
            next: Some("a b/<c>.csv".to_owned()),
        };
        SetPage { page, prefix: "a&b".to_owned(), stores }.render().unwrap()
    }

    #[test]
    fn files_have_addresses_whatever_they_are_called() {
        let html = page(true);
        for part in [
            "href=\"/files/data/content/a%20b/%3Cc%3E.csv?.version=3\"",
            "a b/&#60;c&#62;.csv",
            "<td data-label=\"Mode\">644</td>",
            "href=\"/files/data?.version=2\"",
            "?.version=3&#38;.prefix=a%26b&#38;.after=a%20b%2F%3Cc%3E.csv",
            "&#60;ann&#62;",
            "action=\"/ui/files/data/delete\"",
            "name=\".version\" value=\"3\"",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<ann>") && !html.contains("<c>") && !html.contains(" style="), "{html}");
        assert!(!page(false).contains("/delete\""));
    }
}
