//! What may be started, besides the limits of what runs: the rates of queues, which all DENs share, and how fast this node
//! may take on work.
//!
//! What a rate allows is asked of the database before tasks are claimed, and only as much is claimed. So many tasks are
//! asked for as wait, and what was not needed is given back.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use disbatch_core::config::Config;
use disbatch_core::model::{Queue, QueueId, TaskId};
use disbatch_core::rate::{Granted, Rate};
use disbatch_core::store::StoreError;
use disbatch_core::task::Claim;

use crate::node::Node;

/// What the limit counts for.
const SECOND: Duration = Duration::from_secs(1);

/// Starts within the last second, and how many there may be. Pure: times and numbers in, numbers and times out.
///
/// What was started within the last second is remembered, so no second has more than that, wherever it begins.
#[derive(Debug, Clone, Default)]
struct Ramp {
    /// `None`: as many as there are.
    limit: Option<u64>,
    /// When how many were started, in order.
    started: Vec<(Instant, u64)>,
}

impl Ramp {
    fn new(limit: Option<u64>) -> Self {
        Self { limit, started: Vec::new() }
    }

    /// How many may be started at `now`.
    fn room(&self, now: Instant) -> u64 {
        let Some(limit) = self.limit else { return u64::MAX };
        let lately = self.started.iter().filter(|(at, _)| *at + SECOND > now);
        limit.saturating_sub(lately.map(|(_, tasks)| tasks).sum())
    }

    fn began(&mut self, tasks: u64, now: Instant) {
        if self.limit.is_some() && tasks > 0 {
            self.started.retain(|(at, _)| *at + SECOND > now);
            self.started.push((now, tasks));
        }
    }

    /// When the next may be started. `None`: now.
    fn next(&self, now: Instant) -> Option<Instant> {
        let oldest = self.started.iter().find(|(at, _)| *at + SECOND > now)?;
        (self.room(now) == 0).then_some(oldest.0 + SECOND)
    }

    /// Whether nothing of it matters any more.
    fn is_over(&self, now: Instant) -> bool {
        self.started.last().is_none_or(|(at, _)| *at + SECOND <= now)
    }
}

/// The shortest time after which a rate is asked again.
const LEAST: Duration = Duration::from_millis(10);

/// What has been started lately, and what may be.
#[derive(Debug, Default)]
pub struct Starts {
    node: Ramp,
    /// For each queue.
    limit: Option<u64>,
    queues: HashMap<QueueId, Ramp>,
    /// Queues whose rate allows nothing before a time.
    resting: HashMap<QueueId, Instant>,
    /// When the rate of a group of a queue allows something again.
    coming: HashMap<QueueId, Instant>,
    /// By what the claims of this pass were granted.
    grants: HashMap<TaskId, Granted>,
    /// The same of the groups of their queues.
    by_groups: HashMap<TaskId, Granted>,
}

impl Starts {
    pub fn new(config: &Config) -> Self {
        let node = Ramp::new(config.node_increase);
        Self { node, limit: config.queue_increase, ..Self::default() }
    }

    /// Whether neither the node nor a queue of it may only start so many tasks at a time.
    pub fn are_unlimited(&self) -> bool {
        self.limit.is_none() && self.node.limit.is_none()
    }

    /// How many tasks this node may start at `now`.
    pub fn room(&self, now: Instant) -> u64 {
        self.node.room(now)
    }

    /// How many of `queue`, as far as it is known.
    pub fn room_of(&self, queue: QueueId, now: Instant) -> u64 {
        if self.resting.get(&queue).is_some_and(|until| *until > now) {
            return 0;
        }
        match self.queues.get(&queue) {
            Some(ramp) => ramp.room(now),
            None => self.limit.unwrap_or(u64::MAX),
        }
    }

    /// Nothing of `queue` may be started before `until`.
    fn rests(&mut self, queue: QueueId, until: Instant) {
        self.resting.insert(queue, until);
    }

    /// So long after `now` groups of `queue` have tasks that may not start yet. `None`: there are none.
    pub fn comes(&mut self, queue: QueueId, next: Option<Duration>, now: Instant) {
        match next {
            Some(next) => self.coming.insert(queue, after(now, next)),
            None => self.coming.remove(&queue),
        };
    }

    /// Queues for whose groups the time has come. Each is told once.
    fn due(&mut self, now: Instant) -> Vec<QueueId> {
        let due = self.coming.iter().filter(|(_, at)| **at <= now).map(|(queue, _)| *queue).collect();
        self.coming.retain(|_, at| *at > now);
        due
    }

    /// By what the rates of groups have granted claims.
    pub fn by_groups(&mut self, grants: HashMap<TaskId, Granted>) {
        self.by_groups.extend(grants);
    }

    /// What a claim that came to nothing was granted.
    fn take_back(&mut self, task: TaskId) -> Vec<Granted> {
        [self.grants.remove(&task), self.by_groups.remove(&task)].into_iter().flatten().collect()
    }

    fn began(&mut self, queue: QueueId, tasks: usize, now: Instant) {
        let tasks = u64::try_from(tasks).unwrap_or(u64::MAX);
        self.node.began(tasks, now);
        if let Some(limit) = self.limit {
            self.queues.entry(queue).or_insert_with(|| Ramp::new(Some(limit))).began(tasks, now);
        }
    }

    /// When something may be started that may not be now.
    pub fn next(&mut self, now: Instant) -> Option<Instant> {
        self.resting.retain(|_, until| *until > now);
        self.queues.retain(|_, ramp| !ramp.is_over(now));
        let of_queues = self.queues.values().filter_map(|ramp| ramp.next(now)).min();
        let of_rates = self.resting.values().chain(self.coming.values()).min().copied();
        [self.node.next(now), of_queues, of_rates].into_iter().flatten().min()
    }
}

/// So long after `now`, and not sooner than it makes sense to ask again.
fn after(now: Instant, next: Duration) -> Instant {
    now + next.max(LEAST)
}

impl Node {
    /// A new pass of claims begins.
    pub(crate) fn forget_grants(&mut self) {
        self.capacity.starts.grants.clear();
        self.capacity.starts.by_groups.clear();
    }

    /// Looks again at queues with groups whose time has come. Returns whether there are any.
    pub(crate) fn revive_queues(&mut self, now: Instant) -> bool {
        let due = self.capacity.starts.due(now);
        for queue in &due {
            self.dry.remove(queue);
        }
        !due.is_empty()
    }

    /// Sees to it that the node wakes when something may be started that may not be now, or a round is to go on.
    pub(crate) fn plan_starts(&mut self) {
        let now = Instant::now();
        let goes_on = std::mem::take(&mut self.round_goes_on);
        let next = match self.revive_queues(now) || goes_on {
            true => Some(now),
            false => {
                [self.capacity.starts.next(now), self.capacity.sharing.next(now)].into_iter().flatten().min()
            }
        };
        self.pace.starts_at(next);
    }

    /// What the rate of `queue` allows of `wanted` starts. `None`: it has no rate.
    pub(crate) async fn granted(
        &mut self,
        queue: &Queue,
        wanted: usize,
    ) -> Result<Option<Granted>, StoreError> {
        if Rate::of_queue(queue).is_none() {
            return Ok(None);
        }
        // Starts that are not needed could be used by others.
        let waiting = self.store.claimable_tasks(queue, wanted).await?;
        if waiting == 0 {
            self.dry.insert(queue.id);
        }
        self.store.take_starts(queue, None, waiting).await.map(Some)
    }

    /// Notes what was claimed of a queue, and gives back what was granted beyond that. Returns whether more may be started
    /// now.
    pub(crate) async fn noted(&mut self, queue: QueueId, claims: &[Claim], granted: Option<Granted>) -> bool {
        let now = Instant::now();
        self.capacity.starts.began(queue, claims.len(), now);
        let Some(granted) = granted else { return true };
        let used = u64::try_from(claims.len()).unwrap_or(u64::MAX);
        let unused = granted.starts.saturating_sub(used);
        self.give_back_starts(&granted, unused).await;
        let next = granted.next.filter(|_| unused == 0);
        if let Some(next) = next {
            self.capacity.starts.rests(queue, after(now, next));
        }
        self.capacity.starts.grants.extend(claims.iter().map(|claim| (claim.task, granted.clone())));
        next.is_none()
    }

    /// Gives back the starts of a claim that came to nothing: that of its queue, and that of its group.
    pub(crate) async fn not_started(&mut self, task: TaskId) {
        for granted in self.capacity.starts.take_back(task) {
            self.give_back_starts(&granted, 1).await;
        }
    }

    async fn give_back_starts(&self, granted: &Granted, unused: u64) {
        if let Err(error) = self.store.return_starts(granted, unused).await {
            tracing::debug!(%error, unused, "cannot give starts back: they count as used");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_a_limit_all_may_start() {
        let now = Instant::now();
        let mut ramp = Ramp::new(None);
        ramp.began(1_000_000, now);
        assert_eq!((ramp.room(now), ramp.next(now)), (u64::MAX, None));
        assert!(ramp.is_over(now));
    }

    #[test]
    fn room_comes_back_a_second_after_it_was_used() {
        let now = Instant::now();
        let at = |millis: u64| now + Duration::from_millis(millis);
        let mut ramp = Ramp::new(Some(5));
        ramp.began(3, at(0));
        ramp.began(2, at(400));
        assert_eq!((ramp.room(at(400)), ramp.next(at(400))), (0, Some(at(1_000))));
        assert_eq!((ramp.room(at(999)), ramp.room(at(1_000)), ramp.next(at(1_000))), (0, 3, None));
        ramp.began(3, at(1_000));
        assert_eq!((ramp.room(at(1_000)), ramp.next(at(1_000))), (0, Some(at(1_400))));
        assert_eq!(ramp.room(at(1_400)), 2);
        assert!(!ramp.is_over(at(1_999)) && ramp.is_over(at(2_000)));
    }

    proptest! {
        #[test]
        fn no_second_has_more_than_the_limit_and_each_that_wants_gets_it(
            limit in 1_u64..20,
            wishes in prop::collection::vec((0_u64..700, 0_u64..30), 1..60),
        ) {
            let begin = Instant::now();
            let (mut ramp, mut millis) = (Ramp::new(Some(limit)), 0);
            let mut started: Vec<(u64, u64)> = Vec::new();
            for (after, wanted) in wishes {
                millis += after;
                let now = begin + Duration::from_millis(millis);
                let within: u64 =
                    started.iter().filter(|(at, _)| at + 1_000 > millis).map(|(_, tasks)| tasks).sum();
                let room = ramp.room(now);
                prop_assert_eq!(room, limit - within);
                let tasks = wanted.min(room);
                ramp.began(tasks, now);
                started.push((millis, tasks));
                if let Some(next) = ramp.next(now) {
                    prop_assert_eq!(ramp.room(now), 0);
                    prop_assert!(next > now && ramp.room(next) > 0);
                    prop_assert_eq!(ramp.room(next - Duration::from_millis(1)), 0);
                }
            }
            for (from, _) in &started {
                let second = started.iter().filter(|(at, _)| (*from..from + 1_000).contains(at));
                prop_assert!(second.map(|(_, tasks)| tasks).sum::<u64>() <= limit);
            }
        }
    }

    fn starts(further: &str) -> Starts {
        let text = format!(r#"{{"mongohost":"h","database":"d"{further}}}"#);
        Starts::new(&Config::parse(&text, Path::new("/c.json")).unwrap())
    }

    fn queue(number: u8) -> QueueId {
        QueueId([number; 12].into())
    }

    #[test]
    fn without_limits_nothing_waits() {
        let now = Instant::now();
        let mut starts = starts("");
        starts.began(queue(1), 1_000, now);
        assert_eq!((starts.room(now), starts.room_of(queue(1), now)), (u64::MAX, u64::MAX));
        assert_eq!(starts.next(now), None);
    }

    #[test]
    fn a_node_and_its_queues_have_limits_of_their_own() {
        let now = Instant::now();
        let later = now + Duration::from_millis(300);
        let mut starts = starts(r#","node_increase":5,"queue_increase":3"#);
        starts.began(queue(1), 3, now);
        assert_eq!((starts.room(now), starts.room_of(queue(1), now)), (2, 0));
        assert_eq!(starts.room_of(queue(2), now), 3);
        assert_eq!(starts.next(now), Some(now + Duration::from_secs(1)));
        starts.began(queue(2), 2, later);
        assert_eq!((starts.room(later), starts.room_of(queue(2), later)), (0, 1));
        let second = now + Duration::from_secs(1);
        assert_eq!(starts.next(later), Some(second));
        assert_eq!((starts.room(second), starts.room_of(queue(1), second)), (3, 3));
        assert_eq!(starts.next(second), None);
    }

    #[test]
    fn a_queue_rests_until_its_rate_allows_the_next_start() {
        let now = Instant::now();
        let until = now + Duration::from_millis(700);
        let mut starts = starts("");
        starts.rests(queue(1), until);
        starts.rests(queue(2), until + Duration::from_secs(5));
        assert_eq!((starts.room_of(queue(1), now), starts.room_of(queue(3), now)), (0, u64::MAX));
        assert_eq!(starts.next(now), Some(until));
        assert_eq!(starts.room_of(queue(1), until), u64::MAX);
        assert_eq!(starts.next(until), Some(until + Duration::from_secs(5)));
    }

    #[test]
    fn a_claim_that_comes_to_nothing_gives_back_what_its_queue_and_its_group_granted() {
        let (both, one) = (TaskId([1; 12].into()), TaskId([2; 12].into()));
        let mut starts = starts("");
        starts.grants.insert(both, Granted::default());
        starts.by_groups([both, one].map(|task| (task, Granted::default())).into());
        assert_eq!((starts.take_back(both).len(), starts.take_back(one).len()), (2, 1));
        assert!(starts.take_back(both).is_empty(), "each is given back once");
    }

    #[test]
    fn a_queue_is_looked_at_again_when_the_time_of_its_groups_comes() {
        let now = Instant::now();
        let soon = now + Duration::from_millis(200);
        let mut starts = starts("");
        starts.comes(queue(1), Some(Duration::from_millis(200)), now);
        starts.comes(queue(2), Some(Duration::ZERO), now);
        starts.comes(queue(2), None, now);
        assert_eq!(starts.room_of(queue(1), now), u64::MAX, "other groups may start");
        assert_eq!((starts.next(now), starts.due(now)), (Some(soon), Vec::new()));
        assert_eq!((starts.due(soon), starts.due(soon)), (vec![queue(1)], Vec::new()));
        assert_eq!(starts.next(soon), None);
    }
}
