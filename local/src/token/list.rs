//! `disbatch token list`

use disbatch_cli::args::ListingOptions;
use disbatch_cli::output::{Column, Cut, Screen, Table, list, plain, print};
use disbatch_core::accounts::{Token, UserName};
use serde_json::{Value, json};

use crate::direct::{Direct, QueueNames, queue_text, queue_value, time};

const TABLE: Table = Table {
    columns: &[
        Column { title: "ID", cell: |token| plain(token.get("id")), cut: Cut::Late },
        Column { title: "Name", cell: |token| plain(token.get("name")), cut: Cut::Early },
        Column { title: "User", cell: |token| plain(token.get("user")), cut: Cut::Early },
        Column { title: "At most", cell: |token| plain(token.get("role")), cut: Cut::Never },
        Column { title: "Queues", cell: |token| queues(token.get("queues")), cut: Cut::Early },
        Column { title: "Ends (UTC)", cell: end, cut: Cut::Never },
        Column { title: "Used (UTC)", cell: |token| plain(token.get("used")), cut: Cut::Never },
        Column { title: "From", cell: |token| plain(token.get("from")), cut: Cut::Early },
    ],
    noun: "tokens",
};

/// Prints the tokens of somebody, or of everybody.
pub async fn run(direct: &Direct, user: Option<&UserName>, options: &ListingOptions) -> anyhow::Result<()> {
    let names = QueueNames::read(&direct.store).await?;
    let tokens = direct.store.list_tokens(user).await?;
    let tokens: Value = tokens.iter().map(|token| value(token, &names)).collect();
    print(&list(&tokens, options, |tokens| TABLE.render(tokens, Screen::of_stdout()))?)
}

fn value(token: &Token, names: &QueueNames) -> Value {
    let queues = token
        .queues
        .as_ref()
        .map(|queues| queues.iter().map(|queue| queue_value(*queue, names)).collect::<Vec<_>>());
    json!({
        "id": token.id.to_hex(),
        "name": token.name,
        "user": token.user,
        "role": token.role.name(),
        "queues": queues,
        "created": token.created.map(time),
        "expires": token.expires.map(time),
        "over": token.is_over,
        "used": token.used.map(time),
        "from": token.from,
    })
}

fn queues(queues: Option<&Value>) -> String {
    let Some(queues) = queues.and_then(Value::as_array) else { return "all".to_owned() };
    queues.iter().map(queue_text).collect::<Vec<_>>().join(", ")
}

fn end(token: &Value) -> String {
    let over = token.get("over").and_then(Value::as_bool).unwrap_or(false);
    match token.get("expires") {
        None | Some(Value::Null) => "never".to_owned(),
        expires => format!("{}{}", plain(expires), if over { ", over" } else { "" }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bson::DateTime;
    use disbatch_core::accounts::Role;
    use disbatch_core::model::QueueId;

    use super::*;

    fn token(queues: Option<BTreeSet<QueueId>>, expires: Option<DateTime>, is_over: bool) -> Token {
        Token {
            id: "6b0003bb686c8275d8013333".parse().unwrap(),
            user: "robin".to_owned(),
            name: "nightly".to_owned(),
            role: Role::Submitter,
            queues,
            created: Some(DateTime::from_millis(0)),
            expires,
            used: None,
            from: None,
            is_over,
        }
    }

    #[test]
    fn tokens_are_shown_without_their_secrets() {
        let queue: QueueId = "6b0003bb686c8275d70dc2f1".parse().unwrap();
        let names = QueueNames::from([(queue, "mail".to_owned())]);
        let end = DateTime::from_millis(1_795_163_066_819);
        let narrow = value(&token(Some(BTreeSet::from([queue])), Some(end), true), &names);
        let expected = json!({ "id": "6b0003bb686c8275d8013333", "name": "nightly", "user": "robin",
            "role": "submitter", "queues": [{ "queue": "6b0003bb686c8275d70dc2f1", "name": "mail" }],
            "created": "1970-01-01T00:00:00", "expires": "2026-11-20T08:24:26", "over": true, "used": null,
            "from": null });
        assert_eq!(narrow, expected);
        let table = TABLE.render(&[narrow, value(&token(None, None, false), &names)], Screen::default());
        assert!(table.contains(" | submitter | mail   | 2026-11-20T08:24:26, over | "), "{table}");
        assert!(table.contains(" | submitter | all    | never                     | "), "{table}");
        assert!(table.ends_with("\n2 total tokens.\n"), "{table}");
    }
}
