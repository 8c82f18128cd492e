//! The node's loop: at times that `pace` sets and at every hint it looks after its tasks and claims new ones.
//!
//! Nothing here is remembered that the database does not know: a DEN that is killed and started again goes
//! on where it was, and the runners in between have not noticed.

mod heartbeat;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use disbatch_core::config::Config;
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::metrics::labels::Worker;
use disbatch_core::model::{NodeName, QueueId};
use disbatch_core::service_manager;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::Ahead;
use disbatch_core::wake::{Hints, News};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::capacity::Capacity;
use crate::chores::Clockwork;
use crate::launch::Launcher;
use crate::monitoring::Vitals;
use crate::pace::{Backoff, INTERVAL, Pace};
use crate::plugins::{Availability, Workers};
use crate::processes::Ours;
use crate::queues::Queues;
use crate::runner::{Event, Exit};
use crate::runners::Runners;
use crate::supervise::Supervision;
use crate::tidy::Tidier;
use heartbeat::Rivals;

/// How often it is looked at the end whether the last slots have been handed over.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub struct Node {
    pub(crate) config: Config,
    pub(crate) ours: Ours,
    pub(crate) store: Store,
    pub(crate) name: NodeName,
    pub(crate) instance: String,
    pub(crate) hints: Arc<Hints>,
    news: News,
    pub(crate) pace: Pace,
    pub(crate) queues: Queues,
    pub(crate) runners: Runners,
    /// How many further tasks may be started, and in which slots.
    pub(crate) capacity: Capacity,
    pub(crate) supervision: Supervision,
    pub(crate) availability: Availability,
    pub(crate) judged_canaries: Option<Instant>,
    pub(crate) workers: Workers,
    pub(crate) tidier: Tidier,
    beats_now: bool,
    /// An operator wants it to claim nothing more.
    draining: bool,
    pub(crate) stay: bool,
    /// Whether those that can be interrupted go on elsewhere then.
    pub(crate) interrupt: bool,
    pub(crate) ahead: Ahead,
    /// Queues that had nothing to claim when it was last looked.
    pub(crate) dry: HashSet<QueueId>,
    /// Those of which that was so, and that may have something now.
    pub(crate) once_dry: HashSet<QueueId>,
    /// A round of claims was broken off, and is to go on at once.
    pub(crate) round_goes_on: bool,
    rivals: Rivals,
    /// What looks after schedules, to be woken when there is something to do.
    pub(crate) clockwork: Clockwork,
    /// The database is away: leave it alone for a while.
    database: Backoff,
    vitals: Vitals,
}

impl Node {
    pub fn new(
        config: Config,
        ours: Ours,
        store: Store,
        name: NodeName,
        hints: Arc<Hints>,
        launcher: (Launcher, mpsc::UnboundedReceiver<Event>),
    ) -> Self {
        let holdings = launcher.0.handover().holdings.clone();
        let availability = Availability::look(&config);
        let instance = ObjectId::new();
        let supervision = Supervision::new(config.lease());
        let (pace, capacity) = (Pace::new(config.lease()), Capacity::new(&config, &name, instance, holdings));
        let vitals = Vitals::start(store.clone());
        let tidier = Tidier::start(&config, &name, store.database_name(), ours.plugins);
        Self {
            config,
            ours,
            store,
            name,
            instance: instance.to_hex(),
            hints,
            news: News::all(),
            pace,
            queues: Queues::default(),
            runners: Runners::new(launcher),
            capacity,
            supervision,
            availability,
            judged_canaries: None,
            workers: Workers::default(),
            tidier,
            beats_now: false,
            draining: false,
            stay: false,
            interrupt: false,
            ahead: Ahead::default(),
            dry: HashSet::new(),
            once_dry: HashSet::new(),
            round_goes_on: false,
            rivals: Rivals::default(),
            clockwork: Clockwork::default(),
            database: Backoff::new(INTERVAL, Duration::from_secs(30)),
            vitals,
        }
    }

    /// Works until told to drain, then gives back what has not been started.
    pub async fn run(mut self, lifecycle: &Lifecycle) {
        loop {
            tokio::select! {
                biased;
                () = lifecycle.draining() => break,
                () = self.something_to_do() => {}
            }
            self.vitals.come_round();
            if self.database.left(Instant::now()).is_some() {
                continue;
            }
            match self.measured_look(lifecycle).await {
                Ok(()) => {
                    self.database.worked();
                    self.vitals.looked();
                }
                Err(error) => self.leave_database_alone(&error),
            }
        }
        self.end_handover(|_| true);
        Box::pin(self.drain(lifecycle)).await;
    }

    fn leave_database_alone(&mut self, error: &StoreError) {
        // Hints may have been taken and not been followed.
        self.news = News::all();
        let pause = self.database.failed(Instant::now());
        tracing::error!(%error, retry_in_s = pause.as_secs_f32(), "cannot work with the database");
    }

    async fn something_to_do(&mut self) {
        let now = Instant::now();
        let wait = match self.database.left(now) {
            Some(left) => left,
            None => self.pace.wait(now, self.news.may_claim()),
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.runners.listen() => {}
            () = self.hints.noticed() => {}
        }
        self.runners.take_all();
    }

    /// A pass of the loop, of which monitoring systems are told.
    async fn measured_look(&mut self, lifecycle: &Lifecycle) -> Result<(), StoreError> {
        let began = Instant::now();
        let looked = self.look(lifecycle).await;
        self.store.measure_worker(Worker::Look, began.elapsed(), looked.is_ok());
        self.store.metrics().database_up.set_whether(looked.is_ok());
        looked
    }

    /// One pass of the loop. Whatever woke it, the heartbeat comes first: however many runners end, it must not
    /// starve.
    async fn look(&mut self, lifecycle: &Lifecycle) -> Result<(), StoreError> {
        self.runners.deaths.pass_begins(Instant::now());
        let mut claim = self.runners.have_news() || self.pace.may_start(Instant::now());
        self.news |= self.hints.take();
        self.take_arrivals();
        let (are_coming, are_prompt) = (self.hints.are_coming(), self.hints.are_prompt());
        self.pace.situation.hints = are_coming && are_prompt;
        self.pace.situation.others_wait = are_coming && !are_prompt;
        let is_asked = std::mem::take(&mut self.beats_now);
        if self.pace.wants_beat(Instant::now()) || self.news.node_changed || is_asked {
            self.beat(lifecycle.is_draining()).await?;
            claim |= std::mem::take(&mut self.news.node_changed) || is_asked;
            self.pace.beaten(Instant::now());
            if let Some(rate) = self.runners.launcher.handover().rate(Instant::now()) {
                self.hints.hands_over(rate);
            }
            self.availability.refresh(&self.config);
            self.look_after_containers();
            self.runners.look_after_idle();
        }
        self.follow_news().await?;
        let may_claim = !self.draining && !lifecycle.is_draining();
        if self.pace.wants_look(Instant::now()) {
            claim |= self.upkeep(may_claim && self.runners.may_launch()).await?;
        }
        self.settle_all().await?;
        let hinted = self.news.may_claim() && self.pace.follows_hints(Instant::now());
        if (claim || hinted) && may_claim && self.runners.may_launch() {
            let before = self.runners.launcher.running();
            self.claim_and_launch(lifecycle).await?;
            let claimed = self.runners.launcher.running().saturating_sub(before);
            if claimed > 0 {
                self.pace.claimed();
            }
            if hinted {
                self.pace.followed_hints(Instant::now(), claimed);
            }
        }
        // What is under way has to come to an end before it is known what a runner with lanes was not told of.
        if may_claim && !self.runners.uncertain {
            self.prepare_handover().await?;
        } else {
            self.end_handover(|_| true);
        }
        self.release_slots(!may_claim).await?;
        if self.capacity.sharing.has_new_wish(Instant::now()) {
            // Others are to hear of it at once.
            self.beats_soon();
        }
        self.plan_starts();
        if claim || hinted {
            self.news = News::default();
        }
        Ok(())
    }

    /// New tasks that were told of come next in their queues, without a look for them, and without one at other queues.
    fn take_arrivals(&mut self) {
        let arrivals = self.hints.take_arrivals();
        if arrivals.count > 0 && arrivals.tasks.is_empty() {
            self.ahead.many_came();
            self.wake_dry();
        }
        for (queue, tasks) in arrivals.tasks {
            self.ahead.came(queue, &tasks);
            self.dry.remove(&queue);
        }
    }

    /// Settles what earlier passes have left: runs whose runner is gone, claims that no runner took, and those of which
    /// nobody knows whether they were made.
    async fn settle_all(&mut self) -> Result<(), StoreError> {
        while let Some(exit) = self.runners.exits.pop() {
            match self.settle(&exit).await {
                Ok(true) => self.ended(&exit),
                Ok(false) => self.runners.dying.push(exit),
                // It never will be stored: then the run is judged without it, and nothing waits behind it.
                Err(error) if error.is_about_one() && exit.result.is_some() => {
                    tracing::error!(%error, "cannot store what a dead runner had sent");
                    self.runners.exits.push(Exit { result: None, ..exit });
                }
                Err(error) => {
                    if !error.is_about_one() {
                        self.runners.exits.push(exit);
                        return Err(error);
                    }
                    if let Some(claim) = &exit.claim {
                        self.store
                            .set_aside(claim.task, &format!("its run cannot be looked after: {error}"))
                            .await;
                    }
                    self.ended(&exit);
                }
            }
            // The next pass begins with it, and goes on here.
            if self.pace.wants_beat(Instant::now()) {
                break;
            }
        }
        // Before those that have not been looked at: the last is the next.
        drop(self.runners.exits.splice(..0, self.runners.dying.drain(..)));
        while let Some(claim) = self.runners.refused.pop() {
            self.give_back(claim, "its runner was about to end").await?;
        }
        self.give_back_untold().await?;
        let has_lost_track = std::mem::take(&mut self.runners.has_lost_track);
        if has_lost_track {
            self.capacity.watch.was_slow(Instant::now());
        }
        // What was sent may take effect yet.
        if (has_lost_track || self.runners.uncertain) && self.capacity.holdings.fence().is_some() {
            self.renounce();
        }
        if self.runners.uncertain {
            let why = "its DEN could not tell whether it had claimed it";
            // What runners that have tasks are about to be handed besides is known when it has been handed.
            self.end_handover(|_| true);
            let is_known = !self.runners.launcher.handover().is_under_way();
            let (held, ready) = (self.runners.launcher.tasks(), self.runners.launcher.unburdened(is_known));
            let of = (&self.name, self.instance.as_str());
            let unknown = self.store.unclaim_all(of, (&held, &ready), why).await?;
            if unknown > 0 {
                tracing::warn!(tasks = unknown, "gave back tasks whose claim had not been answered");
            }
            self.ahead.look_back_everywhere();
            self.wake_dry();
            self.runners.uncertain = !is_known && self.runners.launcher.has_lanes();
        }
        Ok(())
    }

    /// A runner has ended, and what it had was looked after.
    fn ended(&mut self, exit: &Exit) {
        if exit.claim.is_some() && exit.result.is_none() {
            // It may have left an adapter's container.
            self.tidier.soon();
        }
        // Whether its task has left the slot is looked at.
        let held = self.runners.launcher.ended(exit);
        self.runners.doubtful.extend(held);
    }

    /// Has the next pass begin with a heartbeat, soon.
    pub(crate) fn beats_soon(&mut self) {
        self.beats_now = true;
        self.pace.hurry();
    }

    async fn give_back_untold(&mut self) -> Result<(), StoreError> {
        while let Some(claim) = self.runners.untold.last() {
            let back = self.store.unclaim_task(claim, "its runner was not told of it").await?;
            if let Some(claim) = self.runners.untold.pop() {
                self.given_back(back, &claim).await;
            }
        }
        Ok(())
    }

    async fn follow_news(&mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.news.attention) {
            self.look_for_attention().await?;
        }
        if self.news.queues_changed {
            self.end_handover(|_| true);
            self.capacity.limits.were(&self.hints.take_peaks(), Instant::now());
            self.capacity.sharing.look_again();
            self.pace.hurry();
            self.queues.changed();
            self.workers.changed();
        }
        if std::mem::take(&mut self.news.freed) && self.pace.situation.waiting {
            // What was seen of them has the place that is free now.
            self.capacity.others.clear();
            self.wake_dry();
            self.news.inserted = true;
        }
        // Of new tasks it was told in which queues they are.
        if (News { inserted: false, ..self.news }).may_claim() {
            self.wake_dry();
        }
        if self.news.inserted {
            // They may come first there, before what was read ahead.
            let known = self.queues.known().iter().filter(|queue| queue.may_prefer_new_tasks());
            known.for_each(|queue| self.ahead.look_back(queue.id));
        }
        if std::mem::take(&mut self.news.put_back) {
            self.news.inserted = true;
            self.ahead.look_back_everywhere();
        }
        if std::mem::take(&mut self.news.wanted) {
            self.capacity.sharing.look_again();
            self.pace.hurry();
        }
        if std::mem::take(&mut self.news.timed) {
            self.pace.hurry();
        }
        Ok(())
    }

    /// Gives back every task that no runner has started. A runner that starts now finds its claim gone.
    async fn drain(mut self, lifecycle: &Lifecycle) {
        tracing::info!(running = self.runners.launcher.running(), "draining: claiming nothing more");
        let deadline = Instant::now() + Duration::from_secs(10);
        self.end_handover(|_| true);
        while self.runners.launcher.handover().is_under_way()
            && Instant::now() < deadline
            && !lifecycle.is_ending()
        {
            // What was started last is told to its runners, or given back.
            let _ending = timeout(LOOK_AGAIN, lifecycle.ending()).await;
        }
        loop {
            self.runners.take_all();
            let error = match self.give_back_all().await {
                Ok(tasks) => {
                    tracing::info!(given_back = tasks, "gave back what no runner has started");
                    break;
                }
                Err(error) => error,
            };
            if Instant::now() > deadline || lifecycle.is_ending() {
                tracing::error!(%error, "cannot give back claimed tasks; others do when their lease has run out");
                return;
            }
            tracing::warn!(%error, "cannot give back claimed tasks, trying again");
            let _ending = timeout(INTERVAL, lifecycle.ending()).await;
        }
        if self.stay {
            self.stay_for_running(lifecycle).await;
        }
        if let Err(error) = self.close_slots().await {
            tracing::warn!(%error, "cannot give up slots; others take them back later");
        }
        if let Err(error) = self.store.leave(&self.name, &self.instance).await {
            tracing::warn!(%error, "cannot say that this node has ended");
        }
        tracing::info!("ended; running tasks go on by themselves");
    }

    /// Gives up the slots in which no task is, and has the others taken back as their tasks end.
    async fn close_slots(&mut self) -> Result<(), StoreError> {
        let holder = self.capacity.holdings.holder();
        let is_unknown = self.runners.uncertain || self.runners.has_lost_track;
        if is_unknown || self.runners.launcher.handover().is_under_way() || self.capacity.watch.is_forbidden()
        {
            return Ok(());
        }
        self.release_slots(true).await?;
        self.capacity.holdings.renounce();
        self.store.close_slots(holder).await
    }

    /// Gives back what no runner has started, or was told of. Returns how many tasks these were.
    async fn give_back_all(&mut self) -> Result<u64, StoreError> {
        self.runners.untold.append(&mut self.runners.refused);
        self.give_back_untold().await?;
        let of = (&self.name, self.instance.as_str());
        let is_known = !self.runners.launcher.handover().is_under_way();
        self.store.unclaim_all(of, (&[], &self.runners.launcher.unburdened(is_known)), "its DEN ended").await
    }

    async fn stay_for_running(&mut self, lifecycle: &Lifecycle) {
        let mut reported = u64::MAX;
        while !lifecycle.is_ending() {
            tokio::select! {
                () = self.something_to_do() => {}
                () = lifecycle.ending() => return,
            }
            self.vitals.come_round();
            service_manager::stays();
            if self.database.left(Instant::now()).is_some() {
                continue;
            }
            let running = match self.measured_look(lifecycle).await {
                Ok(()) => self.store.running_on_node(&self.name, &[]).await,
                Err(error) => Err(error),
            };
            match running {
                Ok(0) => return,
                Ok(running) if running != reported => {
                    reported = running;
                    tracing::info!(running, "waiting for running tasks to end");
                }
                Ok(_) => self.database.worked(),
                Err(error) => self.leave_database_alone(&error),
            }
        }
    }
}
