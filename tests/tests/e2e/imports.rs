//! Documents of another scheduler, as its own documentation shows them, save that its examples share an id.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, ensure};
use bson::doc;
use disbatch_core::model::PluginName;
use disbatch_core::plugin::Engine;
use disbatch_core::schedules::ScheduleQuery;
use disbatch_tests::{Dci, World, binary};
use tokio::process::Command;

/// Runs `disbatch` with a file of the fixtures. Returns whether it has succeeded, and what it has printed.
async fn disbatch(dci: &Dci, arguments: &[&str], file: &str) -> anyhow::Result<(bool, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/lex").join(file);
    let mut command = Command::new(binary("disbatch")?);
    for variable in ["DISBATCH_USERNAME", "DISBATCH_PASSWORD", "DISBATCH_TOKEN"] {
        command.env_remove(variable);
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").env("DISBATCH_URL", dci.url());
    command.args(arguments).arg(path).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await?;
    let text = String::from_utf8([output.stdout, output.stderr].concat())?;
    Ok((output.status.success(), text))
}

#[tokio::test]
async fn workers_and_jobs_are_plugins_and_schedules_as_they_stand() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let (done, text) = disbatch(&dci, &["workers", "import"], "workers.json").await?;
    let created = "Created: requiredlearningcsv, requiredlearningweb, requiredlearningauth\n";
    ensure!(done && text.starts_with(created), "{text}");
    ensure!(
        text.contains("Warning: requiredlearningcsv: no node whose DEN is alive has the engine kubernetes"),
        "{text}"
    );
    for (name, engine) in [
        ("requiredlearningcsv", Engine::Kubernetes),
        ("requiredlearningweb", Engine::Http),
        ("requiredlearningauth", Engine::Http),
    ] {
        let worker = store.worker(&name.parse::<PluginName>()?).await?.context(name)?;
        assert_eq!(worker.manifest()?.engine, engine, "{name}");
    }
    let (done, text) = disbatch(&dci, &["schedule", "import"], "jobs.json").await?;
    let expected = "Required Learning CSV upload: no queue has the plugin requiredlearningcsv: make one, or give --queue";
    ensure!(!done && text.contains(expected), "{text}");

    let of = |tenant: &str| doc! { "name": tenant, "tenant": tenant, "threads": 1 };
    world.queue("requiredlearningcsv", of("other")).await?;
    let queue = world.queue("requiredlearningcsv", of("ibm")).await?;
    let (done, text) = disbatch(&dci, &["schedule", "import"], "jobs.json").await?;
    ensure!(done && text == "Created: Required Learning CSV upload\n", "{text}");
    let schedules = store.list_schedules(&ScheduleQuery::default()).await?;
    let [schedule] = schedules.as_slice() else { anyhow::bail!("{schedules:?}") };
    assert_eq!((schedule.settings.queue, schedule.settings.tenant.as_deref()), (queue, Some("ibm")));
    let next = schedule.next_for.context("it never fires")?.try_to_rfc3339_string()?;
    assert_eq!(&next[10..], "T10:00:00Z");
    let (done, text) = disbatch(&dci, &["schedule", "import"], "jobs.json").await?;
    ensure!(done && text.starts_with("Left alone, as another schedule has the name: "), "{text}");
    world.end().await
}
