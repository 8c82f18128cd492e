//! The commands about tenants.

use clap::Subcommand;
use disbatch_wire::tenants::TenantLimits;

use super::shape::{LIST, Shape, shape};

/// What is done with tenants.
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

/// What the help of each command shows. Those of a group come with its name.
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
