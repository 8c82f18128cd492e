//! Where messages go.

use serde::Deserialize;

/// How a message is told.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Channel {
    Webhook { url: String },
    Slack,
    Teams,
    Mail(Mail),
}

/// A mail server, and whose mail it is.
#[derive(Debug, Deserialize)]
pub struct Mail {
    pub server: String,
    pub user: Option<String>,
    pub from: String,
    pub to: Vec<String>,
}
