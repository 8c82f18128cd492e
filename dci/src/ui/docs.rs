//! `GET /docs`: the description of the API for people.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use askama::Template;
use serde_json::{Map, Value};

use crate::json;
use crate::openapi::{self, OfFixed};
use crate::ui::{self, Rendered};

#[derive(Template)]
#[template(path = "docs.html")]
struct Docs {
    title: String,
    version: String,
    about: Vec<Prose>,
    groups: Vec<Group>,
}

/// Text in pieces, every second of which is code: Markdown's backticks are all that descriptions use.
type Prose = Vec<String>;

struct Group {
    name: String,
    description: Prose,
    operations: Vec<Operation>,
}

struct Operation {
    id: String,
    method: String,
    path: String,
    summary: String,
    description: Vec<Prose>,
    parameters: Vec<Parameter>,
    bodies: Vec<Body>,
    responses: Vec<Response>,
}

struct Parameter {
    name: String,
    place: String,
    kind: String,
    description: Prose,
}

struct Body {
    media_type: String,
    example: Option<String>,
}

struct Response {
    status: String,
    description: Prose,
    bodies: Vec<Body>,
}

/// The description of the API as a page.
#[utoipa::path(
    get, path = "/docs", tag = "service", operation_id = "docs",
    responses(
        (status = 200, description = "All operations.", body = String, content_type = "text/html"),
        OfFixed,
    ),
)]
pub async fn handle() -> HttpResponse {
    ui::page(show(openapi::description()))
}

fn show(description: &Value) -> Rendered {
    ui::render(StatusCode::OK, &docs(description))
}

fn docs(description: &Value) -> Docs {
    Docs {
        title: text(&description["info"]["title"]),
        version: text(&description["info"]["version"]),
        about: paragraphs(&description["info"]["description"]).iter().map(|text| prose(text)).collect(),
        groups: items(&description["tags"]).iter().map(|tag| group(tag, description)).collect(),
    }
}

fn group(tag: &Value, whole: &Value) -> Group {
    let mut operations = Vec::new();
    for (path, methods) in entries(&whole["paths"]) {
        for (method, operation) in entries(methods) {
            if items(&operation["tags"]).first() == Some(&tag["name"]) {
                operations.push(self::operation(path, method, operation, whole));
            }
        }
    }
    Group { name: text(&tag["name"]), description: prose(&text(&tag["description"])), operations }
}

fn operation(path: &str, method: &str, operation: &Value, whole: &Value) -> Operation {
    let response = |(status, response): (&String, &Value)| Response {
        status: status.clone(),
        description: prose(&text(&response["description"])),
        bodies: bodies(&response["content"], whole),
    };
    Operation {
        id: text(&operation["operationId"]),
        method: method.to_uppercase(),
        path: path.to_owned(),
        summary: text(&operation["summary"]),
        description: paragraphs(&operation["description"]).iter().map(|text| prose(text)).collect(),
        parameters: items(&operation["parameters"]).iter().map(parameter).collect(),
        bodies: bodies(&operation["requestBody"]["content"], whole),
        responses: entries(&operation["responses"]).map(response).collect(),
    }
}

fn parameter(parameter: &Value) -> Parameter {
    let types = match &parameter["schema"]["type"] {
        Value::Array(types) => types.iter().filter(|kind| *kind != "null").map(text).collect(),
        kind => vec![text(kind)],
    };
    Parameter {
        name: text(&parameter["name"]),
        place: text(&parameter["in"]),
        kind: types.join(" or "),
        description: prose(&text(&parameter["description"])),
    }
}

fn prose(text: &str) -> Prose {
    text.split('`').map(str::to_owned).collect()
}

fn bodies(content: &Value, whole: &Value) -> Vec<Body> {
    let body = |(media_type, content): (&String, &Value)| {
        let example = content.get("example").cloned().or_else(|| example(&content["schema"], whole));
        Body {
            media_type: media_type.clone(),
            example: example.and_then(|value| written(media_type, &value)),
        }
    };
    entries(content).map(body).collect()
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

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn paragraphs(value: &Value) -> Vec<String> {
    let text = value.as_str().unwrap_or_default();
    text.split("\n\n").map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned).collect()
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
