//! Covered runs: while the DEN of a node answers for a run, that has no lease of its own that ends. So it costs the database no
//! write, however long it takes: a node reads all of its runs together now and then.
//!
//! A start gives a task a lease. When its runner first asks its DEN to renew that, the DEN puts an end in its place that does not come
//! ([`COVERED`]). From then on it answers for the run, as long as the runner asks: it looks whether the task is still there like that, at a server that has
//! a majority confirm that it is the primary. The plugin may live for its share of a lease from the moment before.
//!
//! Why that is as good as a lease: nobody takes a covered run away. Whoever finds that nobody answers for it, since its node or its runner
//! is silent, gives it a lease first, a whole one from that moment. So of what is taken away it was last said a lease before, or earlier, that it may go on.
//! A run that gets a lease in error loses nothing: it is covered again with the next renewal. A runner that does not hear its DEN takes a lease for its task
//! by itself.

use std::collections::HashSet;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;

use super::external::{DETACHED, attached};
use super::statements::Statement;
use super::sweep::taken;
use super::transition::Transition;
use super::{Renewed, Run, Wishes};
use crate::model::{NodeName, Status, Task, TaskId};
use crate::store::{Store, StoreError, collect, millis, with};

/// The lease of a covered run ends so long after this time, in the year 9000, as its leases last.
pub(crate) const COVERED: DateTime = DateTime::from_millis(221_845_392_000_000);

/// No lease is taken to last longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl Run {
    /// A lease that does not end: its DEN answers for it.
    pub(super) fn cover(&self, lease: Duration) -> Statement {
        let like = with(self.like(), doc! { "lease_until": { "$not": { "$gte": COVERED } } });
        let transition = Transition::within().set("lease_until", COVERED.saturating_add_duration(lease));
        Statement::of(self.task.0, like, transition)
    }
}

impl Store {
    /// Whether a run that a DEN wants to answer for has its task, as that was read since.
    pub(super) async fn recognise_cover(
        &self,
        run: &Run,
        lease: Duration,
        task: Option<&Task>,
    ) -> Result<Renewed, StoreError> {
        let Some(task) = task.filter(|task| run.has(task)) else { return Ok(Renewed::Lost) };
        match task.rest.get_datetime("lease_until") {
            Ok(until) if is_covered(*until) => Ok(Renewed::Held(Wishes::of(&task.rest, run))),
            // Somebody has just given it a lease.
            _ => self.renew_lease(run, lease).await,
        }
    }

    /// Gives a lease to the covered runs of `node` for which its DEN does not answer: those besides `answered`. Returns how many.
    #[operation]
    pub async fn uncover_own(
        &self,
        node: &NodeName,
        answered: &[TaskId],
        lease: Duration,
    ) -> Result<u64, StoreError> {
        self.uncover(with(covered(), doc! { "node": node, "_id": { "$nin": answered } }), lease).await
    }

    /// The same for all nodes besides `node` whose DEN has been silent for half of its lease, or has ended.
    #[operation]
    pub async fn uncover_silent(&self, node: &NodeName, lease: Duration) -> Result<u64, StoreError> {
        // The server steps from name to name.
        let found = self.tasks().distinct("node", taken()).await?;
        let mut names: HashSet<&str> = found.iter().filter_map(Bson::as_str).collect();
        names.remove(node.as_str());
        if names.is_empty() {
            return Ok(0);
        }
        let heard = crate::node::heard_in_half_a_lease();
        let heard = collect(self.nodes().find(heard).projection(doc! { "_id": 0, "node": 1 })).await?;
        for entry in &heard {
            names.remove(entry.get_str("node").unwrap_or_default());
        }
        if names.is_empty() {
            return Ok(0);
        }
        let names: Vec<&str> = names.into_iter().collect();
        self.uncover(with(covered(), doc! { "node": { "$in": names } }), lease).await
    }

    async fn uncover(&self, these: Document, lease: Duration) -> Result<u64, StoreError> {
        let leased = Transition::within().compute("lease_until", whole_lease(lease));
        self.update_each(self.some_ids(these.clone()).await?, &these, leased.pipeline()).await
    }
}

/// Whether the lease of a run that ends at that time is one of a covered run.
pub(crate) fn is_covered(until: DateTime) -> bool {
    until >= COVERED
}

fn covered() -> Document {
    doc! { "status": Status::Running, "lease_until": { "$gte": COVERED }, DETACHED: attached() }
}

/// The end of a lease that begins now: of one as long as those of its run, or as long as `lease` if that is longer.
fn whole_lease(lease: Duration) -> Document {
    let of_run = doc! { "$subtract": ["$lease_until", COVERED] };
    let known = doc! { "$min": [of_run, millis(LONGEST)] };
    doc! { "$add": ["$$NOW", { "$max": [known, millis(lease)] }] }
}
