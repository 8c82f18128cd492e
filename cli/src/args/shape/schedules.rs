//! What the help of the commands about schedules and calendars shows.

use super::{Shape, shape};

const LIST: &[&str] = &["format", "pretty"];

/// One for each of them. Those of a group come with its name.
pub static SHAPES: [Shape; 18] = [
    shape(
        "schedule",
        &[],
        "disbatch schedule create nightly --queue mail --cron '0 3 * * *' --zone Europe/Berlin\n  \
         disbatch schedule list",
    ),
    shape(
        "schedule list",
        &["limit", "format", "pretty"],
        "disbatch schedule list\n  disbatch schedule list --queue mail --active --format json",
    ),
    shape(
        "schedule show",
        LIST,
        "disbatch schedule show nightly\n  disbatch schedule show nightly --format json --pretty",
    ),
    shape(
        "schedule create",
        &[],
        "disbatch schedule create nightly --queue mail --cron '0 3 * * *' --zone Europe/Berlin \\\n    \
         --param command=./report --overlap skip --timeout 1h\n  \
         disbatch schedule create hourly --queue mail --cron @hourly --jitter 5m --exclude holidays\n  \
         disbatch schedule show nightly --format json | disbatch schedule create copy --file -",
    ),
    shape(
        "schedule update",
        &[],
        "disbatch schedule update nightly --cron '30 2 * * *' --catch-up 6h\n  \
         disbatch schedule update nightly --unset end --unset options.timeout --rev 7",
    ),
    shape("schedule delete", &[], "disbatch schedule delete nightly"),
    shape("schedule pause", &[], "disbatch schedule pause nightly"),
    shape("schedule resume", &[], "disbatch schedule resume nightly"),
    shape(
        "schedule run",
        &[],
        "disbatch schedule run nightly\n  disbatch logs -f $(disbatch schedule run nightly)",
    ),
    shape(
        "schedule runs",
        &["limit", "format", "pretty"],
        "disbatch schedule runs nightly\n  disbatch schedule runs nightly --limit 5 --format json",
    ),
    shape(
        "schedule backfill",
        LIST,
        "disbatch schedule backfill nightly --from 2026-11-01 --to 2026-11-08 --preview\n  \
         disbatch schedule backfill nightly --from 2026-11-01T00:00:00Z --most 10 --yes",
    ),
    shape(
        "schedule preview",
        LIST,
        "disbatch schedule preview nightly --next 5\n  \
         disbatch schedule preview --cron '30 2 * * *' --zone Europe/Berlin --after 2027-03-25",
    ),
    shape(
        "schedule import",
        &[],
        "disbatch schedule import jobs.json\n  disbatch schedule import jobs.json --queue csv",
    ),
    shape(
        "calendar",
        &[],
        "disbatch calendar set holidays --dates 2026-12-24,2026-12-31 --recurring 12-25,12-26\n  \
         disbatch calendar list",
    ),
    shape("calendar list", LIST, "disbatch calendar list"),
    shape("calendar show", LIST, "disbatch calendar show holidays"),
    shape(
        "calendar set",
        &[],
        "disbatch calendar set holidays --dates 2026-12-24 --recurring 12-25,12-26,01-01 --zone Europe/Berlin",
    ),
    shape("calendar delete", &[], "disbatch calendar delete holidays"),
];
