//! All pages of one database, byte for byte but for empty lines, as they are stored in `dci/tests/pages/snapshots`. With `DISBATCH_RENEW` set
//! they are stored anew: then read the difference.

mod seed;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{Service, ServiceResponse};
use actix_web::http::header;
use actix_web::web::Data;
use actix_web::{App, test as server};
use bson::doc;
use disbatch_core::clock::Clock;
use disbatch_core::config::Config;
use disbatch_core::store::Store;
use disbatch_mongod::testing::{self, TestDatabase};
use futures::future::poll_fn;
use serde_json::json;

use crate::access::Door;
use crate::server::all_routes;
use crate::state::State;
use seed::{ARRAY, AT, FAIR, GONE, MAIL, NODE, PASSWORD, TASKS};

const SNAPSHOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pages/snapshots");

/// How long to wait for what should come within moments, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// By it, it is always the same moment.
#[derive(Debug)]
struct Standstill;

impl Clock for Standstill {
    fn now(&self) -> bson::DateTime {
        AT
    }
}

/// The answers to somebody's requests.
struct Visitor<S> {
    app: S,
    /// Who it is: begins the names of what is stored.
    name: &'static str,
    headers: Vec<(header::HeaderName, String)>,
    /// What differs each time, and what stands for it.
    replaced: Vec<(String, &'static str)>,
}

impl<S> Visitor<S>
where
    S: Service<actix_http::Request, Response = ServiceResponse<BoxBody>, Error = actix_web::Error>,
{
    async fn get(&self, path: &str, accept: &str) -> ServiceResponse<BoxBody> {
        let mut request = server::TestRequest::get().uri(path).peer_addr("127.0.0.1:9".parse().unwrap());
        request = request.insert_header((header::ACCEPT, accept)).insert_header((header::HOST, "localhost"));
        for (name, value) in &self.headers {
            request = request.insert_header((name.clone(), value.clone()));
        }
        server::call_service(&self.app, request.to_request()).await
    }

    /// A page, or JSON, with its status.
    async fn whole(&self, path: &str, accept: &str) -> String {
        let response = self.get(path, accept).await;
        let status = response.status();
        let body = String::from_utf8(server::read_body(response).await.to_vec()).unwrap();
        format!("{status}\n{body}")
    }

    /// The first elements that a page is sent that changes by itself.
    async fn first_event(&self, path: &str) -> String {
        let mut body = self.get(path, "text/event-stream").await.into_body();
        let mut sent = String::new();
        while !sent.contains("data: <") && !sent.contains("event: trouble") {
            let chunk = poll_fn(|context| std::pin::Pin::new(&mut body).poll_next(context));
            let chunk = tokio::time::timeout(PATIENCE, chunk).await.unwrap().unwrap().unwrap();
            sent.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        sent.split_once("\n\n").unwrap().1.to_owned()
    }

    async fn check(&self, name: &str, path: &str, differences: &mut Vec<String>) {
        let text = match name.rsplit_once('.') {
            Some((_, "events")) => self.first_event(path).await,
            Some((_, "json")) => self.whole(path, "application/json").await,
            _ => self.whole(path, "text/html").await,
        };
        let text = self.replaced.iter().fold(text, |text, (found, word)| text.replace(found, word));
        let text = without_frame(&without_values(&text));
        let text = without_empty_lines(&text).replace(&"x".repeat(1_000), "(1000 x)");
        let text = if path == "/about" { without_numbers(&text) } else { text };
        let file = Path::new(SNAPSHOTS).join(format!("{}-{name}.txt", self.name));
        if std::env::var_os("DISBATCH_RENEW").is_some() {
            std::fs::write(file, text).unwrap();
        } else if std::fs::read_to_string(&file).ok().as_deref() != Some(text.as_str()) {
            let new = std::env::temp_dir().join(file.file_name().unwrap());
            std::fs::write(&new, text).unwrap();
            differences.push(format!("diff {} {}", file.display(), new.display()));
        }
    }
}

/// Without what is behind these words up to this sign: it differs each time, or tells what is in an asset.
fn without_values(html: &str) -> String {
    let values = [
        ("?v=", '"'),
        ("name=\".form_token\" value=\"", '"'),
        ("form-token\" content=\"", '"'),
        // How long until then, by the clock of the database.
        (" UTC (in ", ')'),
        // Where programs are looked for on this machine.
        (" is not an executable file in /", '<'),
    ];
    values.iter().fold(html.to_owned(), |html, (word, end)| {
        let mut pieces = html.split(word);
        let first = pieces.next().unwrap_or_default().to_owned();
        pieces.fold(first, |text, piece| text + word + piece.find(*end).map_or("", |at| &piece[at..]))
    })
}

/// What all pages have around them is not stored with each.
fn without_frame(html: &str) -> String {
    let Some((head, rest)) = html.split_once("<div class=\"tools\">") else { return html.to_owned() };
    let own =
        |line: &&str| ["<title>", "assets/", "<body", "aria-current"].iter().any(|part| line.contains(part));
    let head: String = head.lines().filter(own).map(|line| line.to_owned() + "\n").collect();
    let (_, main) = rest.split_once("<main").unwrap();
    let (main, _) = main.split_once("</main>").unwrap();
    format!("{}\n{head}<main{main}", html.lines().next().unwrap_or_default())
}

/// Those that templates leave between elements mean nothing.
fn without_empty_lines(html: &str) -> String {
    let lines = html.lines().filter(|line| !matches!(*line, "" | "data: "));
    lines.map(|line| line.to_owned() + "\n").collect()
}

/// Without what a server says of itself.
fn without_numbers(html: &str) -> String {
    let mut text = String::new();
    for c in html.chars() {
        match c {
            '0'..='9' | '.' if text.ends_with('#') => {}
            '0'..='9' => text.push('#'),
            c => text.push(c),
        }
    }
    ["KiB", "MiB", "GiB"].iter().fold(text, |text, unit| text.replace(&format!("# {unit}"), "# bytes"))
}

fn state(database: &TestDatabase, folder: &Path, door: Door) -> State {
    let config = json!({
        "mongohost": database.uri, "database": database.name, "plugins": ["My::Plugin", "Bad::Plugin", "Other::Plugin"],
        "plugin_dirs": ["plugins"],
    });
    let config = Config::parse(&config.to_string(), &folder.join("c.json")).unwrap();
    State::new(&config, Store::with_clock(database.database.clone(), Arc::new(Standstill)), door)
}

macro_rules! visitor {
    ($name:literal, $state:expr, $headers:expr, $replaced:expr) => {{
        let state = Data::new($state);
        let app = App::new().app_data(state.clone()).configure(|app| drop(all_routes(app, &state)));
        Visitor { app: server::init_service(app).await, name: $name, headers: $headers, replaced: $replaced }
    }};
}

/// The session of a user, and its id.
async fn log_in(database: &TestDatabase, state: State) -> (String, Vec<(String, &'static str)>) {
    let visitor = visitor!("", state, vec![], vec![]);
    let form = [("name", "ann"), ("password", PASSWORD), (".then", "/")];
    let request = server::TestRequest::post().uri("/login").peer_addr("127.0.0.1:9".parse().unwrap());
    let answer = server::call_service(&visitor.app, request.set_form(form).to_request()).await;
    let cookie = answer.headers().get(header::SET_COOKIE).unwrap().to_str().unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let sessions = database.database.collection::<bson::Document>("accounts.sessions");
    let known = doc! { "agent": "Mozilla/5.0 (X11; Linux x86_64; rv:1) Firefox/1", "created": AT, "seen": AT, "expires": AT };
    let is_new = doc! { "agent": { "$ne": "curl/8" } };
    let found = sessions.find_one_and_update(is_new, doc! { "$set": known }).await.unwrap().unwrap();
    (cookie, vec![(found.get_object_id("_id").unwrap().to_hex(), "SESSION")])
}

#[actix_web::test]
async fn pages_are_as_they_are_stored() {
    let database = TestDatabase::create(testing::server().await.unwrap()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    seed::fill(&database.database, folder.path()).await;
    std::fs::create_dir_all(SNAPSHOTS).unwrap();
    let replaced = vec![(database.name.clone(), "DATABASE"), (folder.path().display().to_string(), "FOLDER")];
    let mut differences = Vec::new();

    let anybody = visitor!("open", state(&database, folder.path(), Door::Open), vec![], replaced.clone());
    let of_task = |number: usize| format!("/tasks/{}", TASKS[number]);
    for number in 0..TASKS.len() {
        anybody.check(&format!("task-{number}.html"), &of_task(number), &mut differences).await;
        anybody
            .check(&format!("task-{number}.events"), &format!("/ui{}", of_task(number)), &mut differences)
            .await;
    }
    let found = format!(
        "/tasks?queue={MAIL}&status=2&status=-2&node=&.columns=queue,status,node,created,changed,waited,ran,exit,progress,attempt,due,result,params"
    );
    for (name, path) in [
        ("overview.html", "/"),
        ("overview-day.html", "/?span=24h"),
        ("overview.events", "/ui/overview"),
        ("throughput.json", "/ui/throughput?span=7d"),
        ("queue.html", &format!("/queues/{MAIL}")),
        ("queue-again.html", &format!("/queues/{MAIL}?task={}&span=7d", TASKS[0])),
        ("queue-fair.html", &format!("/queues/{FAIR}")),
        ("queue-gone.html", &format!("/queues/{GONE}")),
        ("queue.events", &format!("/ui/queues/{MAIL}")),
        ("queue-ended.json", &format!("/ui/queues/{MAIL}/chart?of=ended")),
        ("queue-waited.json", &format!("/ui/queues/{MAIL}/chart?of=waited")),
        ("queue-ran.json", &format!("/ui/queues/{MAIL}/chart?of=ran&span=24h")),
        ("nodes.html", "/nodes"),
        ("nodes.events", "/ui/nodes"),
        ("node.html", &format!("/nodes/{NODE}")),
        ("node-dead.html", "/nodes/dead"),
        ("node-perl.html", "/nodes/perl"),
        ("node.events", &format!("/ui/nodes/{NODE}")),
        ("node-running.json", &format!("/ui/nodes/{NODE}/chart?of=running")),
        ("node-load.json", &format!("/ui/nodes/{NODE}/chart?of=load&span=24h")),
        ("node-memory.json", &format!("/ui/nodes/{NODE}/chart?of=memory&span=7d")),
        ("tasks.html", "/tasks"),
        ("tasks-found.html", &found),
        ("tasks-page.html", "/tasks?.limit=2"),
        ("tasks-text.html", "/tasks?.text=ada&.limit=1"),
        ("tasks-none.html", &format!("/tasks?queue={GONE}")),
        ("tasks-archive.html", &format!("/tasks?queue={MAIL}&.archive=1&status=1")),
        ("tasks-wrong.html", "/tasks?colour=red"),
        ("tasks-bad.html", "/tasks?status=x"),
        ("tasks.events", &format!("/ui/tasks?.ids={},6b0003bb686c8275d8019999&.newest=1", TASKS[0])),
        ("arrays.html", "/arrays"),
        ("arrays-page.html", "/arrays?.limit=1&state=open"),
        ("array.html", &format!("/arrays/{ARRAY}")),
        ("array-page.html", &format!("/arrays/{ARRAY}?.from=1&.limit=1")),
        ("array.events", &format!("/ui/arrays/{ARRAY}")),
        ("audit.html", "/audit"),
        ("audit-found.html", &format!("/audit?what=queue&queue={MAIL}&.limit=1&by=ann")),
        ("audit-none.html", "/audit?by=nobody&user=x"),
        ("moment.html", "/moments?at=2026-11-20T08:24:27Z&around=10m"),
        ("files.html", "/files"),
        ("files-page.html", "/files?.limit=1"),
        ("fileset.html", "/files/data"),
        ("fileset-old.html", "/files/data?.version=1&.prefix=a&.limit=1"),
        ("plugins.html", "/plugins"),
        ("users.html", "/users"),
        ("users.json", "/users"),
        ("account.html", "/account"),
        ("account.json", "/account"),
        ("about.html", "/about"),
        ("login.html", "/login?then=/tasks"),
        ("missing.html", "/tasks/6b0003bb686c8275d8019999"),
    ] {
        anybody.check(name, path, &mut differences).await;
    }

    let (cookie, own) = log_in(&database, state(&database, folder.path(), Door::Closed)).await;
    let closed = state(&database, folder.path(), Door::Closed);
    let headers = vec![(header::COOKIE, cookie)];
    let ann = visitor!("ann", closed, headers, [replaced.clone(), own].concat());
    for (name, path) in [
        ("account.html", "/account?said=password"),
        ("account.json", "/account"),
        ("overview.html", "/"),
        ("queue.html", &format!("/queues/{MAIL}")),
        ("node.html", &format!("/nodes/{NODE}")),
        ("node-dead.html", "/nodes/dead"),
        ("task.html", &of_task(0)),
        ("tasks.html", "/tasks"),
        ("array.html", &format!("/arrays/{ARRAY}")),
        ("fileset.html", "/files/data"),
        ("login.html", "/login"),
    ] {
        ann.check(name, path, &mut differences).await;
    }

    let closed = state(&database, folder.path(), Door::Closed);
    let stranger = visitor!("stranger", closed, vec![], vec![]);
    stranger.check("login.html", "/login?then=/tasks", &mut differences).await;
    let closed = state(&database, folder.path(), Door::Closed);
    let authorization = format!(
        "Basic {}",
        base64::Engine::encode(&base64::prelude::BASE64_STANDARD, format!("guest:{PASSWORD}"))
    );
    let guest = visitor!("guest", closed, vec![(header::AUTHORIZATION, authorization)], replaced);
    for (name, path) in [
        ("account.html", "/account"),
        ("account.json", "/account"),
        ("overview.html", "/"),
        ("queue.html", &format!("/queues/{MAIL}")),
        ("task.html", &of_task(0)),
        ("task-graph.html", &of_task(1)),
        ("tasks.html", "/tasks"),
        ("arrays.html", "/arrays"),
        ("array.html", &format!("/arrays/{ARRAY}")),
        ("files.html", "/files"),
        ("plugins.html", "/plugins"),
        ("nodes.html", "/nodes"),
    ] {
        guest.check(name, path, &mut differences).await;
    }
    assert!(differences.is_empty(), "DISBATCH_RENEW=1 stores them anew:\n{}", differences.join("\n"));
    database.drop_database().await.unwrap();
}

#[test]
fn what_differs_each_time_is_left_out() {
    assert_eq!(without_values("a?v=0123456789abcdef\" b"), "a?v=\" b");
    assert_eq!(without_empty_lines("a\n\nb"), "a\nb\n");
    assert_eq!(without_numbers("7.0.14, 4 KiB, 1.5 MiB"), "#, # bytes, # bytes");
}
