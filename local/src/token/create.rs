//! `disbatch token create NAME`

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_cli::args::TokenOptions;
use disbatch_cli::output::{print, say};
use disbatch_core::accounts::{Key, NewToken, Role, User};
use disbatch_core::audit::{Object, ObjectKind, Verb};
use disbatch_core::model::QueueId;

use crate::direct::Direct;

/// The seconds of a day.
const DAY: u64 = 86_400;

/// Makes a token, and prints it alone on standard output.
pub async fn run(direct: &Direct, options: TokenOptions) -> anyhow::Result<()> {
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
    let mut document = doc! { "user": new.user.as_str(), "role": new.role.name() };
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

#[cfg(test)]
mod tests {
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
}
