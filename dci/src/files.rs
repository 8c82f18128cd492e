//! File sets as clients see them, and who may do what with them.
//!
//! A set is for those who have a role on its tenant, and one of no tenant for those who have it everywhere: a role on a queue
//! gives nothing here. Viewers read, submitters make versions and remove them. A version that is being made is for whoever has
//! opened it alone.
//!
//! Equal files are stored once, and what a content is known by can be found out by whoever has the same file, or guesses it.
//! So nobody is told of a content, or gets to name it in a version, by knowing that alone: only who has sent all of it, or may
//! read a version that has it.

mod checks;
mod download;
mod request;
mod view;

use std::ops::Range;

use actix_web::http::StatusCode;
use disbatch_core::accounts::{Reach, Role};
use disbatch_core::files::{ContentId, FileEntry, FileSet, FilesError, Sender, SetName, SetQuery, SetState};
use disbatch_core::model::FileSetId;
use disbatch_core::store::StoreError;
use disbatch_wire::files::ChunkRange;
use serde_json::{Value, json};

use crate::access::Who;
use crate::error::HttpError;
use crate::params::Params;
use crate::state::State;
use crate::values;

pub use checks::Checks;
pub use download::respond;
pub use request::{entries, new_set};
pub use view::{of_chunks, of_page, of_set, of_summary};

/// So many sets or files are answered unless told otherwise.
const SHOWN: i64 = 100;

/// At most so many are.
const MOST: i64 = 1_000;

/// So many versions of a set are told with it.
const VERSIONS: i64 = 100;

/// A path has so many bytes at most.
const LONGEST_PATH: usize = 1024;

/// A version, some of its files, and the versions that there are besides.
#[derive(Debug)]
pub struct Page {
    /// The version.
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

/// Sees to it that somebody may store files at all.
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
    if let Some(param) = params.unknown(&[]) {
        return Err(HttpError::bad_param("unknown param", param));
    }
    Ok(SetQuery { tenants: tenants(who, Role::Viewer), after: path(params, "after")?, limit: limit(params)? })
}

/// A version and its files, as the options `.version`, `.prefix`, `.after`, `.limit` and `.before` say.
pub async fn page(state: &State, who: &Who, name: &str, params: &Params) -> Result<Page, HttpError> {
    if let Some(param) = params.unknown(&[]) {
        return Err(HttpError::bad_param("unknown param", param));
    }
    let (version, before) = (params.integer("version")?, params.integer("before")?);
    let (prefix, after, limit) = (path(params, "prefix")?, path(params, "after")?, limit(params)?);
    let set = find(state, who, (name, version), Role::Viewer).await?;
    let mut versions = state.store.fileset_versions(&named(name)?, before, VERSIONS).await?;
    versions.retain(|version| version.tenant == set.tenant);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let query = disbatch_core::files::EntryQuery {
        prefix: prefix.as_deref().unwrap_or_default(),
        after: after.as_deref(),
        limit,
    };
    let entries = state.store.fileset_entries(&set, query).await?;
    let next = entries.last().filter(|_| entries.len() >= limit).map(|last| last.path.clone());
    Ok(Page { set, versions, entries, next })
}

/// How many are asked for, by the option `.limit`.
fn limit(params: &Params) -> Result<i64, HttpError> {
    let given = params.integer("limit")?.unwrap_or(SHOWN);
    let wrong = || HttpError::bad_request(format!("'.limit' must be from 1 to {MOST}"));
    if (1..=MOST).contains(&given) { Ok(given) } else { Err(wrong()) }
}

/// The beginning of a path, or a path, or a name, by an option.
fn path(params: &Params, name: &str) -> Result<Option<String>, HttpError> {
    match params.options.get(name).filter(|value| !values::is_unset(value)) {
        None => Ok(None),
        Some(Value::String(text)) if text.len() <= LONGEST_PATH => Ok(Some(text.clone())),
        Some(_) => {
            Err(HttpError::bad_request(format!("'.{name}' must be text of at most {LONGEST_PATH} bytes")))
        }
    }
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
            FilesError::Busy => Self::new(StatusCode::SERVICE_UNAVAILABLE, message),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
}
