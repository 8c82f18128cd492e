//! Who asks, and whether they may.
//!
//! Each route says what it needs ([`Need`]), and cannot be added without. [`enforce`] stands before every handler: it finds
//! out who asks ([`Who`]), and lets nobody through who may not. Where what somebody may do depends on the queue, it looks
//! up the queue; only routes for several queues at once, whose need is [`Need::Somewhere`], have to ask for
//! [`Who::reach`] themselves.

pub mod address;
mod enforce;
mod passwords;
pub mod session;
mod target;
pub mod viewer;

use std::fmt;
use std::future::{Ready, ready};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::http::header::{AUTHORIZATION, COOKIE, HeaderMap};
use actix_web::web::Data;
use actix_web::{FromRequest, HttpMessage, HttpRequest, dev};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use disbatch_core::accounts::{Key, Reach, Rights, Role, User, UserName, is_token};
use disbatch_core::config::{Config, Proxy, SessionLimits};
use disbatch_core::lock;
use disbatch_core::model::{Queue, TraceContext};
use disbatch_core::store::{Store, StoreError};
use tokio::time::Instant;

use crate::error::HttpError;
use crate::state::State;
pub use enforce::{Need, enforce, may_bulk};
pub use passwords::Passwords;
pub use session::log_in;
pub use target::{NamedQueue, NamedSchedule, Sight, may_change_schedule, no_such_schedule, owns_schedule};

/// How long it may take until the first user is noticed.
const NOTICED: Duration = Duration::from_secs(2);

/// Whether anybody is asked who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// Nobody, ever: the operator has said so in words.
    Open,
    /// As long as there are no users, nobody is asked: only this machine is served.
    OpenWithoutUsers,
    Closed,
}

#[derive(Debug)]
pub struct Access {
    door: Door,
    /// There are users, or were once: from then on everybody is asked.
    has_users: AtomicBool,
    looked: Mutex<Option<Instant>>,
    pub limits: SessionLimits,
    pub proxy: Option<Proxy>,
    pub passwords: Passwords,
}

impl Access {
    pub fn new(config: &Config, door: Door) -> Self {
        Self {
            door,
            has_users: AtomicBool::new(false),
            looked: Mutex::default(),
            limits: config.access.session_limits(),
            proxy: config.access.proxy.clone(),
            passwords: Passwords::default(),
        }
    }

    /// Whether whoever asks may do anything.
    pub async fn is_open(&self, store: &Store, is_forwarded: bool) -> Result<bool, StoreError> {
        match self.door {
            Door::Open => return Ok(true),
            Door::Closed => return Ok(false),
            // What a proxy of this machine passes on comes from elsewhere.
            Door::OpenWithoutUsers if is_forwarded => return Ok(false),
            Door::OpenWithoutUsers => {}
        }
        if self.has_users.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let looked = *lock(&self.looked);
        if looked.is_some_and(|at| at.elapsed() < NOTICED) {
            return Ok(true);
        }
        let asked = Instant::now();
        if store.has_users().await? {
            tracing::info!("there are users now: everybody has to log in");
            self.has_users.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        *lock(&self.looked) = Some(asked);
        Ok(true)
    }
}

#[derive(Clone, PartialEq, Eq)]
pub enum Via {
    /// Not at all: nobody is asked.
    OpenDoor,
    Session(Key),
    Password,
    Token {
        name: String,
        text: String,
    },
    Proxy,
}

impl fmt::Debug for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenDoor => f.write_str("OpenDoor"),
            Self::Session(key) => f.debug_tuple("Session").field(key).finish(),
            Self::Password => f.write_str("Password"),
            Self::Token { name, .. } => f.debug_tuple("Token").field(name).finish(),
            Self::Proxy => f.write_str("Proxy"),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Who {
    /// None if nobody is asked.
    pub name: Option<String>,
    pub via: Via,
    pub rights: Rights,
    pub from: String,
    pub trace: Option<TraceContext>,
}

impl Who {
    /// Whoever it is, if nobody is asked.
    pub fn anybody(from: String) -> Self {
        Self { name: None, via: Via::OpenDoor, rights: Rights::all(), from, trace: None }
    }

    fn user(user: User, via: Via, from: String) -> Self {
        Self { name: Some(user.name.to_string()), via, rights: user.rights, from, trace: None }
    }

    /// With the trace that the headers of their request name, if they name one that can be used.
    pub fn within_trace(self, headers: &HeaderMap) -> Self {
        let one = |name: &str| {
            let mut values = headers.get_all(name);
            // Of several, nobody can say which one is meant.
            values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok())
        };
        // These may be on several lines, as one list.
        let list = |name: &str| {
            let values: Option<Vec<&str>> = headers.get_all(name).map(|value| value.to_str().ok()).collect();
            values.map(|values| values.join(","))
        };
        let (state, baggage) = (list("tracestate"), list("baggage"));
        Self { trace: TraceContext::of(one("traceparent"), state.as_deref(), baggage.as_deref()), ..self }
    }

    pub fn of(request: &HttpRequest) -> Result<Self, HttpError> {
        let who = request.extensions().get::<Self>().cloned();
        who.ok_or_else(|| HttpError::unauthorized("this needs a login"))
    }

    /// For a task's history and the audit: who, and from where.
    pub fn words(&self) -> String {
        match (&self.name, &self.via) {
            (Some(name), Via::Token { name: token, .. }) => {
                format!("{name} with the token {token:?} from {}", self.from)
            }
            (Some(name), _) => format!("{name} from {}", self.from),
            (None, _) => format!("the REST API from {}", self.from),
        }
    }

    /// Whether they have at least this role on every queue.
    pub fn is_everywhere(&self, role: Role) -> bool {
        self.rights.everywhere() >= Some(role)
    }

    pub fn reach(&self, role: Role) -> Reach {
        self.rights.reach(role)
    }

    pub fn sees(&self, queue: &Queue) -> bool {
        self.rights.on(queue.id, queue.tenant()) >= Some(Role::Viewer)
    }

    pub fn check(&self, role: Role, queue: &Queue) -> Result<(), HttpError> {
        self.check_task(role, queue, None)
    }

    /// Sees to it that they have at least this role on a task of a queue, which is for a tenant or for nobody in particular.
    pub fn check_task(&self, role: Role, queue: &Queue, tenant: Option<&str>) -> Result<(), HttpError> {
        match self.rights.on_task((queue.id, queue.tenant()), tenant) {
            Some(own) if own >= role => Ok(()),
            Some(_) => Err(HttpError::forbidden(format!(
                "this needs the role {role} on the queue {}",
                queue.display_name()
            ))),
            None => Err(no_such_queue()),
        }
    }
}

/// There is no such queue, or not for whoever asks.
fn no_such_queue() -> HttpError {
    HttpError::not_found("there is no such queue")
}

impl FromRequest for Who {
    type Error = HttpError;
    type Future = Ready<Result<Self, HttpError>>;

    fn from_request(request: &HttpRequest, _: &mut dev::Payload) -> Self::Future {
        ready(Self::of(request))
    }
}

/// Who asks. `None`: nobody who is known. What is shown is believed in this order: a password or token, the word of a
/// proxy, the cookie of a session.
pub async fn identify(request: &HttpRequest, state: &State) -> Result<Option<Who>, HttpError> {
    let access = &state.access;
    let proxy = access.proxy.as_ref();
    let from = address::text(request, proxy);
    if access.is_open(&state.store, is_forwarded(request)).await? {
        return Ok(Some(Who::anybody(from)));
    }
    if let Some(value) = request.headers().get(AUTHORIZATION) {
        return match value.to_str().ok().and_then(shown) {
            Some(shown) => by_what_is_shown(request, state, shown, from).await,
            None => Ok(None),
        };
    }
    if let Some(header) = proxy.and_then(|proxy| proxy.user_header.as_deref())
        && proxy.is_some_and(|proxy| address::is_from_proxy(request, proxy))
        && request.headers().contains_key(header)
    {
        // If there are several, the client has written one of them.
        let mut names = request.headers().get_all(header);
        let (Some(name), None) = (names.next(), names.next()) else { return Ok(None) };
        let name = name.to_str().ok().and_then(|name| name.parse::<UserName>().ok());
        let Some(name) = name else { return Ok(None) };
        let user = state.store.find_user(&name).await?;
        // Whom the proxy has let in is known, though they may have no rights here.
        let rights = user.map_or_else(Rights::default, |user| user.rights);
        return Ok(Some(Who { name: Some(name.to_string()), via: Via::Proxy, rights, from, trace: None }));
    }
    let Some(key) = session::key(request, address::is_encrypted(request, proxy)) else { return Ok(None) };
    let user = state.store.session_user(&key, access.limits).await?;
    Ok(user.map(|user| Who::user(user, Via::Session(key), from)))
}

/// Whether a request shows who makes it, rightly or not.
fn has_shown(request: &HttpRequest) -> bool {
    [AUTHORIZATION, COOKIE].iter().any(|name| request.headers().contains_key(name))
}

/// Whether nothing but the token that a request shows can let it in. A page that has this server's address under another name has none.
pub async fn is_by_token(request: &HttpRequest) -> bool {
    let Some(state) = request.app_data::<Data<State>>() else { return false };
    let authorization = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    matches!(authorization.and_then(shown), Some((None, _)))
        && matches!(state.access.is_open(&state.store, is_forwarded(request)).await, Ok(false))
}

/// Whether something stands between the client and this server, so that not only this machine asks.
fn is_forwarded(request: &HttpRequest) -> bool {
    ["x-forwarded-for", "forwarded", "x-real-ip"].iter().any(|name| request.headers().contains_key(*name))
}

async fn by_what_is_shown(
    request: &HttpRequest,
    state: &State,
    (name, text): (Option<String>, String),
    from: String,
) -> Result<Option<Who>, HttpError> {
    let address = address::of(request, state.access.proxy.as_ref());
    let passwords = &state.access.passwords;
    // A client that can send nothing else may send a token in place of the password.
    if let Some(name) = name.as_deref().filter(|_| !is_token(&text)) {
        let user = passwords.user(state, name, &text, address).await?;
        return Ok(user.map(|user| Who::user(user, Via::Password, from)));
    }
    let bearer = state.store.token_bearer(&text, &from).await?;
    let is_theirs = |owner: &str| name.as_deref().is_none_or(|name| name == owner);
    let Some(bearer) = bearer.filter(|bearer| is_theirs(bearer.user.name.as_str())) else {
        passwords.count_wrong_token(address)?;
        tracing::warn!(from, "a token that is none, or not any more");
        return Ok(None);
    };
    Ok(Some(Who::user(bearer.user, Via::Token { name: bearer.token, text }, from)))
}

/// What the header `Authorization` says: a name and its password, or a token.
fn shown(value: &str) -> Option<(Option<String>, String)> {
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some((None, rest.trim().to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((Some(name.to_owned()), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;
    use disbatch_core::accounts::{Grant, Scope};
    use disbatch_core::explain::Reader;
    use disbatch_core::model::QueueId;

    use super::*;

    #[test]
    fn a_role_is_checked_on_the_queue() {
        let id = ObjectId::new();
        let queue = |id: ObjectId| -> Queue {
            bson::deserialize_from_document(doc! { "_id": id, "name": "mail", "tenant": "acme" }).unwrap()
        };
        let grant = |scope, role| Grant { scope, role };
        let mut who = Who::anybody("10.0.0.1".to_owned());
        assert!(who.check(Role::Admin, &queue(id)).is_ok() && who.is_everywhere(Role::Admin));
        assert_eq!(Reader::of(&who.reach(Role::Viewer)), Reader::OfAll);
        who.rights = Rights::new(None, vec![grant(Scope::Queue(QueueId(id)), Role::Viewer)]);
        assert!(who.check(Role::Viewer, &queue(id)).is_ok() && !who.is_everywhere(Role::Viewer));
        assert_eq!(Reader::of(&who.reach(Role::Viewer)), Reader::OfQueue);
        assert_eq!(who.check(Role::Operator, &queue(id)).unwrap_err().status(), 403);
        assert_eq!(who.check(Role::Viewer, &queue(ObjectId::new())).unwrap_err().status(), 404);
        who.rights = Rights::new(None, vec![grant(Scope::Tenant("acme".into()), Role::Operator)]);
        assert!(who.check(Role::Operator, &queue(ObjectId::new())).is_ok());
    }

    #[test]
    fn it_is_told_who_it_was() {
        let mut who = Who::anybody("10.0.0.1".to_owned());
        assert_eq!(who.words(), "the REST API from 10.0.0.1");
        who.name = Some("alice".to_owned());
        assert_eq!(who.words(), "alice from 10.0.0.1");
        who.via = Via::Token { name: "nightly".to_owned(), text: "x".to_owned() };
        assert_eq!(who.words(), "alice with the token \"nightly\" from 10.0.0.1");
        who.via = Via::Token { name: "nightly".to_owned(), text: "disbatch_secret".to_owned() };
        assert!(!format!("{who:?}").contains("disbatch_secret"));
    }

    #[test]
    fn headers_are_read() {
        let password = |name: &str, password: &str| Some((Some(name.to_owned()), password.to_owned()));
        assert_eq!(shown("Basic YWxpY2U6YTpi"), password("alice", "a:b"));
        assert_eq!(shown("basic  w7xuYWw6"), password("ünal", ""));
        assert_eq!(shown("Bearer disbatch_x"), Some((None, "disbatch_x".to_owned())));
        for rubbish in ["", "Basic", "Basic !", "Basic YWxpY2U=", "Digest x", "Basic /w=="] {
            assert_eq!(shown(rubbish), None, "{rubbish}");
        }
    }
}
