//! Submits a task in the transaction of an order, and two more.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

use disbatch_client::inbox::{enqueue, enqueue_many};
use disbatch_client::{Client, Settings};
use mongodb::bson::{Document, doc};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mongodb = mongodb::Client::with_uri_str(std::env::var("MONGODB_URL")?).await?;
    let disbatch = mongodb.default_database().ok_or("MONGODB_URL names no database")?;
    let orders = mongodb.database("shop").collection::<Document>("orders");

    let mut session = mongodb.start_session().await?;
    let order = session.start_transaction().and_run2(async |session| {
        let (params, options) = (doc! {"command": "echo hello"}, doc! {"timeout": 60, "by": "shop"});
        let id = enqueue(&disbatch, "sums", params, options, &mut *session).await?;
        orders.insert_one(doc! {"item": 7, "mail": &id}).session(session).await?;
        Ok(id)
    });
    let id = order.await?; // it may have called the closure several times

    let client = Client::new(Settings::default())?;
    println!("{}", client.wait(&id, None).await?.word);

    let all = ["true", "echo hello"].map(|command| json!({"command": command}));
    for id in enqueue_many(&disbatch, "sums", all, json!({"key": "order 8"}), None).await? {
        println!("{}", client.wait(&id, None).await?.word);
    }
    Ok(())
}
