//! `disbatch plugins`

use crate::api::Client;
use crate::args::ListingOptions;
use crate::output::{list, plain, print};

/// Prints the plugins that queues may be created with, one per line.
///
/// # Errors
/// The DCI cannot be reached.
pub async fn run(client: &Client, options: &ListingOptions) -> anyhow::Result<()> {
    let plugins = client.get("/plugins", None).await?;
    print(&list(&plugins, options, |names| {
        names.iter().map(|name| format!("{}\n", plain(Some(name)))).collect()
    })?)
}
