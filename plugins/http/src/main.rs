//! `disbatch-http`: gives the tasks of plugins with the engine `http` to web services.
//!
//! A runner starts it as it starts any plugin. It asks the service to begin with the task. Once the service has said that it
//! has the task (201), the runner is told to let go of it (`{"detach": true}`), and this program ends: the service calls back.
//! Whatever else comes of it is a failure of the task.
//!
//! The service is asked again only where it cannot have begun with the task: when no connection was made, or when it says that it cannot
//! take anything now (503). Which hosts may be asked the node's configuration names, and no manifest, as that may come from the database.

mod request;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use disbatch_adapter::{Control, hosts, note, with_causes};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Response, StatusCode, Url, redirect};
use serde_json::json;

use request::{Request, RequestInput};

const CONNECT: Duration = Duration::from_secs(10);

const WHOLE: Duration = Duration::from_secs(60);

const LONGEST_PAUSE: Duration = Duration::from_secs(60);

const SHOWN: usize = 4096;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut control = Control::from_environment();
    match Box::pin(run()).await {
        Ok(()) => {
            if control.send(&json!({ "detach": true })) {
                return ExitCode::SUCCESS;
            }
            // The service works on it, but nobody can be told to wait for that.
            note(&"the web service has taken the task, and no runner is there to be told");
            ExitCode::FAILURE
        }
        Err(failure) => {
            if let Some(status) = failure.status {
                control.send(&json!({ "facts": { "http_status": status } }));
            }
            note(&failure.why);
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let line = io::read_to_string(io::stdin())
        .map_err(|error| Failure::of(format!("cannot read the task: {error}")))?;
    let told = RequestInput::parse(&line).map_err(Failure::of)?;
    let request = Request::of(&told).map_err(Failure::of)?;
    ask(&request, told.worker.settings.connect_retries).await
}

#[derive(Debug)]
pub struct Failure {
    pub why: String,
    /// The status of its answer, if it has answered.
    pub status: Option<u16>,
}

impl Failure {
    pub fn of(why: String) -> Self {
        Self { why, status: None }
    }
}

pub async fn ask(request: &Request, retries: u32) -> Result<(), Failure> {
    let client = client(request)
        .map_err(|error| Failure::of(format!("cannot ask the web service: {}", without_address(error))))?;
    let mut tried = 0;
    loop {
        let (failure, pause) = match once(&client, request).await {
            Ok(()) => return Ok(()),
            Err(Attempt::Over(failure)) => return Err(failure),
            Err(Attempt::Again(failure, pause)) => (failure, pause),
        };
        if tried >= retries {
            return Err(failure);
        }
        let pause = pause.unwrap_or_else(|| backoff(tried)).min(LONGEST_PAUSE);
        tried += 1;
        let seconds = pause.as_secs_f64();
        note(&format_args!("{}; asked again in {seconds} s, {tried} of {retries}", failure.why));
        tokio::time::sleep(pause).await;
    }
}

enum Attempt {
    /// The service cannot have begun; and after which pause it wants to be asked again, if it says so.
    Again(Failure, Option<Duration>),
    /// It may have begun, or does not want to.
    Over(Failure),
}

fn client(request: &Request) -> Result<Client, reqwest::Error> {
    // Fails when a provider is installed already, which is as good.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("disbatch-http/", env!("CARGO_PKG_VERSION")))
        // What was meant for one address is not for another one.
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT)
        .timeout(WHOLE);
    if request.url.host_str().is_some_and(is_on_this_host) {
        // A proxy of the environment would look for the service on its own host.
        builder = builder.no_proxy();
    }
    builder.build()
}

fn is_on_this_host(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host == "[::1]" || host.starts_with("127.")
}

async fn once(client: &Client, request: &Request) -> Result<(), Attempt> {
    let sent = client
        .post(request.url.clone())
        .headers(request.headers.clone())
        .body(request.body.clone())
        .send()
        .await;
    let response = match sent {
        Ok(response) => response,
        Err(error) if error.is_connect() => {
            let why = format!("the web service cannot be reached: {}", without_address(error));
            return Err(Attempt::Again(Failure::of(why), None));
        }
        Err(error) => {
            let why = format!(
                "the web service has not answered, and may have begun with the task: {}",
                without_address(error)
            );
            return Err(Attempt::Over(Failure::of(why)));
        }
    };
    match response.status() {
        StatusCode::CREATED => Ok(()),
        StatusCode::SERVICE_UNAVAILABLE => {
            let pause = wanted_pause(&response);
            Err(Attempt::Again(refusal(response).await, pause))
        }
        _ => Err(Attempt::Over(refusal(response).await)),
    }
}

/// What an answer says that is not the right one.
async fn refusal(mut response: Response) -> Failure {
    let status = response.status();
    let mut body = Vec::new();
    while body.len() < SHOWN {
        match response.chunk().await {
            Ok(Some(piece)) => body.extend_from_slice(&piece),
            // What has come of it is enough.
            Ok(None) | Err(_) => break,
        }
    }
    body.truncate(SHOWN);
    let mut why = format!("the web service has answered with {status} and not with 201 Created");
    let body = String::from_utf8_lossy(&body);
    if !body.trim().is_empty() {
        why = format!("{why}:\n{}", body.trim_end());
    }
    Failure { why, status: Some(status.as_u16()) }
}

/// An error in one line. The address may have in it what is nobody's business.
fn without_address(error: reqwest::Error) -> String {
    with_causes(&error.without_url())
}

fn wanted_pause(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn backoff(tried: u32) -> Duration {
    Duration::from_secs(1 << tried.min(6))
}

const NOTHING_NAMED: &str = "the address is the task's, and engines.http.allow of this node's configuration is not set: \
    it names the hosts that tasks may have asked";

/// Whether the plugin's own service may be asked on this node: whether the host of `url` is one of those that `allowed` names, if it
/// names any: `host`, `host:port`, or `*.domain` for all names below a domain.
pub fn check_host(url: &Url, allowed: Option<&[String]>) -> Result<(), String> {
    match allowed {
        Some(allowed) if !fits_any(url, allowed) => Err(is_missing(url)),
        _ => Ok(()),
    }
}

/// Whether a service may be asked whose address the task has. Whoever submits tasks would otherwise choose what of the node's network
/// is asked, and sees a part of each answer: so the node has to name the host.
///
/// `has_headers`: headers of the plugin go there as well, with its secrets in them. Then `*`, which names nobody, is not enough.
pub fn check_host_of_task(url: &Url, allowed: Option<&[String]>, has_headers: bool) -> Result<(), String> {
    let Some(allowed) = allowed else { return Err(NOTHING_NAMED.to_owned()) };
    if !fits_any(url, allowed) {
        return Err(is_missing(url));
    }
    let named: Vec<String> =
        allowed.iter().filter(|pattern| hosts::names_somebody(pattern)).cloned().collect();
    if has_headers && !fits_any(url, &named) {
        return Err(format!(
            "the headers of the plugin are not for whatever address a task has: engines.http.allow of this node's \
             configuration must name the host '{}'",
            host(url)
        ));
    }
    Ok(())
}

fn is_missing(url: &Url) -> String {
    format!("engines.http.allow of this node's configuration does not have the host '{}'", host(url))
}

fn host(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

fn fits_any(url: &Url, allowed: &[String]) -> bool {
    hosts::fits_any(host(url), url.port_or_known_default(), allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow() {
        assert_eq!([0, 1, 4].map(|tried| backoff(tried).as_secs()), [1, 2, 16]);
        assert!(backoff(u32::MAX) > LONGEST_PAUSE);
    }

    #[test]
    fn a_machine_knows_itself() {
        for own in ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"] {
            assert!(is_on_this_host(own), "{own}");
        }
        for other in ["10.0.0.1", "localhost.example", "[::2]"] {
            assert!(!is_on_this_host(other), "{other}");
        }
    }

    fn may(url: &str, allowed: &[&str]) -> bool {
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        check_host(&url.parse().unwrap(), Some(&allowed)).is_ok()
    }

    #[test]
    fn without_a_list_all_may_be_asked() {
        assert_eq!(check_host(&"http://anything.example/".parse().unwrap(), None), Ok(()));
        assert!(!may("http://anything.example/", &[]));
    }

    #[test]
    fn where_a_task_says_the_address_the_node_has_to_name_it() {
        let check = |url: &str, allowed: Option<&[&str]>, has_headers: bool| {
            let allowed: Option<Vec<String>> =
                allowed.map(|allowed| allowed.iter().map(ToString::to_string).collect());
            check_host_of_task(&url.parse().unwrap(), allowed.as_deref(), has_headers)
        };
        let url = "https://jobs.example/start";
        for has_headers in [false, true] {
            let error = check(url, None, has_headers).unwrap_err();
            assert!(error.starts_with("the address is the task's, and engines.http.allow"), "{error}");
            let error = check("https://evil.example/", Some(&["jobs.example"]), has_headers).unwrap_err();
            assert!(error.ends_with("does not have the host 'evil.example'"), "{error}");
            for pattern in ["jobs.example", "*.example", "jobs.example:443"] {
                assert_eq!(check(url, Some(&["x", pattern]), has_headers), Ok(()), "{pattern}");
            }
        }
        for all in [&["*"][..], &[" * "], &["*:443"], &["other.example", "*."]] {
            assert_eq!(check(url, Some(all), false), Ok(()), "{all:?}");
            let error = check(url, Some(all), true).unwrap_err();
            assert!(error.ends_with("must name the host 'jobs.example'"), "{error}");
        }
    }
}
