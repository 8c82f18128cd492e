//! `GET /users`: who may log in, and what they may do. They are added and changed with `disbatch user`, which speaks to the
//! database: no process that answers requests can make users.

use std::collections::HashMap;

use actix_web::web::Data;
use askama::Template;
use disbatch_core::accounts::{Role, Token, User};
use disbatch_wire::accounts;

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::json;
use crate::json::date_text;
use crate::openapi::JSON_OR_PAGE;
use crate::state::State;
use crate::ui::account::facts;
use crate::ui::names::{QueueNames, names};
use crate::ui::{self, Rendered};

/// All of them, with the names of queues by id, and how many tokens somebody has.
#[derive(Template)]
#[template(path = "users.html")]
struct Facts {
    users: Vec<User>,
    names: QueueNames,
    tokens: HashMap<String, u64>,
}

/// Who may log in, what they may do, whether they have a password, and how many tokens. Users are added and changed with
/// `disbatch user`. Browsers get a page.
#[utoipa::path(
    get, path = "/users", tag = "accounts", operation_id = "listUsers",
    responses(
        (status = 200, description = "All users, by name; a page if `Accept` asks for HTML.", body = Vec<accounts::User>,
            content_type = JSON_OR_PAGE),
    ),
)]
pub async fn handle(state: Data<State>, who: Who) -> Answer {
    json::of(&Facts::gather(&state, &who).await?.told())
}

pub async fn render(state: Data<State>, who: Who) -> Rendered {
    ui::render(&Facts::gather(&state, &who).await?)
}

impl Facts {
    async fn gather(state: &State, who: &Who) -> Result<Self, HttpError> {
        let store = &state.store;
        let reach = who.reach(Role::Viewer);
        let (users, queues, tokens) =
            futures::try_join!(store.list_users(), store.queues_within(&reach), store.list_tokens(None))?;
        Ok(Self { users, names: names(&queues), tokens: counted(&tokens) })
    }

    fn tokens(&self, user: &User) -> u64 {
        self.tokens.get(user.name.as_str()).copied().unwrap_or_default()
    }

    fn told(&self) -> Vec<accounts::User> {
        let told = |user: &User| accounts::User {
            name: user.name.to_string(),
            role: user.rights.everywhere(),
            grants: facts::wire_grants(user.rights.grants(), &self.names),
            password: user.password.is_some(),
            tokens: self.tokens(user),
            created: user.created.and_then(date_text),
        };
        self.users.iter().map(told).collect()
    }
}

/// How many tokens each user has that have not ended.
fn counted(tokens: &[Token]) -> HashMap<String, u64> {
    let mut counts = HashMap::new();
    for token in tokens.iter().filter(|token| !token.is_over) {
        *counts.entry(token.user.clone()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use bson::DateTime;
    use bson::oid::ObjectId;
    use disbatch_core::accounts::{Grant, PasswordHash, Rights, Scope};
    use disbatch_core::model::QueueId;
    use serde_json::{Value, json};

    use super::*;

    const NASTY: &str = "<script>'\"";

    fn facts() -> Facts {
        let queue = ObjectId::from_bytes([1; 12]);
        let grants = vec![
            Grant { scope: Scope::Queue(QueueId(queue)), role: Role::Operator },
            Grant { scope: Scope::Tenant(NASTY.into()), role: Role::Viewer },
        ];
        let user = |name: &str, rights, password| User {
            name: name.parse().unwrap(),
            rights,
            password,
            created: Some(DateTime::from_millis(1_795_163_067_344)),
        };
        let hash = PasswordHash::of("correct horse").unwrap();
        let users =
            vec![user("admin", Rights::all(), Some(hash)), user(NASTY, Rights::new(None, grants), None)];
        let token = |is_over| Token {
            id: ObjectId::new(),
            user: NASTY.into(),
            name: "n".into(),
            role: Role::Viewer,
            queues: None,
            created: None,
            expires: None,
            used: None,
            from: None,
            is_over,
        };
        let tokens = counted(&[token(false), token(false), token(true)]);
        Facts { users, names: HashMap::from([(queue, NASTY.to_owned())]), tokens }
    }

    #[test]
    fn the_page_shows_users_and_no_hash() {
        let html = facts().render().unwrap();
        let body = html.split("<main").nth(1).unwrap();
        assert!(
            !body.contains("<script") && body.contains("&#60;script&#62;&#39;&#34;"),
            "it is text: {html}"
        );
        for part in [
            "<a href=\"/users\" aria-current=\"page\">Users</a>",
            "<td data-label=\"Role everywhere\">admin</td>",
            "href=\"/queues/010101010101010101010101\"",
            ": operator",
            "<td data-label=\"Password\">yes</td>",
            "<td data-label=\"Tokens\" class=\"number\">2</td>",
            "datetime=\"2026-11-20T08:24:27Z\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("argon2"), "{html}");
        let none = Facts { users: vec![], names: HashMap::new(), tokens: HashMap::new() };
        assert!(none.render().unwrap().contains("There are no users yet."));
    }

    #[test]
    fn programs_are_told_the_same_and_no_hash() {
        let told = json::value_of(&facts().told()).unwrap();
        assert_eq!(
            told[0],
            json!({ "name": "admin", "role": "admin", "grants": [], "password": true, "tokens": 0,
                "created": "2026-11-20T08:24:27" })
        );
        assert_eq!(
            (&told[1]["role"], &told[1]["password"], &told[1]["tokens"]),
            (&Value::Null, &json!(false), &json!(2))
        );
        assert_eq!(told[1]["grants"][0]["name"], json!(NASTY));
        assert!(!told.to_string().contains("argon2"), "{told}");
    }
}
