//! The commands about tenants.

use clap::Subcommand;
use disbatch_wire::tenants::TenantLimits;

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
