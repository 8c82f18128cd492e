//! Where the container engine is, and requests and answers over a connection to it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use nix::unistd::{AccessFlags, Uid, access};
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_util::either::Either;

use super::{Error, is_fine, refusal};

/// Docker's port without TLS.
const PORT: u16 = 2375;

/// Where Docker and Podman listen for those who may use the engine of the whole machine.
const OF_MACHINE: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];

/// Where Podman listens for its own user, in the folder that such a user has for sockets.
const OF_USER: &str = "podman/podman.sock";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    Unix(PathBuf),
    /// A host with its port, without TLS.
    Tcp(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = text.strip_prefix("unix://").unwrap_or(text);
        if path.starts_with('/') {
            return Ok(Self::Unix(path.into()));
        }
        let host = text.strip_prefix("tcp://").or_else(|| text.strip_prefix("http://"));
        let host = host.map(|host| host.trim_end_matches('/')).filter(|host| !host.is_empty());
        match host {
            Some(host) if host.contains(['/', '@']) => Err(format!("'{text}' is no host with a port")),
            // The colons of a bare IPv6 address are in brackets.
            Some(host) if host.rsplit(']').next().is_some_and(|rest| rest.contains(':')) => {
                Ok(Self::Tcp(host.to_owned()))
            }
            Some(host) => Ok(Self::Tcp(format!("{host}:{PORT}"))),
            None => Err(format!(
                "'{text}' is no address of a container engine: expected an absolute path, unix:// or tcp://, which is \
                 without TLS"
            )),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Signposts {
    pub docker_host: Option<String>,
    /// Whether `DOCKER_TLS_VERIFY` asks for TLS.
    pub tls: bool,
    pub runtime_folder: Option<PathBuf>,
    /// The user whose own engine it may be.
    pub user: u32,
}

impl Signposts {
    /// Those of this process; `user`: whose engine it may be in place of that of this process' own user.
    pub fn here(user: Option<u32>) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            docker_host: variable("DOCKER_HOST"),
            tls: variable("DOCKER_TLS_VERIFY").is_some(),
            runtime_folder: variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|_| user.is_none()),
            user: user.unwrap_or_else(|| Uid::effective().as_raw()),
        }
    }

    /// The first address of those that are `given`, named by the environment, or used by default.
    pub fn find<'a>(
        &self,
        given: impl IntoIterator<Item = Option<&'a str>>,
        is_usable: impl Fn(&Path) -> bool,
    ) -> Result<Address, String> {
        if let Some(address) = given.into_iter().flatten().find(|text| !text.is_empty()) {
            return address.parse();
        }
        if let Some(host) = &self.docker_host {
            let address: Address = host.parse().map_err(|why| format!("DOCKER_HOST: {why}"))?;
            return match address {
                Address::Tcp(_) if self.tls => {
                    Err("DOCKER_TLS_VERIFY: a container engine cannot be reached by TLS".to_owned())
                }
                address => Ok(address),
            };
        }
        let usual = self.usual();
        if let Some(path) = usual.iter().find(|path| is_usable(path)) {
            return Ok(Address::Unix(path.clone()));
        }
        let looked: Vec<String> = usual.iter().map(|path| path.display().to_string()).collect();
        Err(format!(
            "no container engine that may be used here was found at {}: name its socket in the configuration, as \
             engines.container.socket",
            looked.join(", ")
        ))
    }

    fn usual(&self) -> Vec<PathBuf> {
        let mut usual: Vec<PathBuf> = OF_MACHINE.map(PathBuf::from).to_vec();
        usual.extend(self.runtime_folder.iter().map(|folder| folder.join(OF_USER)));
        let own = Path::new("/run/user").join(self.user.to_string()).join(OF_USER);
        if !usual.contains(&own) {
            usual.push(own);
        }
        usual
    }
}

pub fn is_usable(path: &Path) -> bool {
    access(path, AccessFlags::R_OK | AccessFlags::W_OK).is_ok()
}

/// What a container writes, in frames.
pub type FromContainer = ReadHalf<TokioIo<Upgraded>>;

/// What a container reads. To shut it down is the end of its standard input.
pub type ToContainer = WriteHalf<TokioIo<Upgraded>>;

/// No answer that is read as a whole is longer.
const LONGEST: usize = 64 * 1024 * 1024;

pub struct Sent {
    pub method: Method,
    pub path: String,
    /// JSON, or nothing.
    pub body: Bytes,
    pub registry_auth: Option<String>,
    /// Whether the connection is to become one to a container.
    pub upgrade: bool,
}

impl Sent {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &str) -> Address {
        Address::Unix(path.into())
    }

    #[test]
    fn addresses_are_paths_or_hosts() {
        let tcp = |host: &str| Ok(Address::Tcp(host.to_owned()));
        for (text, expected) in [
            ("/run/x.sock", Ok(unix("/run/x.sock"))),
            ("unix:///run/x.sock", Ok(unix("/run/x.sock"))),
            ("tcp://h:1234", tcp("h:1234")),
            ("http://h/", tcp("h:2375")),
            ("tcp://[::1]", tcp("[::1]:2375")),
            ("tcp://[::1]:99", tcp("[::1]:99")),
        ] {
            assert_eq!(text.parse::<Address>(), expected, "{text}");
        }
        for text in
            ["", "x.sock", "unix://x", "tcp://", "https://h", "ssh://h", "tcp://h/path", "tcp://u@h:1"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_named_comes_before_what_is_usual() {
        let usual = Signposts { runtime_folder: Some("/x".into()), user: 7, ..Signposts::default() };
        let find = |given: [Option<&str>; 2], posts: &Signposts, there: &'static str| {
            posts.find(given, |path| path == Path::new(there))
        };
        let docker = "/var/run/docker.sock";
        assert_eq!(find([Some("/a"), Some("/b")], &usual, docker), Ok(unix("/a")));
        assert_eq!(find([None, Some("/b")], &usual, docker), Ok(unix("/b")));
        let named = Signposts { docker_host: Some("unix:///c".to_owned()), ..usual.clone() };
        assert_eq!(find([Some(""), None], &named, docker), Ok(unix("/c")));
        assert_eq!(find([None, None], &usual, docker), Ok(unix(docker)));
        for there in ["/run/podman/podman.sock", "/x/podman/podman.sock", "/run/user/7/podman/podman.sock"] {
            assert_eq!(find([None, None], &usual, there), Ok(unix(there)));
        }
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        let usual = Signposts { user: 7, ..Signposts::default() };
        let why = usual.find([None], |_| false).unwrap_err();
        assert!(why.contains("/var/run/docker.sock, /run/podman/podman.sock, /run/user/7/podman"), "{why}");
        assert!(why.contains("engines.container.socket"), "{why}");
        let host = |host: &str| Signposts { docker_host: Some(host.to_owned()), tls: true, ..usual.clone() };
        let why = host("ssh://h").find([None], |_| true).unwrap_err();
        assert!(why.starts_with("DOCKER_HOST: 'ssh://h' is no address"), "{why}");
        let why = host("tcp://h:2376").find([None], |_| true).unwrap_err();
        assert!(why.contains("TLS"), "{why}");
    }
}
