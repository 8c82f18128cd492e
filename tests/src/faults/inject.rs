//! Breaks things, one after the other, and mends each after a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bson::{Document, doc};
use disbatch_core::model::TaskId;
use disbatch_core::notifications::QUEUE;
use disbatch_core::task::CancelRequest;
use futures::TryStreamExt;
use nix::sys::signal::Signal;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::bodies;
use super::fault::Fault;
use super::inbox;
use super::node::{Daemon, Log};
use super::notifications;
use super::poison;
use super::processes::{self, Kind, Process};
use super::random::Random;
use super::ticking::Ticking;
use super::world::{Change, LEASE, World};

/// Between two faults.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_millis(900);

/// So old is a runner at most that has just begun.
const YOUNG: Duration = Duration::from_millis(80);

/// So long DENs are away at most that were killed together.
const SOON: Duration = Duration::from_millis(1_500);

/// So long two DENs may tell what happens beside each other.
const BESIDE: Duration = Duration::from_secs(3);

/// How many faults of each kind there were.
pub type Injected = BTreeMap<Fault, u64>;

#[derive(Debug)]
pub struct Injector {
    world: Arc<World>,
    ticking: Ticking,
    random: Random,
    kinds: Vec<Fault>,
    /// What comes next; filled again when it is used up, so that every kind has its turn.
    bag: Vec<Fault>,
    mending: JoinSet<anyhow::Result<()>>,
    injected: Injected,
}

impl Injector {
    /// An injector of the given kinds; none means all.
    pub fn new(world: Arc<World>, ticking: Ticking, random: Random, only: &[Fault]) -> Self {
        let mut kinds = Fault::mixture();
        kinds.retain(|kind| only.is_empty() || only.contains(kind));
        let (bag, injected) = (Vec::new(), Injected::new());
        Self { world, ticking, random, kinds, bag, mending: JoinSet::new(), injected }
    }

    /// Injects until `end`, then waits until everything is mended.
    pub async fn work(mut self, end: Instant, count: &Mutex<u64>) -> anyhow::Result<Injected> {
        while Instant::now() < end {
            sleep(self.random.between(SHORTEST, LONGEST)).await;
            if self.bag.is_empty() {
                self.bag = self.kinds.clone();
                self.random.shuffle(&mut self.bag);
            }
            let Some(fault) = self.bag.pop() else { break };
            if Box::pin(self.inject(fault)).await? {
                *self.injected.entry(fault).or_default() += 1;
                *count.lock().await += 1;
            }
            while let Some(mended) = self.mending.try_join_next() {
                mended??;
            }
        }
        while let Some(mended) = self.mending.join_next().await {
            mended??;
        }
        Ok(self.injected)
    }

    /// Returns whether there was something to break.
    async fn inject(&mut self, fault: Fault) -> anyhow::Result<bool> {
        match fault {
            Fault::KillDen => self.restart_den(Log::File).await,
            Fault::FullLog => self.restart_den(Log::Full).await,
            Fault::KillFiring => {
                let fires = self.ticking.until_it_fires(&self.world).await;
                self.kill_dens(fires).await
            }
            Fault::KillMoving => {
                let moves = inbox::until_it_moves(&self.world).await;
                self.kill_dens(moves).await
            }
            Fault::KillNotifier => self.kill_notifier().await,
            Fault::KillDci => self.restart_web().await,
            Fault::KillRunner => self.kill_runner().await,
            Fault::KillHolder => self.kill_holder().await,
            Fault::KillGuard => Ok(self.kill_one(Kind::Guard)),
            Fault::KillPlugin => Ok(self.kill_one(Kind::Plugin)),
            Fault::KillAdapter => Ok(self.kill_one(Kind::Adapter)),
            Fault::StopDen => self.stop_den(false).await,
            Fault::StopNode => self.stop_den(true).await,
            Fault::StopRunner => self.stop_runner().await,
            Fault::KillMember => self.kill_member(false).await,
            Fault::KillPrimary => self.kill_member(true).await,
            Fault::StepDown => self.step_down().await,
            Fault::Threads => self.change_threads().await,
            Fault::Pause => self.pause().await,
            Fault::Cancel => self.cancel().await,
            Fault::HugeBodies => {
                self.mending.spawn(bodies::send(self.world.clone()));
                Ok(true)
            }
            Fault::Poison => Ok(self.poison()),
        }
    }

    fn den(&mut self) -> usize {
        self.random.index(self.world.dens.len())
    }

    /// Longer than a lease.
    fn long(&mut self) -> Duration {
        let lease = Duration::from_secs_f64(LEASE);
        self.random.between(lease.mul_f64(1.1), lease.mul_f64(2.5))
    }

    /// At once, or after a while.
    fn absence(&mut self) -> Duration {
        if self.random.below(2) == 0 {
            return Duration::ZERO;
        }
        self.random.between(Duration::from_millis(500), Duration::from_secs(6))
    }

    async fn restart_den(&mut self, log: Log) -> anyhow::Result<bool> {
        let (number, absence) = (self.den(), self.absence());
        if !kill(&self.world.dens[number]).await? {
            return Ok(false);
        }
        self.bring_back(number, absence, log);
        Ok(true)
    }

    fn bring_back(&mut self, number: usize, absence: Duration, log: Log) {
        let world = self.world.clone();
        self.mending.spawn(async move {
            sleep(absence).await;
            world.dens[number].lock().await.start(log)
        });
    }

    /// Whichever of them is at it, if it is the moment.
    async fn kill_dens(&mut self, is_moment: bool) -> anyhow::Result<bool> {
        if !is_moment {
            return Ok(false);
        }
        let world = self.world.clone();
        let killed = futures::future::try_join_all(world.dens.iter().map(kill)).await?;
        for (number, _) in killed.iter().enumerate().filter(|(_, killed)| **killed) {
            let absence = self.random.between(Duration::ZERO, SOON);
            self.bring_back(number, absence, Log::File);
        }
        Ok(killed.contains(&true))
    }

    /// Half of the time the other one begins before.
    async fn kill_notifier(&mut self) -> anyhow::Result<bool> {
        let world = self.world.clone();
        let Some(leader) = notifications::leader(&world).await else { return Ok(false) };
        let Some(number) = world.number_of(&leader).await else { return Ok(false) };
        notifications::end_lease(&world).await;
        let (beside, absence) = (self.random.between(Duration::ZERO, BESIDE), self.absence());
        if self.random.below(2) == 0 {
            sleep(beside).await;
        }
        if !kill(&world.dens[number]).await? {
            return Ok(false);
        }
        self.bring_back(number, absence, Log::File);
        Ok(true)
    }

    async fn restart_web(&mut self) -> anyhow::Result<bool> {
        let absence = self.absence();
        if !kill(&self.world.web).await? {
            return Ok(false);
        }
        let world = self.world.clone();
        self.mending.spawn(async move {
            sleep(absence).await;
            world.web.lock().await.start(Log::File)
        });
        Ok(true)
    }

    fn one(&mut self, kind: Kind) -> Option<Process> {
        let found = processes::of_kind(&self.world.folder, kind);
        self.random.pick(&found).cloned()
    }

    fn kill_one(&mut self, kind: Kind) -> bool {
        let found = self.one(kind);
        if let Some(process) = &found {
            process.signal(Signal::SIGKILL);
        }
        found.is_some()
    }

    async fn kill_runner(&mut self) -> anyhow::Result<bool> {
        let runner = self.runner().await;
        if let Some(runner) = &runner {
            runner.signal(Signal::SIGKILL);
        }
        Ok(runner.is_some())
    }

    async fn kill_holder(&mut self) -> anyhow::Result<bool> {
        let Some(task) = self.any_task(doc! { "status": 0, "holds_locks": true }).await else {
            return Ok(false);
        };
        let runners = processes::of_kind(&self.world.folder, Kind::Runner);
        // Its number may be another process's by now.
        let runner =
            runners.iter().find(|runner| task.get_i64("pid").ok() == Some(runner.pid.as_raw().into()));
        if let Some(runner) = runner {
            runner.signal(Signal::SIGKILL);
        }
        Ok(runner.is_some())
    }

    /// Some task that `filter` finds, if there is one and the database is there.
    async fn any_task(&mut self, filter: Document) -> Option<Document> {
        let only = doc! { "pid": 1 };
        let found = self.world.tasks().find(filter).projection(only).limit(50).await.ok()?;
        let tasks: Vec<Document> = found.try_collect().await.ok()?;
        self.random.pick(&tasks).cloned()
    }

    async fn stop_runner(&mut self) -> anyhow::Result<bool> {
        let Some(runner) = self.runner().await else { return Ok(false) };
        self.stop_processes(vec![runner]);
        Ok(true)
    }

    /// Any runner, or one that has just begun: much is still undecided then, and it does not last long.
    async fn runner(&mut self) -> Option<Process> {
        if self.random.below(2) == 0 {
            return self.one(Kind::Runner);
        }
        let pause = self.random.between(Duration::ZERO, YOUNG);
        let known = processes::of_kind(&self.world.folder, Kind::Runner);
        let deadline = Instant::now() + YOUNG * 10;
        while Instant::now() < deadline {
            let now = processes::of_kind(&self.world.folder, Kind::Runner);
            let young = now.into_iter().find(|runner| known.iter().all(|other| other.pid != runner.pid));
            if let Some(young) = young {
                sleep(pause).await;
                return Some(young);
            }
            sleep(Duration::from_millis(5)).await;
        }
        None
    }

    fn stop_processes(&mut self, runners: Vec<Process>) {
        let long = self.long();
        runners.iter().for_each(|runner| runner.signal(Signal::SIGSTOP));
        let folder = self.world.folder.clone();
        self.mending.spawn(async move {
            sleep(long).await;
            // The number of one that was killed may belong to another process by now.
            let living = processes::all(&folder);
            for runner in runners.iter().filter(|runner| living.iter().any(|other| other.pid == runner.pid)) {
                runner.signal(Signal::SIGCONT);
            }
            Ok(())
        });
    }

    async fn stop_den(&mut self, with_runners: bool) -> anyhow::Result<bool> {
        let (number, long) = (self.den(), self.long());
        let world = self.world.clone();
        let name = {
            let mut den = world.dens[number].lock().await;
            if !den.works() {
                return Ok(false);
            }
            den.stop();
            den.name.clone()
        };
        if with_runners {
            let runners = processes::all(&world.folder);
            self.stop_processes(runners.into_iter().filter(|runner| runner.is_runner_of(&name)).collect());
        }
        self.mending.spawn(async move {
            sleep(long).await;
            world.dens[number].lock().await.go_on();
            Ok(())
        });
        Ok(true)
    }

    /// Only while all members are there: of three, two must be left.
    async fn kill_member(&mut self, primary: bool) -> anyhow::Result<bool> {
        let absence = self.random.between(Duration::from_millis(200), Duration::from_secs(4));
        let chosen = self.random.below(2);
        let world = self.world.clone();
        let member = {
            let mut set = world.set.lock().await;
            let Some(first) = set.primary().await else { return Ok(false) };
            if !set.is_whole().await {
                return Ok(false);
            }
            let others: Vec<usize> = (0..set.size()).filter(|member| *member != first).collect();
            let member = if primary { first } else { others[usize::try_from(chosen)?] };
            set.kill(member).await?;
            member
        };
        self.mending.spawn(async move {
            sleep(absence).await;
            world.set.lock().await.restart(member).await
        });
        Ok(true)
    }

    async fn step_down(&mut self) -> anyhow::Result<bool> {
        let set = self.world.set.lock().await;
        // It refuses if no other member has caught up in time.
        Ok(set.is_whole().await && set.step_down().await.is_ok())
    }

    async fn change_threads(&mut self) -> anyhow::Result<bool> {
        let number = self.random.index(self.world.queues.len());
        let threads = self.random.below(self.world.queues[number].usual + 3);
        let world = self.world.clone();
        self.mending.spawn(async move {
            // None at all would be a pause that nobody ends.
            world.change(&world.queues[number], Change::Threads(threads.max(1))).await
        });
        Ok(true)
    }

    async fn pause(&mut self) -> anyhow::Result<bool> {
        let number = self.random.index(self.world.queues.len());
        let time = self.random.between(Duration::from_millis(300), Duration::from_secs(4));
        let world = self.world.clone();
        self.mending.spawn(async move {
            let queue = &world.queues[number];
            world.change(queue, Change::Paused(true)).await?;
            sleep(time).await;
            world.change(queue, Change::Paused(false)).await
        });
        Ok(true)
    }

    /// How it comes to that while the database may be away is not to be waited for.
    fn poison(&mut self) -> bool {
        let (world, kind, mut random) =
            (self.world.clone(), poison::any(&mut self.random), self.random.split());
        self.mending.spawn(async move { poison::one(&world, kind, &mut random).await.map(|_| ()) });
        true
    }

    async fn cancel(&mut self) -> anyhow::Result<bool> {
        // Half of them run already.
        let statuses = if self.random.below(2) == 0 { vec![0] } else { vec![-7, -2, -1, 0] };
        // A message that was cancelled would be missed.
        let any = doc! { "status": { "$in": statuses }, "queue": { "$ne": QUEUE } };
        let Some(task) = self.any_task(any).await else {
            return Ok(false);
        };
        let id = TaskId(task.get_object_id("_id")?);
        let world = self.world.clone();
        self.mending.spawn(async move {
            let request = CancelRequest { by: "the fault suite".to_owned(), reason: None };
            // While the database is away nothing is cancelled, which breaks no promise.
            let _away = world.store.cancel_task(id, &request).await;
            Ok(())
        });
        Ok(true)
    }
}

/// Returns whether there was something to kill.
async fn kill(daemon: &Mutex<Daemon>) -> anyhow::Result<bool> {
    let mut daemon = daemon.lock().await;
    if !daemon.works() {
        return Ok(false);
    }
    daemon.kill().await?;
    Ok(true)
}
