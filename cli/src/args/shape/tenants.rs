//! What the help of the commands about tenants shows.

use super::{Shape, shape};

const LIST: &[&str] = &["format", "pretty"];

/// One for each of them. Those of a group come with its name.
pub static SHAPES: [Shape; 6] = [
    shape(
        "admission",
        LIST,
        "disbatch admission\n  disbatch admission --format json | jq '.[] | select(.safe)'",
    ),
    shape("tenant", &[], "disbatch tenant set acme --max-queued 1000\n  disbatch tenant list"),
    shape("tenant list", LIST, "disbatch tenant list\n  disbatch tenant list --format json"),
    shape("tenant show", LIST, "disbatch tenant show acme"),
    shape(
        "tenant set",
        &[],
        "disbatch tenant set acme --max-queued 1000 --max-per-day 50000\n  \
         disbatch tenant set acme --max-per-day none --max-schedules 10",
    ),
    shape("tenant delete", &[], "disbatch tenant delete acme"),
];
