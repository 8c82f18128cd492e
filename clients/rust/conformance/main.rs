//! Runs the cases of clients/conformance/cases with both clients. ../run-conformance starts it.

#![expect(clippy::print_stdout, reason = "the results")]

mod calls;
mod pattern;

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use disbatch_client::{Client, Error, Settings, blocking};
use serde_json::{Map, Value, json};

use pattern::{Known, fill, problem};

/// One of the clients, and how it is awaited.
enum Way {
    Async(tokio::runtime::Runtime, Client),
    Blocking(blocking::Client),
}

/// What the client has warned of since the last step.
type Warnings = Arc<Mutex<Vec<String>>>;

impl Way {
    fn new(is_async: bool, settings: Settings, trace: Option<String>) -> Result<Self> {
        if is_async {
            let client = Client::new(settings)?;
            let client = trace.map_or_else(|| client.clone(), |trace| client.with_traceparent(trace));
            return Ok(Self::Async(tokio::runtime::Runtime::new()?, client));
        }
        let client = blocking::Client::new(settings)?;
        Ok(Self::Blocking(trace.map_or_else(|| client.clone(), |trace| client.with_traceparent(trace))))
    }

    fn call(&self, step: &Value, args: &[Value], options: &Map<String, Value>) -> Result<Value, Error> {
        let given = calls::Given { args, options, trace: step["trace"].as_str().map(str::to_owned) };
        let name = step["call"].as_str().unwrap_or_default();
        match self {
            Self::Async(runtime, client) => runtime.block_on(calls::call_async(client.clone(), name, &given)),
            Self::Blocking(client) => calls::call_blocking(client.clone(), name, &given),
        }
    }
}

fn failure(error: &Error) -> Value {
    let mut told = json!({"code": error.code(), "message": error.to_string()});
    if let Some(error) = error.as_api() {
        told["status"] = error.status.into();
        told["message"] = error.message.clone().into();
        told["details"] = error.details.clone().into();
        told["retry_after"] = error.retry_after.map(|after| after.as_secs()).into();
    }
    match error {
        Error::WaitTimeout { task, .. } => told["task"] = task.clone(),
        Error::TaskFailed { task, .. } => told["task"] = json!(task),
        _ => (), // The others are of no task.
    }
    told
}

/// A step that looks at files.
fn local(step: &Value) -> Result<()> {
    let path = |name: &str| step[name].as_str().map(PathBuf::from);
    if let Some(path) = path("write") {
        fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
        let times = step["times"].as_u64().map_or(Ok(1), usize::try_from)?;
        fs::write(path, step["text"].as_str().unwrap_or_default().repeat(times))?;
    }
    if let Some(both) = step["same"].as_array() {
        let contents = both.iter().map(|path| fs::read(path.as_str().unwrap_or_default()));
        let contents = contents.collect::<Result<Vec<_>, _>>()?;
        ensure!(contents.len() == 2 && contents[0] == contents[1], "{both:?} differ");
    }
    if let Some(link) = path("link") {
        symlink(path("to").context("a link leads somewhere")?, link)?;
    }
    if let Some(file) = path("file") {
        let mode = format!("{:o}", fs::metadata(&file)?.permissions().mode() & 0o7777);
        ensure!(step["mode"] == mode, "{} has mode {mode}", file.display());
    }
    if let Some(path) = path("absent") {
        ensure!(!path.exists(), "{} is there", path.display());
    }
    Ok(())
}

fn run_step(way: &Way, step: &Value, known: &mut Known, warnings: &Warnings) -> Result<()> {
    let Some(name) = step["call"].as_str() else { return local(&fill(step, known)) };
    let warned = || std::mem::take(&mut *warnings.lock().unwrap_or_else(PoisonError::into_inner));
    warned();
    let args = fill(&step["args"], known).as_array().cloned().unwrap_or_default();
    let options = fill(&step["options"], known).as_object().cloned().unwrap_or_default();
    let value = match (way.call(step, &args, &options), step.get("error")) {
        (Ok(value), None) => value,
        (Ok(value), Some(_)) => bail!("{name} returns {value} and does not fail"),
        (Err(error), Some(want)) => {
            return problem(want, Some(&failure(&error)), known, &format!("the error of {name}"));
        }
        (Err(error), None) => bail!("{name}: {error}"),
    };
    if let Some(want) = step.get("warning") {
        let warned = json!(warned());
        problem(&json!([want]), Some(&warned), known, &format!("what {name} warns of"))?;
    }
    if let Some(key) = step["save"].as_str() {
        known.insert(key.to_owned(), value.clone());
    }
    step.get("expect").map_or(Ok(()), |want| problem(want, Some(&value), known, name))
}

fn ask(url: &str, body: Option<&Value>) -> Result<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let http = reqwest::Client::new();
        let request = match body {
            Some(body) => http.post(url).json(body),
            None => http.get(url),
        };
        Ok(request.timeout(Duration::from_secs(10)).send().await?.error_for_status()?.json().await?)
    })
}

fn settings(case: &Value, known: &Known, warnings: &Warnings) -> (Settings, Option<String>) {
    let given = fill(&case["client"], known);
    let is_scripted = case.get("script").is_some();
    let text = |name: &str| given[name].as_str().map(str::to_owned);
    let seconds = |name: &str, default| given[name].as_f64().map_or(default, Duration::from_secs_f64);
    let default = Settings::default();
    let warnings = Arc::clone(warnings);
    let told = move |warning: &str| {
        warnings.lock().unwrap_or_else(PoisonError::into_inner).push(warning.to_owned());
    };
    let base = known[if is_scripted { "faults" } else { "dci" }].as_str().map(str::to_owned);
    let settings = Settings {
        url: text("url").or(base),
        token: text("token"),
        username: text("username"),
        password: text("password"),
        ca_file: text("ca_file").map(PathBuf::from),
        timeout: seconds("timeout", default.timeout),
        retries: given["retries"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(default.retries),
        backoff: if is_scripted { Duration::from_millis(20) } else { default.backoff },
        retry_after_max: seconds("retry_after_max", default.retry_after_max),
        on_warning: Some(Arc::new(told)),
        ..default
    };
    (settings, text("traceparent"))
}

fn run_case(is_async: bool, case: &Value, known: &mut Known) -> Result<()> {
    let faults = known["faults"].as_str().unwrap_or_default().to_owned();
    let warnings = Warnings::default();
    let (settings, trace) = settings(case, known, &warnings);
    // Before anything is asked, as it chooses the provider of TLS.
    let way = Way::new(is_async, settings, trace)?;
    if let Some(script) = case.get("script") {
        ask(&format!("{faults}/_script"), Some(script))?;
    }
    for step in case["steps"].as_array().context("a case has steps")? {
        run_step(&way, step, known, &warnings)?;
    }
    let Some(wanted) = case["requests"].as_array() else { return Ok(()) };
    let asked = ask(&format!("{faults}/_requests"), None)?;
    let requests = asked.as_array().context("requests are a list")?;
    ensure!(requests.len() == wanted.len(), "{} requests, and not {}: {asked}", requests.len(), wanted.len());
    for (n, (want, have)) in wanted.iter().zip(requests).enumerate() {
        let mut want = want.clone();
        if let Some(after) = want.as_object_mut().and_then(|want| want.remove("after")) {
            let at = |n: usize| requests[n]["at"].as_f64().unwrap_or_default();
            ensure!(at(n) - at(n - 1) >= after.as_f64().unwrap_or_default(), "request {n} came too early");
        }
        problem(&want, Some(have), known, &format!("request {n}"))?;
    }
    Ok(())
}

/// Those of this stage. The library has no plugin's side.
fn cases(folder: &Path, stage: &str) -> Result<Vec<Value>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let cases: Vec<Value> =
            serde_json::from_slice(&fs::read(&path)?).with_context(|| path.display().to_string())?;
        all.extend(cases);
    }
    all.retain(|case| case["stage"].as_str().unwrap_or("open") == stage && case.get("for").is_none());
    Ok(all)
}

fn main() -> Result<ExitCode> {
    let of =
        |name: &str| env::var(format!("CONFORMANCE_{name}")).with_context(|| format!("CONFORMANCE_{name}"));
    let arguments: Vec<String> = env::args().skip(1).collect();
    let is_verbose = arguments.iter().any(|argument| argument == "-v");
    let only = arguments.iter().skip_while(|argument| *argument != "-k").nth(1).map_or("", String::as_str);
    let cases = cases(Path::new(&of("CASES")?), &of("STAGE")?)?;
    let (mut passed, mut failed) = (0, 0);
    for (name, is_async) in [("async", true), ("blocking", false)] {
        let folder = tempfile::tempdir()?;
        let mut known = Known::new();
        for key in ["dci", "faults", "tls", "ca", "token"] {
            known.insert(key.to_owned(), of(&key.to_uppercase())?.into());
        }
        known.insert("run".to_owned(), format!("rust-{name}").into());
        known.insert("tmp".to_owned(), folder.path().to_str().context("a folder's name is UTF-8")?.into());
        for case in cases.iter().filter(|case| case["name"].as_str().is_some_and(|name| name.contains(only)))
        {
            let started = Instant::now();
            let outcome = run_case(is_async, case, &mut known);
            let (word, why) = match &outcome {
                Ok(()) => ("ok", String::new()),
                Err(error) => ("FAILED", format!("{error:#}")),
            };
            *(if outcome.is_ok() { &mut passed } else { &mut failed }) += 1;
            if outcome.is_err() || is_verbose {
                let (case, took) =
                    (case["name"].as_str().unwrap_or_default(), started.elapsed().as_secs_f64());
                println!("{word} {name}: {case} ({took:.1} s) {why}");
            }
        }
    }
    println!("rust: {passed} passed, {failed} failed");
    Ok(if failed > 0 || (passed == 0 && only.is_empty()) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
