//! What this node does about the slots that it holds ([`crate::holdings`]): it takes those that it needs, gives up those that it does not, and takes back those of
//! holders that are gone.

use std::collections::HashMap;
use std::time::Instant;

use disbatch_core::model::QueueId;
use disbatch_core::slots::Holder;
use disbatch_core::store::StoreError;
use disbatch_core::task::Slot;

use crate::holdings::Keeps;
use crate::node::Node;

impl Node {
    /// Has this node hold those of `slots` that it does not hold yet. Those that others hold are removed, and returned.
    pub(crate) async fn hold(
        &mut self,
        queue: QueueId,
        slots: &mut Vec<Slot>,
    ) -> Result<Vec<u64>, StoreError> {
        let numbers: Vec<u64> = slots.iter().map(|slot| slot.number).collect();
        let lacking = self.capacity.holdings.lacking(queue, &numbers);
        if lacking.is_empty() || self.capacity.watch.is_forbidden() {
            return Ok(Vec::new());
        }
        let holder = self.capacity.holdings.holder();
        let held = self.store.hold_slots(queue, (holder, &self.name), &lacking).await;
        let held = self.if_allowed(held).inspect_err(|_| self.renounce())?;
        let Some(held) = held else { return Ok(Vec::new()) };
        self.capacity.holdings.add(holder, queue, &held);
        let refused: Vec<u64> = lacking.into_iter().filter(|slot| !held.contains(slot)).collect();
        slots.retain(|slot| !refused.contains(&slot.number));
        Ok(refused)
    }

    /// Tries whether this user may hold slots, if that is not known.
    pub(crate) async fn try_right_to_hold(&mut self) -> Result<(), StoreError> {
        if !self.capacity.watch.wants_try(Instant::now()) {
            return Ok(());
        }
        // Of one that has none yet.
        let closed = self.store.close_slots(Holder::drawn()).await;
        if self.if_allowed(closed)?.is_some() {
            self.capacity.watch.tried(true, Instant::now());
        }
        Ok(())
    }

    /// What came of an operation on slots. `None`: this user may not hold any, and that is known from now on.
    fn if_allowed<T>(&mut self, done: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        let error = match done {
            Err(error) if error.is_forbidden() => error,
            done => return done.map(Some),
        };
        tracing::warn!(%error, "this user may not hold slots, so that limits are kept by counting, which costs more; `disbatch create-users` gives the right to");
        let now = Instant::now();
        self.capacity.holdings.renounce();
        self.capacity.watch.tried(false, now);
        self.capacity.limits.looked(false, now);
        Ok(None)
    }

    /// Goes on as another holder of slots, with none: nobody knows whether what was sent takes effect.
    pub(crate) fn renounce(&mut self) {
        self.capacity.holdings.renounce();
        self.end_handover(|_| true);
        self.beats_soon();
    }

    /// Finds out which slots in doubt are free by now.
    pub(crate) async fn resolve_doubts(&mut self) -> Result<(), StoreError> {
        for held in std::mem::take(&mut self.runners.doubtful) {
            if let Some(slot) = held.slot {
                self.capacity.watch.doubt(held.queue, slot, held.task);
            }
        }
        let tasks = self.capacity.watch.tasks_to_ask(Instant::now());
        if !tasks.is_empty() {
            let still = self.store.still_taken(&tasks).await?;
            self.capacity.watch.asked(&tasks, &still);
        }
        Ok(())
    }

    /// Gives up free slots that this node does not use, or that others want.
    pub(crate) async fn release_slots(&mut self, is_leaving: bool) -> Result<(), StoreError> {
        self.capacity.watch.reached(Instant::now());
        if self.capacity.holdings.fence().is_none()
            || !self.runners.untold.is_empty()
            || self.runners.uncertain
            || !(self.capacity.watch.wants_release(Instant::now()) || is_leaving)
        {
            return Ok(());
        }
        self.resolve_doubts().await?;
        let used = self.runners.launcher.slots();
        let used = used.chain(self.capacity.watch.doubtful().map(|(slot, _)| slot)).collect();
        let is_alone = self.capacity.sharing.alone(&self.name).is_some() && !self.has_rival();
        let is_full =
            self.capacity.maxthreads.is_some_and(|most| self.runners.launcher.running() as u64 >= most);
        let (sharing, dry) = (&self.capacity.sharing, &self.dry);
        let limits: HashMap<QueueId, u64> =
            self.queues.known().iter().map(|queue| (queue.id, queue.claim_limit())).collect();
        let is_given =
            |id: QueueId| is_full || !sharing.may_keep(id) || (sharing.is_wanted(id) && dry.contains(&id));
        let keeps = |id: QueueId| match limits.get(&id) {
            None => Keeps::Nothing,
            Some(_) if is_leaving => Keeps::Nothing,
            Some(limit) if is_alone => Keeps::Below(*limit),
            Some(_) if is_given(id) => Keeps::Nothing,
            Some(limit) => Keeps::Lately(*limit),
        };
        let free = self.capacity.holdings.superfluous(&used, keeps, Instant::now());
        if free.is_empty() {
            return Ok(());
        }
        let holder = self.capacity.holdings.holder();
        let released = self.store.release_slots(holder, &free).await;
        self.if_allowed(released).inspect_err(|_| self.renounce())?;
        Ok(())
    }

    /// Takes back the slots of holders that are gone. Returns whether there were some.
    pub(crate) async fn take_back_slots(&mut self, tasks_wait: bool) -> Result<bool, StoreError> {
        let asked = Instant::now();
        if !self.capacity.watch.wants_look(tasks_wait, asked) {
            return Ok(false);
        }
        let (holders, beats) = futures::try_join!(self.store.holders(), self.store.beats_of_holders())?;
        let own = self.capacity.holdings.holder();
        let gone = self.capacity.watch.gone(&holders, &beats, own, (asked, Instant::now()));
        let taken_back = self.store.take_back_slots(&gone).await;
        let Some(slots) = self.if_allowed(taken_back)? else { return Ok(false) };
        if slots > 0 {
            tracing::debug!(slots, holders = gone.len(), "took back slots of holders that are gone");
            self.capacity.others.clear();
        }
        Ok(slots > 0)
    }
}
