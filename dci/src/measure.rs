//! What the metrics of a DCI are made of besides what the store counts: what is asked of this server, and what the database tells of
//! queues and nodes. That is looked at when somebody collects metrics, and not more often than every few seconds.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::web::Data;
use bson::{DateTime, Document};
use disbatch_core::counters::Totals;
use disbatch_core::explain::{Heads, Hold};
use disbatch_core::metrics::labels::{AuthFailure, Refusal};
use disbatch_core::metrics::queues::OTHER;
use disbatch_core::metrics::{Metrics, Route, Row, Rows};
use disbatch_core::model::{Queue, QueueId, Status};
use disbatch_core::queue::{FirstTask, UnderWay};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::SubmitError;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use crate::fields;
use crate::options::plain;
use crate::state::State;
use crate::ui::nodes::{NodeState, Now};

/// What the database has told counts for so long.
const KEPT: Duration = Duration::from_secs(5);

/// Asking takes at most one part in so many of the time.
const SHARE: u32 = 20;

/// It is asked again after so long at the latest.
const LONGEST: Duration = Duration::from_secs(60);

/// Locks, and documents of the inbox, are counted up to this.
const MOST_COUNTED: u64 = 10_000;

/// A scrape does not wait longer than this where what the database told before is not older than [`LONGEST`]: it gets that.
const PATIENCE: Duration = Duration::from_millis(25);

/// When the database was asked, and when it is to be asked again.
#[derive(Debug, Default)]
pub struct Gathered {
    until: Arc<Mutex<Option<Instant>>>,
    told: watch::Sender<Option<Instant>>,
}

impl Gathered {
    /// Sees to it that the metrics have what the database tells now, or, where telling it takes long, what it told at the scrape before.
    pub async fn renew(&self, store: &Store) {
        let store = store.clone();
        self.renew_by(async move { gather(&store).await }).await;
    }

    async fn renew_by(&self, gather: impl Future<Output = ()> + Send + 'static) {
        let is_recent = self.told.borrow().is_some_and(|told| told.elapsed() < LONGEST);
        let asking = self.ask(gather);
        if is_recent {
            let _in_time = tokio::time::timeout(PATIENCE, asking).await;
        } else {
            asking.await;
        }
    }

    /// Whoever comes while it is asked waits for the answer. It is asked to the end, even if nobody waits any more.
    async fn ask(&self, gather: impl Future<Output = ()> + Send + 'static) {
        let mut until = Arc::clone(&self.until).lock_owned().await;
        if until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let told = self.told.clone();
        let asked = tokio::spawn(async move {
            let began = Instant::now();
            gather.await;
            told.send_replace(Some(Instant::now()));
            *until = Some(Instant::now() + (began.elapsed() * SHARE).clamp(KEPT, LONGEST));
        });
        if let Err(error) = asked.await {
            tracing::error!(%error, "metrics could not be gathered");
        }
    }
}

/// What is not told is not known any more, and so is not exported.
fn told<T: Default>(what: &str, told: Result<T, StoreError>) -> T {
    told.unwrap_or_else(|error| {
        tracing::warn!(%error, "metrics are without {what}");
        T::default()
    })
}

async fn gather(store: &Store) {
    let metrics = store.metrics();
    let queues = store.list_queues().await;
    metrics.database_up.set_whether(queues.is_ok());
    let queues = told("queues", queues);
    let ids: Vec<QueueId> = queues.iter().map(|queue| queue.id).collect();
    let (under_way, first, counters, nodes, locks, inbox) = futures::join!(
        store.tasks_under_way(&ids),
        store.first_tasks(),
        store.read_counters(),
        async { futures::try_join!(store.list_nodes(), store.server_time()) },
        store.count_locks(MOST_COUNTED),
        store.inbox_backlog(MOST_COUNTED),
    );
    let states = nodes.as_ref().map(|(nodes, server)| states(store, nodes, *server));
    metrics.nodes.set(states.unwrap_or_default());
    let held = match (&under_way, &first, nodes) {
        (Ok(under_way), Ok(first), Ok(nodes)) => held(store, &queues, (under_way, first), nodes).await,
        (_, _, Err(error)) => Err(error),
        _ => Ok(Vec::new()), // Why is logged below.
    };
    tell_locks(metrics, locks);
    tell_inbox(metrics, told("the inbox", inbox));
    let all = All {
        under_way: told("tasks that run", under_way.map(Some)),
        first: told("waiting tasks", first),
        counters: told("counters", counters).unwrap_or_default(),
        held: told("what holds queues", held),
    };
    tell_queues(metrics, &queues, &all);
}

struct All {
    under_way: Option<HashMap<QueueId, UnderWay>>,
    first: HashMap<QueueId, FirstTask>,
    counters: Totals,
    /// In the order of queues; nothing if it is not known.
    held: Vec<Hold>,
}

fn tell_locks(metrics: &Metrics, locks: Result<(u64, u64), StoreError>) {
    match locks {
        Ok((held, waiting)) => {
            metrics.locks_held.set(held);
            metrics.locks_waiting.set(waiting);
        }
        error => {
            metrics.locks_held.forget();
            metrics.locks_waiting.forget();
            told("locks", error.map(drop));
        }
    }
}

/// `None`: it is not known.
fn tell_inbox(metrics: &Metrics, backlog: Option<(u64, Option<Duration>)>) {
    match backlog {
        Some((documents, _)) => metrics.inbox_documents.set(documents),
        None => metrics.inbox_documents.forget(),
    }
    match backlog.and_then(|(_, oldest)| oldest) {
        Some(oldest) => metrics.inbox_oldest.set_time(oldest),
        None => metrics.inbox_oldest.forget(),
    }
}

fn tell_queues(metrics: &Metrics, queues: &[Queue], all: &All) {
    let labels = Labels(metrics.queues.labels());
    let (mut tasks, mut oldest) = (Table::new(sum), Table::new(f64::max));
    let (mut places, mut used, mut gates) = (Table::new(sum), Table::new(sum), Table::new(sum));
    for queue in queues {
        let label = labels.of(queue);
        places.add([label], Some(queue.claim_limit() as f64));
        for (state, status) in
            [("queued", Status::Queued), ("deferred", Status::Deferred), ("blocked", Status::Blocked)]
        {
            tasks.add(
                [label, state],
                all.counters.of_statuses(queue.id, &[status.code()]).map(|tasks| tasks as f64),
            );
        }
        let waited = all.first.get(&queue.id).and_then(|first| first.waited);
        oldest.add([label, "queued"], waited.map(|waited| waited.as_secs_f64()));
        let Some(under_way) = &all.under_way else { continue };
        let own = under_way.get(&queue.id).copied().unwrap_or_default();
        tasks.add([label, "claimed"], Some(own.claimed as f64));
        tasks.add([label, "running"], Some(own.running as f64));
        used.add([label], Some((own.claimed + own.running) as f64));
        oldest.add([label, "running"], own.longest.map(|longest| longest.as_secs_f64()));
    }
    for (queue, gate) in queues.iter().zip(&all.held) {
        gates.add([labels.of(queue), gate.as_str()], Some(1.0));
    }
    metrics.queue_info.set(queues.iter().filter_map(|queue| labels.info(queue)).collect());
    tasks.into(&metrics.queue_tasks);
    oldest.into(&metrics.queue_oldest);
    places.into(&metrics.queue_places);
    used.into(&metrics.queue_places_used);
    gates.into(&metrics.queue_held);
}

fn sum(one: f64, other: f64) -> f64 {
    one + other
}

struct Labels(HashMap<[u8; 12], String>);

impl Labels {
    fn of(&self, queue: &Queue) -> &str {
        self.0.get(&queue.id.0.bytes()).map_or(OTHER, String::as_str)
    }

    fn info(&self, queue: &Queue) -> Option<Row> {
        let label = self.0.get(&queue.id.0.bytes())?;
        let plugin = queue.plugin_name().ok().flatten().map(|plugin| plugin.to_string());
        Some((vec![label.clone(), plugin.unwrap_or_default(), fields::policy(queue).to_owned()], 1.0))
    }
}

/// Rows by their labels. Those of queues that have no label of their own become one.
struct Table {
    rows: BTreeMap<Vec<String>, f64>,
    together: fn(f64, f64) -> f64,
}

impl Table {
    fn new(together: fn(f64, f64) -> f64) -> Self {
        Self { rows: BTreeMap::new(), together }
    }

    fn add<const LABELS: usize>(&mut self, labels: [&str; LABELS], number: Option<f64>) {
        let Some(number) = number else { return };
        let labels = labels.map(str::to_owned).to_vec();
        self.rows
            .entry(labels)
            .and_modify(|known| *known = (self.together)(*known, number))
            .or_insert(number);
    }

    fn into(self, rows: &Rows) {
        rows.set(self.rows.into_iter().collect());
    }
}

fn states(store: &Store, nodes: &[Document], server: DateTime) -> Vec<Row> {
    let now = Now { server, host: store.now() };
    let mut states: BTreeMap<&str, f64> = NodeState::ALL.map(|state| (state.as_str(), 0.0)).into();
    for node in nodes {
        *states.entry(NodeState::of(node, &now).as_str()).or_default() += 1.0;
    }
    states.into_iter().map(|(state, nodes)| (vec![state.to_owned()], nodes)).collect()
}

async fn held(
    store: &Store,
    queues: &[Queue],
    (under_way, first): (&HashMap<QueueId, UnderWay>, &HashMap<QueueId, FirstTask>),
    (nodes, now): (Vec<Document>, DateTime),
) -> Result<Vec<Hold>, StoreError> {
    let names = nodes.iter().filter_map(|node| node.get("node").cloned()).collect();
    let (busy, rates) = futures::try_join!(store.tasks_by_node(names), store.rate_standings(queues))?;
    let (under_way, first, queues) = (under_way.clone(), first.clone(), queues.to_vec());
    // Queues and nodes may be many.
    let held = tokio::task::spawn_blocking(move || {
        let nodes = Heads::nodes_of(&nodes);
        Heads { now, first, under_way, nodes, busy, rates }.holds(&queues)
    });
    Ok(held.await.unwrap_or_else(|error| {
        tracing::error!(%error, "what holds queues cannot be found out");
        Vec::new()
    }))
}

/// Counts every answer.
pub async fn requests(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let metrics = request.app_data::<Data<State>>().map(|state| state.store.metrics().clone());
    let (began, method) = (Instant::now(), known(request.method()));
    let answered = next.call(request).await;
    let (template, code) = match &answered {
        Ok(response) => (response.request().match_pattern(), response.status()),
        // It was refused before a route was looked for.
        Err(error) => (None, error.as_response_error().status_code()),
    };
    let template = template.map_or_else(|| OTHER.to_owned(), |pattern| plain(&pattern));
    let route = Route { template, method, code: code.as_u16() };
    if let Some(metrics) = metrics {
        metrics.http_requests.of(&route).inc();
        metrics.http_seconds.of(&route).observe_time(began.elapsed());
    }
    answered
}

fn known(method: &Method) -> &'static str {
    let methods = ["GET", "HEAD", "POST", "PUT", "DELETE"];
    methods.into_iter().find(|known| method.as_str() == *known).unwrap_or(OTHER)
}

/// Counts that somebody was not let in, if the answer says so. `has_shown`: they have shown who they are.
pub fn not_let_in(metrics: &Metrics, status: StatusCode, has_shown: bool) {
    let why = match status {
        StatusCode::FORBIDDEN => AuthFailure::Forbidden,
        StatusCode::TOO_MANY_REQUESTS => AuthFailure::Throttled,
        StatusCode::UNAUTHORIZED if has_shown => AuthFailure::Wrong,
        StatusCode::UNAUTHORIZED => AuthFailure::Missing,
        _ => return,
    };
    metrics.auth_failures.of(why).inc();
}

/// Counts that new tasks of a queue were refused.
pub fn refused(metrics: &Metrics, queue: QueueId, why: Refusal) {
    metrics.queues.of(queue.0.bytes()).refused.of(why).inc();
}

/// The same by what the store says.
pub fn refused_by(metrics: &Metrics, queue: QueueId, error: &SubmitError) {
    if let Some(why) = error.refusal() {
        refused(metrics, queue, why);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::{advance, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_scrape_waits_only_where_nothing_recent_is_known() {
        let (gathered, rounds) = (Gathered::default(), Arc::new(AtomicU32::new(0)));
        let scrape = async |takes: Duration| {
            let (began, counted) = (Instant::now(), Arc::clone(&rounds));
            let gather = async move {
                sleep(takes).await;
                counted.fetch_add(1, Ordering::Relaxed);
            };
            gathered.renew_by(gather).await;
            (began.elapsed(), rounds.load(Ordering::Relaxed))
        };
        let (long, no_time) = (Duration::from_millis(400), Duration::ZERO);
        assert_eq!(scrape(long).await, (long, 1), "nothing is known yet");
        advance(KEPT).await;
        assert_eq!(scrape(long).await, (no_time, 1), "it still counts: 5 % of the time are for asking");
        advance(long * SHARE).await;
        assert_eq!(scrape(long).await, (PATIENCE, 1), "what was told before is told again");
        assert_eq!(scrape(no_time).await, (PATIENCE, 1), "it is asked by one at a time");
        sleep(long).await;
        assert_eq!(scrape(no_time).await, (no_time, 2), "it was asked to the end");
        advance(LONGEST).await;
        assert_eq!(scrape(long).await, (long, 3), "what was told is too old");
    }
}
