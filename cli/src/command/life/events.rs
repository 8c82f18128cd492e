//! `disbatch events`

use std::fmt::Write;

use disbatch_wire::history::TaskEvent;
use reqwest::Response;
use serde_json::Value;

use crate::api::{ApiError, address, read};
use crate::args::{EventsOptions, ListingOptions};
use crate::command::Session;
use crate::command::life::{Connection, FIRST_PAUSE};
use crate::output::{document, print, visible};

/// Prints events until somebody ends it, or until there were as many as `--limit` says. Goes on where it was if the connection is lost.
pub async fn run(session: &Session, mut which: EventsOptions) -> anyhow::Result<()> {
    let Session { client, listing: options } = session;
    let connection = Connection::new(client);
    let mut left = options.limit.filter(|limit| *limit > 0).unwrap_or(i64::MAX);
    let mut pause = FIRST_PAUSE;
    loop {
        let lost = match client.stream(&address("/events", &which, None)?, 0).await {
            Ok(response) => {
                connection.answered();
                pause = FIRST_PAUSE;
                follow(response, &mut which.after, &mut left, options).await?
            }
            Err(error) => Some(error),
        };
        if left == 0 {
            return Ok(());
        }
        if let Some(error) = lost {
            connection.pause(error, &mut pause).await?;
        }
    }
}

/// Prints the events of one answer. Returns why it ended, unless the DCI has ended it.
async fn follow(
    mut response: Response,
    after: &mut Option<String>,
    left: &mut i64,
    options: &ListingOptions,
) -> anyhow::Result<Option<ApiError>> {
    let url = response.url().to_string();
    let mut reader = Reader::default();
    loop {
        let bytes = match response.chunk().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(ApiError::broken_off("getting", url, &error))),
        };
        for event in reader.read(&bytes) {
            if event.id.is_some() {
                after.clone_from(&event.id);
            }
            let Some(Value::Object(mut data)) = event.data else { continue };
            data.extend(event.id.map(|id| ("after".to_owned(), id.into())));
            print(&document(&Value::Object(data), options, line)?)?;
            *left -= 1;
            if *left == 0 {
                return Ok(None);
            }
        }
    }
}

fn line(event: &Value) -> String {
    let Ok(event) = read::<TaskEvent>(event.clone()) else { return format!("{event}\n") };
    let queue = event.queue_name.or(event.queue).unwrap_or_default();
    let time = event.mtime.unwrap_or_default();
    let mut line = format!("{} {} {} {}", visible(&time), event.id, visible(&queue), visible(&event.word));
    // Writing to a String cannot fail.
    if event.attempt > 0 {
        let _ = write!(line, ", attempt {}", event.attempt);
    }
    if let Some(node) = event.node {
        let _ = write!(line, ", on {}", visible(&node));
    }
    line + "\n"
}

/// What stands between two empty lines.
#[derive(Debug, Default, PartialEq)]
struct Event {
    id: Option<String>,
    data: Option<Value>,
}

/// Reads Server-Sent Events as they come, in pieces of any size.
#[derive(Debug, Default)]
struct Reader {
    rest: Vec<u8>,
    event: Event,
}

impl Reader {
    fn read(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.rest.extend(bytes);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
        let rest = self.rest.split_off(end);
        let text =
            String::from_utf8_lossy(&std::mem::replace(&mut self.rest, rest[1..].to_vec())).into_owned();
        let mut events = Vec::new();
        for line in text.split('\n') {
            match line.split_once(": ") {
                _ if line.is_empty() => events.push(std::mem::take(&mut self.event)),
                Some(("id", id)) => self.event.id = Some(id.to_owned()),
                Some(("data", data)) => self.event.data = serde_json::from_str(data).ok(),
                _ => {} // A comment, or the kind of event, which its data tell, too.
            }
        }
        events.retain(|event| *event != Event::default());
        events
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::args::TagFilter;

    #[test]
    fn events_come_in_pieces_of_any_size() {
        let text = "id: 82A\n: still here\n\nevent: end\nid: 82B\ndata: {\"id\":\"6b\",\"status\":1}\n\n: still here\n\nevent: st";
        let expected = [
            Event { id: Some("82A".to_owned()), data: None },
            Event { id: Some("82B".to_owned()), data: Some(json!({ "id": "6b", "status": 1 })) },
        ];
        for size in 1..=text.len() {
            let mut reader = Reader::default();
            let events: Vec<Event> =
                text.as_bytes().chunks(size).flat_map(|bytes| reader.read(bytes)).collect();
            assert_eq!(events, expected, "{size}");
        }
    }

    #[test]
    fn a_line_tells_what_happened_to_which_task() {
        let event = json!({"id": "6b", "queue": "6c", "queue_name": "mail\u{1b}", "status": 2, "word": "failed", "attempt": 3,
            "ended": true, "node": "n1", "mtime": "2026-11-20T08:24:29"});
        assert_eq!(line(&event), "2026-11-20T08:24:29 6b mail\u{fffd} failed, attempt 3, on n1\n");
        let event = json!({"id": "6b", "queue": "6c", "status": -2, "word": "queued"});
        assert_eq!(line(&event), " 6b 6c queued\n");
    }

    #[test]
    fn what_is_asked_for_stands_in_the_address() {
        let which = EventsOptions {
            queue: Some("mail,post".to_owned()),
            status: vec![2, -6],
            ended: true,
            schedule: None,
            group: None,
            tenant: None,
            tags: TagFilter { tag: vec!["a".to_owned()], ..TagFilter::default() },
            after: Some("82A".to_owned()),
        };
        assert_eq!(
            address("/events", &which, None).unwrap(),
            "/events?.after=82A&ended=true&queue=mail%2Cpost&status=2%2C-6&tags=%5B%22a%22%5D"
        );
    }
}
