//! What the help of the commands about a task's life shows.

use super::{Shape, shape};

const LIST: &[&str] = &["format", "pretty"];

/// One for each of them.
pub static SHAPES: [Shape; 31] = [
    shape(
        "run",
        &[],
        "disbatch run mail command='make report'\n  \
         disbatch run mail '{\"command\":\"date\"}' --timeout 5m --max-attempts 3\n  \
         disbatch run mail command=date --detach\n\n\
         ^C leaves the task running and says how to go on, unless --cancel-on-interrupt is given.\n\n\
         Exit status: 0 succeeded, 102 failed, 103 terminated, 105 cancelled, 106 orphaned, 3 to 99 the plugin's own \
         status, 100 one above 99; 130 left with ^C; 2 wrong option, 255 it could not be created or followed.",
    ),
    shape(
        "wait",
        &[],
        "disbatch wait 6b0003bb686c8275d8013333 && echo succeeded\n  \
         disbatch wait --timeout 2h 6b0003bb686c8275d8013333 6b0003bb686c8275d8013334\n\n\
         Exit status: that of the first task given that did not succeed (with --any, of the first to end): \
         0 succeeded, 102 failed, 103 terminated, 105 cancelled, 106 orphaned, 3 to 99 the plugin's own status, 100 \
         one above 99; 124 not ended within --timeout; 2 wrong option, 255 the DCI could not be asked.",
    ),
    shape(
        "logs",
        &[],
        "disbatch logs 6b0003bb686c8275d8013333\n  disbatch logs -f --both 6b0003bb686c8275d8013333\n  \
         disbatch logs --stderr --attempt 1 6b0003bb686c8275d8013333",
    ),
    shape(
        "bundle",
        &[],
        "disbatch bundle 6b0003bb686c8275d8013333 > run.tar\n  disbatch bundle 6b0003bb686c8275d8013333 --attempt 1 > first.tar",
    ),
    shape(
        "cancel",
        &[],
        "disbatch cancel 6b0003bb686c8275d8013333 --reason 'wrong file'\n  \
         disbatch cancel 6b0003bb686c8275d8013333 6b0003bb686c8275d8013334",
    ),
    shape("retry", &[], "disbatch retry 6b0003bb686c8275d8013333 --reason 'disk was full'"),
    shape(
        "rerun",
        &[],
        "disbatch rerun 6b0003bb686c8275d8013333 --downstream failed\n  \
         disbatch rerun 6b0003bb686c8275d8013333 --params '{\"to\":\"you\"}' --reason 'wrong address'\n  \
         disbatch rerun 6b0003bb686c8275d8000000 --elements all --downstream all",
    ),
    shape("explain", LIST, "disbatch explain 6b0003bb686c8275d8013333\n  disbatch explain --queue mail"),
    shape("show", LIST, "disbatch show 6b0003bb686c8275d8013333"),
    shape("attempts", LIST, "disbatch attempts 6b0003bb686c8275d8013333"),
    shape("history", LIST, "disbatch history 6b0003bb686c8275d8013333"),
    shape(
        "bulk",
        &[],
        "disbatch bulk cancel --queue mail --status queued,deferred\n  \
         disbatch bulk retry --queue mail --status failed --preview\n  \
         disbatch bulk delete --queue mail --status 1 --older-than 30d --yes",
    ),
    shape(
        "archive",
        &[],
        "disbatch archive 6b0003bb686c8275d8013333\n  disbatch archive --queue mail --older-than 7d --yes",
    ),
    shape(
        "events",
        &["limit", "format"],
        "disbatch events --queue mail --ended\n  \
         disbatch events --status failed,orphaned --format json | while read -r event; do ./tell \"$event\"; done\n  \
         disbatch events --limit 1 --queue mail --status succeeded",
    ),
    shape(
        "locks",
        &["limit", "format", "pretty"],
        "disbatch locks\n  disbatch locks db\n  disbatch locks --prefix array: --format json",
    ),
    shape(
        "graph",
        &["limit", "format", "pretty"],
        "disbatch graph 6b0003bb686c8275d8013333\n  disbatch graph 6b0003bb686c8275d8013333 --depth 10",
    ),
    shape(
        "audit",
        &["limit", "format", "pretty"],
        "disbatch audit --queue mail --what 'queue update'\n  \
         disbatch audit --user ashley --from 2026-11-20 --format json",
    ),
    shape(
        "batch",
        LIST,
        "disbatch batch tasks.ndjson\n  \
         echo '[{\"queue\":\"mail\",\"params\":{\"n\":1}},{\"queue\":\"post\",\"params\":{\"n\":2},\".after\":-1}]' \\\n    \
         | disbatch batch -\n\n\
         Exit status: 0 all entries were accepted, 255 one was rejected or the DCI could not be asked.",
    ),
    shape(
        "set-task",
        &[],
        "disbatch set-task 6b0003bb686c8275d8013333 --priority 10 --reason 'the boss waits'",
    ),
    shape(
        "answer",
        &[],
        "disbatch answer 6b0003bb686c8275d8013333\n  \
         disbatch answer 6b0003bb686c8275d8013333 --set go=true --set comment='looks good'\n  \
         disbatch answer 6b0003bb686c8275d8013333 --json '{\"go\":true}'\n  \
         disbatch answer 6b0003bb686c8275d8013333 --link",
    ),
    shape("bulk-jobs", LIST, "disbatch bulk-jobs\n  disbatch bulk-jobs --cancel 6b0003bb686c8275d8013333"),
    shape("pause", &[], "disbatch pause mail --reason 'the mail server moves'"),
    shape("resume", &[], "disbatch resume mail"),
    shape("close", &[], "disbatch close mail --reason 'use post instead'"),
    shape("open", &[], "disbatch open mail"),
    shape(
        "set-queue",
        &[],
        "disbatch set-queue mail max_attempts=3 backoff.base=10s timeout=1h\n  \
         disbatch set-queue mail on_orphan=requeue retention.archive_after=7d\n  \
         disbatch set-queue mail rate.n=100 rate.per=1h\n  \
         disbatch set-queue mail policy=fair 'weights={\"acme\":3}' group_threads=4\n  \
         disbatch set-queue mail version=1.3.0\n  \
         disbatch set-queue mail canary.version=1.4.0 canary.share=0.05\n  \
         disbatch set-queue mail timeout=null",
    ),
    shape(
        "groups",
        &["limit", "format", "pretty"],
        "disbatch groups mail\n  disbatch groups mail --waiting --prefix acme/",
    ),
    shape(
        "at",
        &["format", "pretty"],
        "disbatch at 03:12\n  disbatch at '2026-11-27 03:12' --around 30m --queue mail",
    ),
    shape(
        "shadow",
        &["limit", "format", "pretty"],
        "disbatch shadow mail\n  disbatch shadow mail --differences --limit 20",
    ),
    shape(
        "drain",
        &[],
        "disbatch drain node1.example.com\n  \
         disbatch drain --queue mail --reason 'the mail server is upgraded' --wait\n  \
         disbatch drain --all --pause\n  disbatch drain --owner anna --accept",
    ),
    shape("undrain", &[], "disbatch undrain node1.example.com\n  disbatch undrain --queue mail"),
];
