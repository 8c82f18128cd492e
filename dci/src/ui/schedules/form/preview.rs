//! When a schedule would run, beside its form.

use actix_web::http::StatusCode;
use askama::Template;
use askama::filters::HtmlSafe;
use disbatch_core::schedules::{Schedule, Spec};
use disbatch_wire::liberal::list;
use disbatch_wire::schedules::PreviewOptions;

use crate::error::HttpError;
use crate::params::Params;
use crate::schedules::{self, Given};
use crate::state::State;
use crate::ui;
use crate::ui::schedules::timeline::Timeline;

/// When it would run, or what is wrong with the times.
#[derive(Debug, Default, Template)]
#[template(path = "schedules/preview.html")]
pub struct Preview {
    wrong: bool,
    said: String,
    timeline: Option<Timeline>,
}

impl HtmlSafe for Preview {}

impl Preview {
    /// That of nothing.
    pub fn empty() -> Self {
        Self { said: "Fill in the times to see when it would run.".to_owned(), ..Self::default() }
    }

    /// That of times that make no sense.
    pub fn wrong(why: &str) -> Self {
        Self { wrong: true, said: why.to_owned(), timeline: None }
    }

    /// Of what a request says, for a schedule that there is or for a new one.
    pub async fn of_request(
        state: &State,
        params: &Params,
        schedule: Option<&Schedule>,
    ) -> Result<Self, HttpError> {
        let has_times = params.fields.get("cron").is_some_and(|cron| !list(cron).is_empty());
        if !has_times {
            return Ok(Self::empty());
        }
        let spec = Given::read(params).and_then(|given| given.spec());
        Self::gather(state, spec, schedule).await
    }

    /// As an element of a page.
    pub fn html(&self) -> Result<String, HttpError> {
        ui::html(self)
    }

    /// Of times that are understood, or are not.
    pub async fn gather(
        state: &State,
        spec: Result<Spec, HttpError>,
        schedule: Option<&Schedule>,
    ) -> Result<Self, HttpError> {
        let found = match spec {
            Ok(spec) => {
                let times = schedules::times(state, &spec, schedule, &PreviewOptions::default()).await;
                times.map(|(times, now)| Timeline::of(&spec, &times, now))
            }
            Err(error) => Err(error),
        };
        match found {
            Ok(timeline) => Ok(Self { timeline: Some(timeline), ..Self::default() }),
            Err(error) if error.status() == StatusCode::BAD_REQUEST => Ok(Self::wrong(error.message())),
            Err(error) => Err(error),
        }
    }
}
