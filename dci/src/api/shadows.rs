//! `GET /queues/:queue/shadow`

use actix_web::web::Data;
use disbatch_core::accounts::Role;
use disbatch_core::model::{Queue, Shadow};
use disbatch_wire::queues::{ShadowDifference, ShadowPair, ShadowSearch, Shadows};

use crate::access::{NamedQueue, Who};
use crate::api::{Answer, queues};
use crate::error::HttpError;
use crate::openapi::{JSON_OR_PAGE, OfRead};
use crate::params::Params;
use crate::shadows::{Compared, Verdict};
use crate::state::State;
use crate::{json, shadows};

#[derive(Debug)]
pub struct Comparisons {
    pub queue: Queue,
    /// Where its shadows are, if it has some.
    pub shadow: Option<(Shadow, Queue)>,
    pub all: Vec<Compared>,
}

/// How the latest tasks of a queue compare with their shadows: those that ran a second time in another queue. Browsers get a page.
#[utoipa::path(
    get, path = "/queues/{queue}/shadow", tag = "queues", operation_id = "compareShadows",
    params(ShadowSearch),
    responses(
        (status = 200, description = "The comparison; a page if `Accept` asks for HTML.", body = Shadows, content_type = JSON_OR_PAGE),
        (status = 400, description = "The option is wrong."),
        (status = 404, description = "There is no such queue."),
        OfRead,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, named: NamedQueue, params: Params) -> Answer {
    json::of(&view(&find(&state, &who, &named, &params).await?))
}

/// Compares what there is. Whoever asks must see the shadows, too.
pub async fn find(
    state: &State,
    who: &Who,
    named: &NamedQueue,
    params: &Params,
) -> Result<Comparisons, HttpError> {
    let limit = params.options::<ShadowSearch>()?.limit.unwrap_or(100);
    let _turn = state.budget.answers.turn().await?;
    let queue = queues::find(state, named).await?;
    let shadow = state.store.find_shadow(&queue).await?;
    let all = match &shadow {
        Some((_, other)) => {
            who.check(Role::Viewer, other)?;
            shadows::compare(state, &queue, other, limit).await?
        }
        None => Vec::new(),
    };
    Ok(Comparisons { queue, shadow, all })
}

impl Comparisons {
    pub fn count(&self, verdict: Verdict) -> usize {
        self.all.iter().filter(|compared| compared.verdict() == verdict).count()
    }

    /// Of how many the task alone has failed, and of how many its shadow.
    pub fn failed(&self) -> [usize; 2] {
        [0, 1].map(|side| self.all.iter().filter(|compared| compared.failed()[side]).count())
    }
}

fn view(found: &Comparisons) -> Shadows {
    let count = |verdict| found.count(verdict) as u64;
    let [task_failed, shadow_failed] = found.failed().map(|failed| failed as u64);
    Shadows {
        queue: found.queue.id.to_string(),
        shadow: found.shadow.as_ref().map(|(_, other)| other.id.to_string()),
        share: found.shadow.as_ref().map(|(shadow, _)| shadow.share),
        pairs: found.all.len() as u64,
        same: count(Verdict::Same),
        different: count(Verdict::Different),
        slower: count(Verdict::Slower),
        faster: count(Verdict::Faster),
        task_failed,
        shadow_failed,
        compared: found.all.iter().map(pair).collect(),
    }
}

fn pair(compared: &Compared) -> ShadowPair {
    let comparison = &compared.comparison;
    let texts = comparison.texts.iter().filter(|text| !text.same && !text.difference.is_empty());
    let difference = |text: &disbatch_compare::Text| ShadowDifference {
        name: text.name.clone(),
        difference: text.difference.clone(),
    };
    ShadowPair {
        task: compared.task.to_hex(),
        shadow: compared.shadow.to_hex(),
        verdict: compared.verdict().as_str().to_owned(),
        different: comparison.different().into_iter().map(str::to_owned).collect(),
        was: comparison.duration.was,
        is: comparison.duration.is,
        differences: texts.map(difference).collect(),
    }
}
