//! What there is to know about whoever asks, and what they may do, for people and for programs; and the page that has it.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use askama::Template;
use disbatch_core::accounts::{Grant, Role, Scope, Session, Token, UserName};
use disbatch_core::model::{Queue, QueueId};
use disbatch_core::store::StoreError;
use disbatch_wire::accounts::{self, Account, AccountSession, AccountToken};

use crate::access::{Via, Who};
use crate::changes::actor;
use crate::error::HttpError;
use crate::json::date_text;
use crate::params::Params;
use crate::state::State;
use crate::ui::names::{Link, QueueNames, names, short};
use crate::ui::parts::cut;
use crate::ui::{self, Rendered};

pub struct Facts {
    pub who: Who,
    pub queues: Vec<Queue>,
    pub sessions: Vec<Session>,
    pub tokens: Vec<Token>,
}

impl Facts {
    pub async fn gather(state: &State, who: &Who) -> Result<Self, StoreError> {
        let store = &state.store;
        let name: Option<UserName> = match who.via {
            // A token has no more rights than it needs: its owner's other ways in are none of its business.
            Via::Token { .. } | Via::OpenDoor => None,
            Via::Session(_) | Via::Password | Via::Proxy => {
                who.name.as_deref().and_then(|name| name.parse().ok())
            }
        };
        let queues = store.queues_within(&who.reach(Role::Viewer)).await?;
        let (sessions, tokens) = match &name {
            Some(name) => futures::try_join!(store.list_sessions(name), store.list_tokens(Some(name)))?,
            None => (Vec::new(), Vec::new()),
        };
        Ok(Self { who: who.clone(), queues, sessions, tokens })
    }

    /// The roles on some queues. Those of a token that is good for some queues only are told for each of them.
    pub fn grants(&self) -> Vec<Grant> {
        let rights = &self.who.rights;
        if matches!(self.who.via, Via::Token { .. }) && rights.everywhere().is_none() {
            let of = |queue: &Queue| {
                let role = rights.on(queue.id, queue.tenant())?;
                Some(Grant { scope: Scope::Queue(queue.id), role })
            };
            return self.queues.iter().filter_map(of).collect();
        }
        rights.grants().to_vec()
    }

    /// Whether this session is the one that asks.
    pub fn is_own(&self, session: &Session) -> bool {
        matches!(&self.who.via, Via::Session(key) if key.id == session.id)
    }

    pub fn account(&self) -> Account {
        let session = |session: &Session| AccountSession {
            id: session.id.to_hex(),
            created: session.created.and_then(date_text),
            seen: session.seen.and_then(date_text),
            expires: session.expires.and_then(date_text),
            from: session.from.clone(),
            agent: session.agent.clone(),
            own: self.is_own(session),
        };
        let token = |token: &Token| AccountToken {
            id: token.id.to_hex(),
            name: token.name.clone(),
            role: token.role,
            queues: token.queues.as_ref().map(|queues| queues.iter().map(ToString::to_string).collect()),
            created: token.created.and_then(date_text),
            expires: token.expires.and_then(date_text),
            used: token.used.and_then(date_text),
            from: token.from.clone(),
            over: token.is_over,
        };
        Account {
            name: self.who.name.clone(),
            via: actor(&self.who).via.name().unwrap_or_default().to_owned(),
            role: self.who.rights.everywhere(),
            grants: wire_grants(&self.grants(), &names(&self.queues)),
            sessions: self.sessions.iter().map(session).collect(),
            tokens: self.tokens.iter().map(token).collect(),
        }
    }
}

/// So many characters are shown of one that is not known.
const MOST: usize = 60;

/// Parts of what they call themselves, the first of which counts: many name others, too.
const BROWSERS: [(&str, &str); 7] = [
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chromium/", "Chromium"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
];

/// The same of what they run on.
const SYSTEMS: [(&str, &str); 6] = [
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
];

/// `Firefox on Linux`.
pub fn browser_name(agent: &str) -> String {
    let find = |known: &[(&str, &'static str)]| {
        known.iter().find(|(part, _)| agent.contains(*part)).map(|(_, name)| *name)
    };
    match (find(&BROWSERS), find(&SYSTEMS)) {
        (Some(browser), Some(system)) => format!("{browser} on {system}"),
        (Some(browser), None) => browser.to_owned(),
        (None, _) if agent.is_empty() => "not known".to_owned(),
        (None, _) => cut(agent, MOST),
    }
}

/// What somebody with this role may do. Templates pass references.
const fn words(role: &Role) -> &'static str {
    match role {
        Role::Viewer => "look at queues, tasks and their output",
        Role::Submitter => "the same, and submit tasks",
        Role::Operator => "the same, change settings, and cancel, retry and delete tasks",
        Role::Admin => "the same, and see what everybody has done, and which users there are",
    }
}

/// Somebody's roles with where they are good for something: the one for everywhere, and those on some queues, whose names are by id.
pub fn rows(everywhere: Option<Role>, grants: &[Grant], names: &QueueNames) -> Vec<(Link, Role)> {
    let all = everywhere.map(|role| (Link::nowhere("Everywhere"), role));
    let some = grants.iter().map(|grant| match &grant.scope {
        Scope::Queue(queue) => (Link::queue(*queue, names.get(&queue.0)), grant.role),
        Scope::Tenant(tenant) => (Link::nowhere(format!("Queues of {tenant}")), grant.role),
    });
    all.into_iter().chain(some).collect()
}

pub fn wire_grants(grants: &[Grant], names: &QueueNames) -> Vec<accounts::Grant> {
    grants.iter().map(|grant| grant.to_wire(|queue| names.get(&queue.0).cloned())).collect()
}

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage<'a> {
    facts: &'a Facts,
    note: Note,
}

impl AccountPage<'_> {
    /// What is wrong with this form, and what its field `name` had.
    fn refused(&self, of: Form) -> Option<(&str, &str)> {
        match &self.note {
            Note::Refused { form, message, name } if *form == of => Some((message.as_str(), name.as_str())),
            _ => None, // It is of another form, or nothing is wrong.
        }
    }

    fn by_token(&self) -> Option<&str> {
        match &self.facts.who.via {
            Via::Token { name, .. } => Some(name),
            Via::OpenDoor | Via::Session(_) | Via::Password | Via::Proxy => None,
        }
    }

    fn may(&self) -> Vec<(Link, Role)> {
        let facts = self.facts;
        rows(facts.who.rights.everywhere(), &facts.grants(), &names(&facts.queues))
    }

    /// The roles that a new token can have.
    fn roles(&self) -> Vec<Role> {
        let highest = self.facts.who.rights.somewhere();
        Role::ALL.into_iter().filter(|role| Some(*role) <= highest).collect()
    }

    fn queue_name(&self, id: &QueueId) -> String {
        let queue = self.facts.queues.iter().find(|queue| queue.id == *id);
        queue.map_or_else(|| id.to_string(), short)
    }
}

/// What the page says besides.
#[derive(Debug)]
pub(super) enum Note {
    /// What was done, if something was.
    Said(Option<&'static str>),
    /// Of which form something is wrong, what that is, and what its field `name` had.
    Refused { form: Form, message: String, name: String },
    /// A token that was made. Nobody can read it again.
    Made { name: String, text: String, server: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Password,
    Token,
}

/// What the address says that was done.
pub(super) fn said(params: &Params) -> Option<&'static str> {
    match ui::text(params.fields.get("said")).as_str() {
        "password" => Some("Your password is changed, and all your other sessions have ended."),
        "session" => Some("The session is ended."),
        "token" => Some("The token is revoked: whoever has it is not let in any more."),
        _ => None, // Anybody can make up an address.
    }
}

pub(super) async fn render(state: &State, who: &Who, status: StatusCode, note: Note) -> Rendered {
    ui::render_with(status, &AccountPage { facts: &Facts::gather(state, who).await?, note })
}

pub(super) async fn refused(
    state: &State,
    who: &Who,
    (form, params): (Form, &Params),
    error: &HttpError,
) -> HttpResponse {
    let given = params.known::<accounts::NewToken>();
    let name = given.map(|given| ui::text(given.name.as_ref())).unwrap_or_default();
    let note = Note::Refused { form, message: error.message().to_owned(), name };
    ui::refusal(error, render(state, who, error.status(), note).await)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use bson::oid::ObjectId;
    use bson::{DateTime, doc};
    use disbatch_core::accounts::{Key, Rights};
    use serde_json::json;

    use super::*;
    use crate::json::value_of;

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

    fn queue(number: u8) -> Queue {
        let document = doc! { "_id": ObjectId::from_bytes([number; 12]), "name": format!("q{number}") };
        bson::deserialize_from_document(document).unwrap()
    }

    fn facts(via: Via, rights: Rights) -> Facts {
        let mut who = Who::anybody("10.0.0.1".into());
        (who.name, who.via, who.rights) = (Some("alice".into()), via, rights);
        Facts { who, queues: vec![queue(1), queue(2)], sessions: Vec::new(), tokens: Vec::new() }
    }

    #[test]
    fn programs_are_told_who_they_are() {
        let key = Key::new().unwrap();
        let mut facts = facts(Via::Session(key.clone()), Rights::all());
        facts.sessions.push(Session {
            id: key.id,
            created: Some(NOW),
            seen: Some(NOW),
            expires: None,
            from: "10.0.0.1".into(),
            agent: "curl".into(),
        });
        facts.tokens.push(Token {
            id: ObjectId::from_bytes([3; 12]),
            user: "alice".into(),
            name: "nightly".into(),
            role: Role::Viewer,
            queues: Some(BTreeSet::from([queue(1).id])),
            created: Some(NOW),
            expires: None,
            used: None,
            from: None,
            is_over: false,
        });
        let told = value_of(&facts.account()).unwrap();
        assert_eq!(
            (&told["name"], &told["role"], &told["via"]),
            (&json!("alice"), &json!("admin"), &json!("session"))
        );
        assert_eq!(told["grants"], json!([]));
        let session = &told["sessions"][0];
        assert_eq!((&session["own"], &session["seen"]), (&json!(true), &json!("2026-11-20T08:24:27")));
        assert_eq!(told["tokens"][0]["queues"], json!([queue(1).id.to_string()]));
        assert!(!told.to_string().contains(key.text().get(24..).unwrap()), "the key is the browser's alone");
    }

    #[test]
    fn a_token_that_is_good_for_some_queues_is_told_for_which() {
        let by_token = Via::Token { name: "nightly".into(), text: "x".into() };
        let only = Some(BTreeSet::from([queue(2).id]));
        let narrow = facts(by_token.clone(), Rights::all().narrowed(Role::Submitter, only));
        let of_second = Grant { scope: Scope::Queue(queue(2).id), role: Role::Submitter };
        assert_eq!((narrow.account().role, narrow.grants()), (None, vec![of_second]));
        let grants = vec![Grant { scope: Scope::Queue(QueueId(ObjectId::new())), role: Role::Viewer }];
        let whole = facts(by_token, Rights::new(Some(Role::Operator), grants.clone()));
        assert_eq!((whole.account().role, whole.grants()), (Some(Role::Operator), grants));
    }

    #[test]
    fn browsers_are_known_by_what_they_call_themselves() {
        let firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
        let edge = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 \
                    Safari/537.36 Edg/140.0.0.0";
        let safari = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) \
                      Version/18.0 Safari/605.1.15";
        for (agent, expected) in [
            (firefox, "Firefox on Linux"),
            (edge, "Edge on Windows"),
            (safari, "Safari on macOS"),
            ("curl/8.0", "curl"),
            ("", "not known"),
            ("<script>", "<script>"),
        ] {
            assert_eq!(browser_name(agent), expected);
        }
        assert_eq!(browser_name(&"x".repeat(200)).chars().count(), MOST + 1);
    }

    #[test]
    fn roles_are_told_with_where_they_are_good() {
        let [known, gone] = [1, 2].map(|number| ObjectId::from_bytes([number; 12]));
        let names = HashMap::from([(known, "<mail>".to_owned())]);
        let grants = [
            Grant { scope: Scope::Queue(QueueId(known)), role: Role::Operator },
            Grant { scope: Scope::Queue(QueueId(gone)), role: Role::Viewer },
            Grant { scope: Scope::Tenant("acme".into()), role: Role::Submitter },
        ];
        let rows = rows(Some(Role::Viewer), &grants, &names);
        let told: Vec<_> = rows.iter().map(|(place, role)| (place.name.as_str(), role.as_str())).collect();
        let of_gone = format!("Queue {gone}, which is not there");
        let expected = [
            ("Everywhere", "viewer"),
            ("Queue <mail>", "operator"),
            (of_gone.as_str(), "viewer"),
            ("Queues of acme", "submitter"),
        ];
        assert_eq!(told, expected);
        assert_eq!(rows[1].0.address, Some(format!("/queues/{known}")));
        assert_eq!(rows[2].0.address, None);
        assert_eq!(
            value_of(&wire_grants(&grants, &names)).unwrap(),
            json!([
                { "queue": known.to_hex(), "name": "<mail>", "role": "operator" },
                { "queue": gone.to_hex(), "name": null, "role": "viewer" },
                { "tenant": "acme", "role": "submitter" },
            ])
        );
        assert!(super::rows(None, &[], &names).is_empty());
    }

    const NASTY: &str = "<script>'\"";

    fn facts_of(via: Via) -> Facts {
        let mut who = Who::anybody("10.0.0.1".into());
        if via != Via::OpenDoor {
            who.name = Some(NASTY.into());
            who.rights = Rights::new(Some(Role::Submitter), Vec::new());
        }
        who.via = via;
        let id = ObjectId::from_bytes([1; 12]);
        let queue: Queue = bson::deserialize_from_document(doc! { "_id": id, "name": NASTY }).unwrap();
        let session = |id| Session {
            id,
            created: Some(NOW),
            seen: Some(NOW),
            expires: None,
            from: NASTY.into(),
            agent: format!("{NASTY} Firefox/1 Linux"),
        };
        let own = match &who.via {
            Via::Session(key) => key.id,
            _ => ObjectId::from_bytes([5; 12]), // None of theirs.
        };
        let token = |number: u8, expires, used: Option<DateTime>, is_over| Token {
            id: ObjectId::from_bytes([number; 12]),
            user: NASTY.into(),
            name: format!("{NASTY}{number}"),
            role: Role::Viewer,
            queues: used.map(|_| BTreeSet::from([queue.id])),
            created: Some(NOW),
            expires,
            used,
            from: None,
            is_over,
        };
        let tokens = vec![token(3, None, None, false), token(4, Some(NOW), Some(NOW), true)];
        let sessions = vec![session(own), session(ObjectId::from_bytes([2; 12]))];
        Facts { who, queues: vec![queue], sessions, tokens }
    }

    fn html(facts: &Facts, note: Note) -> String {
        AccountPage { facts, note }.render().unwrap()
    }

    #[test]
    fn the_page_shows_what_somebody_has_and_may() {
        let html = html(&facts_of(Via::Session(Key::new().unwrap())), Note::Said(None));
        let body = html.split("<main").nth(1).unwrap();
        assert!(
            !body.contains("<script") && body.contains("&#60;script&#62;&#39;&#34;"),
            "it is text: {html}"
        );
        for part in [
            "<td data-label=\"You may\">the same, and submit tasks</td>",
            "action=\"/account/password\" method=\"post\"",
            "this one",
            "Firefox on Linux",
            "action=\"/account/sessions/020202020202020202020202/end\" method=\"post\"",
            "action=\"/account/tokens/030303030303030303030303/revoke\" method=\"post\"",
            "hx-confirm=\"End the session of Firefox on Linux",
            "hx-confirm=\"Revoke the token ",
            "datetime=\"2026-11-20T08:24:27Z\"",
            "<span class=\"status ended\">over</span>",
            "<option value=\"submitter\">submitter</option>",
            "<option value=\"90\" selected>90 days</option>",
            "name=\"queues\" value=\"010101010101010101010101\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert_eq!(html.matches("/end\" method").count(), 1, "one logs out of one's own session: {html}");
        assert!(!html.contains("value=\"operator\""), "that would be more than they may: {html}");
    }

    #[test]
    fn who_comes_otherwise_changes_less() {
        let proxied = html(&facts_of(Via::Proxy), Note::Said(None));
        assert!(
            !proxied.contains("/account/password") && proxied.contains("action=\"/account/tokens\""),
            "{proxied}"
        );
        let by_token =
            html(&facts_of(Via::Token { name: "<n>".into(), text: "secret".into() }), Note::Said(None));
        assert!(by_token.contains("&#60;n&#62;") && !by_token.contains("action=\"/account"), "{by_token}");
        assert!(!by_token.contains("secret"));
        let open = html(&facts_of(Via::OpenDoor), Note::Said(None));
        assert!(open.contains("Nobody is asked") && open.contains("disbatch user add"), "{open}");
        assert!(!open.contains("action=\"/account"), "{open}");
    }

    #[test]
    fn a_new_token_is_shown_once_and_a_refusal_where_it_was_asked_for() {
        let facts = facts_of(Via::Password);
        let made =
            Note::Made { name: NASTY.into(), text: "disbatch_<x>".into(), server: "https://\"h".into() };
        let shown = html(&facts, made);
        for part in [
            "value=\"disbatch_&#60;x&#62;\"",
            "data-copy=\"token-text\"",
            "Authorization: Bearer $TOKEN",
            "https://&#34;h/queues",
        ] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        let refused =
            Note::Refused { form: Form::Token, message: "no <b>queue</b>".into(), name: "<i>nightly".into() };
        let again = html(&facts, refused);
        assert!(
            again.contains("no &#60;b&#62;queue&#60;/b&#62;") && again.contains("&#60;i&#62;nightly"),
            "{again}"
        );
        assert_eq!(again.matches("role=\"alert\"").count(), 1, "{again}");
    }

    #[test]
    fn an_address_says_nothing_of_its_own() {
        let of = |text: &str| {
            let fields = json!({ "said": text }).as_object().unwrap().clone();
            said(&Params { fields, ..Params::default() })
        };
        assert!(of("password").unwrap().contains("password is changed"));
        assert_eq!((of("<b>"), of("")), (None, None));
        assert_eq!(said(&Params::default()), None);
    }
}
