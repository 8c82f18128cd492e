//! The same for programs without an asynchronous runtime. Not for use within one: it panics there.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use serde::Serialize;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::{Error, Event, OutputStream, Result, Settings, Source, Task, Traceparent};

/// Speaks to a DCI. Copies share its connections, and may be used by several threads.
#[derive(Debug, Clone)]
pub struct Client {
    client: crate::Client,
    runtime: Arc<Runtime>,
}

/// What comes one after the other, each when it is there.
pub struct Items<T> {
    stream: BoxStream<'static, Result<T>>,
    runtime: Arc<Runtime>,
}

impl<T> Iterator for Items<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        self.runtime.block_on(self.stream.next())
    }
}

impl Client {
    /// As [`crate::Client::new`].
    pub fn new(settings: Settings) -> Result<Self> {
        // One thread looks after connections that nobody uses at the moment.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| Error::Invalid(format!("there can be no runtime: {error}")))?;
        Ok(Self { client: crate::Client::new(settings)?, runtime: Arc::new(runtime) })
    }

    /// As [`crate::Client::with_traceparent`].
    #[must_use]
    pub fn with_traceparent(&self, value: impl Traceparent) -> Self {
        Self { client: self.client.with_traceparent(value), runtime: Arc::clone(&self.runtime) }
    }
}

/// Each waits for what the method of the same name returns.
macro_rules! methods {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        impl Client {
            $(
                #[doc = concat!("As [`crate::Client::", stringify!($name), "`].")]
                pub fn $name(&self, $($argument: $kind),*) -> Result<$result> {
                    self.runtime.block_on(self.client.$name($($argument),*))
                }
            )*
        }
    };
}

macro_rules! streams {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $item:ty;)*) => {
        impl Client {
            $(
                #[doc = concat!("As [`crate::Client::", stringify!($name), "`].")]
                pub fn $name(&self, $($argument: $kind),*) -> Items<$item> {
                    Items { stream: self.client.$name($($argument),*), runtime: Arc::clone(&self.runtime) }
                }
            )*
        }
    };
}

streams! {
    fn list(filters: impl Serialize, limit: Option<usize>) -> Task;
    fn follow_output(id: &str, stream: OutputStream, attempt: Option<u32>) -> Vec<u8>;
    fn events(id: &str, after: Option<&str>) -> Event;
}

methods! {
    fn submit(queue: &str, params: impl Serialize, options: impl Serialize) -> String;
    fn submit_many(queue: &str, params: impl IntoIterator<Item = impl Serialize>, options: impl Serialize) -> Vec<String>;
    fn get(id: &str) -> Task;
    fn wait(id: &str, timeout: Option<Duration>) -> Task;
    fn result(id: &str, timeout: Option<Duration>) -> Value;
    fn cancel(id: &str, reason: Option<&str>) -> Value;
    fn retry(id: &str, reason: Option<&str>) -> Value;
    fn rerun(id: &str, options: impl Serialize) -> Value;
    fn rerun_array(id: &str, options: impl Serialize) -> Value;
    fn answer(id: &str, value: impl Serialize) -> Value;
    fn explain(id: &str) -> Value;
    fn output(id: &str, stream: OutputStream, attempt: Option<u32>) -> Vec<u8>;
    fn queues() -> Vec<Value>;
    fn queue(name: &str) -> Value;
    fn create_queue(name: &str, plugin: &str, settings: impl Serialize) -> String;
    fn update_queue(name: &str, settings: impl Serialize) -> ();
    fn delete_queue(name: &str) -> ();
    fn pause(queue: &str, reason: Option<&str>) -> ();
    fn resume(queue: &str) -> ();
    fn schedules(filters: impl Serialize) -> Vec<Value>;
    fn schedule(name: &str) -> Value;
    fn create_schedule(name: &str, queue: &str, fields: impl Serialize) -> Value;
    fn update_schedule(name: &str, fields: impl Serialize) -> Value;
    fn delete_schedule(name: &str) -> ();
    fn pause_schedule(name: &str) -> Value;
    fn resume_schedule(name: &str) -> Value;
    fn run_schedule(name: &str) -> String;
    fn files(name: Option<&str>) -> Vec<Value>;
    fn put_files(name: &str, source: impl Into<Source>, options: impl Serialize) -> Value;
    fn get_files(name: &str, folder: impl AsRef<Path>, version: Option<u64>, prefix: Option<&str>) -> Value;
    fn version() -> String;
    fn check() -> String;
    fn request(method: &str, path: &str, query: impl Serialize, body: impl Serialize) -> Value;
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_clients_have_the_same_methods() {
        let public =
            |text: &str| text.matches("\n    pub async fn ").count() + text.matches("\n    pub fn ").count();
        let own = include_str!("blocking.rs").split("#[cfg(test)]").next().unwrap_or_default();
        let (theirs, ours) =
            (public(include_str!("client.rs")), own.matches("\n    fn ").count() + public(own));
        // The iterator's is none of the client.
        assert_eq!(ours - 1, theirs);
        assert!(theirs > 30, "{theirs}");
    }
}
