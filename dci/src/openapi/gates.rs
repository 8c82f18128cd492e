//! How locks and graphs of tasks are asked for. These types are never made: they only describe.

use utoipa::IntoParams;

/// How much of a graph is wanted.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct GraphExtent {
    /// How far it reaches in both directions; 3 by default.
    #[param(rename = ".depth", minimum = 1, maximum = 20)]
    depth: Option<u32>,
    /// How many tasks it has at most; 100 by default.
    #[param(rename = ".limit", minimum = 1, maximum = 500)]
    limit: Option<u32>,
}

/// Which locks.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LockSearch {
    /// Only those whose names begin so. Without it, those of arrays are left out.
    #[param(rename = ".prefix")]
    prefix: Option<String>,
    /// Only those behind this name: for the next page.
    #[param(rename = ".after")]
    after: Option<String>,
    /// At most so many; 100 by default.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}
