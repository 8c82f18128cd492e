//! Requests and answers over a connection.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_util::either::Either;

use super::{Error, is_fine, refusal};
use crate::address::Address;

/// What a container writes, in frames.
pub type FromContainer = ReadHalf<TokioIo<Upgraded>>;

/// What a container reads. To shut it down is the end of its standard input.
pub type ToContainer = WriteHalf<TokioIo<Upgraded>>;

/// No answer that is read as a whole is longer.
const LONGEST: usize = 64 * 1024 * 1024;

/// A request.
pub struct Sent {
    pub method: Method,
    pub path: String,
    /// JSON, or nothing.
    pub body: Bytes,
    /// With what an image is fetched.
    pub registry_auth: Option<String>,
    /// Whether the connection is to become one to a container.
    pub upgrade: bool,
}

impl Sent {
    /// Without anything else.
    pub fn to(method: Method, path: &str) -> Self {
        Self { method, path: path.to_owned(), body: Bytes::new(), registry_auth: None, upgrade: false }
    }

    fn request(self) -> Result<Request<Full<Bytes>>, Error> {
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.path)
            // A socket has no name.
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json");
        if let Some(auth) = self.registry_auth {
            request = request.header("X-Registry-Auth", auth);
        }
        if self.upgrade {
            request = request.header(CONNECTION, "Upgrade").header(UPGRADE, "tcp");
        }
        request
            .body(Full::new(self.body))
            .map_err(|error| Error::Odd(format!("no request can be made: {error}")))
    }
}

/// An answer, of which only the head has been read.
#[derive(Debug)]
pub struct Answer {
    response: Response<Incoming>,
    /// Without it the connection would end.
    _connection: SendRequest<Full<Bytes>>,
}

impl Answer {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// A header, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// More of it. `None`: that was all.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.response.body_mut().frame().await {
            if let Ok(piece) = frame?.into_data() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// All of it.
    pub async fn bytes(mut self) -> Result<Bytes, Error> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece().await? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > LONGEST {
                return Err(Error::Odd(format!("it has more than {LONGEST} bytes")));
            }
        }
        Ok(bytes.into())
    }

    /// The streams of a container, where these were asked for.
    pub async fn streams(self) -> Result<(FromContainer, ToContainer), Error> {
        if self.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(Error::Odd(format!("it does not connect to the container: {}", self.status())));
        }
        Ok(split(TokioIo::new(hyper::upgrade::on(self.response).await?)))
    }
}

/// Sends a request and waits for the head of the answer.
pub async fn send(address: &Address, sent: Sent, patience: Duration) -> Result<Answer, Error> {
    let request = sent.request()?;
    let asked = async {
        let unreachable = |source| Error::Unreachable { address: address.clone(), source };
        let socket = match address {
            Address::Unix(path) => Either::Left(UnixStream::connect(path).await.map_err(unreachable)?),
            Address::Tcp(host) => Either::Right(TcpStream::connect(host).await.map_err(unreachable)?),
        };
        let (mut connection, work) = http1::handshake(TokioIo::new(socket)).await?;
        // How it ends shows where something is read.
        tokio::spawn(async move { drop(work.with_upgrades().await) });
        let response = connection.send_request(request).await?;
        Ok::<_, Error>(Answer { response, _connection: connection })
    };
    let answer = timeout(patience, asked).await.map_err(|_| Error::Silent(patience))??;
    if is_fine(&answer) {
        return Ok(answer);
    }
    let status = answer.status();
    Err(refusal(status, &timeout(patience, answer.bytes()).await.map_err(|_| Error::Silent(patience))??))
}
