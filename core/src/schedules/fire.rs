//! Firing: whoever looks first finds a schedule due, decides, and makes the tasks. See [`super`] for what keeps a time
//! from firing twice.

use disbatch_operation::operation;
use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_metrics::labels::Fire;
use futures::{StreamExt, TryStreamExt};

use super::document::{firing_document, understood};
use super::occurrences::{Decision, Situation, WRONG_PARAMS, decide};
use super::{Firing, Overlap, Schedule};
use crate::model::{Queue, Selector, Status, TaskId};
use crate::schema::{self, OfTask, Schemas};
use crate::store::{Store, StoreError, Stored, collect, integer, millis, put, with};

/// So many schedules are looked at in a round.
const AT_ONCE: i64 = 64;

const IN_PARALLEL: usize = 8;

/// So many rounds are done at once: more is left for the next call.
const ROUNDS: usize = 20;

/// What is left in `firing` for so long is completed by anybody. Whoever comes so late to it leaves it to them.
const LEFT_AFTER: Duration = Duration::from_secs(20);

/// So long the parameters of a schedule may take to be checked.
const CHECKING: Duration = Duration::from_secs(1);

/// A schedule that cannot fire is looked at again after so long.
const PUT_OFF: Duration = Duration::from_secs(60);

const NOW: &str = "server_time";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fired {
    /// Times that made a task.
    pub fired: u64,
    /// Times that were passed over.
    pub skipped: u64,
    /// Tasks that others had left to be made.
    pub completed: u64,
    /// Whether anything was done, so that there may be more to do.
    pub more: bool,
}

impl Fired {
    fn add(&mut self, other: Self) {
        self.fired += other.fired;
        self.skipped += other.skipped;
        self.completed += other.completed;
        self.more |= other.more;
    }
}

/// The fields of schedules that say when somebody has to look at them, and how long after that.
pub(crate) fn times() -> [(&'static str, Duration); 2] {
    [("next", Duration::ZERO), ("firing_at", LEFT_AFTER)]
}

fn due() -> Document {
    doc! { "next": { "$type": "date" }, "$expr": { "$lte": ["$next", "$$NOW"] } }
}

fn left_over() -> Document {
    let long_ago = doc! { "$subtract": ["$$NOW", millis(LEFT_AFTER)] };
    doc! { "firing_at": { "$type": "date" }, "$expr": { "$lte": ["$firing_at", long_ago] } }
}

impl Store {
    /// Fires the schedules whose time has come, and makes the tasks that others have left to be made. Any number of
    /// processes may do so at once. It does so much at most; whether there may be more is told. `schemas`: what plugins want of
    /// parameters, as far as that is known here. A schedule whose parameters do not fit does not fire.
    ///
    /// # Errors
    /// The database cannot be reached, or this user has no right to schedules. What was done by then is done.
    #[operation]
    pub async fn fire_schedules(&self, schemas: &Schemas) -> Result<Fired, StoreError> {
        let mut all = Fired::default();
        for _ in 0..ROUNDS {
            let mut round = self.complete_left_over().await?;
            round.add(self.fire_due(schemas).await?);
            all.add(Fired { more: false, ..round });
            if !round.more {
                return Ok(all);
            }
        }
        Ok(Fired { more: true, ..all })
    }

    async fn fire_due(&self, schemas: &Schemas) -> Result<Fired, StoreError> {
        let mut found = self.schedules_with_time(due(), "next").await?;
        if !found.is_empty() {
            // Whoever looks at the same moment begins with another one.
            let first = usize::try_from(crate::clock::random() % found.len() as u64).unwrap_or_default();
            found.rotate_left(first);
        }
        let fired =
            futures::stream::iter(found).map(|(found, now)| self.fire_or_put_off(found, now, schemas));
        let mut fired = fired.buffer_unordered(IN_PARALLEL);
        let mut all = Fired::default();
        while let Some(one) = fired.try_next().await? {
            all.add(one);
        }
        Ok(all)
    }

    /// One that cannot fire must not keep others from it.
    async fn fire_or_put_off(
        &self,
        found: Document,
        now: DateTime,
        schemas: &Schemas,
    ) -> Result<Fired, StoreError> {
        let id = found.get_object_id("_id").ok();
        let same = doc! { "_id": id, "next": found.get("next").cloned() };
        match Box::pin(self.fire(found, now, schemas)).await {
            Err(error) if !error.is_transient() && !error.is_forbidden() => {
                tracing::error!(schedule = ?id, %error, "a schedule cannot fire; it is tried again in a minute");
                self.metrics().schedule_fires.of(Fire::Error).inc();
                // What it is due for stays.
                let later = doc! { "$set": { "next": now.saturating_add_duration(PUT_OFF) } };
                self.schedules().update_one(same, later).await?;
                Ok(Fired::default())
            }
            fired => fired,
        }
    }

    /// Schedules that `filter` finds, by the time in a field, with the server's time. What the plugin has saved is left out.
    async fn schedules_with_time(
        &self,
        filter: Document,
        field: &str,
    ) -> Result<Vec<(Document, DateTime)>, StoreError> {
        let pipeline = [
            doc! { "$match": filter },
            doc! { "$sort": { field: 1 } },
            doc! { "$limit": AT_ONCE },
            doc! { "$unset": "storage" },
            doc! { "$set": { NOW: "$$NOW" } },
        ];
        let found = collect(self.schedules().aggregate(pipeline).with_type::<Stored>()).await?;
        let with_time = |mut document: Document| {
            let now = document.remove(NOW).and_then(|now| now.as_datetime().copied());
            (document, now.unwrap_or_else(|| self.now()))
        };
        Ok(found.into_iter().map(with_time).collect())
    }

    /// Decides about a schedule that is due, and makes its tasks if nobody else has decided.
    async fn fire(&self, found: Document, now: DateTime, schemas: &Schemas) -> Result<Fired, StoreError> {
        let began = Instant::now();
        let schedule = understood(found)?;
        let calendars = self.calendars_of(&schedule.settings.spec).await?;
        let queue = self.find_queue(&Selector::Id(schedule.settings.queue.0)).await?;
        let misfit = queue.as_ref().and_then(|queue| misfit(&schedule, queue, schemas));
        let situation = Situation {
            now,
            live: self.live_tasks_of(&schedule).await?,
            queue: queue.is_some(),
            fits: misfit.is_none(),
        };
        let decision = decide(&schedule, &calendars, situation);
        let firing: Vec<Firing> =
            decision.fire.iter().map(|time| Firing { time: *time, task: TaskId(ObjectId::new()) }).collect();
        let update = decided(&schedule, &decision, misfit.as_deref(), &firing, now);
        if self.schedules().update_one(schedule.unchanged(), update).await?.matched_count == 0 {
            return Ok(Fired { more: true, ..Fired::default() }); // Somebody else has decided.
        }
        self.measure_firing(&schedule, &decision, situation);
        if let Some((time, why)) = decision.newest {
            tracing::info!(schedule = %schedule.settings.name, %time, why, misfit, "a schedule did not fire");
        }
        for firing in &firing {
            if began.elapsed() >= LEFT_AFTER {
                break;
            }
            Box::pin(self.complete_firing(&schedule, *firing)).await?;
        }
        Ok(Fired { fired: firing.len() as u64, skipped: decision.skipped as u64, completed: 0, more: true })
    }

    fn measure_firing(&self, schedule: &Schedule, decision: &Decision, situation: Situation) {
        let fires = &self.metrics().schedule_fires;
        fires.of(Fire::Fired).add(decision.fire.len() as u64);
        fires.of(Fire::Missed).add(decision.late as u64);
        let why = if situation.queue && situation.fits { Fire::Overlap } else { Fire::Error };
        fires.of(why).add(decision.skipped.saturating_sub(decision.late) as u64);
        for time in &decision.fire {
            self.metrics().schedule_lag.observe_time(lag(schedule, *time, situation.now));
        }
    }

    /// How many tasks of a schedule have not ended, or are to be made; as far as it has to be known.
    async fn live_tasks_of(&self, schedule: &Schedule) -> Result<usize, StoreError> {
        let most = match schedule.settings.overlap {
            Overlap::Allow | Overlap::Cancel => return Ok(0),
            Overlap::Skip => 1,
            Overlap::Queue => super::occurrences::MOST_QUEUED as u64,
        };
        // Those that are to be made were read before: whatever was made since is counted twice, and not missed.
        let live = doc! { "schedule": schedule.id, "status": { "$in": Status::LIVE.to_vec() } };
        let live = with(live, crate::keys::not_pending());
        let live = self.tasks().count_documents(live).limit(most).await?;
        Ok(schedule.firing.len().saturating_add(usize::try_from(live).unwrap_or(usize::MAX)))
    }

    /// Makes the tasks that somebody has left to be made. Who takes a schedule on has it for a while.
    async fn complete_left_over(&self) -> Result<Fired, StoreError> {
        let mut all = Fired::default();
        for (found, now) in self.schedules_with_time(left_over(), "firing_at").await? {
            let id = found.get_object_id("_id").ok();
            let seen = doc! { "_id": id, "firing_at": found.get("firing_at").cloned() };
            let update = doc! { "$set": { "firing_at": now } };
            if self.schedules().update_one(seen, update).await?.matched_count == 0 {
                continue;
            }
            let schedule = match understood(found) {
                Ok(schedule) => schedule,
                Err(error) => {
                    tracing::error!(%error, "tasks of a schedule are not made");
                    continue;
                }
            };
            if schedule.firing.is_empty() {
                // Nothing is there to be made, as far as can be understood.
                let update = doc! { "$unset": { "firing_at": "", "firing": "" } };
                self.schedules().update_one(doc! { "_id": schedule.id, "firing_at": now }, update).await?;
            }
            let began = Instant::now();
            for firing in &schedule.firing {
                if began.elapsed() >= LEFT_AFTER {
                    break;
                }
                tracing::warn!(
                    schedule = %schedule.settings.name, time = %firing.time, task = %firing.task,
                    "a task that was left to be made is made"
                );
                Box::pin(self.complete_firing(&schedule, *firing)).await?;
                all.completed += 1;
            }
            all.more = true;
        }
        Ok(all)
    }
}

/// How late a time fires. Its delay by jitter makes it no later.
fn lag(schedule: &Schedule, time: DateTime, now: DateTime) -> Duration {
    now.saturating_duration_since(schedule.settings.spec.due(Some(schedule.id), time))
}

/// Why the tasks of a schedule would have parameters that the plugin of its queue does not take, if they would.
fn misfit(schedule: &Schedule, queue: &Queue, schemas: &Schemas) -> Option<String> {
    let plugin = queue.effective_plugin().ok().flatten();
    let of = OfTask { plugin: plugin.as_ref(), steps: &schedule.settings.options.steps };
    let params = schema::as_plugins_get(&schedule.settings.params);
    let until = Instant::now() + CHECKING;
    schema::check_task(schemas, of, &params, until).err().map(|misfit| misfit.to_string())
}

fn decided(
    schedule: &Schedule,
    decision: &Decision,
    misfit: Option<&str>,
    firing: &[Firing],
    now: DateTime,
) -> Document {
    let mut set = Document::new();
    let mut update = Document::new();
    match decision.next {
        Some(time) => {
            let due = schedule.settings.spec.due(Some(schedule.id), time);
            set.extend(doc! { "next": due, "next_for": time });
        }
        None => drop(update.insert("$unset", doc! { "next": "", "next_for": "" })),
    }
    match (decision.newest, firing.last()) {
        (Some((time, why)), _) => {
            let mut last = doc! { "for": time, "at": now, "outcome": why };
            put(&mut last, "why", misfit.filter(|_| why == WRONG_PARAMS));
            set.insert("last", last);
        }
        (None, Some(last)) => {
            set.insert("last", doc! { "for": last.time, "task": last.task, "at": now, "outcome": "fired" });
        }
        (None, None) => {} // Nothing was due after all.
    }
    if let Some(oldest) = schedule.next_for.filter(|_| decision.late > 0) {
        set.insert("missed", doc! { "for": oldest, "at": now, "times": integer(decision.late) });
    }
    put(&mut update, "$set", (!set.is_empty()).then_some(set));
    if !firing.is_empty() {
        let entries: Vec<Document> = firing.iter().map(firing_document).collect();
        update.insert("$push", doc! { "firing": { "$each": entries } });
        // The oldest that is left counts.
        update.insert("$min", doc! { "firing_at": now });
    }
    let (fired, skipped) = (integer(firing.len()), integer(decision.skipped));
    update.insert("$inc", doc! { "counts.fired": fired, "counts.skipped": skipped });
    update
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule() -> Schedule {
        let time = DateTime::from_millis(1_795_305_600_000);
        Schedule::read(doc! {
            "_id": ObjectId::from_bytes([7; 12]), "queue": ObjectId::new(), "cron": "@hourly", "next": time,
            "next_for": time, "rev": 2,
        })
        .unwrap()
    }

    #[test]
    fn jitter_makes_no_time_late() {
        let mut schedule = schedule();
        schedule.settings.spec.jitter = Duration::from_secs(3_600);
        let time = schedule.next.unwrap();
        let due = schedule.settings.spec.due(Some(schedule.id), time);
        assert!(due > time);
        let late = Duration::from_millis(700);
        assert_eq!(lag(&schedule, time, due.saturating_add_duration(late)), late);
        assert_eq!(lag(&schedule, time, time), Duration::ZERO);
    }

    #[test]
    fn one_update_moves_the_schedule_on_and_notes_what_fires() {
        let (schedule, task) = (schedule(), TaskId(ObjectId::new()));
        let (now, time) = (DateTime::from_millis(1_795_305_600_500), schedule.next.unwrap());
        let next = DateTime::from_millis(1_795_309_200_000);
        let decision = Decision { fire: vec![time], skipped: 3, late: 3, newest: None, next: Some(next) };
        let update = decided(&schedule, &decision, None, &[Firing { time, task }], now);
        let expected = doc! {
            "$set": {
                "next": next, "next_for": next,
                "last": { "for": time, "task": task, "at": now, "outcome": "fired" },
                "missed": { "for": time, "at": now, "times": 3_i64 },
            },
            "$push": { "firing": { "$each": [{ "for": time, "task": task }] } },
            "$min": { "firing_at": now },
            "$inc": { "counts.fired": 1_i64, "counts.skipped": 3_i64 },
        };
        assert_eq!(update, expected);
        let decision =
            Decision { fire: vec![], skipped: 1, late: 0, newest: Some((time, "skipped")), next: None };
        let expected = doc! {
            "$unset": { "next": "", "next_for": "" },
            "$set": { "last": { "for": time, "at": now, "outcome": "skipped" } },
            "$inc": { "counts.fired": 0_i64, "counts.skipped": 1_i64 },
        };
        assert_eq!(decided(&schedule, &decision, None, &[], now), expected);
        let unfit = Decision { newest: Some((time, WRONG_PARAMS)), ..decision };
        let update = decided(&schedule, &unfit, Some("/n must be given"), &[], now);
        let last = doc! { "for": time, "at": now, "outcome": "wrong params", "why": "/n must be given" };
        assert_eq!(update.get_document("$set").unwrap(), &doc! { "last": last });
    }
}
