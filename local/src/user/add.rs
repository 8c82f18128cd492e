//! `disbatch user add NAME`

use anyhow::{bail, ensure};
use disbatch_cli::args::NewUser;
use disbatch_cli::output::{print, shown_name};
use disbatch_core::accounts::{Rights, UserName};
use disbatch_core::audit::Verb;

use super::{grants, new_password, remark, words};
use crate::direct::{Direct, QueueNames, user_document};

/// Adds somebody.
pub async fn run(direct: &Direct, new: NewUser) -> anyhow::Result<()> {
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
