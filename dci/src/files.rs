//! File sets as clients see them, and who may do what with them.
//!
//! A set is for those who have a role on its tenant, and one of no tenant for those who have it everywhere: a role on a queue
//! gives nothing here. Viewers read, submitters make versions and remove them. A version that is being made is for whoever has
//! opened it alone.
//!
//! Equal files are stored once, and what a content is known by can be found out by whoever has the same file, or guesses it.
//! So nobody is told of a content, or gets to name it in a version, by knowing that alone: only who has sent all of it, or may
//! read a version that has it.

mod contents;

use std::ops::Range;

use actix_web::http::StatusCode;
use bson::DateTime;
use disbatch_core::accounts::{Reach, Role};
use disbatch_core::files::{
    ContentId, ContentState, EntryPath, FileEntry, FileSet, FilesError, MOST_AT_ONCE, NewEntry, NewSet,
    RESERVED_PREFIX, Sender, SetName, SetQuery, SetState, SetSummary,
};
use disbatch_core::model::FileSetId;
use disbatch_core::store::StoreError;
use disbatch_wire::files::{
    self as wire, ChunkRange, ContentChunks, FileSearch, FileSetPage, FileSetSearch, FileSetSummary,
    FileSetVersion, NewFileSet, NewFiles,
};
use disbatch_wire::liberal::Set;
use disbatch_wire::options::field_names;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::access::Who;
use crate::error::HttpError;
use crate::json::date_text;
use crate::params::Params;
use crate::state::State;
use crate::values;
pub use contents::{Checks, respond};

/// So many sets or files are answered unless told otherwise.
const SHOWN: i64 = 100;

/// So many versions of a set are told with it.
const VERSIONS: i64 = 100;

/// A version, some of its files, and the versions that there are besides.
#[derive(Debug)]
pub struct Page {
    pub set: FileSet,
    /// Versions of the same set, the newest first.
    pub versions: Vec<FileSet>,
    pub entries: Vec<FileEntry>,
    /// The path behind which there are more.
    pub next: Option<String>,
}

/// The role of somebody on file sets of this tenant, or on those that are of none.
pub fn role_on(who: &Who, tenant: Option<&str>) -> Option<Role> {
    match tenant {
        Some(tenant) => who.rights.on_tenant(tenant),
        None => who.rights.everywhere(),
    }
}

/// Of which tenants somebody has file sets with at least this role. `None`: of all, and those of none.
pub fn tenants(who: &Who, role: Role) -> Option<Vec<String>> {
    if who.is_everywhere(role) {
        return None;
    }
    match who.reach(role) {
        Reach::Some { tenants, only: None, .. } => Some(tenants.into_iter().collect()),
        // Who is limited to some queues has no file sets.
        Reach::Some { .. } | Reach::All => Some(Vec::new()),
    }
}

/// Sees to it that somebody has at least this role on file sets of this tenant, or on those of none.
pub fn check(who: &Who, role: Role, tenant: Option<&str>) -> Result<(), HttpError> {
    if role_on(who, tenant) >= Some(role) {
        return Ok(());
    }
    Err(HttpError::forbidden(match tenant {
        Some(tenant) => format!("file sets of the tenant {tenant} need the role {role} on it"),
        None => format!("file sets of no tenant need the role {role} on all queues"),
    }))
}

pub fn may_store(who: &Who) -> Result<(), HttpError> {
    match tenants(who, Role::Submitter) {
        Some(tenants) if tenants.is_empty() => Err(HttpError::forbidden(format!(
            "to store files needs the role {} on a tenant, or on all queues",
            Role::Submitter
        ))),
        Some(_) | None => Ok(()),
    }
}

pub fn sender(who: &Who) -> Sender {
    Sender::user(who.name.as_deref())
}

/// Those of `contents` that somebody may not name in an entry.
pub async fn refused(state: &State, who: &Who, contents: &[ContentId]) -> Result<Vec<ContentId>, StoreError> {
    let readable = tenants(who, Role::Viewer);
    state.store.unreferable(contents, &sender(who), readable.as_deref()).await
}

/// There is no such set, or not for whoever asks.
pub fn not_found(name: &str) -> HttpError {
    HttpError::not_found(format!("no file set '{name}'"))
}

pub fn named(name: &str) -> Result<SetName, HttpError> {
    name.parse().map_err(|_| not_found(name))
}

/// A version that is done and that somebody has this role on: the newest one, or that with a number.
pub async fn find(
    state: &State,
    who: &Who,
    (name, version): (&str, Option<i64>),
    role: Role,
) -> Result<FileSet, HttpError> {
    let set_name = named(name)?;
    let found = match version {
        None => state.store.fileset_latest(&set_name).await?,
        Some(version) => state.store.fileset_version(&set_name, version).await?,
    };
    let readable = found.filter(|set| role_on(who, set.tenant.as_deref()) >= Some(Role::Viewer));
    let set = readable.ok_or_else(|| match version {
        None => not_found(name),
        Some(version) => HttpError::not_found(format!("no version {version} of a file set '{name}'")),
    })?;
    check(who, role, set.tenant.as_deref())?;
    Ok(set)
}

/// The version that somebody has opened. It may be done by now.
pub async fn opened(state: &State, who: &Who, id: &str) -> Result<FileSet, HttpError> {
    let none = || HttpError::not_found(format!("no version with id {id} that you have opened"));
    let id: FileSetId = id.parse().map_err(|_| none())?;
    let set = state.store.find_fileset(id).await?.ok_or_else(none)?;
    // What a task makes is made by its run, and by nobody else.
    let is_own = set.task.is_none() && set.by == who.name && set.state != SetState::Gone;
    if is_own && role_on(who, set.tenant.as_deref()) >= Some(Role::Submitter) { Ok(set) } else { Err(none()) }
}

pub fn query(who: &Who, params: &Params) -> Result<SetQuery, HttpError> {
    let FileSetSearch { after, limit } = params.search()?;
    Ok(SetQuery { tenants: tenants(who, Role::Viewer), after, limit: limit.unwrap_or(SHOWN) })
}

/// A version and its files, as the options of a [`FileSearch`] say.
pub async fn page(state: &State, who: &Who, name: &str, params: &Params) -> Result<Page, HttpError> {
    let FileSearch { version, prefix, after, limit, before } = params.search()?;
    let set = find(state, who, (name, version), Role::Viewer).await?;
    let mut versions = state.store.fileset_versions(&named(name)?, before, VERSIONS).await?;
    versions.retain(|version| version.tenant == set.tenant);
    let limit = usize::try_from(limit.unwrap_or(SHOWN)).unwrap_or(usize::MAX);
    let query = disbatch_core::files::EntryQuery {
        prefix: prefix.as_deref().unwrap_or_default(),
        after: after.as_deref(),
        limit,
    };
    let entries = state.store.fileset_entries(&set, query).await?;
    let next = entries.last().filter(|_| entries.len() >= limit).map(|last| last.path.clone());
    Ok(Page { set, versions, entries, next })
}

impl From<FilesError> for HttpError {
    fn from(error: FilesError) -> Self {
        let message = error.to_string();
        match error {
            FilesError::Store(error) => error.into(),
            FilesError::NoSuchVersion | FilesError::NotSent => Self::not_found(message),
            FilesError::NotOpen(_)
            | FilesError::OfAnotherTenant(_)
            | FilesError::PathTaken(_)
            | FilesError::Overtaken => Self::conflict(message),
            FilesError::Incomplete(missing) => {
                let body = json!({ "error": message, "missing": ranges(&missing) });
                Self::with_body(StatusCode::CONFLICT, body)
            }
            FilesError::WrongContent => Self::new(StatusCode::UNPROCESSABLE_ENTITY, message),
            FilesError::Busy => Self::unavailable(message),
            FilesError::TooManyAtOnce
            | FilesError::TooManyFiles
            | FilesError::TooLong
            | FilesError::NoSuchChunk { .. }
            | FilesError::WrongSize { .. } => Self::bad_request(message),
        }
    }
}

/// Numbers of chunks, from the first to the last of each stretch.
fn ranges(all: &[Range<u64>]) -> Vec<ChunkRange> {
    all.iter().map(|range| ChunkRange { first: range.start, last: range.end.saturating_sub(1) }).collect()
}

/// The mode of a file of which none is given.
const USUAL_MODE: u32 = 0o644;

/// What a new version of a set is to have. It is of the tenant that the option `.tenant` says; else of that of the set, if
/// there is one; else of none for those who may make sets of none, and for others of the one tenant that they have.
pub async fn new_set(state: &State, who: &Who, name: &SetName, params: &Params) -> Result<NewSet, HttpError> {
    let NewFileSet { tenant: Set(tenant), expires: Set(expires) } = params.given()?;
    let expires = expires.map(|value| values::time(".expires", &value)).transpose()?;
    let tenant = match tenant {
        Some(value) => Some(values::text(".tenant", &value)?),
        None => {
            let latest = state.store.fileset_latest(name).await?;
            let readable = latest.filter(|set| role_on(who, set.tenant.as_deref()) >= Some(Role::Viewer));
            match readable {
                Some(set) => set.tenant,
                None => own_tenant(who)?,
            }
        }
    };
    check(who, Role::Submitter, tenant.as_deref())?;
    Ok(NewSet { by: who.name.clone(), tenant, task: None, expires })
}

/// Whose a new set is if nobody says it.
fn own_tenant(who: &Who) -> Result<Option<String>, HttpError> {
    let Some(tenants) = tenants(who, Role::Submitter) else { return Ok(None) };
    match <[String; 1]>::try_from(tenants) {
        Ok([one]) => Ok(Some(one)),
        Err(none) if none.is_empty() => Ok(None),
        Err(_) => Err(HttpError::bad_request(".tenant must say for which of your tenants the file set is")),
    }
}

/// The files that a request adds to a version: an array, or an object with `entries`. Those without a time have `now`. There
/// may be none: the version is touched then.
pub fn entries(body: Value, now: DateTime) -> Result<Vec<NewEntry>, HttpError> {
    let list = match body {
        Value::Array(list) => Some(list),
        Value::Object(fields) if fields.len() == 1 => {
            NewFiles::deserialize(fields).ok().map(|new| new.entries)
        }
        _ => None, // Nothing else has several things in it.
    };
    let list = list.filter(|list| list.len() <= MOST_AT_ONCE);
    let list = list.ok_or_else(|| wrong("", &format!("a JSON array of up to {MOST_AT_ONCE} objects")))?;
    list.iter().enumerate().map(|(index, value)| entry(&format!("[{index}]"), value, now)).collect()
}

fn entry(at: &str, value: &Value, now: DateTime) -> Result<NewEntry, HttpError> {
    let fields: &Map<String, Value> = value.as_object().ok_or_else(|| wrong(at, "an object"))?;
    let known = field_names::<wire::FileEntry>();
    if let Some(unknown) = fields.keys().find(|key| !known.contains(&key.as_str())) {
        let known = known.join(", ");
        return Err(HttpError::bad_request(format!("entries{at}.{unknown} is unknown: a file has {known}")));
    }
    let field = |key: &str| fields.get(key).filter(|value| !values::is_unset(value));
    let text = |key: &str| {
        let text = field(key).and_then(Value::as_str);
        text.ok_or_else(|| wrong(&format!("{at}.{key}"), "text"))
    };
    let named =
        |key: &str, why: &dyn std::fmt::Display| HttpError::bad_request(format!("entries{at}.{key}: {why}"));
    let path = text("path")?.parse::<EntryPath>().map_err(|error| named("path", &error))?;
    if path.is_reserved() {
        let why = format!("at the top of a file set, no name may begin with {RESERVED_PREFIX}");
        return Err(named("path", &why));
    }
    let file = text("sha256")?.parse::<ContentId>().map_err(|error| named("sha256", &error))?;
    let size = field("size").and_then(Value::as_u64);
    Ok(NewEntry {
        path,
        file,
        size: size.ok_or_else(|| wrong(&format!("{at}.size"), "a number of bytes"))?,
        mode: match field("mode") {
            None => USUAL_MODE,
            Some(value) => mode(value).ok_or_else(|| {
                wrong(&format!("{at}.mode"), "text of up to three digits from 0 to 7, as \"644\"")
            })?,
        },
        mtime: match field("mtime") {
            None => now,
            Some(value) => values::time(&format!("entries{at}.mtime"), value)?,
        },
    })
}

fn mode(value: &Value) -> Option<u32> {
    let digits = value.as_str().filter(|text| text.bytes().all(|byte| (b'0'..=b'7').contains(&byte)))?;
    u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777)
}

fn wrong(at: &str, expected: &str) -> HttpError {
    HttpError::bad_request(format!("entries{at} must be {expected}"))
}

pub fn of_set(set: &FileSet) -> FileSetVersion {
    FileSetVersion {
        id: set.id.to_string(),
        name: set.name.clone(),
        version: set.version,
        state: set.state.as_str().to_owned(),
        count: set.count,
        bytes: set.bytes,
        created: date_text(set.created),
        committed: set.committed.and_then(date_text),
        expires: set.expires.and_then(date_text),
        by: set.by.clone(),
        tenant: set.tenant.clone(),
        task: set.task.map(|task| task.to_string()),
    }
}

pub fn of_summary(summary: &SetSummary) -> FileSetSummary {
    let SetSummary { latest, versions, bytes } = summary;
    FileSetSummary { newest: of_set(latest), versions: *versions, bytes_of_all: *bytes }
}

pub fn of_page(page: &Page) -> FileSetPage {
    FileSetPage {
        set: of_set(&page.set),
        entries: page.entries.iter().map(of_entry).collect(),
        next: page.next.clone(),
        versions: page.versions.iter().map(of_set).collect(),
    }
}

fn of_entry(entry: &FileEntry) -> wire::FileEntry {
    wire::FileEntry {
        path: entry.path.clone(),
        sha256: entry.file.to_string(),
        size: entry.size,
        mode: Some(format!("{:o}", entry.mode)),
        mtime: date_text(entry.mtime),
    }
}

pub fn of_chunks(id: &str, chunks: &ContentState) -> ContentChunks {
    let ContentState { length, done, missing } = chunks;
    ContentChunks { sha256: id.to_owned(), length: *length, done: *done, missing: ranges(missing) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bson::doc;
    use bson::oid::ObjectId;
    use disbatch_core::accounts::{Grant, Rights, Scope};
    use disbatch_core::model::QueueId;

    use super::*;

    fn who(everywhere: Option<Role>, grants: &[(Scope, Role)]) -> Who {
        let grants = grants.iter().map(|(scope, role)| Grant { scope: scope.clone(), role: *role }).collect();
        Who { rights: Rights::new(everywhere, grants), ..Who::anybody("10.0.0.1".to_owned()) }
    }

    #[test]
    fn a_set_is_for_those_who_have_a_role_on_its_tenant() {
        let queue = Scope::Queue(QueueId(ObjectId::from_bytes([1; 12])));
        let acme = Scope::Tenant("acme".to_owned());
        let anna = who(None, &[(queue.clone(), Role::Admin), (acme, Role::Submitter)]);
        assert!(check(&anna, Role::Submitter, Some("acme")).is_ok());
        let refused = check(&anna, Role::Operator, Some("acme")).unwrap_err();
        assert_eq!(refused.to_string(), "file sets of the tenant acme need the role operator on it");
        for tenant in [None, Some("other")] {
            assert_eq!(check(&anna, Role::Viewer, tenant).unwrap_err().status(), 403);
        }
        assert_eq!(tenants(&anna, Role::Submitter), Some(vec!["acme".to_owned()]));
        assert_eq!(tenants(&anna, Role::Operator), Some(vec![]));
        assert!(may_store(&anna).is_ok());
        let of_a_queue = who(None, &[(queue, Role::Admin)]);
        assert_eq!(tenants(&of_a_queue, Role::Viewer), Some(vec![]));
        assert_eq!(may_store(&of_a_queue).unwrap_err().status(), 403);
    }

    #[test]
    fn who_has_a_role_everywhere_has_it_on_all_sets() {
        let all = who(Some(Role::Submitter), &[]);
        for tenant in [None, Some("acme")] {
            assert!(check(&all, Role::Submitter, tenant).is_ok());
            assert!(check(&all, Role::Operator, tenant).is_err());
        }
        assert_eq!((tenants(&all, Role::Viewer), tenants(&all, Role::Operator)), (None, Some(vec![])));
        let only = BTreeSet::from([QueueId(ObjectId::from_bytes([1; 12]))]);
        let narrowed = Who { rights: all.rights.clone().narrowed(Role::Admin, Some(only)), ..all };
        assert_eq!(tenants(&narrowed, Role::Viewer), Some(vec![]), "a token for some queues has no files");
        assert!(check(&narrowed, Role::Viewer, None).is_err() && may_store(&narrowed).is_err());
    }

    #[test]
    fn what_is_missing_is_told_in_stretches() {
        let error = HttpError::from(FilesError::Incomplete(vec![0..1, 3..7]));
        let body: Value = serde_json::from_str(&error.json()).unwrap();
        assert_eq!(body["missing"], json!([{ "first": 0, "last": 0 }, { "first": 3, "last": 6 }]));
        assert_eq!(error.status(), 409);
        let of = |error: FilesError| HttpError::from(error).status().as_u16();
        assert_eq!(of(FilesError::WrongContent), 422);
        assert_eq!(of(FilesError::NotOpen(SetState::Done)), 409);
        assert_eq!(of(FilesError::WrongSize { n: 0, expected: 1, got: 2 }), 400);
        assert_eq!(of(FilesError::Busy), 503);
    }

    #[test]
    fn options_are_checked() {
        let options =
            |options: Value| Params { options: options.as_object().unwrap().clone(), ..Params::default() };
        let anybody = Who::anybody("10.0.0.1".to_owned());
        let all = query(&anybody, &options(json!({ "after": "a", "limit": "5" }))).unwrap();
        assert_eq!(all, SetQuery { tenants: None, after: Some("a".to_owned()), limit: 5 });
        assert_eq!(query(&anybody, &Params::default()).unwrap().limit, SHOWN);
        for wrong in [
            json!({ "limit": 0 }),
            json!({ "limit": 1001 }),
            json!({ "after": 5 }),
            json!({ "after": "x".repeat(1025) }),
        ] {
            assert_eq!(query(&anybody, &options(wrong)).unwrap_err().status(), 400);
        }
        let fields = json!({ "name": "x" }).as_object().unwrap().clone();
        assert!(query(&anybody, &Params { fields, ..Params::default() }).is_err());
    }

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn read(body: Value) -> Result<Vec<NewEntry>, String> {
        entries(body, DateTime::from_millis(7)).map_err(|error| error.to_string())
    }

    #[test]
    fn files_have_a_mode_and_a_time() {
        let full = json!({
            "path": "bin/run", "sha256": ABC, "size": 3, "mode": "755", "mtime": "2026-11-20T08:24:27Z",
        });
        let bare = json!({ "path": "a", "sha256": ABC, "size": 3 });
        let within = json!([{ "path": "a/.disbatch-x", "sha256": ABC, "size": 3 }]);
        assert!(read(within).is_ok(), "only the top is between runner and plugin");
        let read = read(json!({ "entries": [full, bare] })).unwrap();
        let expected = NewEntry {
            path: "bin/run".parse().unwrap(),
            file: ContentId::of(b"abc"),
            size: 3,
            mode: 0o755,
            mtime: DateTime::from_millis(1_795_163_067_000),
        };
        assert_eq!(read[0], expected);
        assert_eq!((read[1].mode, read[1].mtime), (0o644, DateTime::from_millis(7)));
    }

    #[test]
    fn what_is_wrong_with_which_file_is_named() {
        let of = |key: &str, value: Value| {
            let mut entry = json!({ "path": "a", "sha256": ABC, "size": 3 });
            entry[key] = value;
            read(json!([entry])).unwrap_err()
        };
        for (key, value, expected) in [
            ("path", json!("../x"), "entries[0].path: \"../x\" is no path in a file set: "),
            ("path", json!("/etc/passwd"), "entries[0].path: "),
            (
                "path",
                json!(".disbatch-control"),
                "entries[0].path: at the top of a file set, no name may begin with",
            ),
            (
                "path",
                json!(".disbatch-x/a"),
                "entries[0].path: at the top of a file set, no name may begin with",
            ),
            ("path", json!(5), "entries[0].path must be text"),
            ("sha256", json!("abc"), "entries[0].sha256: 'abc' is no SHA-256"),
            ("size", json!(-1), "entries[0].size must be a number of bytes"),
            ("mode", json!("rwx"), "entries[0].mode must be text of up to three digits"),
            ("mode", json!("4755"), "entries[0].mode must be text of up to three digits"),
            ("mode", json!(420), "entries[0].mode must be text of up to three digits"),
            ("mtime", json!("soon"), "entries[0].mtime must be a time"),
            (
                "owner",
                json!("root"),
                "entries[0].owner is unknown: a file has path, sha256, size, mode, mtime",
            ),
        ] {
            let error = of(key, value);
            assert!(error.starts_with(expected), "{error}");
        }
        for body in [json!({}), json!(5), json!({ "entries": 5 }), json!(vec![json!({}); 1_001])] {
            assert!(
                read(body).unwrap_err().starts_with("entries must be a JSON array of up to 1000 objects")
            );
        }
    }

    #[test]
    fn there_may_be_no_files_at_all() {
        for none in [json!([]), json!({ "entries": [] })] {
            assert_eq!(read(none), Ok(Vec::new()));
        }
    }

    #[test]
    fn a_new_set_is_of_the_one_tenant_that_somebody_has() {
        let who = |everywhere: Option<Role>, tenants: &[&str]| {
            let grant =
                |tenant: &&str| Grant { scope: Scope::Tenant((*tenant).to_owned()), role: Role::Submitter };
            let rights = Rights::new(everywhere, tenants.iter().map(grant).collect());
            Who { rights, ..Who::anybody("10.0.0.1".to_owned()) }
        };
        assert_eq!(own_tenant(&who(Some(Role::Admin), &["acme"])), Ok(None));
        assert_eq!(own_tenant(&who(None, &["acme"])), Ok(Some("acme".to_owned())));
        assert_eq!(own_tenant(&who(None, &["acme", "other"])).unwrap_err().status(), 400);
        assert_eq!(own_tenant(&who(None, &[])), Ok(None), "the check refuses that");
    }

    #[test]
    fn a_version_is_told_with_its_files() {
        let id = ObjectId::from_bytes([1; 12]);
        let at = DateTime::from_millis(1_795_163_067_344);
        let stored = doc! {
            "_id": id, "name": "data", "version": 3_i64, "state": "done", "count": 1_i64, "bytes": 7_i64,
            "created": at, "committed": at, "by": "ann", "tickets": 1_i64, "pending": [], "lost": [],
        };
        let set: FileSet = bson::deserialize_from_document(stored).unwrap();
        let content = ContentId::of(b"abc");
        let entry = doc! { "path": "a/b", "file": content, "size": 3_i64, "mode": 0o755_i64, "mtime": at };
        let entry: FileEntry = bson::deserialize_from_document(entry).unwrap();
        let page =
            Page { versions: vec![set.clone()], set, entries: vec![entry], next: Some("a/b".to_owned()) };
        let told = serde_json::to_value(of_page(&page)).unwrap();
        assert_eq!((&told["version"], &told["next"], &told["by"]), (&json!(3), &json!("a/b"), &json!("ann")));
        assert_eq!(told["versions"][0]["committed"], "2026-11-20T08:24:27");
        let expected = json!({
            "path": "a/b", "sha256": content.to_string(), "size": 3, "mode": "755", "mtime": "2026-11-20T08:24:27",
        });
        assert_eq!(told["entries"], json!([expected]));
    }
}
