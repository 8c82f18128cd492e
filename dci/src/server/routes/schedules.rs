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
    use api::schedules::{create, list, preview};
    routes
        .add(
            at("/schedules")
                .get(Somewhere(Viewer), list::handle)
                .post(Somewhere(Submitter), create::handle)
                .by_accept(),
        )
        // Before those of one schedule, as no schedule has such a name.
        .add(at("/schedules/new").get(Somewhere(Submitter), ui::schedules::form::new).shared())
        .add(at("/schedules/preview").post(Somewhere(Viewer), preview::of_fields).shared())
        .add(at("/ui/schedules").get(Everywhere(Viewer), ui::schedules::live));
}

fn of_one(routes: &mut Routes<'_>) {
    use api::schedules::{backfill, delete, get, pause, preview, run, runs, update};
    use ui::schedules::{form, one, remove};
    routes
        .add(at("/schedules/{id:[^/]+}/pause").post(Schedule(Submitter), pause::pause))
        .add(at("/schedules/{id:[^/]+}/resume").post(Schedule(Submitter), pause::resume))
        .add(at("/schedules/{id:[^/]+}/run").post(Schedule(Submitter), run::handle))
        .add(at("/schedules/{id:[^/]+}/backfill").post(Schedule(Submitter), backfill::handle))
        .add(at("/schedules/{id:[^/]+}/preview").get(Schedule(Viewer), preview::handle))
        .add(at("/schedules/{id:[^/]+}/runs").get(Schedule(Viewer), runs::handle))
        .add(at("/schedules/{id:[^/]+}/edit").get(Schedule(Submitter), form::edit))
        .add(
            at("/schedules/{id:[^/]+}")
                .get(Schedule(Viewer), get::handle)
                .post(Schedule(Submitter), update::handle)
                .delete(Schedule(Submitter), delete::handle)
                .by_accept(),
        )
        .add(at("/ui/schedules/{id:[0-9a-f]{24}}").get(Schedule(Viewer), one::live))
        .add(at("/ui/schedules/{id:[0-9a-f]{24}}/delete").post(Schedule(Submitter), remove::handle));
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
