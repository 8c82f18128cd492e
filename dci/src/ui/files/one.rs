//! `GET /files/:name` for people: a version, its files, and the versions that there are besides.

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use askama::Template;
use disbatch_core::accounts::Role;
use disbatch_core::files::FileEntry;

use super::place;
use crate::access::Who;
use crate::api::files::delete;
use crate::api::{Answer, redirect};
use crate::files::{self, Page};
use crate::openapi::{ErrorBody, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::ui::bulk::encoded;
use crate::ui::{self, Rendered, text};

#[derive(Template)]
#[template(path = "fileset.html")]
struct SetPage {
    page: Page,
    /// The address of the set.
    place: String,
    prefix: String,
    /// Whether the page's reader may remove it.
    stores: bool,
}

/// The page.
pub async fn render(state: &State, who: &Who, name: &str, params: &Params) -> Rendered {
    let page = files::page(state, who, name, params).await?;
    let stores = files::role_on(who, page.set.tenant.as_deref()) >= Some(Role::Submitter);
    let prefix = text(params.options.get("prefix"));
    ui::render(StatusCode::OK, &SetPage::of(page, prefix, stores))
}

impl SetPage {
    fn of(page: Page, prefix: String, stores: bool) -> Self {
        Self { place: place(&page.set.name), page, prefix, stores }
    }

    /// The address of the page behind this one.
    fn next(&self) -> String {
        let (place, version, prefix) = (&self.place, self.page.set.version, encoded(&self.prefix));
        let next = self.page.next.as_deref().map(encoded);
        next.map_or_else(String::new, |next| {
            format!("{place}?.version={version}&.prefix={prefix}&.after={next}")
        })
    }

    /// The address of a file.
    fn address(&self, entry: &FileEntry) -> String {
        let parts: Vec<String> = entry.path.split('/').map(encoded).collect();
        format!("{}/content/{}?.version={}", self.place, parts.join("/"), self.page.set.version)
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
        (status = 400, description = "The option is wrong. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))),
        (status = 404, description = "There is no such version. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))),
        OfWrite,
    ),
)]
pub async fn remove(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    redirect::lead(delete::delete(&state, &who, &name, &params).await, "/files")
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{DateTime, doc};
    use disbatch_core::files::{ContentId, FileSet};

    use super::*;

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
        SetPage::of(page, "a&b".to_owned(), stores).render().unwrap()
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
