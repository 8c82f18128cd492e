//! Listens: what becomes of a connection before there is a request.

use std::convert::Infallible;
use std::fmt;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{Extensions, HttpService, Protocol, Request, Response};
use actix_server::{GracefulShutdownSignal, Server};
use actix_service::{IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_tls::accept::TlsError;
use actix_tls::accept::rustls_0_23::{Acceptor, TlsStream};
use actix_web::body::MessageBody;
use actix_web::dev::AppConfig;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};

use crate::connections::{Connections, HEAD, KEEP_ALIVE, Place, Stream};

/// Requests that run when a signal comes have so many seconds to end.
const GRACE_SECONDS: u64 = 30;

/// So many threads answer requests, however many processors there are.
const WORKERS: usize = 4;

/// So many threads of each of them read files and compress.
const BLOCKING: usize = 4;

/// So many connections more than there may be are taken by each thread, so that those are not in the way that are being
/// closed.
const CLOSING: usize = 1_024;

/// So many wait until they are taken.
const BACKLOG: u32 = 2_048;

/// How long agreeing on keys may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long a client may take to let go of a connection that is being closed.
const GOODBYE: Duration = Duration::from_secs(5);

/// What a connection becomes that has been taken.
type Taken<T> = (T, Protocol, Option<SocketAddr>);

pub fn listen<F, I, S, B>(
    application: F,
    address: SocketAddr,
    tls: Option<ServerConfig>,
) -> io::Result<Server>
where
    F: Fn() -> I + Send + Clone + 'static,
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig> + 'static,
    S::Error: Into<actix_web::Error> + 'static,
    S::InitError: fmt::Debug,
    S::Response: Into<Response<B>> + 'static,
    <S::Service as Service<Request>>::Future: 'static,
    B: MessageBody + 'static,
{
    let connections = Arc::new(Connections::new());
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let builder = Server::build()
        // Each has memory of its own, and they mostly wait for the database.
        .workers(processors.min(WORKERS))
        .worker_max_blocking_threads(BLOCKING)
        .disable_signals()
        .shutdown_timeout(GRACE_SECONDS)
        .max_concurrent_connections(connections.most + CLOSING);
    let listener = listener(address)?;
    let (address, most) = (listener.local_addr()?, connections.most);
    let ending = builder.graceful_shutdown_signal();
    let encrypted = tls.is_some();
    let enter = move |stream| ready(enter(&connections, stream, encrypted));
    let builder = match tls {
        None => builder.listen("http", listener, move || {
            let taken = |stream: Stream| {
                let peer = stream.peer();
                ready(Ok((stream, Protocol::Http1, peer)))
            };
            fn_service(enter.clone()).and_then(taken).and_then(speak(
                application(),
                ending.clone(),
                Stream::place,
            ))
        }),
        Some(tls) => {
            // Who is slow to agree on keys gives way to others as all do.
            actix_tls::accept::max_concurrent_tls_connect(most + CLOSING);
            let acceptor = acceptor(tls);
            builder.listen("https", listener, move || {
                let taken = |stream: TlsStream<Stream>| {
                    let peer = stream.get_ref().0.peer();
                    ready(Ok((stream, Protocol::Http1, peer)))
                };
                let place = |stream: &TlsStream<Stream>| stream.get_ref().0.place();
                let agree = acceptor.clone().map_err(disagreement);
                fn_service(enter.clone()).and_then(agree).and_then(taken).and_then(speak(
                    application(),
                    ending.clone(),
                    place,
                ))
            })
        }
    }?;
    tracing::info!(%address, tls = encrypted, connections = most, "listening");
    Ok(builder.run())
}

fn listener(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

fn enter(
    connections: &Arc<Connections>,
    stream: TcpStream,
    encrypted: bool,
) -> Result<Stream, DispatchError> {
    // Else the end of an answer that takes several packets waits for a client that delays its acknowledgement.
    let _may_be_gone = stream.set_nodelay(true);
    let stream = connections.enter(stream, encrypted);
    stream.ok_or_else(|| DispatchError::Io(io::ErrorKind::ConnectionRefused.into()))
}

/// It knows HTTP/1.1 only.
fn acceptor(mut config: ServerConfig) -> Acceptor {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut acceptor = Acceptor::new(config);
    acceptor.set_handshake_timeout(HANDSHAKE);
    acceptor
}

fn disagreement(error: TlsError<io::Error, Infallible>) -> DispatchError {
    DispatchError::Io(match error {
        TlsError::Timeout => io::ErrorKind::TimedOut.into(),
        TlsError::Tls(error) => error,
        TlsError::Service(never) => match never {},
    })
}

fn speak<T, I, S, B>(
    application: I,
    ending: GracefulShutdownSignal,
    place: impl Fn(&T) -> Arc<Place> + 'static,
) -> impl ServiceFactory<Taken<T>, Config = (), Response = (), Error = DispatchError, InitError = ()>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig> + 'static,
    S::Error: Into<actix_web::Error> + 'static,
    S::InitError: fmt::Debug,
    S::Response: Into<Response<B>> + 'static,
    <S::Service as Service<Request>>::Future: 'static,
    B: MessageBody + 'static,
{
    let application = application.into_factory().map_err(|error| error.into().error_response());
    HttpService::build()
        .graceful_shutdown_signal(move || {
            let ending = ending.clone();
            async move { ending.notified().await }
        })
        .keep_alive(KEEP_ALIVE)
        .client_request_timeout(HEAD)
        .client_disconnect_timeout(GOODBYE)
        // Else answers that go on for long would do so for clients that have gone.
        .h1_allow_half_closed(false)
        .on_connect_ext(move |stream: &T, data: &mut Extensions| drop(data.insert(place(stream))))
        .finish(map_config(application, |()| AppConfig::default()))
}
