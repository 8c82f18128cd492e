//! The cluster: how it is reached, and what is asked of it.

use std::path::Path;
use std::time::Duration;

use disbatch_adapter::sections::KubernetesEngine;
use disbatch_adapter::with_causes;
use futures::FutureExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Status;
use kube::{Api, Client, Config, Error};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

/// Who makes changes, for those who look at objects.
const MANAGER: &str = "disbatch";

/// Where a pod finds who it is.
const OWN_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// How long the cluster may be away before there is something to lose.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How long the cluster may take to begin an answer. Some that balance load take connections for a server that is gone, and its
/// client would wait for ever.
const ANSWERS: Duration = Duration::from_secs(30);

/// The same where something is to be removed, as there is not much time for that: it is asked for again.
const REMOVES: Duration = Duration::from_secs(5);

/// The first pause before something is tried again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

pub struct Cluster {
    client: Client,
    pub namespace: String,
    pub jobs: Api<Job>,
    pub pods: Api<Pod>,
    secrets: Api<Secret>,
}

impl Cluster {
    /// Finds the cluster: by the node's kubeconfig, else by that of the environment or the user, else by what a pod has. Asks it
    /// nothing yet.
    pub async fn find(of_node: &KubernetesEngine, namespace: Option<&str>) -> Result<Self, String> {
        let config = config(of_node).await?;
        let namespace = namespace.unwrap_or(&config.default_namespace).to_owned();
        let client = Client::try_from(config)
            .map_err(|error| format!("cannot reach the cluster: {}", describe(&error)))?;
        Ok(Self {
            jobs: Api::namespaced(client.clone(), &namespace),
            pods: Api::namespaced(client.clone(), &namespace),
            secrets: Api::namespaced(client.clone(), &namespace),
            namespace,
            client,
        })
    }

    pub async fn jobs_of(&self, selector: &str) -> Result<Vec<Job>, Error> {
        let params = ListParams::default().labels(selector);
        Ok(in_time(self.jobs.list(&params)).await?.items)
    }

    pub async fn job_named(&self, name: &str) -> Result<Option<Job>, Error> {
        Ok(in_time(self.jobs.list(&named(name))).await?.items.pop())
    }

    /// Makes a job. Returns whether there was none of its name.
    pub async fn create_job(&self, job: &Value) -> Result<bool, Error> {
        unless(self.create::<Job>(self.jobs.resource_url(), job).await, Status::is_already_exists)
    }

    /// Makes a secret, in place of one of the same name.
    pub async fn create_secret(&self, name: &str, secret: &Value) -> Result<(), Error> {
        let url = self.secrets.resource_url();
        if unless(self.create::<Secret>(url, secret).await, Status::is_already_exists)? {
            return Ok(());
        }
        let deleted = in_time(self.secrets.delete(name, &DeleteParams::default())).await;
        unless(deleted, Status::is_not_found)?;
        self.create::<Secret>(url, secret).await.map(drop)
    }

    /// Asks for something to be made, and to be refused if there is a key that the cluster does not know: it would pass over what
    /// is misspelt.
    async fn create<K: DeserializeOwned>(&self, url: &str, body: &Value) -> Result<K, Error> {
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let bytes = serde_json::to_vec(body).map_err(Error::SerdeError)?;
        let mut request = Request::new(url).create(&params, bytes).map_err(Error::BuildRequest)?;
        if let Ok(strict) = format!("{}&fieldValidation=Strict", request.uri()).parse() {
            *request.uri_mut() = strict;
        }
        in_time(self.client.request(request)).await
    }

    /// Lets a job begin if it is as it was seen. Returns whether it was.
    pub async fn begin(&self, job: &JobRef) -> Result<bool, Error> {
        let patch = json!({
            "metadata": { "uid": job.uid, "resourceVersion": job.version },
            "spec": { "suspend": false },
        });
        let params = PatchParams::default();
        let begun = in_time(self.jobs.patch(&job.name, &params, &Patch::Merge(&patch))).await;
        unless(begun, |status| status.is_conflict() || status.is_not_found())
    }

    /// Removes a job, if it still is what is meant. In the foreground it is there until its pods are gone; in the background, for one
    /// whose pods have ended, the cluster cleans up when it has the time. Returns whether it is gone or going; if it is not, it is
    /// not as it was seen any more.
    pub async fn remove(&self, job: &JobRef, how: DeleteParams) -> Result<bool, Error> {
        let params = how.preconditions(Preconditions {
            uid: Some(job.uid.clone()),
            resource_version: job.version.clone(),
        });
        match soon(self.jobs.delete(&job.name, &params)).await {
            Err(Error::Api(status)) if status.is_not_found() => Ok(true),
            removed => unless(removed, Status::is_conflict),
        }
    }
}

/// Whether the cluster has done what it was asked for: not where it refuses it for this reason.
fn unless<T>(answer: Result<T, Error>, is_reason: impl Fn(&Status) -> bool) -> Result<bool, Error> {
    match answer {
        Ok(_) => Ok(true),
        Err(Error::Api(status)) if is_reason(&status) => Ok(false),
        Err(error) => Err(error),
    }
}

pub fn named(name: &str) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={name}"))
}

#[derive(Debug, Clone)]
pub struct JobRef {
    pub name: String,
    pub uid: String,
    /// If it must not have changed: what it was.
    pub version: Option<String>,
}

impl JobRef {
    /// This one, however it may be by now.
    pub fn of(job: &Job) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self { name: text(&job.metadata.name), uid: text(&job.metadata.uid), version: None }
    }

    /// This one as long as it is as it was seen.
    pub fn unchanged(job: &Job) -> Self {
        Self { version: job.metadata.resource_version.clone(), ..Self::of(job) }
    }
}

async fn config(of_node: &KubernetesEngine) -> Result<Config, String> {
    let kubeconfig = match &of_node.kubeconfig {
        Some(path) => {
            Kubeconfig::read_from(path).map_err(|error| format!("engines.kubernetes.kubeconfig: {error}"))?
        }
        None => match Kubeconfig::read() {
            Ok(kubeconfig) => kubeconfig,
            // Without the variables of a pod, which plugins do not have, its own network still knows the name of the cluster.
            Err(_) if Path::new(OWN_TOKEN).exists() => {
                let config = Config::incluster_env().or_else(|_| Config::incluster_dns());
                return config.map_err(|error| format!("cannot reach the cluster of this pod: {error}"));
            }
            Err(error) => {
                return Err(format!("no cluster is known (engines.kubernetes.kubeconfig): {error}"));
            }
        },
    };
    let has_proxy = names_proxy(&kubeconfig);
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| format!("the kubeconfig cannot be used: {error}"))?;
    if !has_proxy {
        // That of the environment would be used whatever `no_proxy` says of the cluster.
        config.proxy_url = None;
    }
    Ok(config)
}

fn names_proxy(kubeconfig: &Kubeconfig) -> bool {
    let current = kubeconfig.current_context.as_deref().unwrap_or_default();
    let context = kubeconfig.contexts.iter().find(|found| found.name == current);
    let context = context.and_then(|found| found.context.as_ref());
    let cluster = context
        .and_then(|context| kubeconfig.clusters.iter().find(|found| found.name == context.cluster))
        .and_then(|found| found.cluster.as_ref());
    cluster.and_then(|cluster| cluster.proxy_url.as_deref()).is_some_and(|url| !url.is_empty())
}

/// Whether it may be better the next time.
pub fn is_passing(error: &Error) -> bool {
    match error {
        Error::Api(status) => matches!(status.code, 408 | 429 | 500..=599),
        Error::HyperError(_) | Error::Service(_) | Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// Whether whoever asks is not known, or may not.
pub fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Api(status) if matches!(status.code, 401 | 403))
}

pub fn is_too_old(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 410)
}

pub fn describe(error: &Error) -> String {
    if let Error::Api(status) = error {
        let message = if status.message.is_empty() { &status.reason } else { &status.message };
        return format!("{message} ({})", status.code);
    }
    with_causes(error)
}

#[derive(Debug)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(PAUSES.0)
    }
}

impl Pauses {
    pub async fn pause(&mut self) {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSES.1);
        sleep(pause).await;
    }

    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

/// What the cluster answers, if it does so in time. That it does not may be better the next time.
pub fn in_time<T>(asked: impl Future<Output = Result<T, Error>>) -> impl Future<Output = Result<T, Error>> {
    within(ANSWERS, asked)
}

/// The same where there is not much time, as something is to be removed.
pub fn soon<T>(asked: impl Future<Output = Result<T, Error>>) -> impl Future<Output = Result<T, Error>> {
    within(REMOVES, asked)
}

fn within<T>(
    longest: Duration,
    asked: impl Future<Output = Result<T, Error>>,
) -> impl Future<Output = Result<T, Error>> {
    let silent = format!("the cluster has not answered in {} s", longest.as_secs());
    timeout(longest, asked).map(|answer| answer.unwrap_or_else(|_| Err(Error::Service(silent.into()))))
}

/// Asks until there is an answer, but not for ever.
pub async fn patiently<T>(what: &str, ask: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, String> {
    let begun = Instant::now();
    let answer = persistently(|| begun.elapsed() < PATIENCE, ask).await;
    answer.map_err(|error| format!("cannot {what}: {}", describe(&error)))
}

/// Asks again after what passes, as long as `goes_on`.
pub async fn persistently<T>(
    mut goes_on: impl FnMut() -> bool,
    mut ask: impl AsyncFnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let mut pauses = Pauses::default();
    loop {
        match ask().await {
            Err(error) if is_passing(&error) && goes_on() => pauses.pause().await,
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: u16, message: &str) -> Error {
        Error::Api(Box::new(Status::failure(message, "Reason").with_code(code)))
    }

    #[test]
    fn what_the_cluster_refuses_is_not_asked_again() {
        for code in [429, 500, 503, 504] {
            assert!(is_passing(&refusal(code, "")), "{code}");
        }
        for code in [400, 401, 403, 404, 409, 410, 422] {
            assert!(!is_passing(&refusal(code, "")), "{code}");
        }
        assert!(is_too_old(&refusal(410, "")) && !is_too_old(&refusal(404, "")));
        assert!(
            is_refusal(&refusal(401, "")) && is_refusal(&refusal(403, "")) && !is_refusal(&refusal(404, ""))
        );
    }

    #[tokio::test]
    async fn silence_passes() {
        let answer: Result<(), Error> = within(Duration::from_millis(1), std::future::pending()).await;
        let silent = answer.unwrap_err();
        assert!(is_passing(&silent));
        assert_eq!(describe(&silent), "ServiceError: the cluster has not answered in 0 s");
        assert_eq!(within(ANSWERS, async { Ok(7) }).await.unwrap(), 7);
    }

    #[test]
    fn an_error_is_one_line() {
        assert_eq!(describe(&refusal(403, "pods is forbidden")), "pods is forbidden (403)");
        assert_eq!(describe(&refusal(404, "")), "Reason (404)");
        let json = serde_json::from_str::<u8>("x").unwrap_err();
        assert_eq!(describe(&Error::SerdeError(json)).lines().count(), 1);
    }

    #[test]
    fn only_a_proxy_of_the_cluster_counts() {
        let read = |proxy: &str| {
            let text = format!(
                r#"{{"clusters":[{{"name":"c","cluster":{{"server":"https://x"{proxy}}}}}],
                    "contexts":[{{"name":"a","context":{{"cluster":"c"}}}}],"current-context":"a"}}"#
            );
            serde_json::from_str::<Kubeconfig>(&text).unwrap()
        };
        assert!(!names_proxy(&read("")));
        assert!(names_proxy(&read(r#","proxy-url":"http://p""#)));
    }
}
