//! What the doctor is told where each process has a user of MongoDB of its own.

use std::sync::Arc;

use bson::doc;
use disbatch_core::clock::SystemClock;
use disbatch_core::config::Role;
use disbatch_core::doctor::Missing;
use disbatch_core::store::Store;
use serde_json::json;

use super::Secured;

#[tokio::test]
async fn rights_that_are_missing_are_named() -> anyhow::Result<()> {
    let secured = Secured::new(json!({})).await?;
    let (code, text) = secured.create_users(&["--create_root"]).await?;
    assert_eq!(code, Some(0), "{text}");
    let database = secured.world.database();
    let connected = |database| Store::with_clock(database, Arc::new(SystemClock));
    let den = connected(secured.database_as("disbatchd", "d").await?);
    let web = connected(secured.database_as("disbatch_web", "w").await?);
    den.ensure_indexes().await?;
    assert_eq!(web.missing_rights(Role::DisbatchWeb).await?, Some(vec![]));
    assert_eq!(den.missing_rights(Role::Disbatchd).await?, Some(vec![]));

    let resource = doc! { "db": database.name(), "collection": "tasks" };
    let privileges = vec![doc! { "resource": resource, "actions": ["insert", "remove"] }];
    database
        .run_command(doc! { "revokePrivilegesFromRole": "disbatch_web", "privileges": privileges })
        .await?;
    let expected = Missing { collection: Some("tasks"), actions: vec!["insert", "remove"] };
    assert_eq!(web.missing_rights(Role::DisbatchWeb).await?, Some(vec![expected]));

    // The indexes of tasks may be seen, and what may not is said to be.
    let (faults, unseen) = web.index_faults().await?;
    assert!(
        faults.is_empty() && !unseen.contains(&"tasks") && unseen.contains(&"nodes"),
        "{faults:?} {unseen:?}"
    );
    assert_eq!((web.replica_members().await?, web.server_disk().await?), (None, None));
    secured.server.stop().await
}
