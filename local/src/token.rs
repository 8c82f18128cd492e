//! `disbatch token`: what programs use the DCI with. Administration goes directly to the database.

mod create;
mod list;
mod revoke;

use std::path::Path;

use disbatch_cli::args::{ListingOptions, TokenCommand};

use crate::direct::{Direct, advise};

/// Does what the command asks for.
pub async fn run(
    command: TokenCommand,
    config: Option<&Path>,
    listing: &ListingOptions,
) -> anyhow::Result<()> {
    let direct = Direct::open(config).await?;
    let done = match command {
        TokenCommand::Create(options) => create::run(&direct, options).await,
        TokenCommand::List { user } => list::run(&direct, user.as_ref(), listing).await,
        TokenCommand::Revoke { id } => revoke::run(&direct, id).await,
    };
    done.map_err(advise)
}
