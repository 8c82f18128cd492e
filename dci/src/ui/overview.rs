//! `GET /`: what there is to do, all queues and nodes, and how many tasks end.

mod attention;
pub mod facts;
mod table;
pub mod throughput;

use std::sync::Arc;

use crate::access::Who;
use crate::access::viewer::Viewer;
use crate::api::Answer;
use crate::error::HttpError;
use crate::json;
use crate::openapi::{EventStream, OfFixed};
use crate::params::Lenient;
use crate::state::State;
use crate::ui::live::{self, Part};
use crate::ui::nodes::{NodeState, NodeTable};
use crate::ui::parts::{Spark, grouped};
use crate::ui::{self, Rendered};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use askama::filters::HtmlSafe;
use attention::Attention;
use disbatch_core::accounts::Role;
use disbatch_core::series::Ended;
use facts::Facts;
use table::{Grouping, Order, QueueTable, Sum};
use throughput::Span;

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview<'a> {
    database: &'a str,
    plugins: &'a [String],
    shown: OverviewParts<'a>,
    order: Order,
    span: Span,
    picture: Spark,
}

#[derive(Debug)]
struct OverviewParts<'a> {
    attention: Attention,
    figures: Figures,
    queues: QueueTable<'a>,
    nodes: NodeTable,
}

#[derive(Debug, Default, PartialEq, Eq, Template)]
#[template(path = "overview/figures.html")]
struct Figures {
    all: Sum,
    busy: usize,
    nodes: usize,
    alive: u64,
}

impl HtmlSafe for Figures {}

/// The page.
#[utoipa::path(
    get, path = "/", tag = "service", operation_id = "overview",
    params(
        ("span" = Option<String>, Query, description = "Of which time the chart is: 1h, 24h or 7d."),
        (
            "sort" = Option<String>, Query, example = "-waiting",
            description = "By which column queues are sorted: name, state, threads, waiting, running, finished, failed, hour or \
                           oldest; with a minus, the other way round.",
        ),
        (
            "group" = Option<String>, Query, example = "prefix",
            description = "What groups queues: prefix, which is the first word of their names, or tenant.",
        ),
    ),
    responses((status = 200, description = "Queues and nodes.", body = String, content_type = "text/html")),
)]
pub async fn render(state: Data<State>, who: Who, Lenient(params): Lenient) -> Rendered {
    let (span, order) = (Span::of(&params), Order::of(&params));
    let (mut facts, mut points, plugins) = futures::try_join!(
        Facts::gather(&state),
        state.overview.throughput(&state.store, span),
        state.catalogue(),
    )?;
    if !who.is_everywhere(Role::Viewer) {
        facts.limit(|queue| who.sees(queue));
        points = Arc::default();
    }
    let overview = Overview {
        database: state.store.database_name(),
        plugins: plugins.names(),
        shown: shown(&facts, order),
        order,
        span,
        picture: throughput::picture(span, &points),
    };
    ui::render(&overview)
}

/// What of the page changes, as Server-Sent Events: each message has elements that take the place of those with the
/// same ids. What cannot be found out is told as `trouble`. Who may see some queues only is told of these alone.
#[utoipa::path(
    get, path = "/ui/overview", tag = "service", operation_id = "overviewEvents",
    params(
        ("sort" = Option<String>, Query, description = "The column by which queues are sorted, as the page has it."),
        ("group" = Option<String>, Query, description = "What groups queues, as the page has it."),
        ("span" = Option<String>, Query, description = "The time of the page's chart, which the links of the table keep."),
    ),
    responses(EventStream, OfFixed),
)]
pub async fn live(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    Lenient(params): Lenient,
) -> HttpResponse {
    if who.is_everywhere(Role::Viewer) {
        return live::of_search(&request, &state, ("overview", params), async |state, params| {
            shown(&Facts::gather(state).await?, Order::of(params)).parts()
        });
    }
    let order = Order::of(&params);
    let name = format!("overview {} for {:?}", order.query(), who.rights);
    live::respond(&request, &state, name, async move |state: &State| parts_for(state, &who, order).await)
}

/// How many tasks of which queues ended, and how many of these failed, in the steps of a stretch of time up to now.
#[utoipa::path(
    get, path = "/ui/throughput", tag = "service", operation_id = "showThroughput",
    params(("span" = Option<String>, Query, description = "1h, 24h or 7d.")),
    responses((status = 200, description = "What the chart shows.", body = serde_json::Value)),
)]
pub async fn throughput(state: Data<State>, Lenient(params): Lenient) -> Answer {
    let span = Span::of(&params);
    let (points, shares) = futures::try_join!(
        state.overview.throughput(&state.store, span),
        state.overview.shares(&state.store, span),
    )?;
    Ok(json::ok(&throughput::chart_of_shares(span, &points, &shares)))
}

/// For all who may see the same queues.
async fn parts_for(state: &State, who: &Who, order: Order) -> Result<Vec<Part>, HttpError> {
    let mut facts = Facts::gather(state).await?;
    facts.limit(|queue| who.sees(queue));
    let shown = shown(&facts, order);
    let parts =
        async { Ok::<_, HttpError>([vec![Part::new(&shown.figures)?], shown.queues.parts()?].concat()) };
    Viewer::with(who.rights.clone()).look(parts).await
}

impl OverviewParts<'_> {
    fn parts(&self) -> Result<Vec<Part>, HttpError> {
        let first = vec![Part::new(&self.attention)?, Part::new(&self.figures)?];
        Ok([first, self.queues.parts()?, self.nodes.parts()?].concat())
    }
}

fn shown(facts: &Facts, order: Order) -> OverviewParts<'_> {
    OverviewParts {
        attention: Attention::of(facts),
        figures: figures(facts),
        queues: QueueTable::of(&facts.queues, order),
        nodes: NodeTable::of(&facts.nodes, &facts.now, None),
    }
}

fn figures(facts: &Facts) -> Figures {
    let alive = facts.nodes.iter().filter(|node| NodeState::of(node, &facts.now).is_up());
    Figures {
        all: Sum::of(&facts.queues.iter().collect::<Vec<_>>()),
        busy: facts.queues.iter().filter(|queue| !queue.waiting.is_none()).count(),
        nodes: facts.nodes.len(),
        alive: alive.count() as u64,
    }
}

fn share(ended: Ended) -> String {
    let all = u128::from(ended.total());
    match u128::from(ended.failed) * 1000 / all.max(1) {
        _ if ended.failed == 0 => "none".to_owned(),
        0 => format!("{} of {}", grouped(ended.failed), grouped(ended.total())),
        tenths => format!("{}.{} %", tenths / 10, tenths % 10),
    }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};
    use disbatch_core::accounts::Rights;
    use disbatch_core::counters::count::Amount;

    use super::facts::QueueFacts;
    use super::*;
    use crate::ui::live::assert_on_page;
    use crate::ui::nodes::Now;
    use crate::ui::queue_state::Tally;

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

    fn facts() -> Facts {
        let queue = bson::deserialize_from_document(doc! {
            "_id": bson::oid::ObjectId::parse_str("6b0003bb686c8275d70dc2f1").unwrap(),
            "name": "<mail>", "plugin": "My::Plugin", "threads": 3,
        });
        let queue = QueueFacts {
            queue: queue.unwrap(),
            waiting: Tally::new(vec![-2], Amount::MoreThan(1_000)),
            running: 2,
            finished: Tally::new(vec![1, 2], Amount::Exactly(1500)),
            failed: Tally::new(vec![2], Amount::Exactly(5)),
            hour: vec![Ended { succeeded: 995, failed: 5, other: 0 }],
            oldest: None,
            blocked: None,
            asks: None,
            rate: None,
            intake: None,
            lacks: None,
        };
        let now = Now { server: NOW, host: NOW };
        Facts { queues: vec![queue], nodes: vec![doc! { "node": "vm", "timestamp": NOW }], now }
    }

    fn page(facts: &Facts, plugins: &[&str]) -> String {
        let plugins: Vec<String> = plugins.iter().map(|name| (*name).to_owned()).collect();
        let overview = Overview {
            database: "<db>",
            plugins: &plugins,
            shown: shown(facts, Order::default()),
            order: Order::default(),
            span: Span::Day,
            picture: throughput::picture(Span::Day, &[]),
        };
        overview.render().unwrap()
    }

    #[test]
    fn the_page_shows_queues_and_nodes_and_escapes_names() {
        let html = page(&facts(), &["My::Plugin", "<Odd>"]);
        for part in [
            "<html lang=\"en\">",
            "<a href=\"/\" aria-current=\"page\">Overview</a>",
            "data-live=\"/ui/overview\"",
            "&#60;db&#62;",
            "&#60;mail&#62;",
            "Nothing needs attention.",
            "<span class=\"status alive\">alive</span>",
            "<option>My::Plugin</option>",
            "<option>&#60;Odd&#62;</option>",
            "data-chart=\"/ui/throughput?span=24h\"",
            "data-span=\"/ui/throughput?span=24h\" aria-current=\"true\"",
            "No task ended within the last 24 hours.",
            "<span class=\"figure\">1,000+</span>",
            "1,500 in total",
            "in 1 of 1 queue<",
            "0.5 %",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<mail>") && !html.contains(" style="), "{html}");
    }

    #[tokio::test]
    async fn who_sees_some_queues_only_is_shown_these_and_no_stream_of_all() {
        let mut who = Who::anybody("10.0.0.1".into());
        (who.name, who.rights) = (Some("guest".into()), Rights::default());
        let html = Viewer::of(&who).look(async { page(&facts(), &["My::Plugin"]) }).await;
        for missing in
            ["data-live", "/ui/throughput", "id=\"nodes\"", "New queue", "Nodes alive", "id=\"attention\""]
        {
            assert!(!html.contains(missing), "{missing} is in {html}");
        }
        let body = "<body data-role=\"\" data-everywhere=\"\">";
        assert!(html.contains(body) && html.contains("data-needs=\"operator\" disabled"), "{html}");
    }

    #[test]
    fn every_part_is_on_the_page_under_its_id() {
        let facts = facts();
        let html = page(&facts, &[]);
        assert_on_page(&shown(&facts, Order::default()).parts().unwrap(), &html);
    }

    #[test]
    fn an_empty_database_says_so() {
        let facts = Facts { queues: vec![], nodes: vec![], now: Now { server: NOW, host: NOW } };
        let html = page(&facts, &[]);
        for part in [
            "There are no queues yet.",
            "No node has been seen yet.",
            "No plugin is known",
            ">0 in total<",
            "<span class=\"more\">none</span>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert_eq!(figures(&facts), Figures::default());
    }

    #[test]
    fn the_share_of_failures_is_in_words() {
        let share = |succeeded, failed| share(Ended { succeeded, failed, other: 0 });
        assert_eq!([share(1, 1), share(5000, 1), share(0, 0)], ["50.0 %", "1 of 5,001", "none"]);
        assert_eq!(share(u64::MAX, u64::MAX), "100.0 %");
    }
}
