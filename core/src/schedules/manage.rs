//! Schedules are made, changed, paused and deleted by people.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;

use super::document::{next_update, next_update_after, readable, settings_update, told};
use super::{Schedule, ScheduleError, ScheduleId, Settings};
use crate::accounts::Reach;
use crate::model::{QueueId, Selector, whole_number};
use crate::secrets::concealed;
use crate::store::{Altered, Store, StoreError, Stored, all_of, collect, with};

/// How often a change is tried that others change at the same moment.
const TRIES: usize = 5;

#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleQuery {
    pub reach: Reach,
    pub queue: Option<QueueId>,
    pub tenant: Option<String>,
    pub paused: Option<bool>,
    /// Behind this name.
    pub after: Option<String>,
    /// At most so many; 0: all.
    pub limit: i64,
}

impl Default for ScheduleQuery {
    fn default() -> Self {
        Self { reach: Reach::All, queue: None, tenant: None, paused: None, after: None, limit: 0 }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Updated {
    /// They are stored. Neither document has secure parameters.
    Updated(Box<Altered>),
    /// Somebody else has changed them since: they have this number now, and are as they were.
    Changed {
        rev: i64,
    },
    NoSuchSchedule,
}

impl Store {
    /// Schedules by name. One that cannot be read is logged and left out.
    #[operation]
    pub async fn list_schedules(&self, query: &ScheduleQuery) -> Result<Vec<Schedule>, StoreError> {
        let mut all = Vec::new();
        all.extend(query.queue.map(|queue| doc! { "queue": queue }));
        if query.reach != Reach::All {
            let queues = self.queues_within(&query.reach).await?;
            let ids: Vec<ObjectId> = queues.iter().map(|queue| queue.id.0).collect();
            all.push(doc! { "queue": { "$in": ids } });
        }
        all.extend(query.tenant.as_ref().map(|tenant| doc! { "tenant": tenant }));
        match query.paused {
            Some(true) => all.push(doc! { "paused": true }),
            Some(false) => all.push(doc! { "paused": { "$ne": true } }),
            None => {}
        }
        all.extend(query.after.as_ref().map(|after| doc! { "name": { "$gt": after } }));
        let filter = all_of(all);
        let found =
            collect(self.schedules().find(filter).sort(doc! { "name": 1 }).limit(query.limit)).await?;
        Ok(found.into_iter().filter_map(readable).collect())
    }

    /// One schedule. One that cannot be read is logged, and is as if it were not there.
    #[operation]
    pub async fn find_schedule(&self, selector: &Selector) -> Result<Option<Schedule>, StoreError> {
        let found = self.schedules().find_one(selector.filter("name")).await?;
        Ok(found.and_then(|schedule| readable(schedule.into())))
    }

    /// The queue of a schedule. `None`: there is no such schedule; `Some(None)`: it has none that is one.
    #[operation]
    pub async fn queue_of_schedule(
        &self,
        selector: &Selector,
    ) -> Result<Option<Option<QueueId>>, StoreError> {
        let found =
            self.schedules().find_one(selector.filter("name")).projection(doc! { "queue": 1 }).await?;
        Ok(found.map(|schedule| schedule.get_object_id("queue").ok().map(QueueId)))
    }

    #[operation(schedule = %settings.name)]
    pub async fn create_schedule(
        &self,
        settings: &Settings,
        paused: bool,
    ) -> Result<Schedule, ScheduleError> {
        settings.check()?;
        settings.within_budget()?;
        let name_taken = || ScheduleError::NameTaken(settings.name.clone());
        // The index that keeps names apart is made by DENs.
        if self.queue_of_schedule(&Selector::Name(settings.name.clone())).await?.is_some() {
            return Err(name_taken());
        }
        let (id, now) = (ScheduleId(ObjectId::new()), self.server_time().await?);
        let next = self.checked_next(settings, now).await?.filter(|_| !paused);
        let mut document = with(doc! { "_id": id }, settings.document());
        document
            .extend(doc! { "paused": paused, "counts": { "fired": 0_i64, "skipped": 0_i64 }, "rev": 1_i64 });
        if let Some(time) = next {
            document.extend(doc! { "next": settings.spec.due(Some(id), time), "next_for": time });
        }
        document.extend(doc! { "created": now, "changed": now });
        let reserved = self.reserve_schedule(settings.tenant.as_deref(), id.0).await?;
        let made = self.schedules().insert_one(Stored(document.clone())).await.map_err(StoreError::from);
        self.settle_unless_unknown(reserved, made.as_ref().err()).await;
        StoreError::unless_duplicate(made)?.ok_or_else(name_taken)?;
        Ok(Schedule::read(document)?)
    }

    /// If its settings still have the number `rev`. Its next time is set anew if when it fires has changed.
    #[operation(schedule = %id)]
    pub async fn update_schedule(
        &self,
        id: ScheduleId,
        rev: i64,
        settings: &Settings,
    ) -> Result<Updated, ScheduleError> {
        settings.check()?;
        settings.within_budget()?;
        let now = self.server_time().await?;
        let next = self.checked_next(settings, now).await?;
        let Some(before) = self.schedule(id).await? else { return Ok(Updated::NoSuchSchedule) };
        if before.rev != rev {
            return Ok(Updated::Changed { rev: before.rev });
        }
        let sealed = &settings.options.secure_params;
        if settings.queue != before.settings.queue
            && sealed.is_some()
            && *sealed == before.settings.options.secure_params
        {
            return Err(ScheduleError::SealedForAnotherQueue);
        }
        let mut update = settings_update(settings);
        if before.settings.spec != settings.spec && !before.paused {
            let calendars = self.calendars_of(&settings.spec).await?;
            let passed = settings.spec.still_to_fire(&calendars, before.next_for, now);
            update.extend(next_update_after(id, &settings.spec, passed, next));
        }
        // Else it counts already.
        let new_tenant = settings.tenant.as_deref().filter(|_| settings.tenant != before.settings.tenant);
        let reserved = self.reserve_schedule(new_tenant, id.0).await?;
        let changed = self.change(doc! { "_id": id, "rev": rev }, update, told(settings)).await;
        self.settle_unless_unknown(reserved, changed.as_ref().err()).await;
        let name_taken = || ScheduleError::NameTaken(settings.name.clone());
        if let Some(altered) = StoreError::unless_duplicate(changed)?.ok_or_else(name_taken)? {
            return Ok(Updated::Updated(Box::new(altered)));
        }
        let rev = self.schedule(id).await?.map(|schedule| schedule.rev);
        Ok(rev.map_or(Updated::NoSuchSchedule, |rev| Updated::Changed { rev }))
    }

    /// Has a schedule do nothing until it is resumed. What fires at this moment fires. `None`: there is no such schedule.
    #[operation(schedule = %id)]
    pub async fn pause_schedule(&self, id: ScheduleId) -> Result<Option<Altered>, StoreError> {
        let works = doc! { "_id": id, "paused": { "$ne": true } };
        let update = vec![doc! { "$set": { "paused": true } }, doc! { "$unset": ["next", "next_for"] }];
        let fields = doc! { "paused": true, "next": Bson::Null, "next_for": Bson::Null };
        match self.change(works, update, fields).await? {
            Some(altered) => Ok(Some(altered)),
            None => self.as_it_is(id).await,
        }
    }

    /// Lets a schedule go on. What was to fire meanwhile does not. `None`: there is no such schedule.
    #[operation(schedule = %id)]
    pub async fn resume_schedule(&self, id: ScheduleId) -> Result<Option<Altered>, StoreError> {
        for _ in 0..TRIES {
            let Some(schedule) = self.schedule(id).await? else { return Ok(None) };
            if !schedule.paused {
                break;
            }
            let (spec, now) = (&schedule.settings.spec, self.server_time().await?);
            let next = spec.next(&self.calendars_of(spec).await?, now);
            let mut update = vec![doc! { "$set": { "paused": false } }];
            update.extend(next_update(id, spec, next));
            let paused = doc! { "_id": id, "paused": true, "rev": schedule.rev };
            if let Some(altered) = self.change(paused, update, doc! { "paused": false }).await? {
                return Ok(Some(altered));
            }
        }
        self.as_it_is(id).await
    }

    /// Deletes a schedule. Its tasks stay, and what has fired and has no task yet gets none. Returns what it was, without
    /// secure parameters; `None`: there is no such schedule.
    #[operation(schedule = %id)]
    pub async fn delete_schedule(&self, id: ScheduleId) -> Result<Option<Document>, StoreError> {
        let gone = self.schedules().find_one_and_delete(doc! { "_id": id }).await?;
        Ok(gone.map(|schedule| concealed(schedule.into())))
    }

    pub(super) async fn schedule(&self, id: ScheduleId) -> Result<Option<Schedule>, StoreError> {
        self.find_schedule(&Selector::Id(id.0)).await
    }

    async fn checked_next(
        &self,
        settings: &Settings,
        now: DateTime,
    ) -> Result<Option<DateTime>, ScheduleError> {
        let calendars = self.calendars_of(&settings.spec).await?;
        match calendars.missing(&settings.spec) {
            Some(name) => Err(ScheduleError::NoSuchCalendar(name.to_owned())),
            None => Ok(settings.spec.next(&calendars, now)),
        }
    }

    /// Changes a schedule that `filter` finds: its settings have the next number then. `fields` are what people can tell of
    /// the change, with null for what is removed.
    async fn change(
        &self,
        filter: Document,
        mut update: Vec<Document>,
        mut fields: Document,
    ) -> Result<Option<Altered>, StoreError> {
        let rev = doc! { "$add": [{ "$ifNull": ["$rev", 0_i64] }, 1_i64] };
        update.push(doc! { "$set": { "changed": "$$NOW", "rev": rev } });
        let Some(before) = self.schedules().find_one_and_update(filter, update).await? else {
            return Ok(None);
        };
        let before = concealed(before.into());
        fields.insert("rev", before.get("rev").and_then(whole_number).unwrap_or_default() + 1);
        Ok(Some(Altered::by_setting_or_removing(before, fields)))
    }

    async fn as_it_is(&self, id: ScheduleId) -> Result<Option<Altered>, StoreError> {
        let found = self.schedules().find_one(doc! { "_id": id }).await?;
        let found = found.map(|schedule| concealed(schedule.into()));
        Ok(found.map(|schedule| Altered { before: Some(schedule.clone()), after: schedule }))
    }
}
