//! Messages that are sent by HTTP, once: those for programs, signed as <https://www.standardwebhooks.com> has it, and those for chats.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use disbatch_adapter::with_causes;
use disbatch_plugin::Error;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url, redirect};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::addresses::Allowed;
use crate::message::{Message, Words};

const CONNECT: Duration = Duration::from_secs(10);

const WHOLE: Duration = Duration::from_secs(30);

const SHOWN: usize = 4096;

#[derive(Debug)]
pub struct Request {
    pub url: Url,
    pub headers: HeaderMap,
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

const PREFIX: &str = "whsec_";

#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    message: &'a Message,
    subject: &'a str,
    text: &'a str,
}

pub fn webhook(url: &str, message: &Message, words: &Words, secret: Option<&str>) -> Result<Request, Error> {
    signed_at(jiff::Timestamp::now().as_second(), url, message, words, secret)
}

fn signed_at(
    now: i64,
    url: &str,
    message: &Message,
    words: &Words,
    secret: Option<&str>,
) -> Result<Request, Error> {
    let body = Body { message, subject: &words.subject, text: &words.text };
    let mut request = Request::new(url, serde_json::to_string(&body).map_err(Error::failed)?)?;
    let mut headers = vec![("webhook-id", message.id.clone()), ("webhook-timestamp", now.to_string())];
    if let Some(secret) = secret {
        let signature = signature(&key(secret)?, &format!("{}.{now}.{}", message.id, request.body))?;
        headers.push(("webhook-signature", format!("v1,{signature}")));
    }
    for (name, value) in headers {
        let value = HeaderValue::from_str(&value).map_err(Error::failed)?;
        request.headers.insert(HeaderName::from_static(name), value);
    }
    Ok(request)
}

fn key(secret: &str) -> Result<Vec<u8>, Error> {
    match secret.strip_prefix(PREFIX) {
        Some(encoded) => BASE64_STANDARD
            .decode(encoded)
            .map_err(|_| Error::failed(format_args!("secret: what follows {PREFIX} is no base64"))),
        None => Ok(secret.as_bytes().to_vec()),
    }
}

fn signature(key: &[u8], signed: &str) -> Result<String, Error> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(Error::failed)?;
    mac.update(signed.as_bytes());
    Ok(BASE64_STANDARD.encode(mac.finalize().into_bytes()))
}

const MOST_LINKS: usize = 5;

/// For Slack, and what takes the same. Names in messages for chats are text, and nothing that a chat would make a link or a call for
/// everybody of.
pub fn slack(url: &str, words: &Words) -> Result<Request, Error> {
    let text = format!("*{}*\n{}", plain(&words.subject), plain(&words.text));
    Request::new(url, json!({ "text": text }).to_string())
}

/// What Slack would read as a link or as a mention.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// For a workflow of Microsoft Teams that takes an Adaptive Card.
pub fn teams(url: &str, message: &Message, words: &Words) -> Result<Request, Error> {
    // A run of text is shown as it is; a `TextBlock` would be read as Markdown.
    let run = |text: &str| json!({ "type": "TextRun", "text": text });
    let line = |text: &str| json!({ "type": "RichTextBlock", "inlines": [run(text)] });
    let mut heading = run(&words.subject);
    heading["weight"] = json!("Bolder");
    let mut body = vec![json!({ "type": "RichTextBlock", "inlines": [heading] })];
    body.extend(words.text.lines().filter(|text| !text.trim().is_empty()).map(line));
    let tasks = message.events.iter().flat_map(|event| &event.tasks);
    let links: Vec<Value> = tasks
        .filter_map(|task| task.url.as_ref().map(|url| (&task.id, url)))
        .take(MOST_LINKS)
        .map(|(id, url)| json!({ "type": "Action.OpenUrl", "title": format!("Task {id}"), "url": url }))
        .collect();
    let card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
        "body": body, "actions": links, "msteams": { "width": "Full" },
    });
    let attachment = json!({ "contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": null, "content": card });
    Request::new(url, json!({ "type": "message", "attachments": [attachment] }).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::message::tests::failures;

    /// The example of the specification.
    #[test]
    fn a_signature_is_that_of_standard_webhooks() {
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = r#"{"test": 2432232314}"#;
        let signed = format!("msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{body}");
        assert_eq!(signature(&key, &signed).unwrap(), "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(super::key("whsec_!").unwrap_err().to_string().contains("no base64"));
    }

    #[test]
    fn a_program_gets_the_message_with_its_words() {
        let words = Words { subject: "s".to_owned(), text: "t".to_owned() };
        let request = signed_at(7, "https://h.example/x", &failures(), &words, Some("k")).unwrap();
        let body: Value = serde_json::from_str(&request.body).unwrap();
        assert_eq!((&body["subject"], &body["text"], &body["number"]), (&json!("s"), &json!("t"), &json!(3)));
        assert_eq!(body["events"][0]["tasks"][0]["url"], "https://d.example/tasks/6b00");
        assert_eq!(request.headers["webhook-id"], "6b0004f4686c827f5a609575");
        assert_eq!(request.headers["webhook-timestamp"], "7");
        let signature = request.headers["webhook-signature"].to_str().unwrap();
        assert!(signature.starts_with("v1,") && signature.len() == 47, "{signature}");
        let unsigned = signed_at(7, "http://h.example/", &failures(), &words, None).unwrap();
        assert!(!unsigned.headers.contains_key("webhook-signature"));
        let error = signed_at(7, "ftp://h.example/", &failures(), &words, None).unwrap_err();
        assert!(error.to_string().contains("http://"), "{error}");
    }

    #[test]
    fn names_are_no_mentions_and_no_links() {
        let words = Words {
            subject: "a <!channel> & b".to_owned(),
            text: "<http://x|y>\n\n[z](http://x)".to_owned(),
        };
        let body = |request: Request| serde_json::from_str::<Value>(&request.body).unwrap();
        let slack = body(slack("https://s.example/", &words).unwrap());
        assert_eq!(slack["text"], "*a &lt;!channel&gt; &amp; b*\n&lt;http://x|y&gt;\n\n[z](http://x)");
        let teams = body(teams("https://t.example/", &failures(), &words).unwrap());
        let card = &teams["attachments"][0]["content"];
        let texts: Vec<&Value> =
            card["body"].as_array().unwrap().iter().map(|block| &block["inlines"][0]["text"]).collect();
        assert_eq!(texts, ["a <!channel> & b", "<http://x|y>", "[z](http://x)"]);
        assert_eq!(card["actions"].as_array().unwrap().len(), 1);
        assert_eq!(card["actions"][0]["url"], "https://d.example/tasks/6b00");
    }
}
