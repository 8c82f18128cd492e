use bson::doc;

use super::*;
use crate::ui::live::assert_on_page;

const ID: &str = "6b0003bb686c8275d8013333";
const QUEUE: &str = "6b0003bb686c8275d70dc2f1";

fn outputs(stdout: &str, live: bool) -> [Output; 2] {
    let of = |stream, text: &str| {
        let end = OutputEnd { offset: 0, bytes: text.as_bytes().to_vec() };
        Output::of(ID, stream, end, None, live)
    };
    [of(StreamName::Stdout, stdout), of(StreamName::Stderr, "")]
}

fn shown(task: &Document, stdout: &str) -> String {
    let queue =
        QueueLink { id: Some(QUEUE.into()), name: "q<1>".into(), there: true, ..QueueLink::default() };
    let now = DateTime::from_millis(1_795_163_167_344);
    let look = view((ID, task), &queue, None, now, Known::default()).unwrap();
    let live = Status::stored(task).is_some_and(|status| !status.has_ended());
    page(ID, task, queue, look, (outputs(stdout, live), &Choice::of(task, &[], None).unwrap()))
        .render()
        .unwrap()
}

#[test]
fn the_page_shows_everything_about_a_task() {
    let task = doc! {
        "status": 2, "node": "vm", "params": { "commands": "<ab>" }, "complete": false,
        "ctime": DateTime::from_millis(1_795_163_067_344), "progress": { "percent": 50 }, "odd": "<odd>",
        "history": [{ "at": DateTime::from_millis(1_795_163_067_344), "status": 2, "note": "its <time> has come" }],
        "exit": { "code": 3 }, "timeout": 90, "result": { "rows": 17 },
    };
    let html = shown(&task, "a <b>");
    for part in [
        ID,
        "/tasks?queue=6b0003bb686c8275d70dc2f1",
        "q&#60;1&#62;",
        "failed",
        "2026-11-20 08:24:27",
        "&#34;commands&#34; : &#34;&#60;ab&#62;&#34;",
        "a &#60;b&#62;",
        "Storing the output failed.",
        "its &#60;time&#62; has come",
        "<dt>Exit code</dt><dd>3</dd>",
        "&#34;rows&#34; : 17",
        "&#60;odd&#62;",
        "Empty.",
        "exit code 3",
        "<dt>commands</dt><dd><code>&#60;ab&#62;</code></dd>",
        "href=\"/tasks/6b0003bb686c8275d8013333/stdout\"",
        "data-ended=\"true\"",
        "data-resume=\"\"",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    assert!(!html.contains(" style=") && !html.contains("<ab>"), "{html}");
}

#[test]
fn the_page_of_a_running_task_follows_it() {
    let task = doc! { "status": 0, "attempt": 2, "progress": { "percent": 12.5, "message": "a <b>" } };
    let html = shown(&task, "so far\n");
    for part in [
        "<script src=\"/assets/task.js?v=",
        "data-live=\"/ui/tasks/6b0003bb686c8275d8013333\"",
        "data-events=\"/tasks/6b0003bb686c8275d8013333/events\"",
        "data-resume=\"attempt:2,stdout:7,stderr:0\"",
        "value=\"12.5\"",
        "a &#60;b&#62;",
        "Nothing yet.",
        "href=\"/tasks/6b0003bb686c8275d8013333/stderr\"",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    assert!(!html.contains("Further fields"), "{html}");
}

#[test]
fn what_can_be_done_has_a_form_without_script() {
    let task = doc! {
        "status": -2, "params": { "a": "</textarea><script>" }, "timeout": 90, "locks": ["db/2"], "group": "<a>",
    };
    let html = shown(&task, "");
    for part in [
        "action=\"/tasks/6b0003bb686c8275d8013333/cancel\" method=\"post\"",
        "action=\"/tasks/6b0003bb686c8275d8013333/retry\" method=\"post\"",
        "name=\".then\" value=\"/tasks/6b0003bb686c8275d8013333\"",
        "action=\"/tasks\" method=\"post\"",
        "name=\".then\" value=\"/tasks/{id}\"",
        "name=\"queue\" value=\"6b0003bb686c8275d70dc2f1\"",
        "name=\".timeout\" value=\"90\"",
        "<input type=\"hidden\" name=\".locks\" value=\"db/2\">",
        "<input type=\"hidden\" name=\".group\" value=\"&#60;a&#62;\">",
        "&#60;/textarea&#62;&#60;script&#62;",
        "href=\"#cancel\"",
        "href=\"/queues/6b0003bb686c8275d70dc2f1?tab=new&#38;task=6b0003bb686c8275d8013333#new\"",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    assert_eq!(html.matches("name=\".timeout\"").count(), 1, "{html}");
    assert!(!html.contains("too long for this field"), "{html}");
    assert!(!html.contains("href=\"#retry\""), "it has not ended: {html}");
}

#[test]
fn of_secure_parameters_only_that_there_are_some_is_shown() {
    let html = shown(&doc! { "status": 1, "params": { "a": 1 }, "has_secure_params": true }, "");
    for part in ["has secure parameters, which are shown to nobody", "Its secure parameters are not copied"] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    assert!(!html.contains("Further fields"), "{html}");
    let without = shown(&doc! { "status": 1, "params": { "a": 1 } }, "");
    assert!(!without.contains("secure parameters"), "{without}");
}

#[test]
fn params_that_are_too_long_to_be_changed_here_say_so() {
    let html = shown(&doc! { "status": 1, "params": { "a": "<x>".repeat(40_000) } }, "");
    let again = html.split("id=\"again\"").nth(1).unwrap();
    assert!(again.contains("too long for this field") && !again.contains("name=\"params\""), "{again}");
    assert!(again.contains("&#38;task=6b0003bb686c8275d8013333#new\""), "{again}");
}

#[test]
fn every_part_is_on_the_page_under_its_id() {
    let task = doc! { "status": 0, "ctime": DateTime::from_millis(0), "cancel": { "reason": "<x>" } };
    let html = shown(&task, "");
    let now = DateTime::from_millis(1000);
    let look = view((ID, &task), &QueueLink::default(), None, now, Known::default()).unwrap();
    assert_on_page(&look.parts, &html);
}

#[test]
fn tasks_of_any_shape_have_a_page() {
    let nasty = "<script>alert('1')</script>\"".repeat(10_000);
    let frame = shown(&doc! {}, "").matches("<script").count();
    for task in [
        doc! { "status": &nasty, "node": &nasty, "params": &nasty, "ctime": &nasty, "exit": &nasty },
        doc! { "status": 0, "progress": &nasty, "history": &nasty, "cancel": { "by": &nasty }, &nasty: 1 },
        doc! { "status": 2.5, "params": Bson::Null, "parameters": [1], "attempt": "x", "result": &nasty },
    ] {
        let html = shown(&task, &nasty);
        assert_eq!(html.matches("<script").count(), frame);
        assert!(html.contains("&#60;script&#62;alert(&#39;1&#39;)"));
    }
    assert_eq!(running_attempt(&doc! { "status": 0 }), Some(0));
    assert_eq!(running_attempt(&doc! { "status": -1, "attempt": 2 }), None);
}

#[test]
fn an_ended_task_is_looked_at_again_when_something_has_happened() {
    let feed = Feed::new(Reach::All);
    let running = doc! { "status": 0, "mtime": 5_i64 };
    feed.note(&running, &[]);
    assert!(feed.known(&running).is_none(), "it goes on");
    let ended = doc! { "status": 2, "mtime": 6_i64, "complete": true, "result": "not compared" };
    feed.note(&ended, &[]);
    assert!(feed.known(&doc! { "status": 2, "mtime": 6_i64, "complete": true }).is_some());
    for other in [
        doc! { "status": -2, "mtime": 6_i64, "complete": true },
        doc! { "status": 2, "mtime": 7_i64, "complete": true },
        doc! { "status": 2, "mtime": 6_i64 },
        doc! { "status": 2, "mtime": 6_i64, "complete": true, "archived": 7_i64 },
    ] {
        assert!(feed.known(&other).is_none(), "{other}");
    }
    feed.note(&running, &[]);
    assert!(feed.known(&ended).is_none(), "it was tried again");
}

#[test]
fn what_is_large_is_not_read() {
    assert_eq!(only(&["stdout"], 0), doc! { "stdout": 0 });
    assert!(STAMP.iter().all(|field| !["stdout", "stderr", "params", "result"].contains(field)));
}
