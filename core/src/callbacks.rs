//! Callbacks: what a web service says about the task that it works on. It shows the token that it was given with the task,
//! of which the task has the fingerprint (`external.token`, see [`crate::task::EXTERNAL`]).
//!
//! Each callback is one conditional update: the task is running, it is still the attempt that the token was made for, and no
//! end was noted for it. It also starts the time anew in which something has to be heard. So any number of servers may take
//! callbacks at once, and what comes after the end changes nothing.
//!
//! The log is kept in pieces ([`log`]), by numbers that the same update gives. That keeps nothing back that was acknowledged:
//! whoever ends the task notes that first, and reads the pieces then; and a piece is acknowledged only if no end was noted
//! after it had been stored.

mod log;

use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use mongodb::options::ReturnDocument;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::live::LiveStream;
use crate::model::{Status, TaskId, whole_number};
use crate::output::StreamName;
use crate::store::{Store, StoreError, Stored};
use crate::task::transition::Transition;
use crate::task::{DETACHED, EXTERNAL, Ending, Reason, STORAGE, silence};
use crate::text::hex;
pub use log::{LogSweep, MOST_CALLS, MOST_LOG};

/// A piece of the log, or what is stored for the next run, has so many bytes at most.
pub const MOST_AT_ONCE: usize = 1024 * 1024;

/// The live output is tidied after so many bytes, and after so many calls.
const TIDIED_EACH: u64 = 1024 * 1024;
const TIDIED_AFTER: i64 = 256;

/// So many calls are shown at most, however short they are.
const MOST_SHOWN: u64 = 4_096;

/// A log of so many bytes may be brought to its place by several at once.
const LITTLE_LOGGED: i64 = 4 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    Done,
    /// The task has ended, or will in a moment, or is another attempt's by now. Nothing has changed.
    Over,
    NoSuchTask,
    /// The token is not this task's. Nothing has changed.
    WrongToken,
    /// The log is as long as it may be, or has come in as many calls: [`MOST_LOG`], [`MOST_CALLS`]. Nothing was added.
    LogFull,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// At least 1; or -3 if the service has given it up.
    pub status: Status,
    pub message: Option<String>,
    pub result: Option<Document>,
}

impl Store {
    /// Whether `token` is the one of `task`, and the task is still with its web service. Changes nothing.
    #[operation(task = %task)]
    pub async fn callback_bearer(&self, task: TaskId, token: &Token) -> Result<Heard, StoreError> {
        let found = self.stored_task::<Stored>(task, doc! { "status": 1, "attempt": 1, EXTERNAL: 1 }).await?;
        Ok(found.map_or(Heard::NoSuchTask, |(found, _)| standing(&found, token)))
    }

    /// Adds `bytes` to the log of a task. None: that only tells that the service is still at work. After an error they may have been
    /// added.
    #[operation(task = %task, bytes = bytes.len())]
    pub async fn callback_log(
        &self,
        task: TaskId,
        token: &Token,
        bytes: Vec<u8>,
    ) -> Result<Heard, StoreError> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let room = i64::try_from(MOST_LOG.saturating_sub(length)).unwrap_or(0);
        let mut has_room = open(task, token);
        if length > 0 {
            has_room.insert("external.bytes", doc! { "$lte": room });
            has_room.insert("external.log", doc! { "$lt": MOST_CALLS });
        }
        let added = |field: &str, more: i64| {
            let before = doc! { "$ifNull": [format!("$external.{field}"), 0_i64] };
            doc! { "$add": [before, more] }
        };
        let update = heard()
            .compute("external.log", added("log", i64::from(length > 0)))
            .compute("external.bytes", added("bytes", i64::try_from(length).unwrap_or(0)));
        let only = doc! { "attempt": 1, "external.log": 1, "external.bytes": 1 };
        let updated = self
            .tasks()
            .find_one_and_update(has_room, update.pipeline())
            .projection(only)
            .return_document(ReturnDocument::After)
            .await?;
        let Some(updated) = updated else {
            let why = self.callback_bearer(task, token).await?;
            if why != Heard::Done {
                return Ok(why);
            }
            // It is at work all the same.
            self.tasks().update_one(open(task, token), heard().pipeline()).await?;
            return Ok(Heard::LogFull);
        };
        if length == 0 {
            return Ok(Heard::Done);
        }
        let piece = log::Piece::of(task, &updated, bytes);
        self.add_piece(&piece).await?;
        // Whoever has noted the end before this may have read the log without this piece.
        let standing = self.callback_bearer(task, token).await?;
        if standing != Heard::Done {
            self.withdraw_piece(&piece).await?;
            return Ok(standing);
        }
        self.show(&piece).await;
        Ok(Heard::Done)
    }

    /// Keeps what the service wants to find in the next run of the task's schedule, or in the next attempt.
    ///
    /// # Errors
    /// Among others, the document would be too large ([`crate::store::WriteFailure::is_too_large`]).
    #[operation(task = %task)]
    pub async fn callback_storage(
        &self,
        task: TaskId,
        token: &Token,
        storage: Bson,
    ) -> Result<Heard, StoreError> {
        let update = heard().set(STORAGE, storage).pipeline();
        if self.tasks().update_one(open(task, token), update).await?.matched_count == 1 {
            return Ok(Heard::Done);
        }
        let why = self.callback_bearer(task, token).await?;
        // Between the two it was another one's turn.
        Ok(if why == Heard::Done { Heard::Over } else { why })
    }

    /// Ends a task as its service says. May be repeated: an end that is this one counts as done.
    ///
    /// # Errors
    /// The database cannot be reached. The end may have been noted all the same; then a DEN makes it if this is not
    /// repeated.
    #[operation(task = %task, status = %report.status)]
    pub async fn callback_status(
        &self,
        task: TaskId,
        token: &Token,
        report: Report,
    ) -> Result<Heard, StoreError> {
        let Report { status, message, result } = report;
        let ending = Ending { status, reason: Reason::Service, message, result };
        if !self.note_end(open(task, token), &ending, None).await? {
            let why = self.callback_bearer(task, token).await?;
            if why != Heard::Over {
                return Ok(if why == Heard::Done { Heard::Over } else { why });
            }
            let Some(ended) = self.ended_so(task, token, &ending).await? else { return Ok(why) };
            return self.help_to_end(task, &ended).await;
        }
        Box::pin(self.complete_external(task)).await?;
        Ok(Heard::Done)
    }

    /// The task if the end that was noted for it is this one, and no other attempt has begun since.
    async fn ended_so(
        &self,
        task: TaskId,
        token: &Token,
        ending: &Ending,
    ) -> Result<Option<Stored>, StoreError> {
        let of_token = doc! { "_id": task, "external.token": token.fingerprint(), "$expr": same_attempt() };
        let only = doc! { "status": 1, "attempt": 1, EXTERNAL: 1 };
        let found = self.tasks().find_one(of_token).projection(only).await?;
        Ok(found.filter(|found| {
            let noted = found.get_document(EXTERNAL).ok().and_then(Ending::of);
            noted.is_some_and(|noted| noted.status == ending.status && noted.reason == ending.reason)
        }))
    }

    /// The service has said again how its task has ended, because it has had no answer: whoever made that end may be dead.
    async fn help_to_end(&self, task: TaskId, ended: &Document) -> Result<Heard, StoreError> {
        let number = |document: &Document, field: &str| document.get(field).and_then(whole_number);
        let logged = ended.get_document(EXTERNAL).ok().and_then(|external| number(external, "bytes"));
        if number(ended, "status") != Some(Status::Running.code()) {
            if let Some(attempt) = number(ended, "attempt") {
                self.remove_log(task, attempt).await?;
                self.remove_live(task, Some(attempt)).await?;
            }
        } else if logged.is_none_or(|bytes| bytes <= LITTLE_LOGGED) {
            Box::pin(self.complete_external(task)).await?;
        }
        // With a long log, it is not begun anew as long as somebody is at it: a DEN does that when nobody is any more.
        Ok(Heard::Done)
    }

    /// Shows a piece of the log to those who watch. Nothing depends on it.
    async fn show(&self, piece: &log::Piece) {
        let of = LiveStream { task: piece.task, attempt: piece.attempt, stream: StreamName::Stdout };
        let end = piece.offset + piece.bytes.len() as u64;
        let mut shown = self.append_live(of, piece.offset, &piece.bytes).await;
        if shown.is_ok() && end / TIDIED_EACH != piece.offset / TIDIED_EACH {
            shown = self.trim_live(of, end).await;
        }
        if shown.is_ok() && piece.call % TIDIED_AFTER == 0 {
            shown = self.trim_live_chunks(of, MOST_SHOWN).await;
        }
        if let Err(error) = shown {
            tracing::debug!(task = %piece.task, %error, "cannot show what a web service has logged");
        }
    }
}

fn open(task: TaskId, token: &Token) -> Document {
    doc! {
        "_id": task, "status": Status::Running, "external.token": token.fingerprint(),
        "external.end": Bson::Null, "$expr": same_attempt(),
    }
}

/// The task is at the attempt that a token was given out for, and that token was not withdrawn.
fn same_attempt() -> Document {
    doc! { "$eq": ["$external.attempt", "$attempt"] }
}

/// Something was heard of the service. A runner that still has the task renews its lease by itself.
fn heard() -> Transition {
    let is_detached = doc! { "$eq": [format!("${DETACHED}"), true] };
    Transition::within()
        .set("external.called", true)
        .compute("external.heard", "$$NOW")
        .compute("lease_until", doc! { "$cond": [is_detached, silence(), "$lease_until"] })
}

/// How a task stands to a token. The time that it takes does not tell how much of a wrong one is right.
fn standing(task: &Document, token: &Token) -> Heard {
    let Ok(external) = task.get_document(EXTERNAL) else { return Heard::WrongToken };
    let ours = token.fingerprint();
    let is_ours = |stored: &str| bool::from(stored.as_bytes().ct_eq(ours.as_bytes()));
    if !external.get_str("token").is_ok_and(is_ours) {
        let mut earlier = external.get_array("earlier").into_iter().flatten().filter_map(Bson::as_str);
        return if earlier.any(is_ours) { Heard::Over } else { Heard::WrongToken };
    }
    let number = |document: &Document, field: &str| document.get(field).and_then(whole_number);
    let is_open = number(task, "status") == Some(Status::Running.code())
        && number(task, "attempt") == number(external, "attempt")
        && external.get_document("end").is_err();
    if is_open { Heard::Done } else { Heard::Over }
}

/// The length of a token as text: 256 random bits in hexadecimal.
const TOKEN_LENGTH: usize = 64;

/// A token for one attempt of one task. It is shown in a header, or is a part of the address; one of either kind is none of the
/// other.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    text: String,
    is_in_address: bool,
}

impl Token {
    pub fn new() -> std::io::Result<Self> {
        let mut bytes = [0; TOKEN_LENGTH / 2];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self { text: hex(bytes), is_in_address: false })
    }

    /// The same as a part of the address, for services that show nothing.
    #[must_use]
    pub fn in_address(self) -> Self {
        Self { is_in_address: true, ..self }
    }

    pub fn is_in_address(&self) -> bool {
        self.is_in_address
    }

    pub fn parse(text: &str) -> Option<Self> {
        let is_token = text.len() == TOKEN_LENGTH
            && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        is_token.then(|| Self { text: text.to_owned(), is_in_address: false })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is stored of it: the SHA-256 sum of its text, in hexadecimal. It is random, so that nobody finds it by trying.
    pub fn fingerprint(&self) -> String {
        let kind: &[u8] = if self.is_in_address { b"address:" } else { b"" };
        hex(Sha256::new().chain_update(kind).chain_update(self.text.as_bytes()).finalize())
    }
}

disbatch_values::not_shown!(Token);

#[cfg(test)]
mod tests {
    use super::*;

    fn token(digit: char) -> Token {
        Token::parse(&digit.to_string().repeat(64)).unwrap()
    }

    #[test]
    fn a_token_is_for_one_attempt_until_its_end() {
        let of = |fields: Document| {
            let mut external = doc! { "token": token('a').fingerprint(), "attempt": 2_i64 };
            external.extend(fields);
            doc! { "status": 0, "attempt": 2, EXTERNAL: external }
        };
        assert_eq!(standing(&of(doc! {}), &token('a')), Heard::Done);
        assert_eq!(standing(&of(doc! {}), &token('b')), Heard::WrongToken);
        assert_eq!(standing(&of(doc! { "end": { "status": 1 } }), &token('a')), Heard::Over);
        let earlier = of(doc! { "earlier": [token('b').fingerprint()] });
        assert_eq!(standing(&earlier, &token('b')), Heard::Over);
        assert_eq!(standing(&earlier, &token('c')), Heard::WrongToken);
        let mut withdrawn = of(doc! {});
        withdrawn.get_document_mut(EXTERNAL).unwrap().remove("attempt");
        assert_eq!(standing(&withdrawn, &token('a')), Heard::Over);
        for (field, value) in [("status", 1), ("attempt", 3)] {
            let mut later = of(doc! {});
            later.insert(field, value);
            assert_eq!(standing(&later, &token('a')), Heard::Over, "{field}");
        }
        assert_eq!(standing(&doc! { "status": 0 }, &token('a')), Heard::WrongToken);
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let token = Token::new().unwrap();
        assert_eq!(Token::parse(token.text()), Some(token.clone()));
        assert_ne!(token, Token::new().unwrap());
        assert!(!format!("{token:?}").contains(token.text()));
        let zeros = Token::parse(&"0".repeat(64)).unwrap();
        let expected = "60e05bd1b195af2f94112fa7197a5c88289058840ce7c6df9693756bc6250f55";
        assert_eq!(zeros.fingerprint(), expected);
        let in_address = zeros.clone().in_address();
        assert!(in_address.is_in_address() && !zeros.is_in_address());
        assert_ne!(in_address.fingerprint(), expected, "who has seen the address cannot show it as a header");
    }

    #[test]
    fn anything_else_is_none() {
        for wrong in ["", "x", &"a".repeat(63), &"a".repeat(65), &"A".repeat(64), &"é".repeat(32)] {
            assert_eq!(Token::parse(wrong), None, "{wrong}");
        }
    }
}
