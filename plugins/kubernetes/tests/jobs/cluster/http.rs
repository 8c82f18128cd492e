//! The API: as much of it as is asked for, with streams that may break off.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, RETRY_AFTER};
use actix_web::web::{self, Bytes, Data, Query};
use actix_web::{HttpRequest, HttpResponse};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch::{Receiver, Sender};

use super::world::{Key, Kind, Line, Refusal, Trouble, World, is_selected};

/// What requests and tests share.
pub struct Shared {
    pub world: Mutex<World>,
    /// Changes with everything that happens.
    pub tick: Sender<u64>,
    pub changed: std::sync::Condvar,
}

impl Shared {
    /// Does something, and tells all who wait.
    pub fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        let done = act(&mut self.world.lock().unwrap());
        self.tick.send_modify(|tick| *tick += 1);
        self.changed.notify_all();
        done
    }
}

struct Asked {
    method: String,
    kind: Kind,
    namespace: String,
    name: Option<String>,
    is_log: bool,
    query: BTreeMap<String, String>,
    body: Value,
}

impl Asked {
    fn key(&self) -> Key {
        (self.kind, self.namespace.clone(), self.name.clone().unwrap_or_default())
    }
}

pub async fn answer(request: HttpRequest, body: Bytes, shared: Data<Shared>) -> HttpResponse {
    let shared = shared.into_inner();
    let (method, path) = (request.method().as_str().to_owned(), request.path().to_owned());
    let trouble = shared.with(|world| {
        world.asked.push(format!("{method} {path}"));
        let found = world.troubles.iter().position(|(of, part, _)| *of == method && path.contains(part));
        found.and_then(|found| world.troubles.remove(found)).map(|(_, _, trouble)| trouble)
    });
    match &trouble {
        Some(Trouble::Refused(refusal)) => return refused(refusal),
        Some(Trouble::Silent) => return std::future::pending().await,
        Some(Trouble::Unanswered) | None => {}
    }
    let Some(asked) = understood(&request, &body) else {
        return refused(&Refusal::new(404, "NotFound", &format!("no such path: {path}")));
    };
    let answer = answered(&shared, asked);
    match trouble {
        Some(Trouble::Unanswered) => HttpResponse::Ok().streaming(stream::iter([Err::<Bytes, _>(broken())])),
        _ => answer,
    }
}

/// Takes a path apart: `/api/v1/namespaces/NAMESPACE/pods/NAME/log`.
fn understood(request: &HttpRequest, body: &[u8]) -> Option<Asked> {
    let path = request.path();
    let rest = path.strip_prefix("/api/v1/").or_else(|| path.strip_prefix("/apis/batch/v1/"))?;
    let mut parts = rest.strip_prefix("namespaces/")?.split('/');
    let namespace = parts.next()?.to_owned();
    let kind = match parts.next()? {
        "jobs" => Kind::Job,
        "pods" => Kind::Pod,
        "secrets" => Kind::Secret,
        _ => return None,
    };
    let name = parts.next().map(str::to_owned);
    let query = Query::<BTreeMap<String, String>>::from_query(request.query_string()).ok()?.into_inner();
    let body = serde_json::from_slice(body).unwrap_or_default();
    let is_log = parts.next() == Some("log");
    Some(Asked { method: request.method().as_str().to_owned(), kind, namespace, name, is_log, query, body })
}

fn answered(shared: &Arc<Shared>, asked: Asked) -> HttpResponse {
    let (method, has_name) = (asked.method.clone(), asked.name.is_some());
    let done = match (method.as_str(), has_name) {
        ("GET", true) if asked.is_log => return log(shared, &asked),
        ("GET", false) if asked.query.contains_key("watch") => return watch(shared, asked),
        ("GET", false) => shared.with(|world| -> Result<Value, Refusal> {
            let items = world.select(asked.kind, &asked.namespace, &asked.query);
            let (kind, version) = asked.kind.title();
            let metadata = json!({ "resourceVersion": world.version.to_string() });
            Ok(json!({ "kind": format!("{kind}List"), "apiVersion": version, "metadata": metadata, "items": items }))
        }),
        ("POST", false) => create(shared, &asked),
        ("PATCH", true) => shared.with(|world| world.patch(&asked.key(), &asked.body)),
        ("DELETE", true) => shared.with(|world| -> Result<Value, Refusal> {
            world.delete(&asked.key(), &asked.body)?;
            Ok(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" }))
        }),
        _ => Err(Refusal::new(405, "MethodNotAllowed", "this is not done here")),
    };
    match done {
        Ok(object) => HttpResponse::Ok().json(object),
        Err(refusal) => refused(&refusal),
    }
}

/// As strict as it is asked to be.
fn create(shared: &Arc<Shared>, asked: &Asked) -> Result<Value, Refusal> {
    let is_strict = asked.query.get("fieldValidation").is_some_and(|how| how == "Strict");
    if is_strict && asked.body.to_string().contains("\"misspelt\"") {
        let message = "strict decoding error: unknown field \"spec.template.spec.misspelt\"";
        return Err(Refusal::new(400, "BadRequest", message));
    }
    shared.with(|world| world.create(asked.kind, &asked.namespace, asked.body.clone()))
}

fn refused(refusal: &Refusal) -> HttpResponse {
    let code = StatusCode::from_u16(refusal.code).unwrap();
    HttpResponse::build(code).insert_header((RETRY_AFTER, "0")).json(refusal.status())
}

fn broken() -> std::io::Error {
    std::io::Error::other("the connection breaks")
}

/// What a stream goes on from.
struct Position<T> {
    shared: Arc<Shared>,
    tick: Receiver<u64>,
    epoch: u64,
    asked: T,
    /// The version that was seen last, or the number of lines.
    seen: u64,
    /// After so many bytes it breaks off.
    left: usize,
    is_done: bool,
}

/// What comes next.
enum Next {
    Bytes(String),
    Nothing,
    End,
    Break,
}

/// A stream that asks what comes next whenever something has happened.
fn streamed<T: 'static>(position: Position<T>, next: fn(&World, &mut Position<T>) -> Next) -> HttpResponse {
    let pieces = stream::unfold(position, move |mut position| async move {
        loop {
            if position.is_done {
                return None;
            }
            if position.left == 0 {
                position.is_done = true;
                return Some((Err(broken()), position));
            }
            drop(position.tick.borrow_and_update());
            let shared = Arc::clone(&position.shared);
            let found = next(&shared.world.lock().unwrap(), &mut position);
            match found {
                Next::Bytes(text) => {
                    let mut bytes = text.into_bytes();
                    bytes.truncate(position.left);
                    position.left -= bytes.len();
                    return Some((Ok(Bytes::from(bytes)), position));
                }
                Next::Nothing => {
                    if position.tick.changed().await.is_err() {
                        return None;
                    }
                }
                Next::End => return None,
                Next::Break => {
                    position.is_done = true;
                    return Some((Err(broken()), position));
                }
            }
        }
    });
    HttpResponse::Ok().insert_header((CONTENT_TYPE, "application/json")).streaming(pieces)
}

fn position<T>(shared: &Arc<Shared>, asked: T, seen: u64, left: usize) -> Position<T> {
    let (tick, epoch) = (shared.tick.subscribe(), shared.world.lock().unwrap().epoch);
    Position { shared: Arc::clone(shared), tick, epoch, asked, seen, left, is_done: false }
}

fn watch(shared: &Arc<Shared>, asked: Asked) -> HttpResponse {
    let version = asked.query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
    let gone = Refusal::new(410, "Expired", "too old resource version");
    let is_gone = version < shared.world.lock().unwrap().oldest;
    // Both are seen: an answer, and an event.
    if is_gone && asked.kind == Kind::Job {
        return refused(&gone);
    }
    if is_gone {
        let event = format!("{}\n", json!({ "type": "ERROR", "object": gone.status() }));
        return HttpResponse::Ok().insert_header((CONTENT_TYPE, "application/json")).body(event);
    }
    let watching = format!("watching {:?}", asked.kind);
    let position = position(shared, asked, version, usize::MAX);
    // Not before: what breaks off when this is seen breaks this off.
    shared.with(|world| world.asked.push(watching));
    streamed(position, next_event)
}

fn next_event(world: &World, position: &mut Position<Asked>) -> Next {
    if world.epoch != position.epoch {
        return Next::Break;
    }
    let asked = &position.asked;
    let is_next = |event: &&super::world::Event| {
        let is_of_it =
            event.kind == asked.kind && event.object["metadata"]["namespace"] == asked.namespace.as_str();
        event.version > position.seen && is_of_it && is_selected(&event.object, &asked.query)
    };
    match world.events.iter().find(is_next) {
        Some(event) => {
            position.seen = event.version;
            Next::Bytes(format!("{}\n", json!({ "type": event.what, "object": event.object })))
        }
        None => Next::Nothing,
    }
}

struct OfLog {
    key: Key,
    follow: bool,
    since: String,
}

fn log(shared: &Arc<Shared>, asked: &Asked) -> HttpResponse {
    let key = asked.key();
    let has_begun = shared.with(|world| {
        let pod = world.objects.get(&key)?;
        let state = &pod["status"]["containerStatuses"][0]["state"];
        Some(!state["running"].is_null() || !state["terminated"].is_null())
    });
    match has_begun {
        None => return refused(&Refusal::new(404, "NotFound", "pods not found")),
        Some(false) => return refused(&Refusal::new(400, "BadRequest", "container is waiting to start")),
        Some(true) => {}
    }
    assert_eq!(asked.query["timestamps"], "true");
    let since = asked.query.get("sinceTime").map(|time| time.trim_end_matches('Z').to_owned());
    let follow = asked.query.get("follow").is_some_and(|follow| follow == "true");
    let left = shared.with(|world| world.cuts.pop_front()).unwrap_or(usize::MAX);
    streamed(position(shared, OfLog { key, follow, since: since.unwrap_or_default() }, 0, left), next_line)
}

fn next_line(world: &World, position: &mut Position<OfLog>) -> Next {
    if world.epoch != position.epoch && position.asked.follow {
        return Next::Break;
    }
    let asked = &position.asked;
    let lines = world.logs.get(&asked.key.2).map(Vec::as_slice).unwrap_or_default();
    let first = usize::try_from(position.seen).unwrap();
    let is_new = |line: &&Line| line.at.as_str() >= asked.since.as_str();
    let text: String =
        lines[first..].iter().filter(is_new).map(|line| format!("{}Z {}\n", line.at, line.text)).collect();
    position.seen = u64::try_from(lines.len()).unwrap();
    if !text.is_empty() {
        return Next::Bytes(text);
    }
    if !asked.follow || world.is_over(&asked.key) { Next::End } else { Next::Nothing }
}

/// The service of all paths.
pub fn configure(shared: Arc<Shared>) -> impl FnOnce(&mut web::ServiceConfig) {
    move |app| {
        app.app_data(Data::from(shared)).default_service(web::to(answer));
    }
}
