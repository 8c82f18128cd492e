//! Descendants that carry something else than their plugin.

use super::*;

/// What nobody carries.
const FORGED: &str = "DISBATCH_TASK_ID=6b0003bb686c8275d70dc2f1";

/// Starts a plugin which leaves a process without its parent and its session, with this environment. Returns both when
/// that is so.
async fn hiding(guard: &Guard, environment: &str, mark: &str) -> (Plugin, i32) {
    let script = format!("(setsid env {environment} sleep 1000 & echo $!); echo ready; exec sleep 1000");
    let mut plugin = Plugin::script(guard, &script);
    plugin.pid().await;
    let hidden: i32 = plugin.line().await.parse().unwrap();
    assert_eq!(plugin.line().await, "ready");
    let place = PathBuf::from(format!("/proc/{hidden}"));
    eventually("it carries that", || has_variable(&place, mark)).await;
    (plugin, hidden)
}

#[tokio::test]
async fn nobody_gets_away_by_carrying_what_nobody_has() {
    let guard = Guard::start(Settings::default()).unwrap();
    for environment in [FORGED.to_owned(), format!("-i PATH=/bin:/usr/bin {FORGED} DISBATCH_ATTEMPT=7")] {
        let (mut plugin, hidden) = hiding(&guard, &environment, FORGED).await;
        plugin.guarded.tell(Order::Kill);
        assert_eq!(plugin.exit().await.1.signal(), Some(9));
        assert!(!runs(hidden), "{environment}");
    }
}

#[tokio::test]
async fn who_hides_is_waited_for_when_the_plugin_was_to_end() {
    let guard = Guard::start(Settings::default()).unwrap();
    let (mut plugin, hidden) = hiding(&guard, FORGED, FORGED).await;
    plugin.guarded.tell(Order::Term);
    assert!(timeout(Duration::from_millis(200), plugin.guarded.report()).await.is_err());
    assert!(runs(hidden), "it was in no group that was told");
    plugin.guarded.tell(Order::Kill);
    assert_eq!(plugin.exit().await.1.signal(), Some(15));
    assert!(!runs(hidden));
}

#[tokio::test]
async fn nobody_passes_for_a_warm_plugin_that_has_no_task() {
    let guard = Guard::start(Settings::default()).unwrap();
    let (spawn, _folder, _) = request(&["/bin/sh", "-c", "read x"]);
    let mark = format!("{RUNNER_VARIABLE}=4711");
    let environment = Environment::of(vec![(RUNNER_VARIABLE.into(), "4711".into())]);
    let spawn = Spawn { folder: "/".into(), environment, ..spawn };
    let (mut warm, _streams) = guard.spawn(spawn).unwrap();
    let Some(Report::Pid(pid)) = timeout(DEADLINE, warm.report()).await.unwrap() else { panic!("it starts") };
    let environment = format!("-i PATH=/bin:/usr/bin {mark}");
    let (mut plugin, hidden) = hiding(&guard, &environment, &mark).await;
    plugin.guarded.tell(Order::Kill);
    assert_eq!(plugin.exit().await.1.signal(), Some(9));
    assert!(!runs(hidden) && runs(pid));
}

#[tokio::test]
async fn what_was_left_may_start_more_whatever_happens_to_the_next() {
    let guard = Guard::start(Settings::default()).unwrap();
    let script =
        "setsid sh -c 'until [ -e go ]; do sleep 0.02; done; sleep 1000 & echo $! > new; mv new child' &";
    let mut plugin = Plugin::script(&guard, script);
    plugin.pid().await;
    let (exit, status) = plugin.exit().await;
    assert!(status.success() && !exit.alone);
    let (mut next, hidden) = hiding(&guard, FORGED, FORGED).await;
    fs::write(plugin.folder.path().join("go"), "").unwrap();
    let child = || fs::read_to_string(plugin.folder.path().join("child")).unwrap_or_default();
    eventually("it starts another", || child().ends_with('\n')).await;
    let child: i32 = child().trim().parse().unwrap();
    let parent = || fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
    let guard_line = format!("PPid:\t{}\n", parent_of(hidden));
    eventually("it has lost its parent", || parent().contains(&guard_line)).await;
    next.guarded.tell(Order::Kill);
    assert_eq!(next.exit().await.1.signal(), Some(9));
    assert!(!runs(hidden) && runs(child));
    kill(Pid::from_raw(child), Signal::SIGKILL).unwrap();
}

fn parent_of(pid: i32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:\t")).unwrap().to_owned()
}
