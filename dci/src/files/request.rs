//! What requests say of versions and their files.

use bson::DateTime;
use disbatch_core::accounts::Role;
use disbatch_core::files::{ContentId, EntryPath, MOST_AT_ONCE, NewEntry, NewSet, RESERVED_PREFIX, SetName};
use serde_json::{Map, Value};

use super::{check, role_on, tenants};
use crate::access::Who;
use crate::error::HttpError;
use crate::params::Params;
use crate::state::State;
use crate::values;

/// What there is to say of a file.
const KEYS: [&str; 5] = ["path", "sha256", "size", "mode", "mtime"];

/// The mode of a file of which none is given.
const MODE: u32 = 0o644;

/// What a new version of a set is to have. It is of the tenant that the option `.tenant` says; else of that of the set, if
/// there is one; else of none for those who may make sets of none, and for others of the one tenant that they have.
pub async fn new_set(state: &State, who: &Who, name: &SetName, params: &Params) -> Result<NewSet, HttpError> {
    if let Some(param) = params.unknown(&[]) {
        return Err(HttpError::bad_param("unknown param", param));
    }
    let given = |name: &str| params.options.get(name).filter(|value| !values::is_unset(value));
    let expires = given("expires").map(|value| values::time(".expires", value)).transpose()?;
    let tenant = match given("tenant") {
        Some(value) => Some(values::text(".tenant", value)?),
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
pub fn entries(body: &Value, now: DateTime) -> Result<Vec<NewEntry>, HttpError> {
    let list = match body {
        Value::Array(list) => Some(list),
        Value::Object(fields) if fields.len() == 1 => fields.get("entries").and_then(Value::as_array),
        _ => None, // Nothing else has several things in it.
    };
    let list = list.filter(|list| list.len() <= MOST_AT_ONCE);
    let list = list.ok_or_else(|| wrong("", &format!("a JSON array of up to {MOST_AT_ONCE} objects")))?;
    list.iter().enumerate().map(|(index, value)| entry(&format!("[{index}]"), value, now)).collect()
}

fn entry(at: &str, value: &Value, now: DateTime) -> Result<NewEntry, HttpError> {
    let fields: &Map<String, Value> = value.as_object().ok_or_else(|| wrong(at, "an object"))?;
    if let Some(unknown) = fields.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let known = KEYS.join(", ");
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
            None => MODE,
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

#[cfg(test)]
mod tests {
    use disbatch_core::accounts::{Grant, Rights, Scope};
    use serde_json::json;

    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn read(body: Value) -> Result<Vec<NewEntry>, String> {
        entries(&body, DateTime::from_millis(7)).map_err(|error| error.to_string())
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
}
