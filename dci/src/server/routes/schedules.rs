//! The routes of schedules and calendars.

use disbatch_core::accounts::Role::{Operator, Submitter, Viewer};

use crate::access::Need::{Everywhere, Schedule, Somewhere};
use crate::server::route::{Routes, at};
use crate::{api, ui};

/// Adds them.
pub fn add(routes: &mut Routes<'_>) {
    schedules(routes);
    of_one(routes);
    calendars(routes);
}

fn schedules(routes: &mut Routes<'_>) {
    use api::schedules::{create, list, times};
    routes
        .add(at("/schedules").get(Somewhere(Viewer), list).post(Somewhere(Submitter), create).by_accept())
        // Before those of one schedule, as no schedule has such a name.
        .add(at("/schedules/new").get(Somewhere(Submitter), ui::schedules::form::new).shared())
        .add(at("/schedules/preview").post(Somewhere(Viewer), times::preview_new).shared())
        .add(at("/ui/schedules").get(Everywhere(Viewer), ui::schedules::live));
}

fn of_one(routes: &mut Routes<'_>) {
    use api::schedules::{delete, delete_by_form, get, pause, resume, times, update};
    use ui::schedules::{form, one};
    routes
        .add(at("/schedules/{id:[^/]+}/pause").post(Schedule(Submitter), pause))
        .add(at("/schedules/{id:[^/]+}/resume").post(Schedule(Submitter), resume))
        .add(at("/schedules/{id:[^/]+}/run").post(Schedule(Submitter), times::run))
        .add(at("/schedules/{id:[^/]+}/backfill").post(Schedule(Submitter), times::backfill))
        .add(at("/schedules/{id:[^/]+}/preview").get(Schedule(Viewer), times::preview))
        .add(at("/schedules/{id:[^/]+}/runs").get(Schedule(Viewer), times::runs))
        .add(at("/schedules/{id:[^/]+}/edit").get(Schedule(Submitter), form::edit))
        .add(
            at("/schedules/{id:[^/]+}")
                .get(Schedule(Viewer), get)
                .post(Schedule(Submitter), update)
                .delete(Schedule(Submitter), delete)
                .by_accept(),
        )
        .add(at("/ui/schedules/{id:[0-9a-f]{24}}").get(Schedule(Viewer), one::live))
        .add(at("/ui/schedules/{id:[0-9a-f]{24}}/delete").post(Schedule(Submitter), delete_by_form));
}

fn calendars(routes: &mut Routes<'_>) {
    use api::calendars::{create, delete, delete_by_form, get, list, set};
    routes
        .add(at("/calendars").get(Somewhere(Viewer), list).post(Everywhere(Operator), create).by_accept())
        .add(
            at("/calendars/{name:[^/]+}")
                .get(Somewhere(Viewer), get)
                .post(Everywhere(Operator), set)
                .delete(Everywhere(Operator), delete),
        )
        .add(at("/ui/calendars/{name:[^/]+}/delete").post(Everywhere(Operator), delete_by_form));
}
