//! What plugins have said before their end, and nobody has read by then.

use super::*;

/// Ends at once. Most of its reports are in its pipe then, and what it comes to is behind them.
const REPORTING: &str =
    r#"seq -f '{"report":{"n":%g}}' 2000 >&3; echo '{"status":5,"result":{"a":1}}' >&3; echo > ready"#;

#[tokio::test]
async fn what_it_said_is_heard_however_long_its_reports_wait_for_the_database() {
    let setup = Setup::script(REPORTING);
    let (relay, mut database) = relay::channel();
    let mut guards = Guards::default();
    let mut run = pin!(setup.run_saying((&mut guards, &relay), nothing));
    assert!(timeout(2 * PIPES_GRACE, run.as_mut()).await.is_err(), "there is more to be read");
    let read = async {
        for n in 1..=2000 {
            assert_eq!(database.next_report().await, Some(doc! { "n": n }));
        }
    };
    let (ran, ()) = tokio::join!(run, read);
    let ran = ran.unwrap();
    let stderr = ran.stderr.text().await.unwrap();
    assert_eq!((ran.exit.code(), stderr.as_str()), (Some(0), ""));
    assert_eq!((ran.control.status, ran.control.result), (Some(5.into()), Some(doc! { "a": 1 })));
}

#[tokio::test]
async fn a_task_that_has_to_end_does_not_wait_for_the_database() {
    let setup = Setup::script(REPORTING);
    let cancel = async |supervisor: Supervisor| {
        setup.file("ready").await;
        supervisor.end(End { reason: Reason::Cancel, grace: PATIENT });
    };
    let ran = setup.run(cancel).await.unwrap();
    assert_eq!((ran.control.status, ran.facts.reason), (None, Some(Reason::Cancel)));
    let stderr = ran.stderr.text().await.unwrap();
    assert!(stderr.starts_with("disbatch: the task had to end while reports waited"), "{stderr}");
}

#[tokio::test]
async fn who_outlives_it_and_never_stops_to_report_is_not_followed_for_ever() {
    let setup =
        Setup::script(r#"while echo '{"report":{}}'; do :; done >&3 2> /dev/null & echo '{"status":5}' >&3"#);
    let (relay, mut database) = relay::channel();
    let mut guards = Guards::default();
    let run = setup.run_saying((&mut guards, &relay), nothing);
    let ran = tokio::select! {
        ran = run => ran.unwrap(),
        () = async { while database.next_report().await.is_some() {} } => panic!("there is more to come"),
    };
    assert_eq!((ran.control.status, ran.exit.code()), (Some(5.into()), Some(0)));
    let stderr = ran.stderr.text().await.unwrap();
    assert!(stderr.starts_with("disbatch: a process that outlived the plugin"), "{stderr}");
}
