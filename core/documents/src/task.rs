//! A task: what is to be done, where it stands, and what came out; and its steps: what several plugins do one after the other, in one
//! private folder.

use bson::{Bson, Document, doc};
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::skip_serializing_none;

use super::document::{Stored, put, required};
use super::{PluginName, QueueId, Status, TaskId};

/// The field of a task that waits for a person's answer.
pub const AWAITING: &str = "awaiting";

/// A document of `tasks`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Task {
    #[serde(rename = "_id")]
    pub id: TaskId,
    pub queue: QueueId,
    pub status: Status,
    /// The node that claimed it; null, or -1 in old data, before that.
    pub node: Option<Bson>,
    /// What the plugin is to do. See [`Task::params`].
    pub params: Option<Bson>,
    /// The Disbatch 3 name of `params`.
    pub parameters: Option<Bson>,
    /// Null, text, or the id of a GridFS file.
    pub stdout: Option<Bson>,
    /// Null, text, or the id of a GridFS file.
    pub stderr: Option<Bson>,
    /// When it was created.
    pub ctime: Option<Bson>,
    /// When it last changed its status.
    pub mtime: Option<Bson>,
    /// True once the output is stored, false if storing it failed.
    pub complete: Option<Bson>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub rest: Document,
}

impl<'de> Deserialize<'de> for Task {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Stored(mut rest) = Stored::deserialize(deserializer)?;
        Ok(Self {
            id: required(&mut rest, "_id")?,
            queue: required(&mut rest, "queue")?,
            status: required(&mut rest, "status")?,
            node: rest.remove("node"),
            params: rest.remove("params"),
            parameters: rest.remove("parameters"),
            stdout: rest.remove("stdout"),
            stderr: rest.remove("stderr"),
            ctime: rest.remove("ctime"),
            mtime: rest.remove("mtime"),
            complete: rest.remove("complete"),
            rest,
        })
    }
}

impl Task {
    /// How often it was claimed by a DEN that counts: the fence of every run. `None`: never.
    pub fn attempt(&self) -> Option<i64> {
        self.rest.get("attempt").and_then(super::whole_number)
    }

    /// The start of the DEN that has claimed it. `None` while nobody has, or if that was another program.
    pub fn instance(&self) -> Option<&str> {
        self.rest.get("instance").and_then(Bson::as_str)
    }

    /// How many of its attempts failed or lost their runner.
    pub fn failures(&self) -> i64 {
        self.rest.get("failures").and_then(super::whole_number).unwrap_or(0)
    }

    pub fn pid(&self) -> Option<i32> {
        self.rest.get("pid").and_then(super::whole_number).and_then(|pid| i32::try_from(pid).ok())
    }

    pub fn is_to_be_cancelled(&self) -> bool {
        self.rest.get("cancel").is_some_and(|cancel| cancel.as_document().is_some())
    }

    /// Whether it is in no node's name, as what is claimed must be. Of a list one value is enough, as for the server.
    pub fn is_free(&self) -> bool {
        let is_free = |node: &Bson| match node {
            Bson::Null | Bson::Undefined => true,
            Bson::Decimal128(number) => number.to_string() == "-1",
            other => super::whole_number(other) == Some(-1),
        };
        self.node.as_ref().is_none_or(|node| match node {
            Bson::Array(nodes) => nodes.iter().any(is_free),
            node => is_free(node),
        })
    }

    /// The parameters, under their old name if need be; null when there are none.
    pub fn params(&self) -> &Bson {
        match (&self.params, &self.parameters) {
            (Some(Bson::Null) | None, Some(old)) => old,
            (Some(params), _) => params,
            (None, None) => &Bson::Null,
        }
    }
}

pub const STEPS: &str = "steps";

pub const MOST_STEPS: usize = 100;

pub const LONGEST_STEP_NAME: usize = 100;

#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub name: String,
    /// The plugin that does it; that of the task's queue if none is named.
    pub plugin: Option<PluginName>,
    /// Parameters of this step alone. They take the place of those of the task that have the same name.
    pub params: Document,
}

impl Step {
    /// Those of a task, in their order; none if it is an ordinary one.
    pub fn of_task(task: &Task) -> Result<Vec<Self>, String> {
        Self::of_field(task.rest.get(STEPS))
    }

    /// The same of the field that has them.
    pub fn of_field(field: Option<&Bson>) -> Result<Vec<Self>, String> {
        let steps = match field {
            None | Some(Bson::Null) => return Ok(Vec::new()),
            Some(Bson::Array(steps)) => steps,
            Some(_) => return Err("steps must be an array".to_owned()),
        };
        let step = |(index, step): (usize, &Bson)| {
            let stored = step.as_document().ok_or_else(|| format!("steps[{index}] must be an object"))?;
            Self::stored(stored, index).map_err(|why| format!("steps[{index}].{why}"))
        };
        steps.iter().enumerate().map(step).collect()
    }

    /// One of them, by its number from 0. What is wrong begins with the name of a field.
    pub fn stored(step: &Document, index: usize) -> Result<Self, String> {
        let plugin = match step.get("plugin") {
            None | Some(Bson::Null) => None,
            Some(Bson::String(name)) => {
                Some(name.parse::<PluginName>().map_err(|error| format!("plugin: {error}"))?)
            }
            Some(_) => return Err("plugin must be text".to_owned()),
        };
        let params = match step.get("params") {
            None | Some(Bson::Null) => Document::new(),
            Some(Bson::Document(params)) => params.clone(),
            Some(_) => return Err("params must be an object".to_owned()),
        };
        let name = step.get("name").and_then(Bson::as_str).filter(|name| !name.is_empty());
        Ok(Self { name: name.map_or_else(|| Self::default_name(index), str::to_owned), plugin, params })
    }

    pub fn default_name(index: usize) -> String {
        format!("step {}", index + 1)
    }

    /// As a new task has it.
    pub fn field(&self) -> Document {
        let mut step = doc! { "name": self.name.as_str() };
        put(&mut step, "plugin", self.plugin.as_ref().map(PluginName::as_str));
        step.extend(doc! { "params": self.params.clone(), "status": Status::Queued });
        step
    }

    /// What its plugin gets as `params`, of a task that has `params`.
    pub fn params_over(&self, params: &Bson) -> Bson {
        match params {
            Bson::Document(of_task) => {
                let mut params = of_task.clone();
                params.extend(self.params.clone());
                Bson::Document(params)
            }
            // Whatever this is, it has no names.
            other if self.params.is_empty() => other.clone(),
            _ => Bson::Document(self.params.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{RawDocumentBuf, deserialize_from_document, deserialize_from_slice, serialize_to_vec};
    use proptest::prelude::*;

    use super::super::{Node, Queue, Sort, date_time};
    use super::*;

    fn round_trip<T: Serialize + serde::de::DeserializeOwned>(document: &Document) -> Document {
        let typed: T = deserialize_from_slice(&serialize_to_vec(document).unwrap()).unwrap();
        RawDocumentBuf::from_bytes(serialize_to_vec(&typed).unwrap()).unwrap().try_into().unwrap()
    }

    fn golden() -> Document {
        let text = include_str!("../../../tests/fixtures/documents.json");
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        Bson::try_from(json).unwrap().as_document().unwrap().clone()
    }

    #[test]
    fn documents_that_perl_wrote_survive_unchanged() {
        let golden = golden();
        let mut seen = 0;
        for (_, list) in golden.get_document("tasks").unwrap() {
            for task in list.as_array().unwrap() {
                let task = task.as_document().unwrap();
                assert_eq!(&round_trip::<Task>(task), task);
                seen += 1;
            }
        }
        for queue in golden.get_array("queues").unwrap() {
            let queue = queue.as_document().unwrap();
            assert_eq!(&round_trip::<Queue>(queue), queue);
            seen += 1;
        }
        for node in golden.get_array("nodes").unwrap() {
            let node = node.as_document().unwrap();
            assert_eq!(&round_trip::<Node>(node), node);
            seen += 1;
        }
        assert_eq!(seen, 20, "the recording holds 10 tasks, 9 queues and 1 node");
    }

    #[test]
    fn odd_queues_mean_what_they_mean_to_perl() {
        let golden = golden();
        let limits: Vec<u64> = golden
            .get_array("queues")
            .unwrap()
            .iter()
            .map(|queue| {
                deserialize_from_document::<Queue>(queue.as_document().unwrap().clone())
                    .unwrap()
                    .thread_limit()
            })
            .collect();
        assert_eq!(limits, [0, 2, 2, 1, 1, 1, 0, 0, 2]);
        let odd: Queue = deserialize_from_document(doc! {
            "_id": bson::oid::ObjectId::new(), "name": 12345, "plugin": Bson::Null, "sort": "sideways",
        })
        .unwrap();
        assert_eq!(odd.display_name(), "12345");
        assert_eq!(odd.plugin_name(), Ok(None));
        assert_eq!(odd.sort_order(), Err(&Bson::from("sideways")));
        let lifo = Queue { rest: doc! { "sort": "lifo" }, ..odd };
        assert_eq!(lifo.sort_order(), Ok(Sort::Lifo));
    }

    #[test]
    fn disbatch_3_parameters_are_found() {
        let task: Task = deserialize_from_document(doc! {
            "_id": bson::oid::ObjectId::new(), "queue": bson::oid::ObjectId::new(), "status": -2,
            "node": -1, "parameters": { "a": 1 }, "ctime": 1_795_163_380, "mtime": 1_795_163_380_i64,
        })
        .unwrap();
        assert_eq!(task.params(), &Bson::from(doc! { "a": 1 }));
        let mtime = task.mtime.as_ref().and_then(date_time);
        assert_eq!(mtime.unwrap().timestamp_millis(), 1_795_163_380_000);
    }

    fn any_bson() -> impl Strategy<Value = Bson> {
        let leaf = prop_oneof![
            Just(Bson::Null),
            any::<bool>().prop_map(Bson::Boolean),
            any::<i32>().prop_map(Bson::Int32),
            any::<i64>().prop_map(Bson::Int64),
            (-1e9..1e9).prop_map(Bson::Double),
            ".{0,8}".prop_map(Bson::String),
            any::<[u8; 12]>().prop_map(|bytes| Bson::ObjectId(bytes.into())),
            any::<i32>().prop_map(|ms| Bson::DateTime(bson::DateTime::from_millis(i64::from(ms)))),
            any::<Vec<u8>>().prop_map(|bytes| Bson::Binary(bson::Binary {
                subtype: bson::spec::BinarySubtype::Generic,
                bytes
            })),
            any::<(u32, u32)>()
                .prop_map(|(time, increment)| Bson::Timestamp(bson::Timestamp { time, increment })),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
                prop::collection::hash_map(
                    "[a-z]{1,6}|\\$(oid|date|binary|numberLong|numberDecimal|minKey)",
                    inner,
                    0..4
                )
                .prop_map(|map| Bson::Document(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn unknown_fields_of_every_type_are_kept(value in any_bson(), params in any_bson()) {
            let document = doc! {
                "_id": bson::oid::ObjectId::new(), "queue": bson::oid::ObjectId::new(), "status": 7,
                "params": params, "someone_elses": value,
            };
            prop_assert_eq!(round_trip::<Task>(&document), document);
        }
    }

    fn task(steps: impl Into<Bson>) -> Task {
        let steps: Bson = steps.into();
        let task = doc! { "_id": ObjectId::new(), "queue": ObjectId::new(), "status": 0, "steps": steps };
        bson::deserialize_from_slice(&bson::serialize_to_vec(&task).unwrap()).unwrap()
    }

    #[test]
    fn steps_come_back_as_they_were_stored() {
        let steps = [
            Step { name: "get".to_owned(), plugin: None, params: doc! { "a": { "$oid": "x" } } },
            Step { name: "use".to_owned(), plugin: Some("My::Use".parse().unwrap()), params: doc! {} },
        ];
        let stored: Vec<Document> = steps.iter().map(Step::field).collect();
        assert_eq!(stored[1], doc! { "name": "use", "plugin": "My::Use", "params": {}, "status": -2 });
        assert_eq!(Step::of_task(&task(stored)).unwrap(), steps);
        for none in [Bson::Null, Bson::Array(Vec::new())] {
            assert!(Step::of_task(&task(none)).unwrap().is_empty());
        }
    }

    #[test]
    fn little_is_needed_and_what_is_wrong_is_named() {
        let steps = Step::of_task(&task(vec![doc! {}, doc! { "name": "", "params": Bson::Null }])).unwrap();
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["step 1", "step 2"]);
        let wrong = [
            (Bson::from("x"), "steps must be an array"),
            (Bson::from(vec![Bson::from(1)]), "steps[0] must be an object"),
            (vec![doc! {}, doc! { "plugin": 7 }].into(), "steps[1].plugin must be text"),
            (vec![doc! { "plugin": "a b" }].into(), "steps[0].plugin: plugin value 'a b' must be"),
            (vec![doc! { "params": [] }].into(), "steps[0].params must be an object"),
        ];
        for (steps, message) in wrong {
            let error = Step::of_task(&task(steps)).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn parameters_of_a_step_come_before_those_of_the_task() {
        let step = |params| Step { name: String::new(), plugin: None, params };
        let over = |params: Document| step(params).params_over(&doc! { "a": 1, "b": 2 }.into());
        assert_eq!(over(doc! { "b": 3, "c": 4 }), Bson::from(doc! { "a": 1, "b": 3, "c": 4 }));
        assert_eq!(over(doc! {}), Bson::from(doc! { "a": 1, "b": 2 }));
        assert_eq!(step(doc! {}).params_over(&Bson::Null), Bson::Null);
        assert_eq!(step(doc! { "a": 1 }).params_over(&Bson::Null), Bson::from(doc! { "a": 1 }));
    }
}
