//! A subscription as clients describe it.

use bson::oid::ObjectId;
use disbatch_core::model::Selector;
use disbatch_core::notifications::{Channel, Kind, QUEUE, Settings, Subscription};
use disbatch_core::secrets::{SealError, Sealed, SecureParams};
use disbatch_wire::liberal::{Flag, Seconds};
use disbatch_wire::subscriptions::SubscriptionSettings;
use serde_json::{Map, Value};

use crate::api::create_tasks::secure::NO_KEY;
use crate::error::HttpError;
use crate::state::State;

/// So many seconds after a message the next one may be.
const EVERY: f64 = 300.0;

/// So many seconds a message waits for others.
const DELAY: f64 = 10.0;

/// The settings that are described, and what of them is stored encrypted.
pub async fn settings(
    state: &State,
    given: &SubscriptionSettings,
    before: Option<&Subscription>,
) -> Result<(Settings, Option<Sealed>), HttpError> {
    let channel = given.channel.as_ref().map(|channel| channel.0.as_str());
    let channel = Channel::ALL.into_iter().find(|known| Some(known.as_str()) == channel);
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
    before: Option<&Subscription>,
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
        let is_there = |before: &&Subscription| {
            let (before, now) = (&before.settings, settings);
            (before.channel, &before.url, &before.user) == (now.channel, &now.url, &now.user)
        };
        let Some(before) = before.filter(is_there) else { return Ok(None) };
        return before.sealed().map_err(|error| HttpError::internal(&error.to_string()));
    };
    state.keys.seal(QUEUE, &fresh).map(Some).map_err(|error| match error {
        SealError::NoKey => HttpError::new(actix_web::http::StatusCode::SERVICE_UNAVAILABLE, NO_KEY),
        SealError::TooLong(_) => HttpError::bad_request(format!("secret: {error}")),
        SealError::Random(_) => HttpError::internal(&error.to_string()),
    })
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
