//! How groups are asked for. These types are never made: they only describe.

use utoipa::IntoParams;

/// Which groups.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct GroupSearch {
    /// Only those whose names come after this one: the next page.
    #[param(rename = ".after")]
    after: Option<String>,
    /// Only those whose names begin so.
    #[param(rename = ".prefix", example = "acme/")]
    prefix: Option<String>,
    /// Only those that have tasks waiting. On unless empty or 0.
    #[param(rename = ".waiting")]
    waiting: Option<String>,
    /// At most so many: 100 unless given.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<i64>,
}
