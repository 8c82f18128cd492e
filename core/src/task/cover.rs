//! Covered runs: while the DEN of a node answers for a run, that has no lease of its own that ends. So it costs the database no
//! write, however long it takes: a node reads all of its runs together now and then.
//!
//! A start gives a task a lease. When its runner first asks its DEN to renew that, the DEN puts an end in its place that does not come
//! ([`COVERED`]). From then on it answers for the run, as long as the runner asks: it looks whether the task is still there like that, at a server that has
//! a majority confirm that it is the primary. The plugin may live for its share of a lease from the moment before.
//!
//! Why that is as good as a lease: nobody takes a covered run away. Whoever finds that nobody answers for it, since its node or its runner
//! is silent, gives it a lease first, a whole one from that moment and the time that giving it may take. So of what is taken away it was last said a lease before, or earlier, that it may go on.
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
use crate::model::{NodeName, Task, TaskId};
use crate::store::{Store, StoreError, collect, millis, with};

/// The lease of a covered run ends so long after this time, in the year 9000, as its leases last.
const COVERED: DateTime = DateTime::from_millis(221_845_392_000_000);

/// A lease that is given to a covered run lasts so much longer: so long its command may take at most.
const GIVEN_WITHIN: Duration = Duration::from_secs(1);

/// No lease lasts longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Names in which tasks are claimed or running, and of whom nothing is heard.
#[derive(Debug, Default)]
pub struct SilentOwners {
    /// No node has the name. Programs of Perl Disbatch write the entry of their node before they claim, and every second.
    pub unknown: HashSet<String>,
    /// No DEN of this system of that name was heard of within half of its lease.
    pub silent: Vec<String>,
}

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
        let is_seen = |task: &&Task| {
            let until = task.rest.get_datetime("lease_until");
            run.has(task) && until.is_ok_and(|until| is_covered(*until))
        };
        match task.filter(is_seen) {
            Some(task) => Ok(Renewed::Held(Wishes::of(&task.rest, run))),
            // Somebody has just given it a lease, or has the task; or it cannot be read.
            None => self.renew_lease(run, lease).await,
        }
    }

    /// Gives a lease to the covered runs of `node` for which its DEN does not answer: those besides `answered`. Returns how many.
    #[operation]
    pub async fn uncover_own(
        &self,
        node: &NodeName,
        answered: &[TaskId],
        lease: Duration,
    ) -> Result<usize, StoreError> {
        self.uncover(doc! { "node": node }, doc! { "_id": { "$nin": answered } }, lease).await
    }

    /// The same for those of these nodes, and for those in whose name no DEN answers, since it is none: somebody has written it by hand.
    #[operation]
    pub async fn uncover_silent(&self, nodes: &[String], lease: Duration) -> Result<usize, StoreError> {
        // As ranges of the index of nodes, which pass over the covered runs of all others.
        let unanswered =
            doc! { "$or": [{ "node": { "$in": nodes } }, { "node": { "$not": { "$gt": "" } } }] };
        self.uncover(unanswered, Document::new(), lease).await
    }

    #[operation]
    pub async fn silent_owners(&self) -> Result<SilentOwners, StoreError> {
        // The server steps from name to name, as the filter begins with the name.
        let found = self.tasks().distinct("node", with(taken(), doc! { "node": { "$gt": "" } })).await?;
        let owners: HashSet<&str> = found.iter().filter_map(Bson::as_str).collect();
        if owners.is_empty() {
            return Ok(SilentOwners::default());
        }
        let of_owners = doc! { "node": { "$in": owners.iter().collect::<Vec<_>>() } };
        let only = doc! { "_id": 0, "node": 1, "is_heard": crate::node::is_heard_in_half_a_lease() };
        let nodes = collect(self.nodes().find(of_owners).projection(only)).await?;
        let names = |which: fn(&Document) -> bool| {
            let names = nodes.iter().filter(|node| which(node)).filter_map(|node| node.get_str("node").ok());
            names.collect::<HashSet<&str>>()
        };
        let (known, heard) = (names(|_| true), names(|node| node.get_bool("is_heard").unwrap_or(false)));
        let without = |these: &HashSet<&str>| -> HashSet<String> {
            owners.difference(these).map(|name| (*name).to_owned()).collect()
        };
        Ok(SilentOwners { unknown: without(&known), silent: without(&heard).into_iter().collect() })
    }

    /// Gives a lease to covered runs that are `like` this, of those that `which` finds.
    async fn uncover(&self, like: Document, which: Document, lease: Duration) -> Result<usize, StoreError> {
        let like = with(covered(), like);
        let found = self.some_ids(with(like.clone(), which)).await?;
        let leased = Transition::within().compute("lease_until", whole_lease(lease));
        let give = |task| Statement {
            within: Some(GIVEN_WITHIN),
            ..Statement::of(task, like.clone(), leased.clone())
        };
        let statements: Vec<Statement> = found.iter().filter_map(Bson::as_object_id).map(give).collect();
        match self.update_tasks(&statements, self.database().write_concern()).await {
            // It is done again.
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, "cannot give leases yet");
                Ok(0)
            }
            done => done.map(|_| statements.len()),
        }
    }
}

pub(crate) fn is_covered(until: DateTime) -> bool {
    until >= COVERED
}

/// Claims have such a lease only if somebody has queued a run by hand.
fn covered() -> Document {
    with(taken(), doc! { "lease_until": { "$gte": COVERED }, DETACHED: attached() })
}

/// The end of a lease that is given now: of one as long as those of its run, or as long as `lease` if that is not known. The server's time is that at which
/// the command began.
fn whole_lease(lease: Duration) -> Document {
    let of_run = doc! { "$subtract": ["$lease_until", COVERED] };
    let is_known = doc! { "$lte": [of_run.clone(), millis(LONGEST)] };
    let whole = doc! { "$cond": [is_known, of_run, millis(lease)] };
    doc! { "$add": ["$$NOW", whole, millis(GIVEN_WITHIN)] }
}
