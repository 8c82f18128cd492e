//! What the node tells monitoring systems and the system's manager of services.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::health;
use disbatch_core::metrics::labels::Worker;
use disbatch_core::metrics::{Component, Format, Metrics};
use disbatch_core::service_manager;
use disbatch_core::store::Store;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::lock;

/// So many connections for metrics are served at once; others wait.
const AT_ONCE: usize = 16;

/// For so long, each of them.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long it does not accept connections after that has failed, for want of descriptors for instance.
const PAUSE: Duration = Duration::from_millis(200);

type Answer = Response<Full<Bytes>>;

/// Tells monitoring systems, on an address of its own: `GET /metrics`, `/healthz` and `/readyz`. It is all in memory, so nobody who asks
/// costs the database anything. Listens at `address`, and answers until what is returned is dropped.
pub async fn serve(address: SocketAddr, metrics: Arc<Metrics>) -> io::Result<AbortOnDropHandle<()>> {
    let listener = TcpListener::bind(address).await?;
    tracing::info!(address = %listener.local_addr()?, "metrics are served");
    Ok(AbortOnDropHandle::new(tokio::spawn(accept(listener, metrics))))
}

async fn accept(listener: TcpListener, metrics: Arc<Metrics>) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let metrics = Arc::clone(&metrics);
                tokio::spawn(async move {
                    attend(stream, metrics).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection for metrics");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn attend(stream: TcpStream, metrics: Arc<Metrics>) {
    let service = service_fn(|request| answer(request, Arc::clone(&metrics)));
    let mut builder = http1::Builder::new();
    // One answer for each connection: nobody keeps a place that others wait for.
    builder.timer(TokioTimer::new()).keep_alive(false);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(PATIENCE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection for metrics broke off"),
        Err(_) => tracing::debug!("a connection for metrics took too long"),
    }
}

async fn answer<B>(request: Request<B>, metrics: Arc<Metrics>) -> Result<Answer, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refused);
    }
    Ok(match request.uri().path() {
        "/metrics" => {
            let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
            exposed(metrics, Format::of_accept(accept)).await
        }
        "/healthz" => plain(StatusCode::OK, health::ALIVE.to_owned()),
        "/readyz" => {
            match health::unready(metrics.worker_success.of(Worker::Look).get(), SystemClock.now()) {
                None => plain(StatusCode::OK, health::READY.to_owned()),
                Some(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            }
        }
        path => plain(StatusCode::NOT_FOUND, format!("nothing is at {path}; try /metrics\n")),
    })
}

/// The node goes on meanwhile: of many queues it is a long text.
async fn exposed(metrics: Arc<Metrics>, format: Format) -> Answer {
    match tokio::task::spawn_blocking(move || metrics.text(Component::Den, format)).await {
        Ok(text) => {
            let mut answer = Response::new(Full::new(Bytes::from(text)));
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
            answer
        }
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written\n".to_owned())
        }
    }
}

fn plain(status: StatusCode, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

/// A loop that has not come round for so long may be stuck. It comes round every few seconds, and every 30 when the database
/// is away.
const SUSPICIOUS: Duration = Duration::from_secs(60);

/// A database that does not answer within this is away.
const ANSWER: Duration = Duration::from_secs(5);

/// Whether the node's loop goes on, for the system's manager of services: a DEN that is stuck is to be started again, and one whose database is
/// away is not, as that would help nobody.
#[derive(Debug)]
pub struct Vitals {
    came_round: Arc<Mutex<Instant>>,
    is_ready: bool,
    _watch: AbortOnDropHandle<()>,
}

impl Vitals {
    pub fn start(store: Store) -> Self {
        let came_round = Arc::new(Mutex::new(Instant::now()));
        let last = Arc::clone(&came_round);
        let watch = service_manager::watch(async move || {
            let last = *lock(&last);
            is_well(last, || store.reach_majority()).await
        });
        let watch = AbortOnDropHandle::new(tokio::spawn(watch));
        Self { came_round, is_ready: false, _watch: watch }
    }

    pub fn come_round(&self) {
        *lock(&self.came_round) = Instant::now();
    }

    /// It has looked at the database with success.
    pub fn looked(&mut self) {
        if !std::mem::replace(&mut self.is_ready, true) {
            service_manager::ready();
        }
    }
}

/// Whether the loop goes on, or does not because the database is away: one that answers and writes nothing holds it up, too.
async fn is_well<P, T, E>(came_round: Instant, write: impl FnOnce() -> P) -> bool
where
    P: Future<Output = Result<T, E>>,
{
    came_round.elapsed() < SUSPICIOUS || !matches!(timeout(ANSWER, write()).await, Ok(Ok(_)))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use http_body_util::BodyExt;

    use super::*;

    async fn ask(method: Method, path: &str, metrics: &Arc<Metrics>) -> (u16, String, String) {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let answer = answer(request, Arc::clone(metrics)).await.unwrap();
        let kind = answer.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn it_is_ready_while_the_database_answers() {
        let metrics = Arc::new(Metrics::of(Component::Den, "1.2.3"));
        let success = metrics.worker_success.of(Worker::Look);
        let ready = || async { ask(Method::GET, "/readyz", &metrics).await };
        assert_eq!((ready().await.0, ready().await.2.as_str()), (503, "the database has not answered yet\n"));
        let now = Duration::from_millis(SystemClock.now().timestamp_millis().unsigned_abs());
        success.set_time(now - health::READY_WITHIN - Duration::from_secs(9));
        let (status, _, why) = ready().await;
        assert!(status == 503 && why.starts_with("the database has not answered for 39"), "{why}");
        success.set_time(now);
        assert_eq!(ready().await.0, 200);
        assert_eq!(ask(Method::HEAD, "/healthz", &metrics).await.0, 200);
    }

    #[tokio::test]
    async fn nothing_else_is_there() {
        let metrics = Arc::new(Metrics::of(Component::Den, "1.2.3"));
        let (status, kind, text) = ask(Method::GET, "/metrics", &metrics).await;
        assert_eq!((status, kind.as_str()), (200, "text/plain; version=0.0.4; charset=utf-8"));
        assert!(text.contains("disbatch_build_info{version=\"1.2.3\",component=\"den\"} 1.0\n"), "{text}");
        assert_eq!(ask(Method::POST, "/metrics", &metrics).await.0, 405);
        assert_eq!(ask(Method::GET, "/", &metrics).await.0, 404);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_is_stuck_if_it_does_not_come_round_although_the_database_answers() {
        let began = Instant::now();
        let answers = || ready(Ok::<(), ()>(()));
        assert!(is_well(began, answers).await);
        tokio::time::advance(SUSPICIOUS).await;
        assert!(!is_well(began, answers).await);
        assert!(is_well(began, || ready(Err::<(), ()>(()))).await, "the database is away");
        assert!(is_well(began, pending::<Result<(), ()>>).await, "the database stands still");
        assert!(is_well(Instant::now(), answers).await);
    }
}
