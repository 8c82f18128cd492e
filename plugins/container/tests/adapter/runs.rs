//! What is asked of an engine, and what is not.

use nix::unistd::{Gid, Uid};
use serde_json::{Value, json};

use crate::engine::{Answer, Engine, NOBODY, TASK, usual};

const LIST: &str = "GET /containers/json";
const CREATE: &str = "POST /containers/create";
const REMOVE: &str = "DELETE /containers/old";

/// A list with the container of an earlier attempt, whose adapter nobody knows.
fn earlier() -> Answer {
    let labels = json!({
        "disbatch.task": TASK, "disbatch.attempt": "1", "disbatch.node": "n2", "disbatch.database": "main",
        "disbatch.adapter": "other/7/7",
    });
    Some((200, json!([{ "Id": "old", "Labels": labels }]).to_string()))
}

/// As Podman refuses what it is about to do for others.
fn busy() -> Answer {
    Some((500, r#"{"message":"container state improper"}"#.to_owned()))
}

#[tokio::test]
async fn what_is_to_end_is_not_begun() {
    // It is slow between the making of a container and its start.
    let engine = Engine::start(|what, _| match what {
        "GET /containers/new/json" => None,
        what => usual(what),
    });
    let adapter = engine.adapter(false);
    engine.until_asked("GET /containers/new/json").await;
    adapter.terminate();
    assert_eq!(adapter.end().await, (Some(143), String::new()));
    assert_eq!((engine.count("POST /containers/new/start"), engine.count("DELETE /containers/new")), (0, 1));
}

#[tokio::test]
async fn an_attempt_begins_when_the_container_of_an_earlier_one_is_gone() {
    let engine = Engine::start(|what, before| match what {
        LIST => earlier(),
        REMOVE if before < 2 => busy(),
        what => usual(what),
    });
    engine.adapter(false).end().await;
    let asked: Vec<String> = engine.asked().into_iter().map(|asked| asked.what).collect();
    let is_of_it = |what: &&String| [CREATE, REMOVE].contains(&what.as_str());
    assert_eq!(asked.iter().filter(is_of_it).collect::<Vec<_>>(), [REMOVE, REMOVE, REMOVE, CREATE]);
}

#[tokio::test]
async fn no_attempt_begins_while_an_earlier_one_may_still_run() {
    let cannot_remove = Engine::start(|what, _| match what {
        LIST => earlier(),
        REMOVE => busy(),
        what => usual(what),
    });
    let cannot_look = Engine::start(|what, _| if what == LIST { busy() } else { usual(what) });
    for engine in [cannot_remove, cannot_look] {
        let (code, said) = engine.adapter(false).end().await;
        let expected =
            "disbatch: a container of an earlier attempt may still run: container state improper\n";
        assert_eq!((code, said.as_str(), engine.count(CREATE)), (Some(125), expected, 0));
        assert!(engine.count(LIST) > 1, "it is tried more than once");
    }
}

#[tokio::test]
async fn what_others_have_left_is_in_nobodys_way() {
    let engine = Engine::start(|what, _| match what {
        LIST => {
            let labels =
                json!({ "disbatch.task": "0a", "disbatch.node": "n1", "disbatch.adapter": "other/7/7" });
            Some((200, json!([{ "Id": "old", "Labels": labels }]).to_string()))
        }
        REMOVE => busy(),
        what => usual(what),
    });
    engine.adapter(false).end().await;
    assert_eq!((engine.count(REMOVE), engine.count(CREATE)), (1, 1));
}

/// The user whom an adapter asks an engine for that says this of itself.
async fn user(is_other: bool, about: &'static str) -> Value {
    let engine = Engine::start(move |what, _| match what {
        "GET /info" => Some((200, about.to_owned())),
        what => usual(what),
    });
    engine.adapter(is_other).end().await;
    let asked = engine.asked();
    let created = asked.iter().find(|asked| asked.what == CREATE).unwrap();
    serde_json::from_str::<Value>(&created.body).unwrap()["User"].clone()
}

#[tokio::test]
async fn what_a_container_leaves_belongs_to_the_user_of_its_adapter() {
    let (of_root, of_another) = ("{}", r#"{"SecurityOptions":["name=rootless"]}"#);
    let own = match Uid::effective() {
        root if root.is_root() => format!("{NOBODY}:{NOBODY}"),
        own => format!("{own}:{}", Gid::effective()),
    };
    assert_eq!(user(true, of_root).await, json!(own));
    assert_eq!(user(true, of_another).await, Value::Null, "there root is the user");
    if Uid::effective().is_root() {
        assert_eq!(user(false, of_root).await, Value::Null, "root can remove everything");
    }
}

const ATTACH: &str = "POST /containers/new/attach";

/// A connection to a container that writes this, and no more.
fn writes(text: &str) -> Answer {
    let length = char::from(u8::try_from(text.len()).unwrap());
    Some((101, format!("\u{1}\0\0\0\0\0\0{length}{text}")))
}

#[tokio::test]
async fn a_container_is_heard_when_its_engine_is_back_and_what_may_be_missing_is_said() {
    let away = "disbatch: the container engine was away: what the container wrote meanwhile may be missing\n";
    for (lives, stdout) in [(true, "before\nafter\n"), (false, "before\n")] {
        let state = json!({ "State": { "Running": lives, "ExitCode": 0 } }).to_string();
        let engine = Engine::start(move |what, before| match (what, before) {
            (ATTACH, 0) => writes("before\n"),
            // That of its input.
            (ATTACH, 1) => Some((101, String::new())),
            (ATTACH, _) => writes("after\n"),
            ("POST /containers/new/start", _) => Some((204, String::new())),
            // It is away when it was asked for the first time after the start, and once more.
            ("POST /containers/new/wait", 0 | 1) | ("GET /containers/new/json", 1) => {
                Some((200, String::new()))
            }
            ("POST /containers/new/wait", _) => Some((200, r#"{"StatusCode":0}"#.to_owned())),
            ("GET /containers/new/json", _) => Some((200, state.clone())),
            (what, _) => usual(what),
        });
        let ended = engine.adapter(false).end_with_output().await;
        assert_eq!(ended, (Some(0), [stdout.to_owned(), away.to_owned()]), "it lives: {lives}");
    }
}
