//! `disbatch create-queue NAME PLUGIN`

use std::collections::BTreeMap;

use crate::api::Client;
use crate::command::oid;
use crate::output::print;

/// Creates a queue and prints its id.
pub async fn run(
    client: &Client,
    name: Option<String>,
    plugin: Option<String>,
    (threads, sort): (Option<u32>, Option<String>),
) -> anyhow::Result<()> {
    let mut fields = BTreeMap::new();
    fields.extend(threads.map(|threads| ("threads".to_owned(), threads.to_string())));
    fields.extend(sort.map(|sort| ("sort".to_owned(), sort)));
    fields.extend(name.clone().map(|name| ("name".to_owned(), name)));
    fields.extend(plugin.map(|plugin| ("plugin".to_owned(), plugin)));
    let answer = client.post_form("/queues", &fields).await?;
    print(&format!("Created queue {}: {}\n", name.unwrap_or_default(), oid(answer.get("id"))))
}
