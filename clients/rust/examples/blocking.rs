//! Lists what has failed.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

use disbatch_client::Settings;
use disbatch_client::blocking::Client;
use serde_json::json;

fn main() -> disbatch_client::Result<()> {
    let client = Client::new(Settings::default())?;
    println!("of version {}", client.check()?);
    for task in client.list(json!({"status": "failed"}), Some(10)) {
        let task = task?;
        println!("{} {}", task.id, task["queue_name"]);
    }
    Ok(())
}
