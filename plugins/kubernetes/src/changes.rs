//! What happens to objects of a cluster, whatever happens to the connection.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{self, LocalBoxStream};
use futures::{Stream, StreamExt};
use kube::api::{ListParams, WatchParams};
use kube::core::WatchEvent;
use kube::{Api, Error, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use super::cluster::{PATIENCE, Pauses, describe, in_time, is_passing, is_refusal, is_too_old};

/// After so many seconds the cluster ends a watch, which is begun again.
const WATCH: u32 = 120;

/// So much later a watch that has not ended is taken for dead.
const MARGIN: Duration = Duration::from_secs(15);

/// A watch that was shorter had something in its way.
const SHORT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub enum Change<K> {
    /// All that there are. Others that were there are gone.
    All(Vec<K>),
    /// A new one, or one that has changed.
    One(K),
    /// One that is gone, as it was seen last.
    Gone(K),
    /// The cluster cannot be asked now, and why.
    Trouble(String),
}

/// All changes from now on of what `which` finds, beginning with all that there are. Ends with the first error that does not pass.
pub fn changes<K>(api: Api<K>, which: ListParams) -> impl Stream<Item = Result<Change<K>, Error>>
where
    K: Resource + Clone + DeserializeOwned + Debug + 'static,
{
    let (begun, pauses) = (Instant::now(), Pauses::default());
    let watch =
        Watch { api, which, version: None, events: None, begun, pauses, has_listed: false, refused: None };
    stream::try_unfold(watch, |mut watch: Watch<K>| async move {
        let next = watch.next().await;
        next.map(|change| Some((change, watch)))
    })
}

struct Watch<K> {
    api: Api<K>,
    which: ListParams,
    /// What was seen last. `None`: nothing that the cluster could go on from.
    version: Option<String>,
    events: Option<LocalBoxStream<'static, Result<WatchEvent<K>, Error>>>,
    begun: Instant,
    pauses: Pauses,
    /// Whether it was allowed to look.
    has_listed: bool,
    /// Since when that is refused.
    refused: Option<Instant>,
}

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + 'static,
{
    async fn next(&mut self) -> Result<Change<K>, Error> {
        loop {
            let step = match (self.events.is_some(), self.version.clone()) {
                (true, _) => self.event().await,
                (false, Some(version)) => self.begin(&version).await.map(|()| None),
                (false, None) => self.list().await.map(Some),
            };
            if step.is_ok() {
                self.refused = None;
            }
            let error = match step {
                Ok(Some(change)) => return Ok(change),
                Ok(None) => continue,
                Err(error) => error,
            };
            self.events = None;
            if is_too_old(&error) {
                self.version = None;
                self.pauses.pause().await;
                continue;
            }
            if !is_passing(&error) && !self.may_pass(&error) {
                return Err(error);
            }
            self.pauses.pause().await;
            return Ok(Change::Trouble(describe(&error)));
        }
    }

    /// Whether a refusal may be a mistake that is put right, as what is asked was allowed before: of a token that is renewed, say. For a while.
    fn may_pass(&mut self, error: &Error) -> bool {
        self.has_listed
            && is_refusal(error)
            && self.refused.get_or_insert_with(Instant::now).elapsed() < PATIENCE
    }

    async fn list(&mut self) -> Result<Change<K>, Error> {
        let found = in_time(self.api.list(&self.which)).await?;
        self.has_listed = true;
        self.version = Some(found.metadata.resource_version.unwrap_or_default());
        Ok(Change::All(found.items))
    }

    async fn begin(&mut self, version: &str) -> Result<(), Error> {
        let params = WatchParams {
            label_selector: self.which.label_selector.clone(),
            field_selector: self.which.field_selector.clone(),
            timeout: Some(WATCH),
            ..WatchParams::default()
        };
        self.events = Some(in_time(self.api.watch(&params, version)).await?.boxed_local());
        self.begun = Instant::now();
        Ok(())
    }

    async fn event(&mut self) -> Result<Option<Change<K>>, Error> {
        let Some(events) = &mut self.events else { return Ok(None) };
        let longest = Duration::from_secs(u64::from(WATCH)) + MARGIN;
        let event = timeout(longest, events.next()).await;
        let Ok(Some(event)) = event else {
            // The usual end of a watch. Where it is that of a server, all of its clients come back at once.
            self.events = None;
            if self.begun.elapsed() > SHORT {
                self.pauses.reset();
            }
            self.pauses.pause().await;
            return Ok(None);
        };
        let change = match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.version = object.meta().resource_version.clone();
                Some(Change::One(object))
            }
            WatchEvent::Deleted(object) => {
                self.version = object.meta().resource_version.clone();
                Some(Change::Gone(object))
            }
            WatchEvent::Bookmark(bookmark) => {
                self.version = Some(bookmark.metadata.resource_version);
                None
            }
            WatchEvent::Error(status) => return Err(Error::Api(status)),
        };
        self.pauses.reset();
        Ok(change)
    }
}
