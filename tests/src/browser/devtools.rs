//! Finds elements in the accessibility tree: as Chromium tells it to screen readers.

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::session::{Element, Session};

/// The elements below a script's value, if it is one, that have one of `roles`, and their names.
pub(super) async fn of_roles(
    session: &Session,
    root: &str,
    roles: &[&str],
) -> anyhow::Result<Option<Vec<Node>>> {
    let found = session.devtools("Runtime.evaluate", json!({ "expression": root })).await?;
    if let Some(thrown) = found.pointer("/exceptionDetails/exception/description") {
        bail!("{root}: {thrown}");
    }
    let Some(object) = found.pointer("/result/objectId") else { return Ok(None) };
    let mut nodes = Vec::new();
    for role in roles {
        let query = json!({ "objectId": object, "role": role });
        let tree = session.devtools("Accessibility.queryAXTree", query).await?;
        nodes.extend(tree["nodes"].as_array().into_iter().flatten().filter_map(|node| Node::of(role, node)));
    }
    Ok(Some(nodes))
}

/// A node of that tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// What it is called, as a screen reader would say.
    pub name: String,
    role: String,
    id: i64,
}

impl Node {
    fn of(role: &str, node: &Value) -> Option<Self> {
        let id = node["backendDOMNodeId"].as_i64().filter(|_| node["ignored"] != true)?;
        let name = node.pointer("/name/value").and_then(Value::as_str).unwrap_or_default();
        let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
        Some(Self { name, role: role.to_owned(), id })
    }

    /// For people.
    pub fn describe(&self) -> String {
        format!("{} '{}'", self.role, self.name)
    }

    /// The element, for commands of the standard.
    pub async fn element(&self, session: &Session) -> anyhow::Result<Element> {
        let node = session.devtools("DOM.resolveNode", json!({ "backendNodeId": self.id })).await?;
        let object = node.pointer("/object/objectId").context("an element that has gone")?;
        // Neither protocol knows the other's ids; a variable of the page takes it across.
        let keep = "function() { globalThis.disbatchTestFound = this; }";
        let call = json!({ "objectId": object, "functionDeclaration": keep });
        session.devtools("Runtime.callFunctionOn", call).await?;
        let take =
            "const found = globalThis.disbatchTestFound; delete globalThis.disbatchTestFound; return found";
        let found = session.post("/execute/sync", &json!({ "script": take, "args": [] })).await?;
        Element::of(&found).context("an element that has gone")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_their_name_on_one_line_and_ignored_ones_are_none() {
        let node = json!({ "backendDOMNodeId": 7, "ignored": false, "name": { "value": " Go\n on " } });
        let found = Node::of("button", &node).unwrap();
        assert_eq!(found.describe(), "button 'Go on'");
        assert_eq!(Node::of("button", &json!({ "backendDOMNodeId": 7, "ignored": true })), None);
    }
}
