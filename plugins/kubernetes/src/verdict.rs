//! What a pod, and its job, say of how the task gets on. Pure.
//!
//! A pod that had to go has failed even if its program ended with 0: it may have been told to end.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodCondition, PodStatus};
use nix::sys::signal::Signal;

const OUT_OF_MEMORY: &str = "OOMKilled";

/// What no patience helps against.
const HOPELESS: [&str; 2] = ["ErrImageNeverPull", "InvalidImageName"];

/// What others may put right, or what may pass.
const TROUBLE: [&str; 9] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "RegistryUnavailable",
    "RunContainerError",
    "SignatureValidationFailed",
    "StartError",
];

/// The condition of a pod that has to go although its task has not ended.
const DISRUPTED: &str = "DisruptionTarget";

/// What a pod calls it that was deleted. Its job may know more.
pub const DELETED: &str = "Deleted";

pub const POD_DELETED: &str = "somebody has deleted the pod in the cluster";

#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub pod: String,
    pub node: Option<String>,
    pub digest: Option<String>,
    pub stage: Stage,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Stage {
    Waiting {
        why: String,
        trouble: Trouble,
    },
    Running,
    /// It has ended, or never will begin.
    Ended(Ended),
}

/// Whether it is any use to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It is what usually happens.
    Nothing,
    /// It may pass.
    Something,
    /// It will not.
    Hopeless,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ended {
    /// Its exit code. `None`: it has none, or none that counts.
    pub code: Option<i32>,
    /// What the cluster calls that.
    pub reason: String,
    pub why: Option<String>,
    pub oom: bool,
    /// Whether it has run, so that there may be output.
    pub has_run: bool,
    pub last_words: Option<String>,
}

impl Ended {
    pub fn without_code(reason: &str, why: String) -> Self {
        Self { reason: reason.to_owned(), why: Some(why), ..Self::default() }
    }
}

/// Looks at a pod. `removed`: it was us who wanted it to go.
pub fn look(pod: &Pod, container: &str, removed: bool) -> Seen {
    let status = pod.status.clone().unwrap_or_default();
    let found = statuses(&status.container_statuses).iter().find(|found| found.name == container);
    let digest = found.map(|found| digest(&found.image_id)).filter(|digest| !digest.is_empty());
    Seen {
        pod: pod.metadata.name.clone().unwrap_or_default(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        digest,
        stage: stage(pod, &status, found, removed),
    }
}

/// The digest in the id of an image, which usually has its name as well.
fn digest(id: &str) -> String {
    id.rsplit_once('@').map_or(id, |(_, digest)| digest).to_owned()
}

fn stage(pod: &Pod, status: &PodStatus, found: Option<&ContainerStatus>, removed: bool) -> Stage {
    let state = found.and_then(|found| found.state.as_ref());
    if let Some(terminated) = state.and_then(|state| state.terminated.as_ref()) {
        return Stage::Ended(ended(pod, status, terminated, removed));
    }
    match status.phase.as_deref() {
        Some("Failed") => return Stage::Ended(failed(status)),
        Some("Succeeded") => return Stage::Ended(Ended { code: Some(0), ..Ended::default() }),
        _ => {}
    }
    if state.is_some_and(|state| state.running.is_some()) {
        return Stage::Running;
    }
    let waiting = waiting(status, found);
    let reason = waiting.0.as_str();
    let trouble = match reason {
        hopeless if HOPELESS.contains(&hopeless) => Trouble::Hopeless,
        passing if TROUBLE.contains(&passing) => Trouble::Something,
        _ => Trouble::Nothing,
    };
    Stage::Waiting { why: said(reason, waiting.1.as_deref()), trouble }
}

/// What a container waits for: the cluster's name for it, and what it says of it.
fn waiting(status: &PodStatus, found: Option<&ContainerStatus>) -> (String, Option<String>) {
    let inits = statuses(&status.init_container_statuses).iter();
    // An image that cannot be fetched is more to the point than that the others have to wait for it.
    let all = inits.chain(found).filter_map(|found| found.state.as_ref()?.waiting.as_ref());
    let mut all: Vec<_> =
        all.filter_map(|waiting| Some((waiting.reason.clone()?, waiting.message.clone()))).collect();
    all.sort_by_key(|(reason, _)| reason == "PodInitializing" || reason == "ContainerCreating");
    if let Some(first) = all.into_iter().next() {
        return first;
    }
    let unplaced = condition(status, "PodScheduled").filter(|condition| condition.status == "False");
    match unplaced {
        Some(condition) => (condition.reason.clone().unwrap_or_default(), condition.message.clone()),
        None => (status.phase.clone().unwrap_or_else(|| "Pending".to_owned()), None),
    }
}

/// How a container ended that has run, or that could not be started.
fn ended(pod: &Pod, status: &PodStatus, terminated: &ContainerStateTerminated, removed: bool) -> Ended {
    let reason = terminated.reason.clone().unwrap_or_default();
    let oom = reason == OUT_OF_MEMORY;
    let interrupted = if removed { None } else { interruption(pod, status) };
    // A program that is told to end may well end with 0, and yet it is not done.
    let code = Some(terminated.exit_code).filter(|code| *code != 0 || interrupted.is_none());
    let said_of_it = terminated.message.clone().filter(|message| !message.trim().is_empty());
    let has_run = terminated.started_at.as_ref().is_some_and(|at| at.0.as_second() > 0);
    let why = match (&interrupted, code) {
        (Some((_, why)), _) => Some(why.clone()),
        // Such a message is not the container's.
        (None, Some(1..)) if !has_run => {
            Some(format!("the container could not be started: {}", said(&reason, said_of_it.as_deref())))
        }
        (None, Some(code)) => signal(code)
            .map(|signal| format!("the container ended with exit code {code}, which is that of {signal}")),
        (None, None) => None,
    };
    Ended {
        code,
        reason: interrupted.map_or(reason, |(reason, _)| reason),
        why: if removed || oom { None } else { why },
        oom,
        has_run,
        last_words: said_of_it,
    }
}

fn signal(code: i32) -> Option<Signal> {
    Signal::try_from(code.checked_sub(128)?).ok()
}

/// Why a pod has to go before its task has ended, if so: the cluster's name for it, and what there is to say.
fn interruption(pod: &Pod, status: &PodStatus) -> Option<(String, String)> {
    if let Some(condition) = condition(status, DISRUPTED).filter(|condition| condition.status == "True") {
        let of_pod = status.reason.clone().filter(|reason| !reason.is_empty());
        let reason = of_pod.or_else(|| condition.reason.clone()).unwrap_or_default();
        let message = status.message.as_deref().or(condition.message.as_deref());
        return Some((reason.clone(), format!("the pod had to go: {}", said(&reason, message))));
    }
    if status.phase.as_deref() == Some("Failed")
        && let Some(reason) = status.reason.clone().filter(|reason| !reason.is_empty())
    {
        let why = format!("the pod failed: {}", said(&reason, status.message.as_deref()));
        return Some((reason, why));
    }
    pod.metadata.deletion_timestamp.as_ref().map(|_| (DELETED.to_owned(), POD_DELETED.to_owned()))
}

fn failed(status: &PodStatus) -> Ended {
    let reason = status.reason.clone().unwrap_or_default();
    let of_init = statuses(&status.init_container_statuses).iter().find_map(|found| {
        let terminated = found.state.as_ref()?.terminated.as_ref()?;
        let code = terminated.exit_code;
        (code != 0).then(|| {
            format!("the pod failed: its init container '{}' ended with exit code {code}", found.name)
        })
    });
    let why =
        of_init.unwrap_or_else(|| format!("the pod failed: {}", said(&reason, status.message.as_deref())));
    Ended::without_code(&reason, why)
}

/// How a job has ended that has no pod to say so, if it has: `Ok` for success.
pub fn of_job(job: &Job) -> Option<Result<(), Ended>> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let holds = |kind: &str| conditions.iter().find(|found| found.type_ == kind && found.status == "True");
    if holds("Complete").is_some() {
        return Some(Ok(()));
    }
    let failed = holds("Failed").or_else(|| holds("FailureTarget"))?;
    let reason = failed.reason.clone().unwrap_or_default();
    let why = format!("the job failed: {}", said(&reason, failed.message.as_deref()));
    Some(Err(Ended::without_code(&reason, why)))
}

fn said(reason: &str, message: Option<&str>) -> String {
    let message = message.map(str::trim).filter(|message| !message.is_empty());
    match (reason, message) {
        ("", None) => "the cluster does not say why".to_owned(),
        ("", Some(message)) => message.to_owned(),
        (reason, None) => reason.to_owned(),
        (reason, Some(message)) => format!("{reason}: {message}"),
    }
}

fn statuses(found: &Option<Vec<ContainerStatus>>) -> &[ContainerStatus] {
    found.as_deref().unwrap_or_default()
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> Option<&'a PodCondition> {
    status.conditions.as_ref()?.iter().find(|found| found.type_ == kind)
}

#[cfg(test)]
mod tests;
