//! Adds routes. Each says what somebody must be to use it; there is no other way to add one.

use actix_web::http::Method;
use actix_web::http::header::{LOCATION, VARY};
use actix_web::middleware::{DefaultHeaders, from_fn};
use actix_web::web::{self, ServiceConfig};
use actix_web::{FromRequest, Handler, HttpRequest, HttpResponse, Responder, Route, guard};

use crate::accept::wants_html;
use crate::access::{Need, enforce};
use crate::api::Answer;
use crate::error::HttpError;
use crate::ui;

/// A method of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Reads, also as HEAD.
    Get,
    /// Changes.
    Post,
    /// Puts something there, in the place of what was there.
    Put,
    Delete,
}

impl Verb {
    /// What clients may send for it.
    const fn allowed(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    #[cfg(test)]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    fn route(self) -> Route {
        match self {
            Self::Get => web::route().guard(guard::Any(guard::Get()).or(guard::Head())),
            Self::Post => web::post(),
            Self::Put => web::put(),
            Self::Delete => web::delete(),
        }
    }
}

/// A route that was added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// The pattern of its addresses.
    pub path: &'static str,
    pub verb: Verb,
    pub need: Need,
}

/// An address and what can be done there.
#[must_use = "an address is of no use unless it is added"]
pub struct Place {
    path: &'static str,
    routes: Vec<(Verb, Need, Route)>,
    is_shared: bool,
    varies: bool,
    guard: Option<Box<dyn guard::Guard>>,
}

/// What is at an address. `{name}` stands for a part of it, as actix has it.
pub fn at(path: &'static str) -> Place {
    Place { path, routes: Vec::new(), is_shared: false, varies: false, guard: None }
}

impl Place {
    /// What GET and HEAD do.
    pub fn get<F, Args>(self, need: Need, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        self.add(Verb::Get, need, handler)
    }

    pub fn post<F, Args>(self, need: Need, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        self.add(Verb::Post, need, handler)
    }

    pub fn put<F, Args>(self, need: Need, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        self.add(Verb::Put, need, handler)
    }

    pub fn delete<F, Args>(self, need: Need, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        self.add(Verb::Delete, need, handler)
    }

    /// Other places with the same addresses have other methods: this one does not refuse them.
    pub fn shared(self) -> Self {
        Self { is_shared: true, ..self }
    }

    /// The answer depends on `Accept`, which caches are told.
    pub fn by_accept(self) -> Self {
        Self { varies: true, ..self }
    }

    /// Only for requests that this lets through.
    pub fn only(self, guard: impl guard::Guard + 'static) -> Self {
        Self { guard: Some(Box::new(guard)), ..self }
    }

    fn add<F, Args>(mut self, verb: Verb, need: Need, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        self.routes.push((verb, need, needing(need, verb.route().to(handler))));
        self
    }
}

/// A route that only those reach who may.
pub fn needing(need: Need, route: Route) -> Route {
    route.wrap(from_fn(move |request, next| enforce(need, request, next)))
}

pub struct Routes<'a> {
    app: &'a mut ServiceConfig,
    declared: Vec<Declared>,
}

impl<'a> Routes<'a> {
    pub fn of(app: &'a mut ServiceConfig) -> Self {
        Self { app, declared: Vec::new() }
    }

    /// Adds a place, behind those that were added before.
    pub fn add(&mut self, place: Place) -> &mut Self {
        let mut resource = web::resource(place.path);
        let allow: Vec<&str> = place.routes.iter().map(|(verb, ..)| verb.allowed()).collect();
        let allow = allow.join(", ");
        for (verb, need, route) in place.routes {
            self.declared.push(Declared { path: place.path, verb, need });
            resource = resource.route(route);
            if place.is_shared {
                resource = match verb {
                    Verb::Get => resource.guard(guard::Any(guard::Get()).or(guard::Head())),
                    Verb::Post => resource.guard(guard::Post()),
                    Verb::Put => resource.guard(guard::Put()),
                    Verb::Delete => resource.guard(guard::Delete()),
                };
            }
        }
        if let Some(only) = place.guard {
            resource = resource.guard(guard::fn_guard(move |context| only.check(context)));
        }
        if !place.is_shared {
            resource = resource.default_service(web::to(move |request| refuse(request, allow.clone())));
        }
        if place.varies {
            self.app.service(resource.wrap(DefaultHeaders::new().add((VARY, "Accept"))));
        } else {
            self.app.service(resource);
        }
        self
    }

    /// What answers when no place does.
    pub fn otherwise<F, Args>(&mut self, need: Need, handler: F)
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        self.app.default_service(needing(need, web::to(handler)));
    }

    pub fn declared(self) -> Vec<Declared> {
        self.declared
    }
}

/// A browser that opens the address of a form, or loads it again after an error, is led to the page that has the form.
async fn refuse(request: HttpRequest, allow: String) -> Answer {
    let error = HttpError::method_not_allowed(request.method().as_str(), &allow);
    if !wants_html(&request) || !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(error);
    }
    Ok(match page_of_form(request.path()) {
        Some(page) => HttpResponse::SeeOther().insert_header((LOCATION, page)).finish(),
        None => ui::failed(&error),
    })
}

/// The page whose form goes to an address, if there is one. Names stay encoded as they are.
fn page_of_form(path: &str) -> Option<String> {
    let own = path.strip_prefix("/ui/").or_else(|| path.strip_prefix('/'))?;
    let mut parts = own.splitn(3, '/');
    let (kind, name, action) = (parts.next()?, parts.next(), parts.next());
    match (kind, name, action) {
        ("logout", None, _) => Some("/".to_owned()),
        ("account" | "admission" | "balance" | "calendars" | "subscriptions" | "tenants", ..) => {
            Some(format!("/{kind}"))
        }
        ("queues", Some(name), Some("tasks")) => Some(format!("/queues/{name}?tab=new#new")),
        ("schedules", Some(name), Some("backfill")) => Some(format!("/schedules/{name}#backfill")),
        ("files", Some("versions"), _) => None, // Programs send what a version has.
        (
            "arrays" | "bulk" | "files" | "nodes" | "queues" | "schedules" | "tasks" | "workers",
            Some(name),
            _,
        ) => Some(format!("/{kind}/{name}")),
        _ => None, // No page has a form for it.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_forms_lead_to_their_pages() {
        for (form, page) in [
            ("/schedules/a%20b/backfill", "/schedules/a%20b#backfill"),
            ("/schedules/x/run", "/schedules/x"),
            ("/tasks/6b0003bb686c8275d8013333/answer/link", "/tasks/6b0003bb686c8275d8013333"),
            ("/ui/queues/6b0003bb686c8275d70dc2f1/tasks", "/queues/6b0003bb686c8275d70dc2f1?tab=new#new"),
            ("/ui/queues/6b0003bb686c8275d70dc2f1/delete", "/queues/6b0003bb686c8275d70dc2f1"),
            ("/ui/balance/check", "/balance"),
            ("/ui/subscriptions", "/subscriptions"),
            ("/ui/tenants/a/b/delete", "/tenants"),
            ("/account/tokens/6b0003bb686c8275d8013333/revoke", "/account"),
            ("/logout", "/"),
        ] {
            assert_eq!(page_of_form(form).as_deref(), Some(page), "{form}");
        }
        for other in [
            "/callbacks/6b/log",
            "/counters/audit",
            "/files/versions/6b/commit",
            "/queues",
            "//evil.example/x",
        ] {
            assert_eq!(page_of_form(other), None, "{other}");
        }
    }
}
