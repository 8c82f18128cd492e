//! Submits tasks in the transaction of an application, by documents in the collection `inbox`: see `docs/inbox.md`. Needs the feature `mongodb`.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use mongodb::error::{Error, Result};
use mongodb::{ClientSession, Collection, Database};
use serde::Serialize;

use crate::contract::problem;

/// The collection, in the database of Disbatch.
pub const COLLECTION: &str = "inbox";
const VERSION: i32 = 1;

/// Puts a task into the inbox of Disbatch's database and returns the id that it will have. With a session the task is submitted when its
/// transaction is committed.
///
/// Options are an object: those of a submission that the inbox takes, and `key` (an idempotency key), `by` (the producer) and `traceparent`.
///
/// # Errors
/// Those of the driver are returned as they are, so that it repeats a transaction where it can. What the contract forbids is an
/// [`Error::custom`] with a `String` that says what is wrong, and nothing is inserted.
pub async fn enqueue<'a>(
    disbatch: &Database,
    queue: impl Into<Bson>,
    params: impl Serialize,
    options: impl Serialize,
    session: impl Into<Option<&'a mut ClientSession>>,
) -> Result<String> {
    let document = document(queue, params, options)?;
    let id = id_of(&document);
    let inbox = collection(disbatch);
    let insert = inbox.insert_one(document);
    match session.into() {
        Some(session) => insert.session(session).await?,
        None => insert.await?,
    };
    Ok(id)
}

/// Puts a task for each params into the inbox, and returns their ids in the same order. Without a transaction, some of them may be there if it
/// fails. After the first, the key of a task is that of the first with `/1`, `/2` and so on; with `chain` each comes after the one before.
///
/// # Errors
/// As [`enqueue`].
pub async fn enqueue_many<'a>(
    disbatch: &Database,
    queue: impl Into<Bson>,
    params: impl IntoIterator<Item = impl Serialize>,
    options: impl Serialize,
    session: impl Into<Option<&'a mut ClientSession>>,
) -> Result<Vec<String>> {
    let documents = documents(queue.into(), params, options)?;
    let ids = documents.iter().map(id_of).collect();
    if documents.is_empty() {
        return Ok(ids);
    }
    let inbox = collection(disbatch);
    let insert = inbox.insert_many(documents);
    match session.into() {
        Some(session) => insert.session(session).await?,
        None => insert.await?,
    };
    Ok(ids)
}

/// What [`enqueue`] inserts, for programs that insert it by themselves: those with the synchronous driver.
///
/// # Errors
/// The contract forbids it: [`Error::custom`] with a `String` that says what is wrong.
pub fn document(queue: impl Into<Bson>, params: impl Serialize, options: impl Serialize) -> Result<Document> {
    checked(queue.into(), params, &given(options)?)
}

fn documents(
    queue: Bson,
    params: impl IntoIterator<Item = impl Serialize>,
    options: impl Serialize,
) -> Result<Vec<Document>> {
    let mut options = given(options)?;
    let is_chain = match options.remove("chain") {
        None => false,
        Some(Bson::Boolean(is_chain)) => is_chain,
        Some(_) => return Err(Error::custom("chain must be true or false".to_owned())),
    };
    let key = options.get("key").cloned();
    let mut documents: Vec<Document> = Vec::new();
    for (number, one) in params.into_iter().enumerate() {
        if let Some(key) = key.as_ref().filter(|_| number > 0) {
            options.insert(
                "key",
                format!("{}/{number}", key.as_str().map_or_else(|| key.to_string(), str::to_owned)),
            );
        }
        let document = checked(queue.clone(), one, &options)?;
        if let Some(id) = document.get("_id").filter(|_| is_chain) {
            // Each is a document by itself: what comes before it has to be named.
            options.insert("after", vec![id.clone()]);
        }
        documents.push(document);
    }
    Ok(documents)
}

/// The options that say something.
fn given(options: impl Serialize) -> Result<Document> {
    match bson::serialize_to_bson(&options)? {
        Bson::Document(options) => {
            Ok(options.into_iter().filter(|(_, value)| *value != Bson::Null).collect())
        }
        Bson::Null => Ok(Document::new()),
        _ => Err(Error::custom("options must be an object".to_owned())), // It serves nothing else.
    }
}

fn checked(queue: Bson, params: impl Serialize, options: &Document) -> Result<Document> {
    // An id and a date would be objects in the JSON of the contract.
    let Bson::Document(params) = bson::serialize_to_bson(&params)? else {
        return Err(Error::custom("params must be an object".to_owned()));
    };
    let mut options = options.clone();
    let fields = [
        ("key", options.remove("key")),
        ("by", options.remove("by")),
        ("trace", options.remove("traceparent")),
    ];
    let mut document = doc! { "_id": ObjectId::new(), "v": VERSION, "queue": queue, "params": {} };
    if !options.is_empty() {
        document.insert("options", options);
    }
    document.extend(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    if let Some(wrong) = problem(&Bson::Document(document.clone()).into_relaxed_extjson()) {
        return Err(Error::custom(wrong));
    }
    document.insert("params", params);
    Ok(document)
}

fn collection(disbatch: &Database) -> Collection<Document> {
    disbatch.collection(COLLECTION)
}

fn id_of(document: &Document) -> String {
    document.get_object_id("_id").map(ObjectId::to_hex).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Map, Value, json};

    use super::*;
    use crate::contract::SCHEMA;

    const VECTORS: &str = include_str!("../../../contract/inbox.vectors.json");
    const FIELDS: [&str; 7] = ["v", "queue", "params", "options", "key", "by", "trace"];

    /// What of a document says something; its id is another one each time.
    fn saying(mut document: Document) -> Document {
        document.remove("_id");
        let options = document.remove("options");
        let mut document: Document = document.into_iter().filter(|(_, value)| *value != Bson::Null).collect();
        if let Some(Bson::Document(options)) = options {
            let options: Document = options.into_iter().filter(|(_, value)| *value != Bson::Null).collect();
            document.extend((!options.is_empty()).then(|| ("options".to_owned(), options.into())));
        }
        document.into_iter().collect::<std::collections::BTreeMap<_, _>>().into_iter().collect()
    }

    fn refusal<T: std::fmt::Debug>(outcome: Result<T>) -> String {
        outcome.unwrap_err().get_custom::<String>().unwrap().clone()
    }

    #[test]
    fn the_contract_is_kept() {
        let all: Value = serde_json::from_str(VECTORS).unwrap();
        let (mut taken, mut refused) = (0, 0);
        for vector in all["vectors"].as_array().unwrap() {
            let (name, is_valid) = (&vector["name"], vector["valid"].as_bool().unwrap());
            let mut json = vector["document"].clone();
            json["_id"] = json!({ "$oid": ObjectId::new().to_hex() });
            assert_eq!(problem(&json).is_none(), is_valid, "{name}: {:?}", problem(&json));
            let Bson::Document(whole) = Bson::try_from(json).unwrap() else { panic!("{name}") };
            let mut rest = whole.clone();
            rest.remove("_id");
            // What the arguments can say.
            let is_sayable = rest.get("v").is_some_and(|v| *v == Bson::Int32(1) || *v == Bson::Double(1.0))
                && rest.contains_key("queue")
                && rest.contains_key("params")
                && rest.keys().all(|key| FIELDS.contains(&key.as_str()))
                && !matches!(rest.get("options"), Some(Bson::Array(_)));
            if !is_sayable {
                assert!(!is_valid, "{name}");
                continue;
            }
            let mut options = rest.get_document("options").cloned().unwrap_or_default();
            for (field, option) in [("key", "key"), ("by", "by"), ("trace", "traceparent")] {
                options.extend(rest.get(field).map(|value| (option.to_owned(), value.clone())));
            }
            match document(rest["queue"].clone(), &rest["params"], options) {
                Ok(made) => {
                    assert!(is_valid, "{name}");
                    assert_ne!(made.get_object_id("_id").unwrap(), whole.get_object_id("_id").unwrap());
                    let mut expected = saying(whole);
                    expected.insert("v", 1);
                    assert_eq!(saying(made), saying(expected), "{name}");
                    taken += 1;
                }
                Err(error) => {
                    assert!(!is_valid && error.get_custom::<String>().is_some(), "{name}: {error}");
                    refused += 1;
                }
            }
        }
        assert!(taken >= 20 && refused >= 5, "{taken} {refused}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            (
                json!({"secure_params": {"pin": 1}}),
                "secure_params: secure parameters are not taken by the inbox, where others could read them",
            ),
            (json!({"array": "0-9"}), "array: arrays are not taken by the inbox"),
            (json!({"tenant": "acme"}), "tenant: the tenant follows from the configuration"),
            (json!({"idempotency_key": "k"}), "idempotency_key: is the field 'key' of the document"),
            (json!({"max_attemps": 3}), "max_attemps is unknown; known are after, after_failed, "),
            (json!({"timeout": -1}), "timeout must be seconds from 0 to 315360000"),
            (json!({"priority": true}), "priority must be an integer from -1000 to 1000"),
            (json!({"max_attempts": 1.5}), "max_attempts must be an integer from 1 to 1000000"),
            (json!({"after": []}), "after must be 1 to 1000 ids of tasks"),
            (json!({"after_when": "never"}), "after_when must be succeeded, finished or any"),
            (json!({"key": "k".repeat(201)}), "key must be text of 1 to 200 characters"),
            (json!(7), "options must be an object"),
        ];
        for (options, message) in cases {
            let said = [
                refusal(document("q", json!({"a": 1}), &options)),
                refusal(documents("q".into(), [json!({"a": 1})], &options)),
            ];
            assert!(said.iter().all(|said| said.starts_with(message)), "{options}: {said:?}");
        }
        let of = |queue: Bson, params: Bson| refusal(document(queue, params, ()));
        assert_eq!(of("".into(), doc! {}.into()), "queue must be the name or the id of a queue");
        assert_eq!(
            of(bson::DateTime::from_millis(0).into(), doc! {}.into()),
            "queue must be the name or the id of a queue"
        );
        assert_eq!(of("q".into(), Bson::from(vec![1])), "params must be an object");
        assert_eq!(of("q".into(), ObjectId::new().into()), "params must be an object");
        let not_a_number = refusal(document("q", doc! {}, doc! { "delay": f64::NAN }));
        assert_eq!(not_a_number, "delay must be seconds from 0 to 315360000");
        assert_eq!(
            document("q", 1, ()).unwrap_err().kind.to_string(),
            "Custom user error: params must be an object"
        );
    }

    #[test]
    fn types_of_bson_stay() {
        let (queue, at) = (ObjectId::new(), bson::DateTime::from_millis(4_070_908_800_000));
        let options = doc! { "deadline": at, "unique": Bson::Null, "traceparent": "00-1", "locks": ["a"] };
        let mut made = document(queue, doc! { "at": at, "id": queue }, options).unwrap();
        made.remove("_id");
        let expected = doc! {
            "v": 1, "queue": queue, "params": { "at": at, "id": queue }, "options": { "deadline": at, "locks": ["a"] }, "trace": "00-1",
        };
        assert_eq!(made, expected);
    }

    #[test]
    fn many_have_keys_of_their_own_and_may_be_a_chain() {
        let before = ObjectId::new().to_hex();
        let options = json!({"key": "k", "chain": true, "after": [before], "group": "g"});
        let made = documents("q".into(), (0..3).map(|n| json!({"n": n})), options).unwrap();
        let of = |name: &str| made.iter().map(|one| one[name].clone()).collect::<Vec<_>>();
        assert_eq!(of("key"), ["k", "k/1", "k/2"].map(Bson::from));
        let links = [Bson::from(before), made[0]["_id"].clone(), made[1]["_id"].clone()];
        for (one, link) in made.iter().zip(links) {
            assert_eq!(one["options"], Bson::from(doc! { "after": [link], "group": "g" }));
        }
        assert_eq!(documents("q".into(), [(); 0], ()).unwrap(), []);
    }

    #[test]
    fn all_options_of_the_contract_are_there_for_one_who_asks() {
        let options: &Map<String, Value> = SCHEMA["properties"]["options"]["properties"].as_object().unwrap();
        let said = refusal(document("q", doc! {}, doc! { "what": 1 }));
        let known = said.strip_prefix("what is unknown; known are ").unwrap();
        let taken =
            options.iter().filter(|(_, rule)| rule.get("not").is_none()).map(|(name, _)| name.as_str());
        assert_eq!(known.split(", ").collect::<BTreeSet<_>>(), taken.collect());
    }
}
