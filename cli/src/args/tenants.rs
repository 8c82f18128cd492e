//! The commands about whose tasks are taken, and how many.

use clap::{Args, Subcommand};

/// What is done with tenants.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Show for whom there are tasks, and how many each may have
    List,
    /// Show what one may have, and what it has
    Show(OneTenant),
    /// Say how much one may have
    Set(TenantLimits),
    /// Let one have as much as it wants; its queues and tasks stay
    Delete(OneTenant),
}

/// A tenant.
#[derive(Debug, Args)]
pub struct OneTenant {
    /// The tenant's name
    pub tenant: String,
}

/// What a tenant may have.
#[derive(Debug, Args)]
pub struct TenantLimits {
    /// The tenant's name
    pub tenant: String,
    /// How much of what.
    #[command(flatten)]
    pub limits: Limits,
}

/// How much of what. At least one is to be given.
#[derive(Debug, Default, Args)]
#[group(required = true, multiple = true)]
pub struct Limits {
    /// So many of its tasks may wait; `none` for no limit
    #[arg(long, value_name = "N", value_parser = limit)]
    pub max_queued: Option<Limit>,
    /// So many tasks may be submitted for it from midnight UTC on; `none` for no limit
    #[arg(long, value_name = "N", value_parser = limit)]
    pub max_per_day: Option<Limit>,
    /// So many schedules it may have; `none` for no limit
    #[arg(long, value_name = "N", value_parser = limit)]
    pub max_schedules: Option<Limit>,
}

/// A number, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub Option<u32>);

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        number => {
            number.parse().map(|most| Limit(Some(most))).map_err(|_| "expected a number or none".to_owned())
        }
    }
}

/// Options of `drain`.
#[derive(Debug, Args)]
pub struct DrainOptions {
    /// What is drained.
    #[command(flatten)]
    pub what: Drained,
    /// Take new tasks, and hold them until `undrain`
    #[arg(long, conflicts_with_all = ["accept", "node"])]
    pub pause: bool,
    /// Take new tasks although a wider rule says otherwise
    #[arg(long, conflicts_with = "node")]
    pub accept: bool,
    /// Why, for those who are refused
    #[arg(long, value_name = "TEXT", conflicts_with = "node")]
    pub reason: Option<String>,
    /// Wait until nothing of it waits or runs any more
    #[arg(long, conflicts_with_all = ["accept", "node"])]
    pub wait: bool,
}

/// What is drained: a node, or new tasks.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct Drained {
    /// Claim nothing more on this node, by its name or id; what runs goes on
    pub node: Option<String>,
    /// Take no new tasks of this queue, by its name or id
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Take no new tasks for this tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Take no new tasks of this user
    #[arg(long, value_name = "USER")]
    pub owner: Option<String>,
    /// Take no new tasks at all
    #[arg(long)]
    pub all: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_numbers_or_none() {
        assert_eq!(limit("5"), Ok(Limit(Some(5))));
        assert_eq!(limit("none"), Ok(Limit(None)));
        assert!(limit("-1").is_err() && limit("").is_err());
    }
}
