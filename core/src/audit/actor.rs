//! Who did something.

use bson::{Document, doc};

use super::difference::short;

/// Who did something, how they were recognised, and from where they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The name of the user. None: nobody was asked, or it was no user of the web server.
    pub name: Option<String>,
    pub via: Via,
    /// Where they came from: an address, or for the command line an account and a host.
    pub from: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    /// Not at all: nobody is asked.
    OpenDoor,
    Session,
    Password,
    /// By a token of this name.
    Token(String),
    Proxy,
    /// By the host that they worked on.
    CommandLine,
    /// They were not: what they have shown was wrong.
    Refused,
    /// They were, and only these words have been left of it, by an older release.
    Words(String),
}

impl Via {
    /// As it is stored. None: nothing is.
    pub const fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::OpenDoor => "open",
            Self::Session => "session",
            Self::Password => "password",
            Self::Token(_) => "token",
            Self::Proxy => "proxy",
            Self::CommandLine => "command line",
            Self::Refused => "refused",
            Self::Words(_) => return None,
        })
    }
}

impl Actor {
    /// A user of the web server.
    pub fn new(name: Option<String>, via: Via, from: impl Into<String>) -> Self {
        Self { name, via, from: from.into() }
    }

    /// Somebody who administers Disbatch with an account of a host.
    pub fn of_command_line(account: &str, host: &str) -> Self {
        Self::new(None, Via::CommandLine, format!("{account}@{host}"))
    }

    /// Somebody who was not let in.
    pub fn refused(from: impl Into<String>) -> Self {
        Self::new(None, Via::Refused, from)
    }

    /// For people: who, and from where.
    pub fn words(&self) -> String {
        let from = &self.from;
        match (&self.name, &self.via) {
            (_, Via::Words(words)) => words.clone(),
            (Some(name), Via::Token(token)) => format!("{name} with the token {token:?} from {from}"),
            (Some(name), _) => format!("{name} from {from}"),
            (None, Via::CommandLine) => format!("{from} with the command line"),
            (None, Via::Refused) => format!("somebody unknown from {from}"),
            (None, _) => format!("the REST API from {from}"), // They have no name.
        }
    }

    /// As entries and bulk jobs have it.
    pub(crate) fn document(&self) -> Document {
        let mut document = Document::new();
        if let Some(name) = &self.name {
            document.insert("user", short(name));
        }
        let Some(via) = self.via.name() else { return document };
        document.insert("via", via);
        if let Via::Token(token) = &self.via {
            document.insert("token_name", short(token));
        }
        document.insert("from", short(&self.from));
        document
    }

    /// Reads what [`Actor::document`] has written, where `words` were stored beside it.
    pub(crate) fn stored(document: &Document, words: &str) -> Self {
        let text = |name: &str| document.get_str(name).ok().map(str::to_owned);
        let via = match document.get_str("via").unwrap_or_default() {
            "open" => Via::OpenDoor,
            "session" => Via::Session,
            "password" => Via::Password,
            "token" => Via::Token(text("token_name").unwrap_or_default()),
            "proxy" => Via::Proxy,
            "command line" => Via::CommandLine,
            "refused" => Via::Refused,
            _ => Via::Words(words.to_owned()), // Nothing is stored, or by a newer release.
        };
        Self { name: text("user"), via, from: text("from").unwrap_or_default() }
    }
}

impl From<&Actor> for Document {
    fn from(actor: &Actor) -> Self {
        let mut document = doc! { "by": actor.words() };
        document.extend(actor.document());
        document
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Actor> {
        let token = Via::Token("nightly".to_owned());
        let mut all: Vec<Actor> = [Via::Session, Via::Password, token, Via::Proxy]
            .map(|via| Actor::new(Some("alice".to_owned()), via, "10.0.0.1"))
            .into();
        all.push(Actor::new(None, Via::OpenDoor, "10.0.0.1"));
        all.push(Actor::of_command_line("root", "db1"));
        all.push(Actor::refused("10.0.0.1"));
        all
    }

    #[test]
    fn it_is_told_who_it_was() {
        let words: Vec<String> = all().iter().map(Actor::words).collect();
        let expected = [
            "alice from 10.0.0.1",
            "alice from 10.0.0.1",
            "alice with the token \"nightly\" from 10.0.0.1",
            "alice from 10.0.0.1",
            "the REST API from 10.0.0.1",
            "root@db1 with the command line",
            "somebody unknown from 10.0.0.1",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn they_are_stored_and_read_again() {
        for actor in all() {
            assert_eq!(Actor::stored(&actor.document(), "other words"), actor);
        }
        let old = Actor::stored(&Document::new(), "the REST API from 10.0.0.1");
        assert_eq!(old.words(), "the REST API from 10.0.0.1");
        assert_eq!(Document::from(&old), doc! { "by": "the REST API from 10.0.0.1" });
        let newer = doc! { "user": "alice", "via": "telepathy", "from": "afar" };
        assert_eq!(Actor::stored(&newer, "alice by telepathy").words(), "alice by telepathy");
    }
}
