//! `disbatch user`: who may use the DCI. Administration goes directly to the database.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use bson::doc;
use disbatch_cli::args::{Changes, GivenRights, ListingOptions, NewUser, UserCommand};
use disbatch_cli::output::{Column, Cut, Table, print, shown_name};
use disbatch_core::accounts::{Grant, PasswordHash, Rights, RightsChange, Role, Scope, User, UserName};
use disbatch_core::audit::Verb;
use disbatch_core::model::{QueueId, Selector};
use disbatch_wire::accounts::{self, User as Row};

use crate::direct::{Direct, QueueNames, advise, nobody, time, user_document};
use crate::password::{self, Typed};

/// Holds the password for those who cannot be asked.
const PASSWORD_VARIABLE: &str = "DISBATCH_USER_PASSWORD";

pub async fn run(
    command: UserCommand,
    config: Option<&Path>,
    listing: &ListingOptions,
) -> anyhow::Result<()> {
    let direct = Direct::open(config).await?;
    let done = match command {
        UserCommand::Add(new) => add(&direct, new).await,
        UserCommand::List => list_users(&direct, listing).await,
        UserCommand::Passwd(user) => passwd(&direct, &user.name).await,
        UserCommand::Remove(user) => remove(&direct, &user.name).await,
        UserCommand::Grant(changes) => grant(&direct, changes).await,
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

async fn add(direct: &Direct, new: NewUser) -> anyhow::Result<()> {
    let NewUser { name, rights, no_password } = new;
    ensure!(
        !rights.is_empty(),
        "what may {name} do? Give --role or --admin for all queues, or --queue QUEUE=ROLE or --tenant TENANT=ROLE"
    );
    // Before somebody types a password for nothing.
    if direct.store.find_user(&name).await?.is_some() {
        bail!(taken(&name));
    }
    let grants = grants(direct, &rights).await?;
    let rights = Rights::new(rights.everywhere(), grants);
    let password = if no_password { None } else { Some(new_password(name.as_str())?) };
    if !direct.store.add_user(&name, rights.everywhere(), rights.grants(), password.as_ref()).await? {
        bail!(taken(&name));
    }
    direct.note_user(Verb::UserAdd, &name, None, Some(user_document(&rights))).await?;
    let names = QueueNames::read(&direct.store).await?;
    let without = if no_password { "; no password" } else { "" };
    print(&format!("Added user {name}: {}{without}\n", shown_name(&words(&rights, &names))))?;
    let users = direct.store.list_users().await?;
    if users.len() == 1 {
        eprintln!("This is the first user. Within seconds, each DCI asks everybody to log in.");
    }
    if let Some(remark) = remark(&users) {
        eprintln!("{remark}");
    }
    Ok(())
}

fn taken(name: &UserName) -> String {
    format!("there is a user {name} already: `disbatch user grant` and `passwd` change one")
}

/// Gives somebody another password. Their tokens stay.
async fn passwd(direct: &Direct, name: &UserName) -> anyhow::Result<()> {
    direct.user(name).await?;
    let password = new_password(name.as_str())?;
    ensure!(direct.store.set_password(name, &password).await?, nobody(name));
    direct.note_user(Verb::UserChange, name, None, Some(doc! { "password_set": true })).await?;
    print(&format!("Changed the password of {name}. Sessions that there were have ended.\n"))?;
    let tokens = direct.store.list_tokens(Some(name)).await?;
    let valid = tokens.iter().filter(|token| !token.is_over).count();
    if valid > 0 {
        eprintln!("Tokens of {name} stay valid ({valid}): see `disbatch token list --user {name}`.");
    }
    Ok(())
}

/// Removes somebody, with their sessions and tokens.
async fn remove(direct: &Direct, name: &UserName) -> anyhow::Result<()> {
    let user = direct.user(name).await?;
    ensure!(direct.store.remove_user(name).await?, nobody(name));
    direct.note_user(Verb::UserRemove, name, Some(user_document(&user.rights)), None).await?;
    print(&format!("Removed user {name}, with all sessions and tokens.\n"))?;
    if let Some(remark) = remark(&direct.store.list_users().await?) {
        eprintln!("{remark}");
    }
    Ok(())
}

const TABLE: Table<Row> = Table {
    columns: &[
        Column { title: "Name", cell: |user| user.name.clone(), cut: Cut::Early },
        Column {
            title: "On all queues",
            cell: |user| user.role.map_or("", Role::as_str).to_owned(),
            cut: Cut::Never,
        },
        Column { title: "On some", cell: grants_of, cut: Cut::Early },
        Column {
            title: "Password",
            cell: |user| if user.password { "yes" } else { "no" }.to_owned(),
            cut: Cut::Never,
        },
        Column { title: "Tokens", cell: |user| user.tokens.to_string(), cut: Cut::Never },
        Column {
            title: "Created (UTC)",
            cell: |user| user.created.clone().unwrap_or_default(),
            cut: Cut::Never,
        },
    ],
    noun: "users",
};

/// Prints everybody, with what they may do, and how many tokens of theirs are valid.
async fn list_users(direct: &Direct, options: &ListingOptions) -> anyhow::Result<()> {
    let names = QueueNames::read(&direct.store).await?;
    let users = direct.store.list_users().await?;
    let tokens = direct.store.list_tokens(None).await?;
    let valid = |user: &User| -> u64 {
        tokens.iter().filter(|token| token.user == user.name.as_str() && !token.is_over).map(|_| 1).sum()
    };
    let users: Vec<_> = users.iter().map(|user| row(user, valid(user), &names)).collect();
    TABLE.print(&serde_json::to_value(users)?, options)
}

fn row(user: &User, tokens: u64, names: &QueueNames) -> Row {
    let grant = |grant: &Grant| grant.to_wire(|queue| names.get(queue).map(str::to_owned));
    Row {
        name: user.name.to_string(),
        role: user.rights.everywhere(),
        grants: user.rights.grants().iter().map(grant).collect(),
        password: user.password.is_some(),
        tokens,
        created: user.created.map(time),
    }
}

fn grants_of(user: &Row) -> String {
    let grant = |grant: &accounts::Grant| match &grant.tenant {
        Some(tenant) => format!("tenant {tenant}={}", grant.role),
        None => {
            let queue = grant.name.as_ref().and_then(Option::as_ref).or(grant.queue.as_ref());
            format!("{}={}", queue.map_or("", String::as_str), grant.role)
        }
    };
    user.grants.iter().map(grant).collect::<Vec<_>>().join(", ")
}

/// Changes what somebody may do. What is not named stays as it is, also where others change it at the same moment.
async fn grant(direct: &Direct, changes: Changes) -> anyhow::Result<()> {
    let name = &changes.name;
    ensure!(
        !changes.is_empty(),
        "nothing to change: give --role, --no-role, --queue, --tenant, --revoke-queue or --revoke-tenant"
    );
    let given = grants(direct, &changes.rights).await?;
    let mut revoked = Vec::new();
    for queue in &changes.revoke_queue {
        revoked.push(Scope::Queue(known_queue(direct, queue).await?));
    }
    revoked.extend(changes.revoke_tenant.iter().cloned().map(Scope::Tenant));
    let names = QueueNames::read(&direct.store).await?;
    let change = |before: &Rights| -> anyhow::Result<Rights> {
        let everywhere = match changes.rights.everywhere() {
            None if changes.no_role => None,
            None => before.everywhere(),
            role @ Some(_) => role,
        };
        Ok(Rights::new(everywhere, changed(before.grants(), &given, &revoked, &names)?))
    };
    let (before, rights) = match direct.store.change_rights(name, change).await? {
        RightsChange::Made { before, after } => (before, after),
        RightsChange::Nobody => bail!(nobody(name)),
        RightsChange::Overtaken => bail!("others change the rights of {name} at this moment: try again"),
    };
    let [before, after] = [&before, &rights].map(|rights| Some(user_document(rights)));
    direct.note_user(Verb::UserChange, name, before, after).await?;
    print(&format!("User {name}: {}\n", shown_name(&words(&rights, &names))))?;
    if let Some(remark) = remark(&direct.store.list_users().await?) {
        eprintln!("{remark}");
    }
    Ok(())
}

/// The queue of this id, which may be gone, or of this name.
async fn known_queue(direct: &Direct, name: &str) -> anyhow::Result<QueueId> {
    match Selector::parse(name) {
        Selector::Id(id) => Ok(QueueId(id)),
        Selector::Name(name) => Ok(direct.queue(&name).await?.id),
    }
}

/// The grants without the revoked ones, and with those that are given.
fn changed(
    before: &[Grant],
    given: &[Grant],
    revoked: &[Scope],
    names: &QueueNames,
) -> anyhow::Result<Vec<Grant>> {
    let mut grants = before.to_vec();
    for scope in revoked {
        let what = match scope {
            Scope::Queue(queue) => format!("queue {}", names.of(*queue)),
            Scope::Tenant(tenant) => format!("the queues of {tenant}"),
        };
        if given.iter().any(|grant| grant.scope == *scope) {
            bail!("a role on {what} is both given and revoked");
        }
        let length = grants.len();
        grants.retain(|grant| grant.scope != *scope);
        ensure!(grants.len() < length, "there is no role on {what} to be revoked");
    }
    for grant in given {
        put(&mut grants, grant.clone());
    }
    Ok(grants)
}

#[cfg(test)]
mod tests {
    use disbatch_cli::output::Screen;
    use serde_json::json;

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
        let robin = row(&robin, 2, &names);
        let expected = json!({ "name": "robin", "role": null, "password": false, "tokens": 2,
            "created": null, "grants": [
            { "queue": "6b0003bb686c8275d70dc2f1", "name": "mail", "role": "operator" },
            { "tenant": "acme", "role": "viewer" },
        ] });
        assert_eq!(serde_json::to_value(&robin).unwrap(), expected);
        let table = TABLE.render(&[robin], Screen::default());
        let row = "robin |               | mail=operator, tenant acme=viewer | no       | 2      |               | \n";
        assert!(table.contains(row), "{table}");
        assert!(table.ends_with("\n1 total users.\n"), "{table}");
    }

    fn on(tenant: &str, role: Role) -> Grant {
        Grant { scope: Scope::Tenant(tenant.to_owned()), role }
    }

    #[test]
    fn what_is_not_named_stays() {
        let before = [on("a", Role::Viewer), on("b", Role::Operator), on("c", Role::Admin)];
        let names = QueueNames::default();
        let given = [on("a", Role::Submitter), on("d", Role::Viewer)];
        let after = changed(&before, &given, &[Scope::Tenant("b".into())], &names).unwrap();
        assert_eq!(after, [on("c", Role::Admin), on("a", Role::Submitter), on("d", Role::Viewer)]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let (before, names) = ([on("a", Role::Viewer)], QueueNames::default());
        let error = changed(&before, &[], &[Scope::Tenant("b".into())], &names).unwrap_err();
        assert_eq!(error.to_string(), "there is no role on the queues of b to be revoked");
        let given = [on("a", Role::Admin)];
        let error = changed(&before, &given, &[Scope::Tenant("a".into())], &names).unwrap_err();
        assert_eq!(error.to_string(), "a role on the queues of a is both given and revoked");
        let queue = Scope::Queue("6b0003bb686c8275d70dc2f1".parse().unwrap());
        let error = changed(&before, &[], &[queue], &names).unwrap_err();
        assert_eq!(error.to_string(), "there is no role on queue 6b0003bb686c8275d70dc2f1 to be revoked");
    }
}
