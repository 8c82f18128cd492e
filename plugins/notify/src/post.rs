//! Sends a request, once.

use std::time::Duration;

use disbatch_adapter::with_causes;
use disbatch_plugin::Error;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response, Url, redirect};

use crate::addresses::Allowed;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How long the whole may take.
const WHOLE: Duration = Duration::from_secs(30);

/// So many bytes of an answer are shown.
const SHOWN: usize = 4096;

#[derive(Debug)]
pub struct Request {
    pub url: Url,
    pub headers: HeaderMap,
    /// JSON.
    pub body: String,
}

impl Request {
    /// One without headers of its own. Shows no part of an address, which may be the secret.
    pub fn new(url: &str, body: String) -> Result<Self, Error> {
        let url = url
            .trim()
            .parse::<Url>()
            .map_err(|error| Error::failed(format_args!("the address of the channel is none: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::failed("the address of the channel must begin with http:// or https://"));
        }
        Ok(Self { url, headers: HeaderMap::new(), body })
    }
}

/// Sends it. Returns what to say about it.
pub fn post(request: &Request, allowed: &Allowed) -> Result<String, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(sent(request, allowed))
}

async fn sent(request: &Request, allowed: &Allowed) -> Result<String, Error> {
    let host = request.url.host_str().unwrap_or_default();
    let addresses = allowed.resolve(host, request.url.port_or_known_default().unwrap_or(443))?;
    let client = Client::builder()
        .user_agent(concat!("disbatch-notify/", env!("CARGO_PKG_VERSION")))
        // Those that were looked at, and no others: no other name, no other answer for it, no proxy that looks for itself.
        .resolve_to_addrs(host, &addresses)
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT)
        .timeout(WHOLE)
        .build()
        .map_err(|error| cannot("cannot be written to", error))?;
    let response = client
        .post(request.url.clone())
        .headers(request.headers.clone())
        .header(CONTENT_TYPE, "application/json")
        .body(request.body.clone())
        .send()
        .await
        .map_err(|error| match error.is_connect() {
            true => cannot("cannot be reached", error),
            false => cannot("has not answered, and may have the message", error),
        })?;
    let status = response.status();
    if status.is_success() {
        return Ok(format!("{host} has answered with {status}"));
    }
    let body = shown(response).await;
    let separator = if body.is_empty() { "" } else { ":\n" };
    Err(Error::failed(format_args!("{host} has answered with {status}{separator}{body}")))
}

/// The beginning of an answer.
async fn shown(mut response: Response) -> String {
    let mut body = Vec::new();
    while body.len() < SHOWN {
        match response.chunk().await {
            Ok(Some(piece)) => body.extend_from_slice(&piece),
            // What has come of it is enough.
            Ok(None) | Err(_) => break,
        }
    }
    body.truncate(SHOWN);
    String::from_utf8_lossy(&body).trim().to_owned()
}

fn cannot(what: &str, error: reqwest::Error) -> Error {
    // The address may be a secret.
    Error::failed(format_args!("the receiver {what}: {}", with_causes(&error.without_url())))
}
