//! `disbatch user remove NAME`

use anyhow::ensure;
use disbatch_cli::output::print;
use disbatch_core::accounts::UserName;
use disbatch_core::audit::Verb;

use super::remark;
use crate::direct::{Direct, nobody, user_document};

/// Removes somebody, with their sessions and tokens.
pub async fn run(direct: &Direct, name: &UserName) -> anyhow::Result<()> {
    let user = direct.user(name).await?;
    ensure!(direct.store.remove_user(name).await?, nobody(name));
    direct.note_user(Verb::UserRemove, name, Some(user_document(&user.rights)), None).await?;
    print(&format!("Removed user {name}, with all sessions and tokens.\n"))?;
    if let Some(remark) = remark(&direct.store.list_users().await?) {
        eprintln!("{remark}");
    }
    Ok(())
}
