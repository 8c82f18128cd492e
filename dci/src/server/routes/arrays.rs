//! The routes of arrays.

use disbatch_core::accounts::Role::{Operator, Viewer};

use crate::access::Need::{Array, Somewhere};
use crate::api::arrays::{cancel, get, list, rerun, retry};
use crate::server::route::{Routes, at};
use crate::ui;

/// Adds them.
pub fn add(routes: &mut Routes<'_>) {
    routes
        .add(at("/arrays").get(Somewhere(Viewer), list::handle).by_accept())
        .add(at("/arrays/{id:[0-9a-f]{24}}").get(Array(Viewer), get::handle).by_accept())
        .add(at("/arrays/{id:[0-9a-f]{24}}/cancel").post(Array(Operator), cancel::handle))
        .add(at("/arrays/{id:[0-9a-f]{24}}/rerun").post(Array(Operator), rerun::handle))
        .add(at("/arrays/{id:[0-9a-f]{24}}/retry").post(Array(Operator), retry::handle))
        .add(at("/ui/arrays/{id:[0-9a-f]{24}}").get(Array(Viewer), ui::arrays::live));
}
