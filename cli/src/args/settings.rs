//! The commands about what has a name and settings: subscriptions and tenants.

use std::path::PathBuf;

use clap::Subcommand;
use disbatch_wire::subscriptions::SubscriptionSettings;
use disbatch_wire::tenants::TenantLimits;

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

#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Show for whom there are tasks, and how many each may have
    List,
    /// Show what one may have, and what it has
    Show {
        /// The tenant's name
        tenant: String,
    },
    /// Say how much one may have; `none` is no limit
    Set {
        /// The tenant's name
        tenant: String,
        #[command(flatten)]
        limits: TenantLimits,
    },
    /// Let one have as much as it wants; its queues and tasks stay
    Delete {
        /// The tenant's name
        tenant: String,
    },
}
