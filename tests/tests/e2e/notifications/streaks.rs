//! What is told of failures one after the other, of queues and of schedules.

use anyhow::Context;
use disbatch_core::model::QueueId;
use serde_json::{Value, json};

use super::Scene;

/// What happened to which task of which schedule.
type Told = (String, String, Option<String>);

fn told(messages: &[Value]) -> Vec<Told> {
    let events = messages.iter().filter_map(|message| message["events"].as_array()).flatten();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let one = |event: &Value| {
        let (kind, task) = (text(&event["event"]), text(&event["tasks"][0]["id"]));
        (kind.unwrap_or_default(), task.unwrap_or_default(), text(&event["schedule"]))
    };
    events.map(one).collect()
}

/// Who has a task.
#[derive(Debug, Clone, Copy)]
enum Whose {
    Queue,
    Schedule,
}

/// Runs a task to its end.
async fn one(scene: &Scene, queue: QueueId, whose: Whose, what: &str) -> anyhow::Result<String> {
    match whose {
        Whose::Queue => Ok(scene.run(queue, what, 1).await?[0].to_string()),
        Whose::Schedule => {
            let params = json!({ "params": { "do": what } });
            scene.dci.posted("/schedules/nightly", &params).await?;
            let made = scene.dci.posted("/schedules/nightly/run", &json!({})).await?;
            scene.world.until_all_ended(queue).await?;
            Ok(made["task"].as_str().with_context(|| made.to_string())?.to_owned())
        }
    }
}

/// Each of these tasks is told so, or not at all, and nothing else is told.
async fn are_told(steps: &[(Whose, &str, Option<&str>)]) -> anyhow::Result<Vec<Value>> {
    let scene = Scene::new().await?;
    let queue = scene.queue("imports").await?;
    let nightly = json!({ "name": "nightly", "queue": "imports", "params": { "do": "work" } });
    assert_eq!(scene.dci.post("/schedules", &nightly).await?.0, 201);
    let settings = json!({ "events": ["first_failure", "recovered"], "failures_in_row": 3 });
    scene.subscribe("streaks", &settings).await?;
    let _den = scene.world.den_at_work("n1").await?;
    let (mut expected, mut messages) = (Vec::new(), Vec::new());
    for (whose, what, kind) in steps {
        let task = one(&scene, queue, *whose, what).await?;
        let Some(kind) = kind else { continue };
        let schedule = matches!(whose, Whose::Schedule).then(|| "nightly".to_owned());
        expected.push(((*kind).to_owned(), task, schedule));
        let number = expected.len();
        messages = scene.until(&format!("{expected:?}"), |messages| told(messages).len() >= number).await?;
        assert_eq!(told(&messages), expected);
    }
    scene.world.end().await?;
    Ok(messages)
}

#[tokio::test]
async fn a_queue_is_told_to_fail_once_and_to_have_recovered_once() -> anyhow::Result<()> {
    use Whose::Queue;
    let messages = are_told(&[
        (Queue, "work", None),
        (Queue, "fail", Some("first_failure")),
        (Queue, "fail", None),
        (Queue, "fail", Some("failures_in_row")),
        (Queue, "fail", None),
        (Queue, "work", Some("recovered")),
        (Queue, "work", None),
        (Queue, "fail", Some("first_failure")),
        (Queue, "work", Some("recovered")),
    ])
    .await?;
    assert_eq!(messages[1]["events"][0]["detail"], "3 in a row");
    assert_eq!(messages[1]["subject"], "queue imports: failures (3 in a row)");
    Ok(())
}

#[tokio::test]
async fn a_schedule_has_its_own_fortune_whatever_else_its_queue_does() -> anyhow::Result<()> {
    use Whose::{Queue, Schedule};
    let messages = are_told(&[
        (Schedule, "fail", Some("first_failure")),
        (Queue, "work", None),
        (Queue, "fail", Some("first_failure")),
        (Schedule, "fail", None),
        (Queue, "work", Some("recovered")),
        (Schedule, "fail", Some("failures_in_row")),
        (Schedule, "work", Some("recovered")),
        (Schedule, "work", None),
        (Schedule, "fail", Some("first_failure")),
    ])
    .await?;
    assert_eq!(messages[0]["subject"], "schedule nightly: first failure");
    assert_eq!(messages[0]["events"][0]["queue"], "imports");
    Ok(())
}
