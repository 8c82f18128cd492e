//! Replays recorded exchanges of Perl Disbatch 4.103 with the built `dci` and a real database, in the order
//! in which they were made. What differs on purpose stands in `docs/compatibility.md`; nothing else may.

mod difference;
mod recording;
mod server;
mod servers;
mod states;
mod text;

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use recording::Response;
use servers::Servers;
use text::Ids;

#[tokio::test]
async fn recorded_exchanges_have_the_same_answers() -> anyhow::Result<()> {
    let differences = difference::read()?;
    let uri = disbatch_mongod::testing::server().await?;
    let database = disbatch_mongod::testing::TestDatabase::create(uri).await?;
    let servers = Servers::start(&database).await?;
    let states = states::States::new(&database);

    let mut ids = Ids::default();
    let mut problems = Vec::new();
    let mut different = BTreeSet::new();
    let mut compared = 0;
    for exchange in recording::all()? {
        states.before(&exchange.name, &ids).await.with_context(|| exchange.name.clone())?;
        // Perl has no such route, and what it does here would be in the way of what comes after.
        if exchange.name == "nodes.delete" {
            continue;
        }
        let answer = servers.send(&exchange, &ids).await.with_context(|| exchange.name.clone())?;
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
        let expected = recording::without_chance(&exchange.name, expected, &answer);
        let same = compare(&expected, &answer, &mut ids, &database.name);
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
    ensure!(compared >= 300, "only {compared} exchanges were compared");
    Ok(())
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
        let is_page = expected.content_type == "text/html" && !here.is_empty();
        return if !is_page || here.contains("<!DOCTYPE html>") {
            Ok(())
        } else {
            Err(format!("no page: {here}"))
        };
    };
    // The recordings were made in a database called dcap.
    let recorded =
        recorded.replace("dcap.", &format!("{database}.")).replace("\"dcap\"", &format!("\"{database}\""));
    ids.learn(&recorded, here);
    let plain = |text: &str| text::without_ages(&text::without_times(text));
    differ("body", &plain(&ids.translate(&recorded)), &plain(here))
}
