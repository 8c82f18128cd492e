//! `disbatch cancel ID ..` and `disbatch retry ID ..`

use std::process::ExitCode;

use serde_json::Value;

use crate::api::{ApiError, Client};
use crate::args::Tasks;
use crate::command::life::{advise, with_reason};
use crate::output::{print, say};

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
    ///
    /// # Errors
    /// The DCI refuses it, or cannot be reached.
    pub async fn send(self, client: &Client, id: &str, reason: Option<&str>) -> Result<Value, ApiError> {
        let action = match self {
            Self::Cancel => "cancel",
            Self::Retry => "retry",
        };
        client.post(&format!("/tasks/{id}/{action}"), &Value::Object(with_reason(reason))).await
    }

    fn done(self, answer: &Value) -> &'static str {
        let is_blocked = answer.get("status").and_then(Value::as_i64) == Some(-4);
        match (self, answer.get("outcome").and_then(Value::as_str)) {
            (Self::Cancel, Some("requested")) => "runs, and was asked to end",
            (Self::Cancel, Some("terminated")) => "ended; its web service is told when it calls back",
            (Self::Cancel, _) => "cancelled",
            (Self::Retry, _) if is_blocked => "waits for its locks, or for other tasks, again",
            (Self::Retry, _) => "queued again",
        }
    }
}

/// Does it with one task after the other. One that refuses does not keep the others from it.
///
/// # Errors
/// The DCI cannot be reached.
pub async fn run(client: &Client, act: Act, tasks: &Tasks) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for id in &tasks.ids {
        match act.send(client, id, tasks.reason.as_deref()).await {
            Ok(answer) => print(&format!("{id} {}\n", act.done(&answer)))?,
            Err(error) if error.status().is_some_and(|status| matches!(status.as_u16(), 404 | 409)) => {
                say(&format!("{id}: {}", advise(error)));
                code = ExitCode::from(crate::FAILED);
            }
            Err(error) => return Err(advise(error)),
        }
    }
    Ok(code)
}
