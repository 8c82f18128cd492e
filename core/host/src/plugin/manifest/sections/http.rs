//! The key `http` of a manifest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Wrong;

/// How long a web service may be silent unless its manifest says otherwise, in seconds: 12 hours.
const TIMEOUT: u64 = 43_200;

/// The longest time that can be asked for, in seconds: a year.
const LONGEST: u64 = 365 * 86_400;

/// How often a connection is tried again unless the manifest says otherwise.
const CONNECT_RETRIES: u32 = 5;

/// A web service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Where it is asked; when unset the task's parameter `url`, if the node allows that address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What it is asked with besides.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How long it may be silent, in seconds.
    #[serde(skip_serializing_if = "is_usual_timeout")]
    pub timeout: u64,
    /// What it shows when it calls back.
    #[serde(skip_serializing_if = "CallbackAuth::is_default")]
    pub callback_auth: CallbackAuth,
    /// How often a connection that cannot be made is tried again.
    #[serde(skip_serializing_if = "is_usual_number_of_retries")]
    pub connect_retries: u32,
}

/// What a web service shows when it calls back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallbackAuth {
    /// The token of the task, in a header.
    #[default]
    Token,
    /// Nothing but the addresses that it was told, which have a secret in them. It is heard on private networks only.
    None,
}

impl CallbackAuth {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Http {
    fn default() -> Self {
        Self {
            url: None,
            headers: BTreeMap::new(),
            timeout: TIMEOUT,
            callback_auth: CallbackAuth::default(),
            connect_retries: CONNECT_RETRIES,
        }
    }
}

fn is_usual_timeout(timeout: &u64) -> bool {
    *timeout == TIMEOUT
}

fn is_usual_number_of_retries(retries: &u32) -> bool {
    *retries == CONNECT_RETRIES
}

impl Http {
    /// Whether the service shows no token when it calls back: its addresses are all that keeps others out.
    pub fn shows_no_token(&self) -> bool {
        self.callback_auth == CallbackAuth::None
    }

    pub(in super::super) fn check(&self) -> Result<(), Wrong> {
        let is_address = |url: &str| url.starts_with("http://") || url.starts_with("https://");
        if let Some(url) = self.url.as_deref().filter(|url| !is_address(url)) {
            return Err(("url", format!("expected an address with http:// or https://, got {url:?}")));
        }
        if !(1..=LONGEST).contains(&self.timeout) {
            return Err(("timeout", format!("expected seconds from 1 to {LONGEST}, got {}", self.timeout)));
        }
        let is_wrong = |(name, value): &(&String, &String)| {
            name.is_empty()
                || !name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
                || value.contains(['\r', '\n', '\0'])
        };
        match self.headers.iter().find(is_wrong) {
            Some((name, _)) => Err(("headers", format!("{name:?} cannot be a header, or its value"))),
            None => Ok(()),
        }
    }

    pub(in super::super) fn told(&self) -> Value {
        let defaults =
            [("timeout", Value::from(self.timeout)), ("connect_retries", Value::from(self.connect_retries))];
        super::told(self, defaults)
    }
}
