//! Claims of a fair queue: turns are taken first, and then tasks of the groups whose turn it is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::oid::ObjectId;

use super::read::{Names, has_no_group};
use super::turns::{Listed, Pointer, Turn, Waiter, take};
use super::window::{Call, Choice, Head, Window};
use super::{NO_GROUP, Settings, Share};
use crate::clock::random;
use crate::model::{Queue, QueueId, TaskId};
use crate::rate::{Granted, Rate};
use crate::store::{Store, StoreError};
use crate::task::{Batch, ClaimOutcome, Claimant, MOST_ALONE, MOST_PASSES, Slot, Try};

/// How often turns are tried to be taken while others take some.
const TRIES: u32 = 8;

/// So many groups that wait are known at once.
const MOST_GROUPS: usize = 20_000;

struct At<'a> {
    queue: &'a Queue,
    settings: &'a Settings,
    call: Call,
}

impl Store {
    /// Claims tasks of a fair queue, one for each of `slots` at most. See [`Store::claim_tasks`].
    pub(crate) async fn claim_fairly(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        slots: &[Slot],
        window: &mut Window,
    ) -> Result<Batch, StoreError> {
        let settings = Settings::of(queue);
        let mut at = At { queue, settings: &settings, call: Call::default() };
        let mut batch = Batch::default();
        let mut slots = slots.to_vec();
        for _ in 0..MOST_PASSES {
            if slots.is_empty() {
                break;
            }
            self.refresh(&mut at, window, slots.len()).await?;
            let wanted = slots.len() as u64;
            let turns = match settings.share {
                Share::Turns => self.take_turns(&at, window, wanted).await?,
                Share::Use => self.share_out(&at, window, wanted).await?,
            };
            if turns.is_empty() {
                batch.exhausted = window.is_exhausted(&at.call);
                batch.next = window.next_start(Instant::now());
                break;
            }
            let (turns, grants) = self.within_rates(queue, window, turns).await?;
            let wants = window.wants(&settings, &turns);
            let found = self.tasks_of_groups(queue.id, &wants, settings.scheme.as_ref()).await?;
            for (want, (tasks, whole)) in wants.iter().zip(found) {
                window.fill(&want.group, tasks, whole);
            }
            let choices = window.choose(&settings, turns);
            let tried = slots.drain(..choices.len().min(slots.len()));
            let try_one = |(choice, slot): (&Choice, Slot)| Try {
                task: choice.task.task,
                slot,
                group_slot: choice.place,
            };
            let tries: Vec<Try> = choices.iter().zip(tried).map(try_one).collect();
            let outcome = self.try_claims(queue, claimant, (tries, MOST_ALONE)).await;
            // Of a claim without an answer nobody knows whether it was made.
            let outcome = outcome.inspect_err(|_| self.doubt_counters())?;
            slots.extend(settle(window, &settings, &choices, &outcome));
            batch.grants.extend(self.give_back_grants(grants, &choices, &outcome).await);
            batch.taken.extend(outcome.refused.iter().map(|refused| refused.slot.number));
            batch.claims.extend(outcome.claims);
        }
        Ok(batch)
    }

    /// Reads what has to be read again: who waits, tasks without a group, and who has which places.
    async fn refresh(&self, at: &mut At<'_>, window: &mut Window, wanted: usize) -> Result<(), StoreError> {
        if window.is_old(Instant::now()) {
            self.read_groups(at, window, None).await?;
        }
        let others = window.listed.groups.iter().any(|group| &**group != NO_GROUP);
        at.call.plain.want(wanted, others);
        while let Some(reading) = window.plain.reading(&mut at.call.plain, Instant::now()) {
            let began = Instant::now();
            let (tasks, last, found) = self.plain_tasks(at.queue, reading, has_no_group).await?;
            let times = (began, Instant::now());
            window.plain.read(&mut at.call.plain, (reading.limit, last, tasks), found, times);
        }
        window.list_plain();
        if at.settings.group_threads.is_some() {
            let running = self.running_by_group(at.queue.id).await?;
            window.places = running.into_iter().map(|(group, running)| (group, running.places)).collect();
        }
        Ok(())
    }

    /// Reads who waits: all groups, or if they are too many, those that come next. `pointer`: where the rotation stands, if
    /// that is known already.
    async fn read_groups(
        &self,
        at: &mut At<'_>,
        window: &mut Window,
        pointer: Option<&Pointer>,
    ) -> Result<(), StoreError> {
        let (queue, share) = (at.queue.id, at.settings.share);
        let pointer = match (share, pointer) {
            (Share::Use, _) => None,
            (Share::Turns, Some(pointer)) => Some(pointer.clone()),
            (Share::Turns, None) => Some(self.where_it_stands(queue, window).await?),
        };
        let began = Instant::now();
        let mut heads = Vec::new();
        if window.listed.is_whole() {
            heads = self.waiting_groups(queue, Names::default(), MOST_GROUPS).await?;
        }
        let names =
            |heads: &[Head]| -> Vec<Arc<str>> { heads.iter().map(|head| Arc::clone(&head.group)).collect() };
        let mut listed = Listed::whole(names(&heads));
        if !window.listed.is_whole() || heads.len() >= MOST_GROUPS {
            // Too many for one look: from where the rotation stands, or where the last look has ended, as far as it goes.
            let from: Arc<str> = match &pointer {
                Some(pointer) => Arc::from(pointer.last.as_str()),
                None => window.listed.end().cloned().unwrap_or_else(|| Arc::from(NO_GROUP)),
            };
            heads =
                self.waiting_groups(queue, Names { from: Some(&from), before: None }, MOST_GROUPS).await?;
            let left = MOST_GROUPS - heads.len().min(MOST_GROUPS);
            let mut is_whole = false;
            if left > 0 {
                let before = Names { from: None, before: Some(&from) };
                let first = self.waiting_groups(queue, before, left).await?;
                is_whole = first.len() < left;
                heads.extend(first);
            }
            listed = match heads.last().map(|last| Arc::clone(&last.group)) {
                Some(last) if !is_whole => Listed::part(names(&heads), last, from),
                _ => Listed::whole(names(&heads)),
            };
        }
        window.list(listed, heads, (at.settings, pointer.as_ref()), (began, Instant::now()));
        window.list_plain();
        window.pointer = pointer;
        at.call.read = true;
        Ok(())
    }

    /// Takes the next turns of the rotation. Nobody else gets them.
    async fn take_turns(
        &self,
        at: &At<'_>,
        window: &mut Window,
        wanted: u64,
    ) -> Result<Vec<Turn>, StoreError> {
        let mut turns = window.take_owed(wanted, Instant::now());
        let wanted = wanted.saturating_sub(turns.len() as u64);
        let mut tries = 0;
        // From where on was read who waits, if they are too many to be known at once.
        let mut read: Option<Pointer> = None;
        while wanted > 0 && tries < TRIES {
            tries += 1;
            let pointer = match window.pointer.take() {
                Some(pointer) => pointer,
                None => self.where_it_stands(at.queue.id, window).await?,
            };
            let now = Instant::now();
            let of = |group: &str| -> Waiter { window.waiter(group, at.settings, now) };
            let taken = take(read.as_ref().unwrap_or(&pointer), &window.listed, of, wanted);
            if taken.turns.is_empty() {
                window.pointer = Some(pointer.clone());
                let from = match &read {
                    None => Some(pointer.clone()),
                    // None of those that were read has room.
                    Some(from) => window.listed.beyond(from, &pointer),
                };
                if let Some(from) = from.as_ref().filter(|_| taken.unknown) {
                    let mut call = At { queue: at.queue, settings: at.settings, call: Call::default() };
                    self.read_groups(&mut call, window, Some(from)).await?;
                }
                let is_over = !taken.unknown || from.is_none();
                // Only what was read is from elsewhere.
                (window.pointer, read) = (Some(pointer), from);
                if is_over {
                    break;
                }
            } else if self.turn_on(at.queue.id, window, (&pointer, &taken.pointer)).await? {
                window.pointer = Some(taken.pointer);
                turns.extend(taken.turns);
                break;
            } else {
                // Where it stands now has to be looked at, and who waits from there.
                read = None;
                if tries > 2 {
                    // Many take turns: not all at the same moment again.
                    tokio::time::sleep(Duration::from_micros(random() % (500 << tries))).await;
                }
            }
        }
        Ok(turns)
    }

    async fn where_it_stands(&self, queue: QueueId, window: &Window) -> Result<Pointer, StoreError> {
        match (&window.pointer, window.alone) {
            (Some(pointer), true) => Ok(pointer.clone()),
            _ => self.rotation(queue).await,
        }
    }

    /// Whether the rotation was moved on. Where this user may not, this DEN has a rotation of its own.
    async fn turn_on(
        &self,
        queue: QueueId,
        window: &mut Window,
        (from, to): (&Pointer, &Pointer),
    ) -> Result<bool, StoreError> {
        if window.alone {
            return Ok(true);
        }
        match self.move_rotation(queue, from, to).await {
            Err(error) if error.is_forbidden() => {
                tracing::warn!(
                    %error, %queue,
                    "groups take turns on this node alone; `disbatch create-users` gives the right to share them"
                );
                window.alone = true;
                Ok(true)
            }
            moved => moved,
        }
    }

    /// Those who have used the least, each for one task.
    async fn share_out(
        &self,
        at: &At<'_>,
        window: &mut Window,
        wanted: u64,
    ) -> Result<Vec<Turn>, StoreError> {
        if window.shares.is_none() {
            let groups: Vec<Arc<str>> = window.listed.groups.iter().cloned().collect();
            window.shares = Some(self.shares(at.queue.id, &groups, at.settings).await?);
        }
        let Some((mut shares, charge)) = window.shares.take() else { return Ok(Vec::new()) };
        let mut given: HashMap<Arc<str>, u64> = HashMap::new();
        let mut groups = Vec::new();
        let now = Instant::now();
        for _ in 0..wanted {
            let may = |group: &str| {
                let had = given.get(group).copied().unwrap_or(0);
                window.listed.groups.contains(group) && window.waiter(group, at.settings, now).room > had
            };
            let Some(group) = shares.next(charge, may) else { break };
            *given.entry(Arc::clone(&group)).or_default() += 1;
            groups.push(group);
        }
        window.shares = Some((shares, charge));
        let first = match at.settings.scheme {
            Some(_) if !groups.is_empty() => self.rounds(at.queue.id, groups.len()).await?,
            _ => 0,
        };
        let turn = |(round, group)| Turn { group, round, had: 0, tasks: 1 };
        Ok((first..).zip(groups).map(turn).collect())
    }

    /// The first of so many rounds. Where this user may not take rounds for itself, one by chance.
    pub(super) async fn rounds(&self, queue: QueueId, rounds: usize) -> Result<i64, StoreError> {
        match self.take_rounds(queue, rounds).await {
            Err(error) if error.is_forbidden() => Ok(i64::try_from(random() >> 32).unwrap_or(0)),
            first => first,
        }
    }

    /// Leaves of `turns` what the rates of groups allow, and notes how long others have to wait.
    async fn within_rates(
        &self,
        queue: &Queue,
        window: &mut Window,
        turns: Vec<Turn>,
    ) -> Result<(Vec<Turn>, HashMap<Arc<str>, Granted>), StoreError> {
        let mut grants = HashMap::new();
        if Rate::of_groups(queue).is_none() {
            return Ok((turns, grants));
        }
        let mut wanted: HashMap<Arc<str>, u64> = HashMap::new();
        for turn in &turns {
            *wanted.entry(Arc::clone(&turn.group)).or_default() += u64::from(turn.tasks);
        }
        let mut left: HashMap<Arc<str>, u64> = HashMap::new();
        for (group, wanted) in wanted {
            let granted = self.take_starts(queue, Some(&*group), wanted).await?;
            if let Some(next) = granted.next {
                window.rest(Arc::clone(&group), Instant::now() + next);
            }
            left.insert(Arc::clone(&group), granted.starts);
            grants.insert(group, granted);
        }
        let within = |mut turn: Turn| {
            let left = left.get_mut(&turn.group)?;
            turn.tasks = u32::try_from(*left).unwrap_or(u32::MAX).min(turn.tasks);
            *left -= u64::from(turn.tasks);
            (turn.tasks > 0).then_some(turn)
        };
        Ok((turns.into_iter().filter_map(within).collect(), grants))
    }

    /// Gives back what was granted and is not needed. What cannot be given back counts as used. Returns by what each claim was
    /// granted.
    async fn give_back_grants(
        &self,
        grants: HashMap<Arc<str>, Granted>,
        choices: &[Choice],
        outcome: &ClaimOutcome,
    ) -> HashMap<TaskId, Granted> {
        let mut used: HashMap<&str, u64> = HashMap::new();
        let groups: HashMap<ObjectId, &str> =
            choices.iter().map(|choice| (choice.task.task, &*choice.turn.group)).collect();
        let mut by_claim = HashMap::new();
        for claim in &outcome.claims {
            let Some(group) = groups.get(&claim.task.0) else { continue };
            *used.entry(*group).or_default() += 1;
            if let Some(granted) = grants.get(*group) {
                by_claim.insert(claim.task, granted.clone());
            }
        }
        for (group, granted) in grants {
            let unused = granted.starts.saturating_sub(used.get(&*group).copied().unwrap_or(0));
            if let Err(error) = self.return_starts(&granted, unused).await {
                tracing::debug!(%error, unused, "cannot give starts back: they count as used");
            }
        }
        by_claim
    }
}

/// Notes what came of tries. Returns the places of the queue that are still free.
fn settle(window: &mut Window, settings: &Settings, choices: &[Choice], outcome: &ClaimOutcome) -> Vec<Slot> {
    let now = Instant::now();
    let by_task: HashMap<ObjectId, &Choice> =
        choices.iter().map(|choice| (choice.task.task, choice)).collect();
    let of = |tries: &[Try]| -> Vec<&Choice> {
        tries.iter().filter_map(|one| by_task.get(&one.task).copied()).collect()
    };
    for choice in of(&outcome.lost) {
        window.skip(choice.task.task, &choice.turn.group, now);
    }
    for choice in of(&outcome.refused).into_iter().chain(of(&outcome.full)) {
        window.put_back(&choice.turn.group, choice.task);
    }
    if settings.share == Share::Turns {
        // Somebody else has the place, or was faster to claim the task: the turn is still ours.
        for choice in of(&outcome.refused).into_iter().chain(of(&outcome.lost)) {
            window.owe(choice.turn.clone(), now);
        }
    }
    let is_plain = |choice: &&&Choice| &*choice.turn.group == NO_GROUP;
    let tried = choices.iter().filter(|choice| &*choice.turn.group == NO_GROUP).count();
    if tried > 0 {
        window.spread.met_others(tried, of(&outcome.lost).iter().filter(is_plain).count());
    }
    outcome.lost.iter().chain(&outcome.full).map(|one| one.slot).collect()
}
