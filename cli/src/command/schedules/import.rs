//! `disbatch schedule import`: jobs of the lex jobs-scheduler, which become schedules.
//!
//! There, a job names a worker, which is a plugin here, and has a tenant. Here, tasks have a queue, which has both.

use std::collections::BTreeSet;

use anyhow::{Context, bail, ensure};
use disbatch_wire::queues::Queue;
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::path;
use crate::api::{ApiError, Client, given};
use crate::args::ImportedJobs;
use crate::input;
use crate::output::{items, plain, print, shown_name};

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Job {
    name: Option<String>,
    description: Option<String>,
    tenant: Option<String>,
    worker: Option<String>,
    cron: Option<String>,
    /// Anything: there, workers give it its meaning.
    parameters: Option<Value>,
    url: Option<String>,
    http_headers: Option<Map<String, Value>>,
    /// In seconds.
    timeout: Option<u64>,
}

#[derive(Debug, PartialEq)]
struct New {
    name: String,
    body: Value,
    /// Its parameters were something else than an object.
    had_value: bool,
    /// It had parameters that are secret.
    had_secrets: bool,
    /// Its runs have stored something.
    had_storage: bool,
}

#[derive(Debug, Default)]
struct ImportOutcome<'a> {
    /// With the ids of their schedules.
    made: Vec<(&'a New, String)>,
    left: Vec<&'a New>,
    /// Of those that are left, and of those that are made and could not be resumed.
    paused: Vec<&'a New>,
}

/// Makes a schedule of each job. If one of them makes no sense, nothing is made. All are paused until the last of them is there; if
/// one is refused, the others are taken back before they have made a task. Those without their secure parameters stay paused.
pub async fn run(client: &Client, options: &ImportedJobs) -> anyhow::Result<()> {
    let jobs = input::documents(input::parse(&input::read(&options.file)?)?)?;
    let queues = client.get("/queues?.details=true", None).await?;
    let new = schedules(&jobs, &items(&queues), options.queue.as_deref())?;
    let mut outcome = ImportOutcome::default();
    for schedule in &new {
        match client.post("/schedules", &schedule.body).await {
            Ok(made) => outcome.made.push((schedule, plain(made.get("id")))),
            Err(ApiError::Refused { status: StatusCode::CONFLICT, .. }) => outcome.left.push(schedule),
            Err(error) => {
                take_back(client, &outcome.made).await?;
                let job = shown_name(&schedule.name);
                return Err(error).with_context(|| format!("nothing is made, because of job {job}"));
            }
        }
    }
    let mut failure = None;
    for (schedule, id) in outcome.made.iter().filter(|(schedule, _)| !schedule.had_secrets) {
        if let Err(error) = client.post(&format!("{}/resume", path(id)?), &json!({})).await {
            outcome.paused.push(*schedule);
            failure = Some(error);
        }
    }
    for schedule in &outcome.left {
        // An import that broke off may have left it so.
        let there = client.get(&path(&schedule.name)?, None).await;
        if there.is_ok_and(|there| there.get("paused") == Some(&Value::Bool(true))) {
            outcome.paused.push(*schedule);
        }
    }
    print(&outcome.text())?;
    failure.map_or(Ok(()), |error| Err(error).context("not all of them are resumed"))
}

async fn take_back(client: &Client, made: &[(&New, String)]) -> anyhow::Result<()> {
    let mut rest = made;
    while let [(_, id), others @ ..] = rest {
        client.delete(&path(id)?).await.with_context(|| {
            let names = names(rest.iter().map(|(schedule, _)| *schedule));
            format!("these were made, are paused, and are to be deleted: {names}")
        })?;
        rest = others;
    }
    Ok(())
}

fn names<'a>(schedules: impl Iterator<Item = &'a New>) -> String {
    schedules.map(|schedule| shown_name(&schedule.name)).collect::<Vec<_>>().join(", ")
}

fn schedules(jobs: &[Value], queues: &[Queue], queue: Option<&str>) -> anyhow::Result<Vec<New>> {
    ensure!(!jobs.is_empty(), "there are no jobs in it");
    let (mut new, mut problems, mut taken) = (Vec::new(), Vec::new(), BTreeSet::new());
    for document in jobs {
        match schedule(document, queues, queue, &taken) {
            Ok(schedule) => {
                taken.insert(schedule.name.clone());
                new.push(schedule);
            }
            Err(error) => {
                let name = document.pointer("/job/name").or_else(|| document.get("_id"));
                problems.push(format!("\n  {}: {error:#}", shown_name(&plain(name))));
            }
        }
    }
    if !problems.is_empty() {
        let wrong = problems.len();
        bail!("{wrong} of {} jobs are wrong, and nothing is made{}", jobs.len(), problems.concat());
    }
    Ok(new)
}

/// The schedule of a job. Jobs of several tenants may have one name, and all but the first of them get one that is not `taken`.
fn schedule(
    document: &Value,
    queues: &[Queue],
    queue: Option<&str>,
    taken: &BTreeSet<String>,
) -> anyhow::Result<New> {
    let given_job = document.get("job").context("it has no job")?;
    let job = Job::deserialize(given_job).context("job")?;
    let id = document.get("_id").and_then(Value::as_str);
    let name = job.name.as_deref().or(id).filter(|name| !name.is_empty()).context("job.name is missing")?;
    let cron = job.cron.as_deref().filter(|cron| !cron.is_empty());
    let tenant = job.tenant.as_deref().filter(|tenant| !tenant.is_empty());
    let names =
        [Some(name.to_owned()), tenant.map(|tenant| format!("{name} ({tenant})")), id.map(str::to_owned)];
    let name = names.into_iter().flatten().find(|name| !taken.contains(name));
    let name = name.context("another one of them has its name")?;
    let queue = match queue {
        Some(queue) => queue.to_owned(),
        None => {
            let worker = job.worker.as_deref().context("job.worker is missing")?;
            queue_of(worker, tenant, queues)?
        }
    };
    let had_value = job.parameters.as_ref().is_some_and(|value| !value.is_object() && !value.is_null());
    let mut params = match job.parameters.clone() {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params,
        Some(other) => Map::from_iter([("parameters".to_owned(), other)]),
    };
    params.extend(given([
        ("url", job.url.clone().map(Value::from)),
        ("httpHeaders", job.http_headers.clone().map(Value::from)),
    ]));
    let had_secrets =
        keys(given_job).any(|key| key.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("secure")));
    let had_storage =
        keys(given_job).chain(keys(document)).any(|key| key.to_ascii_lowercase().contains("storage"));
    let body = given([
        ("description", job.description.clone().map(Value::from)),
        ("name", Some(name.as_str().into())),
        ("queue", Some(queue.into())),
        ("cron", cron.map(Value::from)),
        // A queue of another tenant is refused, and in one of nobody its tasks are for this one.
        ("tenant", tenant.map(Value::from)),
        ("paused", Some(true.into())),
        ("params", Some(params.into())),
        ("options", job.timeout.map(|timeout| json!({ "timeout": timeout }))),
    ]);
    Ok(New { name, body: body.into(), had_value, had_secrets, had_storage })
}

fn keys(object: &Value) -> impl Iterator<Item = &String> {
    object.as_object().into_iter().flat_map(Map::keys)
}

/// The queue of a plugin: that of the tenant, or else one of no tenant.
fn queue_of(plugin: &str, tenant: Option<&str>, queues: &[Queue]) -> anyhow::Result<String> {
    let of = |tenant: Option<&str>| {
        let is_one = |queue: &&Queue| {
            queue.plugin == plugin && queue.details.get("tenant").and_then(Value::as_str) == tenant
        };
        queues.iter().filter(is_one).collect::<Vec<_>>()
    };
    let own = tenant.map(|tenant| of(Some(tenant))).filter(|own| !own.is_empty());
    match own.unwrap_or_else(|| of(None)).as_slice() {
        [one] => Ok(one.id.clone()),
        [] => bail!("no queue has the plugin {plugin}: make one, or give --queue"),
        several => bail!("{} queues have the plugin {plugin}: give --queue", several.len()),
    }
}

impl ImportOutcome<'_> {
    fn text(&self) -> String {
        let line = |words: &str, schedules: &[&New]| {
            let names = names(schedules.iter().copied());
            if names.is_empty() { String::new() } else { format!("{words}: {names}\n") }
        };
        let made = |words: &str, is_so: fn(&New) -> bool| {
            let made = self.made.iter().map(|(schedule, _)| *schedule).filter(|schedule| is_so(schedule));
            line(words, &made.collect::<Vec<_>>())
        };
        [
            made("Created", |_| true),
            line("Left alone, as another schedule has the name", &self.left),
            line("Still paused (`schedule resume` has them make tasks)", &self.paused),
            made("Without cron, so that only `schedule run` starts them", |schedule| {
                schedule.body.get("cron").is_none()
            }),
            made(
                "With parameters that were no object, which are in the parameter `parameters` now",
                |schedule| schedule.had_value,
            ),
            made("Without what their runs have stored, so that the next one finds nothing", |schedule| {
                schedule.had_storage
            }),
            made(
                "Paused until they have their secure parameters (`schedule update --secure-params-file`)",
                |schedule| schedule.had_secrets,
            ),
        ]
        .concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues() -> Vec<Queue> {
        items(&json!([
            { "id": "q1", "plugin": "csv", "tenant": null },
            { "id": "q2", "plugin": "csv", "tenant": "ibm" },
            { "id": "q3", "plugin": "twice", "tenant": null },
            { "id": "q4", "plugin": "twice", "tenant": null },
            { "id": "q5", "plugin": "other", "tenant": "acme" },
        ]))
    }

    fn of(job: Value) -> Result<New, String> {
        let document = json!({ "_id": "c33d", "_rev": "2-ea", "job": job });
        schedule(&document, &queues(), None, &BTreeSet::new()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_job_becomes_a_schedule_of_its_workers_queue() {
        let job = json!({ "tenant": "ibm", "name": "CSV upload", "worker": "csv", "cron": "0 10 * * *" });
        let made = of(job.clone()).unwrap();
        let body = json!({
            "name": "CSV upload", "queue": "q2", "cron": "0 10 * * *", "params": {}, "paused": true, "tenant": "ibm",
        });
        let new = New {
            name: "CSV upload".to_owned(),
            body,
            had_value: false,
            had_secrets: false,
            had_storage: false,
        };
        assert_eq!(made, new);
        let more = json!({
            "worker": "csv", "cron": "@daily", "description": "All of them", "parameters": { "rows": 5 }, "timeout": 90,
            "url": "https://x/", "httpHeaders": { "X-A": "b" }, "secureParameters": "BASE64", "tenant": "unknown",
        });
        let made = of(more).unwrap();
        assert_eq!((made.name.as_str(), made.had_secrets), ("c33d", true));
        let expected = json!({
            "name": "c33d", "queue": "q1", "cron": "@daily", "description": "All of them", "options": { "timeout": 90 },
            "paused": true, "params": { "rows": 5, "url": "https://x/", "httpHeaders": { "X-A": "b" } },
            "tenant": "unknown",
        });
        assert_eq!(made.body, expected, "the tenant is kept where no queue is theirs");
        let text = of(json!({ "worker": "csv", "parameters": "a,b", "jobStorage": { "n": 1 } })).unwrap();
        assert_eq!(text.body["params"], json!({ "parameters": "a,b" }));
        assert!(text.had_value && text.had_storage);
        let elsewhere = json!({ "job": job });
        let elsewhere = schedule(&elsewhere, &queues(), Some("mine"), &BTreeSet::new()).unwrap();
        assert_eq!(elsewhere.body["queue"], "mine");
        let manual = of(json!({ "name": "by hand", "worker": "csv" })).unwrap();
        let expected = json!({ "name": "by hand", "queue": "q1", "params": {}, "paused": true });
        assert_eq!(manual.body, expected);
    }

    #[test]
    fn jobs_of_several_tenants_may_have_one_name() {
        let job = |id: &str, tenant: Option<&str>| json!({ "_id": id, "job": { "name": "nightly", "worker": "csv", "tenant": tenant } });
        let jobs = [job("1", Some("ibm")), job("2", Some("acme")), job("3", None), job("4", Some("acme"))];
        let new = schedules(&jobs, &queues(), None).unwrap();
        let names: Vec<&str> = new.iter().map(|schedule| schedule.name.as_str()).collect();
        assert_eq!(names, ["nightly", "nightly (acme)", "3", "4"]);
        assert!(new.iter().all(|schedule| schedule.body["name"] == schedule.name.as_str()), "{new:?}");
        let error = schedules(&[job("1", None), job("nightly", None)], &queues(), None).unwrap_err();
        assert!(error.to_string().contains("another one of them has its name"), "{error}");
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        for (job, error) in [
            (json!({ "cron": "@daily" }), "job.worker is missing"),
            (json!({ "worker": "csv", "cron": 5 }), "job: invalid type: integer `5`, expected a string"),
            (
                json!({ "worker": "none", "cron": "@daily" }),
                "no queue has the plugin none: make one, or give --queue",
            ),
            (
                json!({ "worker": "other", "cron": "@daily" }),
                "no queue has the plugin other: make one, or give --queue",
            ),
            (json!({ "worker": "twice", "cron": "@daily" }), "2 queues have the plugin twice: give --queue"),
        ] {
            assert_eq!(of(job), Err(error.to_owned()));
        }
        let good = json!({ "_id": "a", "job": { "worker": "csv", "cron": "@daily" } });
        let jobs = [good.clone(), good, json!({ "_id": "b" })];
        let error = schedules(&jobs, &queues(), None).unwrap_err().to_string();
        let expected = "2 of 3 jobs are wrong, and nothing is made\n  a: another one of them has its name\n  b: it has no job";
        assert_eq!(error, expected);
        assert!(schedules(&[], &queues(), None).is_err());
    }

    #[test]
    fn what_became_of_jobs_is_told() {
        let new = |name: &str, body, is_odd| New {
            name: name.to_owned(),
            body,
            had_value: is_odd,
            had_secrets: is_odd,
            had_storage: is_odd,
        };
        let (open, secret) = (new("a", json!({ "cron": "@daily" }), false), new("b", Value::Null, true));
        let made = vec![(&open, "1".to_owned()), (&secret, "2".to_owned())];
        let text = ImportOutcome { made, ..ImportOutcome::default() }.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() == 5 && lines[0] == "Created: a, b", "{text}");
        assert!(
            lines[1].starts_with("Without cron, ") && lines[1..].iter().all(|line| line.ends_with(": b"))
        );
        let text = ImportOutcome { left: vec![&secret], ..ImportOutcome::default() }.text();
        assert_eq!(text, "Left alone, as another schedule has the name: b\n");
    }
}
