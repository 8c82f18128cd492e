//! What a plugin saves for the next run of its task's schedule: any JSON value, said over the control channel or on a line of
//! standard output.

use bson::{Bson, doc};
use disbatch_core::budget;
use disbatch_core::model::to_bson;
use disbatch_core::task::STORAGE;
use serde_json::Value;

use crate::control::LONGEST_LINE;
use crate::relay::{Notes, Relay};

/// What a line of standard output begins with that says what is to be saved. JSON follows.
const MARK: &[u8] = b"[saveJobStorage]";

pub fn stored(value: &Value) -> Result<Bson, String> {
    let storage = to_bson(value);
    let bytes = bson::serialize_to_vec(&doc! { STORAGE: &storage }).map_err(|error| error.to_string())?;
    if bytes.len() > budget::STORAGE {
        return Err(format!("it has more than {} bytes", budget::STORAGE));
    }
    Ok(storage)
}

/// Listens to a plugin's standard output for lines that begin with `[saveJobStorage]`. They stay in the output.
#[derive(Debug, Default)]
pub struct Ear {
    state: State,
    /// What has come of the mark, or what follows it.
    line: Vec<u8>,
    complaints: Notes,
}

/// Where it is in a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Nothing but the beginning of the mark has come.
    #[default]
    Beginning,
    /// Behind the mark.
    Marked,
    /// In a line that is of no interest.
    Elsewhere,
}

impl Ear {
    pub fn hear(&mut self, bytes: &[u8], relay: &Relay) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.take(&rest[..end]);
            self.finish(relay);
            rest = &rest[end + 1..];
        }
        self.take(rest);
    }

    /// What was wrong, as lines for the task's standard error.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.complaints.lines("complaints about what is to be saved")
    }

    fn take(&mut self, mut piece: &[u8]) {
        if self.state == State::Beginning {
            let (head, tail) = piece.split_at(piece.len().min(MARK.len() - self.line.len()));
            if !MARK[self.line.len()..].starts_with(head) {
                return self.leave_line();
            }
            self.line.extend_from_slice(head);
            if self.line.len() < MARK.len() {
                return;
            }
            self.state = State::Marked;
            self.line.clear();
            piece = tail;
        }
        if self.state == State::Marked {
            if self.line.len() + piece.len() > LONGEST_LINE {
                self.complain(&format!("it is on a line of more than {LONGEST_LINE} bytes"));
                return self.leave_line();
            }
            self.line.extend_from_slice(piece);
        }
    }

    fn leave_line(&mut self) {
        self.state = State::Elsewhere;
        self.line = Vec::new();
    }

    /// A line is at its end, or the stream is: a last line need not have one.
    pub fn finish(&mut self, relay: &Relay) {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.state) != State::Marked {
            return;
        }
        let value = serde_json::from_slice(&line).map_err(|error| format!("it is no JSON: {error}"));
        match value.and_then(|value| stored(&value)) {
            Ok(storage) => relay.save(storage),
            Err(why) => self.complain(&why),
        }
    }

    fn complain(&mut self, why: &str) {
        self.complaints.add(&format!("what [saveJobStorage] says is not saved: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::relay;

    #[test]
    fn any_value_can_be_saved_that_is_not_too_large() {
        for value in
            [json!(null), json!(7), json!("x"), json!([1, { "$oid": "x" }]), json!({ "a.b": { "": 1 } })]
        {
            assert_eq!(stored(&value).unwrap().into_relaxed_extjson(), value);
        }
        let of = |length| json!("x".repeat(length));
        assert!(stored(&of(budget::STORAGE - 100)).is_ok());
        assert_eq!(stored(&of(budget::STORAGE)).unwrap_err(), "it has more than 1048576 bytes");
        assert!(stored(&json!({ "a\0b": 1 })).is_err(), "MongoDB has no such names");
    }

    /// What is saved last of a stream that comes in these pieces, and what is noted.
    fn heard<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Option<Bson>, Vec<String>) {
        let (relay, _inbox) = relay::channel();
        let mut ear = Ear::default();
        for piece in pieces {
            ear.hear(piece, &relay);
        }
        ear.finish(&relay);
        (relay.saved(), ear.notes().collect())
    }

    #[test]
    fn marked_lines_are_heard_and_the_last_one_counts() {
        let text = b"out\n[saveJobStorage] {\"a\": 1}\n [saveJobStorage] 3\n[saveJobStorage]\t{\"b\": [2]}\r\nmore\n";
        assert_eq!(heard([&text[..]]), (Some(doc! { "b": [2] }.into()), Vec::new()));
        assert_eq!(heard([&b"[saveJobStorage]7"[..]]).0, Some(Bson::Int32(7)), "a last line need not end");
        assert_eq!(heard([&b"[saveJobStorage] null\n"[..]]).0, Some(Bson::Null));
        for other in ["", "x[saveJobStorage] 1\n", "[saveJobStorag] 1\n", "[saveJobStorage", "\n\n"] {
            assert_eq!(heard([other.as_bytes()]), (None, Vec::new()), "{other:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_noted_and_changes_nothing() {
        let (saved, notes) =
            heard([&b"[saveJobStorage] 1\n[saveJobStorage]\n[saveJobStorage] {\"a\": \n"[..]]);
        assert_eq!((saved, notes.len()), (Some(Bson::Int32(1)), 2), "{notes:?}");
        let start = "disbatch: what [saveJobStorage] says is not saved: it is no JSON: EOF";
        assert!(notes.iter().all(|note| note.starts_with(start)), "{notes:?}");
        let large = format!("[saveJobStorage] \"{}\"\n", "x".repeat(1_100_000));
        let (saved, notes) = heard([large.as_bytes()]);
        assert_eq!((saved, notes.len()), (None, 1));
        assert!(notes[0].ends_with("not saved: it has more than 1048576 bytes\n"), "{notes:?}");
    }

    #[test]
    fn floods_are_bounded() {
        let (relay, _inbox) = relay::channel();
        let mut ear = Ear::default();
        ear.hear(MARK, &relay);
        for _ in 0..5 {
            ear.hear(&vec![b'1'; LONGEST_LINE], &relay);
            assert!(ear.line.capacity() <= 2 * LONGEST_LINE);
        }
        ear.hear(b"\n[saveJobStorage] 1\n", &relay);
        ear.hear(&b"[saveJobStorage] nope\n".repeat(100), &relay);
        assert_eq!(relay.saved(), Some(Bson::Int32(1)));
        assert_eq!(ear.notes().count(), 11, "ten complaints, and how many more there were");
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_the_stream_is_cut(
            lines in prop::collection::vec(
                prop::sample::select(vec!["x", "", "[saveJobStorage] 1", "[saveJobStorage] {\"a\":\"b\"}",
                    "[saveJobStorage] no", "[saveJob", "[saveJobStorage]"]),
                0..8,
            ),
            ends in any::<bool>(),
            length in 1usize..20,
        ) {
            let mut text = lines.join("\n");
            if ends {
                text.push('\n');
            }
            prop_assert_eq!(heard(text.as_bytes().chunks(length)), heard([text.as_bytes()]));
        }
    }
}
