//! Replays recorded exchanges of Perl Disbatch 4.103 with the built `dci` and a real database, in the order
//! in which they were made. What differs on purpose stands in `docs/compatibility.md`; nothing else may.

mod difference;
mod recording;
mod server;
mod states;
mod text;

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use recording::{Exchange, Response};
use serde_json::json;
use server::Server;
use text::Ids;

#[tokio::test]
async fn recorded_exchanges_have_the_same_answers() -> anyhow::Result<()> {
    let differences = difference::read()?;
    let uri = disbatch_mongod::testing::server().await?;
    let database = disbatch_mongod::testing::TestDatabase::create(uri).await?;
    let config = json!({ "mongohost": database.uri, "database": database.name,
        "plugins": ["Disbatch::Plugin::Demo"] });
    let server = Server::start(&config).await?;
    let states = states::States::new(&database);

    let mut ids = Ids::default();
    let mut problems = Vec::new();
    let mut different = BTreeSet::new();
    let mut compared = 0;
    for exchange in recording::in_scope()? {
        states.before(&exchange.name, &ids).await.with_context(|| exchange.name.clone())?;
        let answer = send(&server, &exchange, &ids).await.with_context(|| exchange.name.clone())?;
        let Some(expected) = &exchange.response else {
            if let Some(told) = recording::ids_told_elsewhere(&exchange.name) {
                ids.learn(told, answer.body.as_deref().unwrap_or_default());
            }
            if answer.status >= 500 {
                problems.push(format!("{}: {answer:?}", exchange.name));
            }
            continue;
        };
        compared += 1;
        let same = compare(expected, &answer, &mut ids, &database.name);
        match (same, differences.get(&exchange.name)) {
            (Ok(()), None) => {}
            (Ok(()), Some(_)) => problems.push(format!("{}: is listed, and the same", exchange.name)),
            (Err(difference), None) => problems.push(format!("{}: {difference}", exchange.name)),
            (Err(_), Some(listed)) => {
                different.insert(exchange.name.clone());
                problems.extend(listed.check(&answer).err());
            }
        }
    }
    let unseen = differences.keys().filter(|name| !different.contains(*name));
    problems.extend(unseen.map(|name| format!("{name}: is listed, and was not replayed or is the same")));
    database.drop_database().await?;
    ensure!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    ensure!(compared >= 150, "only {compared} exchanges were compared");
    Ok(())
}

/// Makes a recorded request with today's ids.
async fn send(server: &Server, exchange: &Exchange, ids: &Ids) -> anyhow::Result<Response> {
    let recorded = &exchange.request;
    let mut request = server.request(recorded.method.parse()?, &ids.translate(&recorded.path));
    for (name, value) in &recorded.headers {
        request = request.header(name, value);
    }
    if let Some(body) = &recorded.body {
        request = request.body(ids.translate(body));
    }
    let response = request.send().await?;
    let content_type = response.headers().get("content-type").map(|value| value.to_str()).transpose()?;
    let content_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().to_owned();
    Ok(Response { status: response.status().as_u16(), content_type, body: Some(response.text().await?) })
}

/// Compares all that a client can act on. Ids and times differ from run to run.
fn compare(expected: &Response, answer: &Response, ids: &mut Ids, database: &str) -> Result<(), String> {
    let differ = |what: &str, expected: &str, here: &str| {
        (expected != here)
            .then(|| format!("{what}\n  recorded {expected}\n  here     {here}"))
            .map_or(Ok(()), Err)
    };
    differ("status", &expected.status.to_string(), &answer.status.to_string())
        .map_err(|error| format!("{error} {:?}", answer.body))?;
    differ("content type", &expected.content_type, &answer.content_type)?;
    let here = answer.body.as_deref().unwrap_or_default();
    let Some(recorded) = expected.body.as_deref() else {
        return if here.contains("<!DOCTYPE html>") { Ok(()) } else { Err(format!("no page: {here}")) };
    };
    // The recordings were made in a database called dcap.
    let recorded = recorded.replace("dcap.", &format!("{database}."));
    ids.learn(&recorded, here);
    differ("body", &text::without_times(&ids.translate(&recorded)), &text::without_times(here))
}
