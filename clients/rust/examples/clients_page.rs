//! What docs/clients.md shows.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

#[tokio::main]
async fn main() -> disbatch_client::Result<()> {
    use disbatch_client::{Client, OutputStream, Settings};
    use serde_json::json;

    let client = Client::new(Settings::default())?;
    client.create_queue("sums", "Disbatch::Plugin::Shell", json!({"threads": 2})).await?;
    let id = client.submit("sums", json!({"command": "echo $((1 + 2))"}), ()).await?;
    let word = client.wait(&id, None).await?.word;
    println!("{word} {}", String::from_utf8_lossy(&client.output(&id, OutputStream::Stdout, None).await?));

    Ok(())
}
