//! Definitions are stored and removed by people. What is in them for those alone who may change them is hidden from all others.

use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use serde_json::{Map, Value};

use super::{COLLECTION, Definition, DefinitionError, NewDefinition, json, without_bookkeeping};
use crate::model::{PluginName, to_bson, whole_number};
use crate::store::{Altered, Store, StoreError, Stored, with};

/// How often a definition is stored that others store at the same moment.
const TRIES: usize = 5;

/// What stands in the place of a value that is not shown.
pub const HIDDEN: &str = "(hidden)";

/// Objects and lists under these names have values that may let somebody in somewhere, whoever has made up the form of
/// the definition. Capital letters and underscores do not matter.
const SECRETS: [&str; 5] = ["env", "headers", "httpheaders", "secureparams", "secureparameters"];

/// The JSON Schema of parameters is a key of manifests. What its properties are called says nothing of their values.
const SCHEMA: &str = "params";

/// What a definition takes the place of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Of none: there is no definition of its name.
    Free,
    /// Of the one that has this revision.
    Revision(i64),
    /// Of whichever there is.
    Any,
}

impl Store {
    /// Stores a definition. `by`: who wants it, in words. Returns what it was and is, without secrets; one that was there already in
    /// [`Place::Any`] is not different. Whoever stores some asks for [`Store::room_for_workers`] before the first of them.
    #[operation(worker = %new.name)]
    pub async fn define_plugin(
        &self,
        new: &NewDefinition,
        place: Place,
        by: &str,
    ) -> Result<Altered, DefinitionError> {
        match place {
            Place::Free => return self.insert_definition(new, by).await,
            Place::Revision(rev) => return self.replace_definition(new, rev, by).await,
            Place::Any => {}
        }
        let mut last = 0;
        for _ in 0..TRIES {
            let stored = match self.worker(&new.name).await? {
                None => self.insert_definition(new, by).await,
                Some(current) if current.defines(new) => {
                    return Ok(Altered { before: Some(doc! {}), after: doc! {} });
                }
                Some(current) => self.replace_definition(new, current.rev, by).await,
            };
            match stored {
                // Somebody was faster.
                Err(DefinitionError::NameTaken(_) | DefinitionError::Missing(_)) => {}
                Err(DefinitionError::Changed(rev)) => last = rev,
                stored => return stored,
            }
        }
        Err(DefinitionError::Changed(last))
    }

    /// Removes a definition; with `rev`, only if it still has this revision. Tasks that run go on. Returns what it was, without
    /// secrets; `None`: there is none, or it has another revision.
    #[operation(worker = %name)]
    pub async fn delete_worker(
        &self,
        name: &PluginName,
        rev: Option<i64>,
    ) -> Result<Option<Document>, StoreError> {
        let filter = match rev {
            Some(rev) => with_rev(name, rev),
            None => doc! { "_id": name.as_str() },
        };
        Ok(self.worker_collection().find_one_and_delete(filter).await?.map(|gone| shown(gone.into())))
    }

    async fn insert_definition(&self, new: &NewDefinition, by: &str) -> Result<Altered, DefinitionError> {
        let document = self.stored(new, 1, by).await?;
        let inserted = self.worker_collection().insert_one(Stored(document.clone())).await;
        match StoreError::unless_duplicate(inserted)? {
            Some(_) => Ok(Altered { before: None, after: shown(document) }),
            None => Err(DefinitionError::NameTaken(new.name.clone())),
        }
    }

    async fn replace_definition(
        &self,
        new: &NewDefinition,
        rev: i64,
        by: &str,
    ) -> Result<Altered, DefinitionError> {
        let after = self.stored(new, rev.saturating_add(1), by).await?;
        let is_as_known = with_rev(&new.name, rev);
        let replaced =
            self.worker_collection().find_one_and_replace(is_as_known, Stored(after.clone())).await;
        if let Some(before) = replaced.map_err(StoreError::from)? {
            return Ok(Altered { before: Some(shown(before.into())), after: shown(after) });
        }
        let current = self.worker(&new.name).await?;
        Err(current.map_or_else(
            || DefinitionError::Missing(new.name.clone()),
            |current| DefinitionError::Changed(current.rev),
        ))
    }

    async fn stored(&self, new: &NewDefinition, rev: i64, by: &str) -> Result<Document, StoreError> {
        let document = with(doc! { "_id": new.name.as_str() }, new.definition.clone());
        Ok(with(document, doc! { "rev": rev, "by": by, "at": self.server_time().await? }))
    }
}

/// The worker while it has this number. Documents that were put there by other means have none.
fn with_rev(name: &PluginName, rev: i64) -> Document {
    match rev {
        0 => doc! { "_id": name.as_str(), "rev": { "$in": [Bson::Null, Bson::from(0)] } },
        rev => doc! { "_id": name.as_str(), "rev": rev },
    }
}

/// A document of the collection for the audit: without secrets, and without what changes by itself.
fn shown(document: Document) -> Document {
    let rev = document.get("rev").and_then(whole_number).unwrap_or_default();
    let name = document.get("_id").cloned().unwrap_or(Bson::Null);
    let mut shown = doc! { "_id": name };
    if let Bson::Document(fields) = to_bson(&hidden(&json(&without_bookkeeping(document).into()))) {
        shown.extend(fields);
    }
    // Where a secret alone has changed, this is what tells.
    shown.insert("rev", rev);
    shown
}

impl Definition {
    /// How the server tells whether any definition has changed: a small value for all of them, in one stage for a document.
    pub(crate) fn mark() -> Vec<Document> {
        vec![
            doc! { "$group": {
                "_id": Bson::Null,
                "count": { "$sum": 1 },
                "bytes": { "$sum": { "$bsonSize": "$$ROOT" } },
                "revs": { "$sum": "$rev" },
                "newest": { "$max": "$at" },
            } },
            doc! { "$project": { "_id": 0, "what": COLLECTION, "mark": ["$count", "$bytes", "$revs", "$newest"] } },
        ]
    }
}

/// The definition for those who may look at it: with the names of headers, variables and secure parameters, and without their
/// values; and without user names, passwords and queries in addresses.
pub fn hidden(definition: &Value) -> Value {
    let mut shown = inside(definition);
    if let Some((shown, schema)) = shown.get_mut(SCHEMA).zip(definition.get(SCHEMA)) {
        shown.clone_from(schema);
    }
    shown
}

/// Leaves out what has values that are not shown, wherever it is: what remains is for those who may not see the definition.
pub(super) fn drop_secrets(fields: &mut Map<String, Value>) {
    fields.retain(|name, _| !is_secret(name));
    fields.values_mut().for_each(drop_inside);
}

fn drop_inside(value: &mut Value) {
    match value {
        Value::Object(fields) => drop_secrets(fields),
        Value::Array(items) => items.iter_mut().for_each(drop_inside),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_secret(name: &str) -> bool {
    let letters = || name.bytes().filter(|byte| *byte != b'_').map(|byte| byte.to_ascii_lowercase());
    SECRETS.iter().any(|secret| secret.bytes().eq(letters()))
}

fn inside(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), of_field(name, value))).collect())
        }
        Value::Array(items) => items.iter().map(inside).collect(),
        Value::String(text) => Value::from(address(text)),
        other => other.clone(),
    }
}

fn of_field(name: &str, value: &Value) -> Value {
    if is_secret(name) { without_values(value) } else { inside(value) }
}

/// Names without their values: of `{"A": "b"}`, `["A=b"]` and `[{"name": "A", "value": "b"}]`.
fn without_values(secret: &Value) -> Value {
    match secret {
        Value::Object(fields) => {
            Value::Object(fields.keys().map(|name| (name.clone(), HIDDEN.into())).collect())
        }
        Value::Array(items) => items.iter().map(without_value).collect(),
        _ => HIDDEN.into(),
    }
}

fn without_value(item: &Value) -> Value {
    match item {
        Value::String(text) => match text.split_once('=') {
            Some((name, _)) => format!("{name}={HIDDEN}").into(),
            None => HIDDEN.into(),
        },
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                let shown = if name == "name" { value.clone() } else { HIDDEN.into() };
                (name.clone(), shown)
            };
            Value::Object(fields.iter().map(field).collect::<Map<_, _>>())
        }
        _ => HIDDEN.into(),
    }
}

/// An address without what lets somebody in; any other text as it is.
fn address(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let is_scheme = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !is_scheme || text.contains(char::is_whitespace) {
        return text.to_owned();
    }
    let (rest, query) = rest.split_once(['?', '#']).map_or((rest, ""), |(rest, _)| (rest, "?…"));
    let (host, path) =
        rest.split_once('/').map_or((rest, String::new()), |(host, path)| (host, format!("/{path}")));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}{query}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_audit_has_names_and_no_secrets() {
        let stored = doc! {
            "_id": "csv", "engine": "http", "http": { "url": "https://x/", "headers": { "A": "horse" }, "timeout": 5 },
            "rev": 3_i64, "by": "somebody", "at": bson::DateTime::from_millis(5),
        };
        let shown = shown(stored);
        assert_eq!(
            shown,
            doc! {
                "_id": "csv", "engine": "http",
                "http": { "headers": { "A": "(hidden)" }, "timeout": 5, "url": "https://x/" }, "rev": 3_i64,
            }
        );
    }

    #[test]
    fn what_was_put_there_by_other_means_has_the_number_0() {
        let name = "csv".parse().unwrap();
        assert_eq!(with_rev(&name, 7), doc! { "_id": "csv", "rev": 7_i64 });
        assert_eq!(with_rev(&name, 0).get_document("rev").unwrap().get_array("$in").unwrap().len(), 2);
    }

    #[test]
    fn names_are_shown_and_values_are_not() {
        let of = |value: Value| hidden(&value);
        assert_eq!(
            of(
                json!({ "engine": "http", "http": { "url": "https://u:p@x/y?token=t", "headers": { "A": "s" } } })
            ),
            json!({ "engine": "http", "http": { "url": "https://x/y?…", "headers": { "A": HIDDEN } } })
        );
        assert_eq!(
            of(json!({ "worker": { "httpHeaders": { "Authorization": "Basic s" }, "image": "r:5000/a:b" } })),
            json!({ "worker": { "httpHeaders": { "Authorization": HIDDEN }, "image": "r:5000/a:b" } })
        );
        assert_eq!(
            of(json!({ "container": { "config": { "Env": ["A=s", "B"], "Cmd": ["x"] } } })),
            json!({ "container": { "config": { "Env": ["A=(hidden)", HIDDEN], "Cmd": ["x"] } } })
        );
        let pod = json!({ "kubernetes": { "pod": { "spec": { "containers": [
        { "env": [{ "name": "A", "value": "s" }, { "name": "B", "valueFrom": { "x": "s" } }] },
    ] } } } });
        let shown = json!([{ "name": "A", "value": HIDDEN }, { "name": "B", "valueFrom": HIDDEN }]);
        assert_eq!(of(pod)["kubernetes"]["pod"]["spec"]["containers"][0]["env"], shown);
    }

    #[test]
    fn what_parameters_are_called_is_no_secret() {
        let schema = json!({ "params": { "properties": { "env": { "type": "object" } } } });
        assert_eq!(hidden(&schema), schema);
        let template = json!({ "template": { "params": { "httpHeaders": { "A": "s" } } } });
        assert_eq!(hidden(&template)["template"]["params"]["httpHeaders"], json!({ "A": HIDDEN }));
    }

    #[test]
    fn secure_parameters_are_secret_however_they_are_spelled() {
        for name in ["secureParameters", "secure_parameters", "secureParams", "SECURE_PARAMS"] {
            let template = json!({ "worker": { "template": { name: { "password": "horse" } } } });
            assert_eq!(hidden(&template)["worker"]["template"][name], json!({ "password": HIDDEN }));
        }
        let switch = json!({ "secure_params_in_environment": true });
        assert_eq!(hidden(&switch), switch);
    }

    #[test]
    fn what_is_left_for_everybody_has_no_secret_at_any_depth() {
        let mut fields = json!({
            "rows": 5, "httpHeaders": { "A": "s" }, "url": "https://x/y?mode=fast",
            "parts": [{ "Env": { "B": "s" }, "name": "one" }], "environment": "test", "secure_params": { "p": "s" },
        });
        let fields = fields.as_object_mut().unwrap();
        drop_secrets(fields);
        let left = json!({
            "rows": 5, "url": "https://x/y?mode=fast", "parts": [{ "name": "one" }], "environment": "test",
        });
        assert_eq!(Value::Object(fields.clone()), left);
    }

    /// Text that is in values of secrets, and nowhere else.
    const MARKER: &str = "zyxw-secret-9173";

    fn definitions() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i32>().prop_map(Value::from),
            "[a-z:/@?=]{0,30}".prop_map(Value::from),
            Just(Value::Null),
        ];
        let secret = prop_oneof![
            Just(json!({ "A": MARKER, "B": { "deeper": MARKER } })),
            Just(json!([format!("A={MARKER}"), MARKER, { "name": "A", "value": MARKER }, [MARKER]])),
            Just(json!(MARKER)),
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            let names = vec![
                "env",
                "Env",
                "headers",
                "httpHeaders",
                "HTTPHEADERS",
                "secureParameters",
                "secure_params",
                "secureParams",
            ];
            let name = prop::sample::select(names);
            let public = prop::collection::btree_map("[a-z]{1,5}x", inner.clone(), 0..5);
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Value::Array),
                (public, name, secret.clone()).prop_map(|(public, name, secret)| {
                    let mut fields: Map<String, Value> = public.into_iter().collect();
                    fields.insert(name.to_owned(), secret);
                    Value::Object(fields)
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_secret_is_shown_wherever_it_is(definition in definitions()) {
            let shown = hidden(&definition).to_string();
            prop_assert!(!shown.contains(MARKER), "{}", shown);
            let mut left = definition;
            drop_inside(&mut left);
            prop_assert!(!left.to_string().contains(MARKER), "{}", left);
        }
    }
}
