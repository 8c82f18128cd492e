//! `GET /schedules` for people: the schedules, when each runs next, and what became of the last times.

pub mod form;
pub mod one;
pub mod words;

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use askama::filters::HtmlSafe;
use bson::DateTime;
use disbatch_core::accounts::{Reach, Role};
use disbatch_core::model::Queue;
use disbatch_core::schedules::{Schedule, ScheduleQuery};
use futures::{StreamExt, TryStreamExt};

use crate::access::Who;
use crate::error::HttpError;
use crate::openapi::{EventStream, OfFixed};
use crate::params::{Lenient, Params};
use crate::state::State;
use crate::ui::live::Part;
use crate::ui::names::{encoded, name_of, names};
use crate::ui::{Rendered, StatusView, live, text};
use crate::{schedules, ui};
use one::Strip;

/// So many schedules are on the page.
const MOST: i64 = 200;

/// So many of the last runs of each are in its strip.
const RUNS: i64 = 15;

/// The runs of so many schedules are read at once.
const AT_ONCE: usize = 6;

#[derive(Template)]
#[template(path = "schedules.html")]
struct SchedulesPage {
    /// The queue that is looked for; empty if none is.
    queue: String,
    queues: Vec<Queue>,
    /// The state that is looked for, as it is asked for.
    paused: String,
    table: Table,
    /// How many are shown, if there may be more.
    cut: Option<i64>,
    /// Where the changes are told.
    live: String,
}

#[derive(Debug, Template)]
#[template(path = "schedules/table.html")]
struct Table {
    rows: Vec<Row>,
    /// Whether only some are looked for.
    searched: bool,
}

#[derive(Debug, Template)]
#[template(path = "schedules/row.html")]
struct Row {
    now: DateTime,
    schedule: Schedule,
    strip: Strip,
    /// How the last run is, where it has not run by the clock yet.
    asked_for: Option<StatusView>,
    queue_name: String,
    tenant: Option<String>,
}

impl HtmlSafe for Table {}
impl HtmlSafe for Row {}

pub async fn render(state: Data<State>, who: Who, params: Params) -> Rendered {
    let reach = who.reach(Role::Viewer);
    let query = shown(schedules::query(&state, reach.clone(), &params).await?);
    let queues = state.store.queues_within(&reach).await?;
    let table = Table::gather(&state, &query, &queues).await?;
    let paused = text(params.fields.get("paused"));
    let chosen = query.queue.map(|queue| queue.to_string()).unwrap_or_default();
    let page = SchedulesPage {
        cut: (i64::try_from(table.rows.len()).unwrap_or(MOST) >= query.limit).then_some(query.limit),
        live: format!("/ui/schedules?{}", address(&chosen, &paused)),
        queue: chosen,
        queues,
        paused,
        table,
    };
    ui::render(&page)
}

/// What of the page of schedules changes, as Server-Sent Events like those of `/ui/overview`.
#[utoipa::path(
    get,
    path = "/ui/schedules",
    tag = "service",
    operation_id = "schedulesEvents",
    responses(EventStream, OfFixed)
)]
pub async fn live(request: HttpRequest, state: Data<State>, Lenient(params): Lenient) -> HttpResponse {
    live::of_search(&request, &state, ("schedules", params), async |state, params| {
        let query = shown(schedules::query(state, Reach::All, params).await?);
        let queues = state.store.list_queues().await?;
        let table = Table::gather(state, &query, &queues).await?;
        Part::table(&table, &table.rows)
    })
}

/// The search with as many as a page shows.
fn shown(query: ScheduleQuery) -> ScheduleQuery {
    ScheduleQuery { limit: query.limit.min(MOST), ..query }
}

fn address(queue: &str, paused: &str) -> String {
    let pairs = [("queue", queue), ("paused", paused)];
    let pairs = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    let pairs = pairs.map(|(name, value)| format!("{name}={}", encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

impl Table {
    async fn gather(state: &State, query: &ScheduleQuery, queues: &[Queue]) -> Result<Self, HttpError> {
        let found = state.store.list_schedules(query).await?;
        let names = names(queues);
        let row = async |schedule: Schedule| {
            let runs = one::last_runs(&state.store, schedule.id, RUNS).await?;
            let queue = schedule.settings.queue;
            let queue_name = name_of(&names, queue);
            let tenant = queues.iter().find(|other| other.id == queue).and_then(Queue::tenant);
            let tenant = tenant.map(str::to_owned);
            let now = state.store.now();
            let asked_for = runs.first().filter(|_| schedule.last.is_none()).map(one::status);
            let strip = Strip::of(&runs);
            Ok::<Row, HttpError>(Row { now, strip, asked_for, queue_name, tenant, schedule })
        };
        let rows = futures::stream::iter(found).map(row).buffered(AT_ONCE).try_collect().await?;
        let searched = query.queue.is_some() || query.paused.is_some() || query.tenant.is_some();
        Ok(Self { rows, searched })
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

    use super::one::tests::run;
    use super::*;

    pub const ID: &str = "6b0003bb686c8275d8014444";

    fn row(paused: bool) -> Row {
        let (at, id) = (bson::DateTime::from_millis(1_795_163_067_000), ObjectId::parse_str(ID).unwrap());
        let schedule = Schedule::read(doc! {
            "_id": id, "name": "<nightly>", "queue": id, "cron": "0 3 * * *", "zone": "Europe/Berlin", "next": at,
            "paused": paused,
            "last": { "for": at, "at": at, "task": ObjectId::from_bytes([7; 12]), "outcome": "failed" },
        });
        let strip = Strip::of(&[run(2), run(1)]);
        Row {
            now: at,
            schedule: schedule.unwrap(),
            strip,
            asked_for: None,
            queue_name: "q<1>".into(),
            tenant: None,
        }
    }

    fn page(rows: Vec<Row>, searched: bool) -> String {
        let queue = doc! { "_id": ObjectId::parse_str(ID).unwrap(), "name": "<any>" };
        let page = SchedulesPage {
            queue: String::new(),
            queues: vec![bson::deserialize_from_document(queue).unwrap()],
            paused: String::new(),
            table: Table { rows, searched },
            cut: None,
            live: "/ui/schedules?".into(),
        };
        page.render().unwrap()
    }

    #[test]
    fn a_row_shows_what_is_next_and_what_was_last() {
        let html = page(vec![row(false)], false);
        for part in [
            "data-live=\"/ui/schedules?\"",
            "<tr id=\"schedule-6b0003bb686c8275d8014444\" data-in-queue=\"6b0003bb686c8275d8014444\">",
            "&#60;nightly&#62;",
            "datetime=\"2026-11-20T08:24:27Z\"",
            "Fri 20 Nov 09:24:27 Europe/Berlin",
            "At 03:00 every day",
            "<span class=\"status failed\">failed</span>",
            "href=\"/tasks/070707070707070707070707\"",
            "aria-label=\"The last 2 runs: 1 succeeded, 1 failed.\"",
            "aria-checked=\"true\" name=\"paused\" value=\"true\">Active<",
            "q&#60;1&#62;",
            "href=\"/schedules\" aria-current=\"page\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<nightly>") && !html.contains(" style="), "{html}");
        let paused = page(vec![row(true)], false);
        assert!(paused.contains("aria-checked=\"false\" name=\"paused\" value=\"false\""), "{paused}");
    }

    #[test]
    fn what_was_asked_for_is_told_where_nothing_has_run_by_the_clock() {
        let mut row = row(false);
        row.schedule.last = None;
        assert!(row.render().unwrap().contains("data-label=\"Last outcome\"><span class=\"zero\">none"));
        row.asked_for = Some(one::status(&run(1)));
        let html = row.render().unwrap();
        assert!(html.contains(">succeeded</span> <span class=\"hint\">asked for</span>"), "{html}");
    }

    #[test]
    fn an_empty_list_says_what_to_do() {
        assert!(page(vec![], false).contains("There are no schedules yet."));
        assert!(page(vec![], true).contains("No schedule is like that."));
    }

    #[test]
    fn the_table_is_sent_again_when_there_are_others_only() {
        let stamps = |rows| {
            let table = Table { rows, searched: false };
            Part::table(&table, &table.rows).unwrap().iter().map(Part::stamp).collect::<Vec<_>>()
        };
        let (active, paused) = (stamps(vec![row(false)]), stamps(vec![row(true)]));
        assert_eq!((active.len(), active[0] == paused[0], active[1] == paused[1]), (2, true, false));
        assert_ne!(stamps(vec![])[0], active[0]);
    }

    #[test]
    fn the_stream_is_of_what_is_looked_for() {
        assert_eq!(address("", ""), "");
        assert_eq!(address("6b", "true"), "queue=6b&paused=true");
    }
}
