//! `GET /queues/:queue/groups` for people: what each group has waiting and running, what it got, and when its turn is.

use actix_web::HttpRequest;
use actix_web::web::Data;
use askama::Template;
use askama::filters::HtmlSafe;
use disbatch_core::counters::count::Amount;
use disbatch_core::fair::{GroupFilter, GroupPage, Settings, Share};
use disbatch_core::model::{Policy, Queue, Sort};
use disbatch_core::text;
use disbatch_wire::queues::QueueGroup;

use super::charts::length;
use crate::access::NamedQueue;
use crate::api::{Answer, queues};
use crate::error::HttpError;
use crate::openapi::EventStream;
use crate::params::{Lenient, Params};
use crate::state::State;
use crate::ui::live::{self, Part};
use crate::ui::names::address;
use crate::ui::parts::{cut, grouped};
use crate::ui::queue_state::Tally;
use crate::ui::{self, Rendered};

const LONGEST_NAME: usize = 80;

#[derive(Template)]
#[template(path = "groups.html")]
struct GroupsPage<'a> {
    queue: &'a Queue,
    filter: &'a GroupFilter,
    groups: Groups<'a>,
    /// Whether it changes by itself: that is the first page of all.
    live: bool,
    next: String,
}

/// How groups share the queue, and each of them. Its blocks are the parts of the page that change by themselves.
#[derive(Template)]
#[template(path = "groups/parts.html", blocks = ["about", "table"])]
struct Groups<'a> {
    queue: &'a Queue,
    page: &'a GroupPage,
    rows: Vec<Row<'a>>,
}

#[derive(Template)]
#[template(path = "groups/row.html")]
struct Row<'a> {
    row: &'a QueueGroup,
    picture: Picture,
}

impl HtmlSafe for Row<'_> {}

pub async fn render(state: Data<State>, named: NamedQueue, Lenient(params): Lenient) -> Rendered {
    let queue = queues::find(&state, &named).await?;
    let filter = queues::group_filter(&params)?;
    let page = state.store.queue_groups(&queue, &filter).await?;
    ui::render(&page_of(&queue, &filter, &page))
}

/// What of the page of a queue's groups changes, as Server-Sent Events like those of `/ui/overview`.
#[utoipa::path(
    get, path = "/ui/queues/{id}/groups", tag = "service", operation_id = "groupEvents",
    params(("id" = String, Path, description = "The queue's id.", example = "6b0003bb686c8275d70dc2f1")),
    responses(EventStream, (status = 404, description = "There is no such queue.")),
)]
pub async fn live(request: HttpRequest, state: Data<State>, named: NamedQueue) -> Answer {
    let id = queues::find(&state, &named).await?.id.to_string();
    Ok(live::of_one(&request, &state, ("groups", id), async |state, id| {
        let queue = queues::find(state, &NamedQueue::parse(id)).await?;
        let filter = queues::group_filter(&Params::default())?;
        let page = state.store.queue_groups(&queue, &filter).await?;
        Groups::of(&queue, &page).parts()
    }))
}

fn page_of<'a>(queue: &'a Queue, filter: &'a GroupFilter, page: &'a GroupPage) -> GroupsPage<'a> {
    let next = page.rows.last().filter(|_| page.more).map(|last| {
        let (prefix, limit) = (filter.prefix.clone().unwrap_or_default(), filter.limit.to_string());
        let given = [(".after", last.group.clone()), (".prefix", prefix), (".limit", limit)].into_iter();
        let waiting = filter.waiting.then(|| (".waiting", "1".to_owned()));
        address(&format!("/queues/{}/groups", queue.id), given.chain(waiting))
    });
    let usual = GroupFilter { limit: queues::GROUPS_SHOWN, ..GroupFilter::default() };
    GroupsPage {
        queue,
        filter,
        groups: Groups::of(queue, page),
        live: *filter == usual,
        next: next.unwrap_or_default(),
    }
}

fn named(group: &str) -> String {
    if group.is_empty() { "no group".to_owned() } else { cut(group, LONGEST_NAME) }
}

impl<'a> Groups<'a> {
    fn of(queue: &'a Queue, page: &'a GroupPage) -> Self {
        let all = All::of(&page.rows);
        let rows = page.rows.iter().map(|row| Row { row, picture: Picture::of(row, &all) }).collect();
        Self { queue, page, rows }
    }

    fn parts(&self) -> Result<Vec<Part>, HttpError> {
        let about = Part::new(&self.as_about())?;
        Ok([vec![about], Part::table(&self.as_table(), &self.rows)?].concat())
    }
}

fn waiting(row: &QueueGroup) -> Tally {
    let amount = if row.more_waiting { Amount::MoreThan(row.waiting) } else { Amount::Exactly(row.waiting) };
    Tally::new(Vec::new(), amount)
}

fn used(seconds: f64) -> String {
    let time = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    if time.is_zero() { "–".to_owned() } else { length(time) }
}

/// A group beside the others of its page, as bars: what waits and runs, beside what other groups have, and what was got, beside what it would be
/// by weight.
#[derive(Debug, Clone, PartialEq, Template)]
#[template(path = "groups/picture.html")]
struct Picture {
    label: String,
    waiting: String,
    running: String,
    received: String,
    due: String,
}

impl HtmlSafe for Picture {}

/// What the groups of a page have together, and the most that one of them has.
#[derive(Debug, Default)]
struct All {
    waiting: u64,
    running: u64,
    started: u64,
    weight: u64,
    /// The largest part of what was got, or should be.
    part: f64,
}

impl All {
    fn of(rows: &[QueueGroup]) -> Self {
        let mut all = Self {
            waiting: rows.iter().map(|row| waiting(row).least()).max().unwrap_or(0),
            running: rows.iter().map(|row| row.running).max().unwrap_or(0),
            started: rows.iter().map(|row| row.started).sum(),
            weight: rows.iter().map(|row| u64::from(row.weight)).sum(),
            part: 0.0,
        };
        let parts = rows.iter().map(|row| all.received(row).max(all.due(row)));
        all.part = parts.fold(0.0, f64::max);
        all
    }

    fn received(&self, row: &QueueGroup) -> f64 {
        part(row.started, self.started)
    }

    fn due(&self, row: &QueueGroup) -> f64 {
        part(u64::from(row.weight), self.weight)
    }
}

fn part(of: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { of as f64 / all as f64 }
}

impl Picture {
    fn of(row: &QueueGroup, all: &All) -> Self {
        let (received, due) = (all.received(row), all.due(row));
        let of_part = |one: f64| if all.part > 0.0 { one / all.part } else { 0.0 };
        let width = |part: f64| format!("{:.1}", 100.0 * part);
        let percent = |part: f64| text::percent(100.0 * part, 0);
        Self {
            label: format!(
                "{} waiting, {} running; it got {} of what these groups got, and by weight it would be {}",
                waiting(row).words(),
                grouped(row.running),
                percent(received),
                percent(due)
            ),
            waiting: width(part(waiting(row).least(), all.waiting)),
            running: width(part(row.running, all.running)),
            received: width(of_part(received)),
            due: width(of_part(due)),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Document, doc};

    use super::*;
    use crate::ui::live::assert_on_page;

    fn queue(fields: Document) -> Queue {
        let mut queue =
            doc! { "_id": ObjectId::parse_str("6b0003bb686c8275d70dc2f1").unwrap(), "name": "<mail>" };
        queue.extend(fields);
        bson::deserialize_from_document(queue).unwrap()
    }

    fn row(group: &str, waiting: u64, started: u64) -> QueueGroup {
        QueueGroup {
            group: group.to_owned(),
            waiting,
            more_waiting: false,
            running: 1,
            started,
            finished: started,
            used: 12.5,
            weight: 1,
            started_ago: None,
            turn_in: Some(2),
            why: "2 turns come before its next one".to_owned(),
        }
    }

    fn page(rows: Vec<QueueGroup>) -> GroupPage {
        let last = Some("<zoe>".to_owned());
        GroupPage { rows, more: true, waiting: Amount::Exactly(2), round: 7, last }
    }

    fn filter() -> GroupFilter {
        GroupFilter { limit: queues::GROUPS_SHOWN, ..GroupFilter::default() }
    }

    #[test]
    fn the_page_shows_what_each_group_has_and_gets() {
        let page = page(vec![row("", 3, 0), row("<ann>", 1_000, 300), row("bob", 10, 100)]);
        let html = page_of(&queue(doc! { "policy": "fair" }), &filter(), &page).render().unwrap();
        for part in [
            "data-live=\"/ui/queues/6b0003bb686c8275d70dc2f1/groups\"",
            "Groups take turns",
            "This is round 7; the last turn was that of &#60;zoe&#62;.",
            "2 groups wait",
            "&#60;ann&#62;",
            "no group",
            "1,000",
            "12.5 s",
            "2 turns come before its next one",
            "it got 75 % of what these groups got, and by weight it would be 33 %",
            "class=\"waiting\" width=\"100.0\"",
            "class=\"received\"",
            "/queues/6b0003bb686c8275d70dc2f1/groups?.after=bob&#38;.prefix=&#38;.limit=100",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<ann>") && !html.contains("<zoe>") && !html.contains(" style="), "{html}");
    }

    #[test]
    fn every_part_is_on_the_page_under_its_id() {
        let (queue, filter) = (queue(doc! {}), filter());
        let page = page(vec![row("a", 1, 1), row("b", 2, 2)]);
        let shown = page_of(&queue, &filter, &page);
        let parts = shown.groups.parts().unwrap();
        let html = shown.render().unwrap();
        assert_eq!(parts.len(), 4);
        assert_on_page(&parts, &html);
    }

    #[test]
    fn a_queue_that_is_not_fair_says_so_and_no_groups_too() {
        let empty = GroupPage { rows: Vec::new(), more: false, ..page(Vec::new()) };
        let some = GroupFilter { prefix: Some("a\"".to_owned()), waiting: true, ..filter() };
        let html = page_of(&queue(doc! { "policy": "priority" }), &some, &empty).render().unwrap();
        assert!(
            html.contains("This queue is not fair: of all its tasks, the one with the highest priority"),
            "{html}"
        );
        assert!(html.contains("No group is there") && html.contains("value=\"a&#34;\""), "{html}");
        assert!(!html.contains("data-live") && !html.contains("rel=\"next\""), "{html}");
    }

    #[test]
    fn what_was_not_used_is_no_number() {
        assert_eq!([0.0, f64::NAN, 12.5].map(used), ["–", "–", "12.5 s"]);
    }

    #[test]
    fn nothing_divides_by_nothing() {
        let none = QueueGroup {
            group: "a".to_owned(),
            waiting: 0,
            more_waiting: false,
            running: 0,
            started: 0,
            finished: 0,
            used: f64::NAN,
            weight: 1,
            started_ago: None,
            turn_in: None,
            why: "2 turns come before its next one".to_owned(),
        };
        let all = All::of(std::slice::from_ref(&none));
        let picture = Picture::of(&none, &all);
        assert_eq!((picture.waiting.as_str(), picture.running.as_str()), ("0.0", "0.0"));
        assert_eq!((picture.received.as_str(), picture.due.as_str()), ("0.0", "100.0"));
    }
}
