//! A container that ends its task in a transaction of its own.

use std::fs;

use bson::{Document, doc};
use disbatch_core::task::commit_name;
use serde_json::{Value, json};

use super::{Setup, number, script};

/// The image of tests has no driver: the test inserts by the names that the container was given.
#[tokio::test]
async fn a_container_ends_its_task_by_what_it_has_committed() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    let text = "echo $DISBATCH_DATABASE $DISBATCH_COMMIT; until [ -e $DISBATCH_WORK_DIR/go ]; do sleep 0.1; done; exit 3";
    let queue = setup.queue("Boxed", &script(text)).await?;
    let path = setup.world.plugins().join("Boxed/plugin.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path)?)?;
    manifest["commits"] = json!(true);
    fs::write(&path, manifest.to_string())?;
    setup.world.update_queue(queue, doc! { "max_attempts": 3, "backoff": 0.1 }).await?;
    let task = setup.world.submit(queue, vec![doc! {}]).await?[0];
    let _den = setup.world.den("n1")?;
    let (database, name) = (setup.world.database(), commit_name(task, 1));
    let container = setup.until_printed(task, &format!("{} {name}\n", database.name())).await?;
    let mut session = database.client().start_session().await?;
    session.start_transaction().await?;
    let (effects, commits) =
        (database.collection::<Document>("people"), database.collection::<Document>("tasks.commits"));
    effects.insert_one(doc! { "_id": 1 }).session(&mut session).await?;
    commits.insert_one(doc! { "_id": name, "status": 7 }).session(&mut session).await?;
    session.commit_transaction().await?;
    fs::write(setup.folder_of(&container).await?.join("go"), "")?;
    let ended = setup.world.until_status(task, 7).await?;
    assert_eq!((number(&ended, "attempt")?, number(ended.get_document("exit")?, "code")?), (1, 3), "{ended}");
    setup.end().await
}
