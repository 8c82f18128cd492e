//! How a queue is doing, for people: how many of its tasks have one of some statuses, and where just these are found; and what it lacks
//! for its tasks to run: a plugin, or a node that has it.

use std::collections::BTreeMap;

use askama::Template;
use askama::filters::{HtmlSafe, HtmlSafeOutput};
use bson::{Document, doc};
use disbatch_core::admission::{Action, Rules, Scope, Whose};
use disbatch_core::counters::Totals;
use disbatch_core::counters::count::Amount;
use disbatch_core::model::{PluginName, Queue, QueueId};
use disbatch_core::plugin::lacks;
use disbatch_core::rate::{Rate, Standing};
use disbatch_core::store::{Store, StoreError};

use crate::counts;
use crate::ui::nodes::NodeState;
use crate::ui::parts::{Pill, When, grouped, number, rough};

#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// How many tasks wait, at least.
    pub waiting: u64,
    pub running: u64,
    pub rate: Option<Standing>,
    /// What becomes of new tasks that are for nobody in particular; none: they are accepted.
    pub intake: Option<Intake>,
    /// What it lacks, in a word, if none of its tasks can run.
    pub lacks: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intake {
    /// Whether they are rejected, and not held.
    pub rejects: bool,
    pub by: &'static str,
}

impl Work {
    pub fn waits_for_rate(&self) -> bool {
        self.waiting > 0 && self.rate.is_some_and(|rate| rate.allowed == 0)
    }
}

/// What rules make of new tasks of a queue that are for nobody in particular.
pub fn intake(rules: &Rules, queue: &Queue) -> Option<Intake> {
    let rule = rules.deciding(&Whose { queue: queue.id, tenant: queue.tenant(), owner: None })?;
    let by = match rule.scope {
        Scope::All => "the rule for all tasks",
        Scope::Queue(_) => "the rule for this queue",
        Scope::Tenant(_) => "the rule for its tenant",
        Scope::Owner(_) => "a rule", // Those of users are not asked for.
    };
    (rule.action != Action::Accept).then_some(Intake { rejects: rule.action == Action::Reject, by })
}

/// A queue's state as pills, and why it is stopped, since when and by whom, if it is.
#[derive(Debug, PartialEq, Eq, Template)]
#[template(path = "parts/queue_state.html")]
pub struct QueueState {
    pills: Vec<Pill>,
    /// The rule that keeps new tasks from it, which has a page of its own.
    rule: Option<Intake>,
    by: Option<String>,
    since: Option<When>,
    reason: Option<String>,
}

impl HtmlSafe for QueueState {}

impl QueueState {
    pub fn of(queue: &Queue, work: &Work) -> Self {
        let pill = |tone, word| Pill { tone, word };
        let mut pills = vec![if queue.is_paused() {
            pill("paused", "paused")
        } else if queue.thread_limit() == 0 {
            pill(if work.waiting > 0 { "busy" } else { "idle" }, "no threads")
        } else if let Some(lacks) = work.lacks {
            pill(if work.waiting > 0 { "bad" } else { "busy" }, lacks)
        } else if work.running >= queue.thread_limit() {
            pill("info", "full")
        } else if work.waits_for_rate() {
            pill("info", "waits for rate")
        } else {
            pill("open", "active")
        }];
        if !queue.is_accepting() {
            pills.push(pill("closed", "accepts no tasks"));
        }
        let is_stopped = queue.is_paused() || !queue.is_accepting();
        let stopped = queue.stopped().filter(|_| is_stopped);
        Self {
            pills,
            rule: work.intake,
            by: stopped.and_then(|(_, by)| by.map(str::to_owned)),
            since: stopped.map(|(at, _)| When::at(at)),
            reason: queue.reason().filter(|_| is_stopped).map(str::to_owned),
        }
    }

    /// What it is in a word, to sort by.
    pub fn word(&self) -> &'static str {
        self.pills.first().map_or("", |pill| pill.word)
    }
}

/// A rate as people say it: `60 an hour`.
pub fn rate_words(rate: &Rate) -> String {
    let n = grouped(rate.n);
    match rate.per {
        1 => format!("{n} a second"),
        60 => format!("{n} a minute"),
        3600 => format!("{n} an hour"),
        86_400 => format!("{n} a day"),
        per => format!("{n} in {}", rough(per)),
    }
}

/// How long so many tasks take to start by a rate, in seconds.
pub fn rate_takes(rate: &Rate, tasks: u64) -> u64 {
    let seconds = u128::from(tasks) * u128::from(rate.per) / u128::from(rate.n.max(1));
    u64::try_from(seconds).unwrap_or(u64::MAX)
}

#[derive(Debug, PartialEq, Eq)]
pub enum Lacking {
    Plugin,
    /// It has one that can be none, for this reason.
    UsablePlugin(String),
    /// No node is alive that claims tasks.
    Node,
    /// None of those has all that it needs: not this plugin, or not in this version.
    NodeWith(PluginName),
}

impl Lacking {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Plugin => "no plugin",
            Self::UsablePlugin(_) => "no usable plugin",
            Self::Node => "no node takes tasks",
            Self::NodeWith(plugin) if plugin.version().is_some() => "no node has its version",
            Self::NodeWith(_) => "no node has its plugin",
        }
    }

    /// What `queue` lacks, if that is known: which plugins Perl's nodes have is not.
    pub fn of<'a>(queue: &Queue, nodes: impl Iterator<Item = (NodeState, &'a Document)>) -> Option<Self> {
        let needed = match queue.needed_plugins() {
            Ok(needed) if needed.is_empty() => return Some(Self::Plugin),
            Ok(needed) => needed,
            Err(error) => return Some(Self::UsablePlugin(error.to_string())),
        };
        let mut alive = nodes.filter(|(state, _)| *state == NodeState::Alive);
        alive
            .try_fold(Self::Node, |_, (_, node)| lacks(node, &needed)?.into_iter().next().map(Self::NodeWith))
    }
}

/// What a queue needs, in words: `its plugin My::Mail`, or `version 2 of its plugin My::Mail`.
pub fn lacking(plugin: &PluginName) -> String {
    plugin.words().replacen("the plugin", "its plugin", 1)
}

const MOST_STATUSES: usize = 50;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Nothing if it is not known which they are.
    statuses: Vec<i64>,
    amount: Amount,
}

impl Default for Tally {
    fn default() -> Self {
        Self::new(Vec::new(), Amount::Exactly(0))
    }
}

impl Tally {
    pub const fn new(statuses: Vec<i64>, amount: Amount) -> Self {
        Self { statuses, amount }
    }

    pub fn sum<'a>(tallies: impl Iterator<Item = &'a Self>) -> Self {
        let (tasks, more) = tallies
            .map(|tally| tally.amount.parts())
            .fold((0_u64, false), |(sum, more), (tasks, some)| (sum.saturating_add(tasks), more || some));
        Self::new(Vec::new(), if more { Amount::MoreThan(tasks) } else { Amount::Exactly(tasks) })
    }

    pub const fn least(&self) -> u64 {
        self.amount.parts().0
    }

    pub const fn is_none(&self) -> bool {
        matches!(self.amount, Amount::Exactly(0))
    }

    pub fn words(&self) -> String {
        let (tasks, more) = self.amount.parts();
        format!("{}{}", grouped(tasks), if more { "+" } else { "" })
    }

    /// The same in a table: nothing is not to catch the eye.
    pub fn shown(&self) -> HtmlSafeOutput<String> {
        if self.is_none() { number(0_u64) } else { HtmlSafeOutput(self.words()) }
    }

    /// Where these tasks of `queue` are found, if that can be said.
    pub fn link(&self, queue: QueueId) -> Option<String> {
        let statuses: String = self.statuses.iter().map(|status| format!("&status={status}")).collect();
        let is_known = (1..=MOST_STATUSES).contains(&self.statuses.len());
        is_known.then(|| format!("/tasks?queue={queue}{statuses}"))
    }
}

#[derive(Debug, Clone)]
pub struct Question {
    queue: QueueId,
    statuses: Vec<i64>,
    known: Option<u64>,
    bound: u64,
}

impl Question {
    /// How many tasks of `queue`, which is one of so many, have one of `statuses`.
    pub fn new(queue: QueueId, statuses: Vec<i64>, (queues, totals): (usize, Option<&Totals>)) -> Self {
        let known = totals.and_then(|totals| totals.of_statuses(queue, &statuses));
        let bound = known.map_or_else(|| counts::bound(queues), |_| counts::bound_of_page(queues));
        Self { queue, statuses, known, bound }
    }

    /// Answers all of them: counts up to bounds, beyond which the counters say how many there are, if there are any.
    pub async fn answers(store: &Store, questions: Vec<Self>) -> Result<Vec<Tally>, StoreError> {
        // Where the counters tell of far more than would be counted, nothing is.
        let many = |of: &Self| of.known.filter(|tasks| *tasks >= of.bound.saturating_mul(2));
        let mut amounts: Vec<Option<Amount>> =
            questions.iter().map(|of| many(of).map(Amount::Exactly)).collect();
        Self::count_few(store, &questions, &mut amounts).await?;
        let open = questions.iter().zip(&amounts).filter(|(_, amount)| amount.is_none());
        let filter = |of: &Self| doc! { "queue": of.queue, "status": { "$in": &of.statuses } };
        let counts: Vec<(Document, u64)> = open.map(|(of, _)| (filter(of), of.bound)).collect();
        let mut counted = store.count_each_up_to(&counts).await?.into_iter();
        let tally = |(of, amount): (Self, Option<Amount>)| {
            let amount = amount.or_else(|| Some(beyond(counted.next()?, of.known)));
            Tally::new(of.statuses, amount.unwrap_or(Amount::Exactly(0)))
        };
        Ok(questions.into_iter().zip(amounts).map(tally).collect())
    }

    /// Counts what is few together, for all that ask for the same statuses.
    async fn count_few(
        store: &Store,
        questions: &[Self],
        amounts: &mut [Option<Amount>],
    ) -> Result<(), StoreError> {
        let mut alike: BTreeMap<&[i64], Vec<(&Self, &mut Option<Amount>)>> = BTreeMap::new();
        // The counters say that the count will not get to its bound.
        let is_few = |of: &Self| of.known.is_some_and(|tasks| tasks < of.bound);
        for (of, amount) in questions.iter().zip(amounts).filter(|(of, _)| is_few(of)) {
            alike.entry(&of.statuses).or_default().push((of, amount));
        }
        let count = async |(statuses, asked): (&[i64], Vec<(&Self, &mut Option<Amount>)>)| {
            let queues: Vec<QueueId> = asked.iter().map(|(of, _)| of.queue).collect();
            let most = asked.iter().map(|(of, _)| of.bound).sum();
            // There may be many more since the counters were written.
            let Some(counts) = store.count_few(&queues, statuses, most).await? else {
                return Ok::<_, StoreError>(());
            };
            for (of, amount) in asked {
                let counted = counts.get(&of.queue).copied().unwrap_or(0);
                *amount = Some(beyond(Amount::up_to(counted, of.bound), of.known));
            }
            Ok(())
        };
        futures::future::try_join_all(alike.into_iter().map(count)).await?;
        Ok(())
    }
}

/// What is known of a number whose count has ended at its bound.
pub fn beyond(amount: Amount, known: Option<u64>) -> Amount {
    match (amount, known) {
        (Amount::MoreThan(least), Some(tasks)) => Amount::Exactly(tasks.max(least)),
        (amount, _) => amount,
    }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;
    use bson::oid::ObjectId;
    use disbatch_core::admission::Rule;

    use super::*;

    fn queue(fields: Document) -> Queue {
        let mut queue = doc! { "_id": ObjectId::from_bytes([1; 12]), "name": "q", "threads": 2 };
        queue.extend(fields);
        bson::deserialize_from_document(queue).unwrap()
    }

    fn words(fields: Document, work: Work) -> Vec<&'static str> {
        QueueState::of(&queue(fields), &work).pills.iter().map(|pill| pill.word).collect()
    }

    #[test]
    fn a_state_says_what_keeps_tasks_from_starting() {
        let rate = Rate { n: 60, per: 3600, burst: 1 };
        let limited =
            Work { waiting: 5, rate: Some(Standing { rate, allowed: 0, next: None }), ..Work::default() };
        assert_eq!(words(doc! {}, Work::default()), ["active"]);
        assert_eq!(words(doc! { "threads": 0 }, Work::default()), ["no threads"]);
        assert_eq!(words(doc! {}, Work { running: 2, ..limited }), ["full"]);
        assert_eq!(words(doc! {}, limited), ["waits for rate"]);
        assert_eq!(words(doc! {}, Work { waiting: 0, ..limited }), ["active"]);
        assert_eq!(
            words(doc! { "paused": true, "accepting": false }, limited),
            ["paused", "accepts no tasks"]
        );
        let lacks = |waiting| Work { lacks: Some("no node has its plugin"), ..Work { waiting, ..limited } };
        assert_eq!(words(doc! {}, lacks(5)), ["no node has its plugin"]);
        assert_eq!(words(doc! { "paused": true }, lacks(5)), ["paused"]);
        let tone = |waiting| QueueState::of(&queue(doc! {}), &lacks(waiting)).pills[0].tone;
        assert_eq!([tone(5), tone(0)], ["bad", "busy"]);
    }

    #[test]
    fn a_rule_that_rejects_new_tasks_is_named_and_leads_to_its_page() {
        let intake = Some(Intake { rejects: true, by: "the rule for its tenant" });
        let work = Work { intake, ..Work::default() };
        let html = QueueState::of(&queue(doc! {}), &work).render().unwrap();
        assert!(
            html.contains("new tasks <a class=\"status bad\" href=\"/admission\">rejected by the rule for its tenant</a>"),
            "{html}"
        );
    }

    #[test]
    fn who_has_stopped_it_is_told_as_long_as_it_is() {
        let stopped = doc! { "by": "<ann>", "at": DateTime::from_millis(1_795_163_067_344) };
        let state = |paused: bool| {
            let fields = doc! { "paused": paused, "stopped": stopped.clone(), "reason": "a <move>" };
            QueueState::of(&queue(fields), &Work::default()).render().unwrap()
        };
        let html = state(true);
        for part in ["by &#60;ann&#62;", "datetime=\"2026-11-20T08:24:27Z\"", "a &#60;move&#62;"] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!state(false).contains("ann") && !state(false).contains("move"), "{}", state(false));
    }

    #[test]
    fn rules_are_of_the_queue_or_of_all() {
        let rule = |scope, action| Rule {
            scope,
            action,
            reason: None,
            by: String::new(),
            at: DateTime::from_millis(0),
        };
        let of = |rules: Vec<Rule>| {
            intake(&rules.into_iter().collect(), &queue(doc! {})).map(|intake| (intake.rejects, intake.by))
        };
        let all = || rule(Scope::All, Action::Reject);
        let own = |action| rule(Scope::Queue(queue(doc! {}).id), action);
        assert_eq!(of(vec![]), None);
        assert_eq!(of(vec![all()]), Some((true, "the rule for all tasks")));
        assert_eq!(of(vec![all(), own(Action::Accept)]), None);
        assert_eq!(of(vec![own(Action::Pause)]), Some((false, "the rule for this queue")));
    }

    #[test]
    fn rates_are_told_as_people_say_them() {
        let rate = |n, per| Rate { n, per, burst: 1 };
        assert_eq!(rate_words(&rate(60, 3600)), "60 an hour");
        assert_eq!(rate_words(&rate(1500, 90)), "1,500 in 1 min");
        assert_eq!([rate_takes(&rate(60, 3600), 19), rate_takes(&rate(1, 1), u64::MAX)], [1140, u64::MAX]);
    }

    #[test]
    fn a_queue_needs_a_plugin_and_a_node_that_has_it() {
        let queue = |fields: Document| {
            let mut document = doc! { "_id": bson::oid::ObjectId::new() };
            document.extend(fields);
            bson::deserialize_from_document::<Queue>(document).unwrap()
        };
        let of = |plugin: &str, nodes: &[(NodeState, Document)]| {
            let nodes = nodes.iter().map(|(state, node)| (*state, node));
            Lacking::of(&queue(doc! { "plugin": plugin }), nodes)
        };
        let with = |state, plugins: &[&str]| (state, doc! { "plugins": plugins.to_vec() });
        assert_eq!(Lacking::of(&queue(doc! {}), std::iter::empty()), Some(Lacking::Plugin));
        assert!(matches!(of("no; name", &[]), Some(Lacking::UsablePlugin(_))));
        assert_eq!(of("P", &[]), Some(Lacking::Node));
        assert_eq!(of("P", &[with(NodeState::Draining, &["P"])]), Some(Lacking::Node));
        assert_eq!(Lacking::Node.word(), "no node takes tasks", "one that drains is alive");
        let other = of("P", &[with(NodeState::Alive, &["Q"])]);
        assert_eq!(other, Some(Lacking::NodeWith("P".parse().unwrap())));
        assert_eq!(of("P", &[with(NodeState::Alive, &["Q"]), with(NodeState::Alive, &["P"])]), None);
        assert_eq!(of("P", &[(NodeState::Alive, doc! {})]), None, "what it has is not known");
    }

    #[test]
    fn a_queue_may_need_a_version() {
        let document = doc! { "_id": bson::oid::ObjectId::new(), "plugin": "P", "version": "2" };
        let queue: Queue = bson::deserialize_from_document(document).unwrap();
        let node = |versions: &[&str]| doc! { "plugins": ["P"], "plugin_versions": versions.to_vec() };
        let of = |nodes: &[Document]| Lacking::of(&queue, nodes.iter().map(|node| (NodeState::Alive, node)));
        let lacking = of(&[node(&["P@1"]), doc! { "plugins": ["P"] }]).unwrap();
        assert_eq!(lacking.word(), "no node has its version");
        assert!(matches!(lacking, Lacking::NodeWith(plugin) if plugin.as_str() == "P@2"));
        assert_eq!(of(&[node(&["P@1"]), node(&["P@1", "P@2"])]), None);
    }

    #[test]
    fn a_tally_leads_to_what_it_counts() {
        let queue = QueueId(ObjectId::from_bytes([1; 12]));
        let waiting = Tally::new(vec![-2, -7], Amount::Exactly(1_234));
        let link = waiting.link(queue);
        assert_eq!(link, Some("/tasks?queue=010101010101010101010101&status=-2&status=-7".into()));
        assert_eq!((waiting.words(), waiting.is_none()), ("1,234".into(), false));
        assert_eq!(Tally::default().link(queue), None, "nobody knows which they are");
        assert_eq!(Tally::new((0..99).collect(), Amount::Exactly(1)).link(queue), None);
        assert_eq!(Tally::default().shown().to_string(), "<span class=\"zero\">0</span>");
        assert_eq!(Tally::new(vec![2], Amount::MoreThan(1_000)).shown().to_string(), "1,000+");
    }

    #[test]
    fn what_is_not_counted_to_the_last_is_said_so() {
        let of = |amount| Tally::new(vec![1], amount);
        let sum = Tally::sum([of(Amount::Exactly(5)), of(Amount::MoreThan(1_000))].iter());
        assert_eq!((sum.words(), sum.least()), ("1,005+".into(), 1_005));
        assert_eq!(Tally::sum(std::iter::empty()), Tally::default());
        assert_eq!(beyond(Amount::MoreThan(10), Some(7)), Amount::Exactly(10), "counters may be late");
        assert_eq!(beyond(Amount::MoreThan(10), None), Amount::MoreThan(10));
        assert_eq!(beyond(Amount::Exactly(3), Some(7)), Amount::Exactly(3));
    }
}
