//! The [WebDriver](https://www.w3.org/TR/webdriver2/) protocol, as far as it is needed here: JSON over HTTP.
//!
//! The crates that speak it stand on one whose licence is not among those of `deny.toml`.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::PATIENCE;

/// Under which key the standard has the id of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Whoever gets one of these can do nothing by trying again.
const FINAL: [&str; 7] = [
    "unexpected alert open",
    "invalid session id",
    "session not created",
    "no such window",
    "invalid argument",
    "invalid selector",
    "unknown command",
];

/// What the driver answers that did not do what it was told to.
#[derive(Debug)]
struct Refusal {
    /// A code of the standard.
    error: String,
    message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What follows the first line is about the driver.
        let message = self.message.lines().next().unwrap_or_default();
        // It often begins with the code.
        if message.starts_with(&self.error) {
            write!(formatter, "{message}")
        } else {
            write!(formatter, "{}: {message}", self.error)
        }
    }
}

impl std::error::Error for Refusal {}

/// Whether it is of no use to try again.
pub(super) fn is_final(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<Refusal>() {
        Some(refusal) => FINAL.contains(&refusal.error.as_str()),
        None => error.is::<reqwest::Error>(),
    }
}

/// An element of a page, as the driver knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Element(String);

impl Element {
    /// The one that a script has returned.
    pub fn of(value: &Value) -> Option<Self> {
        value.get(ELEMENT).and_then(Value::as_str).map(|id| Self(id.to_owned()))
    }

    /// As an argument of a script.
    pub fn reference(&self) -> Value {
        json!({ ELEMENT: self.0 })
    }

    pub fn path(&self, command: &str) -> String {
        format!("/element/{}/{command}", self.0)
    }
}

/// A browser that a driver has started.
#[derive(Debug)]
pub(super) struct Session {
    http: reqwest::Client,
    url: String,
}

impl Session {
    /// Has the driver at `url` start a browser with these capabilities.
    pub async fn start(url: &str, capabilities: Value) -> anyhow::Result<Self> {
        // What a page may take, and a moment for the answer.
        let limit = PATIENCE + Duration::from_secs(5);
        let http = crate::dci::http_client().no_proxy().timeout(limit).build()?;
        let wanted = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let session = send(http.request(Method::POST, format!("{url}/session")).json(&wanted)).await;
        let session = session.context("chromium does not start")?;
        let id = session["sessionId"].as_str().context("a session without an id")?;
        Ok(Self { http, url: format!("{url}/session/{id}") })
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        send(self.http.request(Method::GET, format!("{}{path}", self.url))).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        send(self.http.request(Method::POST, format!("{}{path}", self.url)).json(body)).await
    }

    /// The result of a command of Chromium's
    /// [DevTools protocol](https://chromedevtools.github.io/devtools-protocol/), which the standard has no word for.
    pub async fn devtools(&self, command: &str, parameters: Value) -> anyhow::Result<Value> {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters })).await
    }
}

async fn send(request: RequestBuilder) -> anyhow::Result<Value> {
    let mut answer: Value = serde_json::from_slice(&request.send().await?.bytes().await?)
        .context("the driver's answer is no JSON")?;
    let value = answer["value"].take();
    match value.get("error").and_then(Value::as_str) {
        // A page's script may return such an object, too, but none with a stack trace of the driver.
        Some(error) if value.get("stacktrace").is_some() => {
            let message = value["message"].as_str().unwrap_or_default().to_owned();
            bail!(Refusal { error: error.to_owned(), message })
        }
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(error: &str, message: &str) -> anyhow::Error {
        Refusal { error: error.into(), message: message.into() }.into()
    }

    #[test]
    fn refusals_are_told_in_one_line_without_repetition() {
        let stale =
            refusal("stale element reference", "stale element reference: gone\n  (Session info: chrome=1)");
        assert_eq!(stale.to_string(), "stale element reference: gone");
        assert_eq!(refusal("timeout", "too slow").to_string(), "timeout: too slow");
    }

    #[test]
    fn an_alert_is_final_and_an_element_that_has_gone_is_not() {
        assert!(is_final(&refusal("unexpected alert open", "")));
        assert!(!is_final(&refusal("stale element reference", "")));
        assert!(!is_final(&anyhow::anyhow!("there is no button 'Go'")));
        assert!(is_final(&refusal("unexpected alert open", "").context("a click")));
    }
}
