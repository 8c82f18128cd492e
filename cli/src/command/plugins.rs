//! `disbatch plugins`

use crate::api::Client;
use crate::command::{plain, print};

/// Prints the plugins that queues may be created with, one per line.
///
/// # Errors
/// The DCI cannot be reached.
pub async fn run(client: &Client) -> anyhow::Result<()> {
    let plugins = client.get("/plugins", None).await?;
    let names = plugins.as_array().map(Vec::as_slice).unwrap_or_default();
    let lines: String = names.iter().map(|name| format!("{}\n", plain(Some(name)))).collect();
    print(&lines)
}
