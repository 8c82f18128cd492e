//! What is asked of the server when somebody wants to know whether all is well: rights, indexes, members of the replica set, disk,
//! schedules that are late. None of it reads tasks.

mod faults;
mod rights;

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;

use crate::model::whole_number;
use crate::store::collections::SCHEDULES;
use crate::store::{Store, StoreError};

pub(crate) use faults::Wanted;
pub use faults::{Fault, IndexFault};
pub use rights::Missing;

/// The server is asked for what it knows anyway, but may have to wait for a lock.
const PATIENCE: Duration = Duration::from_secs(5);

/// At most so many schedules are named.
const MOST: i64 = 100;

/// A member of the replica set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its host and port.
    pub name: String,
    /// What it is, in the server's word: `PRIMARY`, `SECONDARY`, `(not reachable/healthy)`.
    pub state: String,
    /// Whether the member that was asked hears of it.
    pub healthy: bool,
    /// How far it is behind the primary; nothing for those that keep no data, and while there is no primary.
    pub lag: Option<Duration>,
}

impl Member {
    fn all(status: &Document) -> Vec<Self> {
        let members: Vec<&Document> =
            status.get_array("members").into_iter().flatten().filter_map(Bson::as_document).collect();
        let is =
            |member: &Document, state: &str| member.get_str("stateStr").is_ok_and(|found| found == state);
        let date = |member: &Document| member.get_datetime("optimeDate").ok().copied();
        let newest = members.iter().find(|member| is(member, "PRIMARY")).and_then(|primary| date(primary));
        let lag = |member: &Document| {
            let behind = newest?.timestamp_millis() - date(member)?.timestamp_millis();
            // Others stand still, and say so by their state.
            is(member, "SECONDARY").then(|| Duration::from_millis(u64::try_from(behind).unwrap_or(0)))
        };
        let one = |member: &&Document| Self {
            name: member.get_str("name").unwrap_or_default().to_owned(),
            state: member.get_str("stateStr").unwrap_or_default().to_owned(),
            healthy: member.get("health").and_then(whole_number) == Some(1),
            lag: lag(member),
        };
        members.iter().map(one).collect()
    }
}

/// The file system that the server keeps its data on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// Bytes.
    pub total: u64,
    /// Bytes.
    pub used: u64,
}

impl Store {
    /// The members of the replica set. `None`: this user may not ask, or there is none.
    #[operation]
    pub async fn replica_members(&self) -> Result<Option<Vec<Member>>, StoreError> {
        let admin = self.database().client().database("admin");
        match admin.run_command(doc! { "replSetGetStatus": 1 }).await.map_err(StoreError::from) {
            Ok(status) => Ok(Some(Member::all(&status))),
            Err(error) if error.is_transient() => Err(error),
            // It is forbidden, or the server is none of a replica set.
            Err(_) => Ok(None),
        }
    }

    /// The disk of the server. `None`: this user may not ask, or the server does not tell.
    #[operation]
    pub async fn server_disk(&self) -> Result<Option<Disk>, StoreError> {
        match self.database().run_command(doc! { "dbStats": 1 }).await.map_err(StoreError::from) {
            Ok(stats) => {
                let bytes =
                    |name: &str| stats.get(name).and_then(whole_number).and_then(|n| u64::try_from(n).ok());
                let disk = || Some(Disk { total: bytes("fsTotalSize")?, used: bytes("fsUsedSize")? });
                Ok(disk().filter(|disk| disk.total > 0))
            }
            Err(error) if error.is_forbidden() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names of schedules that should have fired longer ago than `late`, and when.
    #[operation]
    pub async fn late_schedules(&self, late: Duration) -> Result<Vec<(String, DateTime)>, StoreError> {
        let late = i64::try_from(late.as_millis()).unwrap_or(i64::MAX);
        let filter = doc! {
            "next": { "$type": "date" }, "$expr": { "$lt": ["$next", { "$subtract": ["$$NOW", late] }] },
        };
        let schedules = self.database().collection::<Document>(SCHEDULES.name);
        let found =
            schedules.find(filter).projection(doc! { "name": 1, "next": 1 }).limit(MOST).max_time(PATIENCE);
        let found: Vec<Document> = found.await?.try_collect().await?;
        let one = |schedule: Document| {
            let name = match schedule.get("name") {
                Some(Bson::String(name)) => name.clone(),
                other => other.map(ToString::to_string).unwrap_or_default(),
            };
            Some((name, *schedule.get_datetime("next").ok()?))
        };
        Ok(found.into_iter().filter_map(one).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_as_far_behind_as_their_last_operation_is_older() {
        let at = |seconds: i64| DateTime::from_millis(1_795_163_067_000 + seconds * 1_000);
        let status = doc! { "members": [
            { "name": "a:1", "stateStr": "PRIMARY", "health": 1.0, "optimeDate": at(0) },
            { "name": "b:1", "stateStr": "SECONDARY", "health": 1.0, "optimeDate": at(-90) },
            { "name": "c:1", "stateStr": "(not reachable/healthy)", "health": 0.0, "optimeDate": DateTime::from_millis(0) },
            { "name": "d:1", "stateStr": "ARBITER", "health": 1.0 },
            "odd",
        ] };
        let members = Member::all(&status);
        let lags: Vec<Option<u64>> =
            members.iter().map(|member| member.lag.map(|lag| lag.as_secs())).collect();
        assert_eq!(lags, [None, Some(90), None, None]);
        assert_eq!(
            members
                .iter()
                .filter(|member| !member.healthy)
                .map(|member| &member.name[..])
                .collect::<Vec<_>>(),
            ["c:1"]
        );
        assert_eq!(Member::all(&doc! {}), []);
    }
}
