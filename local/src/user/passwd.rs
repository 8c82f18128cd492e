//! `disbatch user passwd NAME`

use anyhow::ensure;
use bson::doc;
use disbatch_cli::output::print;
use disbatch_core::accounts::UserName;
use disbatch_core::audit::Verb;

use super::new_password;
use crate::direct::{Direct, nobody};

/// Gives somebody another password. Their tokens stay.
pub async fn run(direct: &Direct, name: &UserName) -> anyhow::Result<()> {
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
