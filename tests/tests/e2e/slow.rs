//! What is told when MongoDB does not answer in time.

use anyhow::Context;
use bson::doc;
use disbatch_core::audit::{Actor, AuditEntry, AuditQuery, Object, ObjectKind, Verb};
use disbatch_tests::{Dci, World};
use reqwest::Method;

use crate::wake::{fail, fallible};

#[tokio::test]
async fn what_takes_too_long_is_told_to_be_unknown() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = fallible(data.path()).await?;
    let world = World::at(server.uri()).await?;
    let queue = world.queue("P", doc! {}).await?;
    world.submit(queue, vec![doc! {}]).await?;
    let store = world.store();
    let who = Actor::of_command_line("somebody", "n1");
    store.record_audit(&AuditEntry::new(who, Verb::CountersAudit, Object::new(ObjectKind::Counters))).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let page = async |path: &str| -> anyhow::Result<String> {
        let answer = dci.request(Method::GET, path).header("accept", "text/html").send().await?;
        Ok(answer.error_for_status()?.text().await?)
    };
    let out_of_time = |command: &str, collection: &str| {
        let namespace = format!("{}.{collection}", world.database().name());
        doc! { "failCommands": [command], "errorCode": 50, "namespace": namespace }
    };

    // As while somebody has locked the collection.
    fail(&world, "alwaysOn", out_of_time("aggregate", "tasks")).await?;
    let sizes = store.sizes().await?.context("this user may ask")?;
    let size = |name: &str| sizes.iter().find(|(known, _)| *known == name).map(|(_, size)| *size);
    assert_eq!(size("tasks"), Some(None));
    assert_eq!(size("queues").flatten().map(|size| size.documents), Some(1));
    assert!(page("/about").await?.contains("not known: MongoDB did not tell in time"));

    fail(&world, "alwaysOn", out_of_time("find", "audit")).await?;
    let query = AuditQuery { by: Some("some".to_owned()), limit: 10, ..AuditQuery::default() };
    assert_eq!(store.find_audit(&query).await?, None);
    assert!(page("/audit?by=some").await?.contains("It took too long"));
    fail(&world, "off", doc! {}).await?;
    let found = store.find_audit(&query).await?.context("it takes no time")?;
    assert_eq!(found.rows.len(), 1);
    world.end().await?;
    server.stop().await
}
