//! `disbatch audit`

use serde_json::Value;

use crate::api::{Client, query};
use crate::args::{AuditOptions, Format, ListingOptions};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, list, plain, print, say};

/// How many entries the DCI sends unless it is told.
const DEFAULT_LIMIT: usize = 100;

const TABLE: Table = Table {
    columns: &[
        Column { title: "Time (UTC)", cell: |entry| plain(entry.get("at")), cut: Cut::Never },
        Column { title: "By", cell: |entry| plain(entry.get("by")), cut: Cut::Early },
        Column { title: "What", cell: |entry| plain(entry.get("what")), cut: Cut::Never },
        Column { title: "Object", cell: object, cut: Cut::Late },
        Column { title: "Changes", cell: changes, cut: Cut::Early },
        Column { title: "Reason", cell: |entry| plain(entry.get("reason")), cut: Cut::Early },
    ],
    noun: "entries",
};

/// Prints who has changed what, the latest first.
pub async fn run(client: &Client, which: &AuditOptions, options: &ListingOptions) -> anyhow::Result<()> {
    let entries = client.get(&address(which, options.limit), None).await.map_err(advise)?;
    print(&list(&entries, options, |entries| TABLE.render(entries, Screen::of_stdout()))?)?;
    let most = options.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(DEFAULT_LIMIT);
    if let Some(key) = last(&entries, most) {
        let more = format!("There may be more: --after {key}");
        if options.format() == Format::Table { print(&format!("{more}\n"))? } else { say(&more) }
    }
    Ok(())
}

fn address(which: &AuditOptions, limit: Option<i64>) -> String {
    let pairs = [
        ("what", which.what.clone()),
        ("by", which.by.clone()),
        ("user", which.user.clone()),
        ("queue", which.queue.clone()),
        ("object", which.object.clone()),
        ("name", which.name.clone()),
        ("about", which.about.clone()),
        ("from", which.from.clone()),
        ("to", which.to.clone()),
        (".after", which.after.clone()),
        (".limit", limit.map(|limit| limit.to_string())),
    ];
    format!("/audit{}", query(pairs))
}

/// The key of the last entry of a full page.
fn last(entries: &Value, most: usize) -> Option<String> {
    let entries = entries.as_array().filter(|entries| entries.len() >= most)?;
    entries.last()?.get("key")?.as_str().map(str::to_owned)
}

/// Its name, or its id, after what it is.
fn object(entry: &Value) -> String {
    let field = |name: &str| plain(entry.get("object").and_then(|object| object.get(name)));
    let name = Some(field("name")).filter(|name| !name.is_empty()).unwrap_or_else(|| field("id"));
    format!("{} {name}", field("kind")).trim().to_owned()
}

/// The fields that have changed: `threads: 2 -> 4`.
fn changes(entry: &Value) -> String {
    let of = |name: &str| entry.get(name).and_then(Value::as_object);
    let (before, after) = (of("before"), of("after"));
    let mut names: Vec<&String> = before.into_iter().chain(after).flat_map(|fields| fields.keys()).collect();
    names.sort();
    names.dedup();
    let value = |fields: Option<&serde_json::Map<String, Value>>, name: &String| {
        fields.and_then(|fields| fields.get(name)).map(|value| plain(Some(value)))
    };
    let told = names.into_iter().map(|name| match (value(before, name), value(after, name)) {
        (Some(before), Some(after)) => format!("{name}: {before} -> {after}"),
        (None, Some(after)) => format!("{name}: {after}"),
        (Some(before), None) => format!("{name}: {before} -> none"),
        (None, None) => name.clone(),
    });
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_are_lines() {
        let entry = json!({
            "key": "17-6b", "at": "2026-11-20T08:24:27", "by": "alice from 10.0.0.1", "what": "queue update",
            "object": { "kind": "queue", "id": "6b", "name": "mail" },
            "before": { "threads": 2, "grace": 5 }, "after": { "threads": 4, "reason": "more" }, "reason": "rush",
        });
        let text = TABLE.render(std::slice::from_ref(&entry), Screen::default());
        let line = "| queue update | queue mail | grace: 5 -> none, reason: more, threads: 2 -> 4 | rush   |";
        assert!(text.contains(line), "{text}");
        let entries = json!([entry]);
        assert_eq!((last(&entries, 1).as_deref(), last(&entries, 2)), (Some("17-6b"), None));
    }

    #[test]
    fn only_what_is_given_is_asked() {
        assert_eq!(address(&AuditOptions::default(), None), "/audit");
        let which = AuditOptions {
            queue: Some("mail".into()),
            what: Some("queue update".into()),
            ..AuditOptions::default()
        };
        assert_eq!(address(&which, Some(5)), "/audit?what=queue%20update&queue=mail&.limit=5");
    }
}
