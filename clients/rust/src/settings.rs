//! How a client reaches its server, and as whom.

use std::env;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Whatever is not given comes from `DISBATCH_URL`, `DISBATCH_TOKEN`, `DISBATCH_USERNAME` and `DISBATCH_PASSWORD`.
#[derive(Clone)]
pub struct Settings {
    /// May have a path. `http://localhost:8080` if the environment has none either.
    pub url: Option<String>,
    /// Comes before a name and a password.
    pub token: Option<String>,
    pub username: Option<String>,
    pub password: Option<String>,
    /// A PEM file with the only certificates that are trusted.
    pub ca_file: Option<PathBuf>,
    /// How long an answer may take, and each further piece of it.
    pub timeout: Duration,
    /// How often a request is tried again.
    pub retries: u32,
    /// Before the n-th retry there is a pause of up to `backoff` * 2^n.
    pub backoff: Duration,
    /// The longest such pause.
    pub backoff_max: Duration,
    /// The longest pause that a server may ask for.
    pub retry_after_max: Duration,
    /// Told of what the server warns about, such as an option that it does not know. Without it, a warning of `tracing`.
    pub on_warning: Option<OnWarning>,
}

/// Takes what the server warns about.
pub type OnWarning = Arc<dyn Fn(&str) + Send + Sync>;

impl Default for Settings {
    fn default() -> Self {
        Self {
            url: None,
            token: None,
            username: None,
            password: None,
            ca_file: None,
            timeout: Duration::from_secs(30),
            retries: 5,
            backoff: Duration::from_millis(500),
            backoff_max: Duration::from_secs(15),
            retry_after_max: Duration::from_secs(120),
            on_warning: None,
        }
    }
}

/// Secrets are no part of messages.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Settings {
    /// With what the environment has.
    pub(crate) fn completed(mut self) -> Self {
        let has = |text: &String| !text.is_empty();
        let of = |name: &str| env::var(name).ok().filter(has);
        self.url = self.url.filter(has).or_else(|| of("DISBATCH_URL"));
        (self.token, self.username) = (self.token.filter(has), self.username.filter(has));
        if self.token.is_none() && self.username.is_none() {
            (self.token, self.username) = (of("DISBATCH_TOKEN"), of("DISBATCH_USERNAME"));
            self.password = self.password.or_else(|| of("DISBATCH_PASSWORD"));
        }
        self
    }
}

/// What the header `traceparent` says: a text, or a function that has it at the time of each request.
pub trait Traceparent: Send + Sync + 'static {
    fn value(&self) -> Option<String>;
}

impl Traceparent for String {
    fn value(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl Traceparent for &'static str {
    fn value(&self) -> Option<String> {
        Some((*self).to_owned())
    }
}

impl<F: Fn() -> Option<String> + Send + Sync + 'static> Traceparent for F {
    fn value(&self) -> Option<String> {
        self()
    }
}
