//! Adds routes. Each says what somebody must be to use it; there is no other way to add one.

use actix_web::http::Method;
use actix_web::http::header::{LOCATION, VARY};
use actix_web::middleware::{DefaultHeaders, from_fn};
use actix_web::web::{self, ServiceConfig};
use actix_web::{FromRequest, Handler, HttpMessage, HttpRequest, HttpResponse, Responder, Route, guard};
use futures::FutureExt;
use futures::future::Map;

use crate::accept::{asks_for_html, wants_html};
use crate::access::{Need, enforce};
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::params::IsForm;
use crate::ui::{self, Rendered};

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
    const fn methods(self) -> &'static [&'static str] {
        match self {
            Self::Get => &["GET", "HEAD"],
            Self::Post => &["POST"],
            Self::Put => &["PUT"],
            Self::Delete => &["DELETE"],
        }
    }

    #[cfg(test)]
    pub const fn name(self) -> &'static str {
        self.methods()[0]
    }

    /// Lets through what is sent for it.
    fn guard(self) -> impl guard::Guard {
        guard::fn_guard(move |context| self.methods().contains(&context.head().method.as_str()))
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

/// What may answer a request.
pub trait Endpoint<Args>: Handler<Args, Output: Responder + 'static> {}

impl<Args, F: Handler<Args, Output: Responder + 'static>> Endpoint<Args> for F {}

/// What answers with a page, or with one that says what is wrong.
#[derive(Clone)]
struct Page<F>(F);

impl<Args, F: Handler<Args, Output = Rendered>> Handler<Args> for Page<F> {
    type Output = HttpResponse;
    type Future = Map<F::Future, fn(Rendered) -> HttpResponse>;

    fn call(&self, args: Args) -> Self::Future {
        let page: fn(Rendered) -> HttpResponse = ui::page;
        self.0.call(args).map(page)
    }
}

/// What answers a page's form with a page where something is wrong.
#[derive(Clone)]
struct OfForm<F>(F);

impl<Args, F: Handler<Args, Output = Answer>> Handler<(HttpRequest, Args)> for OfForm<F> {
    type Output = Answer;
    type Future = Map<F::Future, fn(Answer) -> Answer>;

    fn call(&self, (request, args): (HttpRequest, Args)) -> Self::Future {
        let is_form = request.extensions().contains::<IsForm>();
        let told: fn(Answer) -> Answer = if is_form { redirect::as_page } else { |answer| answer };
        self.0.call(args).map(told)
    }
}

/// An address and what can be done there.
#[must_use = "an address is of no use unless it is added"]
pub struct Place {
    path: &'static str,
    routes: Vec<(Verb, Need, Route)>,
    /// What GET and HEAD do for people, if that is something else.
    page: Option<Route>,
    is_shared: bool,
    varies: bool,
    guard: Option<Box<dyn guard::Guard>>,
}

/// What is at an address. `{name}` stands for a part of it, as actix has it.
pub fn at(path: &'static str) -> Place {
    Place { path, routes: Vec::new(), page: None, is_shared: false, varies: false, guard: None }
}

impl Place {
    /// What GET and HEAD do.
    pub fn get<Args: FromRequest + 'static>(self, need: Need, handler: impl Endpoint<Args>) -> Self {
        self.add(Verb::Get, need, handler)
    }

    /// The page that GET and HEAD have, for whomever.
    pub fn page<Args: FromRequest + 'static>(
        self,
        need: Need,
        page: impl Handler<Args, Output = Rendered>,
    ) -> Self {
        self.get(need, Page(page))
    }

    /// What GET and HEAD do for programs, and which page they have for people.
    pub fn get_or_page<Args: FromRequest + 'static, OfPage: FromRequest + 'static>(
        self,
        need: Need,
        handler: impl Endpoint<Args>,
        page: impl Handler<OfPage, Output = Rendered>,
    ) -> Self {
        let is_for_people = guard::fn_guard(|context| asks_for_html(&context.head().headers));
        let page = web::route().guard(Verb::Get.guard()).guard(is_for_people).to(Page(page));
        Self { page: Some(needing(need, page)), ..self.get(need, handler).by_accept() }
    }

    pub fn post<Args: FromRequest + 'static>(self, need: Need, handler: impl Endpoint<Args>) -> Self {
        self.add(Verb::Post, need, handler)
    }

    /// The same where a page has a form for it, which is told by a page what is wrong.
    pub fn form<Args: FromRequest + 'static>(
        self,
        need: Need,
        handler: impl Handler<Args, Output = Answer>,
    ) -> Self {
        self.post::<(HttpRequest, Args)>(need, OfForm(handler))
    }

    pub fn put<Args: FromRequest + 'static>(self, need: Need, handler: impl Endpoint<Args>) -> Self {
        self.add(Verb::Put, need, handler)
    }

    pub fn delete<Args: FromRequest + 'static>(self, need: Need, handler: impl Endpoint<Args>) -> Self {
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

    fn add<Args: FromRequest + 'static>(
        mut self,
        verb: Verb,
        need: Need,
        handler: impl Endpoint<Args>,
    ) -> Self {
        self.routes.push((verb, need, needing(need, web::route().guard(verb.guard()).to(handler))));
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
        let allow: Vec<&str> = place.routes.iter().flat_map(|(verb, ..)| verb.methods()).copied().collect();
        let allow = allow.join(", ");
        if let Some(page) = place.page {
            resource = resource.route(page);
        }
        for (verb, need, route) in place.routes {
            self.declared.push(Declared { path: place.path, verb, need });
            resource = resource.route(route);
            if place.is_shared {
                resource = resource.guard(verb.guard());
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
    pub fn otherwise<Args: FromRequest + 'static>(&mut self, need: Need, handler: impl Endpoint<Args>) {
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
