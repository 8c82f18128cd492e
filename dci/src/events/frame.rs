//! Events as text, and output as text in events.

use bson::{Bson, Document};
use disbatch_core::live::{gap_line, torn_end};
use disbatch_core::observe::Observed;
use disbatch_core::output::StreamName;
use disbatch_wire::history::TaskEvent;
use serde_json::{Value, json};

use crate::json::{self, Dates};
use crate::output::Part;

/// A comment, which clients skip.
pub const HEARTBEAT: &str = ": still here\n\n";

/// Where a client was interrupted: the header `Last-Event-ID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resume {
    pub attempt: Option<i64>,
    /// It has so many bytes of standard output.
    pub stdout: u64,
    /// It has so many bytes of standard error.
    pub stderr: u64,
}

impl Resume {
    /// Reads `attempt:2,stdout:123,stderr:0`. `None`: it is no id of ours.
    pub fn parse(id: &str) -> Option<Self> {
        let mut resume = Self::default();
        for part in id.split(',') {
            let (name, number) = part.trim().split_once(':')?;
            match name {
                "attempt" => resume.attempt = Some(number.parse().ok()?),
                "stdout" => resume.stdout = number.parse().ok()?,
                "stderr" => resume.stderr = number.parse().ok()?,
                _ => return None, // Whoever made it means something else.
            }
        }
        Some(resume)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    offset: u64,
    text: String,
    /// How many bytes it stands for that are not kept.
    missing: Option<u64>,
}

/// Makes text of bytes: characters that come in two parts stay whole, and what is no text is replaced.
#[derive(Debug)]
pub struct Decoder {
    /// The start of a character whose rest has not come yet.
    torn: Vec<u8>,
    /// Where that, or the next byte, is in the stream.
    position: u64,
    last: Option<u8>,
}

impl Decoder {
    pub fn at(position: u64) -> Self {
        Self { torn: Vec::new(), position, last: None }
    }

    /// Everything before is decoded.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The text of the next part, as far as it is complete.
    pub fn decode(&mut self, part: Part) -> Vec<Text> {
        match part {
            Part::Bytes(bytes) => {
                let mut all = std::mem::take(&mut self.torn);
                all.extend(bytes);
                self.torn = all.split_off(all.len() - torn_end(&all));
                self.text_of(&all).into_iter().collect()
            }
            Part::Gap(missing) => {
                let before = self.finish();
                let gap = Text {
                    offset: self.position,
                    text: gap_line(missing, self.last),
                    missing: Some(missing),
                };
                self.position += missing;
                self.last = Some(b'\n');
                before.into_iter().chain([gap]).collect()
            }
        }
    }

    /// What is left.
    pub fn finish(&mut self) -> Option<Text> {
        let torn = std::mem::take(&mut self.torn);
        self.text_of(&torn)
    }

    fn text_of(&mut self, bytes: &[u8]) -> Option<Text> {
        self.last = Some(*bytes.last()?);
        let offset = self.position;
        self.position += bytes.len() as u64;
        Some(Text { offset, text: String::from_utf8_lossy(bytes).into_owned(), missing: None })
    }
}

/// `status`, or with the same data `end`.
pub fn status(event: &str, seen: &Observed) -> String {
    let task = &seen.task;
    let data = json!({
        "status": task.status.code(),
        "word": task.status.word(),
        "attempt": seen.attempt(),
        "ended": task.status.has_ended(),
        "node": json::from_bson(task.node.as_ref().unwrap_or(&Bson::Null), Dates::Text),
        "mtime": json::from_bson(task.mtime.as_ref().unwrap_or(&Bson::Null), Dates::Text),
    });
    frame(event, None, &data)
}

/// `status` of one of many tasks, or with the same data `end`.
pub fn change(position: Option<&str>, change: &TaskEvent) -> Result<String, serde_json::Error> {
    let event = if change.ended { "end" } else { "status" };
    Ok(frame(event, position, &serde_json::to_value(change)?))
}

/// No event, but where the client is.
pub fn position(position: Option<&str>) -> String {
    let id = position.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}{HEARTBEAT}")
}

/// `end` of a task that is gone.
pub fn deleted() -> String {
    frame("end", None, &json!({ "status": null, "word": "deleted", "ended": true }))
}

pub fn progress(progress: &Document) -> String {
    frame("progress", None, &Value::Object(json::from_document(progress, Dates::Text)))
}

/// `output`, after which the client has both streams up to `positions`.
pub fn output(attempt: i64, stream: StreamName, text: &Text, [stdout, stderr]: [u64; 2]) -> String {
    let mut data =
        json!({ "attempt": attempt, "stream": stream.as_str(), "offset": text.offset, "text": text.text });
    if let Some(missing) = text.missing {
        data["missing"] = missing.into();
    }
    let id = format!("attempt:{attempt},stdout:{stdout},stderr:{stderr}");
    frame("output", Some(&id), &data)
}

/// JSON on one line has no line breaks, which would end the data.
fn frame(event: &str, id: Option<&str>, data: &Value) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {event}\n{id}data: {}\n\n", json::compact(data))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(bytes: &[u8]) -> Part {
        Part::Bytes(bytes.to_vec())
    }

    #[test]
    fn ids_lead_back_to_where_they_were_sent() {
        let text = Text { offset: 3, text: "a\n\"b".to_owned(), missing: None };
        let sent = output(2, StreamName::Stdout, &text, [7, 9]);
        assert_eq!(
            sent,
            "event: output\nid: attempt:2,stdout:7,stderr:9\n\
             data: {\"attempt\":2,\"offset\":3,\"stream\":\"stdout\",\"text\":\"a\\n\\\"b\"}\n\n"
        );
        let id = sent.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
        assert_eq!(Resume::parse(id), Some(Resume { attempt: Some(2), stdout: 7, stderr: 9 }));
        let without = Resume { attempt: None, stdout: 123, stderr: 0 };
        assert_eq!(Resume::parse("stdout:123,stderr:0"), Some(without));
        for strange in ["", "7", "stdout:-1", "stdout:1,x:2", "attempt:"] {
            assert_eq!(Resume::parse(strange), None, "{strange}");
        }
    }

    #[test]
    fn gaps_are_lines_and_end_what_was_torn() {
        let mut decoder = Decoder::at(0);
        assert_eq!(decoder.decode(bytes(b"a\xe2\x98")).len(), 1);
        assert_eq!(decoder.position(), 1, "the rest of the character is asked for again");
        let texts = decoder.decode(Part::Gap(4));
        let texts: Vec<_> = texts.iter().map(|t| (t.offset, t.text.as_str(), t.missing)).collect();
        assert_eq!(texts, [(1, "\u{fffd}", None), (3, "\n[4 bytes not kept]\n", Some(4))]);
        assert_eq!(decoder.position(), 7);
        assert_eq!(decoder.finish(), None);
    }

    proptest! {
        #[test]
        fn characters_stay_whole(text in "[a-zé☃𝄞\n]{0,60}", cuts in prop::collection::vec(1usize..5, 0..60)) {
            let (mut decoder, mut rest, mut decoded) = (Decoder::at(5), text.as_bytes(), String::new());
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (piece, more) = rest.split_at(cut.min(rest.len()));
                rest = more;
                for text in decoder.decode(bytes(piece)) {
                    prop_assert_eq!(text.offset, 5 + decoded.len() as u64);
                    decoded.push_str(&text.text);
                }
            }
            prop_assert_eq!(decoder.finish(), None);
            prop_assert_eq!(decoded, text);
        }
    }
}
