//! What is read of plugins and of guards: for tests that make it up. Nothing here needs a database or a process, and
//! nothing else of this crate can be reached through it.

use bson::{Bson, Document};
use disbatch_core::model::TaskId;
use serde_json::Value;

use crate::control::Control;
use crate::guard::protocol::{FromGuard, ToGuard};
use crate::relay;
use crate::secrets::Wiped;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Said {
    /// The last `status`, as it was given.
    pub status: Option<Value>,
    pub result: Option<Document>,
    /// The exit status with which the task is done, if that was said.
    pub done: Option<u8>,
    pub storage: Option<Bson>,
    pub reports: Vec<Document>,
    /// What the task's standard error says of mistakes.
    pub notes: Vec<String>,
    /// How much came after the end of the task, in bytes.
    pub stray: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orders {
    /// Each of them as it is sent.
    pub sent: Vec<Vec<u8>>,
    /// Whether everything that came made sense so far.
    pub sensible: bool,
}

/// Listens to what a plugin says in these pieces, which for a warm one is about `task`.
pub async fn listen<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, task: Option<TaskId>) -> Said {
    let (relay, mut inbox) = relay::channel();
    let mut control = task.map_or_else(Control::default, Control::of);
    let hearing = async {
        let mut stray = 0;
        for piece in pieces {
            if control.done.is_some() {
                stray += piece.len();
            } else {
                stray += control.feed(piece, &relay).await.len();
            }
        }
        if task.is_none() {
            // A last line may lack its end.
            control.feed(b"\n", &relay).await;
        }
        let storage = relay.saved();
        // Only now: the inbox is open as long as there is a relay.
        drop(relay);
        (stray, storage)
    };
    let reporting = async {
        let mut reports = Vec::new();
        while let Some(report) = inbox.next_report().await {
            reports.push(report);
        }
        reports
    };
    let ((stray, storage), reports) = futures::join!(hearing, reporting);
    let notes = control.notes().collect();
    Said {
        status: control.status,
        result: control.result,
        done: control.done,
        storage,
        reports,
        notes,
        stray,
    }
}

pub fn orders<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Orders {
    let mut orders = Orders { sensible: true, ..Orders::default() };
    let mut arrived = Wiped::default();
    for piece in pieces {
        arrived.extend(piece);
        loop {
            match ToGuard::take(&mut arrived) {
                Ok(Some(order)) => orders.sent.push(order.to_bytes().to_vec()),
                Ok(None) => break,
                Err(_) => return Orders { sensible: false, ..orders },
            }
        }
    }
    orders
}

/// Reads a report of a guard. Returns what it is sent as; `None`: it makes no sense.
pub fn report(frame: &[u8]) -> Option<Vec<u8>> {
    FromGuard::parse(frame).ok()?.to_bytes().ok()
}
