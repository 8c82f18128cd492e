//! `disbatch user`: who may use the DCI. Administration goes directly to the database.

mod add;
mod grant;
mod list;
mod passwd;
mod remove;

use std::path::Path;

use anyhow::Context;
use disbatch_cli::args::{GivenRights, ListingOptions, UserCommand};
use disbatch_core::accounts::{Grant, PasswordHash, Rights, Role, Scope, User};

use crate::direct::{Direct, QueueNames, advise};
use crate::password::{self, Typed};

/// Holds the password for those who cannot be asked.
const PASSWORD_VARIABLE: &str = "DISBATCH_USER_PASSWORD";

/// Does what the command asks for.
pub async fn run(
    command: UserCommand,
    config: Option<&Path>,
    listing: &ListingOptions,
) -> anyhow::Result<()> {
    let direct = Direct::open(config).await?;
    let done = match command {
        UserCommand::Add(new) => add::run(&direct, new).await,
        UserCommand::List => list::run(&direct, listing).await,
        UserCommand::Passwd(user) => passwd::run(&direct, &user.name).await,
        UserCommand::Remove(user) => remove::run(&direct, &user.name).await,
        UserCommand::Grant(changes) => grant::run(&direct, changes).await,
    };
    done.map_err(advise)
}

fn new_password(user: &str) -> anyhow::Result<PasswordHash> {
    let password = password::read(PASSWORD_VARIABLE, user, Typed::Twice)?;
    PasswordHash::of(&password).with_context(|| format!("this cannot be the password of {user}"))
}

/// What was given on the command line, with queues by their ids.
async fn grants(direct: &Direct, given: &GivenRights) -> anyhow::Result<Vec<Grant>> {
    let mut grants = Vec::new();
    for on in &given.queue {
        let queue = direct.queue(&on.name).await?;
        put(&mut grants, Grant { scope: Scope::Queue(queue.id), role: on.role });
    }
    for on in &given.tenant {
        put(&mut grants, Grant { scope: Scope::Tenant(on.name.clone()), role: on.role });
    }
    Ok(grants)
}

/// Adds a grant in place of that for the same.
fn put(grants: &mut Vec<Grant>, grant: Grant) {
    grants.retain(|known| known.scope != grant.scope);
    grants.push(grant);
}

/// What somebody may do, for people.
fn words(rights: &Rights, names: &QueueNames) -> String {
    let everywhere = rights.everywhere().map(|role| format!("{role} on all queues"));
    let grants = rights.grants().iter().map(|grant| match &grant.scope {
        Scope::Queue(queue) => format!("{} on queue {}", grant.role, names.of(*queue)),
        Scope::Tenant(tenant) => format!("{} on the queues of {tenant}", grant.role),
    });
    let words: Vec<String> = everywhere.into_iter().chain(grants).collect();
    if words.is_empty() { "may do nothing".to_owned() } else { words.join(", ") }
}

/// What those should know who have just changed users, of whom these are left.
fn remark(users: &[User]) -> Option<&'static str> {
    let is_admin = |user: &User| user.rights.everywhere() == Some(Role::Admin);
    if users.is_empty() {
        return Some(
            "There are no users any more. A DCI that serves its own machine alone asks nobody, once it is started again, \
             and any other does not start.",
        );
    }
    let lacks = !users.iter().any(is_admin);
    lacks.then_some("Nobody is an admin: `disbatch user grant NAME --role admin` makes somebody one.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, role: Option<Role>) -> User {
        User {
            name: name.parse().unwrap(),
            rights: Rights::new(role, Vec::new()),
            password: None,
            created: None,
        }
    }

    #[test]
    fn the_last_admin_and_the_last_user_are_missed() {
        assert!(remark(&[]).unwrap().starts_with("There are no users any more"));
        let users = [user("a", Some(Role::Operator)), user("b", None)];
        assert!(remark(&users).unwrap().starts_with("Nobody is an admin"));
        assert_eq!(remark(&[user("a", None), user("b", Some(Role::Admin))]), None);
    }

    #[test]
    fn rights_are_told_in_words() {
        let queue = "6b0003bb686c8275d70dc2f1".parse().unwrap();
        let names = QueueNames::from([(queue, "mail".to_owned())]);
        let on = |scope, role| Grant { scope, role };
        let mut grants = vec![on(Scope::Queue(queue), Role::Viewer)];
        put(&mut grants, on(Scope::Tenant("acme".into()), Role::Submitter));
        put(&mut grants, on(Scope::Queue(queue), Role::Operator));
        assert_eq!(
            words(&Rights::new(Some(Role::Viewer), grants), &names),
            "viewer on all queues, submitter on the queues of acme, operator on queue mail"
        );
        let gone = Rights::new(
            None,
            vec![on(Scope::Queue("6b0003bb686c8275d70dc2f2".parse().unwrap()), Role::Admin)],
        );
        assert_eq!(words(&gone, &names), "admin on queue 6b0003bb686c8275d70dc2f2");
        assert_eq!(words(&Rights::default(), &names), "may do nothing");
    }
}
