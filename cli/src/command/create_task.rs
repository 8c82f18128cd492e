//! `disbatch create-task QUEUE PARAM VALUE ..`

use serde_json::{Map, Value};

use crate::api::Client;
use crate::args::TaskOptions;
use crate::command::{create_tasks, pairs, required};

/// Creates one task, whose parameters all are text.
///
/// # Errors
/// No queue is given, the words are no pairs, the file of secure parameters has none, the DCI refuses the task, or it
/// cannot be reached.
pub async fn run(
    client: &Client,
    queue: Option<String>,
    params: Vec<String>,
    options: &TaskOptions,
) -> anyhow::Result<()> {
    let queue = required(queue)?;
    let params = pairs(params)?.into_iter().map(|(name, text)| (name, text.into())).collect();
    let options = options.clone().with_file()?;
    create_tasks::submit(client, &queue, &request(&queue, params, &options)).await
}

/// The request for one task.
pub fn request(queue: &str, params: Map<String, Value>, options: &TaskOptions) -> Value {
    let mut body = options.fields();
    body.insert("queue".to_owned(), queue.into());
    body.insert("params".to_owned(), Value::Object(params));
    Value::Object(body)
}
