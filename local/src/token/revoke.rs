//! `disbatch token revoke ID`

use anyhow::ensure;
use bson::doc;
use bson::oid::ObjectId;
use disbatch_cli::output::print;
use disbatch_core::audit::{Object, ObjectKind, Verb};

use crate::direct::Direct;

/// Makes a token useless.
pub async fn run(direct: &Direct, id: ObjectId) -> anyhow::Result<()> {
    // For the words; whether it is there is decided when it is removed.
    let token = direct.store.list_tokens(None).await?.into_iter().find(|token| token.id == id);
    ensure!(direct.store.revoke_token(id, None).await?, "there is no token {id}");
    let (name, user) = token.map(|token| (token.name, token.user)).unwrap_or_default();
    let object = Object { id: Some(id), ..Object::with_name(ObjectKind::Token, name.as_str()) };
    direct.note(Verb::TokenRevoke, object, Some(doc! { "user": &user }), None).await?;
    print(&format!("Revoked the token {name:?} of {user}.\n"))
}
