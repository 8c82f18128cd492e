//! `disbatch groups QUEUE`

use serde_json::{Map, Value};

use crate::api::{Client, segment};
use crate::args::{GroupsOptions, ListingOptions};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, document, plain, print};

const TABLE: Table = Table {
    columns: &[
        Column { title: "Group", cell: name, cut: Cut::Early },
        Column { title: "Waiting", cell: waiting, cut: Cut::Never },
        Column { title: "Running", cell: |group| plain(group.get("running")), cut: Cut::Never },
        Column { title: "Got", cell: |group| plain(group.get("started")), cut: Cut::Never },
        Column { title: "Used (s)", cell: used, cut: Cut::Never },
        Column { title: "Weight", cell: |group| plain(group.get("weight")), cut: Cut::Never },
        Column { title: "Next turn", cell: |group| plain(group.get("why")), cut: Cut::Early },
    ],
    noun: "groups",
};

/// Prints groups of a queue in the order of their names.
pub async fn run(client: &Client, which: &GroupsOptions, options: &ListingOptions) -> anyhow::Result<()> {
    let path = format!("/queues/{}/groups", segment(&which.queue));
    let page = client.get(&path, Some(&asked(which, options))).await.map_err(advise)?;
    print(&document(&page, options, |page| text(page, Screen::of_stdout()))?)
}

fn asked(which: &GroupsOptions, options: &ListingOptions) -> Value {
    let all = [
        (".prefix", which.prefix.clone().map(Value::from)),
        (".after", which.after.clone().map(Value::from)),
        (".waiting", which.waiting.then(|| Value::from(1))),
        (".limit", options.limit.map(Value::from)),
    ];
    let given = all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(given.collect::<Map<String, Value>>())
}

fn text(page: &Value, screen: Screen) -> String {
    let groups = page.get("groups").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    match page.get("next").and_then(Value::as_str) {
        Some(next) => format!("{}The next ones: --after '{next}'\n", TABLE.render_some(groups, screen)),
        None => TABLE.render(groups, screen),
    }
}

fn name(group: &Value) -> String {
    Some(plain(group.get("group"))).filter(|name| !name.is_empty()).unwrap_or_else(|| "(no group)".to_owned())
}

fn waiting(group: &Value) -> String {
    let more = group.get("more_waiting").and_then(Value::as_bool) == Some(true);
    format!("{}{}", plain(group.get("waiting")), if more { "+" } else { "" })
}

fn used(group: &Value) -> String {
    group.get("used").and_then(Value::as_f64).map(|used| format!("{used:.1}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn groups_are_lines_and_it_is_said_that_there_are_more() {
        let ann = json!({
            "group": "ann", "waiting": 1_000, "more_waiting": true, "running": 2, "started": 40, "used": 1.26,
            "weight": 3, "why": "its turn is next",
        });
        let none = json!({ "group": "", "waiting": 0, "more_waiting": false, "used": 0 });
        let text = text(&json!({ "groups": [none, ann], "next": "ann" }), Screen::default());
        assert!(text.contains("(no group) | 0       |"), "{text}");
        assert!(
            text.contains("ann        | 1000+   | 2       | 40  | 1.3      | 3      | its turn is next |"),
            "{text}"
        );
        assert!(text.ends_with("\n2 groups of more.\nThe next ones: --after 'ann'\n"), "{text}");
    }

    #[test]
    fn only_what_is_given_is_asked() {
        let mut which = GroupsOptions { queue: "q".into(), prefix: None, waiting: false, after: None };
        assert_eq!(asked(&which, &ListingOptions::default()), json!({}));
        (which.prefix, which.waiting) = (Some("a/".into()), true);
        let options = ListingOptions { limit: Some(5), ..ListingOptions::default() };
        assert_eq!(asked(&which, &options), json!({ ".prefix": "a/", ".waiting": 1, ".limit": 5 }));
    }
}
