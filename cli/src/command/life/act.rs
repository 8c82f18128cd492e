//! `disbatch cancel ID ..`, `disbatch retry ID ..` and `disbatch archive ID ..`

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::api::{ApiError, Client, segment};
use crate::args::{BulkAction, RerunOptions, Tasks};
use crate::command::arrays;
use crate::command::life::{advise, carry_out, with_reason};
use crate::output::{plain, print, say};

/// What is done with a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It is cancelled.
    Cancel,
    /// It is queued once more.
    Retry,
}

impl Act {
    /// Asks for it.
    pub async fn send(self, client: &Client, id: &str, reason: Option<&str>) -> Result<Value, ApiError> {
        let action = self.of_array().name();
        client.post(&format!("/tasks/{id}/{action}"), &Value::Object(with_reason(reason))).await
    }

    /// The same with all tasks of an array.
    const fn of_array(self) -> BulkAction {
        match self {
            Self::Cancel => BulkAction::Cancel,
            Self::Retry => BulkAction::Retry,
        }
    }

    fn done(self, answer: &Value) -> String {
        let is_blocked = answer.get("status").and_then(Value::as_i64) == Some(-4);
        let new = answer.get("retry_of").map(|_| plain(answer.get("id")));
        match (self, answer.get("outcome").and_then(Value::as_str), new) {
            (Self::Cancel, Some("requested"), _) => "runs, and was asked to end".to_owned(),
            (Self::Cancel, Some("terminated"), _) => {
                "ended; its web service is told when it calls back".to_owned()
            }
            (Self::Cancel, _, _) => "cancelled".to_owned(),
            (Self::Retry, _, Some(new)) => format!("is archived: submitted again as {new}"),
            (Self::Retry, _, None) if is_blocked => {
                "waits for its locks, or for other tasks, again".to_owned()
            }
            (Self::Retry, _, None) => "queued again".to_owned(),
        }
    }
}

/// Runs a task again, or elements of an array, with others that come after.
pub async fn rerun(client: &Client, options: &RerunOptions) -> anyhow::Result<ExitCode> {
    let mut body = with_reason(options.reason.as_deref());
    body.insert("downstream".to_owned(), json!(options.downstream));
    body.extend(options.params.clone().map(|params| ("params".to_owned(), params)));
    let id = segment(&options.id);
    if options.elements.is_none() {
        let answer = client.post(&format!("/tasks/{id}/rerun"), &Value::Object(body.clone())).await;
        let error = match answer {
            Ok(answer) => return told(&options.id, &answer),
            Err(error) => error,
        };
        let Some(array) = arrays::in_place_of_task(client, &options.id, &error).await.map_err(advise)? else {
            return Err(advise(error));
        };
        say(&format!("disbatch: {} is {}", options.id, arrays::what(&array)));
    }
    body.extend(options.elements.as_ref().map(|which| ("elements".to_owned(), json!(which))));
    let request = (&*format!("/arrays/{id}/rerun"), Value::Object(body));
    carry_out(client, request, BulkAction::Retry, false).await
}

/// What came of a task's rerun.
fn told(id: &str, answer: &Value) -> anyhow::Result<ExitCode> {
    let done = match answer.get("attempt") {
        Some(_) => Act::Retry.done(answer),
        None => "goes on as it is".to_owned(),
    };
    print(&format!("{id} {done}\n"))?;
    let after = answer.get("downstream").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for id in after {
        print(&format!("{} waits for it again\n", plain(Some(id))))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Does it with one task or array after the other. One that refuses does not keep the others from it.
pub async fn run(client: &Client, act: Act, tasks: &Tasks) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for id in &tasks.ids {
        let error = match act.send(client, id, tasks.reason.as_deref()).await {
            Ok(answer) => {
                print(&format!("{id} {}\n", act.done(&answer)))?;
                continue;
            }
            Err(error) => error,
        };
        if let Some(array) = arrays::in_place_of_task(client, id, &error).await.map_err(advise)? {
            say(&format!("disbatch: {id} is {}", arrays::what(&array)));
            let path = format!("/arrays/{id}/{}", act.of_array().name());
            let body = with_reason(tasks.reason.as_deref());
            let of_array = carry_out(client, (&path, Value::Object(body)), act.of_array(), false).await?;
            code = if of_array == ExitCode::SUCCESS { code } else { of_array };
        } else {
            code = refused(id, error)?;
        }
    }
    Ok(code)
}

/// Moves one task after the other to the archive.
pub async fn archive(client: &Client, ids: &[String]) -> anyhow::Result<ExitCode> {
    each(ids, async |id| {
        let answer = client.post(&format!("/tasks/{id}/archive"), &serde_json::json!({})).await?;
        Ok(plain(answer.get("outcome")))
    })
    .await
}

/// Does something with one task after the other, and says what came of it.
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
    if error.status().is_none_or(|status| !matches!(status.as_u16(), 404 | 409)) {
        return Err(advise(error));
    }
    say(&format!("{id}: {}", advise(error)));
    Ok(ExitCode::from(crate::status::FAILED))
}
