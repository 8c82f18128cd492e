//! Groups of queues on the overview: by what their names begin with, or by tenant.

use std::collections::BTreeMap;

use askama::Template;
use askama::filters::HtmlSafe;
use bson::DateTime;
use disbatch_core::series::Ended;

use super::facts::QueueFacts;
use super::throughput::{Span, spark, sum};
use crate::ui::parts::{Spark, When, when};
use crate::ui::tally::Tally;

/// What ends the first word of a queue's name.
const SEPARATORS: [char; 6] = ['-', '_', '.', ':', '/', ' '];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// By the first word of their names. Those whose word no other has are together, at the end.
    Prefix,
    /// Those that have none are together, at the end.
    Tenant,
}

impl Grouping {
    pub const ALL: [Self; 2] = [Self::Prefix, Self::Tenant];

    /// As addresses and people have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefix => "prefix",
            Self::Tenant => "tenant",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|grouping| grouping.name() == name)
    }

    /// What the group of those is called that are in no other.
    const fn rest(self) -> &'static str {
        match self {
            Self::Prefix => "Others",
            Self::Tenant => "No tenant",
        }
    }

    fn key(self, queue: &QueueFacts) -> Option<String> {
        let name = queue.queue.display_name();
        match self {
            Self::Prefix => name.split(SEPARATORS).find(|word| !word.is_empty()).map(str::to_owned),
            Self::Tenant => queue.queue.tenant().map(str::to_owned),
        }
    }
}

/// A group, and what all of its queues have: also a row of their table.
#[derive(Debug, Template)]
#[template(path = "overview/group.html")]
pub struct Group {
    pub name: String,
    /// Whether it is of those that are in no other.
    is_rest: bool,
    queues: usize,
    /// How many of them are idle.
    idle: usize,
    threads: u64,
    waiting: Tally,
    running: u64,
    finished: Tally,
    failed: Tally,
    hour: Vec<Ended>,
    oldest: Option<DateTime>,
}

impl HtmlSafe for Group {}

impl Group {
    fn of((name, is_rest): (String, bool), queues: &[&QueueFacts]) -> Self {
        let tally = |of: fn(&QueueFacts) -> &Tally| Tally::sum(queues.iter().map(|queue| of(queue)));
        let total =
            |of: fn(&QueueFacts) -> u64| queues.iter().map(|queue| of(queue)).fold(0, u64::saturating_add);
        let steps = queues.iter().map(|queue| queue.hour.len()).max().unwrap_or(0);
        let step = |at: usize| sum(queues.iter().filter_map(|queue| queue.hour.get(at)));
        Self {
            name,
            is_rest,
            queues: queues.len(),
            idle: queues.iter().filter(|queue| queue.is_idle()).count(),
            threads: total(|queue| queue.queue.thread_limit()),
            waiting: tally(|queue| &queue.waiting),
            running: total(|queue| queue.running),
            finished: tally(|queue| &queue.finished),
            failed: tally(|queue| &queue.failed),
            hour: (0..steps).map(step).collect(),
            oldest: queues.iter().filter_map(|queue| queue.waits_since()).min(),
        }
    }

    /// The id of its element.
    pub fn key(&self) -> String {
        if self.is_rest { "group".to_owned() } else { format!("group-{}", self.name) }
    }

    fn since(&self) -> When {
        when(&self.oldest)
    }

    fn spark(&self) -> Spark {
        spark(&self.hour, Span::Hour.words())
    }
}

/// All queues in their groups, in order of these.
pub fn grouped_by(grouping: Grouping, queues: &[QueueFacts]) -> Vec<(Group, Vec<&QueueFacts>)> {
    let mut groups = BTreeMap::<String, Vec<&QueueFacts>>::new();
    let mut rest = Vec::new();
    for queue in queues {
        match grouping.key(queue) {
            Some(key) => groups.entry(key).or_default().push(queue),
            None => rest.push(queue),
        }
    }
    if grouping == Grouping::Prefix {
        let (alone, several): (BTreeMap<_, _>, _) =
            groups.into_iter().partition(|(_, queues)| queues.len() == 1);
        rest.extend(alone.into_values().flatten());
        groups = several;
    }
    let rest = (!rest.is_empty()).then(|| ((grouping.rest().to_owned(), true), rest));
    let all = groups.into_iter().map(|(name, queues)| ((name, false), queues)).chain(rest);
    all.map(|(name, queues)| (Group::of(name, &queues), queues)).collect()
}
