//! Somebody who asks, and how it is found out who that is.

use std::fmt;
use std::future::{Ready, ready};

use actix_web::http::header::{AUTHORIZATION, COOKIE, HeaderMap};
use actix_web::{FromRequest, HttpMessage, HttpRequest, dev};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use disbatch_core::accounts::{Key, Reach, Rights, Role, UserName, is_token};
use disbatch_core::model::{Queue, TraceContext};

use super::{address, session};
use crate::error::HttpError;
use crate::state::State;

/// How somebody was recognised.
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

/// Who asks, and what they may do.
#[derive(Debug, Clone, PartialEq)]
pub struct Who {
    /// None if nobody is asked.
    pub name: Option<String>,
    pub via: Via,
    pub rights: Rights,
    /// The address that they ask from.
    pub from: String,
    pub trace: Option<TraceContext>,
}

impl Who {
    /// Whoever it is, if nobody is asked.
    pub fn anybody(from: String) -> Self {
        Self { name: None, via: Via::OpenDoor, rights: Rights::all(), from, trace: None }
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

    /// Which queues they have at least this role on.
    pub fn reach(&self, role: Role) -> Reach {
        self.rights.reach(role)
    }

    /// Whether they may see a queue and its tasks.
    pub fn sees(&self, queue: &Queue) -> bool {
        self.rights.on(queue.id, queue.tenant()) >= Some(Role::Viewer)
    }

    /// Sees to it that they have at least this role on a queue.
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
pub fn no_such_queue() -> HttpError {
    HttpError::not_found("there is no such queue")
}

impl FromRequest for Who {
    type Error = HttpError;
    type Future = Ready<Result<Self, HttpError>>;

    fn from_request(request: &HttpRequest, _: &mut dev::Payload) -> Self::Future {
        ready(Self::of(request))
    }
}

/// What a program shows.
#[derive(Debug, PartialEq, Eq)]
enum Authorization {
    Password { name: String, password: String },
    Token(String),
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
    Ok(user.map(|user| Who {
        name: Some(user.name.to_string()),
        via: Via::Session(key),
        rights: user.rights,
        from,
        trace: None,
    }))
}

/// Whether a request shows who makes it, rightly or not.
pub fn has_shown(request: &HttpRequest) -> bool {
    [AUTHORIZATION, COOKIE].iter().any(|name| request.headers().contains_key(name))
}

/// Whether something stands between the client and this server, so that not only this machine asks.
fn is_forwarded(request: &HttpRequest) -> bool {
    ["x-forwarded-for", "forwarded", "x-real-ip"].iter().any(|name| request.headers().contains_key(*name))
}

async fn by_what_is_shown(
    request: &HttpRequest,
    state: &State,
    shown: Authorization,
    from: String,
) -> Result<Option<Who>, HttpError> {
    let address = address::of(request, state.access.proxy.as_ref());
    let passwords = &state.access.passwords;
    let (name, text) = match shown {
        // A client that can send nothing else may send a token in place of the password.
        Authorization::Password { name, password } if is_token(&password) => (Some(name), password),
        Authorization::Password { name, password } => {
            let user = passwords.user(state, &name, &password, address).await?;
            return Ok(user.map(|user| Who {
                name: Some(user.name.to_string()),
                via: Via::Password,
                rights: user.rights,
                from,
                trace: None,
            }));
        }
        Authorization::Token(text) => (None, text),
    };
    let bearer = state.store.token_bearer(&text, &from).await?;
    let is_theirs = |owner: &str| name.as_deref().is_none_or(|name| name == owner);
    let Some(bearer) = bearer.filter(|bearer| is_theirs(bearer.user.name.as_str())) else {
        passwords.count_wrong_token(address)?;
        tracing::warn!(from, "a token that is none, or not any more");
        return Ok(None);
    };
    Ok(Some(Who {
        name: Some(bearer.user.name.to_string()),
        via: Via::Token { name: bearer.token, text },
        rights: bearer.user.rights,
        from,
        trace: None,
    }))
}

/// What the header `Authorization` says.
fn shown(value: &str) -> Option<Authorization> {
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Authorization::Token(rest.trim().to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some(Authorization::Password { name: name.to_owned(), password: password.to_owned() })
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
        let password = |name: &str, password: &str| {
            Some(Authorization::Password { name: name.to_owned(), password: password.to_owned() })
        };
        assert_eq!(shown("Basic YWxpY2U6YTpi"), password("alice", "a:b"));
        assert_eq!(shown("basic  w7xuYWw6"), password("ünal", ""));
        assert_eq!(shown("Bearer disbatch_x"), Some(Authorization::Token("disbatch_x".into())));
        for rubbish in ["", "Basic", "Basic !", "Basic YWxpY2U=", "Digest x", "Basic /w=="] {
            assert_eq!(shown(rubbish), None, "{rubbish}");
        }
    }
}
