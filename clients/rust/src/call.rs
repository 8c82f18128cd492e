//! Requests and their answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Certificate, Method, Response, Url};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::{sleep, timeout};

use crate::VERSION;
use crate::error::{ApiError, Error, Result};
use crate::retries::{Retries, retry_after};
use crate::settings::{Settings, Traceparent};

const DEFAULT_URL: &str = "http://localhost:8080";
const JSON: &str = "application/json";

/// A request.
pub struct Call {
    method: Method,
    url: Url,
    /// Method and path, for messages.
    name: String,
    headers: Vec<(reqwest::header::HeaderName, String)>,
    body: Option<(&'static str, Vec<u8>)>,
    /// Whether doing it twice is as good as once.
    is_repeatable: bool,
    /// What its answer may take beyond the timeout.
    patience: Duration,
}

impl Call {
    pub fn query(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.url.query_pairs_mut().append_pair(name, &value.to_string());
        self
    }

    pub fn maybe(self, name: &str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// Those that are not null; with commas between the elements of a list, but for tags, which may have commas.
    pub fn queries(mut self, fields: &Map<String, Value>) -> Self {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        for (name, value) in fields {
            match value {
                Value::Null => (),
                Value::Array(all) if all.is_empty() || !matches!(name.as_str(), "tags" | "any_tags") => {
                    self = self.query(name, all.iter().map(text).collect::<Vec<_>>().join(","))
                }
                one => self = self.query(name, text(one)),
            }
        }
        self
    }

    pub fn json(mut self, body: &impl Serialize) -> Result<Self> {
        let body = serde_json::to_vec(body).map_err(|error| Error::Invalid(format!("no JSON: {error}")))?;
        self.body = Some((JSON, body));
        Ok(self)
    }

    pub fn bytes(mut self, body: Vec<u8>) -> Self {
        self.body = Some(("application/octet-stream", body));
        self
    }

    pub fn header(mut self, name: reqwest::header::HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn repeatable(mut self) -> Self {
        self.is_repeatable = true;
        self
    }

    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

/// An answer that has come whole.
pub struct Answer {
    name: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Result<Value> {
        let wrong = |_| {
            Error::Protocol(format!("{}: the answer is no JSON; is this the address of a DCI?", self.name))
        };
        serde_json::from_slice(&self.body).map_err(wrong)
    }

    /// It does not have what it should.
    pub fn lacks(&self, what: &str) -> Error {
        Error::Protocol(format!("{}: the answer has no {what}", self.name))
    }
}

/// An answer that comes piece by piece.
pub struct Incoming {
    pub response: Response,
    connection: Connection,
    name: String,
}

impl Incoming {
    /// The next piece; none at the end.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>> {
        match timeout(self.connection.timeout, self.response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk.map(|bytes| bytes.to_vec())),
            Ok(Err(error)) => Err(self.connection.unreachable(&self.name, &error)),
            Err(_) => Err(self.connection.late(&self.name)),
        }
    }

    async fn rest(mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            body.extend(chunk);
        }
        Ok(body)
    }
}

/// How requests are sent, and sent again.
#[derive(Clone)]
pub struct Connection {
    http: reqwest::Client,
    url: Url,
    settings: Arc<Settings>,
    traceparent: Option<Arc<dyn Traceparent>>,
    timeout: Duration,
}

impl Connection {
    pub fn new(settings: Settings) -> Result<Self> {
        let settings = settings.completed();
        let text = settings.url.as_deref().unwrap_or(DEFAULT_URL);
        let url = Url::parse(text)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            // Not with what is wrong, which may have a password in it.
            .ok_or_else(|| {
                Error::Invalid("the address of the DCI is none: http://HOST:PORT or https://..".into())
            })?;
        if !url.username().is_empty() || url.password().is_some() {
            let why = "the address of the DCI has a name or a password in it: use username and password";
            return Err(Error::Invalid(why.into()));
        }
        // Only where the program has chosen none.
        let _already_installed = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("disbatch-rust/", env!("CARGO_PKG_VERSION")))
            // What is posted would be asked for at another address, and nothing be done.
            .redirect(reqwest::redirect::Policy::none());
        if let Some(path) = &settings.ca_file {
            let pem = std::fs::read(path).map_err(Error::file(path))?;
            let certificates = Certificate::from_pem_bundle(&pem)
                .map_err(|_| Error::Invalid(format!("{} holds no certificates", path.display())))?;
            builder = builder.tls_certs_only(certificates);
        }
        if is_on_this_host(&url) {
            // A proxy of the environment would look for the server on its own host.
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(Self { http, url, timeout: settings.timeout, settings: Arc::new(settings), traceparent: None })
    }

    pub fn with_traceparent(&self, value: impl Traceparent) -> Self {
        Self { traceparent: Some(Arc::new(value)), ..self.clone() }
    }

    pub fn url(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    /// A request to the path of these segments, whatever characters they have.
    pub fn call(&self, method: Method, segments: &[&str]) -> Result<Call> {
        // They would mean another path.
        if let Some(wrong) = segments.iter().find(|segment| matches!(**segment, "" | "." | "..")) {
            return Err(Error::Invalid(format!("{wrong:?} cannot be part of an address")));
        }
        let mut url = self.url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        let name = format!("{method} /{}", segments.join("/"));
        let (headers, body, patience) = (Vec::new(), None, Duration::ZERO);
        let is_repeatable = matches!(method, Method::GET | Method::HEAD | Method::PUT);
        Ok(Call { method, url, name, headers, body, is_repeatable, patience })
    }

    pub fn get(&self, segments: &[&str]) -> Result<Call> {
        self.call(Method::GET, segments)
    }

    pub fn post(&self, segments: &[&str], body: &impl Serialize) -> Result<Call> {
        self.call(Method::POST, segments)?.json(body)
    }

    /// Sends a request until it is answered, or is not to be sent again.
    pub async fn send(&self, call: &Call) -> Result<Answer> {
        let mut tried = 0;
        loop {
            match self.once(call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.pause(error, call, &mut tried).await?,
            }
        }
    }

    /// The JSON that answers a request.
    pub async fn ask(&self, call: Call) -> Result<Value> {
        self.send(&call).await?.json()
    }

    /// Waits before the next try, or returns the error if there is to be none.
    pub async fn pause(&self, error: Error, call: &Call, tried: &mut u32) -> Result<()> {
        let Settings { retries, backoff, backoff_max, retry_after_max, .. } = *self.settings;
        let retries =
            Retries { most: retries, backoff, longest: backoff_max, longest_asked: retry_after_max };
        sleep(retries.pause(error, call.is_repeatable, *tried)?).await;
        *tried += 1;
        Ok(())
    }

    async fn once(&self, call: &Call) -> Result<Answer> {
        let incoming = self.open(call).await?;
        let headers = incoming.response.headers().clone();
        Ok(Answer { name: call.name.clone(), headers, body: incoming.rest().await? })
    }

    /// Sends a request once, for the beginning of its answer.
    pub async fn open(&self, call: &Call) -> Result<Incoming> {
        let sent = timeout(self.timeout + call.patience, self.request(call).send()).await;
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unreachable(&call.name, &error)),
            Err(_) => return Err(self.late(&call.name)),
        };
        let header = |name: &str| response.headers().get(name)?.to_str().ok();
        if let Some(warning) = header("disbatch-warning") {
            match &self.settings.on_warning {
                Some(told) => told(warning),
                None => tracing::warn!("{}: {warning}", call.name),
            }
        }
        let status = response.status();
        let after = header(RETRY_AFTER.as_str()).and_then(retry_after);
        let incoming = Incoming { response, connection: self.clone(), name: call.name.clone() };
        if status.is_success() {
            return Ok(incoming);
        }
        let body = incoming.rest().await?;
        Err(Error::Api(Box::new(ApiError::new(&call.name, status.as_u16(), &body, after))))
    }

    fn request(&self, call: &Call) -> reqwest::RequestBuilder {
        let mut request = self.http.request(call.method.clone(), call.url.clone());
        request = match &*self.settings {
            Settings { token: Some(token), .. } => request.bearer_auth(token.trim()),
            Settings { username: Some(name), password, .. } => request.basic_auth(name, password.as_ref()),
            _ => request, // Nobody is named.
        };
        if let Some(value) = self.traceparent.as_ref().and_then(|traceparent| traceparent.value()) {
            request = request.header("traceparent", value);
        }
        if !call.headers.iter().any(|(name, _)| name == ACCEPT) {
            request = request.header(ACCEPT, JSON);
        }
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        match &call.body {
            Some((kind, body)) => request.header(CONTENT_TYPE, *kind).body(body.clone()),
            None => request,
        }
    }

    fn unreachable(&self, name: &str, error: &reqwest::Error) -> Error {
        let mut cause: &dyn std::error::Error = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        if error.is_builder() {
            return Error::Invalid(format!("{name}: this cannot be sent: {cause}"));
        }
        Error::Unreachable { message: format!("{name}: {}: {cause}", self.url()), sent: !error.is_connect() }
    }

    fn late(&self, name: &str) -> Error {
        Error::RequestTimeout(format!("{name}: {} does not answer in time", self.url()))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disbatch-rust/{VERSION} of {}", self.url())
    }
}

fn is_on_this_host(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(url: &str) -> Result<Connection> {
        Connection::new(Settings { url: Some(url.to_owned()), ..Settings::default() })
    }

    fn url(base: &str, segments: &[&str]) -> String {
        at(base).unwrap().get(segments).unwrap().url.to_string()
    }

    #[test]
    fn a_segment_may_have_any_character() {
        assert_eq!(url("http://h:1", &["queues", "a b/ü?#%"]), "http://h:1/queues/a%20b%2F%C3%BC%3F%23%25");
        assert_eq!(url("http://h/batch/v4/", &["queues"]), "http://h/batch/v4/queues");
        for wrong in ["", ".", ".."] {
            let error = at("http://h").unwrap().get(&["tasks", wrong]).err().unwrap();
            assert_eq!(error.to_string(), format!("{wrong:?} cannot be part of an address"));
        }
    }

    #[test]
    fn a_query_has_what_is_not_null() {
        let fields = json!({"a": null, "b": [1, "x y"], "c": true, "d": "e", "tags": ["f,g"]});
        let call = at("http://h").unwrap().get(&["x"]).unwrap().queries(fields.as_object().unwrap());
        assert_eq!(call.url.query(), Some("b=1%2Cx+y&c=true&d=e&tags=%5B%22f%2Cg%22%5D"));
    }

    #[test]
    fn an_address_that_is_none_is_refused_without_its_password() {
        for wrong in ["http://alice:horse@localhost", "http://horse@h", "ftp://horse", "horse", "http://"] {
            let error = at(wrong).unwrap_err();
            assert_eq!(error.code(), "invalid", "{wrong}");
            assert!(error.to_string().starts_with("the address of the DCI "), "{error}");
            assert!(!error.to_string().contains("horse"), "{error}");
        }
    }

    #[test]
    fn a_proxy_is_not_asked_for_this_host() {
        let of = |url: &str| is_on_this_host(&Url::parse(url).unwrap());
        for url in ["http://localhost:8080", "http://127.0.0.1", "http://[::1]:8080/x", "https://127.9.9.9"] {
            assert!(of(url), "{url}");
        }
        for url in ["http://example.com", "http://10.0.0.1", "http://localhost.example.com"] {
            assert!(!of(url), "{url}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let settings =
            Settings { token: Some("horse".into()), password: Some("horse".into()), ..Settings::default() };
        let shown = format!("{settings:?} {:?}", Connection::new(settings.clone()).unwrap());
        assert!(!shown.contains("horse"), "{shown}");
    }

    #[tokio::test]
    async fn what_no_header_can_have_is_named() {
        let settings = Settings { token: Some("hor\nse".into()), ..Settings::default() };
        let connection = Connection::new(settings).unwrap();
        let error = connection.ask(connection.get(&["info"]).unwrap()).await.unwrap_err();
        assert_eq!(error.code(), "invalid");
        assert!(error.to_string().starts_with("GET /info: this cannot be sent: "), "{error}");
    }
}
