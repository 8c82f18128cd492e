//! Admission: whether new tasks are taken at the moment, for whom, and how many.
//!
//! `admission` has a rule for each scope ([`Scope`]) that somebody has made one for, and whoever submits asks which of them
//! decides ([`Rules`]). What is refused is not stored. What is held is born blocked (-4) with `gate: "admission"`, and goes on
//! as soon as no rule holds it any more ([`Store::release_held`]).
//!
//! **No task is held for ever.** Between reading the rules and inserting a task, the rule that held it may be lifted, and
//! whoever lifts one may die before all tasks are released. So a rule that was changed stays unsettled for a while
//! ([`GRACE`]), and as long as there is one, tasks that no rule holds are looked for again and again
//! ([`Store::finish_admission`]), by one process at a time. A lifted rule leaves its document until then. All held tasks are
//! looked at now and then besides.
//!
//! **Tenants** may have limits besides; see [`crate::tenants`]. Both are asked in [`Store::admit`], which every submission
//! passes, and where new tasks get the tags that their queue takes from their parameters, too; see [`crate::tags`].

mod follow;
mod rules;
mod standing;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use disbatch_operation::operation;

pub use follow::follow;
pub use rules::{Action, Rule, Rules, Scope, Whose};
pub use standing::Standing;

use crate::lock;
use crate::model::{QueueId, Status, Task};
use crate::store::{Altered, Store, StoreError, collect, put};
use crate::tags::TagIndex;
use crate::task::{SubmitError, TaskOptions};
use crate::tenants::{Lately, Reservation};

/// At which gate a task is that a rule holds.
pub(crate) const GATE: &str = "admission";

/// That no rule has let a task go yet. It stays when the task is cancelled, so that another try is held too.
pub(crate) const HELD: &str = "held";

/// Which reservation a task of a limited tenant was made under.
pub(crate) const RESERVED: &str = "reserved";

/// From reading the rules to the end of its insertion, no submission takes longer.
pub const GRACE: Duration = Duration::from_secs(600);

/// What a rule consists of.
const FIELDS: [&str; 4] = ["scope", "value", "action", "reason"];

/// Rules and tenants are remembered for so long. What somebody else has changed is known after that.
const KEPT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRule {
    pub scope: Scope,
    pub action: Action,
    pub reason: Option<String>,
    /// Who wants it, in words.
    pub by: String,
}

/// Tasks that may be inserted, if [`Store::conclude`] is called afterwards.
#[derive(Debug)]
pub(crate) struct Admitted {
    queue: QueueId,
    tenant: Option<String>,
    owner: Option<String>,
    pub(crate) tag_index: TagIndex,
    is_held: bool,
    reservation: Option<Reservation>,
}

impl Admitted {
    /// Writes into new tasks what follows for them.
    pub(crate) fn mark(&self, tasks: &mut [Document]) {
        for task in tasks {
            put(task, "tenant", self.tenant.as_ref());
            put(task, RESERVED, self.reservation.as_ref().map(|reservation| reservation.id));
            self.tag_index.mark(task);
            // What waits at a gate of another kind has to pass that one first, and comes after other tasks anyway.
            let is_new = task.get("gate").is_none_or(|gate| gate.as_str() == Some("new"));
            if self.is_held && is_new {
                task.insert("status", Status::Blocked);
                task.insert("gate", GATE);
                task.insert(HELD, true);
                // It is not linked to those that it comes after until it is released.
                task.remove("waiting_for");
            }
        }
    }

    fn whose(&self) -> Whose<'_> {
        Whose { queue: self.queue, tenant: self.tenant.as_deref(), owner: self.owner.as_deref() }
    }
}

impl Store {
    /// All rules. For a user of MongoDB that may not read them, as one of a time before there were any, there are none.
    #[operation]
    pub async fn admission_rules(&self) -> Result<Rules, StoreError> {
        Ok(StoreError::unless_forbidden(self.stored_rules().await)?.unwrap_or_default())
    }

    /// The rule for all tasks, if there is one that does not accept them. One that somebody else has made or lifted within the last
    /// second may not be known yet.
    #[operation]
    pub async fn rule_for_all(&self) -> Result<Option<Rule>, StoreError> {
        let is_closed = |rule: &Rule| rule.action != Action::Accept;
        if let Some(known) = self.admission.get(Instant::now()) {
            return Ok(known.rules.get(&Scope::All).cloned().filter(is_closed));
        }
        let found = self.admission().find_one(doc! { "_id": Scope::All.key() }).await;
        let found = StoreError::unless_forbidden(found)?.flatten();
        Ok(found.as_ref().and_then(Rule::stored).filter(is_closed))
    }

    pub(crate) async fn stored_rules(&self) -> Result<Rules, StoreError> {
        let found = collect(self.admission().find(doc! {})).await?;
        Ok(found.iter().filter_map(Rule::stored).collect())
    }

    /// Makes a rule, in place of the one that its scope has. Returns what has changed of its `scope`, `value`, `action` and
    /// `reason`. It is known to this process at once, and to others within a second.
    #[operation(scope = %rule.scope.key())]
    pub async fn set_rule(&self, rule: &NewRule) -> Result<Altered, StoreError> {
        let mut fields = doc! { "scope": rule.scope.kind(), "action": rule.action.as_str() };
        put(&mut fields, "value", rule.scope.value());
        put(&mut fields, "reason", rule.reason.as_ref());
        let literal =
            |(name, value): (&String, &Bson)| (name.clone(), Bson::from(doc! { "$literal": value.clone() }));
        let mut set: Document = fields.iter().map(literal).collect();
        set.insert("by", doc! { "$literal": &rule.by });
        set.extend(doc! { "at": "$$NOW", "changed": "$$NOW", "settled": false });
        // Without a reason, that of the rule before is gone.
        let update = vec![doc! { "$unset": ["reason"] }, doc! { "$set": set }];
        let rules = self.admission();
        let before = rules.find_one_and_update(doc! { "_id": rule.scope.key() }, update).upsert(true).await?;
        self.admission.forget(Instant::now());
        Ok(Altered { before: before.and_then(shown), after: fields })
    }

    /// Returns what it was; `None`: there is none. Tasks that it held are released by [`Store::release_held`].
    #[operation(scope = %scope.key())]
    pub async fn lift_rule(&self, scope: &Scope) -> Result<Option<Document>, StoreError> {
        let there = doc! { "_id": scope.key(), "action": { "$exists": true } };
        let update = vec![
            doc! { "$set": { "changed": "$$NOW", "settled": false } },
            doc! { "$unset": ["action", "reason", "by", "at"] },
        ];
        let before = self.admission().find_one_and_update(there, update).await?;
        self.admission.forget(Instant::now());
        Ok(before.and_then(shown))
    }

    /// Decides about `tasks` new tasks of a queue: refuses them, or says what they have to be born with. Afterwards
    /// [`Store::conclude`] is to be called, whatever has become of them.
    pub(crate) async fn admit(
        &self,
        queue: QueueId,
        options: &TaskOptions,
        tasks: usize,
    ) -> Result<Admitted, SubmitError> {
        let mut admitted = self.admit_again(queue, options).await?;
        if let Some(tenant) = admitted.tenant.clone() {
            admitted.reservation = self.reserve_tasks(&tenant, tasks as u64).await?;
        }
        Ok(admitted)
    }

    /// The same for tasks of a submission that has been decided about before, and is to be completed: only rules are asked.
    pub(crate) async fn admit_again(
        &self,
        queue: QueueId,
        options: &TaskOptions,
    ) -> Result<Admitted, SubmitError> {
        let (admitted, rule) = self.judge(queue, options).await?;
        match rule {
            Some(Rule { scope, action: Action::Reject, reason, .. }) => {
                Err(SubmitError::Rejected { scope, reason })
            }
            Some(rule) => Ok(Admitted { is_held: rule.action == Action::Pause, ..admitted }),
            None => Ok(admitted),
        }
    }

    /// The same for a task that nobody submits, as one of a schedule: it is held where others are refused, and counts without
    /// being limited.
    pub(crate) async fn admit_unasked(
        &self,
        queue: QueueId,
        options: &TaskOptions,
    ) -> Result<Admitted, StoreError> {
        let (admitted, rule) = self.judge(queue, options).await?;
        Ok(Admitted { is_held: rule.is_some_and(|rule| rule.action != Action::Accept), ..admitted })
    }

    /// Whose new tasks of a queue are, and the rule that decides about them.
    async fn judge(
        &self,
        queue: QueueId,
        options: &TaskOptions,
    ) -> Result<(Admitted, Option<Rule>), StoreError> {
        let known = self.known_admission().await?;
        // A queue may have become that of a tenant since a schedule of it was made.
        let tenant = known.tenants.get(&queue).cloned().or_else(|| options.tenant.clone());
        let owner = options.owner.clone();
        let tag_index = known.tag_indexes.get(&queue).cloned().unwrap_or_default();
        let admitted = Admitted { queue, tenant, owner, tag_index, is_held: false, reservation: None };
        let rule = known.rules.deciding(&admitted.whose()).cloned();
        Ok((admitted, rule))
    }

    /// Gives back what tasks were admitted with that nobody inserts.
    pub(crate) async fn retract(&self, admitted: &Admitted) {
        if let Some(reservation) = &admitted.reservation {
            self.give_back_reservation(reservation).await;
        }
    }

    /// Gives back what tasks were admitted with, after they were inserted or not, and returns `outcome`. What cannot be given
    /// back runs out by itself.
    pub(crate) async fn conclude<T>(
        &self,
        admitted: Admitted,
        outcome: Result<T, SubmitError>,
    ) -> Result<T, SubmitError> {
        if let Some(reservation) = &admitted.reservation {
            match &outcome {
                // They may still be inserted: a server may be at it.
                Err(SubmitError::Store(error)) if error.is_transient() => {}
                // Of those of a collection, some may be there.
                Ok(_) | Err(SubmitError::Store(_) | SubmitError::OverBudget(_)) => {
                    self.settle_reservation(reservation).await;
                }
                // None of them is there.
                Err(_) => self.retract(&admitted).await,
            }
        }
        if admitted.is_held
            && outcome.is_ok()
            && let Err(error) = self.release_if_free(&admitted).await
        {
            tracing::warn!(%error, "cannot look again whether new tasks are still to be held");
        }
        outcome
    }

    /// Releases new tasks if the rule that holds them was lifted while they were inserted.
    async fn release_if_free(&self, admitted: &Admitted) -> Result<(), StoreError> {
        let rules = self.admission_rules().await?;
        if rules.action(&admitted.whose()) == Action::Accept {
            self.release_held().await?;
        }
        Ok(())
    }

    /// Whether a rule holds a task that is tried again: one that none has let go yet, as it was cancelled before. It is held where
    /// new ones are refused, too.
    pub(crate) async fn is_still_held(&self, task: &Task) -> Result<bool, StoreError> {
        if !task.rest.get_bool(HELD).unwrap_or(false) {
            return Ok(false);
        }
        Ok(self.admission_rules().await?.action(&Whose::of(task)) != Action::Accept)
    }

    /// The rule that holds a task. `None`: it is not held, or no rule holds it any more.
    pub(crate) async fn rule_that_holds(&self, task: &Task) -> Result<Option<Rule>, StoreError> {
        if task.status != Status::Blocked || task.rest.get_str("gate").ok() != Some(GATE) {
            return Ok(None);
        }
        let rules = self.admission_rules().await?;
        Ok(rules.deciding(&Whose::of(task)).filter(|rule| rule.action != Action::Accept).cloned())
    }

    async fn known_admission(&self) -> Result<Arc<CachedAdmission>, StoreError> {
        let now = Instant::now();
        if let Some(known) = self.admission.get(now) {
            return Ok(known);
        }
        let (rules, tenants, tag_indexes) =
            futures::try_join!(self.admission_rules(), self.tenants_of_queues(), self.tag_indexes())?;
        Ok(self.admission.set(now, CachedAdmission { rules, tenants, tag_indexes }))
    }
}

/// What a rule is, without when it was made. `None`: it was lifted.
fn shown(rule: Document) -> Option<Document> {
    let has_action = rule.contains_key("action");
    let fields = rule.into_iter().filter(|(name, _)| FIELDS.contains(&name.as_str()));
    has_action.then(|| fields.collect())
}

/// What a process remembers of rules and tenants for a moment, so that a submission costs no reading of its own.
#[derive(Debug, Default)]
struct CachedAdmission {
    pub rules: Rules,
    /// The tenants of those queues that have one.
    pub tenants: HashMap<QueueId, String>,
    /// What queues take from parameters as tags.
    pub tag_indexes: HashMap<QueueId, TagIndex>,
}

#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Remembered>, Lately);

#[derive(Debug, Default)]
struct Remembered {
    /// What was asked for at a moment.
    known: Option<(Instant, Arc<CachedAdmission>)>,
    /// What was asked for before this counts no more.
    changed: Option<Instant>,
}

impl Memory {
    pub(crate) const fn lately(&self) -> &Lately {
        &self.1
    }

    /// What is known at this moment, unless that is too long ago.
    fn get(&self, now: Instant) -> Option<Arc<CachedAdmission>> {
        let remembered = lock(&self.0);
        let (at, known) = remembered.known.as_ref()?;
        (now.saturating_duration_since(*at) < KEPT).then(|| Arc::clone(known))
    }

    /// Remembers what was asked for at this moment.
    fn set(&self, asked: Instant, known: CachedAdmission) -> Arc<CachedAdmission> {
        let known = Arc::new(known);
        let mut remembered = lock(&self.0);
        let is_newest = remembered.known.as_ref().is_none_or(|(at, _)| *at <= asked);
        if is_newest && remembered.changed.is_none_or(|changed| changed <= asked) {
            remembered.known = Some((asked, Arc::clone(&known)));
        }
        known
    }

    /// Forgets everything, as it was changed by this moment.
    pub(crate) fn forget(&self, now: Instant) {
        let mut remembered = lock(&self.0);
        *remembered = Remembered { known: None, changed: Some(now) };
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    fn admitted(is_held: bool) -> Admitted {
        let queue = QueueId(ObjectId::from_bytes([1; 12]));
        let (tenant, tag_index) = (Some("acme".to_owned()), TagIndex::default());
        Admitted { queue, tenant, owner: None, tag_index, is_held, reservation: None }
    }

    #[test]
    fn held_tasks_are_born_at_their_gate() {
        let id = ObjectId::from_bytes([2; 12]);
        let mut tasks = [
            doc! { "status": -2 },
            doc! { "status": -4, "gate": "new", "after": [id], "waiting_for": [id] },
            doc! { "status": -4, "gate": "array" },
        ];
        let mut free = tasks.clone();
        admitted(true).mark(&mut tasks);
        let expected = [
            doc! { "status": -4, "tenant": "acme", "gate": "admission", "held": true },
            doc! { "status": -4, "gate": "admission", "held": true, "after": [id], "tenant": "acme" },
            doc! { "status": -4, "gate": "array", "tenant": "acme" },
        ];
        assert_eq!(tasks, expected);
        admitted(false).mark(&mut free);
        assert_eq!(free[0], doc! { "status": -2, "tenant": "acme" });
        assert!(free[1].contains_key("waiting_for"));
    }

    #[test]
    fn a_lifted_rule_is_none() {
        assert_eq!(shown(doc! { "_id": "all", "scope": "all", "settled": false }), None);
        let rule = doc! { "_id": "all", "scope": "all", "action": "reject", "at": 1, "by": "b" };
        assert_eq!(shown(rule), Some(doc! { "scope": "all", "action": "reject" }));
    }

    fn known() -> CachedAdmission {
        let rule = Rule {
            scope: Scope::All,
            action: Action::Reject,
            reason: None,
            by: String::new(),
            at: bson::DateTime::from_millis(0),
        };
        CachedAdmission { rules: [rule].into_iter().collect(), ..CachedAdmission::default() }
    }

    #[test]
    fn what_is_known_is_forgotten_after_a_moment_or_at_once() {
        let memory = Memory::default();
        let now = Instant::now();
        assert!(memory.get(now).is_none());
        memory.set(now, known());
        assert!(memory.get(now + KEPT / 2).is_some_and(|known| known.rules.iter().next().is_some()));
        assert!(memory.get(now + KEPT).is_none());
        memory.set(now + KEPT, known());
        let changed = now + KEPT + KEPT / 2;
        memory.forget(changed);
        assert!(memory.get(changed).is_none());
        memory.set(now + KEPT, known());
        assert!(memory.get(changed).is_none(), "it was asked for before");
        memory.set(changed, known());
        assert!(memory.get(changed).is_some());
    }

    #[test]
    fn an_older_answer_that_comes_late_takes_the_place_of_none() {
        let memory = Memory::default();
        let now = Instant::now();
        memory.set(now + KEPT / 4, known());
        memory.set(now, CachedAdmission::default());
        assert!(memory.get(now + KEPT / 2).is_some_and(|known| known.rules.iter().next().is_some()));
    }
}
