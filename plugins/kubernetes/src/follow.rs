//! A job that has begun, until its task has ended.

use std::pin::pin;
use std::time::Duration;

use disbatch_adapter::{Control, Stop, note};
use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Error;
use kube::api::{DeleteParams, ListParams};
use tokio::sync::watch::{self, Sender};
use tokio::time::{Instant, sleep_until, timeout};

use super::changes::{Change, changes};
use super::cluster::{Cluster, JobRef, PATIENCE, Pauses, describe, is_passing, is_refusal, named};
use super::log::{self, Heard};
use super::verdict::{self, DELETED, Ended, POD_DELETED, Seen, Stage, Trouble};

/// How long something is tried again that should not be in the way, as an image that cannot be fetched.
const TROUBLE_TAKES: Duration = Duration::from_secs(300);

/// How long the pod may take to tell what its job has told, besides the time that it has to end: the job of a pod that is told to end fails at
/// once.
pub const SETTLES: Duration = Duration::from_secs(10);

/// How long it takes until it is said that there is no pod.
const POD_TAKES: Duration = Duration::from_secs(10);

/// How long what is known of a pod may take to arrive after its job is gone.
const LINGERS: Duration = Duration::from_secs(2);

const OUTPUT_TAKES: Duration = Duration::from_secs(60);

/// What the cluster calls the end of a job whose pod has ended badly. The pod knows more.
const OF_THE_POD: &str = "BackoffLimitExceeded";

pub struct Following<'a> {
    pub cluster: &'a Cluster,
    pub job: &'a JobRef,
    /// What finds pods of the task.
    pub selector: &'a str,
    pub container: &'a str,
    /// How long the pod may take to end when its job has.
    pub settles: Duration,
}

#[derive(Debug)]
pub struct JobOutcome {
    pub seen: Option<Seen>,
    pub ended: Ended,
    /// Whether it was made to.
    pub stopped: bool,
}

impl Following<'_> {
    /// Follows the job until its container has ended and all of its output is there; or, if it is to end before, until it is gone.
    pub async fn follow(&self, control: &mut Control, stop: &mut Stop) -> Result<JobOutcome, String> {
        let (tell, heard) = watch::channel(Heard::default());
        let mut copy = pin!(log::copy(&self.cluster.pods, self.container, heard));
        let mut look = pin!(self.look(control, stop, tell));
        let mut copied = None;
        let outcome = loop {
            tokio::select! {
                outcome = &mut look => break outcome?,
                ended = &mut copy, if copied.is_none() => copied = Some(ended),
            }
        };
        if copied.is_none() {
            copied = timeout(OUTPUT_TAKES, copy).await.ok();
        }
        match copied {
            Some(Ok(())) => {}
            // What it writes at last may go with it.
            Some(Err(_)) if outcome.stopped => {}
            Some(Err(why)) => note(&why),
            None => note(&"the output of the pod did not come to its end"),
        }
        Ok(outcome)
    }

    async fn look(
        &self,
        control: &mut Control,
        stop: &mut Stop,
        tell: Sender<Heard>,
    ) -> Result<JobOutcome, String> {
        let mut jobs = changes(self.cluster.jobs.clone(), named(&self.job.name)).boxed_local();
        let of_task = ListParams::default().labels(self.selector);
        let mut pods = changes(self.cluster.pods.clone(), of_task).boxed_local();
        let mut removal = pin!(self.remove());
        let mut view = View::new(self, control, tell);
        let mut is_removing = false;
        loop {
            let deadline = view.deadline();
            // Without one it is not waited for.
            let wake = sleep_until(deadline.unwrap_or_else(Instant::now));
            tokio::select! {
                change = jobs.next() => view.take_job(given(change)?),
                change = pods.next() => view.take_pod(given(change)?),
                () = stop.wanted(), if !view.stopped => {
                    view.stopped = true;
                    is_removing = true;
                }
                removed = &mut removal, if is_removing => {
                    is_removing = false;
                    if let Err(why) = removed {
                        // There is nothing to wait for.
                        note(&why);
                        view.gone = Some(Instant::now());
                    }
                }
                () = wake, if deadline.is_some() => view.miss_pod(),
            }
            if let Some(ended) = view.end() {
                return Ok(JobOutcome { seen: view.seen, ended, stopped: view.stopped });
            }
        }
    }

    async fn remove(&self) -> Result<(), String> {
        let (mut pauses, begun) = (Pauses::default(), Instant::now());
        loop {
            match self.cluster.remove(self.job, DeleteParams::foreground()).await {
                // Without conditions there is nothing else that could come of it but that it is another one.
                Ok(_) => return Ok(()),
                // It was allowed to look at it: that of a token that is renewed passes.
                Err(error) if is_passing(&error) || (is_refusal(&error) && begun.elapsed() < PATIENCE) => {
                    pauses.pause().await;
                }
                Err(error) => return Err(format!("cannot remove the job: {}", describe(&error))),
            }
        }
    }
}

fn given<K>(change: Option<Result<Change<K>, Error>>) -> Result<Change<K>, String> {
    let change = change.ok_or("cannot follow the job")?;
    change.map_err(|error| format!("cannot follow the job: {}", describe(&error)))
}

struct View<'a> {
    following: &'a Following<'a>,
    control: &'a mut Control,
    tell: Sender<Heard>,
    seen: Option<Seen>,
    stopped: bool,
    has_begun: bool,
    /// When it is to be said that there is no pod, if that was not said yet.
    misses_pod: Option<Instant>,
    troubled: Option<Instant>,
    /// How the job has ended, and when that was seen.
    job_ended: Option<(Result<(), Ended>, Instant)>,
    gone: Option<Instant>,
}

impl<'a> View<'a> {
    fn new(following: &'a Following<'a>, control: &'a mut Control, tell: Sender<Heard>) -> Self {
        let (seen, troubled, job_ended, gone) = (None, None, None, None);
        let (stopped, has_begun, misses_pod) = (false, false, Some(Instant::now() + POD_TAKES));
        Self { following, control, tell, seen, stopped, has_begun, misses_pod, troubled, job_ended, gone }
    }

    fn take_job(&mut self, change: Change<Job>) {
        let following = self.following;
        let uid = following.job.uid.as_str();
        let is_ours = |job: &Job| job.metadata.uid.as_deref() == Some(uid);
        let job = match change {
            Change::All(jobs) => jobs.into_iter().find(is_ours),
            Change::One(job) => Some(job).filter(is_ours),
            Change::Gone(job) if is_ours(&job) => None,
            Change::Gone(_) => return,
            Change::Trouble(why) => return self.is_away(&why),
        };
        if job.is_none() {
            self.gone.get_or_insert_with(Instant::now);
        }
        let ended = match &job {
            Some(job) => verdict::of_job(job),
            None => Some(Err(Ended::without_code(
                DELETED,
                "somebody has removed the job in the cluster".to_owned(),
            ))),
        };
        if let Some(ended) = ended
            && self.job_ended.is_none()
        {
            self.job_ended = Some((ended, Instant::now()));
        }
    }

    fn take_pod(&mut self, change: Change<Pod>) {
        let (found, is_gone) = match change {
            Change::All(pods) => {
                let ours = pods.into_iter().find(|pod| self.is_ours(pod));
                let is_gone = ours.is_none() && self.seen.is_some();
                (ours, is_gone)
            }
            Change::One(pod) => (Some(pod).filter(|pod| self.is_ours(pod)), false),
            Change::Gone(pod) if self.is_ours(&pod) => (Some(pod), true),
            Change::Gone(_) => return,
            Change::Trouble(why) => return self.is_away(&why),
        };
        let is_over = |seen: &Option<Seen>| matches!(seen, Some(Seen { stage: Stage::Ended(_), .. }));
        if is_over(&self.seen) {
            // What comes after that is about its removal.
            return;
        }
        if let Some(pod) = found {
            self.seen = Some(verdict::look(&pod, self.following.container, self.stopped));
        }
        if is_gone
            && !is_over(&self.seen)
            && let Some(seen) = &mut self.seen
        {
            seen.stage = Stage::Ended(Ended::without_code(DELETED, POD_DELETED.to_owned()));
        }
        self.tell();
    }

    /// The first pod that was seen counts: there should be no other.
    fn is_ours(&self, pod: &Pod) -> bool {
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        owners.iter().any(|owner| owner.uid == self.following.job.uid)
            && self.seen.as_ref().is_none_or(|seen| Some(&seen.pod) == pod.metadata.name.as_ref())
    }

    fn tell(&mut self) {
        let Some(seen) = self.seen.clone() else { return };
        match &seen.stage {
            Stage::Waiting { why, trouble } => {
                if *trouble == Trouble::Nothing {
                    self.troubled = None;
                } else {
                    self.troubled.get_or_insert_with(Instant::now);
                }
                self.control.progress(&format!("waiting: {why}"));
            }
            Stage::Running => {
                self.troubled = None;
                self.has_begun = true;
                let node = seen.node.as_deref().unwrap_or("a node of the cluster");
                self.control.progress(&format!("runs on {node}"));
            }
            Stage::Ended(ended) => self.has_begun |= ended.has_run,
        }
        let is_over = matches!(seen.stage, Stage::Ended(_));
        let heard = Heard { pod: Some(seen.pod), has_begun: self.has_begun, is_over };
        self.tell.send_replace(heard);
    }

    /// Says that there is no pod, when it is time to. Why, as a quota for instance, only events of the job say.
    fn miss_pod(&mut self) {
        if self.seen.is_none()
            && self.job_ended.is_none()
            && self.misses_pod.is_some_and(|at| at <= Instant::now())
        {
            self.misses_pod = None;
            let (namespace, job) = (&self.following.cluster.namespace, &self.following.job.name);
            let how = format!("kubectl -n {namespace} describe job {job}");
            self.control.progress(&format!("waiting: the cluster has made no pod yet ({how})"));
        }
    }

    fn is_away(&mut self, why: &str) {
        self.control.progress(&format!("the cluster cannot be asked: {why}"));
    }

    fn deadline(&self) -> Option<Instant> {
        if self.stopped {
            return self.gone.map(|since| since + LINGERS);
        }
        let troubled = self.troubled.map(|since| since + TROUBLE_TAKES);
        let settled = self.job_ended.as_ref().map(|(_, at)| *at + self.following.settles);
        let misses_pod = self.misses_pod.filter(|_| self.seen.is_none());
        troubled.into_iter().chain(settled).chain(misses_pod).min()
    }

    fn end(&self) -> Option<Ended> {
        let stage = self.seen.as_ref().map(|seen| &seen.stage);
        if self.stopped {
            let gone = self.gone?;
            return match stage {
                Some(Stage::Ended(ended)) => Some(self.over(ended.clone())),
                Some(_) if gone.elapsed() < LINGERS => None,
                Some(_) | None => Some(self.over(Ended::default())),
            };
        }
        match stage {
            Some(Stage::Ended(ended)) => {
                let ended = self.better(ended.clone());
                return Some(self.over(ended));
            }
            Some(Stage::Waiting { why, trouble }) => {
                let is_late = self.troubled.is_some_and(|since| since.elapsed() >= TROUBLE_TAKES);
                if *trouble == Trouble::Hopeless || is_late {
                    let ended = Ended::without_code("", format!("the container could not be started: {why}"));
                    return Some(self.over(ended));
                }
            }
            Some(Stage::Running) | None => {}
        }
        let (ended, _) = self.job_ended.as_ref().filter(|(_, at)| at.elapsed() >= self.following.settles)?;
        let ended = match ended {
            Ok(()) => Ended { code: Some(0), ..Ended::default() },
            Err(ended) => ended.clone(),
        };
        Some(self.over(ended))
    }

    /// How it ended, by the one who knows more.
    fn better(&self, of_pod: Ended) -> Ended {
        match &self.job_ended {
            Some((Err(of_job), _)) if of_pod.reason == DELETED && of_job.reason != OF_THE_POD => {
                of_job.clone()
            }
            _ => of_pod,
        }
    }

    /// Nobody is to wait for more.
    fn over(&self, ended: Ended) -> Ended {
        self.tell.send_modify(|heard| heard.is_over = true);
        ended
    }
}
