//! The routes of subscriptions.

use disbatch_core::accounts::Role::Operator;

use crate::access::Need::Everywhere;
use crate::api::subscriptions::{delete, delete_by_form, get, list, set, set_by_form, test};
use crate::server::route::{Routes, at};

/// Adds them.
pub fn add(routes: &mut Routes<'_>) {
    routes
        .add(at("/subscriptions").get(Everywhere(Operator), list).by_accept())
        .add(at("/subscriptions/{name:[^/]+}/test").post(Everywhere(Operator), test))
        .add(
            at("/subscriptions/{name:[^/]+}")
                .get(Everywhere(Operator), get)
                .post(Everywhere(Operator), set)
                .delete(Everywhere(Operator), delete),
        )
        .add(at("/ui/subscriptions").post(Everywhere(Operator), set_by_form))
        .add(at("/ui/subscriptions/{name:[^/]+}/delete").post(Everywhere(Operator), delete_by_form));
}
