//! The queue that an address names.

use std::pin::Pin;

use actix_web::{FromRequest, HttpMessage, HttpRequest, dev, web};
use disbatch_core::model::{QueueId, ScheduleId, Selector};

use crate::error::HttpError;

/// The queue that somebody was let through for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admitted(pub QueueId);

/// The queue that an address names. For those who may not use all queues, it is the one that was looked at when they were
/// let through, whatever has that name by now.
#[derive(Debug, Clone)]
pub struct NamedQueue {
    /// As it stands in the address.
    pub name: String,
    /// By which it is found.
    pub selector: Selector,
}

impl NamedQueue {
    /// The queue with this name or id.
    pub fn parse(name: &str) -> Self {
        Self { name: name.to_owned(), selector: Selector::parse(name) }
    }
}

impl FromRequest for NamedQueue {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, HttpError>>>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let name = web::Path::<String>::from_request(request, payload);
        let admitted = request.extensions().get::<Admitted>().copied();
        Box::pin(async move {
            let name = name.await.map_err(|_| HttpError::bad_request("the address cannot be read"))?;
            let name = name.into_inner();
            let selector = admitted.map_or_else(|| Selector::parse(&name), |queue| Selector::Id(queue.0.0));
            Ok(Self { name, selector })
        })
    }
}

/// The schedule that somebody was let through for.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdmittedSchedule(pub ScheduleId);

/// The schedule that an address names, as [`NamedQueue`] is the queue.
#[derive(Debug, Clone)]
pub struct NamedSchedule {
    /// As it stands in the address.
    pub name: String,
    /// By which it is found.
    pub selector: Selector,
}

impl NamedSchedule {
    /// The schedule with this name or id.
    pub fn parse(name: &str) -> Self {
        Self { name: name.to_owned(), selector: Selector::parse(name) }
    }
}

impl FromRequest for NamedSchedule {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, HttpError>>>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let name = web::Path::<String>::from_request(request, payload);
        let admitted = request.extensions().get::<AdmittedSchedule>().copied();
        Box::pin(async move {
            let name = name.await.map_err(|_| HttpError::bad_request("the address cannot be read"))?;
            let name = name.into_inner();
            let selector = match admitted {
                Some(AdmittedSchedule(id)) => Selector::Id(id.0),
                None => Selector::parse(&name),
            };
            Ok(Self { name, selector })
        })
    }
}
