//! Fleets in which not all programs are ours: a DEN and a runner in Perl, which follow the protocol of Disbatch 4.103 and
//! know nothing else, work on the same database as ours.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_core::model::{NodeName, QueueId};
use disbatch_tests::{Den, PATIENCE, Script, World, binary, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

/// Something of the programs in Perl.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/perl").join(name)
}

/// A fleet, whose tasks are Perl modules.
struct Fleet {
    world: World,
    /// What the programs in Perl are called; they go by the name of their host.
    host: String,
    /// In which each task notes that it runs.
    log: PathBuf,
    /// The runner in Perl.
    runner: PathBuf,
}

impl Fleet {
    async fn new() -> anyhow::Result<Self> {
        let world = World::new().await?;
        let program = fixture("task_runner.pl");
        let text = format!("#!/bin/sh\nexec perl '{}' \"$@\"\n", program.display());
        Script { name: "PerlRunner", text: &text }.install(&world.plugins())?;
        let runner = world.plugins().join("PerlRunner/run");
        let host = NodeName::of_this_host()?.as_str().to_owned();
        let log = world.path().join("runs.log");
        File::create(&log)?;
        let fleet = Self { world, host, log, runner };
        fleet.configure(json!({}))?;
        Ok(fleet)
    }

    /// The configuration of our programs.
    fn configure(&self, further: Value) -> anyhow::Result<()> {
        let mut keys = json!({ "plugins": ["Fleet"], "engines": { "perl": { "lib": [fixture("lib")] } } });
        for (key, value) in further.as_object().context("no object")? {
            keys[key] = value.clone();
        }
        self.world.configure(keys)
    }

    /// A queue for the module, and tasks for it that take so long. Of each five, one writes a report.
    async fn submit(&self, threads: i32, number: usize, seconds: f64) -> anyhow::Result<QueueId> {
        let queue = self.world.queue("Fleet", doc! { "threads": threads }).await?;
        let log = self.log.display().to_string();
        let params = (0..number).map(|n| doc! { "log": &log, "seconds": seconds, "report": n % 5 == 0 });
        self.world.submit(queue, params.collect()).await?;
        Ok(queue)
    }

    /// Starts a DEN in Perl, which has tasks run by `runner`.
    fn perl_den(&self, runner: &Path) -> anyhow::Result<PerlDen> {
        let mut config: Value = serde_json::from_slice(&fs::read(self.world.config())?)?;
        config["task_runner"] = json!(runner);
        let path = self.world.path().join("perl.json");
        fs::write(&path, config.to_string())?;
        let log = self.world.path().join("perl.log");
        let child = Command::new("perl")
            .arg(fixture("den.pl"))
            .arg("--config")
            .arg(&path)
            .args(["--every", "0.1"])
            .env("PERL5LIB", fixture("lib"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::options().create(true).append(true).open(log)?)
            .kill_on_drop(true)
            .spawn()?;
        Ok(PerlDen(child))
    }

    /// Starts one of ours.
    fn den(&self, node: &str) -> anyhow::Result<Den> {
        let lib = fixture("lib").display().to_string();
        self.world.den_in(node, &[], &[("PERL5LIB", lib.as_str())])
    }

    async fn until_at_work(&self, node: &str) -> anyhow::Result<()> {
        let nodes = self.world.database().collection::<Document>("nodes");
        let seen = doc! { "node": node, "timestamp": { "$exists": true } };
        eventually("the heartbeat of a DEN", || async { Ok(nodes.find_one(seen.clone()).await?) }).await?;
        Ok(())
    }

    /// Waits until so many tasks have been run by `runner`.
    async fn until_run_by(&self, queue: QueueId, runner: &str, number: u64) -> anyhow::Result<()> {
        let by = doc! { "status": 1, "stdout": format!("by {runner}\n") };
        eventually(&format!("{number} tasks that were run by {runner}"), || async {
            Ok((self.world.count(queue, by.clone()).await? >= number).then_some(()))
        })
        .await
    }

    /// Waits until all tasks have ended, and checks that each has succeeded and has run once. Tells how many of them
    /// each kind of runner had.
    async fn all_ran_once(&self, queue: QueueId) -> anyhow::Result<BTreeMap<String, usize>> {
        let ended = self.world.until_all_ended(queue).await;
        let what_perl_says = fs::read_to_string(self.world.path().join("perl.log")).unwrap_or_default();
        let number = ended.with_context(|| what_perl_says.clone())?.len() as u64;
        // Perl's runner first ends a task, and then stores its output.
        let complete = doc! { "complete": true };
        eventually("the output of all tasks", || async {
            Ok((self.world.count(queue, complete.clone()).await? == number).then_some(()))
        })
        .await
        .with_context(|| what_perl_says.clone())?;
        let tasks = self.world.tasks_of(queue).await?;
        let mut runs: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in fs::read_to_string(&self.log)?.lines() {
            let (task, runner) = line.split_once(' ').context("a line without runner")?;
            runs.entry(task.to_owned()).or_default().push(runner.to_owned());
        }
        ensure!(runs.len() == tasks.len(), "{} of {} tasks have run", runs.len(), tasks.len());
        let mut by_runner = BTreeMap::new();
        let mut reports = 0;
        for task in tasks {
            let id = task.get_object_id("_id")?.to_hex();
            let by = runs.get(&id).with_context(|| format!("task {id} has not run"))?;
            ensure!(by.len() == 1, "task {id} has run {} times: {by:?}", by.len());
            ensure!(task.get_i32("status")? == 1 && task.get_bool("complete")?, "{task} {what_perl_says}");
            assert_eq!(task.get_str("stdout")?, format!("by {}\n", by[0]));
            reports += u64::from(task.get_document("params")?.get_bool("report")?);
            *by_runner.entry(by[0].clone()).or_insert(0) += 1;
        }
        let written = self.world.database().collection::<Document>("reports");
        assert_eq!(written.count_documents(doc! {}).await?, reports);
        Ok(by_runner)
    }
}

/// A DEN in Perl. Killed when dropped.
struct PerlDen(Child);

impl PerlDen {
    /// Tells it to end, and waits until it has. Its runners go on.
    async fn end(mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.0.id().context("it has ended")?)?;
        kill(Pid::from_raw(pid), Signal::SIGTERM)?;
        let status = tokio::time::timeout(PATIENCE, self.0.wait()).await.context("it does not end")??;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

fn by(runner: &str, number: usize) -> BTreeMap<String, usize> {
    BTreeMap::from([(runner.to_owned(), number)])
}

#[tokio::test]
async fn our_den_has_tasks_run_by_perls_runner() -> anyhow::Result<()> {
    let fleet = Fleet::new().await?;
    fleet.configure(json!({ "task_runner": fleet.runner }))?;
    let queue = fleet.submit(2, 5, 0.0).await?;
    let den = fleet.den(&fleet.host)?;
    let ran = fleet.all_ran_once(queue).await.with_context(|| den.log().unwrap_or_default())?;
    assert_eq!(ran, by("perl", 5));
    for task in fleet.world.tasks_of(queue).await? {
        assert_eq!(task.get_str("node")?, fleet.host);
    }
    fleet.world.end().await
}

#[tokio::test]
async fn perls_den_has_tasks_run_by_our_runner() -> anyhow::Result<()> {
    let fleet = Fleet::new().await?;
    let queue = fleet.submit(2, 5, 0.0).await?;
    let _den = fleet.perl_den(&binary("dtr")?)?;
    assert_eq!(fleet.all_ran_once(queue).await?, by("ours", 5));
    fleet.world.end().await
}

/// Such a DEN ignores the ends of its children, and its runners inherit that: who does so cannot learn how a plugin has
/// ended.
#[tokio::test]
async fn under_perls_den_the_exit_status_of_a_plugin_is_known() -> anyhow::Result<()> {
    let fleet = Fleet::new().await?;
    // The DEN looks for a module of that name, and our runner takes the program.
    let text = "#!/bin/sh\necho a program\nexit 3\n";
    Script { name: "Fleet", text }.install(&fleet.world.plugins())?;
    let queue = fleet.world.queue("Fleet", doc! { "threads": 1 }).await?;
    let ids = fleet.world.submit(queue, vec![doc! {}]).await?;
    let _den = fleet.perl_den(&binary("dtr")?)?;
    let task = fleet.world.until_status(ids[0], 2).await?;
    assert_eq!(task.get_str("stdout")?, "a program\n");
    assert_eq!(task.get_document("exit")?.get_i32("code")?, 3, "{task}");
    fleet.world.end().await
}

#[tokio::test]
async fn both_dens_at_once_run_each_task_once() -> anyhow::Result<()> {
    let fleet = Fleet::new().await?;
    let nodes = fleet.world.database().collection::<Document>("nodes");
    // Ours is quicker, and is to leave something.
    nodes.insert_one(doc! { "node": "n1", "maxthreads": 2 }).await?;
    nodes.insert_one(doc! { "node": &fleet.host, "maxthreads": 3 }).await?;
    let _perls = fleet.perl_den(&fleet.runner)?;
    let ours = fleet.den("n1")?;
    fleet.until_at_work(&fleet.host).await?;
    fleet.until_at_work("n1").await?;
    let queue = fleet.submit(5, 20, 0.3).await?;
    let ran = fleet.all_ran_once(queue).await.with_context(|| ours.log().unwrap_or_default())?;
    assert_eq!(ran.values().sum::<usize>(), 20);
    assert!(ran.len() == 2, "only some of them had work: {ran:?}");
    for task in fleet.world.tasks_of(queue).await? {
        let node = if task.get_str("stdout")? == "by ours\n" { "n1" } else { fleet.host.as_str() };
        assert_eq!(task.get_str("node")?, node);
    }
    fleet.world.end().await
}

/// As when a node is upgraded, and goes back: what runs is not disturbed, and nothing is run again.
#[tokio::test]
async fn a_node_changes_from_perls_programs_to_ours_and_back_in_the_middle() -> anyhow::Result<()> {
    let fleet = Fleet::new().await?;
    let queue = fleet.submit(3, 18, 0.3).await?;
    let perls = fleet.perl_den(&fleet.runner)?;
    fleet.until_run_by(queue, "perl", 2).await?;
    perls.end().await?;
    let ours = fleet.den(&fleet.host)?;
    fleet.until_run_by(queue, "ours", 3).await?;
    ours.end_with(Signal::SIGTERM).await?;
    let _perls = fleet.perl_den(&fleet.runner)?;
    let ran = fleet.all_ran_once(queue).await?;
    assert!(ran["perl"] >= 3 && ran["ours"] >= 3, "{ran:?}");
    fleet.world.end().await
}
