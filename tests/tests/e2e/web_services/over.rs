//! Tasks of web services that are over, or were never theirs: who calls back for them changes nothing.

use bson::oid::ObjectId;
use reqwest::Method;
use serde_json::json;

use super::service::Manner;
use super::{Scene, note, until_no_pieces};

#[tokio::test]
async fn a_cancel_ends_the_task_and_the_service_learns_it() -> anyhow::Result<()> {
    let mut scene = Scene::new(2).await?;
    let _den = scene.world.den("n1")?;
    let (task, order) = scene.given().await?;
    order.log(&scene.dci, "so far\n").await?;
    let answer = scene.dci.posted(&format!("/tasks/{task}/cancel"), &json!({ "reason": "why not" })).await?;
    assert_eq!((&answer["outcome"], &answer["status"]), (&json!("terminated"), &json!(-3)));
    let ended = scene.world.task(task).await?;
    assert_eq!((ended.get_i32("status")?, ended.get_str("stdout")?), (-3, "so far\n"));
    assert_eq!(ended.get_document("cancel")?.get_str("reason")?, "why not");
    for (what, body) in [("log", "late"), ("job_storage", "1"), ("status", r#"{"status":1}"#)] {
        assert_eq!(order.call(&scene.dci, what, body).await?, 410, "{what}");
    }
    let (code, _) = scene.dci.post(&format!("/tasks/{task}/cancel"), &json!({})).await?;
    assert_eq!(code, 409, "it has ended");
    // With others, in one go.
    let (other, _) = scene.given().await?;
    let filter = json!({ "action": "cancel", "filter": { "queue": scene.queue.to_string() } });
    let (code, answer) = scene.dci.post("/bulk", &filter).await?;
    assert!([200, 202].contains(&code), "{answer}");
    scene.world.until_status(other, -3).await?;
    scene.world.end().await
}

#[tokio::test]
async fn a_cancel_before_the_service_has_answered_keeps_what_it_has_logged() -> anyhow::Result<()> {
    let mut scene = Scene::with(1, Manner::IsSilent, &json!({})).await?;
    let _den = scene.world.den("n1")?;
    let task = scene.submit(1).await?[0];
    let order = scene.service.next().await?;
    order.log(&scene.dci, "so far\n").await?;
    let answer = scene.dci.posted(&format!("/tasks/{task}/cancel"), &json!({})).await?;
    assert_eq!(answer["outcome"], json!("requested"));
    let ended = scene.world.until_status(task, -3).await?;
    assert_eq!((ended.get_str("stdout")?, note(&ended)), ("so far\n", "cancelled".to_owned()));
    assert_eq!(order.call(&scene.dci, "log", "late").await?, 410);
    until_no_pieces(&scene.world).await?;
    scene.world.end().await
}

#[tokio::test]
async fn a_token_is_for_its_task_alone() -> anyhow::Result<()> {
    let mut scene = Scene::new(2).await?;
    let _den = scene.world.den("n1")?;
    let (task, order) = scene.given().await?;
    let (_, other) = scene.given().await?;
    let before = scene.world.task(task).await?;
    let wrong = "0".repeat(64);
    for token in [other.token(), wrong.as_str(), "", "disbatch_x"] {
        for what in ["log", "job_storage", "status"] {
            let status = order.call_with(&scene.dci, what, token, r#"{"status":"FINISHED"}"#).await?;
            assert_eq!(status, 401, "{what} with '{token}'");
        }
    }
    let path = format!("/callbacks/{task}/log");
    let plain = scene.dci.request(Method::POST, &path).body("x").send().await?;
    assert_eq!(plain.status(), 401);
    for what in ["log", "job_storage", "status"] {
        // Nobody finds out without a token which tasks there are.
        let mut answers = Vec::new();
        for id in [task.to_string(), ObjectId::new().to_hex()] {
            let request = scene.dci.request(Method::POST, &format!("/callbacks/{id}/{what}"));
            let answer = request.bearer_auth("0".repeat(64)).body("{}").send().await?;
            answers.push((answer.status().as_u16(), answer.text().await?));
        }
        assert_eq!(answers[0], answers[1]);
        assert_eq!(answers[0].0, 401);
    }
    assert_eq!(scene.world.task(task).await?, before, "nothing has changed");
    let put = scene.dci.request(Method::PUT, &path).bearer_auth(order.token()).body("put\n");
    assert_eq!(put.send().await?.status(), 200);
    order.finish(&scene.dci).await?;
    assert_eq!(scene.world.task(task).await?.get_str("stdout")?, "put\n");
    // A task that has been put away has ended.
    scene.world.store().archive_tasks(&[task]).await?;
    assert_eq!(order.call(&scene.dci, "log", "late").await?, 410);
    scene.world.end().await
}

#[tokio::test]
async fn a_service_that_refuses_is_a_failure_that_says_why() -> anyhow::Result<()> {
    let mut scene = Scene::with(1, Manner::Refuses, &json!({})).await?;
    let _den = scene.world.den("n1")?;
    let task = scene.submit(1).await?[0];
    let order = scene.service.next().await?;
    let ended = scene.world.until_status(task, 2).await?;
    let stderr = ended.get_str("stderr")?;
    assert!(stderr.contains("500 Internal Server Error") && stderr.contains("no room"), "{stderr}");
    assert_eq!(order.call(&scene.dci, "log", "late").await?, 410);
    assert!(!scene.service.has_more(), "it is not asked again");
    scene.world.end().await
}
