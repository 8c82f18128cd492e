//! All metrics, each declared once: its name, kind and labels, who exports it, and what it means. `docs/metrics.md` is made of it.

use prometheus_client::metrics::MetricType::{Counter as Counted, Gauge as Gauged};

use crate::Component::{Dci, Den};
use crate::kinds::{By, Counter, Gauge, Histogram, LookedUp, Met, Metric, OfProcess, Rows};
use crate::labels::{
    AuthFailure, Burial, Cause, Channel, Death, Export, Fire, Notice, Outcome, Refusal, Renewal, RetriedBy,
    Round, RunnerKind, RunnerState, Source, Worker, Write,
};
use crate::queues::Queues;
use crate::{Component, OPERATIONS as DATABASE, Operation, Route, process};

/// What there is to say of a metric besides what its type says.
#[derive(Debug, Clone, Copy)]
pub struct Declared {
    /// As Prometheus has it, with its unit and `_total`.
    pub name: &'static str,
    pub from: &'static [Component],
    pub meaning: &'static str,
}

/// Seconds that tasks wait.
const WAITS: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0];
/// Seconds that plugins run.
const RUNS: &[f64] = &[0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];
/// Seconds that operations take.
const OPERATIONS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];
/// Seconds of delay.
const DELAYS: &[f64] = &[0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0];
/// How many go together.
const TOGETHER: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1000.0];
/// From a MiB to 64 GiB.
const MEMORY: &[f64] = &[
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
    1_073_741_824.0,
    4_294_967_296.0,
    17_179_869_184.0,
    68_719_476_736.0,
];

fn operations() -> Histogram {
    Histogram::new(OPERATIONS)
}

macro_rules! declare {
    (
        $(#[$doc:meta])*
        pub struct $struct:ident { $(pub $other:ident: $of_other:ty,)* }
        $($field:ident: $type:ty = $make:expr, $name:literal, $from:expr, $meaning:literal;)*
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $struct {
            $(pub $other: $of_other,)*
            $(#[doc = $meaning] pub $field: $type,)*
        }

        impl Default for $struct {
            fn default() -> Self {
                Self { $($other: Default::default(),)* $($field: $make,)* }
            }
        }

        impl $struct {
            pub const DECLARED: &[Declared] = &[$(Declared { name: $name, from: $from, meaning: $meaning }),*];

            /// In the order of [`Self::DECLARED`].
            pub fn each(&self) -> Vec<&dyn Metric> {
                vec![$(&self.$field),*]
            }
        }
    };
}

const ALL: &[Component] = &[Den, Dci];
const DEN: &[Component] = &[Den];
const DCI: &[Component] = &[Dci];

declare! {
    /// What is counted for a queue. Each has the label `queue`.
    pub struct OfQueue {}

    submitted: By<Source, Counter> = By::default(), "disbatch_tasks_submitted_total", ALL,
        "Tasks that this process has submitted";
    refused: By<Refusal, Counter> = By::default(), "disbatch_tasks_refused_total", ALL,
        "Submissions that were refused, each counted once, however many tasks it had: `closed`, as their queue accepts none, `invalid`, as they name what is not there or what does not go together. Documents of the inbox that are refused are counted here and not as submitted, although each becomes a cancelled task";
    claimed: Counter = Counter::default(), "disbatch_tasks_claimed_total", DEN,
        "Tasks claimed; those whose claim and start are one write are counted, too";
    started: Counter = Counter::default(), "disbatch_tasks_started_total", DEN,
        "Tasks started";
    returned: Counter = Counter::default(), "disbatch_tasks_returned_total", DEN,
        "Claims and starts that were given back to their queue: many of them show trouble";
    ended: By<Outcome, Counter> = By::default(), "disbatch_tasks_ended_total", ALL,
        "Tasks that have ended for good, by whoever stored that; an attempt that is followed by another is no end";
    attempts_failed: By<Cause, Counter> = By::default(), "disbatch_attempts_failed_total", ALL,
        "Attempts that failed, with those that are followed by another";
    retried: By<RetriedBy, Counter> = By::default(), "disbatch_tasks_retried_total", ALL,
        "Tasks that are to be tried again: by the rules of their queue, or because somebody wants it";
    wait: Histogram = Histogram::new(WAITS), "disbatch_task_wait_seconds", DEN,
        "From the time at which a task could be claimed until its start; what gates and `run_at` hold is not waiting";
    run: By<Outcome, Histogram> = By::new(|| Histogram::new(RUNS)), "disbatch_task_run_seconds", ALL,
        "From the start of a plugin to its end, of each attempt; of web services, until they called back";
    cpu: Counter = Counter::default(), "disbatch_task_cpu_seconds_total", DEN,
        "Processor time of plugins that have ended, with their children";
    memory: Histogram = Histogram::new(MEMORY), "disbatch_task_memory_peak_bytes", DEN,
        "The most memory that a plugin had";
    drift: Counter = Counter::default(), "disbatch_counter_drift_tasks_total", DEN,
        "Tasks by which an audit corrected the counters";
}

declare! {
    /// What one process counts.
    pub struct Metrics {
        pub queues: Queues,
    }

    build: Rows = Rows::new(&["version", "component"]), "disbatch_build_info", ALL,
        "Which release this is; always 1";
    folded: Gauge = Gauge::zero(), "disbatch_queues_folded", ALL,
        "Queues without a label of their own: beyond 1,000 queues, all others are `queue=\"other\"`";
    database_up: Gauge = Gauge::zero(), "disbatch_database_up", ALL,
        "Whether the database answered when it was last asked";
    database_operations: OfProcess<Met<Operation, Histogram>> = OfProcess(&DATABASE), "disbatch_database_operation_seconds", ALL,
        "How long operations on the database took, by the name that they have in logs and traces: of those that consist of others, each is counted. `error` has those that were refused, too";
    stream_up: Gauge = Gauge::zero(), "disbatch_stream_up", DEN,
        "Whether a change stream tells of new tasks; without it the DEN polls";
    stream_hints: Counter = Counter::default(), "disbatch_stream_hints_total", DEN,
        "Changes that the change stream has told of";
    stream_lag: Histogram = operations(), "disbatch_stream_lag_seconds", DEN,
        "From a change, by the clock of the database, to when the change stream told of it, by that of the node; of MongoDB 6 and later";
    notifications: By<Channel, By<Notice, Counter>> = By::new(By::default), "disbatch_notifications_total", DEN,
        "Messages of subscriptions: `queued` for a task that delivers them, or `refused`, as there can be no such task. Whether they arrived is told by `disbatch_tasks_ended_total{queue=\"notifications\"}`";
    trace_spans: By<Export, Counter> = By::default(), "disbatch_trace_spans_total", ALL,
        "Spans that were to be sent to a collector: sent, `failed` (the collector refused them or was not there), or `dropped`, as more of them came than could be sent";
    node_places: Gauge = Gauge::default(), "disbatch_node_places", DEN,
        "How many tasks may run on the node at once (its `maxthreads`); missing where there is no limit";
    node_places_used: Gauge = Gauge::zero(), "disbatch_node_places_used", DEN,
        "Tasks that runners of this DEN have";
    runners: By<RunnerKind, By<RunnerState, Gauge>> = By::new(|| By::new(Gauge::zero)), "disbatch_runners", DEN,
        "Runners: warm ones are kept for the next task, cold ones (a `task_runner`, plugins that run tasks by themselves) are started for one";
    runner_deaths: By<Death, Counter> = By::default(), "disbatch_runner_deaths_total", DEN,
        "Runners that ended although nobody had told them to";
    claim_seconds: Histogram = operations(), "disbatch_claim_seconds", DEN,
        "How long a batch of claims took, over all its queues";
    claim_tasks: Histogram = Histogram::new(TOGETHER), "disbatch_claim_tasks", DEN,
        "Tasks in a batch of claims that had any";
    claim_rounds: By<Round, Counter> = By::default(), "disbatch_claim_rounds_total", DEN,
        "Rounds of claims: with tasks, without any, with nothing but tasks that others were faster to take (`lost`), or given up before, as no queue may have more (`gated`)";
    claim_lost: Counter = Counter::default(), "disbatch_claim_lost_total", DEN,
        "Tasks or slots that another node was faster to take";
    write_seconds: By<Write, Histogram> = By::new(operations), "disbatch_write_seconds", DEN,
        "How long it took to write for runners; what is written at the same time goes together, and counts for each kind that is in it";
    write_tasks: By<Write, Histogram> = By::new(|| Histogram::new(TOGETHER)), "disbatch_write_tasks", DEN,
        "Writes of a kind in what was written at once";
    write_backlog: By<Write, Gauge> = By::new(Gauge::zero), "disbatch_write_backlog", DEN,
        "Writes that runners wait for";
    lease_renewals: By<Renewal, Counter> = By::default(), "disbatch_lease_renewals_total", DEN,
        "Renewals of runners' leases";
    leases_lost: By<Burial, Counter> = By::default(), "disbatch_leases_lost_total", DEN,
        "Tasks whose lease ran out, and what became of them";
    buried: By<Burial, Counter> = By::default(), "disbatch_tasks_buried_total", DEN,
        "Tasks whose runner is gone, for whatever reason, and what became of them";
    worker_seconds: By<Worker, Histogram> = By::new(operations), "disbatch_worker_seconds", DEN,
        "How long a round of a chore took; a `look` is a pass of the node's loop";
    worker_success: By<Worker, Gauge> = By::default(), "disbatch_worker_last_success_timestamp_seconds", DEN,
        "When a chore last did its work here; most chores are done by one node at a time";
    schedule_fires: By<Fire, Counter> = By::default(), "disbatch_schedule_fires_total", DEN,
        "Times of schedules: fired, passed over because of earlier tasks (`overlap`) or because they were too late (`missed`), or without a task as something is wrong";
    schedule_lag: Histogram = Histogram::new(DELAYS), "disbatch_schedule_lag_seconds", DEN,
        "From the time of a schedule, with its jitter, to its firing";
    queue_info: Rows = Rows::new(&["queue", "plugin", "policy"]), "disbatch_queue_info", DCI,
        "What a queue is like; always 1";
    queue_tasks: Rows = Rows::new(&["queue", "state"]), "disbatch_queue_tasks", DCI,
        "Tasks by state: `queued`, `deferred` and `blocked` as the counters say, `claimed` and `running` counted";
    queue_oldest: Rows = Rows::new(&["queue", "state"]), "disbatch_queue_oldest_seconds", DCI,
        "How long the first task of a queue that is `queued` has waited, and how long the longest one that is `running` has run; missing where there is none";
    queue_places: Rows = Rows::new(&["queue"]), "disbatch_queue_places", DCI,
        "The concurrency limit of a queue (`threads`); 0 while it is paused";
    queue_places_used: Rows = Rows::new(&["queue"]), "disbatch_queue_places_used", DCI,
        "Tasks of a queue that are claimed or running";
    queue_held: Rows = Rows::new(&["queue", "gate"]), "disbatch_queue_held_by", DCI,
        "What keeps the first task of a queue that waits from being claimed: 1 for that gate, and no line for all others; of queues without a label of their own, how many it is. Gates are `none`, `empty` (no task waits), `paused`, `limit`, `rate`, `nodes`, `plugin`, `deferred`, `admission`, `lock`, `dependency` and `blocked`";
    nodes: Rows = Rows::new(&["state"]), "disbatch_nodes", DCI,
        "Nodes by state";
    locks_held: Gauge = Gauge::default(), "disbatch_locks_held", DCI,
        "Tasks that hold locks; 10,000 stands for that and more";
    locks_waiting: Gauge = Gauge::default(), "disbatch_locks_waiting", DCI,
        "Tasks that wait for a lock; 10,000 stands for that and more";
    inbox_documents: Gauge = Gauge::default(), "disbatch_inbox_documents", DCI,
        "Documents in the inbox; 10,000 stands for that and more";
    inbox_oldest: Gauge = Gauge::default(), "disbatch_inbox_oldest_seconds", DCI,
        "How long the first document of the inbox has been there by its id, also one that was left for a later release; missing where there is none";
    http_requests: Met<Route, Counter> = Met::new(&["route", "method", "code"], Counter::default), "disbatch_http_requests_total", DCI,
        "Answers, by the template of the route";
    http_seconds: Met<Route, Histogram> = Met::new(&["route", "method", "code"], operations), "disbatch_http_request_seconds", DCI,
        "From a request to the head of its answer";
    auth_failures: By<AuthFailure, Counter> = By::default(), "disbatch_auth_failures_total", DCI,
        "Requests of whom this server does not know (`missing`: nothing was shown, `wrong`: it is not valid, `throttled`: too many tries), or who may not (`forbidden`)";
    cpu: LookedUp = LookedUp { kind: Counted, look: process::cpu_seconds }, "process_cpu_seconds_total", ALL,
        "Processor time of this process";
    resident: LookedUp = LookedUp { kind: Gauged, look: process::resident_memory }, "process_resident_memory_bytes", ALL,
        "Memory of this process that is in use";
    virtual_memory: LookedUp = LookedUp { kind: Gauged, look: process::virtual_memory }, "process_virtual_memory_bytes", ALL,
        "Address space of this process";
    open_descriptors: LookedUp = LookedUp { kind: Gauged, look: process::open_descriptors }, "process_open_fds", ALL,
        "Descriptors that this process has open";
    most_descriptors: LookedUp = LookedUp { kind: Gauged, look: process::most_descriptors }, "process_max_fds", ALL,
        "Descriptors that it may have open";
    threads: LookedUp = LookedUp { kind: Gauged, look: process::threads }, "process_threads", ALL,
        "Threads of this process";
    start_time: LookedUp = LookedUp { kind: Gauged, look: process::start_time }, "process_start_time_seconds", ALL,
        "When this process was started, in seconds since 1970";
}
