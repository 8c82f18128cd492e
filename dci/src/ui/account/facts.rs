//! What there is to know about whoever asks.

use std::collections::{BTreeSet, HashMap};

use bson::DateTime;
use bson::oid::ObjectId;
use disbatch_core::accounts::{Grant, Role, Scope, Session, Token, UserName};
use disbatch_core::model::{Queue, QueueId};
use disbatch_core::store::StoreError;
use serde_json::{Value, json};

use super::rights;
use crate::access::{Via, Who};
use crate::json::date_text;
use crate::state::State;
use crate::ui::names::names;

pub struct Facts {
    pub who: Who,
    /// The queues that they may see.
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

    /// The names of the queues.
    pub fn names(&self) -> HashMap<ObjectId, String> {
        names(&self.queues)
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

    /// All of it for programs.
    pub fn json(&self) -> Value {
        json!({
            "name": self.who.name,
            "via": via(&self.who.via),
            "role": self.who.rights.everywhere().map(Role::name),
            "grants": rights::grants_json(&self.grants(), &self.names()),
            "sessions": self.sessions.iter().map(|session| self.session(session)).collect::<Vec<_>>(),
            "tokens": self.tokens.iter().map(token).collect::<Vec<_>>(),
        })
    }

    fn session(&self, session: &Session) -> Value {
        json!({
            "id": session.id.to_hex(),
            "created": date(session.created),
            "seen": date(session.seen),
            "expires": date(session.expires),
            "from": session.from,
            "agent": session.agent,
            "own": self.is_own(session),
        })
    }
}

fn token(token: &Token) -> Value {
    let ids = |queues: &BTreeSet<QueueId>| queues.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "id": token.id.to_hex(),
        "name": token.name,
        "role": token.role.name(),
        "queues": token.queues.as_ref().map(ids),
        "created": date(token.created),
        "expires": date(token.expires),
        "used": date(token.used),
        "from": token.from,
        "over": token.is_over,
    })
}

fn date(at: Option<DateTime>) -> Option<String> {
    at.and_then(date_text)
}

/// How somebody was recognised.
const fn via(via: &Via) -> &'static str {
    match via {
        Via::OpenDoor => "open",
        Via::Session(_) => "session",
        Via::Password => "password",
        Via::Token { .. } => "token",
        Via::Proxy => "proxy",
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use disbatch_core::accounts::{Key, Rights};

    use super::*;

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
        let told = facts.json();
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
        assert_eq!((narrow.json()["role"].clone(), narrow.grants()), (Value::Null, vec![of_second]));
        let grants = vec![Grant { scope: Scope::Queue(QueueId(ObjectId::new())), role: Role::Viewer }];
        let whole = facts(by_token, Rights::new(Some(Role::Operator), grants.clone()));
        assert_eq!((whole.json()["role"].clone(), whole.grants()), (json!("operator"), grants));
    }
}
