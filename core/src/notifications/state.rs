//! What a subscription knows of what has happened, and what of that is to be told. Pure.

use bson::oid::ObjectId;
use bson::{DateTime, Document, Timestamp};
use serde::{Deserialize, Serialize};

use super::conditions::{Condition, Held};
use super::{Kind, Settings};
use crate::model::Status;
use crate::store::millis;

/// A message tells of so many things at most, besides how many others there are.
const MOST_GROUPS: usize = 50;

/// Of each it names so many tasks at most.
const MOST_TASKS: usize = 5;

/// So many queues and schedules are known to fail, at most.
const MOST_FAILING: usize = 10_000;

/// A place in the server's log of changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Position {
    pub time: Timestamp,
    /// The token of a change. They are in the order of the changes.
    pub token: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<ObjectId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ObjectId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub kind: Kind,
    pub about: About,
    pub task: Option<ObjectId>,
    pub at: DateTime,
    /// In words.
    pub detail: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct End {
    pub about: About,
    pub tenant: Option<String>,
    pub tags: Vec<String>,
    pub task: ObjectId,
    pub at: DateTime,
    /// Deferred, if its runner has died and it is tried again.
    pub status: Status,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    pub kind: Kind,
    #[serde(flatten)]
    pub about: About,
    pub count: i64,
    pub first: DateTime,
    pub last: DateTime,
    /// Some of the tasks.
    pub tasks: Vec<ObjectId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A schedule or queue whose last task has failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failing {
    #[serde(flatten)]
    about: About,
    /// How many have in a row.
    count: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outbox {
    /// The task that delivers it.
    pub task: ObjectId,
    pub message: Document,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// What happened up to here was seen. `None`: up to the time since which the subscription is as it is.
    pub position: Option<Position>,
    failing: Vec<Failing>,
    /// What lasts too long, as far as that was told.
    holding: Vec<Held>,
    /// What is to be told.
    pub pending: Vec<Group>,
    /// How many events more.
    pub more: i64,
    /// Since when there is something to be told.
    pub waits: Option<DateTime>,
    /// When the last message was made.
    pub sent: Option<DateTime>,
    /// How many there were.
    pub number: i64,
    pub outbox: Option<Outbox>,
    /// The task that has delivered the last one.
    pub last: Option<ObjectId>,
    /// Why messages are not delivered, if they are not.
    pub trouble: Option<String>,
}

impl State {
    /// Whether a change with this token was seen.
    pub fn has_seen(&self, token: &str) -> bool {
        self.position.as_ref().is_some_and(|position| token <= position.token.as_str())
    }

    pub fn begin_at(&mut self, time: Timestamp) {
        self.position = Some(Position { time, token: String::new() });
    }

    /// Whether it is to be told as `other` does, wherever in the log they are.
    pub fn tells_as(&self, other: &Self) -> bool {
        Self { position: other.position.clone(), ..self.clone() } == *other
    }

    /// There is a task that delivers the message.
    pub fn delivered(&mut self, task: ObjectId) {
        self.outbox = None;
        self.last = Some(task);
    }

    /// Whether it wants to hear of a task that has succeeded.
    pub fn awaits_success(&self) -> bool {
        !self.failing.is_empty()
    }

    /// A task has come to something.
    pub fn ended(&mut self, settings: &Settings, end: &End) {
        let End { about, tenant, tags, task, at, status } = end;
        if !settings.covers(about, tenant.as_deref(), tags) {
            return;
        }
        let event = |kind| Event { kind, about: about.clone(), task: Some(*task), at: *at, detail: None };
        if matches!(status, Status::Orphaned | Status::Deferred) && settings.tells(Kind::Lost) {
            self.note(event(Kind::Lost));
        }
        match status {
            Status::Deferred => return,
            Status::Succeeded => {}
            // Also what plugins end with besides, and what took too long.
            _ if settings.tells(Kind::Failed) => self.note(event(Kind::Failed)),
            _ => {}
        }
        if !settings.counts_failures() {
            return;
        }
        // A schedule has its own fortune, whatever else its queue does.
        let whose = match about.schedule {
            Some(_) => about.clone(),
            None => About { queue: about.queue, ..About::default() },
        };
        let known = self.failing.iter().position(|failing| failing.about == whose);
        if *status == Status::Succeeded {
            if let Some(known) = known {
                self.failing.swap_remove(known);
                if settings.tells(Kind::Recovered) {
                    self.note(event(Kind::Recovered));
                }
            }
            return;
        }
        let count = match known {
            Some(known) => {
                self.failing[known].count += 1;
                self.failing[known].count
            }
            None => {
                if self.failing.len() < MOST_FAILING {
                    self.failing.push(Failing { about: whose, count: 1 });
                }
                1
            }
        };
        if count == 1 && settings.tells(Kind::FirstFailure) {
            self.note(event(Kind::FirstFailure));
        }
        if settings.failures_in_row == Some(count) {
            self.note(Event { detail: Some(format!("{count} in a row")), ..event(Kind::FailuresInRow) });
        }
    }

    /// These last now, of those kinds that `looked_for` has. What was told already is not told again.
    pub fn hold(
        &mut self,
        (settings, since): (&Settings, DateTime),
        (now, looked_for): (&[Condition], &[Kind]),
        at: DateTime,
    ) {
        let now: Vec<&Condition> = now.iter().filter(|condition| condition.counts(settings, since)).collect();
        let (kept, over): (Vec<Held>, Vec<Held>) =
            std::mem::take(&mut self.holding).into_iter().partition(|held| {
                !looked_for.contains(&held.kind) || now.iter().any(|condition| condition.held.key == held.key)
            });
        self.holding = kept;
        for condition in now {
            if !self.holding.iter().any(|held| held.key == condition.held.key) {
                self.note(condition.event(at));
                self.holding.push(condition.held.clone());
            }
        }
        for held in over {
            // Of the others, tasks end one way or another, and nodes are removed.
            if held.kind == Kind::WaitsLong && settings.tells(Kind::Recovered) {
                self.note(Event { kind: Kind::Recovered, ..held.event(at) });
            }
        }
    }

    pub fn note(&mut self, event: Event) {
        let Event { kind, about, task, at, detail } = event;
        self.waits.get_or_insert(at);
        let found = self.pending.iter().position(|group| group.kind == kind && group.about == about);
        if found.is_none() && self.pending.len() >= MOST_GROUPS {
            self.more += 1;
            return;
        }
        let index = found.unwrap_or_else(|| {
            let group = Group { kind, about, count: 0, first: at, last: at, tasks: vec![], detail: None };
            self.pending.push(group);
            self.pending.len() - 1
        });
        let group = &mut self.pending[index];
        group.count += 1;
        group.first = group.first.min(at);
        group.last = group.last.max(at);
        group.detail = detail.or(group.detail.take());
        if let Some(task) = task.filter(|_| group.tasks.len() < MOST_TASKS) {
            group.tasks.push(task);
        }
    }

    /// Whether something was noted that is to be the next message.
    pub fn has_noted(&self) -> bool {
        self.outbox.is_none() && self.waits.is_some()
    }

    /// Whether it is time for that, by the server's clock. A time to come was that of a clock which was ahead.
    pub fn is_due(&self, settings: &Settings, now: DateTime) -> bool {
        let is_past = |since: DateTime, wait: std::time::Duration| {
            let passed = now.timestamp_millis().saturating_sub(since.timestamp_millis());
            passed < 0 || passed >= millis(wait)
        };
        self.outbox.is_none()
            && self.waits.is_some_and(|waits| is_past(waits, settings.delay()))
            && self.sent.is_none_or(|sent| is_past(sent, settings.every()))
    }

    /// Takes what was noted as the next message, which `message` makes of its task, the events, and how many events more.
    pub fn take(&mut self, now: DateTime, message: impl FnOnce(ObjectId, &[Group], i64) -> Document) {
        self.number += 1;
        let (task, pending) = (ObjectId::new(), std::mem::take(&mut self.pending));
        let mut message = message(task, &pending, std::mem::take(&mut self.more));
        message.insert("number", self.number);
        self.outbox = Some(Outbox { task, message });
        self.sent = Some(now);
        self.waits = None;
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::super::subscription::tests::settings;
    use super::*;

    fn at(seconds: i64) -> DateTime {
        DateTime::from_millis(seconds * 1000)
    }

    fn queue(number: u8) -> About {
        About { queue: Some(ObjectId::from_bytes([number; 12])), ..About::default() }
    }

    fn end(about: About, status: Status) -> End {
        End { about, tenant: None, tags: vec![], task: ObjectId::new(), at: at(1), status }
    }

    fn told(state: &State) -> Vec<(Kind, i64)> {
        state.pending.iter().map(|group| (group.kind, group.count)).collect()
    }

    #[test]
    fn ten_thousand_failures_are_one_group_with_a_count() {
        let (mut state, settings) = (State::default(), settings());
        for _ in 0..10_000 {
            state.ended(&settings, &end(queue(1), Status::Failed));
        }
        state.ended(&settings, &end(queue(1), Status::Succeeded));
        assert_eq!(told(&state), [(Kind::Failed, 10_000)]);
        assert_eq!(state.pending[0].tasks.len(), MOST_TASKS);
        for number in 2..=100 {
            state.ended(&settings, &end(queue(number), Status::Failed));
        }
        assert_eq!((state.pending.len(), state.more), (MOST_GROUPS, 50));
        assert!(bson::serialize_to_vec(&state).unwrap().len() < 20_000);
    }

    #[test]
    fn streaks_are_those_of_schedules_and_queues() {
        let settings = Settings {
            events: vec![Kind::FirstFailure, Kind::Recovered],
            failures_in_row: Some(3),
            ..settings()
        };
        let of_schedule = About { schedule: Some(ObjectId::new()), ..queue(1) };
        let mut state = State::default();
        for (about, status, expected) in [
            (queue(1), Status::Succeeded, None),
            (queue(1), Status::Failed, Some(Kind::FirstFailure)),
            (of_schedule.clone(), Status::Succeeded, None),
            (queue(2), Status::Succeeded, None),
            (queue(1), Status::Orphaned, None),
            (queue(1), Status::Deferred, None),
            (queue(1), Status::Failed, Some(Kind::FailuresInRow)),
            (queue(1), Status::Failed, None),
            (of_schedule.clone(), Status::Failed, Some(Kind::FirstFailure)),
            (queue(1), Status::Succeeded, Some(Kind::Recovered)),
            (queue(1), Status::Succeeded, None),
            (of_schedule, Status::Succeeded, Some(Kind::Recovered)),
        ] {
            state.pending.clear();
            state.ended(&settings, &end(about, status));
            assert_eq!(told(&state), expected.map(|kind| (kind, 1)).into_iter().collect::<Vec<_>>());
        }
        assert!(!state.awaits_success());
    }

    #[test]
    fn a_lost_runner_is_told_whether_its_task_is_tried_again_or_not() {
        let settings = Settings { events: vec![Kind::Lost], ..settings() };
        let mut state = State::default();
        state.ended(&settings, &end(queue(1), Status::Deferred));
        state.ended(&settings, &end(queue(1), Status::Orphaned));
        state.ended(&settings, &end(queue(1), Status::Failed));
        assert_eq!(told(&state), [(Kind::Lost, 2)]);
    }

    #[test]
    fn what_lasts_is_told_once_and_when_it_is_over() {
        let settings = Settings { events: vec![Kind::Recovered], waits_longer: Some(60.0), ..settings() };
        let waits = |number| Condition::new(Kind::WaitsLong, queue(number), format!("q{number}"));
        let dead = Condition::new(Kind::NodeDead, About::default(), "n1".to_owned());
        let looked = [Kind::WaitsLong, Kind::NodeDead];
        let mut state = State::default();
        for (now, looked, expected) in [
            (vec![waits(1), dead.clone()], &looked[..], vec![(Kind::WaitsLong, 1)]),
            (vec![waits(1)], &looked, vec![]),
            // Nobody has looked.
            (vec![], &looked[1..], vec![]),
            (vec![waits(2)], &looked, vec![(Kind::WaitsLong, 1), (Kind::Recovered, 1)]),
            (vec![], &looked, vec![(Kind::Recovered, 1)]),
            (vec![], &looked, vec![]),
        ] {
            state.pending.clear();
            state.hold((&settings, at(0)), (&now, looked), at(5));
            assert_eq!(told(&state), expected);
        }
    }

    #[test]
    fn a_message_waits_for_others_and_for_the_one_before() {
        let settings = settings();
        let mut state = State::default();
        assert!(!state.is_due(&settings, at(1_000)));
        state.ended(&settings, &end(queue(1), Status::Failed));
        assert!(!state.is_due(&settings, at(10)) && state.is_due(&settings, at(11)));
        let message = |_, groups: &[Group], more: i64| doc! { "first": groups[0].count, "more": more };
        state.take(at(11), message);
        let Outbox { message: first, .. } = state.outbox.clone().unwrap();
        assert_eq!(first, doc! { "first": 1_i64, "more": 0_i64, "number": 1_i64 });
        assert!(state.pending.is_empty() && state.waits.is_none());
        state.ended(&settings, &end(queue(1), Status::Failed));
        assert!(!state.is_due(&settings, at(1_000)), "one is to be delivered");
        state.outbox = None;
        assert!(!state.is_due(&settings, at(310)) && state.is_due(&settings, at(311)));
        state.sent = Some(at(100_000));
        assert!(state.is_due(&settings, at(311)), "by a clock that was a day ahead");
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let settings = Settings { failures_in_row: Some(3), ..settings() };
        let mut state = State::default();
        state.ended(
            &settings,
            &end(About { node: None, schedule: Some(ObjectId::new()), ..queue(1) }, Status::Failed),
        );
        let node = About { node: Some("a.b".to_owned()), ..About::default() };
        let dead = Condition::new(Kind::NodeDead, node, "n".to_owned());
        let of_nodes = Settings { events: vec![Kind::NodeDead], ..settings };
        state.hold((&of_nodes, at(0)), (&[], &[Kind::NodeDead]), at(1));
        state.hold((&of_nodes, at(0)), (&[dead], &[Kind::NodeDead]), at(1));
        state.position =
            Some(Position { time: Timestamp { time: 5, increment: 2 }, token: "82AB".to_owned() });
        let stored = bson::serialize_to_document(&state).unwrap();
        assert_eq!(bson::deserialize_from_document::<State>(stored).unwrap(), state);
        assert!(state.has_seen("82AB") && state.has_seen("82AA") && !state.has_seen("82AC"));
        assert!(!State::default().has_seen("00"));
    }
}
