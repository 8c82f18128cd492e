//! A message for a program, signed as <https://www.standardwebhooks.com> has it. Pure but for the time.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use disbatch_plugin::Error;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{HeaderName, HeaderValue};
use serde::Serialize;
use sha2::Sha256;

use crate::message::{Message, Words};
use crate::post::Request;

/// What a key in base64 begins with.
const PREFIX: &str = "whsec_";

#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    message: &'a Message,
    subject: &'a str,
    text: &'a str,
}

/// The request for a message.
pub fn request(url: &str, message: &Message, words: &Words, secret: Option<&str>) -> Result<Request, Error> {
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
}
