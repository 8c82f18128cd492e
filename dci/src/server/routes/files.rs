//! The routes of file sets. Their handlers look at the tenant of the set: a role on a queue alone is not enough.

use disbatch_core::accounts::Role::{Submitter, Viewer};

use crate::access::Need::Somewhere;
use crate::api::files::{add, commit, content, contents, delete, get, list, open};
use crate::server::route::{Routes, at};
use crate::ui;

/// Adds them.
pub fn add(routes: &mut Routes<'_>) {
    contents_of_sets(routes);
    routes
        .add(at("/files").get(Somewhere(Viewer), list::handle).by_accept())
        .add(at("/files/versions/{id:[0-9a-f]{24}}/entries").post(Somewhere(Submitter), add::handle))
        .add(at("/files/versions/{id:[0-9a-f]{24}}/commit").post(Somewhere(Submitter), commit::handle))
        .add(at("/files/{name:[^/]+}/content/{path:.*}").get(Somewhere(Viewer), content::handle))
        .add(
            at("/files/{name:[^/]+}")
                .get(Somewhere(Viewer), get::handle)
                .post(Somewhere(Submitter), open::handle)
                .delete(Somewhere(Submitter), delete::handle)
                .by_accept(),
        )
        .add(at("/ui/files/{name:[^/]+}/delete").post(Somewhere(Submitter), ui::files::one::remove));
}

fn contents_of_sets(routes: &mut Routes<'_>) {
    routes
        .add(at("/files/contents/{sha256:[0-9a-f]{64}}").get(Somewhere(Submitter), contents::get::handle))
        .add(
            at("/files/contents/{sha256:[0-9a-f]{64}}/finish")
                .post(Somewhere(Submitter), contents::finish::handle),
        )
        .add(
            at("/files/contents/{sha256:[0-9a-f]{64}}/{n:[0-9]+}")
                .put(Somewhere(Submitter), contents::put::handle),
        );
}
