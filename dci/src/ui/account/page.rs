//! The account as a page.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use askama::Template;
use disbatch_core::accounts::Role;
use disbatch_core::model::QueueId;

use super::facts::{self, Facts, May};
use crate::access::{Via, Who};
use crate::error::HttpError;
use crate::params::Params;
use crate::state::State;
use crate::ui::names::short;
use crate::ui::{self, Rendered};

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage<'a> {
    facts: &'a Facts,
    notes: Notes,
}

impl AccountPage<'_> {
    fn refused(&self, form: Form) -> Option<&Refused> {
        self.notes.refused.as_ref().filter(|refused| refused.form == form)
    }

    /// The name of the token that has let in whoever asks.
    fn by_token(&self) -> Option<&str> {
        match &self.facts.who.via {
            Via::Token { name, .. } => Some(name),
            Via::OpenDoor | Via::Session(_) | Via::Password | Via::Proxy => None,
        }
    }

    fn may(&self) -> Vec<May> {
        let facts = self.facts;
        facts::rows(facts.who.rights.everywhere(), &facts.grants(), &facts.names())
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

/// What a page says besides.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// What was done.
    pub said: Option<&'static str>,
    pub refused: Option<Refused>,
    pub made: Option<Made>,
}

/// A form that has come to nothing.
#[derive(Debug)]
pub(super) struct Refused {
    form: Form,
    message: String,
    /// What its field `name` had.
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Password,
    Token,
}

/// A token that was made. Nobody can read it again.
#[derive(Debug)]
pub(super) struct Made {
    pub name: String,
    pub text: String,
    /// The address of this server.
    pub server: String,
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

pub(super) async fn render(state: &State, who: &Who, status: StatusCode, notes: Notes) -> Rendered {
    ui::render(status, &AccountPage { facts: &Facts::gather(state, who).await?, notes })
}

/// The page with what was wrong with a form.
pub(super) async fn refused(
    state: &State,
    who: &Who,
    (form, params): (Form, &Params),
    error: &HttpError,
) -> HttpResponse {
    let name = ui::text(params.fields.get("name"));
    let refused = Refused { form, message: error.message().to_owned(), name };
    let notes = Notes { refused: Some(refused), ..Notes::default() };
    ui::refusal(error, render(state, who, error.status(), notes).await)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bson::oid::ObjectId;
    use bson::{DateTime, doc};
    use disbatch_core::accounts::{Key, Rights, Session, Token};
    use disbatch_core::model::Queue;
    use serde_json::json;

    use super::*;

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);
    const NASTY: &str = "<script>'\"";

    fn facts(via: Via) -> Facts {
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

    fn html(facts: &Facts, notes: Notes) -> String {
        AccountPage { facts, notes }.render().unwrap()
    }

    #[test]
    fn the_page_shows_what_somebody_has_and_may() {
        let html = html(&facts(Via::Session(Key::new().unwrap())), Notes::default());
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
        let proxied = html(&facts(Via::Proxy), Notes::default());
        assert!(
            !proxied.contains("/account/password") && proxied.contains("action=\"/account/tokens\""),
            "{proxied}"
        );
        let by_token =
            html(&facts(Via::Token { name: "<n>".into(), text: "secret".into() }), Notes::default());
        assert!(by_token.contains("&#60;n&#62;") && !by_token.contains("action=\"/account"), "{by_token}");
        assert!(!by_token.contains("secret"));
        let open = html(&facts(Via::OpenDoor), Notes::default());
        assert!(open.contains("Nobody is asked") && open.contains("disbatch user add"), "{open}");
        assert!(!open.contains("action=\"/account"), "{open}");
    }

    #[test]
    fn a_new_token_is_shown_once_and_a_refusal_where_it_was_asked_for() {
        let facts = facts(Via::Password);
        let made = Made { name: NASTY.into(), text: "disbatch_<x>".into(), server: "https://\"h".into() };
        let shown = html(&facts, Notes { made: Some(made), ..Notes::default() });
        for part in [
            "value=\"disbatch_&#60;x&#62;\"",
            "data-copy=\"token-text\"",
            "Authorization: Bearer $TOKEN",
            "https://&#34;h/queues",
        ] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        let refused =
            Refused { form: Form::Token, message: "no <b>queue</b>".into(), name: "<i>nightly".into() };
        let again = html(&facts, Notes { refused: Some(refused), ..Notes::default() });
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
