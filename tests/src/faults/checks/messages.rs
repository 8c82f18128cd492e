//! Whether each failure and each lost runner was told, and told once.

use disbatch_core::notifications::Kind;

use super::Verdict;
use crate::faults::notifications::{differences, happened, told};
use crate::faults::world::World;

pub async fn messages(world: &World) -> anyhow::Result<Vec<Verdict>> {
    let happened = happened(world).await?;
    let (told, odd) = told(world)?;
    Ok(vec![
        Verdict { name: "a lost runner is told once", violations: differences(Kind::Lost, &happened, &told) },
        Verdict { name: "a failure is told once", violations: differences(Kind::Failed, &happened, &told) },
        Verdict { name: "nothing else is told", violations: odd },
    ])
}
