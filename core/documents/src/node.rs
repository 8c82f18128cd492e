//! A node: one DEN's entry in the database; and which nodes may run the tasks of a queue: its field `nodes`, by labels that nodes have
//! and by names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};
use disbatch_values::liberal::{count, date_time, integer};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::document::{Stored, put, required};
use super::{Queue, TaskId};

/// A document of `nodes`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    #[serde(rename = "_id")]
    pub id: ObjectId,
    /// The node's name, unique.
    pub node: Bson,
    #[serde(flatten)]
    pub rest: Document,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Stored(mut rest) = Stored::deserialize(deserializer)?;
        Ok(Self {
            id: required(&mut rest, "_id")?,
            node: rest.remove("node").ok_or_else(|| de::Error::missing_field("node"))?,
            rest,
        })
    }
}

impl Node {
    /// How many tasks may run on the node at once, `None` for no limit.
    pub fn thread_limit(&self) -> Option<u64> {
        self.rest.get("maxthreads").and_then(count)
    }

    /// When its DEN was last alive, by its own clock.
    pub fn timestamp(&self) -> Option<DateTime> {
        self.rest.get("timestamp").and_then(date_time)
    }

    pub fn is_draining(&self) -> bool {
        self.rest.get("draining").and_then(Bson::as_bool).unwrap_or(false)
    }

    /// Whether what runs on it is to go on elsewhere where it can, while it claims nothing more.
    pub fn interrupts(&self) -> bool {
        self.is_draining() && self.rest.get("interrupt").and_then(Bson::as_bool).unwrap_or(false)
    }

    /// Whether a DEN keeps the entry that tells more of itself than Perl's, which writes the name and a time.
    pub fn is_ours(&self) -> bool {
        self.rest.contains_key("instance")
    }

    /// What its DEN said last: `alive`, `draining` or `stopped`; or `dead`, which another one noticed. `None` for
    /// Perl's.
    pub fn state(&self) -> Option<&str> {
        self.rest.get("state").and_then(Bson::as_str)
    }

    /// When its DEN was last alive by the server's clock, and for how long it may be silent. `None` for Perl's,
    /// and after an end on purpose.
    pub fn last_beat(&self) -> Option<(DateTime, Duration)> {
        let seen = self.rest.get("seen").and_then(Bson::as_datetime)?;
        let lease = self.rest.get("lease_ms").and_then(integer).and_then(|ms| u64::try_from(ms).ok())?;
        Some((*seen, Duration::from_millis(lease)))
    }

    pub fn labels(&self) -> Labels {
        Labels::of(self.rest.get("labels").and_then(Bson::as_document))
    }

    /// The start of the DEN that wrote the entry last. `None` for Perl's.
    pub fn instance(&self) -> Option<&str> {
        self.rest.get("instance").and_then(Bson::as_str)
    }

    /// Tasks of this node whose end somebody has asked for.
    pub fn attention(&self) -> Vec<TaskId> {
        let listed = self.rest.get_array("attention").map(Vec::as_slice).unwrap_or_default();
        listed.iter().filter_map(Bson::as_object_id).map(TaskId).collect()
    }
}

/// The field of a queue that says which nodes may run its tasks.
pub const NODES: &str = "nodes";

const MOST_LABELS: usize = 50;

const MOST_NAMES: usize = 200;

/// Names and values of labels, and names of nodes, have so many characters at most.
const LONGEST: usize = 200;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(pub BTreeMap<String, String>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSelector {
    /// Labels that a node must have, all of them with these values.
    labels: Labels,
    /// Names of nodes, of which it must have one. None: any.
    names: BTreeSet<String>,
    /// What is stored cannot be read, so that no node matches.
    is_odd: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

impl Labels {
    /// Those of a document, as far as they are text.
    pub fn of(document: Option<&Document>) -> Self {
        let pairs = document.into_iter().flatten();
        Self(pairs.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect())
    }

    pub fn document(&self) -> Document {
        self.0.iter().map(|(name, value)| (name.clone(), Bson::from(value.as_str()))).collect()
    }

    fn read(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, SelectorError> {
        let labels: BTreeMap<String, String> = pairs.into_iter().collect();
        if labels.len() > MOST_LABELS {
            return Err(SelectorError(format!("there may be {MOST_LABELS} labels at most")));
        }
        for (name, value) in &labels {
            let is_name = is_text(name) && !name.contains(['=', ',', '.']) && !name.starts_with('$');
            if !is_name || !is_text(value) || value.contains(',') {
                let what = format!(
                    "the label {name:?} must be text of 1 to {LONGEST} characters without '=', ',' and '.', \
                     and its value such text without ','"
                );
                return Err(SelectorError(what));
            }
        }
        Ok(Self(labels))
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.0.iter().map(|(name, value)| format!("{name}={value}"));
        f.write_str(&pairs.collect::<Vec<_>>().join(", "))
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(BTreeMap::<String, String>::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl NodeSelector {
    /// That of a queue. `None`: any node may run its tasks.
    pub fn of(queue: &Queue) -> Option<Self> {
        let stored = queue.rest.get(NODES).filter(|stored| **stored != Bson::Null)?;
        let read = stored.as_document().map(Self::read);
        let odd = || Self { is_odd: true, ..Self::default() };
        Some(read.and_then(Result::ok).unwrap_or_else(odd)).filter(|selector| !selector.is_empty())
    }

    /// Reads what a client has given: `labels`, an object, and `names`, a list, or text with commas for either. Single labels
    /// may be given as `labels.NAME`.
    pub fn read(given: &Document) -> Result<Self, SelectorError> {
        let mut labels = Vec::new();
        let mut names = BTreeSet::new();
        for (field, value) in given {
            match (field.as_str(), value) {
                ("labels" | "names", Bson::Null) => {}
                ("labels", Bson::Document(pairs)) => {
                    for (name, value) in pairs {
                        labels.push((name.clone(), text(name, value)?));
                    }
                }
                ("labels", Bson::String(pairs)) => {
                    for pair in parts(pairs) {
                        let (name, value) = pair.split_once('=').ok_or_else(|| {
                            SelectorError(format!("{pair:?} is no label with a value: write NAME=VALUE"))
                        })?;
                        labels.push((name.trim().to_owned(), value.trim().to_owned()));
                    }
                }
                ("names", Bson::String(list)) => names.extend(parts(list).map(str::to_owned)),
                ("names", Bson::Array(list)) => {
                    for name in list {
                        names.insert(text("names", name)?);
                    }
                }
                (field, value) => match field.strip_prefix("labels.") {
                    Some(name) => labels.push((name.to_owned(), text(name, value)?)),
                    None => {
                        return Err(SelectorError(format!("it has labels and names, and no such {field}")));
                    }
                },
            }
        }
        if names.len() > MOST_NAMES || names.iter().any(|name| !is_text(name)) {
            let what = format!("names must be up to {MOST_NAMES} texts of 1 to {LONGEST} characters");
            return Err(SelectorError(what));
        }
        Ok(Self { labels: Labels::read(labels)?, names, is_odd: false })
    }

    pub fn is_empty(&self) -> bool {
        !self.is_odd && self.labels.0.is_empty() && self.names.is_empty()
    }

    pub fn admits(&self, node: &str, labels: &Labels) -> bool {
        let has = |(name, value): (&String, &String)| labels.0.get(name) == Some(value);
        !self.is_odd && self.labels.0.iter().all(has) && (self.names.is_empty() || self.names.contains(node))
    }

    pub fn document(&self) -> Document {
        let mut document = Document::new();
        put(&mut document, "labels", (!self.labels.0.is_empty()).then(|| self.labels.document()));
        let names: Vec<String> = self.names.iter().cloned().collect();
        put(&mut document, "names", (!names.is_empty()).then_some(names));
        document
    }

    /// The labels as text that can be read again.
    pub fn labels_text(&self) -> String {
        self.labels.to_string()
    }

    pub fn names_text(&self) -> String {
        self.names.iter().cloned().collect::<Vec<String>>().join(", ")
    }
}

/// For people: `labels gpu=yes, names n1, n2`.
impl fmt::Display for NodeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (labels, names) = (self.labels_text(), self.names_text());
        match (self.is_odd, labels.is_empty(), names.is_empty()) {
            (true, ..) => f.write_str("which cannot be read"),
            (_, false, true) => write!(f, "labels {labels}"),
            (_, true, _) => write!(f, "names {names}"),
            (_, false, false) => write!(f, "labels {labels}, and names {names}"),
        }
    }
}

fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// Text, or a number or flag that a client takes for text.
fn text(name: &str, value: &Bson) -> Result<String, SelectorError> {
    match value {
        Bson::String(text) => Ok(text.clone()),
        Bson::Int32(_) | Bson::Int64(_) | Bson::Boolean(_) => Ok(value.to_string()),
        _ => Err(SelectorError(format!("{name} must be text"))), // Nothing else is meant as such.
    }
}

fn is_text(text: &str) -> bool {
    (1..=LONGEST).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        Labels(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn of(nodes: impl Into<Bson>) -> Option<NodeSelector> {
        let queue = doc! { "_id": ObjectId::new(), "name": "q", "nodes": nodes.into() };
        NodeSelector::of(&bson::deserialize_from_document(queue).unwrap())
    }

    #[test]
    fn all_labels_and_one_of_the_names_must_match() {
        let gpu = of(doc! { "labels": { "gpu": "yes", "zone": "a" } }).unwrap();
        assert!(gpu.admits("n1", &labels(&[("gpu", "yes"), ("zone", "a"), ("disk", "big")])));
        assert!(!gpu.admits("n1", &labels(&[("gpu", "yes")])) && !gpu.admits("n1", &Labels::default()));
        assert!(!gpu.admits("n1", &labels(&[("gpu", "no"), ("zone", "a")])));
        let named = of(doc! { "names": ["n1", "n2"], "labels": { "gpu": "yes" } }).unwrap();
        assert!(named.admits("n2", &labels(&[("gpu", "yes")])));
        assert!(!named.admits("n3", &labels(&[("gpu", "yes")])) && !named.admits("n1", &Labels::default()));
        assert_eq!(named.to_string(), "labels gpu=yes, and names n1, n2");
    }

    #[test]
    fn nothing_leaves_nobody_out_and_what_cannot_be_read_everybody() {
        for nothing in [Bson::Null, doc! {}.into(), doc! { "labels": {}, "names": [] }.into()] {
            assert_eq!(of(nothing), None);
        }
        for odd in [Bson::from("n1"), doc! { "label": "x" }.into(), doc! { "labels": { "a": [] } }.into()] {
            assert!(!of(odd).unwrap().admits("n1", &Labels::default()));
        }
    }

    #[test]
    fn text_of_forms_and_single_labels_are_read() {
        let read = |given: Document| NodeSelector::read(&given).map(|selector| selector.document());
        let whole = doc! { "labels": { "gpu": "yes", "zone": "1" }, "names": ["n1", "n2"] };
        assert_eq!(read(doc! { "labels": "zone = 1, gpu=yes", "names": "n2,n1," }).unwrap(), whole);
        assert_eq!(
            read(doc! { "labels.gpu": "yes", "labels.zone": 1, "names": ["n2", "n1"] }).unwrap(),
            whole
        );
        assert_eq!(read(doc! { "labels": "", "names": "" }).unwrap(), doc! {});
        for wrong in [
            doc! { "labels": "gpu" },
            doc! { "labels": { "": "x" } },
            doc! { "labels": { "a,b": "x" } },
            doc! { "names": [1.5] },
            doc! { "names": ["x".repeat(201)] },
            doc! { "name": "n1" },
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
