//! The routes of plugins that the database defines.

use disbatch_core::accounts::Role::{Admin, Viewer};

use crate::access::Need::Everywhere;
use crate::api::workers::{create, delete, get, import, list, put, validate};
use crate::server::route::{Routes, at};
use crate::ui;

/// Adds them.
pub fn add(routes: &mut Routes<'_>) {
    routes
        .add(
            at("/workers")
                .get(Everywhere(Viewer), list::handle)
                .post(Everywhere(Admin), create::handle)
                .by_accept(),
        )
        // These are for POST alone: what else is done there is about workers of these names.
        .add(at("/workers/validate").post(Everywhere(Viewer), validate::handle).shared())
        .add(at("/workers/import").post(Everywhere(Admin), import::handle).shared())
        .add(
            at("/workers/{name:[^/]+}")
                .get(Everywhere(Viewer), get::handle)
                .put(Everywhere(Admin), put::handle)
                .delete(Everywhere(Admin), delete::handle)
                .by_accept(),
        )
        .add(at("/ui/workers/{name:[^/]+}").post(Everywhere(Admin), ui::workers::save::handle))
        .add(at("/ui/workers/{name:[^/]+}/delete").post(Everywhere(Admin), ui::workers::remove::handle));
}
