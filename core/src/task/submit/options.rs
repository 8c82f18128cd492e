//! What may be asked for when a task is submitted, and what was asked for of one, for a new one like it.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};

use super::SubmitError;
use crate::gates::{AfterFailed, AfterWhen, LockRequest, MOST_LINKS};
use crate::inbox::REFUSED;
use crate::model::{
    FILES, SHADOW_OF, STEPS, Status, Step, TRACE, Task, TaskFiles, TaskId, TraceContext, number, whole_number,
};
use crate::secrets::{self, Sealed};
use crate::store::put;
use crate::tags::{self, TAGS};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    At(DateTime),
    /// Not before so long from now, by the server's clock.
    In(Duration),
}

impl StartAt {
    pub(super) fn time(self, now: DateTime) -> DateTime {
        match self {
            Self::At(at) => at,
            Self::In(delay) => now.saturating_add_duration(delay),
        }
    }
}

/// What applies to all tasks of a submission. By default, nothing does: they are queued at once, and what their
/// queue says applies. The caller has validated the values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskOptions {
    pub start: Option<StartAt>,
    pub timeout: Option<Duration>,
    pub deadline: Option<DateTime>,
    /// How long their plugins have between SIGTERM and SIGKILL.
    pub grace: Option<Duration>,
    pub max_attempts: Option<i64>,
    /// How long to wait between attempts: what of [`crate::model::Backoff`] is not to be the default.
    pub backoff: Option<Document>,
    /// A key that no other task of the queue may have until this one has ended.
    pub unique: Option<String>,
    /// Whose turn they wait for in a fair queue, as `tenant/user`. See [`crate::fair`].
    pub group: Option<String>,
    /// Higher ones come first, from -1000 to 1000, in queues that go by priority.
    pub priority: Option<i64>,
    pub after: Vec<TaskId>,
    pub after_when: AfterWhen,
    pub after_failed: AfterFailed,
    /// Each comes after the one before, too. Not for tasks that are made of a collection.
    pub chain: bool,
    /// What they hold while they run, in order of name.
    pub locks: Vec<LockRequest>,
    /// What their plugins get and nobody else sees, encrypted for the queue.
    pub secure_params: Option<Sealed>,
    /// What is done one after the other, if not the queue's plugin alone does it.
    pub steps: Vec<Step>,
    pub files: Option<TaskFiles>,
    /// For whom they are. That of the queue if it has one.
    pub tenant: Option<String>,
    /// Who submits them: the name of a user of the web server.
    pub owner: Option<String>,
    /// What they are found by, besides what their queue takes from their parameters.
    pub tags: Vec<String>,
    pub trace: Option<TraceContext>,
}

impl TaskOptions {
    /// The fields of a task, but for those that depend on the time.
    pub(crate) fn fields(&self) -> Document {
        let mut fields = Document::new();
        let values = [
            ("timeout", self.timeout.map(seconds)),
            ("deadline", self.deadline.map(Bson::from)),
            ("grace", self.grace.map(seconds)),
            ("max_attempts", self.max_attempts.map(Bson::from)),
            ("backoff", self.backoff.clone().map(Bson::from)),
            ("unique", self.unique.clone().map(Bson::from)),
            ("group", self.group.clone().map(Bson::from)),
            ("priority", self.priority().map(Bson::from)),
            (secrets::FIELD, self.secure_params.as_ref().map(Sealed::field)),
            (STEPS, steps(&self.steps)),
            (FILES, self.files.as_ref().map(|files| files.document().into())),
            ("tenant", self.tenant.clone().map(Bson::from)),
            ("owner", self.owner.clone().map(Bson::from)),
            (TAGS, (!self.tags.is_empty()).then(|| self.tags.clone().into())),
            (TRACE, self.trace.as_ref().map(TraceContext::field)),
        ];
        for (name, value) in values {
            put(&mut fields, name, value);
        }
        let locks: Vec<String> = self.locks.iter().map(ToString::to_string).collect();
        put(&mut fields, "locks", (!locks.is_empty()).then_some(locks));
        if !self.after.is_empty() {
            fields.extend(self.behind(&self.after));
        }
        fields
    }

    pub(super) fn behind(&self, after: &[TaskId]) -> Document {
        doc! {
            "after": after, "after_when": self.after_when.as_str(), "after_failed": self.after_failed.as_str(),
        }
    }

    /// The status that a task is born with, and what it has because of that. `due`: what it would be without gates;
    /// `after`: whom it comes after.
    pub(super) fn born(&self, due: Status, after: &[TaskId]) -> (Status, Document) {
        // A task that is not due yet goes to its locks only then.
        if after.is_empty() && (self.locks.is_empty() || due == Status::Deferred) {
            return (due, Document::new());
        }
        let mut fields = doc! { "gate": "new" };
        put(&mut fields, "waiting_for", (!after.is_empty()).then_some(after));
        put(&mut fields, "lock_round", (!self.locks.is_empty()).then_some(1_i64));
        (Status::Blocked, fields)
    }

    /// Sees to it that `tasks` tasks do not have more to wait for altogether than can be looked after.
    pub(super) fn check_links(&self, tasks: usize) -> Result<(), SubmitError> {
        // In a chain, the first alone comes after what is named.
        let links = if self.chain { 1 } else { tasks }.saturating_mul(self.after.len());
        if links > MOST_LINKS { Err(SubmitError::TooManyLinks) } else { Ok(()) }
    }

    pub(super) fn most_tasks(&self) -> usize {
        MOST_LINKS.checked_div(self.after.len()).unwrap_or(usize::MAX)
    }

    /// The priority that is stored. A task with a group has one in any case: an index that has both would put one without
    /// behind those that are below 0.
    fn priority(&self) -> Option<i64> {
        self.priority.or_else(|| self.group.as_ref().map(|_| 0))
    }

    /// What was asked for of `task`, save what was for that one time: when it was to start and to have ended, those that it came
    /// after, and its place in an array.
    ///
    /// # Errors
    /// Something is stored in a way that this release does not know. Says what.
    pub fn of_task(task: &Task) -> Result<Self, String> {
        let field = |name: &str| task.rest.get(name);
        let text = |name: &str| field(name).and_then(Bson::as_str).map(str::to_owned);
        if field(REFUSED).is_some() {
            return Err("it was refused".to_owned());
        }
        if field(SHADOW_OF).is_some() {
            // A new one would not be without effects.
            return Err("it is the shadow of another task".to_owned());
        }
        let seconds = |name: &str| {
            let seconds = field(name).and_then(number);
            seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        };
        Ok(Self {
            timeout: seconds("timeout"),
            grace: seconds("grace"),
            max_attempts: field("max_attempts").and_then(whole_number),
            backoff: field("backoff").and_then(Bson::as_document).cloned(),
            unique: text("unique"),
            group: text("group"),
            priority: field("priority").and_then(whole_number),
            locks: locks(&task.rest)?,
            secure_params: Sealed::of(task).map_err(|error| error.to_string())?,
            steps: Step::of_field(field(STEPS))?,
            files: TaskFiles::of_field(field(FILES))?,
            tenant: text("tenant"),
            tags: tags::stored(field(tags::TAGS)),
            ..Self::default()
        })
    }
}

fn steps(steps: &[Step]) -> Option<Bson> {
    (!steps.is_empty()).then(|| steps.iter().map(Step::field).collect())
}

/// Whole seconds as an integer, others as a double.
fn seconds(duration: Duration) -> Bson {
    match i64::try_from(duration.as_secs()) {
        Ok(whole) if duration.subsec_nanos() == 0 => Bson::Int64(whole),
        _ => Bson::Double(duration.as_secs_f64()),
    }
}

/// Its locks, save those of its array and its schedule.
fn locks(task: &Document) -> Result<Vec<LockRequest>, String> {
    let stored = task.get_array("locks").map(Vec::as_slice).unwrap_or_default();
    let is_own = |text: &&str| !text.starts_with("array:") && !text.starts_with("schedule:");
    let own = stored.iter().filter_map(Bson::as_str).filter(is_own);
    LockRequest::list(own).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn only_what_was_asked_for_is_stored() {
        assert_eq!(TaskOptions::default().fields(), doc! {});
        let options = TaskOptions {
            timeout: Some(Duration::from_secs(90)),
            grace: Some(Duration::from_millis(1500)),
            unique: Some("k".to_owned()),
            ..TaskOptions::default()
        };
        assert_eq!(options.fields(), doc! { "timeout": 90_i64, "grace": 1.5, "unique": "k" });
        let options = TaskOptions { tags: vec!["a=1".to_owned()], ..TaskOptions::default() };
        assert_eq!(options.fields(), doc! { "tags": ["a=1"] });
        let step = Step { name: "get".to_owned(), plugin: None, params: doc! { "a": 1 } };
        let options = TaskOptions { steps: vec![step], ..TaskOptions::default() };
        let expected = doc! { "steps": [{ "name": "get", "params": { "a": 1 }, "status": -2 }] };
        assert_eq!(options.fields(), expected);
    }

    #[test]
    fn a_task_with_a_group_has_a_priority() {
        let fields = |group: Option<&str>, priority| {
            let group = group.map(str::to_owned);
            TaskOptions { group, priority, ..TaskOptions::default() }.fields()
        };
        assert_eq!(fields(Some("a/b"), None), doc! { "group": "a/b", "priority": 0_i64 });
        assert_eq!(fields(Some("a"), Some(-3)), doc! { "group": "a", "priority": -3_i64 });
        assert_eq!(fields(None, Some(7)), doc! { "priority": 7_i64 });
    }

    #[test]
    fn a_task_is_born_blocked_where_it_has_something_to_wait_for() {
        let [first, second] = [1, 2].map(|number| TaskId(bson::oid::ObjectId::from_bytes([number; 12])));
        let plain = TaskOptions::default();
        assert_eq!(plain.born(Status::Queued, &[]), (Status::Queued, doc! {}));
        let after = TaskOptions { after: vec![first, second], ..TaskOptions::default() };
        let expected = doc! { "after": [first, second], "after_when": "succeeded", "after_failed": "cancel" };
        assert_eq!(after.fields(), expected);
        let blocked = doc! { "gate": "new", "waiting_for": [first, second] };
        assert_eq!(after.born(Status::Deferred, &after.after), (Status::Blocked, blocked));
        let locks = TaskOptions { locks: LockRequest::list(["b/2", "a"]).unwrap(), ..TaskOptions::default() };
        assert_eq!(locks.fields(), doc! { "locks": ["a", "b/2"] });
        assert_eq!(locks.born(Status::Deferred, &[]), (Status::Deferred, doc! {}), "it is not due yet");
        let blocked = doc! { "gate": "new", "lock_round": 1_i64 };
        assert_eq!(locks.born(Status::Queued, &[]), (Status::Blocked, blocked));
    }

    #[test]
    fn many_tasks_do_not_come_after_many_others() {
        let parent = TaskId(bson::oid::ObjectId::from_bytes([1; 12]));
        let after = TaskOptions { after: vec![parent; 1_000], ..TaskOptions::default() };
        assert!(after.check_links(1_000).is_ok());
        assert!(matches!(after.check_links(1_001), Err(SubmitError::TooManyLinks)));
        assert_eq!(after.most_tasks(), 1_000);
        let chain = TaskOptions { chain: true, ..after };
        assert!(chain.check_links(1_000_000).is_ok());
        assert!(TaskOptions::default().check_links(usize::MAX).is_ok());
        assert_eq!(TaskOptions::default().most_tasks(), usize::MAX);
    }

    #[test]
    fn a_delay_counts_from_the_time_of_the_server() {
        let now = DateTime::from_millis(1_795_163_067_344);
        let later = DateTime::from_millis(1_795_163_068_844);
        assert_eq!(StartAt::In(Duration::from_millis(1500)).time(now), later);
        assert_eq!(StartAt::At(now).time(later), now);
    }

    fn of(fields: Document) -> Result<TaskOptions, String> {
        let mut task = doc! { "_id": ObjectId::new(), "queue": ObjectId::new(), "status": 2 };
        task.extend(fields);
        TaskOptions::of_task(&bson::deserialize_from_document(task).unwrap())
    }

    #[test]
    fn what_was_asked_for_is_asked_for_again() {
        let asked = doc! {
            "timeout": 90_i64, "grace": 1.5, "max_attempts": 3_i64, "unique": "k", "group": "a/b", "priority": 5_i64,
            "tenant": "a", "locks": ["db", "r/2"],
            "steps": [{ "name": "get", "params": { "a": 1 }, "status": -2 }], "tags": ["a=1", "b"],
        };
        assert_eq!(of(asked.clone()).unwrap().fields(), asked);
    }

    #[test]
    fn what_was_for_that_one_time_is_not() {
        let once = doc! {
            "deadline": DateTime::MAX, "run_at": DateTime::MAX, "after": [ObjectId::new()], "attempt": 3,
            "locks": ["array:6b/4", "schedule:x"], "schedule": ObjectId::new(), "history": [],
        };
        assert_eq!(of(once), Ok(TaskOptions::default()));
        assert!(of(doc! { "steps": 5 }).unwrap_err().contains("steps"));
    }
}
