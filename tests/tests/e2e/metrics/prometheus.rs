//! A real Prometheus collects what a DEN and a DCI tell, and answers questions about known work.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, ensure};
use bson::doc;
use disbatch_tests::{Dci, World, eventually};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::{MIXED, address_of, http};

/// A Prometheus that asks every half second.
struct Prometheus {
    url: String,
    _child: Child,
}

impl Prometheus {
    /// Starts one, on a port that was free a moment ago: it does not tell which one it has taken.
    async fn start(folder: &Path, den: &str, dci: &str) -> anyhow::Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let job = |name: &str, url: &str| json!({ "job_name": name, "static_configs": [{ "targets": [url.trim_start_matches("http://")] }] });
        let rules = super::packaging().join("prometheus/disbatch.rules.yml").canonicalize()?;
        let config = json!({
            "global": { "scrape_interval": "500ms", "evaluation_interval": "500ms" },
            "rule_files": [rules],
            "scrape_configs": [job("den", den), job("dci", dci)],
        });
        // JSON is YAML.
        std::fs::write(folder.join("prometheus.yml"), config.to_string())?;
        let log = std::fs::File::create(folder.join("prometheus.log"))?;
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("this test needs prometheus, which scripts/prepare browser installs")?;
        Ok(Self { url: format!("http://127.0.0.1:{port}"), _child: child })
    }

    async fn ask(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Value> {
        let answer: Value =
            http().get(format!("{}/api/v1/{path}", self.url)).query(query).send().await?.json().await?;
        ensure!(answer["status"] == "success", "{path} {query:?}: {answer}");
        Ok(answer["data"].clone())
    }

    /// The one number that an expression has.
    async fn number(&self, expression: &str) -> anyhow::Result<Option<f64>> {
        let found = self.ask("query", &[("query", expression)]).await?;
        let samples = found["result"].as_array().context("no result")?;
        ensure!(samples.len() <= 1, "{expression} has several: {found}");
        let number = samples.first().and_then(|sample| sample["value"][1].as_str());
        number.map(|number| Ok(number.parse()?)).transpose()
    }
}

/// Of nine tasks, three fail, each twice.
const EXPECTED: [(&str, f64); 19] = [
    ("disbatch_tasks_submitted_total{queue=\"mail\",source=\"api\",job=\"dci\"}", 9.0),
    ("disbatch_tasks_ended_total{queue=\"mail\",outcome=\"succeeded\",job=\"den\"}", 6.0),
    ("disbatch_tasks_ended_total{queue=\"mail\",outcome=\"failed\",job=\"den\"}", 3.0),
    ("disbatch_attempts_failed_total{queue=\"mail\",cause=\"exit\",job=\"den\"}", 6.0),
    ("disbatch_tasks_retried_total{queue=\"mail\",by=\"policy\",job=\"den\"}", 3.0),
    ("disbatch_tasks_claimed_total{queue=\"mail\"}", 12.0),
    ("disbatch_tasks_started_total{queue=\"mail\"}", 12.0),
    ("disbatch_task_wait_seconds_count{queue=\"mail\"}", 12.0),
    ("disbatch_task_run_seconds_count{queue=\"mail\",outcome=\"failed\",job=\"den\"}", 6.0),
    ("disbatch_queue_tasks{queue=\"stuck\",state=\"queued\"}", 1.0),
    ("disbatch_queue_tasks{queue=\"mail\",state=\"running\"}", 0.0),
    ("disbatch_queue_places{queue=\"mail\"}", 4.0),
    ("disbatch_queue_held_by{queue=\"stuck\",gate=\"plugin\"}", 1.0),
    ("disbatch_queue_held_by{queue=\"mail\",gate=\"empty\"}", 1.0),
    ("disbatch_nodes{state=\"alive\"}", 1.0),
    ("disbatch_database_up{job=\"den\"}", 1.0),
    ("min(up)", 1.0),
    ("count(up)", 2.0),
    ("disbatch_stream_lag_seconds_count > bool 0", 1.0),
];

#[tokio::test]
async fn a_real_prometheus_knows_what_was_done() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "metrics": { "listen": 0 }, "auditor": { "every": 0.5 } }))?;
    MIXED.install(&world.plugins())?;
    let mail = world.queue("Mixed", doc! { "name": "mail", "threads": 4, "max_attempts": 2, "backoff": { "base": 0.05, "jitter": 0 } }).await?;
    world.queue("Nowhere", doc! { "name": "stuck", "threads": 2 }).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let prometheus = Prometheus::start(world.path(), &address_of(&den).await?, dci.url()).await?;
    let params: Vec<Value> = (0..9).map(|n| json!({ "do": if n < 3 { "fail" } else { "work" } })).collect();
    assert_eq!(dci.post("/tasks", &json!({ "queue": mail.0.to_hex(), "params": params })).await?.0, 200);
    assert_eq!(dci.post("/tasks", &json!({ "queue": "stuck", "params": [{ "a": 1 }] })).await?.0, 200);
    world.until_all_ended(mail).await?;

    let seen = std::cell::RefCell::new(BTreeMap::new());
    let all = eventually("what Prometheus knows", || async {
        let mut found = BTreeMap::new();
        for (expression, number) in EXPECTED {
            // It may not listen yet.
            let known = prometheus.number(expression).await.ok().flatten();
            if known != Some(number) {
                found.insert(expression, known);
            }
        }
        *seen.borrow_mut() = found;
        Ok(seen.borrow().is_empty().then_some(()))
    });
    let log = || std::fs::read_to_string(world.path().join("prometheus.log")).unwrap_or_default();
    all.await.with_context(|| format!("{:#?}\n{}", seen.borrow(), log()))?;

    // Nothing that was told was odd, and the rules of alerts could be applied to it.
    let targets = prometheus.ask("targets", &[]).await?;
    for target in targets["activeTargets"].as_array().context("no targets")? {
        assert_eq!(
            (target["health"].as_str(), target["lastError"].as_str()),
            (Some("up"), Some("")),
            "{target}"
        );
    }
    let groups = prometheus.ask("rules", &[]).await?;
    let rules = groups["groups"][0]["rules"].as_array().context("no rules")?;
    assert!(rules.len() > 5 && rules.iter().all(|rule| rule["health"] != "err"), "{rules:#?}");
    let held = rules.iter().find(|rule| rule["name"] == "DisbatchQueueHeld").context("no such alert")?;
    assert_eq!(held["state"], "pending", "a queue is held, and not for long yet: {held}");
    assert!(!log().contains("level=warn"), "{}", log());
    world.end().await
}
