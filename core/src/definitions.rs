//! Definitions of plugins that are kept in the database, and so are the same for all nodes. Clients know them as workers.
//!
//! A document of `workers` has the plugin's name as its `_id` and is a manifest, or is written as another scheduler has its
//! workers, with all of it in the field `worker` ([`lex`]). `rev` grows with each change; documents that were put there
//! by other means have none, which counts as 0.
//!
//! **What may come from the database.** A definition may choose an image or an address, and no program of a node: it
//! is for the engines whose work is done elsewhere, and may not ask for what would lead it back to the node ([`bounds::check`]). So
//! whoever can write to the database, or administer a DCI, does not get to run what they like as the user of the
//! nodes; and each of these engines is off on a node whose configuration does not have it. A plugin in the files of a node
//! comes before a worker of its name, and where the node's configuration does not allow that plugin, none of the two is run
//! ([`crate::plugin::Plugins::with_workers`]).

mod bounds;
mod lex;
mod manage;

use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use disbatch_operation::operation;
use serde_json::{Map, Value};

pub use manage::{HIDDEN, Place, hidden};

use crate::model::{PluginName, PluginNameError, to_document, whole_number};
use crate::plugin::{Manifest, ManifestError, Plugins};
use crate::schema::Schema;
use crate::store::{Store, StoreError, collect, collections, with};

pub(crate) const COLLECTION: &str = collections::WORKERS.name;

/// The fields that a definition consists of besides what was defined.
const OURS: [&str; 4] = ["_id", "rev", "by", "at"];

/// The field that has all of a definition in the form of another scheduler.
const LEX: &str = "worker";

/// A definition has so many bytes at most, as MongoDB stores it: with each task, it is told to a runner.
pub const LARGEST: usize = 256 * 1024;

/// There are so many workers at most: whoever looks at a queue has a web server read all of them.
pub const MOST: usize = 1_000;

/// All of them have so many bytes at most, as MongoDB stores them.
pub const MOST_BYTES: usize = 8 * 1024 * 1024;

#[derive(Clone, PartialEq)]
pub struct Definition {
    pub name: PluginName,
    /// The number of the definition: it grows with each change. 0: it was put there by other means.
    pub rev: i64,
    /// Who has changed it last, in words.
    pub by: Option<String>,
    pub at: Option<DateTime>,
    /// What was defined, as it is stored.
    definition: Document,
}

#[derive(Clone, PartialEq)]
pub struct NewDefinition {
    pub name: PluginName,
    definition: Document,
}

/// A definition cannot be used, or was not stored.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    #[error("_id: expected the name of a plugin")]
    NoName,
    #[error("_id: {0}")]
    Name(#[from] PluginNameError),
    #[error("_id: '{found}' is not the name of this worker, '{expected}'")]
    OtherName { expected: PluginName, found: String },
    #[error(transparent)]
    Definition(#[from] ManifestError),
    /// It has the name of a plugin that comes with Disbatch, and so may be on every node.
    #[error("_id: '{0}' is a plugin that comes with Disbatch")]
    Shipped(PluginName),
    #[error("the definition has more than {LARGEST} bytes")]
    TooLarge,
    #[error("there may be {MOST} workers, and this would make {0}")]
    TooMany(usize),
    #[error("all workers together may have {MOST_BYTES} bytes, and this would make {0}")]
    TooMuch(usize),
    #[error("there is a worker '{0}' already")]
    NameTaken(PluginName),
    #[error("no worker '{0}'")]
    Missing(PluginName),
    /// Somebody else has changed it since, or does all the time.
    #[error("the worker was changed meanwhile: its revision is {0}. Nothing is changed")]
    Changed(i64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Definition {
    pub fn read(mut document: Document) -> Result<Self, DefinitionError> {
        let name = match document.remove("_id") {
            Some(Bson::String(name)) => name.parse()?,
            _ => return Err(DefinitionError::NoName),
        };
        Ok(Self {
            name,
            rev: document.remove("rev").as_ref().and_then(whole_number).unwrap_or_default(),
            by: match document.remove("by") {
                Some(Bson::String(by)) => Some(by),
                _ => None, // Nobody has said so.
            },
            at: document.remove("at").and_then(|at| at.as_datetime().copied()),
            definition: without_bookkeeping(document),
        })
    }

    /// Reads what [`Definition::to_raw`] made.
    pub fn of_raw(raw: &RawDocumentBuf) -> Result<Self, DefinitionError> {
        Self::read(Document::try_from(raw).unwrap_or_default())
    }

    /// What runners are told of it.
    pub fn to_raw(&self) -> RawDocumentBuf {
        let document = with(doc! { "_id": self.name.as_str() }, self.definition.clone());
        // A document that was read can be written.
        RawDocumentBuf::try_from(&document).unwrap_or_default()
    }

    pub fn manifest(&self) -> Result<Manifest, ManifestError> {
        manifest(&self.name, &self.definition)
    }

    /// What was defined, with all that is secret in it.
    pub fn definition(&self) -> Value {
        json(&Bson::Document(self.definition.clone()))
    }

    /// Whether it is already what is to be stored.
    pub fn defines(&self, other: &NewDefinition) -> bool {
        self.definition == other.definition
    }
}

disbatch_values::not_shown!(Definition, this => "Definition({}, revision {}, not shown)", this.name, this.rev);

impl NewDefinition {
    /// Reads what somebody wants to be stored, for the worker `name` if that is known from elsewhere. What documents of
    /// other databases have of their own, like `_rev`, is left out, and so is what is secret in the jobs of another scheduler.
    pub fn read(name: Option<PluginName>, fields: &Map<String, Value>) -> Result<Self, DefinitionError> {
        let is_lex = fields.contains_key(LEX);
        // In the other form, the name inside is a title for people.
        let given = fields.get("_id").or_else(|| fields.get("name").filter(|_| !is_lex));
        let name = match (name, given) {
            (Some(name), None) => name,
            (None, Some(Value::String(given))) => given.parse()?,
            (Some(expected), Some(given)) => match given.as_str() {
                Some(same) if same == expected.as_str() => expected,
                other => {
                    let found = other.map_or_else(|| given.to_string(), str::to_owned);
                    return Err(DefinitionError::OtherName { expected, found });
                }
            },
            (None, _) => return Err(DefinitionError::NoName),
        };
        if Plugins::is_shipped(&name) {
            return Err(DefinitionError::Shipped(name));
        }
        let mut definition = without_bookkeeping(to_document(fields));
        definition.remove("name");
        if let Some(Bson::Document(worker)) = definition.get_mut(LEX) {
            lex::drop_secure(worker);
        }
        let new = Self { name, definition };
        let manifest = new.manifest()?;
        if let Some(Err(error)) = manifest.params.as_ref().map(Schema::compile) {
            return Err(ManifestError::invalid("params", error.to_string()).into());
        }
        if let Some(unknown) = manifest.unknown_keys.first() {
            return Err(ManifestError::invalid(unknown, "is unknown").into());
        }
        if new.bytes() > LARGEST { Err(DefinitionError::TooLarge) } else { Ok(new) }
    }

    /// How many bytes MongoDB stores of it, but for some that every worker has.
    fn bytes(&self) -> usize {
        bson::serialize_to_vec(&self.definition).map_or(usize::MAX, |bytes| bytes.len())
    }

    /// Whether it is written as another scheduler has it.
    pub fn is_foreign(&self) -> bool {
        self.definition.contains_key(LEX)
    }

    /// The plugin that it defines: one, or it would not have been read.
    pub fn manifest(&self) -> Result<Manifest, ManifestError> {
        manifest(&self.name, &self.definition)
    }
}

disbatch_values::not_shown!(NewDefinition, this => "NewDefinition({}, not shown)", this.name);

/// The manifests of those workers that have one. What is wrong with the others is logged.
pub fn manifests<'a>(workers: impl IntoIterator<Item = &'a Definition>) -> Vec<Manifest> {
    let manifest = |worker: &Definition| {
        let manifest = worker.manifest();
        manifest.inspect_err(|error| tracing::warn!(worker = %worker.name, %error, "ignoring a worker")).ok()
    };
    workers.into_iter().filter_map(manifest).collect()
}

fn manifest(name: &PluginName, definition: &Document) -> Result<Manifest, ManifestError> {
    let value = match definition.get(LEX) {
        Some(worker) => {
            if let Some(other) = definition.keys().find(|key| *key != LEX) {
                return Err(ManifestError::invalid(other, format!("is not to be set beside {LEX}")));
            }
            lex::manifest(name, json(worker))?
        }
        None => {
            let mut value = json(&Bson::Document(definition.clone()));
            value["name"] = Value::from(name.as_str());
            value
        }
    };
    let mut manifest = Manifest::from_value(value)?;
    bounds::check(&manifest)?;
    if let Some(template) = &mut manifest.template {
        // Forms begin with it, and are for whoever may submit tasks.
        manage::drop_secrets(&mut template.params);
        manage::drop_secrets(&mut template.options);
    }
    Ok(manifest)
}

/// The fields that are neither ours nor of a database that the document was in before.
fn without_bookkeeping(document: Document) -> Document {
    let is_defined = |name: &str| !OURS.contains(&name) && !name.starts_with('_');
    document.into_iter().filter(|(name, _)| is_defined(name)).collect()
}

/// What is stored as JSON. A shell of MongoDB writes whole numbers as doubles.
fn json(value: &Bson) -> Value {
    match value {
        Bson::Double(_) => match whole_number(value) {
            Some(whole) => Value::from(whole),
            None => value.clone().into_relaxed_extjson(),
        },
        Bson::Array(items) => items.iter().map(json).collect(),
        Bson::Document(document) => {
            Value::Object(document.iter().map(|(key, value)| (key.clone(), json(value))).collect())
        }
        other => other.clone().into_relaxed_extjson(),
    }
}

impl Store {
    /// All workers by name. One without a name of a plugin is logged and left out, and so is one that is larger than
    /// [`LARGEST`]. For a user of MongoDB that may not read them, as one of a time before there were any, there are none.
    #[operation]
    pub async fn workers(&self) -> Result<Vec<Definition>, StoreError> {
        Ok(StoreError::unless_forbidden(self.fitting_workers().await)?.unwrap_or_default())
    }

    /// One worker, however large it is: it can be changed and removed.
    #[operation]
    pub async fn worker(&self, name: &PluginName) -> Result<Option<Definition>, StoreError> {
        let workers = self.worker_collection();
        let found = workers.find(doc! { "_id": name.as_str() }).sort(doc! { "_id": 1 });
        let found = StoreError::unless_forbidden(collect(found).await)?;
        Ok(found.and_then(|mut found| found.pop()).and_then(readable))
    }

    /// A small value for all workers, which is another one when one of them has changed; save for what somebody has changed by
    /// hand, without another `rev`, and that has the same length.
    #[operation]
    pub async fn workers_mark(&self) -> Result<Bson, StoreError> {
        let marks = collect(self.worker_collection().aggregate(Definition::mark())).await;
        let mark = StoreError::unless_forbidden(marks)?.and_then(|mut marks| marks.pop());
        Ok(mark.and_then(|mut mark| mark.remove("mark")).unwrap_or(Bson::Null))
    }
}

fn readable(worker: Document) -> Option<Definition> {
    let worker = Definition::read(worker);
    worker.inspect_err(|error| tracing::warn!(%error, "ignoring a worker that cannot be read")).ok()
}

#[cfg(test)]
mod tests;
