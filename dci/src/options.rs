//! Options that no operation has. On the routes of Perl Disbatch they are ignored, as there, and the answer has a header that says so; on
//! ours they are refused. Which options an operation has is what its description says: nothing else lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::{HttpMessage, HttpRequest};
use disbatch_core::text::closest;
use serde_json::{Map, Value};

use crate::accept;
use crate::error::HttpError;
use crate::openapi::description;
use crate::params::Params;

/// The header of an answer that says what was ignored.
pub const WARNING: HeaderName = HeaderName::from_static("disbatch-warning");

/// The operation that tasks of other operations are described by.
const NEW_TASKS: (&str, &str) = ("POST", "/tasks");

/// Operations that Perl Disbatch always has, with their routes in its notation, which clients may look for.
pub const OF_PERL: [(&str, &str, &str); 17] = [
    ("GET", "/", "/"),
    ("GET", "/info", "/info"),
    ("GET", "/nodes", "/nodes"),
    ("GET", "/nodes/{node}", "(?^u:^/nodes/(?<node>.+))"),
    ("POST", "/nodes/{node}", "(?^u:^/nodes/(?<node>.+))"),
    ("GET", "/plugins", "/plugins"),
    ("GET", "/queues", "/queues"),
    ("POST", "/queues", "/queues"),
    ("GET", "/queues/{queue}", "(?^u:^/queues/(?<queue>.+)$)"),
    ("POST", "/queues/{queue}", "(?^u:^/queues/(?<queue>.+)$)"),
    ("DELETE", "/queues/{queue}", "(?^u:^/queues/(?<queue>.+)$)"),
    ("GET", "/tasks", "/tasks"),
    (NEW_TASKS.0, NEW_TASKS.1, "/tasks"),
    ("GET", "/tasks/{id}", "(?^u:^/tasks/(?<id>[0-9a-f]{24})$)"),
    ("GET", "/balance", "/balance"),
    ("POST", "/balance", "/balance"),
    ("GET", "/monitoring", "/monitoring"),
];

/// Operations of its web extension for tasks.
const OF_EXTENSION: [(&str, &str); 3] =
    [("POST", "/tasks/search"), ("POST", "/tasks/{queue}"), ("POST", "/tasks/{queue}/{collection}")];

/// What forms of pages send along besides: where they lead, and what their script asks for.
const OF_FORMS: [&str; 5] = ["then", "form_token", "schedule", "html", "preview"];

/// The form of a page for new tasks.
const TASKS_OF_FORM: &str = "/ui/queues/{id}/tasks";

/// So many are named in one message.
const MOST_NAMED: usize = 10;

/// What was ignored of a request, to be said in its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ignored(String);

type OperationOptions = BTreeMap<(String, String), BTreeSet<String>>;

/// The options of each operation, without their dots, as they are described.
static KNOWN: LazyLock<OperationOptions> = LazyLock::new(|| {
    let paths = description().get("paths").and_then(Value::as_object);
    let operations =
        paths.into_iter().flatten().flat_map(|(path, operations)| {
            operations.as_object().into_iter().flatten().map(move |(method, operation)| {
                ((method.to_uppercase(), path.clone()), options_of(operation))
            })
        });
    operations.collect()
});

/// Sees to it that an operation has the options that a request has.
pub fn check(request: &HttpRequest, params: &Params) -> Result<(), HttpError> {
    if params.options.is_empty() {
        return Ok(());
    }
    let (Some(pattern), method) = (request.match_pattern(), request.method().as_str()) else { return Ok(()) };
    let (path, method) = (plain(&pattern), if method == "HEAD" { "GET" } else { method });
    // Pages have options of their own, which no program sends.
    let is_page = path.starts_with("/ui/") && path != TASKS_OF_FORM;
    if is_page || (method == "GET" && accept::wants_html(request)) {
        return Ok(());
    }
    let is_of_form = path == TASKS_OF_FORM;
    let operation = if is_of_form { NEW_TASKS } else { (method, path.as_str()) };
    let Some(unknown) = unknown(operation, &params.options) else { return Ok(()) };
    let mut of_perl = OF_PERL.into_iter().map(|(method, path, _)| (method, path)).chain(OF_EXTENSION);
    let is_perls = of_perl.any(|known| known == operation) || path.ends_with("-json");
    if !is_perls || is_of_form {
        return Err(HttpError::bad_request(unknown));
    }
    request.extensions_mut().insert(Ignored(format!("ignored {unknown}")));
    Ok(())
}

/// Sees to it that there are the options of tasks that are submitted otherwise than by `POST /tasks`, but as it has them.
pub fn check_task(params: &Params) -> Result<(), HttpError> {
    unknown(NEW_TASKS, &params.options).map_or(Ok(()), |unknown| Err(HttpError::bad_request(unknown)))
}

/// Says in the answer to a request what of it was ignored.
pub fn tell<B>(response: &mut actix_web::dev::ServiceResponse<B>) {
    let ignored = response.request().extensions().get::<Ignored>().cloned();
    let value = ignored.and_then(|Ignored(text)| HeaderValue::from_str(&text).ok());
    if let Some(value) = value {
        response.headers_mut().insert(WARNING, value);
    }
}

/// Those that an operation has not, in words.
fn unknown((method, path): (&str, &str), options: &Map<String, Value>) -> Option<String> {
    let none = BTreeSet::new();
    let known = KNOWN.get(&(method.to_owned(), path.to_owned())).unwrap_or(&none);
    // Where there are no arrays, `.array` has an answer of its own.
    let is_known = |name: &str| known.contains(name) || OF_FORMS.contains(&name) || name == "array";
    let words: Vec<String> = options
        .keys()
        .filter(|name| !is_known(name))
        .take(MOST_NAMED)
        .map(|name| {
            // It goes into a header, too.
            let shown: String = name.chars().take(64).collect::<String>().escape_default().collect();
            match closest(name, known.iter().map(String::as_str)) {
                Some(meant) => format!("unknown option '.{shown}': did you mean '.{meant}'?"),
                None => format!("unknown option '.{shown}'"),
            }
        })
        .collect();
    (!words.is_empty()).then(|| words.join("; "))
}

fn options_of(operation: &Value) -> BTreeSet<String> {
    let parameters = operation.get("parameters").and_then(Value::as_array).into_iter().flatten();
    let parameters = parameters.filter_map(|parameter| parameter.get("name")?.as_str().map(str::to_owned));
    let mut all: BTreeSet<String> = parameters.collect();
    let content = operation.pointer("/requestBody/content").and_then(Value::as_object);
    for media in content.into_iter().flat_map(Map::values) {
        properties(media.get("schema").unwrap_or(&Value::Null), 0, &mut all);
    }
    all.into_iter().filter_map(|name| name.strip_prefix('.').map(str::to_owned)).collect()
}

fn properties(schema: &Value, depth: usize, all: &mut BTreeSet<String>) {
    if depth > 8 {
        return;
    }
    if let Some(named) = schema.get("$ref").and_then(Value::as_str)
        && let Some(found) = description().pointer(named.trim_start_matches('#'))
    {
        properties(found, depth + 1, all);
    }
    let named = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
    all.extend(named.cloned());
    for together in ["allOf", "anyOf", "oneOf"] {
        for one in schema.get(together).and_then(Value::as_array).into_iter().flatten() {
            properties(one, depth + 1, all);
        }
    }
}

/// `/a/{b}` for `/a/{b:.+}`. The part behind the colon may have braces inside.
pub fn plain(pattern: &str) -> String {
    let (mut out, mut depth, mut in_expression) = (String::new(), 0, false);
    for c in pattern.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ':' if depth == 1 => in_expression = true,
            _ => {} // Part of the text or of a parameter.
        }
        if depth == 0 {
            in_expression = false;
        }
        if !in_expression {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(operation: (&str, &str), names: &[&str]) -> Option<String> {
        unknown(operation, &names.iter().map(|name| ((*name).to_owned(), json!(1))).collect())
    }

    #[test]
    fn parameters_are_named_without_their_expressions() {
        assert_eq!(plain("/tasks/{id:[0-9a-f]{24}}/cancel"), "/tasks/{id}/cancel");
        assert_eq!(plain("/tasks/{queue:[^/]+}/{collection:.+}"), "/tasks/{queue}/{collection}");
        assert_eq!(plain("/tasks"), "/tasks");
    }

    #[test]
    fn what_is_not_known_is_named_with_what_may_be_meant() {
        assert_eq!(of(NEW_TASKS, &["max_attempts", "array_key", "then"]), None);
        let told = of(NEW_TASKS, &["max_attemps", "colour"]).unwrap();
        assert_eq!(
            told,
            "unknown option '.colour'; unknown option '.max_attemps': did you mean '.max_attempts'?"
        );
        assert_eq!(of(("GET", "/arrays"), &["limit"]), None);
        assert!(of(("GET", "/arrays"), &["limt"]).unwrap().ends_with("did you mean '.limit'?"));
        assert_eq!(of(("POST", "/tasks/batch"), &["delay\n"]).unwrap(), "unknown option '.delay\\n'");
    }

    #[test]
    fn operations_of_perl_are_described() {
        for operation in OF_PERL.map(|(method, path, _)| (method, path)).into_iter().chain(OF_EXTENSION) {
            let (method, path) = operation;
            assert!(KNOWN.contains_key(&(method.to_owned(), path.to_owned())), "{operation:?}");
        }
    }
}
