//! What becomes of a queue's [canary](Canary): any DEN compares how attempts of both versions have ended, and takes the canary back if it is
//! worse. Everybody may look at the same time: the update that takes it back names the canary as it was read, so that it is taken back once,
//! and never one that somebody has begun since.

mod fisher;

use bson::{Bson, doc};
use disbatch_operation::operation;

pub use fisher::{LEAST, Side, WORSE_BELOW, is_worse, probability};

use crate::audit::{Actor, AuditEntry, Object, ObjectKind, Verb, Via};
use crate::model::{CANARY, CANARY_RETURNED, Canary, NodeName, Queue};
use crate::series::Sides;
use crate::store::{Altered, Store, StoreError};
use crate::text;

/// A part of a whole for people: `5 %`, or `0.25 %`.
pub fn percent(part: f64) -> String {
    text::percent(100.0 * part, 2)
}

impl Store {
    /// Takes the canary of `queue`, as it was read, back if it is worse than what it is to take the place of. Returns what was seen then.
    #[operation(queue = %queue.id)]
    pub async fn judge_canary(&self, node: &NodeName, queue: &Queue) -> Result<Option<Sides>, StoreError> {
        let Some(canary) = Canary::of(queue) else { return Ok(None) };
        let sides = self.canary_sides(queue.id, &canary).await?;
        if !is_worse(sides.canary, sides.others) {
            return Ok(None);
        }
        let returned = self.return_canary(queue, &canary, sides).await?;
        let Some(altered) = returned.filter(Altered::is_different) else { return Ok(None) };
        let Altered { before, after } = altered;
        let (id, name) = (Some(queue.id.0), Some(queue.display_name()));
        let object = Object { kind: ObjectKind::Queue, id, name };
        let who = Actor::new(None, Via::Words(format!("Disbatch itself (the DEN of {node})")), "");
        let entry = AuditEntry::new(who, Verb::QueueUpdate, object);
        let entry = AuditEntry { queue: Some(queue.id), before, after: Some(after), ..entry };
        self.note_audit(&entry).await;
        Ok(Some(sides))
    }

    async fn return_canary(
        &self,
        queue: &Queue,
        canary: &Canary,
        sides: Sides,
    ) -> Result<Option<Altered>, StoreError> {
        let stored = |count: u64| Bson::from(i64::try_from(count).unwrap_or(i64::MAX));
        let returned = doc! {
            "version": canary.version.as_str(), "share": canary.share, "began": canary.began, "at": self.now(),
            "failed": stored(sides.canary.failed), "of": stored(sides.canary.ended),
            "others_failed": stored(sides.others.failed), "others_of": stored(sides.others.ended),
            "p": probability(sides.canary, sides.others),
        };
        let fields = doc! { CANARY: Bson::Null, CANARY_RETURNED: returned };
        let as_read = [(CANARY.to_owned(), queue.stored(CANARY).cloned())];
        self.update_queue_from(&crate::model::Selector::Id(queue.id.0), fields, &as_read).await
    }
}
