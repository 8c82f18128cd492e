//! A plugin whose effect and whose end are in one transaction: needs `"commits": true`, and the address of a MongoDB in `SHOP_MONGODB_URL`.
//!
//! `params.then` says what follows: `abort` instead of it, at the first attempt; `fail` after it; the same `again`.

use std::env;
use std::process::ExitCode;

use anyhow::{Context, bail};
use disbatch_plugin::Task;
use mongodb::Client;
use mongodb::bson::{Document, doc, serialize_to_document};
use mongodb::error::Error;
use tokio::runtime::Builder;

async fn note(task: &Task, then: &str) -> anyhow::Result<()> {
    let variable = |name: &str| task.variable(name).with_context(|| format!("there is no {name}"));
    let client = Client::with_uri_str(env::var("SHOP_MONGODB_URL")?).await?;
    let database = client.database(&variable("DISBATCH_DATABASE")?);
    let (effects, commits) =
        (database.collection::<Document>("people"), database.collection::<Document>("tasks.commits"));
    let attempt: i64 = variable("DISBATCH_ATTEMPT")?.parse()?;
    let effect = doc! { "task": task.id(), "attempt": attempt };
    let end = serialize_to_document(&task.commit_document(1)?)?;
    let mut session = client.start_session().await?;
    let noted = session.start_transaction().and_run2(async |session| {
        effects.insert_one(&effect).session(&mut *session).await?;
        commits.insert_one(&end).session(session).await?;
        if then == "abort" && attempt == 1 {
            return Err(Error::custom("aborted".to_owned()));
        }
        Ok(())
    });
    Ok(noted.await?)
}

fn work(task: &mut Task) -> anyhow::Result<()> {
    let then: String = task.param("then")?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(note(task, &then))?;
    if then == "again" {
        runtime.block_on(note(task, &then))?;
    }
    if then == "fail" {
        bail!("too late");
    }
    Ok(())
}

fn main() -> ExitCode {
    disbatch_plugin::run(work)
}
