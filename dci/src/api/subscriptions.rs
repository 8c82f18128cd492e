//! Subscriptions: who is told what happens to tasks, queues, schedules and nodes.

use std::collections::HashMap;

use actix_web::web::{Data, Path};
use askama::Template;
use bson::DateTime;
use bson::oid::ObjectId;
use disbatch_core::audit::{Object, ObjectKind, Verb};
use disbatch_core::model::Selector;
use disbatch_core::notifications::{
    Channel, Kind, QUEUE, Settings, Subscription as Stored, SubscriptionError,
};
use disbatch_core::schedules::ScheduleQuery;
use disbatch_core::secrets::{Sealed, SecureParams};
use disbatch_core::store::{Store, StoreError};
use disbatch_wire::liberal::{Flag, Seconds};
use disbatch_wire::subscriptions::{
    Subscription, SubscriptionDeleted, SubscriptionSettings, SubscriptionTest,
};
use serde_json::{Map, Value};

use crate::access::Who;
use crate::api::create_tasks::options::not_sealed;
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::openapi::{JSON_OR_FORM, JSON_OR_PAGE};
use crate::params::Params;
use crate::state::State;
use crate::ui::{self, Rendered};
use crate::{changes, json};

/// The subscriptions, by name. Browsers get a page.
#[utoipa::path(
    get, path = "/subscriptions", tag = "notifications", operation_id = "listSubscriptions",
    responses(
        (status = 200, description = "The subscriptions; a page if `Accept` asks for HTML.", body = Vec<Subscription>,
            content_type = JSON_OR_PAGE),
    ),
)]
pub async fn list(state: Data<State>) -> Answer {
    json::of(&all(&state).await?)
}

pub async fn render(state: Data<State>) -> Rendered {
    let new = Subscription {
        events: vec![Kind::FirstFailure.as_str().to_owned(), Kind::Recovered.as_str().to_owned()],
        enabled: true,
        ..Subscription::default()
    };
    ui::render(&SubscriptionsPage { subscriptions: all(&state).await?, new })
}

/// One subscription.
#[utoipa::path(
    get, path = "/subscriptions/{name}", tag = "notifications", operation_id = "getSubscription",
    responses((status = 200, description = "The subscription.", body = Subscription)),
)]
pub async fn get(state: Data<State>, name: Path<String>) -> Answer {
    json::of(&one(&state, &name).await?)
}

/// Gives a subscription these settings and no others; makes it if there is none. What was noted and is not told yet stays. One that
/// was switched off begins anew.
#[utoipa::path(
    post, path = "/subscriptions/{name}", tag = "notifications", operation_id = "setSubscription",
    request_body(content = SubscriptionSettings, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "Stored.", body = Subscription),
        (status = 400, description = "A field is wrong."),
        (status = 409, description = "Another queue has the name of the queue for messages."),
    ),
)]
pub async fn set(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    redirect::reply(&params, &store(&state, &who, name.into_inner(), &params).await?)
}

/// Makes or changes the subscription that a form names.
#[utoipa::path(
    post, path = "/ui/subscriptions", tag = "service", operation_id = "setSubscriptionByForm",
    request_body(content = SubscriptionSettings, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 303, description = "Stored; the list of subscriptions is next."),
        (status = 400, description = "A field is wrong. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
        (status = 409, description = "Another queue has the name of the queue for messages. A page, unless it is the gate that refuses.",
            content_type = JSON_OR_PAGE),
    ),
)]
pub async fn set_by_form(state: Data<State>, who: Who, mut params: Params) -> Answer {
    let name = params.fields.remove("name").and_then(|name| name.as_str().map(str::to_owned));
    redirect::lead(store(&state, &who, name.unwrap_or_default(), &params).await, "/subscriptions")
}

/// Deletes a subscription. What was noted and is not told yet never is; messages that are tasks already are delivered.
#[utoipa::path(
    delete, path = "/subscriptions/{name}", tag = "notifications", operation_id = "deleteSubscription",
    responses(
        (status = 200, description = "Deleted.", body = SubscriptionDeleted),
    ),
)]
pub async fn delete(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    let (of, object) = (name.clone(), Object::with_name(ObjectKind::Subscription, name.as_str()));
    let delete = |store: Store| async move { store.delete_subscription(&of).await };
    if !changes::remove(&state, &who, (Verb::SubscriptionDelete, object), delete).await? {
        return Err(not_found(&name));
    }
    json::of(&SubscriptionDeleted { name: name.into_inner(), deleted: true })
}

/// Deletes a subscription, and leads to the list of subscriptions. HTML forms know no `DELETE`.
#[utoipa::path(
    post, path = "/ui/subscriptions/{name}/delete", tag = "service", operation_id = "deleteSubscriptionByForm",
    responses(
        (status = 303, description = "Deleted; the list of subscriptions is next."),
        (status = 404, description = "There is no such subscription. A page, unless it is the gate that refuses.",
            content_type = JSON_OR_PAGE),
    ),
)]
pub async fn delete_by_form(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    redirect::lead(delete(state, who, name).await, "/subscriptions")
}

/// Sends a message that says nothing but that messages arrive, at once and also if the subscription is switched off. A page's form leads to
/// the task that delivers it.
#[utoipa::path(
    post, path = "/subscriptions/{name}/test", tag = "notifications", operation_id = "testSubscription",
    responses((status = 200, description = "The task that delivers it is made.", body = SubscriptionTest)),
)]
pub async fn test(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    let found = state.store.find_subscription(&name).await?.ok_or_else(|| not_found(&name))?;
    let store = state.store.clone();
    changes::make_notification_queue(&state, &who).await?;
    let submission = async move { store.test_subscription(&found).await };
    let ids = changes::submit(&state, &who, QUEUE, None, submission).await?.ids;
    let task = ids.first().ok_or_else(|| HttpError::internal("no task was made"))?.to_string();
    if redirect::is_form(&params) {
        return Ok(redirect::see(&format!("/tasks/{task}")));
    }
    json::of(&SubscriptionTest { task })
}

async fn store(state: &State, who: &Who, name: String, params: &Params) -> Result<Subscription, HttpError> {
    if !Stored::is_name(&name) {
        return Err(HttpError::bad_request(
            "name must be text of 1 to 200 characters without spaces around it",
        ));
    }
    let before = state.store.find_subscription(&name).await?;
    let given = params.whole::<SubscriptionSettings>()?;
    let (settings, secret) = settings(state, &given, before.as_ref()).await?;
    changes::make_notification_queue(state, who).await?;
    let object = Object::with_name(ObjectKind::Subscription, name.as_str());
    let of = name.clone();
    let set = |store: Store| async move { store.set_subscription(&of, &settings, secret.as_ref()).await };
    changes::alter(state, who, (Verb::SubscriptionSet, object), set).await?;
    one(state, &name).await
}

async fn all(state: &State) -> Result<Vec<Subscription>, HttpError> {
    let (names, stored) = futures::try_join!(Names::of(&state.store), state.store.list_subscriptions())?;
    Ok(stored.iter().map(|stored| names.view(stored)).collect())
}

async fn one(state: &State, name: &str) -> Result<Subscription, HttpError> {
    let (names, stored) = futures::try_join!(Names::of(&state.store), state.store.find_subscription(name))?;
    stored.map(|stored| names.view(&stored)).ok_or_else(|| not_found(name))
}

fn not_found(name: &str) -> HttpError {
    HttpError::not_found(format!("no subscription '{name}'"))
}

impl From<SubscriptionError> for HttpError {
    fn from(error: SubscriptionError) -> Self {
        match error {
            SubscriptionError::Store(error) => error.into(),
            SubscriptionError::QueueName => Self::conflict(error.to_string()),
        }
    }
}

#[derive(Template)]
#[template(path = "subscriptions.html")]
struct SubscriptionsPage {
    subscriptions: Vec<Subscription>,
    /// What a new one is like before anything is said of it.
    new: Subscription,
}

pub fn offered() -> [(&'static str, &'static str); 7] {
    Kind::NAMED.map(|kind| {
        let words = match kind {
            Kind::Failed => "each failure",
            Kind::FirstFailure => "the first failure after a success",
            Kind::Recovered => "the first success after a failure",
            Kind::Lost => "a task was lost with its runner",
            Kind::ScheduleMissed => "a schedule missed its time",
            Kind::CanaryReturned => "a canary was taken back",
            _ => "a node died",
        };
        (kind.as_str(), words)
    })
}

pub fn tells(subscription: &Subscription, event: &str) -> bool {
    subscription.events.iter().any(|chosen| chosen == event)
}

pub fn channels() -> [(&'static str, &'static str); 4] {
    Channel::ALL.map(|channel| {
        let words = match channel {
            Channel::Webhook => "webhook",
            Channel::Slack => "Slack",
            Channel::Teams => "Microsoft Teams",
            Channel::Mail => "mail",
        };
        (channel.as_str(), words)
    })
}

/// A length of time in the largest unit that says it exactly.
fn time(seconds: f64) -> String {
    let units = [(86_400.0, "d"), (3600.0, "h"), (60.0, "min")];
    let exact = units.into_iter().find(|(length, _)| seconds >= *length && seconds % length == 0.0);
    let (length, unit) = exact.unwrap_or((1.0, "s"));
    format!("{} {unit}", seconds / length)
}

pub fn told(subscription: &Subscription) -> String {
    let offered = offered();
    let named = |event: &String| {
        offered.iter().find(|(name, _)| name == event).map_or(event.clone(), |(_, words)| (*words).to_owned())
    };
    let mut told: Vec<String> = subscription.events.iter().map(named).collect();
    told.extend(subscription.failures_in_row.map(|number| format!("{number} failures in a row")));
    told.extend(
        subscription.waits_longer.map(|seconds| format!("a queue waits longer than {}", time(seconds))),
    );
    told.extend(subscription.runs_longer.map(|seconds| format!("a task runs longer than {}", time(seconds))));
    told.join(", ")
}

struct Names(HashMap<ObjectId, String>);

impl Names {
    pub async fn of(store: &Store) -> Result<Self, StoreError> {
        let all = ScheduleQuery::default();
        let (queues, schedules) = futures::try_join!(store.list_queues(), store.list_schedules(&all))?;
        let queues = queues.iter().map(|queue| (queue.id.0, queue.display_name()));
        let schedules = schedules.into_iter().map(|schedule| (schedule.id.0, schedule.settings.name));
        Ok(Self(queues.chain(schedules).collect()))
    }

    pub fn view(&self, stored: &Stored) -> Subscription {
        let (settings, state) = (stored.settings.clone(), &stored.state);
        let named = |ids: Vec<ObjectId>| {
            let name = |id: ObjectId| match self.0.get(&id) {
                Some(name) if !name.is_empty() => name.clone(),
                _ => id.to_hex(), // It has no name, or is gone.
            };
            ids.into_iter().map(name).collect()
        };
        let told = state.pending.iter().map(|group| group.count).sum::<i64>() + state.more;
        let task = state.outbox.as_ref().map(|outbox| outbox.task).or(state.last);
        Subscription {
            name: stored.name.clone(),
            events: settings.events.into_iter().map(Kind::as_str).map(str::to_owned).collect(),
            failures_in_row: settings.failures_in_row,
            waits_longer: settings.waits_longer,
            runs_longer: settings.runs_longer,
            queues: named(settings.queues),
            schedules: named(settings.schedules),
            tenants: settings.tenants,
            tags: settings.tags,
            channel: settings.channel.as_str().to_owned(),
            url: settings.url,
            user: settings.user,
            from: settings.from,
            to: settings.to,
            has_secret: stored.secure_params.is_some(),
            every: settings.every,
            delay: settings.delay,
            subject: settings.subject,
            text: settings.text,
            enabled: settings.enabled,
            messages: state.number,
            sent: state.sent.and_then(|sent| DateTime::try_to_rfc3339_string(sent).ok()),
            task: task.map(ObjectId::to_hex),
            pending: told,
            trouble: state.trouble.clone(),
        }
    }
}

/// So many seconds after a message the next one may be.
const EVERY: f64 = 300.0;

/// So many seconds a message waits for others.
const DELAY: f64 = 10.0;

/// The settings that are described, and what of them is stored encrypted.
async fn settings(
    state: &State,
    given: &SubscriptionSettings,
    before: Option<&Stored>,
) -> Result<(Settings, Option<Sealed>), HttpError> {
    let channel = given.channel.as_ref().and_then(|channel| Channel::named(&channel.0));
    let channel = channel.ok_or_else(|| {
        HttpError::bad_request(format!(
            "channel must be one of {}",
            Channel::ALL.map(Channel::as_str).join(", ")
        ))
    })?;
    let is_secret = channel.has_secret_address();
    let settings = Settings {
        events: given.events.iter().map(|event| kind(event)).collect::<Result<_, _>>()?,
        failures_in_row: given.failures_in_row.map(|number| number.0),
        waits_longer: given.waits_longer.as_ref().map(|time| seconds("waits_longer", time)).transpose()?,
        runs_longer: given.runs_longer.as_ref().map(|time| seconds("runs_longer", time)).transpose()?,
        queues: queues(state, &given.queues).await?,
        schedules: schedules(state, &given.schedules).await?,
        tenants: given.tenants.clone(),
        tags: given.tags.clone(),
        channel,
        url: given.url.clone(),
        user: given.user.clone(),
        from: given.from.clone(),
        to: given.to.clone(),
        every: given.every.as_ref().map_or(Ok(EVERY), |time| seconds("every", time))?,
        delay: given.delay.as_ref().map_or(Ok(DELAY), |time| seconds("delay", time))?,
        subject: given.subject.clone(),
        text: given.text.clone(),
        enabled: given.enabled.is_none_or(|Flag(flag)| flag),
    };
    settings.check().map_err(|error| HttpError::bad_request(error.to_string()))?;
    let sealed = secrets(state, given, &settings, before)?;
    if is_secret && sealed.is_none() {
        return Err(HttpError::bad_request("url: must be given"));
    }
    Ok((Settings { url: settings.url.filter(|_| !is_secret), ..settings }, sealed))
}

/// What is stored encrypted: what is given, or what was there if it goes to the same place as before.
fn secrets(
    state: &State,
    given: &SubscriptionSettings,
    settings: &Settings,
    before: Option<&Stored>,
) -> Result<Option<Sealed>, HttpError> {
    let is_secret = settings.channel.has_secret_address();
    let url = settings.url.as_ref().filter(|_| is_secret);
    if is_secret && given.secret.is_some() {
        return Err(HttpError::bad_request("secret: the address of this channel is the secret"));
    }
    let fresh = [("url", url), ("secret", given.secret.as_ref())];
    let fresh =
        fresh.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?.clone()))));
    let Some(fresh) = SecureParams::new(fresh.collect::<Map<_, _>>()) else {
        let is_there = |before: &&Stored| {
            let (before, now) = (&before.settings, settings);
            (before.channel, &before.url, &before.user) == (now.channel, &now.url, &now.user)
        };
        let Some(before) = before.filter(is_there) else { return Ok(None) };
        return before.sealed().map_err(|error| HttpError::internal(&error.to_string()));
    };
    state.keys.seal(QUEUE, &fresh).map(Some).map_err(|error| not_sealed("secret", &error))
}

fn kind(event: &str) -> Result<Kind, HttpError> {
    Kind::NAMED.into_iter().find(|kind| kind.as_str() == event).ok_or_else(|| {
        let known = Kind::NAMED.map(Kind::as_str).join(", ");
        HttpError::bad_request(format!("events: '{event}' is none of {known}"))
    })
}

fn seconds(field: &str, Seconds(time): &Seconds) -> Result<f64, HttpError> {
    time.as_f64().ok_or_else(|| HttpError::bad_request(format!("{field} must be a number of seconds")))
}

async fn queues(state: &State, names: &[String]) -> Result<Vec<ObjectId>, HttpError> {
    let mut ids = Vec::new();
    for name in names {
        let found = state.store.find_queue(&Selector::parse(name)).await?;
        ids.push(
            found.ok_or_else(|| HttpError::bad_request(format!("queues: there is no queue '{name}'")))?.id.0,
        );
    }
    Ok(ids)
}

async fn schedules(state: &State, names: &[String]) -> Result<Vec<ObjectId>, HttpError> {
    let mut ids = Vec::new();
    for name in names {
        let found = state.store.find_schedule(&Selector::parse(name)).await?;
        let found =
            found.ok_or_else(|| HttpError::bad_request(format!("schedules: there is no schedule '{name}'")));
        ids.push(found?.id.0);
    }
    Ok(ids)
}
