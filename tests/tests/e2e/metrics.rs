//! Metrics: what a real DEN and a real DCI tell of known work, in both formats, and what is shipped for Prometheus and Grafana.

mod prometheus;
mod standstill;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bson::doc;
use bson::oid::ObjectId;
use disbatch_core::metrics::declared::{Metrics, OfQueue};
use disbatch_core::metrics::queues::MOST;
use disbatch_core::model::whole_number;
use disbatch_tests::{Dci, Den, Script, World, always, binary, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";

const MIXED: Script<'_> = Script {
    name: "Mixed",
    text: "#!/bin/sh\nread -r line\ncase \"$line\" in *fail*) exit 3;; *stay*) exec sleep 600;; *) exit 0;; esac\n",
};

/// What was exported, by the name of the series with its labels in order.
#[derive(Debug, Default)]
pub struct Exposition {
    types: BTreeMap<String, String>,
    series: BTreeMap<String, f64>,
}

impl Exposition {
    /// Reads the text of Prometheus, or of OpenMetrics, and is strict about it.
    fn parse(text: &str, is_open: bool) -> anyhow::Result<Self> {
        let mut read = Self::default();
        let mut described = BTreeSet::new();
        let mut family = String::new();
        let (body, end) =
            if is_open { text.split_at(text.len().saturating_sub(6)) } else { (text, "# EOF\n") };
        ensure!(end == "# EOF\n", "it does not end with # EOF");
        ensure!(body.ends_with('\n'), "the last line has no end");
        for line in body.lines() {
            match line.strip_prefix("# ") {
                Some(comment) => {
                    let mut words = comment.splitn(3, ' ');
                    let (what, name) = (words.next(), words.next().context("no name")?);
                    let rest = words.next().context("nothing behind the name")?;
                    match what {
                        Some("HELP") => {
                            ensure!(described.insert(name.to_owned()), "{name} is described twice")
                        }
                        Some("TYPE") => {
                            ensure!(described.contains(name), "{name} has no description");
                            ensure!(
                                read.types.insert(name.to_owned(), rest.to_owned()).is_none(),
                                "{name} twice"
                            );
                            family = name.to_owned();
                        }
                        Some("UNIT") => ensure!(is_open && name.ends_with(rest), "{line}"),
                        _ => bail!("{line}"),
                    }
                }
                None => read.sample(line, &family, is_open)?,
            }
        }
        Ok(read)
    }

    fn sample(&mut self, line: &str, family: &str, is_open: bool) -> anyhow::Result<()> {
        let at = line.find([' ', '{']).with_context(|| format!("no sample: {line}"))?;
        let (name, mut rest) = line.split_at(at);
        let kind = self.types.get(family).with_context(|| format!("{line} comes before its type"))?;
        let suffix = name.strip_prefix(family).with_context(|| format!("{line} is not of {family}"))?;
        let fits = match kind.as_str() {
            "counter" => suffix == if is_open { "_total" } else { "" } && name.ends_with("_total"),
            "gauge" => suffix.is_empty(),
            "histogram" => ["_bucket", "_count", "_sum"].contains(&suffix),
            other => bail!("{family} is of the type {other}"),
        };
        ensure!(fits, "{line} is no sample of a {kind}");
        let mut labels = BTreeSet::new();
        if let Some(inside) = rest.strip_prefix('{') {
            let mut left = inside;
            while !left.starts_with('}') {
                let (label, value) = left.split_once("=\"").with_context(|| line.to_owned())?;
                ensure!(label.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}: {label}");
                let (mut escaped, mut end) = (false, None);
                for (at, c) in value.char_indices() {
                    match c {
                        '"' if !escaped => {
                            end = Some(at);
                            break;
                        }
                        _ => escaped = c == '\\' && !escaped,
                    }
                }
                let end = end.with_context(|| format!("{line}: a value does not end"))?;
                ensure!(labels.insert(format!("{label}=\"{}\"", &value[..end])), "{line}: {label} twice");
                left = &value[end + 1..];
                left = left.strip_prefix(',').unwrap_or(left);
            }
            rest = &left[1..];
        }
        let number = rest.strip_prefix(' ').with_context(|| line.to_owned())?;
        let labels: Vec<String> = labels.into_iter().collect();
        let key = if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) };
        let number: f64 = number.parse().with_context(|| line.to_owned())?;
        ensure!(self.series.insert(key.clone(), number).is_none(), "{key} is there twice");
        Ok(())
    }

    /// What is missing of these.
    fn lacks(&self, expected: &[(String, f64)]) -> Vec<String> {
        let differs = |(key, number): &&(String, f64)| self.series.get(key) != Some(number);
        let found = |key: &str| self.series.get(key).map_or("nothing".to_owned(), f64::to_string);
        expected
            .iter()
            .filter(differs)
            .map(|(key, number)| format!("{key}: {} for {number}", found(key)))
            .collect()
    }

    fn value(&self, key: &str) -> anyhow::Result<f64> {
        self.series.get(key).copied().with_context(|| format!("{key} is missing"))
    }
}

/// Where a DEN serves its metrics.
pub async fn address_of(den: &Den) -> anyhow::Result<String> {
    eventually("the address for metrics", || async {
        let log = den.log()?;
        let line = log.lines().find(|line| line.contains("metrics are served"));
        let address = line.and_then(|line| line.split("address=").nth(1)?.split_whitespace().next());
        Ok(address.map(|address| format!("http://{address}")))
    })
    .await
}

async fn get(url: &str, accept: &str) -> anyhow::Result<(u16, String, String)> {
    let response = http().get(url).header("accept", accept).send().await?;
    let kind = response.headers().get("content-type").context("no type")?.to_str()?.to_owned();
    Ok((response.status().as_u16(), kind, response.text().await?))
}

fn http() -> reqwest::Client {
    // Fails when a provider is installed already, which is as good.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

async fn scrape(url: &str) -> anyhow::Result<Exposition> {
    let (status, kind, text) = get(&format!("{url}/metrics"), "*/*").await?;
    ensure!(status == 200 && kind == "text/plain; version=0.0.4; charset=utf-8", "{status} {kind} {text}");
    Exposition::parse(&text, false)
}

/// How often a DEN has looked after its tasks.
pub async fn looks(den: &Den) -> anyhow::Result<f64> {
    scrape(&address_of(den).await?).await?.value("disbatch_worker_seconds_count{worker=\"look\"}")
}

/// Waits until these are exported.
pub async fn until(url: &str, expected: &[(String, f64)]) -> anyhow::Result<Exposition> {
    let lacks = RefCell::new(Vec::new());
    let found = eventually("the metrics", || async {
        let found = scrape(url).await?;
        *lacks.borrow_mut() = found.lacks(expected);
        Ok(lacks.borrow().is_empty().then_some(found))
    });
    found.await.with_context(|| format!("{url}: {:#?}", lacks.borrow()))
}

fn of_queue(queue: &str, rows: &[(&str, &str, f64)]) -> Vec<(String, f64)> {
    let key = |(name, labels, number): &(&str, &str, f64)| {
        let mut labels: Vec<&str> = labels.split(',').filter(|label| !label.is_empty()).collect();
        let queue = format!("queue=\"{queue}\"");
        labels.push(&queue);
        labels.sort_unstable();
        (format!("disbatch_{name}{{{}}}", labels.join(",")), *number)
    };
    rows.iter().map(key).collect()
}

fn plain(rows: &[(&str, f64)]) -> Vec<(String, f64)> {
    rows.iter().map(|(name, number)| (format!("disbatch_{name}"), *number)).collect()
}

fn build_info(component: &str) -> String {
    format!("build_info{{component=\"{component}\",version=\"{}\"}}", env!("CARGO_PKG_VERSION"))
}

/// What a DEN tells of seven tasks, two of which have failed.
fn of_den(label: &str) -> Vec<(String, f64)> {
    let mut expected = of_queue(
        label,
        &[
            ("tasks_claimed_total", "", 7.0),
            ("tasks_started_total", "", 7.0),
            ("tasks_returned_total", "", 0.0),
            ("tasks_refused_total", "reason=\"unique\"", 0.0),
            ("tasks_ended_total", "outcome=\"succeeded\"", 5.0),
            ("tasks_ended_total", "outcome=\"failed\"", 2.0),
            ("tasks_ended_total", "outcome=\"orphaned\"", 0.0),
            ("attempts_failed_total", "cause=\"exit\"", 2.0),
            ("attempts_failed_total", "cause=\"signal\"", 0.0),
            ("task_wait_seconds_count", "", 7.0),
            ("task_wait_seconds_bucket", "le=\"+Inf\"", 7.0),
            ("task_run_seconds_count", "outcome=\"succeeded\"", 5.0),
            ("task_run_seconds_count", "outcome=\"failed\"", 2.0),
            ("task_memory_peak_bytes_count", "", 7.0),
        ],
    );
    expected.extend(plain(&[
        (&build_info("den"), 1.0),
        ("database_up", 1.0),
        ("stream_up", 1.0),
        ("queues_folded", 0.0),
        ("node_places_used", 0.0),
        ("write_tasks_sum{op=\"end\"}", 7.0),
        ("write_backlog{op=\"end\"}", 0.0),
        ("runner_deaths_total{cause=\"signal\"}", 0.0),
    ]));
    expected
}

/// What a DCI tells of them, and of two others, one of which waits and one was cancelled; a third was refused.
fn of_dci(label: &str) -> Vec<(String, f64)> {
    let mut expected = of_queue(
        label,
        &[
            ("tasks_submitted_total", "source=\"api\"", 7.0),
            ("queue_places", "", 4.0),
            ("queue_places_used", "", 0.0),
            ("queue_tasks", "state=\"running\"", 0.0),
            ("queue_info", "plugin=\"Mixed\",policy=\"fifo\"", 1.0),
        ],
    );
    expected.extend(of_queue(
        "unserved",
        &[
            ("tasks_submitted_total", "source=\"api\"", 2.0),
            ("tasks_refused_total", "reason=\"unique\"", 1.0),
            ("tasks_ended_total", "outcome=\"cancelled\"", 1.0),
            ("queue_tasks", "state=\"queued\"", 1.0),
            ("queue_tasks", "state=\"blocked\"", 0.0),
            ("queue_info", "plugin=\"Demo\",policy=\"lifo\"", 1.0),
        ],
    ));
    expected.extend(plain(&[
        (&build_info("dci"), 1.0),
        ("nodes{state=\"alive\"}", 1.0),
        ("nodes{state=\"dead\"}", 0.0),
        ("locks_held", 0.0),
        ("database_up", 1.0),
        ("http_requests_total{code=\"200\",method=\"POST\",route=\"/tasks\"}", 3.0),
        ("http_requests_total{code=\"409\",method=\"POST\",route=\"/tasks\"}", 1.0),
        ("http_requests_total{code=\"200\",method=\"POST\",route=\"/tasks/{id}/cancel\"}", 1.0),
        ("auth_failures_total{reason=\"wrong\"}", 0.0),
    ]));
    expected
}

/// Both formats have the same, as Prometheus's own tool wants it.
async fn agree(url: &str) -> anyhow::Result<()> {
    let (status, kind, open) = get(&format!("{url}/metrics"), OPEN_METRICS).await?;
    assert_eq!((status, kind.as_str()), (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"));
    let (_, _, prometheus) = get(&format!("{url}/metrics"), "text/plain").await?;
    let open = Exposition::parse(&open, true)?;
    let later = Exposition::parse(&prometheus, false)?;
    let missing: Vec<_> = open.series.keys().filter(|name| !later.series.contains_key(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // It takes the counters of Disbatch for those of Prometheus.
    let known = "disbatch_counter_drift_tasks_total metric name should not include type 'counter'";
    let (_, said) = promtool(&["check", "metrics"], Some(&prometheus)).await?;
    assert!(said.lines().all(|line| line.is_empty() || line == known), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_den_and_a_dci_tell_what_they_have_done() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "metrics": { "listen": 0 }, "auditor": { "every": 0.5 } }))?;
    MIXED.install(&world.plugins())?;
    let mail = world.queue("Mixed", doc! { "name": "mail \"all\"", "threads": 4 }).await?;
    let label = "mail \\\"all\\\"";
    let unserved = world.queue("Demo", doc! { "name": "unserved", "threads": 2, "policy": "lifo" }).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let submit = async |queue: ObjectId, params: Value, more: Value| {
        let mut body = json!({ "queue": queue.to_string(), "params": params });
        body.as_object_mut()
            .into_iter()
            .for_each(|body| body.extend(more.as_object().cloned().unwrap_or_default()));
        dci.post("/tasks", &body).await
    };
    let params: Vec<Value> = (0..7).map(|n| json!({ "do": if n < 2 { "fail" } else { "work" } })).collect();
    assert_eq!(submit(mail.0, json!(params), json!({})).await?.0, 200);
    world.until_all_ended(mail).await?;
    for status in [200, 409] {
        assert_eq!(submit(unserved.0, json!([{ "a": 1 }]), json!({ ".unique": "k" })).await?.0, status);
    }
    let (_, answer) = submit(unserved.0, json!([{ "a": 1 }]), json!({})).await?;
    let id = answer["MongoDB::InsertManyResult"]["inserted"][0]["_id"]["$oid"].as_str().context("no id")?;
    dci.posted(&format!("/tasks/{id}/cancel"), &json!({})).await?;

    let url = address_of(&den).await?;
    let found = until(&url, &of_den(label)).await?;
    for key in [
        "disbatch_claim_rounds_total{result=\"tasks\"}",
        "disbatch_worker_seconds_count{worker=\"look\"}",
        "disbatch_stream_hints_total",
        "process_resident_memory_bytes",
        "process_open_fds",
    ] {
        assert!(found.value(key)? >= 1.0, "{key}: {found:#?}");
    }
    assert!(
        !found.series.keys().any(|key| key.starts_with("disbatch_queue_places")),
        "that is told by a DCI"
    );
    for (path, text) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        assert_eq!(
            get(&format!("{url}{path}"), "*/*").await?,
            (200, "text/plain; charset=utf-8".into(), text.into())
        );
    }

    let found = until(dci.url(), &of_dci(label)).await?;
    assert!(found.value("disbatch_queue_oldest_seconds{queue=\"unserved\",state=\"queued\"}")? > 0.0);
    assert!(
        !found
            .series
            .contains_key(&format!("disbatch_queue_oldest_seconds{{queue=\"{label}\",state=\"queued\"}}"))
    );

    for url in [&url, dci.url()] {
        agree(url).await?;
    }
    world.end().await
}

#[tokio::test]
async fn what_goes_wrong_is_counted_too() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "metrics": { "listen": "127.0.0.1:0" } }))?;
    MIXED.install(&world.plugins())?;
    let queue = world.queue("Mixed", doc! { "name": "q", "threads": 1 }).await?;
    let den = world.den_at_work("n1").await?;
    let url = address_of(&den).await?;
    let task = world.submit(queue, vec![doc! { "do": "stay" }]).await?[0];
    world.until_status(task, 0).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let used = of_queue("q", &[("queue_places_used", "", 1.0), ("queue_tasks", "state=\"running\"", 1.0)]);
    let found = until(dci.url(), &used).await?;
    assert!(found.value("disbatch_queue_oldest_seconds{queue=\"q\",state=\"running\"}")? > 0.0);
    until(&url, &plain(&[("node_places_used", 1.0), ("runners{kind=\"warm\",state=\"busy\"}", 1.0)])).await?;
    let pid = world.task(task).await?.get("pid").and_then(whole_number).context("no pid")?;
    kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL)?;
    world.until_status(task, -6).await?;
    let mut expected = of_queue(
        "q",
        &[
            ("tasks_ended_total", "outcome=\"orphaned\"", 1.0),
            ("attempts_failed_total", "cause=\"lost\"", 1.0),
        ],
    );
    expected.extend(plain(&[
        ("runner_deaths_total{cause=\"signal\"}", 1.0),
        ("tasks_buried_total{action=\"ended\"}", 1.0),
        ("leases_lost_total{action=\"ended\"}", 0.0),
    ]));
    until(&url, &expected).await?;
    world.end().await
}

#[tokio::test]
async fn what_is_refused_is_counted_and_is_not_submitted() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "metrics": { "listen": 0 } }))?;
    let queue = world.queue("Demo", doc! { "name": "q", "threads": 0 }).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let nothing = ObjectId::new().to_hex();
    let behind = json!({ "queue": "q", "params": [{ "a": 1 }], ".after": [nothing] });
    assert_ne!(dci.post("/tasks", &behind).await?.0, 200);
    let several = json!({ "queue": "q", "params": [{ "a": 1 }, { "a": 2 }], ".unique": "k" });
    assert_ne!(dci.post("/tasks", &several).await?.0, 200);
    world.update_queue(queue, doc! { "accepting": false }).await?;
    assert_eq!(dci.post("/tasks", &json!({ "queue": "q", "params": [{ "a": 1 }] })).await?.0, 409);
    let refused = of_queue(
        "q",
        &[
            ("tasks_refused_total", "reason=\"invalid\"", 2.0),
            ("tasks_refused_total", "reason=\"closed\"", 1.0),
            ("tasks_submitted_total", "source=\"api\"", 0.0),
        ],
    );
    until(dci.url(), &refused).await?;

    // It says nothing else that is needed.
    world.database().collection::<bson::Document>("inbox").insert_one(doc! { "queue": "q" }).await?;
    let refused = of_queue(
        "q",
        &[
            ("tasks_refused_total", "reason=\"invalid\"", 1.0),
            ("tasks_submitted_total", "source=\"inbox\"", 0.0),
        ],
    );
    until(&address_of(&den).await?, &refused).await?;
    assert_eq!(world.count(queue, doc! { "status": -5 }).await?, 1);
    world.end().await
}

#[tokio::test]
async fn an_inbox_that_nobody_looks_after_grows_old() -> anyhow::Result<()> {
    let world = World::new().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let found = until(dci.url(), &plain(&[("inbox_documents", 0.0)])).await?;
    assert!(!found.series.contains_key("disbatch_inbox_oldest_seconds"));
    let now = world.store().server_time().await?.timestamp_millis() / 1_000;
    let old = |n: u8| anyhow::Ok(ObjectId::from_parts(u32::try_from(now)? - 600, [7; 5], [0, 0, n]));
    let documents =
        [doc! { "_id": old(1)? }, doc! { "_id": old(2)?, "left": bson::DateTime::from_millis(1) }];
    world.database().collection::<bson::Document>("inbox").insert_many(documents).await?;
    let found = until(dci.url(), &plain(&[("inbox_documents", 2.0)])).await?;
    let oldest = found.value("disbatch_inbox_oldest_seconds")?;
    assert!((600.0..700.0).contains(&oldest), "{oldest}");
    world.end().await
}

#[tokio::test]
async fn a_chore_is_told_by_the_den_that_does_it() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "metrics": { "listen": 0 } }))?;
    let succeeded =
        |worker: &str| format!("disbatch_worker_last_success_timestamp_seconds{{worker=\"{worker}\"}}");
    let first = world.den_at_work("n1").await?;
    let one = address_of(&first).await?;
    eventually("the inbox to be looked after", || async {
        Ok(scrape(&one).await?.series.contains_key(&succeeded("inbox")).then_some(()))
    })
    .await?;
    let second = world.den_at_work("n2").await?;
    let other = address_of(&second).await?;
    // Nobody wants to be told of anything, or has tasks run twice.
    let idle = || async {
        let (one, other) = (scrape(&one).await?, scrape(&other).await?);
        let says = |found: &Exposition, worker| found.series.contains_key(&succeeded(worker));
        Ok(!says(&other, "inbox") && ["notify", "shadows"].into_iter().all(|worker| !says(&one, worker)))
    };
    always("idle chores say nothing", Duration::from_secs(2), idle).await?;
    world.end().await
}

#[tokio::test]
async fn a_den_serves_no_metrics_unless_it_is_told_where() -> anyhow::Result<()> {
    let world = World::new().await?;
    let den = world.den_at_work("n1").await?;
    let listening = |den: &Den| -> anyhow::Result<usize> {
        let sockets = std::fs::read_dir(format!("/proc/{}/fd", den.process()?))?;
        let links = sockets.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        let own: BTreeSet<String> = links
            .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        let tcp =
            ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
        let is_listening = |line: &&str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(3) == Some(&"0A") && words.get(9).is_some_and(|inode| own.contains(*inode))
        };
        Ok(tcp.concat().lines().filter(is_listening).count())
    };
    assert_eq!(listening(&den)?, 0, "{}", den.log()?);
    assert!(!den.log()?.contains("metrics are served"));
    world.configure(json!({ "metrics": { "listen": 0 } }))?;
    let other = world.den_at_work("n2").await?;
    assert!(address_of(&other).await?.starts_with("http://127.0.0.1:"));
    assert_eq!(listening(&other)?, 1);
    world.end().await
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_named() -> anyhow::Result<()> {
    let world = World::new().await?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    for (listen, status, message) in [
        (json!("everywhere"), 3, "metrics.listen: expected a port, or an address with a port".to_owned()),
        (json!(70_000), 3, "got 70000".to_owned()),
        (json!(address), 4, format!("cannot listen on {address} (metrics.listen): Address already in use")),
    ] {
        world.configure(json!({ "metrics": { "listen": listen } }))?;
        let mut command = Command::new(binary("den")?);
        let output = command.arg("--config").arg(world.config()).kill_on_drop(true).output().await?;
        let (code, stderr) = (output.status.code(), String::from_utf8_lossy(&output.stderr));
        assert!(code == Some(status) && stderr.contains(&message), "{listen}: {code:?} {stderr}");
    }
    world.end().await
}

#[tokio::test]
async fn beyond_the_bound_queues_have_one_label_together() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = |number: usize| doc! { "name": format!("q{number}"), "plugin": "Demo", "threads": 2 };
    let queues = world.database().collection::<bson::Document>("queues");
    queues.insert_many((0..5_000).map(queue)).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let folded = 5_000 - u32::try_from(MOST)?;
    let others = f64::from(folded);
    let other = of_queue("other", &[("queue_places", "", 2.0 * others), ("queue_places_used", "", 0.0)]);
    let found = until(dci.url(), &[other, plain(&[("queues_folded", others)])].concat()).await?;
    let rows = |name: &str| found.series.keys().filter(|key| key.starts_with(&format!("{name}{{"))).count();
    assert_eq!((rows("disbatch_queue_places"), rows("disbatch_queue_info")), (MOST + 1, MOST));
    let of_queues = found.series.keys().filter(|key| key.contains("queue=\"")).count();
    assert!(of_queues <= 12 * (MOST + 1), "{of_queues} series of queues");
    world.end().await
}

#[tokio::test]
async fn a_token_of_a_viewer_collects_metrics_and_nobody_without_one() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let hash = disbatch_core::accounts::PasswordHash::of("correct horse battery")?;
    let viewer = Some(disbatch_core::accounts::Role::Viewer);
    store.add_user(&"robin".parse()?, viewer, &[], Some(&hash)).await?;
    store.add_user(&"sam".parse()?, None, &[], Some(&hash)).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let ask = async |name: Option<&str>| -> anyhow::Result<u16> {
        let request = dci.request(Method::GET, "/metrics");
        let request = match name {
            Some(name) => request.basic_auth(name, Some("correct horse battery")),
            None => request,
        };
        Ok(request.send().await?.status().as_u16())
    };
    assert_eq!((ask(None).await?, ask(Some("sam")).await?, ask(Some("eve")).await?), (401, 403, 401));
    let made =
        dci.request(Method::POST, "/account/tokens").basic_auth("robin", Some("correct horse battery"));
    let made: Value =
        made.json(&json!({ "name": "prometheus", "role": "viewer" })).send().await?.json().await?;
    let token = made["token"].as_str().with_context(|| made.to_string())?;
    let response = dci.request(Method::GET, "/metrics").bearer_auth(token).send().await?;
    assert_eq!(response.status(), 200);
    let found = Exposition::parse(&response.text().await?, false)?;
    let failures = [("missing", 1.0), ("forbidden", 1.0), ("wrong", 1.0)];
    let failures =
        failures.map(|(why, times)| (format!("disbatch_auth_failures_total{{reason=\"{why}\"}}"), times));
    assert_eq!(found.lacks(&failures), [""; 0]);
    world.end().await
}

/// Runs Prometheus's own tool. Returns whether it is content, and what it says of what is wrong.
async fn promtool(arguments: &[&str], input: Option<&str>) -> anyhow::Result<(bool, String)> {
    let mut child = Command::new("promtool")
        .args(arguments)
        .current_dir(packaging().join("prometheus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("this test needs promtool, which scripts/prepare browser installs")?;
    let mut stdin = child.stdin.take().context("no input")?;
    stdin.write_all(input.unwrap_or_default().as_bytes()).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    Ok((output.status.success(), String::from_utf8(output.stderr)?))
}

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging")
}

#[tokio::test]
async fn alerts_come_when_they_are_to() -> anyhow::Result<()> {
    for arguments in [["check", "rules", "disbatch.rules.yml"], ["test", "rules", "disbatch.test.yml"]] {
        let (worked, said) = promtool(&arguments, None).await?;
        assert!(worked, "{said}");
    }
    Ok(())
}

#[test]
fn rules_and_dashboard_use_what_is_exported() -> anyhow::Result<()> {
    let declared: BTreeSet<&str> =
        Metrics::DECLARED.iter().chain(OfQueue::DECLARED).map(|declared| declared.name).collect();
    let rules = std::fs::read_to_string(packaging().join("prometheus/disbatch.rules.yml"))?;
    let dashboard = std::fs::read_to_string(packaging().join("grafana/disbatch.json"))?;
    let dashboard: Value = serde_json::from_str(&dashboard)?;
    let mut expressions: Vec<String> = rules.lines().map(str::to_owned).collect();
    for panel in dashboard["panels"].as_array().context("no panels")? {
        let targets = panel["targets"].as_array().into_iter().flatten();
        expressions.extend(targets.filter_map(|target| target["expr"].as_str()).map(str::to_owned));
    }
    let mut used = BTreeSet::new();
    for expression in &expressions {
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| word.starts_with("disbatch_")) {
            let family = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| word.strip_suffix(suffix));
            let name = family.filter(|family| declared.contains(family)).unwrap_or(word);
            assert!(declared.contains(name), "{word} of {expression} is not exported");
            used.insert(name.to_owned());
        }
    }
    assert!(used.len() > 30, "{used:?}");
    Ok(())
}
