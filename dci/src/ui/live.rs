//! Pages that change by themselves. A page is made of parts: elements with an id. What they look like is found out once a
//! second for all who look at the page, by one task that ends when nobody does, and each of them is sent, as Server-Sent
//! Events, the parts that differ from what it has.
//!
//! An event without a name has a part as its data, to take the place of the element with its id. `trouble` has words: the parts could not
//! be found out. `version` is that of the assets, first. `alive` says that there is nothing new; a page that hears nothing at all for
//! some time says that it does not know how things are.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use actix_web::http::Method;
use actix_web::web::{Bytes, Data};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use disbatch_core::accounts::Role;
use futures::future::LocalBoxFuture;
use futures::{FutureExt, Stream, stream};
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep, timeout};

use crate::access::Who;
use crate::error::HttpError;
use crate::params::Params;
use crate::state::State;
use crate::ui::{admission, assets};
use crate::{events, ui};

#[derive(Debug, Clone)]
pub struct Part {
    pub id: String,
    pub html: String,
    /// What tells whether it has changed.
    stamp: u64,
    /// The id of the table that it is a row of.
    within: Option<String>,
}

impl Part {
    /// An element, whose first tag has its id, sent whenever it has changed.
    pub fn new(element: &impl Template) -> Result<Self, HttpError> {
        let html = ui::html(element)?;
        let id = html.split(" id=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        Ok(Self { id: id.to_owned(), stamp: assets::digest(html.as_bytes()), html, within: None })
    }

    /// A table, which is sent when there are other rows in it, and each of its rows.
    pub fn table(
        table: &impl Template,
        rows: impl IntoIterator<Item = impl Template>,
    ) -> Result<Vec<Self>, HttpError> {
        let whole = Self::new(table)?;
        let rows = rows.into_iter();
        let rows = rows.map(|row| Ok(Self { within: Some(whole.id.clone()), ..Self::new(&row)? }));
        let rows = rows.collect::<Result<Vec<Self>, HttpError>>()?;
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let stamp = assets::digest(ids.join(",").as_bytes());
        Ok(std::iter::once(Self { stamp, ..whole }).chain(rows).collect())
    }
}

#[cfg(test)]
pub use tests::assert_on_page;

const EVERY: Duration = Duration::from_secs(1);

/// Finding them out takes at most one part in so many of the time.
const SHARE: u32 = 10;

/// When they could not be found out, it is tried again after so many times [`EVERY`]; the last one counts from then on.
const TRIES: [u32; 3] = [1, 2, 5];

/// Something is sent at least so often. Pages rely on it (`QUIET` in `assets/app/live.js`).
const HEARTBEAT: Duration = Duration::from_secs(5);

/// A look that takes longer is overdue: what was found out before it does not count any more.
const OVERDUE: Duration = Duration::from_secs(10);

/// What is told then.
const SILENCE: &str = "the database does not answer";

type Finding = LocalBoxFuture<'static, Result<Vec<Part>, HttpError>>;

/// What a page looks like, or why that is not known.
type PageState = Result<Vec<Part>, String>;

#[derive(Debug)]
struct Look {
    found: PageState,
    /// Until then it is as new as can be expected.
    stands: Instant,
}

impl Look {
    /// What is found out again after `pause`.
    fn new(found: PageState, pause: Duration) -> Self {
        Self { found, stands: Instant::now() + pause + OVERDUE }
    }
}

#[derive(Debug)]
pub struct Feeds {
    feeds: Mutex<HashMap<String, Sender<Arc<Look>>>>,
    closing: Sender<bool>,
    every: Duration,
}

impl Default for Feeds {
    fn default() -> Self {
        Self::every(EVERY)
    }
}

impl Feeds {
    fn every(every: Duration) -> Self {
        Self { feeds: Mutex::default(), closing: channel(false).0, every }
    }

    /// Ends all streams: the process is about to stop.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    fn look_at(self: &Arc<Self>, name: String, find: impl Fn() -> Finding + 'static) -> Viewer {
        let mut feeds = self.feeds();
        let looks = match feeds.get(&name) {
            Some(feed) => feed.subscribe(),
            None => {
                let (sender, receiver) = channel(Arc::new(Look::new(Ok(Vec::new()), Duration::ZERO)));
                feeds.insert(name.clone(), sender);
                actix_web::rt::spawn(Arc::clone(self).keep(name, find));
                receiver
            }
        };
        Viewer::new(looks, self.closing.subscribe())
    }

    /// Finds out what a page looks like until nobody looks at it.
    async fn keep(self: Arc<Self>, name: String, find: impl Fn() -> Finding + 'static) {
        let broken_off = Forget { feeds: &self, name: &name };
        let mut failures = 0;
        loop {
            let began = Instant::now();
            let found = find().await.map_err(|error| error.message().to_owned());
            let pause = match &found {
                Ok(_) => {
                    failures = 0;
                    self.every.max(began.elapsed() * SHARE)
                }
                Err(_) => {
                    failures += 1;
                    self.every * TRIES[TRIES.len().min(failures) - 1]
                }
            };
            if !self.tell(&name, Look::new(found, pause)) {
                break;
            }
            sleep(pause).await;
        }
        // It is forgotten already, and another may be there.
        std::mem::forget(broken_off);
    }

    /// Passes on what a page looks like. Returns whether anybody looks at it; if not, it is forgotten.
    fn tell(&self, name: &str, look: Look) -> bool {
        let mut feeds = self.feeds();
        let Some(feed) = feeds.get(name).filter(|feed| feed.receiver_count() > 0) else {
            // Under the same lock, so that whoever comes next begins anew.
            feeds.remove(name);
            return false;
        };
        feed.send_replace(Arc::new(look));
        true
    }

    fn feeds(&self) -> MutexGuard<'_, HashMap<String, Sender<Arc<Look>>>> {
        disbatch_core::lock(&self.feeds)
    }
}

/// Forgets a page whose task is broken off: its viewers' streams end, and they come back.
struct Forget<'a> {
    feeds: &'a Feeds,
    name: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.feeds.feeds().remove(self.name);
    }
}

struct Viewer {
    looks: Receiver<Arc<Look>>,
    closing: Receiver<bool>,
    sent: HashMap<String, u64>,
    /// When something was sent last.
    last: Instant,
    is_new: bool,
}

impl Viewer {
    fn new(looks: Receiver<Arc<Look>>, closing: Receiver<bool>) -> Self {
        Self { looks, closing, sent: HashMap::new(), last: Instant::now(), is_new: true }
    }

    async fn next(&mut self) -> Option<String> {
        if std::mem::take(&mut self.is_new) {
            return Some(frame(Some("version"), &assets::VERSION));
        }
        loop {
            let look = Arc::clone(&self.looks.borrow_and_update());
            let overdue = Err(SILENCE.to_owned());
            let found = if Instant::now() < look.stands { &look.found } else { &overdue };
            let news = self.news(found);
            let left = HEARTBEAT.saturating_sub(self.last.elapsed());
            if let Some(frame) = news.or_else(|| left.is_zero().then(|| sign(found))) {
                self.last = Instant::now();
                return Some(frame);
            }
            tokio::select! {
                _ = self.closing.wait_for(|closing| *closing) => return None,
                changed = timeout(left, self.looks.changed()) => {
                    if let Ok(Err(_)) = changed {
                        return None;
                    }
                }
            }
        }
    }

    fn news(&mut self, found: &PageState) -> Option<String> {
        let parts = match found {
            Ok(parts) => parts,
            Err(trouble) => {
                let stamp = assets::digest(trouble.as_bytes());
                // When it is over, everything is sent again: that tells the page.
                let told = self.sent.get("").copied();
                self.sent = HashMap::from([(String::new(), stamp)]);
                return (told != Some(stamp)).then(|| frame(Some("trouble"), trouble));
            }
        };
        let is_new = |part: &&Part| self.sent.get(&part.id) != Some(&part.stamp);
        let changed: Vec<&Part> = parts.iter().filter(is_new).collect();
        let is_sent = |id: &str| changed.iter().any(|part| part.id == id);
        let of_itself = |part: &&&Part| !part.within.as_deref().is_some_and(is_sent);
        let frames: String = changed.iter().filter(of_itself).map(|part| frame(None, &part.html)).collect();
        self.sent = parts.iter().map(|part| (part.id.clone(), part.stamp)).collect();
        (!frames.is_empty()).then_some(frames)
    }
}

/// What is sent where nothing is new.
fn sign(found: &PageState) -> String {
    match found {
        Ok(_) => frame(Some("alive"), ""),
        Err(trouble) => frame(Some("trouble"), trouble),
    }
}

/// An event. Line breaks of any kind are of its data, and do not end it.
fn frame(name: Option<&str>, data: &str) -> String {
    let mut frame = name.map_or_else(String::new, |name| format!("event: {name}\n"));
    for line in data.trim_end_matches('\n').split(['\n', '\r']) {
        frame.push_str("data: ");
        frame.push_str(line);
        frame.push('\n');
    }
    frame.push('\n');
    frame
}

/// The answer for a client that looks at the page `name`, of which `find` finds out the parts. The name tells pages apart, and has
/// whatever `find` depends on.
pub fn respond(
    request: &HttpRequest,
    state: &Data<State>,
    name: impl Into<String>,
    find: impl AsyncFn(&State) -> Result<Vec<Part>, HttpError> + 'static,
) -> HttpResponse {
    let mut response = events::response();
    if request.method() == Method::HEAD {
        return response.finish();
    }
    // What is told of rules depends on who looks.
    let sees_all = Who::of(request).is_ok_and(|who| who.is_everywhere(Role::Viewer));
    let name = if sees_all { name.into() } else { format!("{} in part", name.into()) };
    let (shared, find) = (state.clone(), Rc::new(find));
    let viewer = state.feeds.look_at(name, move || {
        let (state, find) = (shared.clone(), Rc::clone(&find));
        async move {
            let parts = find(state.get_ref());
            let (mut parts, intake) = futures::try_join!(parts, admission::intake(&state, sees_all))?;
            parts.push(intake);
            Ok(parts)
        }
        .boxed_local()
    });
    response.streaming(frames(viewer))
}

/// The same for the page of one thing: its kind and its id tell pages apart.
pub fn of_one(
    request: &HttpRequest,
    state: &Data<State>,
    (kind, id): (&str, String),
    find: impl AsyncFn(&State, &str) -> Result<Vec<Part>, HttpError> + 'static,
) -> HttpResponse {
    let name = format!("{kind} {id}");
    respond(request, state, name, async move |state: &State| find(state, id.as_str()).await)
}

/// The same for a page whose address is a search: `kind` says of what.
pub fn of_search(
    request: &HttpRequest,
    state: &Data<State>,
    (kind, params): (&str, Params),
    find: impl AsyncFn(&State, &Params) -> Result<Vec<Part>, HttpError> + 'static,
) -> HttpResponse {
    let name = format!("{kind} {}", request.query_string());
    respond(request, state, name, async move |state: &State| find(state, &params).await)
}

fn frames(viewer: Viewer) -> impl Stream<Item = Result<Bytes, HttpError>> {
    stream::unfold(viewer, async |mut viewer| {
        let frame = viewer.next().await?;
        Some((Ok(Bytes::from(frame)), viewer))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    impl Part {
        pub fn id(&self) -> &str {
            &self.id
        }

        pub fn html(&self) -> &str {
            &self.html
        }

        /// Whether the part with this id has it in it.
        pub fn is_within(&self, id: &str) -> bool {
            self.within.as_deref() == Some(id)
        }

        pub fn stamp(&self) -> u64 {
            self.stamp
        }
    }

    /// Sees to it that each part is on a page once, under its id.
    pub fn assert_on_page(parts: &[Part], html: &str) {
        for part in parts {
            let id = format!(" id=\"{}\"", part.id);
            assert_eq!(html.matches(&id).count(), 1, "{id} in {html}");
            let tag = part.html.trim_start().split('>').next().unwrap();
            assert!(tag.contains(&id), "{part:?}");
        }
    }

    #[derive(Template)]
    #[template(source = "<p id=\"{{ id }}\">{{ text }}</p>", ext = "html")]
    struct Paragraph {
        id: &'static str,
        text: String,
    }

    fn part(id: &'static str, text: &str) -> Part {
        Part::new(&Paragraph { id, text: text.into() }).unwrap()
    }

    fn viewer() -> Viewer {
        let looks = channel(Arc::new(Look::new(Ok(vec![]), Duration::ZERO))).1;
        Viewer { is_new: false, ..Viewer::new(looks, channel(false).1) }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_all_is_told_that_it_still_holds_while_it_does() {
        let (looks, receiver) = channel(Arc::new(Look::new(Ok(vec![]), Duration::ZERO)));
        let (_closing, closing) = channel(false);
        let mut viewer = Viewer { is_new: false, ..Viewer::new(receiver, closing) };
        let began = Instant::now();
        // Looks that find nothing new do not put it off.
        let telling = async {
            loop {
                looks.send_replace(Arc::new(Look::new(Ok(vec![]), EVERY)));
                sleep(EVERY).await;
            }
        };
        let alive = "event: alive\ndata: \n\n";
        tokio::select! {
            _ = telling => {}
            frame = viewer.next() => assert_eq!(frame.as_deref(), Some(alive)),
        }
        assert!(began.elapsed() < 2 * HEARTBEAT, "{:?}", began.elapsed());
        // The next look does not end: the last one counts for a while.
        looks.send_replace(Arc::new(Look::new(Ok(vec![]), EVERY)));
        assert_eq!(viewer.next().await.as_deref(), Some(alive));
        assert_eq!(viewer.next().await.as_deref(), Some(alive));
        assert_eq!(viewer.next().await, Some(frame(Some("trouble"), SILENCE)));
        let trouble = "event: trouble\ndata: away\n\n";
        looks.send_replace(Arc::new(Look::new(Err("away".into()), EVERY)));
        assert_eq!(viewer.next().await.as_deref(), Some(trouble));
        assert_eq!(viewer.next().await.as_deref(), Some(trouble), "it is not over");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_it_is_soon_tried_again_however_long_that_took() {
        let (feeds, tries) = (Arc::new(Feeds::default()), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&tries);
        let began = Instant::now();
        let find = move || {
            log.lock().unwrap().push(began.elapsed().as_secs());
            async {
                sleep(Duration::from_secs(5)).await;
                Err(HttpError::unavailable("away"))
            }
            .boxed_local()
        };
        tokio::task::LocalSet::new()
            .run_until(async {
                let mut viewer = feeds.look_at("page".into(), find);
                while tries.lock().unwrap().len() < 5 {
                    viewer.next().await.unwrap();
                }
            })
            .await;
        assert_eq!(*tries.lock().unwrap(), [0, 6, 13, 23, 33]);
    }

    #[test]
    fn each_client_is_sent_what_it_does_not_have() {
        let mut viewer = viewer();
        let first = vec![part("a", "1"), part("b", "1")];
        assert_eq!(
            viewer.news(&Ok(first.clone())).unwrap(),
            "data: <p id=\"a\">1</p>\n\ndata: <p id=\"b\">1</p>\n\n"
        );
        assert_eq!(viewer.news(&Ok(first.clone())), None);
        let second = vec![part("a", "1"), part("b", "2")];
        assert_eq!(viewer.news(&Ok(second)).unwrap(), "data: <p id=\"b\">2</p>\n\n");
        assert_eq!(viewer.news(&Err("away".into())).unwrap(), "event: trouble\ndata: away\n\n");
        assert_eq!(viewer.news(&Err("away".into())), None);
        assert!(viewer.news(&Ok(first)).unwrap().contains("id=\"a\""), "it tells that the trouble is over");
    }

    #[test]
    fn a_table_is_sent_when_it_has_other_rows_and_else_its_rows_alone() {
        let paragraph = |id, text: &str| Paragraph { id, text: text.into() };
        let table = |text: &str, rows: &[Paragraph]| Ok(Part::table(&paragraph("a", text), rows).unwrap());
        let mut viewer = viewer();
        let whole = viewer.news(&table("1", &[paragraph("x", "1")])).unwrap();
        assert_eq!(whole, "data: <p id=\"a\">1</p>\n\n", "it has its row in it");
        assert_eq!(viewer.news(&table("2", &[paragraph("x", "1")])), None);
        let row = viewer.news(&table("3", &[paragraph("x", "2")])).unwrap();
        assert_eq!(row, "data: <p id=\"x\">2</p>\n\n");
        let other = viewer.news(&table("4", &[paragraph("x", "2"), paragraph("y", "1")])).unwrap();
        assert_eq!(other, "data: <p id=\"a\">4</p>\n\n");
    }

    #[test]
    fn nothing_that_a_part_shows_can_end_its_event() {
        let mut viewer = viewer();
        let sent = viewer.news(&Ok(vec![part("a", "x\r\rdata: y\n\nevent: end\u{2028}<script>")])).unwrap();
        let lines: Vec<&str> = sent.split(['\r', '\n']).collect();
        assert!(lines.iter().all(|line| line.is_empty() || line.starts_with("data: ")), "{sent:?}");
        assert_eq!(sent.matches("\n\n").count(), 1, "{sent:?}");
        assert!(!sent.contains("<script"), "{sent:?}");
    }

    #[actix_web::test]
    async fn one_task_serves_all_who_look_and_ends_with_them() {
        let every = Duration::from_millis(20);
        let feeds = Arc::new(Feeds::every(every));
        let looked = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&looked);
        let find = move || {
            let number = counter.fetch_add(1, Ordering::SeqCst);
            async move { Ok(vec![part("a", &number.to_string())]) }.boxed_local()
        };
        let began = Instant::now();
        let (mut one, mut other) =
            (feeds.look_at("page".into(), find.clone()), feeds.look_at("page".into(), find.clone()));
        for viewer in [&mut one, &mut other] {
            assert!(viewer.next().await.unwrap().starts_with("event: version\n"));
            while !viewer.next().await.unwrap().contains('5') {}
        }
        assert!(began.elapsed() >= 5 * every);
        let most = began.elapsed().as_millis() / every.as_millis() + 1;
        assert!(u128::from(looked.load(Ordering::SeqCst)) <= most, "one task for both");
        drop((one, other));
        while !feeds.feeds().is_empty() {
            sleep(every).await;
        }
        let mut again = feeds.look_at("page".into(), find);
        again.next().await.unwrap();
        assert!(again.next().await.is_some());
        feeds.close();
        while again.next().await.is_some() {}
    }

    #[actix_web::test]
    async fn a_page_that_cannot_be_found_out_says_why_and_goes_on() {
        let feeds = Arc::new(Feeds::every(Duration::from_millis(1)));
        let looked = AtomicU64::new(0);
        let find = move || {
            let fails = looked.fetch_add(1, Ordering::SeqCst) == 0;
            let look =
                if fails { Err(HttpError::not_found("it is <away>")) } else { Ok(vec![part("a", "1")]) };
            async move { look }.boxed_local()
        };
        let mut viewer = feeds.look_at("page".into(), find);
        viewer.next().await.unwrap();
        assert_eq!(viewer.next().await.unwrap(), "event: trouble\ndata: it is <away>\n\n");
        assert!(viewer.next().await.unwrap().starts_with("data: <p id="));
    }
}
