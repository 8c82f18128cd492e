//! Containers as documents describe them: those of the documentation, and jobs of etcdq, which is where their form comes from.

use anyhow::{Context, ensure};
use bson::{Bson, doc};
use disbatch_tests::podman::IMAGE;
use serde_json::{Value, json};

use super::{Setup, script, stderr};
use crate::filesets::{files_of, put};

const CONTAINERS: &str = include_str!("../../../../docs/engines/containers.md");
const FILE_SETS: &str = include_str!("../../../../docs/engines/file-sets.md");

/// The first example in JSON that has this in it.
fn example(documentation: &str, word: &str) -> anyhow::Result<Value> {
    let mut examples = documentation.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    Ok(serde_json::from_str(examples.find(|example| example.contains(word)).context("there is none")?)?)
}

#[tokio::test]
async fn a_task_may_bring_its_container_where_the_manifest_says_so() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    let config = json!({ "Env": ["A=1"], "Labels": { "mine": "yes" } });
    let queue = setup.queue("Boxed", &json!({ "config": config, "config_from_params": true })).await?;
    let brought = doc! { "Image": IMAGE, "Cmd": ["sh", "-c", "echo $A $B"], "Env": ["B=2"], "Tty": true };
    let task = setup.run(queue, doc! { "Container": { "Config": brought.clone() } }).await?;
    assert_eq!((task.get_i32("status")?, task.get_str("stdout").ok()), (1, Some("1 2\n")), "{task}");
    let mut host = brought.clone();
    host.insert("HostConfig", doc! { "Privileged": true });
    let task = setup.run(queue, doc! { "Container": { "Config": host } }).await?;
    let expected = "params.Container.Config.HostConfig: only the plugin's manifest may set this";
    assert!(task.get_i32("status")? == 2 && stderr(&task).contains(expected), "{task}");
    let queue = setup.queue("Other", &script("echo own")).await?;
    let task = setup.run(queue, doc! { "Container": { "Config": brought } }).await?;
    assert_eq!(task.get_str("stdout").ok(), Some("own\n"), "it may not, so nobody looks at it: {task}");
    setup.end().await
}

#[tokio::test]
async fn the_example_of_the_documentation_runs() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    let manifest = example(CONTAINERS, "\"container\"")?;
    let image = manifest["container"]["image"].as_str().context("no image")?;
    setup.podman.run(&["tag", IMAGE, image]).await?;
    // Here there is no network that it could have.
    let mut container = manifest["container"].clone();
    container["pull"] = "missing".into();
    let queue = setup.queue("Example::Words", &container).await?;
    assert_eq!(manifest["name"], "Example::Words");
    let task = setup.run(queue, doc! { "text": "one two two" }).await?;
    assert_eq!((task.get_i32("status")?, task.get_str("stdout")?), (1, "3\n"), "{task}");
    assert_eq!(task.get_document("result")?, &doc! { "words": 3 });
    setup.end().await
}

#[tokio::test]
async fn a_job_of_etcdq_is_a_task_as_it_stands() -> anyhow::Result<()> {
    let Some(setup) = Setup::make().await? else { return Ok(()) };
    setup.podman.run(&["tag", IMAGE, "docker.io/library/busybox:latest"]).await?;
    let (world, store) = (&setup.world, setup.world.store());
    let files: [(&str, &[u8], u32); 3] =
        [("a.py", b"1\n2\n", 0o644), ("bin/tool", b"x", 0o755), ("c.txt", b"no", 0o644)];
    put(&store, "foo", None, &files).await?;
    let queue = setup.queue("Jobs", &json!({ "config_from_params": true, "image": IMAGE })).await?;
    world.update_queue(queue, doc! { "files": { "from_params": true } }).await?;
    let Bson::Document(job) = Bson::try_from(example(FILE_SETS, "\"Fileset\"")?)? else {
        anyhow::bail!("the example is no object")
    };
    let task = setup.run(queue, job).await?;
    ensure!(task.get_i32("status")? == 1, "{task}");
    let made = store.fileset_latest(&"foo_result".parse()?).await?.context("no set was made")?;
    let files = files_of(&store, &made).await?;
    assert_eq!(files.keys().collect::<Vec<_>>(), ["lines.dat"]);
    assert_eq!(files["lines.dat"], b"2 a.py\n", "nothing else of the set was there");
    assert_eq!(task.get_document("files")?.get_document("output")?.get_str("name")?, "foo_result");
    let odd = doc! { "Container": { "Config": {} }, "Fileset": { "Input": { "Name": "../x" } } };
    let task = setup.run(queue, odd).await?;
    let expected = "its files: params.Fileset: Input.Name: '../x' is no name of a file set";
    assert!(task.get_i32("status")? == 2 && stderr(&task).contains(expected), "{task}");
    setup.end().await
}
