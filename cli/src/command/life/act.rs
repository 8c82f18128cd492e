//! `disbatch cancel ID ..`, `disbatch retry ID ..`, `disbatch archive ID ..` and `disbatch answer ID`

use std::process::ExitCode;

use anyhow::{Context, bail};
use disbatch_wire::task_actions::{CancelResult, RerunResult, RetryResult};
use serde_json::{Map, Value, json};

use crate::api::{ApiError, Client, fields, read, segment};
use crate::args::{AnswerOptions, BulkAction, RerunOptions, Tasks};
use crate::command::arrays;
use crate::command::life::show::who;
use crate::command::life::{carry_out, details, with_reason};
use crate::output::{facts, plain, print, say, visible};

pub async fn send(
    client: &Client,
    action: BulkAction,
    id: &str,
    reason: Option<&str>,
) -> Result<Value, ApiError> {
    client.post(&format!("/tasks/{id}/{}", action.as_str()), &with_reason(reason)).await
}

pub fn cancelled(answer: Value) -> serde_json::Result<String> {
    let done = match &*read::<CancelResult>(answer)?.outcome {
        "requested" => "runs, and was asked to end",
        "terminated" => "ended; its web service is told when it calls back",
        _ => "cancelled",
    };
    Ok(done.to_owned())
}

pub fn retried(answer: Value) -> serde_json::Result<String> {
    Ok(match read::<RetryResult>(answer)? {
        RetryResult { id, retry_of: Some(_), .. } => format!("is archived: submitted again as {id}"),
        RetryResult { status, .. } => again(status).to_owned(),
    })
}

fn again(status: Option<i64>) -> &'static str {
    if status == Some(-4) { "waits for its locks, or for other tasks, again" } else { "queued again" }
}

pub async fn rerun(client: &Client, options: &RerunOptions) -> anyhow::Result<ExitCode> {
    let body = fields(options)?;
    let id = segment(&options.id);
    if options.elements.is_none() {
        let answer = client.post(&format!("/tasks/{id}/rerun"), &body).await;
        let error = match answer {
            Ok(answer) => return told(&options.id, read(answer)?),
            Err(error) => error,
        };
        let Some(array) = arrays::in_place_of_task(client, &options.id, &error).await? else {
            return Err(error.into());
        };
        say(&format!("disbatch: {} is {}", options.id, arrays::what(&array)));
    }
    carry_out(client, (&format!("/arrays/{id}/rerun"), &body), BulkAction::Retry, false).await
}

fn told(id: &str, rerun: RerunResult) -> anyhow::Result<ExitCode> {
    let done = rerun.attempt.map_or("goes on as it is", |_| again(Some(rerun.status)));
    print(&format!("{id} {done}\n"))?;
    for id in &rerun.downstream {
        print(&format!("{id} waits for it again\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Does it with one task or array after the other. One that refuses does not keep the others from it.
pub async fn run(
    client: &Client,
    action: BulkAction,
    tasks: &Tasks,
    done: fn(Value) -> serde_json::Result<String>,
) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for id in &tasks.ids {
        let error = match send(client, action, id, tasks.reason.as_deref()).await {
            Ok(answer) => {
                print(&format!("{id} {}\n", done(answer)?))?;
                continue;
            }
            Err(error) => error,
        };
        if let Some(array) = arrays::in_place_of_task(client, id, &error).await? {
            say(&format!("disbatch: {id} is {}", arrays::what(&array)));
            let path = format!("/arrays/{id}/{}", action.as_str());
            let body = with_reason(tasks.reason.as_deref());
            let of_array = match carry_out(client, (&path, &body), action, false).await {
                Ok(of_array) => of_array,
                Err(error) => refused(id, error.downcast()?)?,
            };
            code = if of_array == ExitCode::SUCCESS { code } else { of_array };
        } else {
            code = refused(id, error)?;
        }
    }
    Ok(code)
}

pub async fn archive(client: &Client, ids: &[String]) -> anyhow::Result<ExitCode> {
    each(ids, async |id| {
        let answer = client.post(&format!("/tasks/{id}/archive"), &json!({})).await?;
        Ok(plain(answer.get("outcome")))
    })
    .await
}

pub async fn each(
    ids: &[String],
    act: impl AsyncFn(&str) -> Result<String, ApiError>,
) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for id in ids {
        match act(id).await {
            Ok(outcome) => print(&format!("{id} {outcome}\n"))?,
            Err(error) => code = refused(id, error)?,
        }
    }
    Ok(code)
}

/// Says why it was not done with a task. Others may fare better, unless it has nothing to do with the task.
fn refused(id: &str, error: ApiError) -> anyhow::Result<ExitCode> {
    let is_of_task = error.status().is_some_and(|status| matches!(status.as_u16(), 403 | 404 | 409));
    if !is_of_task && !error.is_about_tasks() {
        return Err(error.into());
    }
    say(&format!("{id}: {}", error.with_advice()));
    Ok(ExitCode::from(crate::status::FAILED))
}

pub async fn answer(client: &Client, options: &AnswerOptions) -> anyhow::Result<()> {
    let id = &options.id;
    if options.link {
        let link = client.post(&format!("/tasks/{id}/answer/link"), &json!({})).await?;
        let (path, until) = (plain(link.get("path")), plain(link.get("until")));
        return print(&format!(
            "{}\nIt holds until {until}, or until it is answered.\n",
            client.address(&path)
        ));
    }
    match value(options)? {
        Some(value) => {
            let body = json!({ "value": value });
            client.post(&format!("/tasks/{id}/answer"), &body).await?;
            print(&format!("{id} answered\n"))
        }
        None => {
            let task = details(client, id).await?;
            print(&asked(&task)?)
        }
    }
}

/// What is given; `None`: nothing.
fn value(options: &AnswerOptions) -> anyhow::Result<Option<Value>> {
    if let Some(json) = &options.json {
        let value: Value = serde_json::from_str(json).context("--json is not JSON")?;
        return if value.is_object() {
            Ok(Some(value))
        } else {
            bail!("--json: expected an object, got {value}")
        };
    }
    let mut fields = Map::new();
    for word in &options.set {
        let pair = word.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, text) = pair.with_context(|| format!("--set {word}: write name=value"))?;
        fields.insert(name.to_owned(), serde_json::from_str(text).unwrap_or_else(|_| text.into()));
    }
    Ok(Some(Value::Object(fields)).filter(|_| !options.set.is_empty()))
}

fn asked(task: &Value) -> anyhow::Result<String> {
    let Some(awaiting) = task.get("awaiting").filter(|awaiting| awaiting.is_object()) else {
        bail!("the task waits for no answer");
    };
    let field = |name: &str| plain(awaiting.get(name));
    let then = awaiting.get("deadline").map(|_| field("on_deadline")).unwrap_or_default();
    let lines = [
        ("Since", field("asked")),
        ("Until", field("deadline")),
        ("Then", then),
        ("Who", who(awaiting)),
        ("Form", awaiting.get("form").map(Value::to_string).unwrap_or_default()),
    ];
    Ok(format!("{}\n{}", visible(&field("title")), facts(lines)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[&str], json: Option<&str>) -> anyhow::Result<Option<Value>> {
        let set = set.iter().map(|word| (*word).to_owned()).collect();
        value(&AnswerOptions { id: String::new(), set, json: json.map(str::to_owned), link: false })
    }

    #[test]
    fn an_answer_is_set_field_by_field_or_as_json() {
        let expected = json!({ "go": true, "n": 3, "comment": "as = it is" });
        assert_eq!(of(&["go=true", "n=3", "comment=as = it is"], None).unwrap(), Some(expected));
        assert_eq!(of(&[], Some("{}")).unwrap(), Some(json!({})));
        assert_eq!(of(&[], None).unwrap(), None);
        for (set, json) in [(&["go"][..], None), (&["=1"], None), (&[], Some("[1]")), (&[], Some("{"))] {
            assert!(of(set, json).is_err(), "{set:?} {json:?}");
        }
    }

    #[test]
    fn what_is_asked_is_told() {
        let task = json!({ "awaiting": { "title": "Go on?", "who": ["ann"], "form": { "type": "object" }, "asked": "now" } });
        let text = asked(&task).unwrap();
        assert_eq!(text, "Go on?\nSince       now\nWho         ann\nForm        {\"type\":\"object\"}\n");
        assert!(asked(&json!({})).unwrap_err().to_string().contains("waits for no answer"));
    }
}
