//! `disbatch create-task QUEUE PARAM VALUE ..`

use serde_json::{Map, Value};

use crate::api::Client;
use crate::args::TaskOptions;
use crate::command::{create_tasks, pairs, required};

/// Creates one task, whose parameters all are text.
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

pub fn request(queue: &str, params: Map<String, Value>, options: &TaskOptions) -> Value {
    let mut body = options.fields();
    body.insert("queue".to_owned(), queue.into());
    body.insert("params".to_owned(), Value::Object(params));
    Value::Object(body)
}
