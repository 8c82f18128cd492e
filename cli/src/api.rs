//! The HTTP client: JSON and forms to the DCI's REST API, JSON back.

mod credentials;

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use anyhow::Context;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{CONTENT_TYPE, LOCATION, RANGE};
use reqwest::{Certificate, Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::args::ConnectionOptions;
use crate::output;
use credentials::Credentials;

const DEFAULT_URL: &str = "http://localhost:8080";

/// How often a silent connection is checked: a long answer may be silent for as long as a task is, and must not
/// hang when the other side is gone.
const KEEPALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    credentials: Credentials,
}

/// A request that did not bring what was asked for. The wording is the Perl client's.
#[derive(Debug)]
pub enum ApiError {
    Refused {
        /// What was being done: `getting`, `posting` or `deleting`.
        action: &'static str,
        url: String,
        status: StatusCode,
        body: String,
        /// What to do about it.
        advice: Option<&'static str>,
    },
    Unreachable {
        action: &'static str,
        url: String,
        reason: String,
        connected: bool,
    },
    /// The answer is no JSON: this is no DCI.
    NotJson {
        action: &'static str,
        url: String,
        reason: String,
    },
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused { action, url, status, body, advice } => {
                let reason = status.canonical_reason().unwrap_or_default();
                let sentence = sentence(body);
                let said = sentence.as_deref().unwrap_or_else(|| body.trim_end());
                write!(f, "Error {action} {url} ({} {reason}): {said}", status.as_u16())?;
                let advice = advice.filter(|_| !self.is_about_tasks());
                advice.map_or(Ok(()), |advice| write!(f, "\n{advice}"))
            }
            Self::Unreachable { action, url, reason, .. } => {
                write!(f, "Error {action} {url} (500 {reason}): {reason}")
            }
            Self::NotJson { action, url, reason } => {
                write!(f, "Error {action} {url}: the answer is not JSON: {reason}")
            }
        }
    }
}

impl Error for ApiError {}

impl ApiError {
    /// Whether the same request may well be answered a little later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            // 408 and 429 ask to try again; 502 to 504 are a DCI or a proxy without what stands behind it.
            Self::Refused { status, .. } => matches!(status.as_u16(), 408 | 429 | 502..=504),
            Self::NotJson { .. } => false,
        }
    }

    /// Whether new tasks were refused, as a tenant may have no more or a rule says so.
    pub fn is_about_tasks(&self) -> bool {
        let Self::Refused { status, body, .. } = self else { return false };
        let body: Option<Value> = serde_json::from_str(body).ok();
        let has = |name: &str| body.as_ref().is_some_and(|body| body.get(name).is_some());
        match *status {
            StatusCode::TOO_MANY_REQUESTS => has("limit"),
            StatusCode::SERVICE_UNAVAILABLE => has("rule"),
            _ => false, // It says itself what is wrong.
        }
    }

    /// An answer that ended before it was complete.
    pub fn broken_off(action: &'static str, url: String, error: &reqwest::Error) -> Self {
        let reason = describe(error, &url);
        Self::Unreachable { action, url, reason, connected: !error.is_connect() }
    }

    pub fn has_reached(&self) -> bool {
        !matches!(self, Self::Unreachable { connected: false, .. })
    }

    pub fn status(&self) -> Option<StatusCode> {
        if let Self::Refused { status, .. } = self { Some(*status) } else { None }
    }

    /// What the DCI says is wrong, in its words; the whole error if it says nothing.
    pub fn reason(&self) -> String {
        let Self::Refused { body, .. } = self else { return self.to_string() };
        if let Some(sentence) = sentence(body) {
            return sentence;
        }
        let body: Option<Value> = serde_json::from_str(body).ok();
        let field = |name: &str| body.as_ref().and_then(|body| body.get(name)?.as_str());
        match (field("error"), field("param")) {
            (Some(message), Some(param)) => format!("{message} '{param}'"),
            (Some(message), None) => message.to_owned(),
            (None, _) => self.to_string(),
        }
    }

    pub fn with_advice(&self) -> String {
        let reason = self.reason();
        match self.status() {
            Some(StatusCode::NOT_FOUND) if reason.starts_with("nothing is at") => {
                format!("{reason}: the DCI is older than this command")
            }
            // Neither a password nor a server that is away is the matter.
            Some(_) if self.is_about_tasks() => reason,
            // The error itself says what to do.
            Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS) => {
                self.to_string()
            }
            Some(status) if status.is_client_error() => reason,
            _ => self.to_string(), // The address is what matters.
        }
    }
}

impl Client {
    pub fn new(options: &ConnectionOptions) -> anyhow::Result<Self> {
        // Fails when a provider is installed already, which is as good.
        let _already_installed = rustls::crypto::ring::default_provider().install_default();
        let options = options.clone();
        let credentials = Credentials::of(options.token, options.username, options.password)?;
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("disbatch/", env!("CARGO_PKG_VERSION")))
            // What is posted would be asked for at another address, and nothing be done.
            .redirect(reqwest::redirect::Policy::none())
            .tcp_keepalive(KEEPALIVE)
            .tcp_keepalive_interval(KEEPALIVE)
            .tcp_keepalive_retries(3)
            .tls_danger_accept_invalid_certs(options.disable_ssl_verification);
        if let Some(path) = &options.ssl_ca_file {
            let pem = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            let certificates = Certificate::from_pem_bundle(&pem)
                .with_context(|| format!("{} holds no certificates", path.display()))?;
            builder = builder.tls_certs_only(certificates);
        }
        let url = options.url.unwrap_or_else(|| DEFAULT_URL.to_owned());
        if is_on_this_host(&url) {
            // A proxy of the environment would look for the server on its own host.
            builder = builder.no_proxy();
        }
        Ok(Self { http: builder.build()?, url: url.trim_end_matches('/').to_owned(), credentials })
    }

    pub fn address(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// `GET path`, with `body` as JSON if there is one: a DCI reads parameters from there too.
    pub async fn get(&self, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        self.send("getting", Method::GET, path, |request| match body {
            Some(body) => request.json(body),
            None => request,
        })
        .await
    }

    /// `GET path`, whose answer comes within `limit`, else there is none.
    pub async fn get_within(&self, path: &str, limit: Duration) -> Result<Value, ApiError> {
        self.send("getting", Method::GET, path, |request| request.timeout(limit)).await
    }

    /// `GET path` for bytes from `offset` on, which the caller takes from the answer as they come. An answer with
    /// 206 begins there or says where, one with 200 at the beginning.
    pub async fn stream(&self, path: &str, offset: u64) -> Result<Response, ApiError> {
        let range = |request: RequestBuilder| match offset {
            0 => request,
            _ => request.header(RANGE, format!("bytes={offset}-")),
        };
        Ok(self.ask("getting", Method::GET, path, range).await?.1)
    }

    pub async fn post(&self, path: &str, body: &impl Serialize) -> Result<Value, ApiError> {
        self.send("posting", Method::POST, path, |request| request.json(body)).await
    }

    /// `POST path` with `json` as it is: numbers keep all their digits.
    pub async fn post_json(&self, path: &str, json: String) -> Result<Value, ApiError> {
        let send = |request: RequestBuilder| request.header(CONTENT_TYPE, "application/json").body(json);
        self.send("posting", Method::POST, path, send).await
    }

    pub async fn post_form(&self, path: &str, fields: &BTreeMap<String, String>) -> Result<Value, ApiError> {
        self.send("posting", Method::POST, path, |request| request.form(fields)).await
    }

    pub async fn put(&self, path: &str, body: &impl Serialize) -> Result<Value, ApiError> {
        self.send("putting", Method::PUT, path, |request| request.json(body)).await
    }

    pub async fn put_bytes(&self, path: &str, bytes: Vec<u8>) -> Result<Value, ApiError> {
        let send =
            |request: RequestBuilder| request.header(CONTENT_TYPE, "application/octet-stream").body(bytes);
        self.send("putting", Method::PUT, path, send).await
    }

    pub async fn delete(&self, path: &str) -> Result<Value, ApiError> {
        self.send("deleting", Method::DELETE, path, |request| request).await
    }

    async fn send(
        &self,
        action: &'static str,
        method: Method,
        path: &str,
        with_body: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Result<Value, ApiError> {
        let (url, response) = self.ask(action, method, path, with_body).await?;
        let body = text(action, &url, response).await?;
        serde_json::from_str(&body).map_err(|error| ApiError::NotJson {
            action,
            url,
            reason: error.to_string(),
        })
    }

    /// Sends a request. Returns its address and the beginning of the answer, unless that is an error.
    async fn ask(
        &self,
        action: &'static str,
        method: Method,
        path: &str,
        with_body: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Result<(String, Response), ApiError> {
        let url = self.address(path);
        let request = self.credentials.show(self.http.request(method, &url));
        let response = match with_body(request).send().await {
            Ok(response) => response,
            Err(error) => return Err(ApiError::broken_off(action, url, &error)),
        };
        let warning = response.headers().get("disbatch-warning").and_then(|value| value.to_str().ok());
        if let Some(warning) = warning {
            output::say(&format!("warning: {warning}"));
        }
        let status = response.status();
        if status.is_success() {
            return Ok((url, response));
        }
        let elsewhere = response.headers().get(LOCATION).filter(|_| status.is_redirection());
        let body = match elsewhere.and_then(|location| location.to_str().ok()) {
            Some(location) => format!("this is at {location}: use that address"),
            None => text(action, &url, response).await?,
        };
        Err(ApiError::Refused { action, url, status, body, advice: self.credentials.advice(status) })
    }
}

async fn text(action: &'static str, url: &str, response: Response) -> Result<String, ApiError> {
    response.text().await.map_err(|error| ApiError::broken_off(action, url.to_owned(), &error))
}

/// What the answers mean in which a DCI, as Perl's, has structures of MongoDB's driver in place of a sentence.
fn sentence(body: &str) -> Option<String> {
    let body: Value = serde_json::from_str(body).ok()?;
    if body.get("MongoDB::DuplicateKeyError").is_some() {
        return Some("there is a queue with this name already".to_owned());
    }
    let result =
        ["MongoDB::UpdateResult", "MongoDB::DeleteResult"].iter().find_map(|name| body.get(*name))?;
    let count = ["matched_count", "deleted_count"].iter().find_map(|name| result.get(*name)?.as_u64())?;
    let error = body.get("error")?;
    (count == 0).then(|| match error.as_str() {
        // Of Perl's DCI.
        Some(structure) if structure.starts_with("MongoDB::") => {
            "there is no queue with this name or id".to_owned()
        }
        Some(sentence) => sentence.to_owned(),
        None => "there is no node with this name or id".to_owned(),
    })
}

/// The cause of a failed connection in the Perl client's words.
fn describe(error: &reqwest::Error, url: &str) -> String {
    let mut cause: &dyn Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let cause = match cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        Some(std::io::ErrorKind::ConnectionRefused) => "Connection refused".to_owned(),
        _ => cause.to_string(),
    };
    if !error.is_connect() {
        return cause;
    }
    let host = reqwest::Url::parse(url).ok().and_then(|url| {
        Some(format!("{}:{}", url.host_str()?, url.port_or_known_default().unwrap_or_default()))
    });
    format!("Can't connect to {} ({cause})", host.as_deref().unwrap_or(url))
}

pub trait Answer: Default + Serialize + DeserializeOwned {}

impl<T: Default + Serialize + DeserializeOwned> Answer for T {}

/// An answer as what it is. What a DCI of another release does not say is as it is by default.
pub fn read<T: Answer>(answer: Value) -> serde_json::Result<T> {
    let mut whole = serde_json::to_value(T::default())?;
    match (&mut whole, answer) {
        (Value::Object(whole), Value::Object(told)) => whole.extend(told),
        (whole, told) => *whole = told,
    }
    serde_json::from_value(whole)
}

const NOT_IN_SEGMENTS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'@');

pub fn segment(name: &str) -> String {
    utf8_percent_encode(name, NOT_IN_SEGMENTS).to_string()
}

pub fn given<'a>(fields: impl IntoIterator<Item = (&'a str, Option<Value>)>) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

pub fn fields(request: &impl Serialize) -> serde_json::Result<Map<String, Value>> {
    let mut fields: Map<String, Value> = serde_json::from_value(serde_json::to_value(request)?)?;
    fields.retain(|_, value| !value.is_null());
    Ok(fields)
}

/// What is given, as the query of an address; nothing if nothing is.
pub fn query<'a>(pairs: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    let pair = |(name, value): (&str, Option<String>)| Some(format!("{name}={}", segment(&value?)));
    let given: Vec<String> = pairs.into_iter().filter_map(pair).collect();
    if given.is_empty() { String::new() } else { format!("?{}", given.join("&")) }
}

/// A path with what is given of a search, and of how much may be found.
pub fn address(path: &str, search: &impl Serialize, limit: Option<i64>) -> serde_json::Result<String> {
    let mut given = fields(search)?;
    given.extend(limit.map(|limit| (".limit".to_owned(), limit.into())));
    let pairs = given.iter().map(|(name, value)| (name.as_str(), Some(output::plain(Some(value)))));
    Ok(format!("{path}{}", query(pairs)))
}

fn is_on_this_host(url: &str) -> bool {
    let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.is_some_and(|host| {
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn nobody_is_led_elsewhere() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answering = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _some = connection.read(&mut [0; 4096]).await.unwrap();
            let answer = b"HTTP/1.1 303 See Other\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n";
            connection.write_all(answer).await.unwrap();
            connection
        });
        let options = ConnectionOptions { url: Some(url.clone()), ..ConnectionOptions::default() };
        let client = Client::new(&options).unwrap();
        let error = client.post("/queues/q", &json!({"threads": 1})).await.unwrap_err();
        let _still_open = answering.await.unwrap();
        let said = "(303 See Other): this is at /x: use that address";
        assert_eq!(error.to_string(), format!("Error posting {url}/queues/q {said}"));
    }

    #[test]
    fn a_proxy_is_not_asked_for_this_host() {
        for url in ["http://localhost:8080", "http://127.0.0.1", "http://[::1]:8080/x", "https://127.9.9.9"] {
            assert!(is_on_this_host(url), "{url}");
        }
        for url in ["http://example.com", "http://10.0.0.1", "http://localhost.example.com", "nonsense"] {
            assert!(!is_on_this_host(url), "{url}");
        }
    }

    #[test]
    fn names_become_one_segment() {
        assert_eq!(segment("q1"), "q1");
        assert_eq!(segment("my queue/é"), "my%20queue%2F%C3%A9");
    }

    #[test]
    fn a_query_has_what_is_given() {
        assert_eq!(query([("a", None), ("b", None)]), "");
        let pairs = [("a", Some("1 2".to_owned())), ("b", None), (".c", Some("é".to_owned()))];
        assert_eq!(query(pairs), "?a=1%202&.c=%C3%A9");
    }

    #[test]
    fn structures_of_the_driver_become_sentences() {
        let result = r#"{"matched_count":0,"modified_count":0}"#;
        let of = |body: &str| sentence(body).unwrap_or_default().to_owned();
        let node = format!("{{\"MongoDB::UpdateResult\":{result},\"error\":{result}}}");
        assert_eq!(of(&node), "there is no node with this name or id");
        let queue = format!("{{\"MongoDB::UpdateResult\":{result},\"error\":\"no queue 'x'\"}}");
        assert_eq!(of(&queue), "no queue 'x'");
        let perls =
            r#"{"MongoDB::DeleteResult":{"deleted_count":0},"error":"MongoDB::DeleteResult=HASH(0x5)"}"#;
        assert_eq!(of(perls), "there is no queue with this name or id");
        assert_eq!(of(r#"{"MongoDB::UpdateResult":{"matched_count":1},"error":"x"}"#), "");
        assert_eq!(of(r#"{"MongoDB::DuplicateKeyError":{}}"#), "there is a queue with this name already");
        assert_eq!(of("<html>"), "");
    }

    fn refused(status: u16, body: &str) -> ApiError {
        let status = StatusCode::from_u16(status).unwrap();
        let advice = Credentials::Nothing.advice(status);
        ApiError::Refused { action: "getting", url: "http://h/x".into(), status, body: body.into(), advice }
    }

    #[test]
    fn errors_read_as_those_of_the_perl_client() {
        let refused = refused(400, "{\"error\":\"x\"}");
        assert_eq!(refused.to_string(), "Error getting http://h/x (400 Bad Request): {\"error\":\"x\"}");
    }

    #[test]
    fn errors_say_what_to_do() {
        for (error, text) in [
            (refused(409, r#"{"error":"the task has ended"}"#), "the task has ended"),
            (refused(400, r#"{"error":"unknown param","param":"a"}"#), "unknown param 'a'"),
            (refused(404, r#"{"error":"nothing is at /x"}"#), "older than this command"),
            (refused(401, "no"), "Give --token"),
            (refused(403, r#"{"error":"this needs the role operator"}"#), "disbatch user grant"),
            (refused(429, r#"{"error":"wait 3 s"}"#), "wait 3 s\"}\nPasswords"),
            (refused(500, r#"{"error":"internal"}"#), "Error getting http://h/x (500"),
        ] {
            assert!(error.with_advice().contains(text), "{text}");
        }
    }
}
