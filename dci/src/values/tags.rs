//! Tags of tasks, what is looked for by them, and which parameters a queue takes as tags.

use bson::{Bson, Document};
use disbatch_core::request::{self, SEPARATORS};
use disbatch_core::tags::{self, ANY_TAGS, TAGS, TagIndex};
use serde_json::Value;

use super::{is_unset, wrong};
use crate::error::HttpError;
use crate::json;

/// What filters have for them.
pub const NAMES: [&str; 2] = [TAGS, ANY_TAGS];

pub fn tags(name: &str, value: &Value) -> Result<Vec<String>, HttpError> {
    tags::checked(texts(name, value)?).map_err(|error| HttpError::bad_request(format!("{name}{error}")))
}

/// Tags that are looked for. A program that has none does not mean all tasks.
pub fn wanted(name: &str, value: &Value) -> Result<Vec<String>, HttpError> {
    let tags = tags(name, value)?;
    let none =
        || HttpError::bad_request(format!("{name} is empty: leave it out if it is to restrict nothing"));
    if tags.is_empty() { Err(none()) } else { Ok(tags) }
}

/// What finds tasks with the tags that are asked for, by the names that filters have for them. `None`: none are.
pub fn filter<'a>(given: impl Fn(&str) -> Option<&'a Value>) -> Result<Option<Document>, HttpError> {
    let of = |name| given(name).filter(|value| !is_unset(value)).map(|value| wanted(name, value)).transpose();
    Ok(tags::query(&of(TAGS)?.unwrap_or_default(), &of(ANY_TAGS)?.unwrap_or_default()))
}

/// The paths of the parameters that a queue takes as tags; null if there are none.
pub fn index(name: &str, value: &Value) -> Result<Bson, HttpError> {
    let index = TagIndex::of(texts(name, value)?);
    let paths = index.map_err(|error| HttpError::bad_request(format!("{name}{error}")))?.paths();
    Ok(if paths.is_empty() { Bson::Null } else { paths.into() })
}

/// Texts as one text that is read again as these.
pub fn line(texts: &[String]) -> String {
    let is_odd = |text: &String| text.contains(SEPARATORS) || text.starts_with('[') || text.trim() != text;
    if texts.iter().any(is_odd) { json::compact(&texts.into()) } else { texts.join(",") }
}

fn texts(name: &str, value: &Value) -> Result<Vec<String>, HttpError> {
    list(value).ok_or_else(|| wrong(name, "an array of texts, or text with commas between them"))
}

/// The texts of an array, also of one in JSON as text, or of text with commas or line breaks between them.
pub fn list(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(line) if line.starts_with('[') => list(&crate::allowance::json(line).ok()?),
        value => request::list(value),
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use serde_json::json;

    use super::*;

    #[test]
    fn tags_are_a_list_or_its_text() {
        for same in [
            json!(["a=1", "b c", 7]),
            json!("a=1, b c,7,"),
            json!("a=1\r\nb c\n7"),
            json!("[\"a=1\",\"b c\",7]"),
        ] {
            assert_eq!(tags("t", &same).unwrap(), ["a=1", "b c", "7"], "{same}");
        }
        for texts in [json!(["a", "b c"]), json!(["Smith, Ann"]), json!(["[a", " b"]), json!([])] {
            let texts = list(&texts).unwrap();
            assert_eq!(list(&line(&texts).into()), Some(texts));
        }
        for (odd, expected) in [
            (json!({}), "t must be an array of texts, or text with commas between them"),
            (json!([true]), "t must be an array of texts, or text with commas between them"),
            (json!("[1"), "t must be an array of texts, or text with commas between them"),
            (json!(["a", ""]), "t[1] must be text of 1 to 128 characters, without control characters"),
            (json!(vec!["x"; 0]), ""),
        ] {
            let error = tags("t", &odd).map_or_else(|error| error.to_string(), |_| String::new());
            assert_eq!(error, expected, "{odd}");
        }
    }

    #[test]
    fn a_filter_is_for_all_or_any() {
        let of = |given: Value| filter(|name| given.get(name)).map_err(|error| error.to_string());
        assert!(of(json!({ "tags": [] })).unwrap_err().starts_with("tags is empty: leave it out"));
        assert_eq!(of(json!({ "tags": "", "any_tags": null, "status": 1 })), Ok(None));
        let expected = doc! { "tags": { "$all": ["a", "b"], "$in": ["c"] } };
        assert_eq!(of(json!({ "tags": ["a", "b"], "any_tags": "c" })), Ok(Some(expected)));
        assert!(
            of(json!({ "any_tags": { "$gt": "" } })).unwrap_err().starts_with("any_tags must be an array")
        );
    }

    #[test]
    fn an_index_is_a_list_of_paths() {
        let paths = Bson::from(vec!["params.a".to_owned(), "params.b.c".to_owned()]);
        assert_eq!(index("index", &json!("params.a, params.b.c")).unwrap(), paths);
        assert_eq!(index("index", &json!([])).unwrap(), Bson::Null);
        let error = index("index", &json!(["customer"])).unwrap_err().to_string();
        assert!(error.starts_with("index[0] must be the path of a parameter"), "{error}");
    }
}
