//! What is asked of the server when somebody wants to know whether all is well: rights, indexes, members of the replica set, disk,
//! schedules that are late. None of it reads tasks.

use std::time::Duration;

use bson::{DateTime, Document, doc};
use disbatch_operation::operation;

use crate::config::Role;
use crate::model::{as_text, whole_number};
use crate::schedules::LONGEST_JITTER;
use crate::store::collections::{self, SCHEDULES, of_all};
use crate::store::{Store, StoreError, between, collect, count_of, documents_in, millis};

/// The server is asked for what it knows anyway, but may have to wait for a lock.
const PATIENCE: Duration = Duration::from_secs(5);

/// At most so many schedules are named.
const MOST: i64 = 100;

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
        let members: Vec<&Document> = documents_in(status, "members").collect();
        let is =
            |member: &Document, state: &str| member.get_str("stateStr").is_ok_and(|found| found == state);
        let date = |member: &Document| member.get_datetime("optimeDate").ok().copied();
        let newest = members.iter().find(|member| is(member, "PRIMARY")).and_then(|primary| date(primary));
        let lag = |member: &Document| {
            let behind = between(date(member)?, newest?);
            // Others stand still, and say so by their state.
            is(member, "SECONDARY").then_some(behind)
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexFault {
    pub collection: &'static str,
    /// Its name, which MongoDB makes of its fields.
    pub index: String,
    pub fault: Fault,
    /// Whether more than speed depends on it: it keeps limits, or Disbatch 4 has it.
    pub grave: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Missing,
    /// Nothing is found by it until it has been built.
    Building,
    /// Two documents may have the same, which it is there to prevent.
    NotUnique,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Its name; none for all collections of the database.
    pub collection: Option<&'static str>,
    /// As MongoDB calls them: `find`, `createIndex`.
    pub actions: Vec<&'static str>,
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
        let stats = self.database().run_command(doc! { "dbStats": 1 }).await;
        let Some(stats) = StoreError::unless_forbidden(stats)? else { return Ok(None) };
        let bytes = |name: &str| count_of(&stats, name);
        let disk = || Some(Disk { total: bytes("fsTotalSize")?, used: bytes("fsUsedSize")? });
        Ok(disk().filter(|disk| disk.total > 0))
    }

    /// The names of schedules that should have fired longer ago than `late`, and for which time. One that cannot fire is looked at again each
    /// minute (`next`), and stays due for the same (`next_for`), after which it may wait for its jitter.
    #[operation]
    pub async fn late_schedules(&self, late: Duration) -> Result<Vec<(String, DateTime)>, StoreError> {
        let is_date = doc! { "$eq": [{ "$type": "$next_for" }, "date"] };
        let due = doc! { "$cond": [is_date, "$next_for", "$next"] };
        let jitter = doc! { "$convert": { "input": "$jitter", "to": "long", "onError": 0, "onNull": 0 } };
        let jitter = doc! { "$max": [0, { "$min": [jitter, LONGEST_JITTER] }] };
        let late = doc! { "$add": [millis(late), { "$multiply": [1000, jitter] }] };
        let latest = doc! { "$subtract": ["$$NOW", late] };
        let filter = doc! { "next": { "$type": "date" }, "$expr": { "$lt": [due, latest] } };
        let schedules = self.database().collection::<Document>(SCHEDULES.name);
        let only = doc! { "name": 1, "next": 1, "next_for": 1 };
        let found = collect(schedules.find(filter).projection(only).limit(MOST).max_time(PATIENCE)).await?;
        let one = |schedule: Document| {
            let name = schedule.get("name").map(as_text).unwrap_or_default();
            let due = schedule.get_datetime("next_for").or_else(|_| schedule.get_datetime("next"));
            Some((name, *due.ok()?))
        };
        Ok(found.into_iter().filter_map(one).collect())
    }

    /// The declared indexes that are missing, are being built, or are not unique although they should be, and the collections of
    /// which this user may not ask.
    #[operation]
    pub async fn index_faults(&self) -> Result<(Vec<IndexFault>, Vec<&'static str>), StoreError> {
        let (mut faults, mut unseen) = (Vec::new(), Vec::new());
        for collection in collections::ALL {
            let declared = self.declared_indexes(collection);
            if declared.is_empty() {
                continue;
            }
            let there = self.indexes_of(collection.name).await;
            let Some(there) = StoreError::unless_forbidden(there)? else {
                unseen.push(collection.name);
                continue;
            };
            // One that was never written to has none, which nobody misses.
            if !there.is_empty() {
                faults.extend(declared.into_iter().filter_map(|index| {
                    let (fault, collection) = (fault_of(&index.keys, index.unique, &there)?, collection.name);
                    Some(IndexFault { collection, index: index.name(), fault, grave: index.is_grave() })
                }));
            }
        }
        Ok((faults, unseen))
    }

    /// Which rights of `role` the user of this connection lacks. `None`: it is nobody, as the server asks nobody who they are.
    #[operation]
    pub async fn missing_rights(&self, role: Role) -> Result<Option<Vec<Missing>>, StoreError> {
        let status =
            self.database().run_command(doc! { "connectionStatus": 1, "showPrivileges": true }).await?;
        let info = status.get_document("authInfo").cloned().unwrap_or_default();
        if info.get_array("authenticatedUsers").map_or(0, Vec::len) == 0 {
            return Ok(None);
        }
        let privileges: Vec<&Document> = documents_in(&info, "authenticatedUserPrivileges").collect();
        Ok(Some(missing(&privileges, self.database_name(), role)))
    }
}

/// What is wrong with an index with these fields among those that are there.
fn fault_of(keys: &Document, unique: bool, there: &[Document]) -> Option<Fault> {
    let is_it = |index: &Document| index.get_document("key").is_ok_and(|found| found.keys().eq(keys.keys()));
    let is_unique = |index: &Document| index.get_bool("unique").is_ok_and(|unique| unique);
    let mut found = there.iter().filter(|index| is_it(index)).peekable();
    let built = found.peek().is_some();
    if built && (!unique || found.any(is_unique)) {
        return None;
    }
    let mut building = there.iter().filter_map(|index| index.get_document("spec").ok());
    Some(match (building.any(is_it), built) {
        (true, _) => Fault::Building,
        (false, true) => Fault::NotUnique,
        (false, false) => Fault::Missing,
    })
}

fn missing(privileges: &[&Document], database: &str, role: Role) -> Vec<Missing> {
    let lacking = |collection: Option<&'static str>, actions: &[&'static str]| {
        let allowed = |action: &&&'static str| {
            privileges.iter().any(|privilege| allows(privilege, (database, collection), action))
        };
        let actions: Vec<&'static str> = actions.iter().filter(|action| !allowed(action)).copied().collect();
        (!actions.is_empty()).then_some(Missing { collection, actions })
    };
    let of_all = lacking(None, of_all(role));
    let each = collections::ALL
        .iter()
        .filter_map(|collection| lacking(Some(collection.name), collection.actions(role)));
    of_all.into_iter().chain(each).collect()
}

fn allows(privilege: &Document, (database, collection): (&str, Option<&str>), action: &str) -> bool {
    let Ok(resource) = privilege.get_document("resource") else { return false };
    let covers = |name: &str, wanted: Option<&str>| match resource.get_str(name) {
        // Which stands for all of them.
        Ok("") => true,
        Ok(found) => wanted == Some(found),
        Err(_) => false,
    };
    let is_any = resource.get_bool("anyResource").is_ok_and(|any| any);
    let covers = is_any || (covers("db", Some(database)) && covers("collection", collection));
    covers
        && privilege
            .get_array("actions")
            .is_ok_and(|actions| actions.iter().any(|one| one.as_str() == Some(action)))
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

    #[test]
    fn an_index_is_there_when_it_has_been_built_and_keeps_what_it_should() {
        let keys = doc! { "a": 1, "b": 1 };
        let id = doc! { "key": { "_id": 1 } };
        let there = doc! { "key": { "a": 1, "b": -1 } };
        let unique = doc! { "key": { "a": 1, "b": 1 }, "unique": true };
        let building = doc! { "spec": { "key": { "a": 1, "b": 1 } }, "buildUUID": "u" };
        for (is_unique, indexes, fault) in [
            (false, vec![id.clone()], Some(Fault::Missing)),
            (false, vec![id.clone(), there.clone()], None),
            (true, vec![there.clone()], Some(Fault::NotUnique)),
            (true, vec![there.clone(), unique.clone()], None),
            (true, vec![there, building.clone()], Some(Fault::Building)),
            (false, vec![id, building], Some(Fault::Building)),
            (true, vec![unique], None),
        ] {
            assert_eq!(fault_of(&keys, is_unique, &indexes), fault, "{indexes:?}");
        }
    }

    #[test]
    fn rights_are_those_of_the_database_of_a_collection_or_of_all() {
        let on = |db: &str, collection: &str, actions: &[&str]| {
            doc! { "resource": { "db": db, "collection": collection }, "actions": actions.to_vec() }
        };
        let all = doc! { "resource": { "anyResource": true }, "actions": ["find"] };
        for (privilege, of, allowed) in [
            (on("d", "", &["find", "update"]), ("d", Some("tasks")), true),
            (on("d", "", &["find"]), ("d", None), true),
            (on("", "", &["find"]), ("d", None), true),
            (on("d", "tasks", &["find"]), ("d", Some("tasks")), true),
            (on("d", "tasks", &["find"]), ("d", Some("nodes")), false),
            (on("d", "tasks", &["find"]), ("d", None), false),
            (on("e", "", &["find"]), ("d", Some("tasks")), false),
            (on("d", "", &["update"]), ("d", Some("tasks")), false),
            (doc! { "resource": { "cluster": true }, "actions": ["find"] }, ("d", None), false),
            (all, ("d", None), true),
            (doc! { "actions": 5 }, ("d", None), false),
        ] {
            assert_eq!(allows(&privilege, of, "find"), allowed, "{privilege} {of:?}");
        }
    }

    #[test]
    fn what_is_missing_is_named_by_collection() {
        let read = doc! { "resource": { "db": "d", "collection": "" }, "actions": ["changeStream", "collStats", "find"] };
        let missing = missing(&[&read], "d", Role::DisbatchWeb);
        assert!(missing.iter().all(|missing| missing.collection.is_some()), "{missing:?}");
        let of_tasks = missing.iter().find(|missing| missing.collection == Some("tasks")).unwrap();
        assert!(of_tasks.actions.contains(&"insert") && !of_tasks.actions.contains(&"find"), "{of_tasks:?}");
        let nobody = super::missing(&[], "d", Role::DisbatchWeb);
        assert_eq!((nobody[0].collection, &nobody[0].actions[..]), (None, of_all(Role::DisbatchWeb)));
    }
}
