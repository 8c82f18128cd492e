//! `disbatch groups QUEUE`

use disbatch_wire::groups::{QueueGroup, QueueGroups};
use serde_json::{Map, Value};

use crate::api::{Client, segment};
use crate::args::{GroupsOptions, ListingOptions};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, document, print};

const TABLE: Table<QueueGroup> = Table {
    columns: &[
        Column { title: "Group", cell: name, cut: Cut::Early },
        Column { title: "Waiting", cell: waiting, cut: Cut::Never },
        Column { title: "Running", cell: |group| group.running.to_string(), cut: Cut::Never },
        Column { title: "Got", cell: |group| group.started.to_string(), cut: Cut::Never },
        Column { title: "Used (s)", cell: |group| format!("{:.1}", group.used), cut: Cut::Never },
        Column { title: "Weight", cell: |group| group.weight.to_string(), cut: Cut::Never },
        Column { title: "Next turn", cell: |group| group.why.clone(), cut: Cut::Early },
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

fn text(page: &QueueGroups, screen: Screen) -> String {
    match &page.next {
        Some(next) => format!("{}The next ones: --after '{next}'\n", TABLE.render_some(&page.groups, screen)),
        None => TABLE.render(&page.groups, screen),
    }
}

fn name(group: &QueueGroup) -> String {
    if group.group.is_empty() { "(no group)".to_owned() } else { group.group.clone() }
}

fn waiting(group: &QueueGroup) -> String {
    format!("{}{}", group.waiting, if group.more_waiting { "+" } else { "" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::read;

    #[test]
    fn groups_are_lines_and_it_is_said_that_there_are_more() {
        let ann = json!({
            "group": "ann", "waiting": 1_000, "more_waiting": true, "running": 2, "started": 40, "finished": 38, "used": 1.26,
            "weight": 3, "why": "its turn is next",
        });
        let none = json!({
            "group": "", "waiting": 0, "more_waiting": false, "running": 0, "started": 0, "finished": 0, "used": 0,
            "weight": 1, "why": "",
        });
        let page = json!({ "groups": [none, ann], "next": "ann" });
        let text = text(&read(page).unwrap(), Screen::default());
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
