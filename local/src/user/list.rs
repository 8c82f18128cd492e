//! `disbatch user list`

use disbatch_cli::args::ListingOptions;
use disbatch_cli::output::{Column, Cut, Screen, Table, list, plain, print};
use disbatch_core::accounts::{Grant, Role, Scope, User};
use serde_json::{Value, json};

use crate::direct::{Direct, QueueNames, queue_text, time};

const TABLE: Table = Table {
    columns: &[
        Column { title: "Name", cell: |user| plain(user.get("name")), cut: Cut::Early },
        Column { title: "On all queues", cell: |user| plain(user.get("role")), cut: Cut::Never },
        Column { title: "On some", cell: |user| grants(user.get("grants")), cut: Cut::Early },
        Column { title: "Password", cell: |user| password(user).to_owned(), cut: Cut::Never },
        Column { title: "Tokens", cell: |user| plain(user.get("tokens")), cut: Cut::Never },
        Column { title: "Created (UTC)", cell: |user| plain(user.get("created")), cut: Cut::Never },
    ],
    noun: "users",
};

/// Prints everybody, with what they may do, and how many tokens of theirs are valid.
pub async fn run(direct: &Direct, options: &ListingOptions) -> anyhow::Result<()> {
    let names = QueueNames::read(&direct.store).await?;
    let users = direct.store.list_users().await?;
    let tokens = direct.store.list_tokens(None).await?;
    let valid = |user: &User| {
        tokens.iter().filter(|token| token.user == user.name.as_str() && !token.is_over).count()
    };
    let users: Value = users.iter().map(|user| value(user, valid(user), &names)).collect();
    print(&list(&users, options, |users| TABLE.render(users, Screen::of_stdout()))?)
}

fn value(user: &User, tokens: usize, names: &QueueNames) -> Value {
    let grant = |grant: &Grant| match &grant.scope {
        Scope::Queue(queue) => {
            json!({ "queue": queue.to_string(), "name": names.get(*queue), "role": grant.role.name() })
        }
        Scope::Tenant(tenant) => json!({ "tenant": tenant, "role": grant.role.name() }),
    };
    json!({
        "name": user.name.as_str(),
        "role": user.rights.everywhere().map(Role::name),
        "grants": user.rights.grants().iter().map(grant).collect::<Vec<_>>(),
        "password": user.password.is_some(),
        "tokens": tokens,
        "created": user.created.map(time),
    })
}

fn grants(grants: Option<&Value>) -> String {
    let grants = grants.and_then(Value::as_array).into_iter().flatten();
    let grant = |grant: &Value| {
        let role = plain(grant.get("role"));
        match grant.get("tenant") {
            Some(tenant) => format!("tenant {}={role}", plain(Some(tenant))),
            None => format!("{}={role}", queue_text(grant)),
        }
    };
    grants.map(grant).collect::<Vec<_>>().join(", ")
}

fn password(user: &Value) -> &'static str {
    if user.get("password").and_then(Value::as_bool).unwrap_or(false) { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use disbatch_core::accounts::Rights;

    use super::*;

    #[test]
    fn users_are_shown_with_their_rights() {
        let queue = "6b0003bb686c8275d70dc2f1".parse().unwrap();
        let names = QueueNames::from([(queue, "mail".to_owned())]);
        let grants = vec![
            Grant { scope: Scope::Queue(queue), role: Role::Operator },
            Grant { scope: Scope::Tenant("acme".into()), role: Role::Viewer },
        ];
        let rights = Rights::new(None, grants);
        let robin = User { name: "robin".parse().unwrap(), rights, password: None, created: None };
        let value = value(&robin, 2, &names);
        let expected = json!({ "name": "robin", "role": null, "password": false, "tokens": 2,
            "created": null, "grants": [
            { "queue": "6b0003bb686c8275d70dc2f1", "name": "mail", "role": "operator" },
            { "tenant": "acme", "role": "viewer" },
        ] });
        assert_eq!(value, expected);
        let table = TABLE.render(&[value], Screen::default());
        let row = "robin |               | mail=operator, tenant acme=viewer | no       | 2      |               | \n";
        assert!(table.contains(row), "{table}");
        assert!(table.ends_with("\n1 total users.\n"), "{table}");
    }
}
