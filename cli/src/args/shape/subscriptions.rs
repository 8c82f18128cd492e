//! What the help of the commands about subscriptions shows.

use super::{Shape, shape};

const LIST: &[&str] = &["format", "pretty"];

/// One for each of them. Those of a group come with its name.
pub static SHAPES: [Shape; 6] = [
    shape(
        "subscription",
        &[],
        "disbatch subscription set nights --channel slack --address-file hook.txt --events first_failure,recovered\n  \
         disbatch subscription test nights",
    ),
    shape("subscription list", LIST, "disbatch subscription list"),
    shape("subscription show", LIST, "disbatch subscription show nights"),
    shape(
        "subscription set",
        &[],
        "disbatch subscription set nights --channel webhook --address https://hooks.example.org/x --secret-file key.txt \
         --events failed,lost --queues imports --every 15m\n  \
         disbatch subscription set mail --channel mail --address smtps://mail.example.org --user disbatch --secret-file pw.txt \
         --from disbatch@example.org --to ann@example.org --waits-longer 1h --events node_dead",
    ),
    shape("subscription test", &[], "disbatch subscription test nights"),
    shape("subscription delete", &[], "disbatch subscription delete nights"),
];
