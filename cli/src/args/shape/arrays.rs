//! What the help of the commands about arrays shows.

use super::{Shape, shape};

/// One for each of them. Those of a group come with its name.
pub static SHAPES: [Shape; 5] = [
    shape(
        "array",
        &[],
        "disbatch array list\n  disbatch array show 6b0003bb686c8275d8013333\n  \
         disbatch array retry 6b0003bb686c8275d8013333 --reason 'disk was full'",
    ),
    shape(
        "array list",
        &["limit", "format", "pretty"],
        "disbatch array list\n  disbatch array list --queue render --state open --format json",
    ),
    shape(
        "array show",
        &["limit", "format", "pretty"],
        "disbatch array show 6b0003bb686c8275d8013333\n  \
         disbatch array show 6b0003bb686c8275d8013333 --elements --from 1000 --limit 50",
    ),
    shape(
        "array cancel",
        &[],
        "disbatch array cancel 6b0003bb686c8275d8013333 --reason 'wrong film'\n  \
         disbatch array cancel 6b0003bb686c8275d8013333 --detach",
    ),
    shape("array retry", &[], "disbatch array retry 6b0003bb686c8275d8013333 --reason 'disk was full'"),
];
