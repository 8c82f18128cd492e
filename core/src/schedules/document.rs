//! Schedules as they are stored, with the options of their tasks.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};

use super::spec::{SpecError, given, is_name, seconds, shown, text, whole, whole_unless_zero, word};
use super::{Firing, LONGEST_DESCRIPTION, Last, LastSuccess, Overlap, Schedule, ScheduleId, Settings, Spec};
use crate::budget::OverBudget;
use crate::gates::LockRequest;
use crate::model::{FILES, QueueId, STEPS, Selector, Step, TaskFiles, TaskId, number, whole_number};
use crate::secrets::{self, Sealed};
use crate::store::collections::SCHEDULES;
use crate::store::{StoreError, documents_in, setting_or_removing, without_null};
use crate::tags::{self, TAGS};
use crate::task::{TaskOptions, within_budget};
use disbatch_wire::schedules::TimeCounts;

/// A time may be caught up for a year at most, in seconds.
const LONGEST_CATCH_UP: i64 = 366 * 86_400;

/// The options of a submission that make sense for tasks which are made again and again, named as the fields of tasks.
pub const OPTIONS: [&str; 10] =
    ["timeout", "grace", "max_attempts", "backoff", "group", "priority", "locks", TAGS, STEPS, FILES];

impl Schedule {
    pub fn read(document: Document) -> Result<Self, SpecError> {
        let id = document.get_object_id("_id").map_err(|_| SpecError::new("_id", "expected an id"))?;
        let time = |name: &str| document.get_datetime(name).ok().copied();
        let part = |name: &str| document.get_document(name).ok();
        let count = |name: &str| {
            part("counts").and_then(|counts| counts.get(name)).and_then(whole_number).unwrap_or_default()
        };
        Ok(Self {
            id: ScheduleId(id),
            settings: Settings::read(&document)?,
            paused: document.get_bool("paused").unwrap_or(false),
            next: time("next"),
            next_for: time("next_for"),
            firing: documents_in(&document, "firing").filter_map(firing_of).collect(),
            last: part("last").and_then(last_of),
            counts: TimeCounts { fired: count("fired"), skipped: count("skipped") },
            storage: document.get("storage").cloned(),
            stored_for: time("stored_for"),
            last_success: part("last_success").and_then(last_success_of),
            rev: document.get("rev").and_then(whole_number).unwrap_or_default(),
            created: time("created"),
            changed: time("changed"),
            document,
        })
    }

    /// Everything that is stored of it, but for its secure parameters: only that it has some.
    pub fn shown(&self) -> Document {
        secrets::concealed(self.document.clone())
    }

    /// What finds it as long as nobody has decided about its next time, or changed its settings.
    pub(super) fn unchanged(&self) -> Document {
        doc! { "_id": self.id, "rev": self.rev, "next": self.next }
    }
}

impl Settings {
    pub(super) fn document(&self) -> Document {
        without_null(self.fields(self.params.clone()))
    }

    /// Settings with these fields in the place of those that they had before. Null takes one back to its default. Of
    /// parameters, there are none but those in `fields`.
    pub fn with(before: Option<&Self>, fields: Document) -> Result<Self, SpecError> {
        let mut all = before.map(|before| before.fields(Document::new())).unwrap_or_default();
        all.extend(fields);
        Self::read(&all)
    }

    /// All fields that people set, with null for those that are not set.
    fn fields(&self, params: Document) -> Document {
        let (options, sealed) = stored_options(&self.options);
        let mut fields = doc! {
            "name": &self.name,
            "description": (!self.description.is_empty()).then_some(&self.description),
            "queue": self.queue,
            "params": params,
            secrets::FIELD: sealed,
            "options": (!options.is_empty()).then_some(options),
        };
        fields.extend(self.spec.fields());
        fields.extend(doc! {
            "overlap": self.overlap.as_str(),
            "catch_up": whole_unless_zero(self.catch_up),
            "tenant": self.tenant.as_deref(),
            "owner": self.owner.as_deref(),
        });
        fields
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        if !is_name(&self.name) {
            return Err(SpecError::new("name", "expected 1 to 200 characters without spaces around them"));
        }
        if let Selector::Id(_) = Selector::parse(&self.name) {
            return Err(SpecError::new("name", "it would be taken for an id"));
        }
        if self.description.chars().count() > LONGEST_DESCRIPTION {
            let reason = format!("expected at most {LONGEST_DESCRIPTION} characters");
            return Err(SpecError::new("description", reason));
        }
        if whole(self.catch_up) > LONGEST_CATCH_UP {
            let reason = format!("expected whole seconds from 0 to {LONGEST_CATCH_UP}");
            return Err(SpecError::new("catch_up", reason));
        }
        check_options(&self.options)
    }

    pub(super) fn within_budget(&self) -> Result<(), OverBudget> {
        within_budget(&self.options, std::slice::from_ref(&self.params))
    }

    fn read(fields: &Document) -> Result<Self, SpecError> {
        let queue = fields.get_object_id("queue").map_err(|_| SpecError::new("queue", "expected an id"))?;
        let none = Document::new();
        let given_options = match given(fields, "options") {
            None => &none,
            Some(Bson::Document(options)) => options,
            Some(other) => {
                return Err(SpecError::new("options", format!("expected fields, not {}", shown(other))));
            }
        };
        let owned = |name| Ok::<_, SpecError>(text(fields, name)?.map(str::to_owned));
        Ok(Self {
            name: owned("name")?.unwrap_or_default(),
            description: owned("description")?.unwrap_or_default(),
            queue: QueueId(queue),
            params: fields.get_document("params").cloned().unwrap_or_default(),
            options: read_options(given_options, given(fields, secrets::FIELD))?,
            spec: Spec::read(fields)?,
            overlap: word(fields, "overlap", Overlap::named, "allow, skip, queue or cancel")?,
            catch_up: seconds(fields, "catch_up", LONGEST_CATCH_UP)?.unwrap_or_default(),
            tenant: owned("tenant")?,
            owner: owned("owner")?,
        })
    }
}

pub(super) fn understood(document: Document) -> Result<Schedule, StoreError> {
    let id = document.get("_id").map_or_else(|| "without _id".to_owned(), ToString::to_string);
    Schedule::read(document).map_err(|error| StoreError::Document {
        collection: SCHEDULES.name,
        id,
        why: Box::new(serde::de::Error::custom(error)),
    })
}

pub(super) fn readable(document: Document) -> Option<Schedule> {
    understood(document)
        .inspect_err(|error| tracing::warn!(%error, "ignoring a schedule that cannot be read"))
        .ok()
}

pub(super) fn settings_update(settings: &Settings) -> Vec<Document> {
    setting_or_removing(settings.fields(settings.params.clone()))
}

/// What people can tell of settings: null for those that are not set, and nothing of secure parameters but that there are
/// some.
pub(super) fn told(settings: &Settings) -> Document {
    let mut fields = settings.fields(settings.params.clone());
    if fields.get(secrets::FIELD) == Some(&Bson::Null) {
        fields.remove(secrets::FIELD);
        fields.insert(secrets::SHOWN, Bson::Null);
    }
    secrets::concealed(fields)
}

/// A pipeline that sets when a schedule fires next.
pub(super) fn next_update(id: ScheduleId, spec: &Spec, next: Option<DateTime>) -> Vec<Document> {
    match next {
        Some(time) => vec![doc! { "$set": { "next": spec.due(Some(id), time), "next_for": time } }],
        None => vec![doc! { "$unset": ["next", "next_for"] }],
    }
}

/// The same, where the time `passed` is still to fire as long as it is the one that fires next.
pub(super) fn next_update_after(
    id: ScheduleId,
    spec: &Spec,
    passed: Option<DateTime>,
    next: Option<DateTime>,
) -> Vec<Document> {
    let Some(passed) = passed else { return next_update(id, spec, next) };
    let due = |time: DateTime| spec.due(Some(id), time);
    let one_of = |passed_value: DateTime, other: Option<DateTime>| {
        let other = other.map_or_else(|| Bson::from("$$REMOVE"), Bson::from);
        doc! { "$cond": [{ "$eq": ["$next_for", passed] }, passed_value, other] }
    };
    vec![doc! { "$set": { "next": one_of(due(passed), next.map(due)), "next_for": one_of(passed, next) } }]
}

pub(super) fn firing_document(firing: &Firing) -> Document {
    doc! { "for": firing.time, "task": firing.task }
}

fn firing_of(entry: &Document) -> Option<Firing> {
    Some(Firing { time: *entry.get_datetime("for").ok()?, task: TaskId(entry.get_object_id("task").ok()?) })
}

fn last_of(last: &Document) -> Option<Last> {
    Some(Last {
        time: *last.get_datetime("for").ok()?,
        task: last.get_object_id("task").ok().map(TaskId),
        at: *last.get_datetime("at").ok()?,
        outcome: last.get_str("outcome").unwrap_or_default().to_owned(),
        why: last.get_str("why").ok().map(str::to_owned),
    })
}

fn last_success_of(success: &Document) -> Option<LastSuccess> {
    Some(LastSuccess {
        start: success.get_datetime("start").ok().copied(),
        finish: *success.get_datetime("finish").ok()?,
    })
}

pub(super) mod kept {
    //! A value that may look like extended JSON, as it is: in a document of its own.

    use bson::{Bson, doc};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::store::Stored;

    pub fn serialize<S: Serializer>(value: &Option<Bson>, serializer: S) -> Result<S::Ok, S::Error> {
        Stored(doc! { "value": value.clone() }).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bson>, D::Error> {
        let Stored(mut document) = Stored::deserialize(deserializer)?;
        Ok(document.remove("value"))
    }
}

/// `before`, with those of `fresh` that have these names in place of its own.
pub fn options_with(
    before: &TaskOptions,
    names: &[&str],
    fresh: &TaskOptions,
) -> Result<TaskOptions, SpecError> {
    let ((mut options, sealed), (mut fresh, _)) = (stored_options(before), stored_options(fresh));
    for name in names {
        options.remove(name);
        options.extend(fresh.remove(name).map(|value| ((*name).to_owned(), value)));
    }
    read_options(&options, sealed.as_ref())
}

fn check_options(options: &TaskOptions) -> Result<(), SpecError> {
    let others = [
        ("a time to start at", options.start.is_some()),
        ("a deadline", options.deadline.is_some()),
        ("a unique key", options.unique.is_some()),
        ("tasks to come after", !options.after.is_empty() || options.chain),
    ];
    match others.into_iter().find(|(_, is_given)| *is_given) {
        Some((what, _)) => Err(SpecError::new("options", format!("a schedule cannot have {what}"))),
        None => Ok(()),
    }
}

/// As they are stored, and the secure parameters, which are stored beside them.
fn stored_options(options: &TaskOptions) -> (Document, Option<Bson>) {
    let mut fields = options.fields();
    let sealed = fields.remove(secrets::FIELD);
    let kept = fields.into_iter().filter(|(name, _)| OPTIONS.contains(&name.as_str()));
    (kept.collect(), sealed)
}

fn option<'a, T>(
    options: &'a Document,
    name: &str,
    read: impl Fn(&'a Bson) -> Option<T>,
) -> Result<Option<T>, SpecError> {
    let wrong = || SpecError::new("options", format!("{name} cannot be understood"));
    given(options, name).map(|value| read(value).ok_or_else(wrong)).transpose()
}

fn read_options(options: &Document, sealed: Option<&Bson>) -> Result<TaskOptions, SpecError> {
    let seconds = |value: &Bson| Duration::try_from_secs_f64(number(value)?).ok();
    let backoff = option(options, "backoff", |backoff| backoff.as_document().cloned())?;
    let locks = option(options, "locks", |locks| {
        locks.as_array()?.iter().map(Bson::as_str).collect::<Option<Vec<&str>>>()
    })?;
    let locks = LockRequest::list(locks.unwrap_or_default());
    let locks = locks.map_err(|error| SpecError::new("options", error.to_string()))?;
    let read_sealed = |sealed: &Bson| {
        let unknown = || SpecError::new("secure_params", "they are not stored in a way that is known");
        let sealed = sealed.as_document().ok_or_else(unknown)?;
        Sealed::stored(sealed).map_err(|error| SpecError::new("secure_params", error.to_string()))
    };
    let sealed = sealed.map(read_sealed).transpose()?;
    Ok(TaskOptions {
        timeout: option(options, "timeout", seconds)?,
        grace: option(options, "grace", seconds)?,
        max_attempts: option(options, "max_attempts", whole_number)?,
        backoff,
        group: text(options, "group")?.map(str::to_owned),
        priority: option(options, "priority", whole_number)?,
        secure_params: sealed,
        locks,
        tags: tags::stored(options.get(TAGS)),
        steps: Step::of_field(options.get(STEPS)).map_err(|error| SpecError::new("options", error))?,
        files: TaskFiles::of_field(options.get(FILES))
            .map_err(|error| SpecError::new("options", format!("{FILES}.{error}")))?,
        ..TaskOptions::default()
    })
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::super::{CronExpr, ForRun, Overlap};
    use super::*;

    fn settings() -> Settings {
        Settings {
            name: "nightly".to_owned(),
            description: "every night".to_owned(),
            queue: QueueId(ObjectId::new()),
            params: doc! { "a": { "$oid": "x" } },
            options: TaskOptions { timeout: Some(Duration::from_secs(90)), ..TaskOptions::default() },
            spec: Spec::new(vec![CronExpr::parse("0 3 * * *").unwrap()]),
            overlap: Overlap::Queue,
            catch_up: Duration::from_secs(3_600),
            tenant: Some("acme".to_owned()),
            owner: None,
        }
    }

    #[test]
    fn a_schedule_is_read_as_it_was_stored() {
        let (settings, task) = (settings(), ObjectId::new());
        let time = DateTime::from_millis(1_795_163_067_000);
        let mut document = doc! { "_id": ObjectId::new() };
        document.extend(settings.document());
        document.extend(doc! {
        "paused": true, "next": time, "firing": [{ "for": time, "task": task }, { "for": 5 }], "rev": 3,
        "last": { "for": time, "task": task, "at": time, "outcome": "fired" }, "counts": { "fired": 2_i64 },
        "storage": null, "last_success": { "finish": time },
    });
        let schedule = Schedule::read(document.clone()).unwrap();
        assert_eq!((&schedule.settings, schedule.paused, schedule.rev), (&settings, true, 3));
        assert_eq!(schedule.firing, [Firing { time, task: TaskId(task) }]);
        assert_eq!(schedule.last.as_ref().map(|last| last.outcome.as_str()), Some("fired"));
        assert_eq!((schedule.counts.fired, schedule.counts.skipped), (2, 0));
        assert_eq!(schedule.storage, Some(Bson::Null));
        assert_eq!(schedule.last_success, Some(LastSuccess { start: None, finish: time }));
        assert_eq!(schedule.shown(), document);
        assert_eq!(schedule.unchanged(), doc! { "_id": schedule.id, "rev": 3_i64, "next": time });
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |change: &dyn Fn(&mut Settings)| {
            let mut settings = settings();
            change(&mut settings);
            settings.check().unwrap_err().field
        };
        assert_eq!(settings().check(), Ok(()));
        assert_eq!(wrong(&|settings| settings.name = " x".to_owned()), "name");
        assert_eq!(wrong(&|settings| settings.name = "6b0003bb686c8275d70dc2f1".to_owned()), "name");
        assert_eq!(wrong(&|settings| settings.description = "x".repeat(10_001)), "description");
        assert_eq!(wrong(&|settings| settings.catch_up = Duration::from_secs(40_000_000)), "catch_up");
        assert_eq!(wrong(&|settings| settings.options.unique = Some("k".to_owned())), "options");
        assert_eq!(Schedule::read(doc! { "_id": 5 }).unwrap_err().field, "_id");
        let odd =
            doc! { "_id": ObjectId::new(), "queue": ObjectId::new(), "cron": "@daily", "overlap": "never" };
        assert_eq!(
            Schedule::read(odd).unwrap_err().to_string(),
            "overlap: 'never' is not allow, skip, queue or cancel"
        );
    }

    #[test]
    fn a_change_removes_what_is_not_set_any_more() {
        let update = settings_update(&Settings { tenant: None, ..settings() });
        let unset = update[1].get_array("$unset").unwrap();
        assert!(unset.contains(&"tenant".into()) && unset.contains(&"jitter".into()));
        assert!(!unset.contains(&"params".into()));
        let told = told(&Settings { tenant: None, ..settings() });
        assert_eq!((told.get("tenant"), told.get(secrets::SHOWN)), (Some(&Bson::Null), Some(&Bson::Null)));
        assert_eq!((told.get("name"), told.get(secrets::FIELD)), (Some(&Bson::from("nightly")), None));
        let set = update[0].get_document("$set").unwrap();
        assert_eq!(set.get_document("params").unwrap(), &doc! { "$literal": { "a": { "$oid": "x" } } });
    }

    #[test]
    fn what_a_run_is_told_survives_the_way() {
        let for_run = ForRun {
            id: ObjectId::new(),
            name: "nightly".to_owned(),
            storage: Some(Bson::from(doc! { "$oid": "x", "list": [{ "$date": "never" }] })),
            last_success_start: None,
            last_success_finish: Some(DateTime::from_millis(5)),
        };
        for told in [
            for_run.clone(),
            ForRun { storage: None, ..for_run.clone() },
            ForRun { storage: Some(Bson::Null), ..for_run },
        ] {
            let bytes = bson::serialize_to_vec(&told).unwrap();
            assert_eq!(bson::deserialize_from_slice::<ForRun>(&bytes).unwrap(), told);
        }
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let stored = doc! {
            "timeout": 90_i64, "grace": 1.5, "max_attempts": 3_i64, "backoff": { "initial": 5 }, "group": "acme/alice",
            "priority": 7_i64, "locks": ["a", "b/shared"],
            "steps": [{ "name": "get", "params": { "a": 1 }, "status": -2 }],
            "files": { "input": { "name": "data" } }, "tags": ["a=1", "b, c"],
        };
        let options = read_options(&stored, None).unwrap();
        assert_eq!((options.timeout, options.locks.len()), (Some(Duration::from_secs(90)), 2));
        assert_eq!(check_options(&options), Ok(()));
        assert_eq!(stored_options(&options), (stored, None));
        assert_eq!(read_options(&doc! {}, None), Ok(TaskOptions::default()));
        assert_eq!(stored_options(&TaskOptions::default()), (doc! {}, None));
    }

    #[test]
    fn secure_parameters_stay_encrypted() {
        let data = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2] };
        let sealed = Bson::from(doc! { "key": "0011223344556677", "data": data });
        let options = read_options(&doc! {}, Some(&sealed)).unwrap();
        assert_eq!(stored_options(&options), (doc! {}, Some(sealed)));
        assert_eq!(read_options(&doc! {}, Some(&Bson::from("x"))).unwrap_err().field, "secure_params");
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for (odd, error) in [
            (doc! { "timeout": "long" }, "options: timeout cannot be understood"),
            (doc! { "grace": -1 }, "options: grace cannot be understood"),
            (doc! { "max_attempts": 1.5 }, "options: max_attempts cannot be understood"),
            (doc! { "backoff": 5 }, "options: backoff cannot be understood"),
            (doc! { "locks": "a" }, "options: locks cannot be understood"),
            (doc! { "group": 5 }, "group: expected text, not 5"),
        ] {
            assert_eq!(read_options(&odd, None).unwrap_err().to_string(), error);
        }
        let refused = TaskOptions { unique: Some("k".to_owned()), ..TaskOptions::default() };
        assert_eq!(
            check_options(&refused).unwrap_err().to_string(),
            "options: a schedule cannot have a unique key"
        );
    }
}
