//! What a process remembers of rules and tenants for a moment, so that a submission costs no reading of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Rules;
use crate::model::QueueId;
use crate::tags::TagIndex;
use crate::tenants::Lately;

/// For so long. What somebody else has changed is known after that.
const KEPT: Duration = Duration::from_secs(1);

/// What there is to know.
#[derive(Debug, Default)]
pub(super) struct CachedAdmission {
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
    /// How much tenants had lately.
    pub(crate) const fn lately(&self) -> &Lately {
        &self.1
    }

    /// What is known at this moment, unless that is too long ago.
    pub(super) fn get(&self, now: Instant) -> Option<Arc<CachedAdmission>> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, known) = remembered.known.as_ref()?;
        (now.saturating_duration_since(*at) < KEPT).then(|| Arc::clone(known))
    }

    /// Remembers what was asked for at this moment.
    pub(super) fn set(&self, asked: Instant, known: CachedAdmission) -> Arc<CachedAdmission> {
        let known = Arc::new(known);
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_newest = remembered.known.as_ref().is_none_or(|(at, _)| *at <= asked);
        if is_newest && remembered.changed.is_none_or(|changed| changed <= asked) {
            remembered.known = Some((asked, Arc::clone(&known)));
        }
        known
    }

    /// Forgets everything, as it was changed by this moment.
    pub(crate) fn forget(&self, now: Instant) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *remembered = Remembered { known: None, changed: Some(now) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Action, Rule, Scope};

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
        assert!(memory.get(now + KEPT / 2).is_some_and(|known| !known.rules.is_empty()));
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
        assert!(memory.get(now + KEPT / 2).is_some_and(|known| !known.rules.is_empty()));
    }
}
