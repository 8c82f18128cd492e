//! Changes of tasks, from the server's log of changes and in its order.

use bson::{Bson, Document, Timestamp};
use mongodb::Collection;
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use mongodb::error::Error;
use mongodb::options::ChangeStreamOptions;

use crate::store::Store;
use crate::store::collections::TASKS;

/// What tells of them. Where the collection is dropped or renamed, as `mongorestore --drop` does, the server ends that without an error: it
/// goes on right behind.
#[derive(Debug)]
pub(crate) struct Changes {
    tasks: Collection<Document>,
    pipeline: Vec<Document>,
    options: ChangeStreamOptions,
    stream: ChangeStream<Document>,
}

impl Changes {
    pub(crate) async fn open(
        store: &Store,
        pipeline: Vec<Document>,
        options: ChangeStreamOptions,
    ) -> Result<Self, Error> {
        let tasks = store.database().collection::<Document>(TASKS.name);
        let stream = watch(&tasks, &pipeline, &options).await?;
        Ok(Self { tasks, pipeline, options, stream })
    }

    /// The next one, if there is one by now.
    pub(crate) async fn next(&mut self) -> Result<Option<Document>, Error> {
        let next = self.stream.next_if_any().await?;
        if next.is_none() && !self.stream.is_alive() {
            let last = self.place().as_ref().and_then(text_of);
            let ended = last.as_deref().and_then(time_of);
            self.options.resume_after = None;
            self.options.start_at_operation_time =
                ended.map(|at| Timestamp { increment: at.increment.saturating_add(1), ..at });
            self.stream = watch(&self.tasks, &self.pipeline, &self.options).await?;
        }
        Ok(next)
    }

    /// After all that [`Changes::next`] returned, and after what the pipeline left out.
    pub(crate) fn place(&self) -> Option<ResumeToken> {
        self.stream.resume_token()
    }
}

async fn watch(
    tasks: &Collection<Document>,
    pipeline: &[Document],
    options: &ChangeStreamOptions,
) -> Result<ChangeStream<Document>, Error> {
    let stream = tasks.watch().pipeline(pipeline.to_vec()).with_options(options.clone()).await?;
    Ok(stream.with_type())
}

/// A place as a word of hexadecimal digits.
pub(crate) fn text_of(place: &ResumeToken) -> Option<String> {
    match bson::serialize_to_bson(place).ok()? {
        Bson::Document(token) => token.get_str("_data").ok().map(str::to_owned),
        _ => None, // No server makes any other.
    }
}

/// The time that a place begins with, as an index has it: its type, seconds, and a number.
pub(crate) fn time_of(place: &str) -> Option<Timestamp> {
    let (kind, rest) = place.split_at_checked(2)?;
    let (time, rest) = rest.split_at_checked(8)?;
    let increment = rest.get(..8)?;
    let number = |digits: &str| u32::from_str_radix(digits, 16).ok();
    (kind == "82").then_some(Timestamp { time: number(time)?, increment: number(increment)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_begins_with_its_time() {
        let place = "8269226F0B000000012B042C0100296E5A1004";
        assert_eq!(time_of(place), Some(Timestamp { time: 0x6922_6F0B, increment: 1 }));
        for odd in ["", "82", "8369226F0B00000001", "8269226F0B", "82é"] {
            assert_eq!(time_of(odd), None, "{odd}");
        }
    }
}
