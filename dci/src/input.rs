//! What is read of requests, and what is shown of documents and of output: for tests that make both up. Nothing here
//! needs a database, and nothing else of this crate can be reached through it.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::{DateTime, Document};
use disbatch_core::bulk::BulkJob;
use disbatch_core::model::Queue;
use disbatch_core::output::{OutputEnd, StreamName};
use disbatch_core::task::{TaskOptions, TaskQuery};
use serde_json::{Map, Value};

use crate::api::create_tasks;
use crate::error::HttpError;
use crate::params::Params;
use crate::query::{self, Listing, collection_filter};
use crate::{bulk, fields, json, ui, values};

pub use crate::json::Dates;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub status: u16,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Request(Params);

/// A value as each kind of parameter that there is, as far as it can be one.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    pub flag: Option<bool>,
    pub text: Option<String>,
    /// As a number from 0 on.
    pub number: Option<f64>,
    pub seconds: Option<Duration>,
    /// As an integer from 1 on.
    pub positive: Option<i64>,
    pub time: Option<DateTime>,
    pub backoff: Option<Document>,
    pub retention: Option<Document>,
}

impl Request {
    pub fn read(media_type: &str, body: &[u8], query: &str) -> Result<Self, Refused> {
        Params::read(media_type, body, query).map(Self).map_err(refused)
    }

    pub fn fields(&self) -> &Map<String, Value> {
        &self.0.fields
    }

    /// The search for tasks that it asks for, where the collection has these indexes.
    pub fn search(&self, indexes: &BTreeSet<Vec<String>>) -> Result<TaskQuery, Refused> {
        let listing = Listing::parse(&self.0, indexes, None, DateTime::from_millis(0));
        listing.map(|listing| listing.query).map_err(|refusal| refused(HttpError::from(refusal)))
    }

    pub fn task_options(&self) -> Result<TaskOptions, Refused> {
        create_tasks::options::parse(&self.0).map_err(refused)
    }
}

/// A filter of the deprecated searches.
pub fn search_filter(filter: &Map<String, Value>) -> Result<Document, Refused> {
    query::search_filter(filter).map_err(refused)
}

/// A filter of documents that tasks are made of.
pub fn source_filter(filter: &Map<String, Value>) -> Result<Document, Refused> {
    collection_filter(filter).map_err(refused)
}

/// An order of the deprecated searches.
pub fn order(value: &Value) -> Result<Option<Document>, Refused> {
    query::sort(Some(value)).map_err(refused)
}

pub fn task_params(value: &Value) -> Result<Vec<Document>, Refused> {
    create_tasks::task_params(value.clone()).map_err(refused)
}

pub fn taken(value: &Value) -> Taken {
    const NAME: &str = "value";
    Taken {
        flag: values::flag(NAME, value).ok(),
        text: values::text(NAME, value).ok(),
        number: values::number(NAME, value, 0.0).ok(),
        seconds: values::seconds(NAME, value).ok(),
        positive: values::positive(NAME, value).ok(),
        time: values::time(NAME, value).ok(),
        backoff: values::backoff(NAME, value).ok(),
        retention: values::retention(NAME, value).ok(),
    }
}

/// A document of the database as clients see it.
pub fn shown(document: &Document, dates: Dates) -> Value {
    Value::Object(json::from_document(document, dates))
}

pub fn shown_task(task: Document, details: bool) -> Document {
    fields::of_task(task, details)
}

pub fn shown_node(node: Document, details: bool) -> Document {
    fields::of_node(node, details)
}

/// The details of a queue as clients see them.
pub fn shown_queue(queue: &Queue) -> Value {
    Value::Object(fields::of_queue(queue))
}

/// A bulk job as clients see it, with all ids of its filter or without.
pub fn shown_job(job: &BulkJob, whole: bool) -> Value {
    serde_json::to_value(bulk::view(job, whole)).unwrap_or_default()
}

/// JSON on one line, and over many.
pub fn written(value: &Value) -> [String; 2] {
    [json::compact(value), json::pretty(value)]
}

/// A task in a table of a page, and on a page of its own.
pub fn page_of_task(task: &Document, now: DateTime) -> Result<String, Refused> {
    let row = ui::tasks::html_of(task).map_err(refused)?;
    Ok(row + &ui::task::html_of(task, now).map_err(refused)?)
}

/// The end of the output of a task on its page.
pub fn page_of_output(task: &str, end: OutputEnd, live: bool) -> Result<String, Refused> {
    ui::task::html_of_output(task, StreamName::Stdout, end, live).map_err(refused)
}

fn refused(error: HttpError) -> Refused {
    Refused { status: error.status().as_u16(), message: error.message().to_owned() }
}
