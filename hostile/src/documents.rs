//! What is stored in the database, whoever wrote it, and all that is shown of it.

use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use disbatch_core::balance::BalanceDocument;
use disbatch_core::balance::plan::Settings;
use disbatch_core::bulk::BulkJob;
use disbatch_core::model::{Canary, Node, Queue, Rules, Task};
use disbatch_core::node::stats_of;
use disbatch_dci::input::{Dates, page_of_task, shown, shown_job, shown_node, shown_queue, shown_task};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::check_json;

/// The database nests no deeper than 180; in so few bytes nothing can be much deeper.
const LONGEST: usize = 4096;

/// A moment to look at documents.
const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

/// The bytes are one document in BSON.
///
/// # Panics
/// A field is lost or becomes another when the document is read and written; what is shown of it as JSON is none; or what
/// a page shows of it is more than text.
pub fn check(bytes: &[u8]) -> bool {
    if bytes.len() > LONGEST {
        return false;
    }
    let read = RawDocumentBuf::from_bytes(bytes.to_vec()).and_then(Document::try_from);
    let Ok(document) = read else { return false };
    for dates in [Dates::Text, Dates::Epoch, Dates::Millis] {
        check_json(&shown(&document, dates));
    }
    check_json(&Bson::Document(document.clone()).into_relaxed_extjson());
    check_page(&document);
    let _stats = stats_of(&document);
    let known = [
        check_task(bytes, &document),
        check_queue(bytes, &document),
        check_node(bytes, &document),
        check_job(bytes),
        check_balance(document),
    ];
    known.contains(&true)
}

fn check_task(bytes: &[u8], document: &Document) -> bool {
    let Some(task) = kept::<Task>(bytes, document, &["_id", "queue", "status"]) else { return false };
    let _seen = (task.params(), task.attempt(), task.failures(), task.pid(), task.is_to_be_cancelled());
    let rules = Rules::of(&task, None);
    assert!(rules.backoff.jitter <= 1.0, "{rules:?}");
    for details in [false, true] {
        check_json(&shown(&shown_task(document.clone(), details), Dates::Text));
    }
    true
}

fn check_queue(bytes: &[u8], document: &Document) -> bool {
    let Some(queue) = kept::<Queue>(bytes, document, &["_id"]) else { return false };
    assert!(queue.claim_limit() <= queue.thread_limit());
    let _canary = Canary::of(&queue);
    let _needed = queue.needed_plugins();
    if let Ok(Some(plugin)) = queue.plugin_name() {
        assert!(!plugin.as_str().contains(['/', '.', '\0']), "{plugin}");
    }
    let _seen = (queue.display_name(), queue.sort_order(), queue.reason(), Rules::of_queue(&queue));
    check_json(&shown_queue(&queue));
    true
}

fn check_node(bytes: &[u8], document: &Document) -> bool {
    let Some(node) = kept::<Node>(bytes, document, &["_id"]) else { return false };
    let _seen = (node.thread_limit(), node.state(), node.last_beat(), node.attention(), node.is_draining());
    for details in [false, true] {
        check_json(&shown(&shown_node(document.clone(), details), Dates::Millis));
    }
    true
}

fn check_job(bytes: &[u8]) -> bool {
    let Ok(job) = bson::deserialize_from_slice::<BulkJob>(bytes) else { return false };
    for whole in [false, true] {
        check_json(&shown_job(&job, whole));
    }
    true
}

fn check_balance(document: Document) -> bool {
    let fields = document.len();
    let read = BalanceDocument::from(document.clone());
    assert!(read.rest.len() <= fields);
    match Settings::read(vec![document]) {
        Ok(settings) => {
            let mut names: Vec<&String> = settings.tiers.iter().flatten().collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "a queue is in two tiers");
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

/// The document as a type, if it is one, which keeps all its fields but those that it interprets.
fn kept<T: Serialize + DeserializeOwned>(
    bytes: &[u8],
    document: &Document,
    interpreted: &[&str],
) -> Option<T> {
    let typed: T = bson::deserialize_from_slice(bytes).ok()?;
    let written = bson::serialize_to_vec(&typed).and_then(RawDocumentBuf::from_bytes);
    let Ok(written) = written.and_then(Document::try_from) else { panic!("cannot be written: {document:?}") };
    assert_eq!(written.len(), document.len(), "{document:?}");
    for (key, value) in document.iter().filter(|(key, _)| !interpreted.contains(&key.as_str())) {
        let written = written.get(key).map(alone);
        assert_eq!(written, Some(alone(value)), "{key} of {document:?}");
    }
    Some(typed)
}

/// A value as it is stored: numbers that are none do not even equal themselves.
fn alone(value: &Bson) -> Vec<u8> {
    bson::serialize_to_vec(&doc! { "": value }).unwrap_or_default()
}

fn check_page(document: &Document) {
    match page_of_task(document, NOW) {
        Ok(page) => assert!(!page.contains("<script"), "{page}"),
        Err(refused) => panic!("{refused:?}"),
    }
}
