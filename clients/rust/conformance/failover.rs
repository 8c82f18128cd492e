//! Submits a task with an order: see clients/conformance/failover.py.

#![expect(clippy::print_stdout, reason = "the test reads it")]

use std::env;
use std::io::stdin;

use anyhow::Context;
use disbatch_client::inbox::enqueue;
use mongodb::Client;
use mongodb::bson::{Document, doc};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::with_uri_str(env::var("MONGODB_URL")?).await?;
    let disbatch = client.default_database().context("MONGODB_URL names no database")?;
    let orders = client.database("shop").collection::<Document>(&env::var("ORDERS")?);
    let (queue, params) = (env::var("QUEUE")?, doc! { "command": env::var("COMMAND")? });
    let mut is_first = true;
    let mut session = client.start_session().await?;
    let order = session.start_transaction().and_run2(async |session| {
        let id = enqueue(&disbatch, &queue, &params, (), &mut *session).await?;
        orders.insert_one(doc! { "task": &id }).session(session).await?;
        if is_first {
            is_first = false;
            println!("inserted");
            stdin().read_line(&mut String::new())?;
        }
        Ok(id)
    });
    println!("{}", order.await?);
    Ok(())
}
