//! `disbatch token`: what programs use the DCI with. Administration goes directly to the database.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_cli::args::{ListingOptions, TokenCommand, TokenOptions};
use disbatch_cli::output::{Column, Cut, Table, plain, print, say};
use disbatch_core::accounts::{Key, NewToken, Role, Token, User, UserName};
use disbatch_core::audit::{Object, ObjectKind, Verb};
use disbatch_core::model::QueueId;
use serde_json::{Value, json};

use crate::direct::{Direct, QueueNames, advise, queue_text, queue_value, time};

pub async fn run(
    command: TokenCommand,
    config: Option<&Path>,
    listing: &ListingOptions,
) -> anyhow::Result<()> {
    let direct = Direct::open(config).await?;
    let done = match command {
        TokenCommand::Create(options) => create(&direct, options).await,
        TokenCommand::List { user } => list_tokens(&direct, user.as_ref(), listing).await,
        TokenCommand::Revoke { id } => revoke(&direct, id).await,
    };
    done.map_err(advise)
}

/// The seconds of a day.
const DAY: u64 = 86_400;

/// Makes a token, and prints it alone on standard output.
async fn create(direct: &Direct, options: TokenOptions) -> anyhow::Result<()> {
    let owner = direct.user(&options.user).await?;
    let role = role(&owner, options.role)?;
    let mut queues = BTreeSet::new();
    for name in &options.queue {
        let queue = direct.queue(name).await?;
        let own = owner.rights.on(queue.id, queue.tenant());
        ensure!(own.is_some(), "{} may do nothing on the queue {}", owner.name, queue.display_name());
        queues.insert(queue.id);
    }
    let queues = Some(queues).filter(|queues| !queues.is_empty());
    let days = (!options.endless).then_some(options.days);
    let lasts = days.map(|days| Duration::from_secs(u64::from(days) * DAY));
    let new = NewToken { user: options.user, name: options.name, role, queues, lasts };
    let text = direct.store.create_token(&new).await?;
    // It can be read this once, and is not to be lost if the audit cannot be written.
    print(&format!("{text}\n"))?;
    let (_, key) = text.split_once('_').context("the token has no beginning")?;
    let id = Key::parse(key).context("the token has no id")?.id;
    let object = Object { id: Some(id), ..Object::with_name(ObjectKind::Token, new.name.as_str()) };
    direct.note(Verb::TokenCreate, object, None, Some(document(&new, days))).await?;
    say(&explanation(&new, days, &options.queue));
    eprintln!("It is shown this once. `disbatch token revoke {id}` makes it useless.");
    Ok(())
}

/// The role that is asked for, or the highest that the user has.
fn role(owner: &User, asked: Option<Role>) -> anyhow::Result<Role> {
    let name = &owner.name;
    let highest =
        owner.rights.somewhere().with_context(|| format!("{name} may do nothing, nor could a token"))?;
    let role = asked.unwrap_or(highest);
    ensure!(role <= highest, "{name} has no role above {highest}, so a token cannot have the role {role}");
    Ok(role)
}

/// What the audit has of it.
fn document(new: &NewToken, days: Option<u32>) -> Document {
    let ids = |queues: &BTreeSet<QueueId>| queues.iter().map(|queue| queue.0).collect::<Vec<_>>();
    let mut document = doc! { "user": new.user.as_str(), "role": new.role.as_str() };
    if let Some(queues) = &new.queues {
        document.insert("queues", ids(queues));
    }
    if let Some(days) = days {
        document.insert("days", i64::from(days));
    }
    document
}

fn explanation(new: &NewToken, days: Option<u32>, queues: &[String]) -> String {
    let places = if queues.is_empty() { String::new() } else { format!(", on {} alone", queues.join(", ")) };
    let end = match days {
        None => "until it is revoked".to_owned(),
        Some(1) => "for a day".to_owned(),
        Some(days) => format!("for {days} days"),
    };
    format!("Token {:?} of {}: no more than {}{places}, good {end}.", new.name, new.user, new.role)
}

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
async fn list_tokens(
    direct: &Direct,
    user: Option<&UserName>,
    options: &ListingOptions,
) -> anyhow::Result<()> {
    let names = QueueNames::read(&direct.store).await?;
    let tokens = direct.store.list_tokens(user).await?;
    let tokens: Value = tokens.iter().map(|token| value(token, &names)).collect();
    TABLE.print(&tokens, options)
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
        "role": token.role.as_str(),
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

async fn revoke(direct: &Direct, id: ObjectId) -> anyhow::Result<()> {
    // For the words; whether it is there is decided when it is removed.
    let token = direct.store.list_tokens(None).await?.into_iter().find(|token| token.id == id);
    ensure!(direct.store.revoke_token(id, None).await?, "there is no token {id}");
    let (name, user) = token.map(|token| (token.name, token.user)).unwrap_or_default();
    let object = Object { id: Some(id), ..Object::with_name(ObjectKind::Token, name.as_str()) };
    direct.note(Verb::TokenRevoke, object, Some(doc! { "user": &user }), None).await?;
    print(&format!("Revoked the token {name:?} of {user}.\n"))
}

#[cfg(test)]
mod tests {
    use bson::DateTime;
    use disbatch_cli::output::Screen;
    use disbatch_core::accounts::{Grant, Rights, Scope};

    use super::*;

    fn owner(role: Option<Role>, grants: Vec<Grant>) -> User {
        User {
            name: "robin".parse().unwrap(),
            rights: Rights::new(role, grants),
            password: None,
            created: None,
        }
    }

    fn new(queues: Option<BTreeSet<QueueId>>) -> NewToken {
        let (user, name) = ("robin".parse().unwrap(), "nightly".to_owned());
        NewToken { user, name, role: Role::Submitter, queues, lasts: None }
    }

    #[test]
    fn a_token_has_a_role_that_its_owner_has() {
        let viewer = owner(Some(Role::Viewer), Vec::new());
        assert_eq!(role(&viewer, None).unwrap(), Role::Viewer);
        let error = role(&viewer, Some(Role::Operator)).unwrap_err().to_string();
        assert_eq!(error, "robin has no role above viewer, so a token cannot have the role operator");
        let on = Grant { scope: Scope::Tenant("acme".to_owned()), role: Role::Operator };
        let both = owner(Some(Role::Viewer), vec![on]);
        assert_eq!(role(&both, None).unwrap(), Role::Operator);
        assert_eq!(role(&both, Some(Role::Submitter)).unwrap(), Role::Submitter);
        let error = role(&owner(None, Vec::new()), None).unwrap_err().to_string();
        assert_eq!(error, "robin may do nothing, nor could a token");
    }

    #[test]
    fn it_is_said_what_it_is_good_for() {
        assert_eq!(
            explanation(&new(None), Some(90), &["mail".to_owned(), "post".to_owned()]),
            "Token \"nightly\" of robin: no more than submitter, on mail, post alone, good for 90 days."
        );
        let endless = explanation(&new(None), None, &[]);
        assert!(endless.ends_with("no more than submitter, good until it is revoked."), "{endless}");
    }

    #[test]
    fn the_audit_has_no_secret() {
        let queue: QueueId = "6b0003bb686c8275d70dc2f1".parse().unwrap();
        let noted = document(&new(Some(BTreeSet::from([queue]))), Some(7));
        let expected = doc! { "user": "robin", "role": "submitter", "queues": [queue.0], "days": 7_i64 };
        assert_eq!(noted, expected);
    }

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
