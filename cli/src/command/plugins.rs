//! `disbatch plugins`

use crate::api::Client;
use crate::args::ListingOptions;
use crate::output::{list, plain, print, shown_name};

/// Prints the plugins that queues may be created with, one per line.
pub async fn run(client: &Client, options: &ListingOptions) -> anyhow::Result<()> {
    let plugins = client.get("/plugins", None).await?;
    print(&list(&plugins, options, |names| {
        names.iter().map(|plugin| format!("{}\n", shown_name(&plain(Some(plugin))))).collect()
    })?)
}
