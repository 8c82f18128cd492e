//! What clients/rust/README.md shows.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

#[tokio::main]
async fn main() -> disbatch_client::Result<()> {
    use disbatch_client::{Client, OutputStream, Settings};
    use serde_json::json;

    let client = Client::new(Settings::default())?; // the address in DISBATCH_URL, else http://localhost:8080
    client.create_queue("sums", "Disbatch::Plugin::Shell", json!({"threads": 2})).await?;

    let options = json!({"timeout": 60, "max_attempts": 3});
    let id = client.submit("sums", json!({"command": "echo $((1 + 2))"}), options).await?;
    let task = client.wait(&id, None).await?;
    println!("{} with {}", task.word, task["exit"]["code"]);
    println!("{}", String::from_utf8_lossy(&client.output(&id, OutputStream::Stdout, None).await?));

    let all = ["true", "echo hello"].map(|command| json!({"command": command}));
    for id in client.submit_many("sums", all, ()).await? {
        println!("{id} {}", client.wait(&id, None).await?.word);
    }

    use futures::TryStreamExt;

    let next = client.submit("sums", json!({"command": "echo one; echo two"}), ()).await?;
    let mut events = client.events(&next, None); // goes on where it was if the connection is lost
    while let Some(event) = events.try_next().await? {
        println!("{} {}", event.event, event.data);
    }

    let mut pieces = client.follow_output(&next, OutputStream::Stdout, None); // until the attempt is over
    while let Some(piece) = pieces.try_next().await? {
        print!("{}", String::from_utf8_lossy(&piece));
    }

    let mut tasks = client.list(json!({"queue": "sums", "status": ["failed", "succeeded"]}), Some(10));
    while let Some(task) = tasks.try_next().await? {
        println!("{} {}", task.id, client.explain(&task.id).await?["summary"]);
    }

    use disbatch_client::Error;
    use std::time::Duration;

    let wrong = client.submit("sums", json!({"command": "echo why >&2; exit 3"}), ()).await?;
    match client.result(&wrong, Some(Duration::from_secs(60))).await {
        Ok(result) => println!("{result}"),
        Err(Error::TaskFailed { task, .. }) => println!("{} {}", task.word, task["stderr"]),
        Err(Error::WaitTimeout { task, .. }) => println!("it goes on: {}", task["word"]),
        Err(error) => return Err(error),
    }

    match client.cancel(&wrong, Some("too late")).await {
        // conflict Some(409) POST /tasks/../cancel: 409 the task has ended: ..
        Err(error) if error.code() == "conflict" => println!("conflict {:?} {error}", error.status()),
        other => println!("{}", other?),
    }

    client.pause("sums", Some("the printer is on fire")).await?;
    client.resume("sums").await?;

    let fields = json!({"cron": "0 3 * * *", "zone": "Europe/Berlin", "params": {"command": "date"}});
    client.create_schedule("nightly", "sums", fields).await?;
    client.wait(&client.run_schedule("nightly").await?, None).await?;
    client.delete_schedule("nightly").await?;

    let letters = [("texts/you.txt".to_owned(), b"Hello\n".to_vec())];
    client.put_files("letters", std::collections::BTreeMap::from(letters), ()).await?; // or a folder
    client.get_files("letters", "letters", None, None).await?;

    println!("{}", client.request("GET", "/audit", json!({".limit": 1}), ()).await?); // any other route

    let traced = client.with_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"); // or a function
    traced.submit("sums", json!({"command": "true"}), ()).await?;

    Ok(())
}
