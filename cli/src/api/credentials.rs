//! How a DCI is told who asks, and what to do if that is not enough.

use std::fmt;

use anyhow::{bail, ensure};
use reqwest::{RequestBuilder, StatusCode};

#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    Nothing,
    Password {
        username: String,
        password: String,
    },
    Token(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialKind {
    Nothing,
    Password,
    Token,
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

    pub fn shown(&self) -> CredentialKind {
        match self {
            Self::Nothing => CredentialKind::Nothing,
            Self::Password { .. } => CredentialKind::Password,
            Self::Token(_) => CredentialKind::Token,
        }
    }
}

/// Secrets are no part of messages.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown().fmt(f)
    }
}

impl CredentialKind {
    pub fn advice(self, status: StatusCode) -> Option<&'static str> {
        match (status, self) {
            (StatusCode::UNAUTHORIZED, Self::Nothing) => Some(
                "Give --token, or --username and --password, or put them into the environment or a file: see \
                 `disbatch --help`.",
            ),
            (StatusCode::UNAUTHORIZED, Self::Password) => Some(
                "The user name or the password is wrong. `disbatch user passwd`, at the database, gives a new one.",
            ),
            (StatusCode::UNAUTHORIZED, Self::Token) => Some(
                "The token is wrong, has ended or was revoked. Make another on the page /account, or with \
                 `disbatch token create` at the database.",
            ),
            (StatusCode::FORBIDDEN, Self::Token) => Some(
                "The token may not do this: it has no more rights than it was made with, and no more than its user. \
                 Ask an administrator, or use another.",
            ),
            (StatusCode::FORBIDDEN, Self::Nothing | Self::Password) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_token_comes_before_a_password() {
        let shown = |token, username, password| Credentials::of(token, username, password).unwrap().shown();
        assert_eq!(shown(text("t"), text("u"), text("p")), CredentialKind::Token);
        assert_eq!(shown(text("t"), text("u"), None), CredentialKind::Token);
        assert_eq!(shown(text(""), text("u"), text("p")), CredentialKind::Password);
        assert_eq!(shown(None, None, None), CredentialKind::Nothing);
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
        let advice = |shown: CredentialKind, status: u16| {
            shown.advice(StatusCode::from_u16(status).unwrap()).unwrap_or_default()
        };
        assert!(advice(CredentialKind::Nothing, 401).starts_with("Give --token"));
        assert!(advice(CredentialKind::Password, 401).contains("the password is wrong"));
        assert!(advice(CredentialKind::Token, 401).contains("disbatch token create"));
        assert!(advice(CredentialKind::Password, 403).contains("disbatch user grant"));
        assert!(advice(CredentialKind::Token, 403).contains("The token may not"));
        assert!(advice(CredentialKind::Nothing, 429).contains("try again"));
        for status in [400, 404, 409, 500] {
            assert_eq!(advice(CredentialKind::Token, status), "", "{status}");
        }
    }
}
