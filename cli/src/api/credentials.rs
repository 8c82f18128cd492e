//! How a DCI is told who asks, and what to do if that is not enough.

use std::fmt;

use anyhow::{bail, ensure};
use reqwest::{RequestBuilder, StatusCode};

#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    Nothing,
    Password { username: String, password: String },
    Token(String),
}

impl Credentials {
    /// A token comes before user name and password.
    pub fn of(
        token: Option<String>,
        username: Option<String>,
        password: Option<String>,
    ) -> anyhow::Result<Self> {
        let given = |text: &String| !text.is_empty();
        if let Some(token) = token.filter(given) {
            let token = token.trim();
            let is_visible = token.bytes().all(|byte| byte.is_ascii_graphic());
            ensure!(is_visible && !token.is_empty(), "the token has characters that no token has");
            return Ok(Self::Token(token.to_owned()));
        }
        match (username, password) {
            (Some(username), Some(password)) => Ok(Self::Password { username, password }),
            (None, None) => Ok(Self::Nothing),
            _ => bail!("--username and --password must be used together"),
        }
    }

    pub fn show(&self, request: RequestBuilder) -> RequestBuilder {
        match self {
            Self::Nothing => request,
            Self::Password { username, password } => request.basic_auth(username, Some(password)),
            Self::Token(token) => request.bearer_auth(token),
        }
    }

    /// What to do where a DCI that was shown these answers with this status.
    pub fn advice(&self, status: StatusCode) -> Option<&'static str> {
        match (status, self) {
            (StatusCode::UNAUTHORIZED, Self::Nothing) => Some(
                "Give --token, or --username and --password, or put them into the environment or a file: see \
                 `disbatch --help`.",
            ),
            (StatusCode::UNAUTHORIZED, Self::Password { .. }) => Some(
                "The user name or the password is wrong. `disbatch user passwd`, at the database, gives a new one.",
            ),
            (StatusCode::UNAUTHORIZED, Self::Token(_)) => Some(
                "The token is wrong, has ended or was revoked. Make another on the page /account, or with \
                 `disbatch token create` at the database.",
            ),
            (StatusCode::FORBIDDEN, Self::Token(_)) => Some(
                "The token may not do this: it has no more rights than it was made with, and no more than its user. \
                 Ask an administrator, or use another.",
            ),
            (StatusCode::FORBIDDEN, Self::Nothing | Self::Password { .. }) => {
                Some("You may not do this. Ask an administrator: `disbatch user grant` gives further rights.")
            }
            (StatusCode::TOO_MANY_REQUESTS, _) => Some(
                "Passwords are not looked at before that, not even right ones. Correct what you give, and try again \
                 then.",
            ),
            _ => None, // What the DCI says is enough.
        }
    }
}

/// Secrets are no part of messages.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Password { .. } => "Password",
            Self::Token(_) => "Token",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn token() -> Credentials {
        Credentials::Token("t".into())
    }

    fn password() -> Credentials {
        Credentials::Password { username: "u".into(), password: "p".into() }
    }

    #[test]
    fn a_token_comes_before_a_password() {
        let shown = |token, username, password| Credentials::of(token, username, password).unwrap();
        assert_eq!(shown(text("t"), text("u"), text("p")), token());
        assert_eq!(shown(text("t"), text("u"), None), token());
        assert_eq!(shown(text(""), text("u"), text("p")), password());
        assert_eq!(shown(None, None, None), Credentials::Nothing);
        assert_eq!(Credentials::of(text(" t\n"), None, None).unwrap(), Credentials::Token("t".into()));
        for wrong in ["a b", "a\nb", "tökén", " "] {
            let error = Credentials::of(text(wrong), None, None).unwrap_err().to_string();
            assert_eq!(error, "the token has characters that no token has", "{wrong}");
        }
        let error = Credentials::of(None, text("u"), None).unwrap_err().to_string();
        assert_eq!(error, "--username and --password must be used together");
    }

    #[test]
    fn secrets_are_not_shown() {
        let all = Credentials::of(None, text("ashley"), text("secret")).unwrap();
        assert_eq!(format!("{all:?}"), "Password");
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let advice = |shown: Credentials, status: u16| {
            shown.advice(StatusCode::from_u16(status).unwrap()).unwrap_or_default()
        };
        assert!(advice(Credentials::Nothing, 401).starts_with("Give --token"));
        assert!(advice(password(), 401).contains("the password is wrong"));
        assert!(advice(token(), 401).contains("disbatch token create"));
        assert!(advice(password(), 403).contains("disbatch user grant"));
        assert!(advice(token(), 403).contains("The token may not"));
        assert!(advice(Credentials::Nothing, 429).contains("try again"));
        for status in [400, 404, 409, 500] {
            assert_eq!(advice(token(), status), "", "{status}");
        }
    }
}
