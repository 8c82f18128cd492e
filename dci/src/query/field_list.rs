//! Fields of tasks: those that a client chooses by name (the option `.fields` where it is a list), and those that may be
//! searched because an index covers them, so that no request reads all tasks.

use std::collections::BTreeSet;

use bson::{Bson, Document};
use serde_json::Value;

use super::{is_field, stored_as};
use crate::error::HttpError;
use crate::params::Params;
use crate::values::tags::NAMES;

/// What is told if nothing is chosen.
const DEFAULT: &str = "status";

/// So many fields may be chosen.
const MOST: usize = 50;

/// The fields that are asked for, as the database finds them: names with commas between them, or a JSON array of names. `None`:
/// none are.
pub fn chosen(params: &Params) -> Result<Option<Document>, HttpError> {
    let Some(names) = list(params.options.get("fields")).map_err(|()| wrong())? else { return Ok(None) };
    let names: BTreeSet<String> = names.into_iter().collect();
    if names.len() > MOST || !names.iter().all(|name| is_field(name)) {
        return Err(wrong());
    }
    // An id is told anyway.
    let others = names.iter().filter(|name| !matches!(name.as_str(), "id" | "_id"));
    let fields = others.map(|name| Ok((stored_as(name, true)?, Bson::Int32(1))));
    let mut fields = fields.collect::<Result<Document, HttpError>>()?;
    if fields.is_empty() {
        fields.insert("_id", 1);
    }
    Ok(Some(fields))
}

/// The same where something has to be told.
pub fn chosen_or_status(params: &Params) -> Result<Document, HttpError> {
    Ok(chosen(params)?.unwrap_or_else(|| Document::from_iter([(DEFAULT.to_owned(), Bson::Int32(1))])))
}

fn wrong() -> HttpError {
    HttpError::bad_request(format!(".fields must be 1 to {MOST} names of fields, with commas between them"))
}

/// Texts with commas between them, several such texts, a JSON array of texts, or that as text. `None`: nothing is given.
pub fn list(value: Option<&Value>) -> Result<Option<Vec<String>>, ()> {
    let items: Vec<Value> = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(items)) => items.clone(),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
        Some(Value::String(text)) if text.trim_start().starts_with('[') => {
            crate::allowance::json(text).map_err(|_| ())?
        }
        Some(text @ Value::String(_)) => vec![text.clone()],
        Some(_) => return Err(()), // Nothing else is a list of texts.
    };
    let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
    let texts = texts.ok_or(())?;
    let parts = texts.into_iter().flat_map(|text| text.split(',')).map(|part| part.trim().to_owned());
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { Err(()) } else { Ok(Some(parts)) }
}

/// The indexes as clients see them: `_id` is called `id`, and an index that another one starts with is left
/// out.
pub fn for_display(indexes: &BTreeSet<Vec<String>>) -> Vec<Vec<String>> {
    let contained = |short: &Vec<String>| indexes.iter().any(|long| long != short && long.starts_with(short));
    let shown = |name: &String| if name == "_id" { "id".to_owned() } else { name.clone() };
    indexes.iter().filter(|index| !contained(index)).map(|index| index.iter().map(shown).collect()).collect()
}

/// The same with indexes that only have some tasks, and serve a search for certain values: tasks of a schedule, and those with tags, of
/// which each is looked at for the rest. They are not shown, as Perl Disbatch has none of them.
pub fn with_ours(indexes: &[Vec<String>]) -> Vec<Vec<String>> {
    let mut all = indexes.to_vec();
    all.push(["schedule", "status"].map(str::to_owned).to_vec());
    for tags in NAMES {
        all.extend(["queue", "status", "node"].map(|field| vec![tags.to_owned(), field.to_owned()]));
    }
    all
}

/// Those of `names` that no index covers. A field is covered if all fields before it in an index are given.
pub fn not_covered(names: &[&str], indexes: &[Vec<String>]) -> Vec<String> {
    let given = |field: &String| names.contains(&field.as_str());
    let covered: BTreeSet<&str> = indexes
        .iter()
        .flat_map(|index| index.iter().take_while(|field| given(field)).map(String::as_str))
        .collect();
    names.iter().filter(|name| !covered.contains(*name)).map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use serde_json::json;

    use super::*;

    fn of(fields: Value) -> Result<Option<Document>, String> {
        let options = json!({ "fields": fields }).as_object().unwrap().clone();
        chosen(&Params { options, ..Params::default() }).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_are_names_however_they_are_given() {
        let expected = Ok(Some(doc! { "progress": 1, "status": 1 }));
        for fields in [
            json!("status,progress"),
            json!(" progress , status,"),
            json!(["status", "progress", "status"]),
            json!("[\"status\", \"progress\"]"),
            json!(["status,progress", "id"]),
        ] {
            assert_eq!(of(fields.clone()), expected, "{fields}");
        }
        assert_eq!(of(json!("id")), Ok(Some(doc! { "_id": 1 })));
        assert_eq!(of(json!("has_secure_params")), Ok(Some(doc! { "secure_params.key": 1 })));
        assert_eq!([of(json!(null)), of(json!(""))], [Ok(None), Ok(None)]);
        assert_eq!(chosen_or_status(&Params::default()).unwrap(), doc! { "status": 1 });
    }

    #[test]
    fn nothing_else_is_a_field() {
        for wrong in
            [json!("$where"), json!(5), json!([5]), json!(","), json!("[1"), json!({ "a": 1 }), json!("a\0b")]
        {
            let error = of(wrong.clone()).unwrap_err();
            assert!(error.starts_with(".fields must be"), "{wrong}: {error}");
        }
        assert!(of(json!("secure_params.data")).unwrap_err().contains("plugins only"));
        let many: Vec<String> = (0..51).map(|number| format!("f{number}")).collect();
        assert!(of(json!(many)).is_err());
    }

    fn indexes() -> Vec<Vec<String>> {
        for_display(
            &["_id", "node status queue", "node status queue _id", "queue status"]
                .iter()
                .map(|index| index.split(' ').map(str::to_owned).collect())
                .collect(),
        )
    }

    #[test]
    fn contained_indexes_are_not_shown() {
        assert_eq!(indexes(), [vec!["id"], vec!["node", "status", "queue", "id"], vec!["queue", "status"]]);
    }

    #[test]
    fn fields_need_those_before_them() {
        let indexes = indexes();
        for covered in
            [&["id"][..], &["queue"], &["queue", "status"], &["node", "queue"], &["node", "status"]]
        {
            assert!(not_covered(covered, &indexes).is_empty(), "{covered:?}");
        }
        assert_eq!(not_covered(&["status"], &indexes), ["status"]);
        assert_eq!(not_covered(&["schedule"], &indexes), ["schedule"]);
        assert!(not_covered(&["schedule", "status"], &with_ours(&indexes)).is_empty());
        let tagged = ["any_tags", "node", "status", "tags"];
        assert!(not_covered(&tagged, &with_ours(&indexes)).is_empty());
        assert_eq!(not_covered(&["tags", "params.a"], &with_ours(&indexes)), ["params.a"]);
        assert_eq!(not_covered(&["$where"], &indexes), ["$where"]);
        assert_eq!(not_covered(&["_id"], &indexes), ["_id"]);
        assert_eq!(not_covered(&["params.commands", "queue"], &indexes), ["params.commands"]);
    }
}
