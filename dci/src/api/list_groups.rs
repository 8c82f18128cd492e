//! `GET /queues/:queue/groups`

use actix_web::HttpRequest;
use actix_web::web::Data;
use disbatch_core::counters::count::Amount;
use disbatch_core::fair::{GroupFilter, GroupPage, GroupRow, Settings};
use disbatch_core::model::Queue;
use disbatch_wire::groups::{QueueGroup, QueueGroups};
use serde_json::Value;

use crate::access::NamedQueue;
use crate::api::{Answer, queues};
use crate::error::HttpError;
use crate::json::Dates;
use crate::openapi::{ErrorBody, GroupSearch, OfRead};
use crate::params::Params;
use crate::state::State;
use crate::{accept, fields, json, ui};

/// So many groups are answered unless somebody wants another number.
pub const DEFAULT_LIMIT: usize = 100;

/// So many are answered at most.
const MOST: usize = 1_000;

/// The groups of a queue in the order of their names: what each has waiting, running and got, and when its next turn is.
/// Groups are those that wait, have tasks running, or had some in the last 90 days. The tasks without a group are one that
/// has no name. Browsers get a page.
#[utoipa::path(
    get, path = "/queues/{queue}/groups", tag = "queues", operation_id = "listGroups",
    params(
        (
            "queue" = String, Path, example = "mail",
            description = "Its id if 24 hexadecimal digits, else its name.",
        ),
        GroupSearch,
    ),
    responses(
        (
            status = 200, content((QueueGroups = "application/json"), (String = "text/html")),
            description = "The groups; a page if `Accept` asks for HTML.",
        ),
        (status = 400, description = "An option is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(
    request: HttpRequest,
    state: Data<State>,
    named: NamedQueue,
    params: Result<Params, HttpError>,
) -> Answer {
    if accept::wants_html(&request) {
        let params = params.unwrap_or_default();
        return Ok(ui::page(ui::queue::groups::render(&state, &named, &params).await));
    }
    let filter = filter(&params?)?;
    let queue = queues::find(&state, &named).await?;
    let page = state.store.queue_groups(&queue, &filter).await?;
    json::of(&view(&queue, &page))
}

pub fn filter(params: &Params) -> Result<GroupFilter, HttpError> {
    let given = |name: &str| match params.options.get(name) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None, // Nothing else is the name of a group.
    };
    let limit = match params.integer("limit")? {
        None => DEFAULT_LIMIT,
        Some(limit) => {
            let fits = usize::try_from(limit).ok().filter(|limit| (1..=MOST).contains(limit));
            fits.ok_or_else(|| {
                HttpError::bad_request(format!("'.limit' must be an integer from 1 to {MOST}"))
            })?
        }
    };
    // The group without a name is the first one: behind it is everything else.
    let (after, prefix) = (given("after"), given("prefix").filter(|prefix| !prefix.is_empty()));
    Ok(GroupFilter { after, prefix, waiting: params.is_on("waiting"), limit })
}

fn view(queue: &Queue, page: &GroupPage) -> QueueGroups {
    let (waiting, more_waiting) = counted(page.waiting);
    let settings = Settings::of(queue);
    QueueGroups {
        groups: page.rows.iter().map(row).collect(),
        next: page.rows.last().filter(|_| page.more).map(|row| row.group.clone()),
        waiting,
        more_waiting,
        round: page.turns.round,
        last: page.turns.last.clone(),
        policy: fields::policy(queue).to_owned(),
        share: fields::share(&settings).to_owned(),
        scheme: settings.scheme.as_ref().map(|scheme| scheme.times().to_vec()),
        group_threads: settings.group_threads,
        half_life: settings.half_life().as_secs_f64(),
        weights: queue.rest.get("weights").map(|weights| json::from_bson(weights, Dates::Text)),
    }
}

fn row(row: &GroupRow) -> QueueGroup {
    let (waiting, more_waiting) = counted(row.waiting);
    QueueGroup {
        group: row.group.clone(),
        waiting,
        more_waiting,
        running: row.running,
        started: row.started,
        finished: row.finished,
        used: row.used,
        weight: row.weight,
        started_ago: row.since_start.map(|since| since.as_secs_f64()),
        turn_in: row.turn_in,
        why: row.why.to_string(),
    }
}

/// A number, and whether there are more.
fn counted(amount: Amount) -> (u64, bool) {
    match amount {
        Amount::Exactly(number) => (number, false),
        Amount::MoreThan(number) => (number, true),
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;
    use disbatch_core::fair::{Turns, Why};
    use serde_json::json;

    use super::*;

    fn params(options: Value) -> Params {
        Params { options: options.as_object().unwrap().clone(), ..Params::default() }
    }

    #[test]
    fn options_say_which_groups() {
        let plain = filter(&params(json!({}))).unwrap();
        assert_eq!(plain, GroupFilter { limit: DEFAULT_LIMIT, ..GroupFilter::default() });
        let some = json!({ "limit": "7", "after": "", "prefix": "acme/", "waiting": "1" });
        let expected = GroupFilter {
            after: Some(String::new()),
            prefix: Some("acme/".to_owned()),
            waiting: true,
            limit: 7,
        };
        assert_eq!(filter(&params(some)).unwrap(), expected);
        for wrong in [json!({"limit": 0}), json!({"limit": 1001}), json!({"limit": "x"})] {
            assert_eq!(filter(&params(wrong)).unwrap_err().status(), 400);
        }
    }

    #[test]
    fn groups_are_told_with_what_applies_to_them() {
        let queue = doc! { "_id": ObjectId::new(), "policy": "fair", "scheme": [2, 1] };
        let queue: Queue = bson::deserialize_from_document(queue).unwrap();
        let ann = GroupRow {
            group: "acme/ann".to_owned(),
            waiting: Amount::MoreThan(1_000),
            running: 2,
            started: 9,
            finished: 7,
            used: 1.5,
            weight: 3,
            since_start: None,
            turn_in: Some(1),
            why: Why::After(1),
        };
        let turns = Turns { round: 4, last: Some("zoe".to_owned()) };
        let page = GroupPage { rows: vec![ann], more: true, waiting: Amount::Exactly(5), turns };
        let view = serde_json::to_value(view(&queue, &page)).unwrap();
        let told = ["next", "waiting", "round", "last", "policy"].map(|name| view[name].clone());
        assert_eq!(told, [json!("acme/ann"), json!(5), json!(4), json!("zoe"), json!("fair")]);
        let expected = json!({
            "group": "acme/ann", "waiting": 1_000, "more_waiting": true, "running": 2, "started": 9, "finished": 7,
            "used": 1.5, "weight": 3, "started_ago": null, "turn_in": 1, "why": "1 turn comes before its next one",
        });
        assert_eq!(view["groups"], json!([expected]));
    }
}
