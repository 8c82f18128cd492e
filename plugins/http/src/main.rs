//! `disbatch-http`: gives the tasks of plugins with the engine `http` to web services.
//!
//! A runner starts it as it starts any plugin. It asks the service to begin with the task. Once the service has said that it
//! has the task (201), the runner is told to let go of it (`{"detach": true}`), and this program ends: the service calls back.
//! Whatever else comes of it is a failure of the task.

mod ask;
mod request;

use std::io;
use std::process::ExitCode;

use disbatch_adapter::{Control, note};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut control = Control::from_environment();
    match Box::pin(run()).await {
        Ok(()) => {
            if control.send(&json!({ "detach": true })) {
                return ExitCode::SUCCESS;
            }
            // The service works on it, but nobody can be told to wait for that.
            note(&"the web service has taken the task, and no runner is there to be told");
            ExitCode::FAILURE
        }
        Err(failure) => {
            if let Some(status) = failure.status {
                control.send(&json!({ "facts": { "http_status": status } }));
            }
            note(&failure.why);
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), ask::Failure> {
    let line = io::read_to_string(io::stdin())
        .map_err(|error| ask::Failure::of(format!("cannot read the task: {error}")))?;
    let told = request::RequestInput::parse(&line).map_err(ask::Failure::of)?;
    let request = request::Request::of(&told).map_err(ask::Failure::of)?;
    ask::ask(&request, told.worker.settings.connect_retries).await
}
