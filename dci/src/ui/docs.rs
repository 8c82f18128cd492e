//! `GET /docs`: the description of the API for people.

use askama::Template;
use serde_json::{Map, Value};

use crate::json;
use crate::openapi::{self, OfFixed};
use crate::ui::{self, Rendered};

#[derive(Template)]
#[template(path = "docs.html")]
struct Docs<'a> {
    whole: &'a Value,
}

impl Docs<'_> {
    /// The operations of a tag, with their paths and methods.
    fn operations(&self, tag: &Value) -> Vec<(&String, &String, &Value)> {
        let all = entries(&self.whole["paths"]).flat_map(|(path, methods)| {
            entries(methods).map(move |(method, operation)| (path, method, operation))
        });
        all.filter(|(.., operation)| items(&operation["tags"]).first() == Some(&tag["name"])).collect()
    }

    /// The media types of a body, and an example of each.
    fn bodies<'a>(&self, content: &'a Value) -> Vec<(&'a String, Option<String>)> {
        let body = |(media_type, content): (&'a String, &'a Value)| {
            let example = content.get("example").cloned().or_else(|| example(&content["schema"], self.whole));
            (media_type, example.and_then(|value| written(media_type, &value)))
        };
        entries(content).map(body).collect()
    }
}

/// The description of the API as a page.
#[utoipa::path(
    get, path = "/docs", tag = "service", operation_id = "docs",
    responses((status = 200, description = "All operations.", body = String, content_type = "text/html"), OfFixed),
)]
pub async fn handle() -> Rendered {
    show(openapi::description())
}

fn show(description: &Value) -> Rendered {
    ui::render(&Docs { whole: description })
}

/// An example as it is sent.
fn written(media_type: &str, example: &Value) -> Option<String> {
    match media_type {
        "application/json" => Some(json::pretty(example)),
        "application/x-www-form-urlencoded" => {
            let field = |(name, value): (&String, &Value)| match value {
                Value::String(text) => format!("{name}={text}"),
                other => format!("{name}={other}"),
            };
            Some(entries(example).map(field).collect::<Vec<_>>().join("&"))
        }
        _ => None, // Pages and style sheets.
    }
}

/// The example of a schema, or of one that it refers to.
fn example(schema: &Value, whole: &Value) -> Option<Value> {
    if let Some(example) = schema.get("example") {
        return Some(example.clone());
    }
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return example(whole.pointer(reference.trim_start_matches('#'))?, whole);
    }
    if let Some(choice) = items(&schema["anyOf"]).first() {
        return example(choice, whole);
    }
    example(schema.get("items")?, whole).map(|item| Value::from(vec![item]))
}

fn kinds(parameter: &Value) -> String {
    let types = match &parameter["schema"]["type"] {
        Value::Array(types) => types.iter().filter(|kind| *kind != "null").map(text).collect(),
        kind => vec![text(kind)],
    };
    types.join(" or ")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn paragraphs(value: &Value) -> impl Iterator<Item = &str> {
    text(value).split("\n\n").map(str::trim).filter(|text| !text.is_empty())
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_operation_and_no_script_of_its_own() {
        let description = openapi::description();
        let (status, html) = show(description).unwrap();
        assert_eq!(status, 200);
        for (path, methods) in entries(&description["paths"]) {
            for (method, operation) in entries(methods) {
                let id = text(&operation["operationId"]);
                assert!(html.contains(&format!("id=\"{id}\"")), "{method} {path} is missing");
                assert!(html.contains(&format!("href=\"#{id}\"")), "nothing leads to {id}");
            }
        }
        for part in [".limit", "MongoDB::UpdateResult", "name=mail&#38;plugin=", "no queue &#39;nosuch&#39;"]
        {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        for foreign in ["<style", " style=", "=\"http://", "=\"https://", "=\"//"] {
            assert!(!html.contains(foreign), "{foreign} is in the page");
        }
        assert!(!html.split("<main").nth(1).unwrap().contains("<script"), "only the frame has scripts");
    }

    #[test]
    fn code_is_shown_as_code() {
        let description = serde_json::json!({ "info": { "description": "a `{\"b\": <c>}` d" } });
        let (_, html) = show(&description).unwrap();
        assert!(html.contains("a <code>{&#34;b&#34;: &#60;c&#62;}</code> d"), "{html}");
    }

    #[test]
    fn what_a_description_says_is_escaped() {
        let description = serde_json::json!({
            "info": {"title": "<b>", "version": "1"}, "tags": [{"name": "t"}],
            "paths": {"/x": {"get": {"operationId": "x", "tags": ["t"], "summary": "a <i>"}}},
        });
        let (_, html) = show(&description).unwrap();
        assert!(html.contains("&#60;b&#62;") && html.contains("a &#60;i&#62;"), "{html}");
    }
}
