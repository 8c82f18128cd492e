//! `disbatch update-node NODE maxthreads N`

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::{Client, segment};
use crate::command::life::advise;
use crate::command::pairs;
use crate::output::print;

/// Changes fields of a node. The DCI knows one, `maxthreads`.
pub async fn run(client: &Client, node: Option<String>, fields: Vec<String>) -> anyhow::Result<()> {
    let node = node.filter(|name| !name.is_empty()).ok_or_else(|| anyhow::anyhow!("Node name not given"))?;
    let fields: BTreeMap<String, Value> =
        pairs(fields)?.into_iter().map(|(field, text)| (field, value(text))).collect();
    let body = serde_json::to_value(fields)?;
    client.post(&format!("/nodes/{}", segment(&node)), &body).await.map_err(advise)?;
    print(&format!("Updated node {node}: {body}\n"))
}

/// A number or null; anything else is text, for the DCI to refuse.
fn value(text: String) -> Value {
    match text.as_str() {
        "null" => Value::Null,
        digits => digits.parse::<u64>().map_or_else(|_| Value::from(text), Value::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbers_or_null() {
        assert_eq!(value("16".into()), Value::from(16));
        assert_eq!(value("null".into()), Value::Null);
        assert_eq!(value("-1".into()), Value::from("-1"));
    }
}
