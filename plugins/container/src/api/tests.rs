//! What is understood of an engine's answers, with a socket that answers as engines have been seen to.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::*;

/// What is answered to whoever asks for a path that begins so.
type Answers = Vec<(&'static str, String)>;

struct Fake {
    folder: TempDir,
    /// The heads and bodies of all requests.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    fn start(answers: Answers) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let fake = Self { folder, asked: Arc::clone(&asked) };
        let answers = Arc::new(answers);
        let (read, _) = watch::channel(None);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(answer(socket, Arc::clone(&answers), Arc::clone(&asked), read.clone()));
            }
        });
        fake
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    async fn engine(&self) -> Engine {
        Engine::connect(Address::Unix(self.socket())).await.unwrap()
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Reads the head of one request and answers it. Who is attached to a container's output gets the length of its input,
/// which is 0 where the container is `deaf`: then the connection of its input ends.
async fn answer(
    mut socket: UnixStream,
    answers: Arc<Answers>,
    asked: Arc<Mutex<Vec<String>>>,
    read: watch::Sender<Option<usize>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let of = |name: &str| {
        head.lines().find_map(|line| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)))
    };
    let length: usize = of("content-length").map_or(0, |(_, length)| length.parse().unwrap());
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await.unwrap();
    asked.lock().unwrap().push(format!("{head}{}", String::from_utf8(body).unwrap()));
    let path = head.split(' ').nth(1).unwrap();
    let found = answers.iter().find(|(prefix, _)| path.starts_with(prefix));
    let missing = with("404 Not Found", "");
    let found = found.map_or(&missing, |(_, answer)| answer);
    socket.write_all(found.as_bytes()).await.unwrap();
    if path.contains("stdin=1") {
        let mut input = Vec::new();
        if !path.contains("deaf") {
            socket.read_to_end(&mut input).await.unwrap();
        }
        read.send_replace(Some(input.len()));
    } else if found.starts_with("HTTP/1.1 101") {
        let length = read.subscribe().wait_for(Option::is_some).await.unwrap().unwrap();
        let said = format!("{length} bytes");
        let mut frame = vec![1, 0, 0, 0, 0, 0, 0, u8::try_from(said.len()).unwrap()];
        frame.extend_from_slice(said.as_bytes());
        socket.write_all(&frame).await.unwrap();
    }
    socket.shutdown().await.unwrap();
}

fn with(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nApi-Version: 1.41\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn ok(body: &str) -> String {
    with("200 OK", body)
}

#[test]
fn both_sides_speak_the_older_version() {
    for (of_engine, expected) in [
        (Some("1.41"), "v1.41"),
        (Some("1.99"), "v1.47"),
        (Some("2.0"), "v1.47"),
        (Some("new"), "v1.47"),
        (None, "v1.47"),
    ] {
        assert_eq!(version(of_engine), expected);
    }
}

#[test]
fn paths_have_nothing_that_ends_them() {
    assert_eq!(escaped("a b?c/../d&e").to_string(), "a%20b%3Fc%2F..%2Fd%26e");
    let name = utf8_percent_encode("quay.io/a:1@sha256:0", SPECIAL_IN_IMAGES);
    assert_eq!(name.to_string(), "quay.io/a:1@sha256:0");
    assert_eq!(escaped("\u{e9}").to_string(), "%C3%A9");
}

#[test]
fn why_an_engine_refuses_is_said_in_its_words() {
    let said = |body: &str| refusal(StatusCode::CONFLICT, body.as_bytes()).to_string();
    assert_eq!(said(r#"{"message":"no such image","response":404}"#), "no such image");
    assert_eq!(said("page not found\n"), "page not found");
    assert_eq!(said(""), "the container engine answers with 409 Conflict");
}

#[test]
fn a_fetch_that_goes_wrong_says_so_in_the_middle_of_its_answer() {
    let said = |line: &str| complaint(line.as_bytes()).map_err(|error| error.to_string());
    assert_eq!(said(r#"{"errorDetail":{"message":"denied"},"error":"x"}"#), Err("denied".to_owned()));
    assert_eq!(said(r#"{"error":"denied"}"#), Err("denied".to_owned()));
    for line in
        [r#"{"status":"Pulling","progressDetail":{},"id":"a"}"#, r#"{"errorDetail":{}}"#, "", "\r", "x"]
    {
        assert_eq!(said(line), Ok(()), "{line}");
    }
}

#[tokio::test]
async fn answers_are_read_whatever_else_is_in_them() {
    let in_pieces = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        1e\r\n{\"Image\":\"sha256:1\",\"State\":{\"\r\n\
        39\r\nStatus\":\"stopped\",\"ExitCode\":3,\"OOMKilled\":true,\"Pid\":0}}\r\n0\r\n\r\n";
    let list = r#"[{"Id":"a","State":"stopped","Labels":{"x":"y"}},{"Id":"b","Labels":null,"State":"odd"}]"#;
    let fake = Fake::start(vec![
        ("/_ping", ok("OK")),
        ("/v1.41/containers/json", ok(list)),
        ("/v1.41/containers/a/json", in_pieces.to_owned()),
        ("/v1.41/images/quay.io/a:1/json", ok(r#"{"Id":"sha256:1","RepoDigests":null}"#)),
        ("/v1.41/containers/a/wait", ok("{\"StatusCode\":137,\"Error\":null}\n")),
        ("/v1.41/containers/a/stop", "HTTP/1.1 304 Not Modified\r\n\r\n".to_owned()),
    ]);
    let engine = fake.engine().await;
    let listed = engine.labelled("disbatch.task").await.unwrap();
    assert_eq!((listed.len(), listed[0].id.as_str(), listed[0].labels["x"].as_str()), (2, "a", "y"));
    assert!(listed[1].labels.is_empty());
    let inspected = engine.inspect("a").await.unwrap();
    assert_eq!((inspected.image.as_deref(), inspected.state.exit_code), (Some("sha256:1"), 3));
    assert!(inspected.state.oom_killed && !inspected.state.running);
    assert_eq!(engine.image("quay.io/a:1").await.unwrap().id.as_deref(), Some("sha256:1"));
    assert_eq!(engine.wait("a").await.unwrap(), 137);
    engine.stop("a", Duration::from_millis(8900)).await.unwrap();
    engine.remove("gone").await.unwrap();
    assert!(engine.inspect("gone").await.unwrap_err().is_missing());
    let asked = fake.asked();
    let filtered =
        "GET /v1.41/containers/json?all=true&filters=%7B%22label%22%3A%5B%22disbatch.task%22%5D%7D ";
    assert!(asked[1].starts_with(filtered), "{}", asked[1]);
    assert!(asked[5].starts_with("POST /v1.41/containers/a/stop?t=8 "), "{}", asked[5]);
}

#[tokio::test]
async fn engines_of_ordinary_users_are_known() {
    for (answer, expected) in [
        (ok(r#"{"ID":"x","SecurityOptions":["name=seccomp,profile=default"]}"#), Ok(false)),
        (ok(r#"{"SecurityOptions":["name=seccomp,profile=builtin","name=rootless"]}"#), Ok(true)),
        (ok(r#"{"SecurityOptions":null,"Rootless":true}"#), Ok(true)),
        (ok("{}"), Ok(false)),
        (with("403 Forbidden", ""), Ok(false)),
        (with("500 Internal Server Error", r#"{"message":"busy"}"#), Err("busy".to_owned())),
    ] {
        let fake = Fake::start(vec![("/_ping", ok("OK")), ("/v1.41/info", answer.clone())]);
        let found = fake.engine().await.is_rootless().await.map_err(|error| error.to_string());
        assert_eq!(found, expected, "{answer}");
    }
}

#[tokio::test]
async fn what_is_sent_is_what_was_meant() {
    let fake = Fake::start(vec![
        ("/_ping", ok("OK")),
        ("/v1.41/containers/create", with("201 Created", r#"{"Id":"a","Warnings":1}"#)),
        ("/v1.41/images/create?fromImage=bad", ok("{\"status\":\"x\"}\r\n{\"error\":\"denied\"}\n")),
        ("/v1.41/images/create", ok(r#"{"status":"x"}"#)),
    ]);
    let engine = fake.engine().await;
    assert_eq!(engine.create("n", &json!({ "Image": "i" })).await.unwrap(), "a");
    engine.pull("quay.io/a:1", Some("c2VjcmV0")).await.unwrap();
    let why = engine.pull("bad:1", None).await.unwrap_err().to_string();
    assert_eq!(why, "denied");
    let asked = fake.asked();
    assert!(asked[1].starts_with("POST /v1.41/containers/create?name=n "), "{}", asked[1]);
    assert!(asked[1].ends_with("\r\n\r\n{\"Image\":\"i\"}"), "{}", asked[1]);
    assert!(asked[2].starts_with("POST /v1.41/images/create?fromImage=quay.io%2Fa%3A1 "), "{}", asked[2]);
    assert!(asked[2].to_lowercase().contains("\r\nx-registry-auth: c2vjcmv0\r\n"), "{}", asked[2]);
    assert!(!asked[3].to_lowercase().contains("x-registry-auth"), "{}", asked[3]);
}

const UPGRADED: &str = "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";

#[tokio::test]
async fn a_container_hears_the_end_of_its_input_and_is_heard_after_it() {
    let fake = Fake::start(vec![
        ("/_ping", ok("OK")),
        ("/v1.41/containers/a/attach", UPGRADED.to_owned()),
        ("/v1.41/containers/b/attach", with("409 Conflict", r#"{"message":"not there"}"#)),
        ("/v1.41/containers/c/attach", ok("")),
    ]);
    let engine = fake.engine().await;
    let (mut from, mut to) = engine.attach("a").await.unwrap();
    to.write_all(&vec![b'x'; 100_000]).await.unwrap();
    to.shutdown().await.unwrap();
    let mut heard = Vec::new();
    from.read_to_end(&mut heard).await.unwrap();
    assert_eq!(&heard[8..], b"100000 bytes");
    assert_eq!(engine.attach("b").await.unwrap_err().to_string(), "not there");
    assert!(engine.attach("c").await.is_err());
}

#[tokio::test]
async fn a_container_that_does_not_read_its_input_is_heard_nevertheless() {
    let answers = vec![("/_ping", ok("OK")), ("/v1.41/containers/deaf/attach", UPGRADED.to_owned())];
    let fake = Fake::start(answers);
    let (mut from, mut to) = fake.engine().await.attach("deaf").await.unwrap();
    // More than a socket takes by itself.
    to.write_all(&vec![b'x'; 10_000_000]).await.unwrap_err();
    let mut heard = Vec::new();
    from.read_to_end(&mut heard).await.unwrap();
    assert_eq!(&heard[8..], b"0 bytes");
}

#[tokio::test]
async fn an_engine_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("none");
    let error = Engine::connect(Address::Unix(socket.clone())).await.unwrap_err();
    let expected = format!("cannot reach the container engine at {}: No such file", socket.display());
    assert!(error.to_string().starts_with(&expected) && error.is_lost(), "{error}");
}
