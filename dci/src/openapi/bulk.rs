//! How lists of bulk jobs are asked for. These types are never made: they only describe.

use utoipa::IntoParams;

/// How many are answered.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BulkLimit {
    /// At most so many, the latest first.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<i64>,
}
