//! The routes of plugins that the database defines.

use disbatch_core::accounts::Role::{Admin, Viewer};

use crate::access::Need::Everywhere;
use crate::api::definitions::{
    create, delete, delete_by_form, get, import, list, put, put_by_form, validate,
};
use crate::server::route::{Routes, at};

/// Adds them.
pub fn add(routes: &mut Routes<'_>) {
    routes
        .add(at("/workers").get(Everywhere(Viewer), list).post(Everywhere(Admin), create).by_accept())
        // These are for POST alone: what else is done there is about workers of these names.
        .add(at("/workers/validate").post(Everywhere(Viewer), validate).shared())
        .add(at("/workers/import").post(Everywhere(Admin), import::handle).shared())
        .add(
            at("/workers/{name:[^/]+}")
                .get(Everywhere(Viewer), get)
                .put(Everywhere(Admin), put)
                .delete(Everywhere(Admin), delete)
                .by_accept(),
        )
        .add(at("/ui/workers/{name:[^/]+}").post(Everywhere(Admin), put_by_form))
        .add(at("/ui/workers/{name:[^/]+}/delete").post(Everywhere(Admin), delete_by_form));
}
