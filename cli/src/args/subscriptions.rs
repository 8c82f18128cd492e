//! The commands about subscriptions.

use std::path::PathBuf;

use clap::Subcommand;
use disbatch_wire::subscriptions::SubscriptionSettings;

use super::shape::{LIST, Shape, shape};

/// What is done with subscriptions.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one of them")]
pub enum SubscriptionCommand {
    /// Show who is told what
    List,
    /// Show one
    Show {
        /// The subscription's name
        subscription: String,
    },
    /// Make one, or give it these settings and no others
    Set {
        /// The subscription's name
        subscription: String,
        #[command(flatten)]
        settings: SubscriptionSettings,
        /// The key that a webhook is signed with, or the password of the mail server, is in this file
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        /// The address is in this file: those of Slack and Teams are secrets
        #[arg(long, value_name = "FILE", conflicts_with = "address")]
        address_file: Option<PathBuf>,
    },
    /// Have a message delivered that says nothing but that messages arrive
    Test {
        /// The subscription's name
        subscription: String,
    },
    /// Delete one
    Delete {
        /// The subscription's name
        subscription: String,
    },
}

/// What the help of each command shows. Those of a group come with its name.
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
