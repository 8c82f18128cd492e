//! The interface of Docker, as far as it is needed: one connection for each request, and of the answers only what is read
//! here.

mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

pub use wire::{FromContainer, Signposts, ToContainer, is_usable};

use wire::{Address, Answer, Sent};

/// The newest version of the interface that is spoken here.
const NEWEST: (u32, u32) = (1, 47);

/// How long an engine may take to begin its answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// The same where it waits for others. The task has a timeout of its own.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What an engine says while it fetches is in lines, of which no more is read.
const LONGEST_LINE: usize = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot reach the container engine at {address}: {source}")]
    Unreachable { address: Address, source: std::io::Error },
    #[error("the container engine broke off: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the container engine has not answered in {} s", .0.as_secs())]
    Silent(Duration),
    /// It does not want to, or cannot.
    #[error("{message}")]
    Refused {
        status: u16,
        /// Why, in its own words.
        message: String,
    },
    #[error("the answer of the container engine cannot be understood: {0}")]
    Odd(String),
}

impl Error {
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }

    /// Whether it says nothing about what was asked for: the engine may be starting anew.
    pub fn is_lost(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }
}

#[derive(Debug, Clone)]
pub struct Engine {
    address: Address,
    version: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Listed {
    pub id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Inspected {
    pub image: Option<String>,
    pub state: State,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct State {
    pub running: bool,
    /// Whether it is suspended, and not running by the words of some engines.
    pub paused: bool,
    pub exit_code: i64,
    /// Whether something in it was killed because memory ran out.
    #[serde(rename = "OOMKilled")]
    pub oom_killed: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Image {
    /// Its id, the digest of its description.
    pub id: Option<String>,
    /// By what registries know it.
    #[serde(deserialize_with = "or_default")]
    pub repo_digests: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct About {
    #[serde(deserialize_with = "or_default")]
    security_options: Vec<String>,
    /// Podman's word for it, besides.
    rootless: bool,
}

impl About {
    fn is_rootless(&self) -> bool {
        // Others have `name=seccomp,profile=..` there.
        let mut words = self.security_options.iter().flat_map(|option| option.split(','));
        self.rootless || words.any(|word| word == "name=rootless")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Created {
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Waited {
    status_code: i64,
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Engine {
    /// The engine at an address, if it is there.
    pub async fn connect(address: Address) -> Result<Self, Error> {
        let answer = wire::send(&address, Sent::to(Method::GET, "/_ping"), PATIENCE).await?;
        let version = version(answer.header("Api-Version"));
        Ok(Self { address, version })
    }

    /// Whether it is an ordinary user's, so that root in a container is that user outside. One that does not want to tell is
    /// taken for root's: those that stand before the socket of such an engine allow little.
    pub async fn is_rootless(&self) -> Result<bool, Error> {
        match self.read::<About>("/info").await {
            Ok(about) => Ok(about.is_rootless()),
            Err(Error::Refused { status: 403 | 404, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub async fn labelled(&self, label: &str) -> Result<Vec<Listed>, Error> {
        let filters = json!({ "label": [label] }).to_string();
        self.read(&format!("/containers/json?all=true&filters={}", escaped(&filters))).await
    }

    pub async fn create(&self, name: &str, body: &Value) -> Result<String, Error> {
        let path = format!("/containers/create?name={}", escaped(name));
        let sent = Sent { body: body.to_string().into(), ..self.sent(Method::POST, &path) };
        let created: Created = self.ask(sent, PATIENCE).await?;
        Ok(created.id)
    }

    /// Connects to the streams of a container that has not been started: nothing of its output is missed.
    ///
    /// Input has a connection of its own. Podman ends the one by which it cannot send what the container does not read, and
    /// with it what the container has written and is not sent yet.
    /// Some engines prepare the container for this, and what is wrong with it shows here.
    pub async fn attach(&self, id: &str) -> Result<(FromContainer, ToContainer), Error> {
        let from = self.output(id).await?;
        let (mut again, to) = self.streams(id, "stdin=1").await?;
        // Podman sends the output by this one again, and waits until it is read.
        tokio::spawn(async move { tokio::io::copy(&mut again, &mut tokio::io::sink()).await });
        Ok((from, to))
    }

    /// Connects to what a container writes from now on.
    pub async fn output(&self, id: &str) -> Result<FromContainer, Error> {
        Ok(self.streams(id, "stdout=1&stderr=1").await?.0)
    }

    async fn streams(&self, id: &str, which: &str) -> Result<(FromContainer, ToContainer), Error> {
        let path = format!("/containers/{}/attach?stream=1&{which}", escaped(id));
        let sent = Sent { upgrade: true, ..self.sent(Method::POST, &path) };
        wire::send(&self.address, sent, PATIENCE).await?.streams().await
    }

    pub async fn start(&self, id: &str) -> Result<(), Error> {
        self.tell(Method::POST, &format!("/containers/{}/start", escaped(id)), PATIENCE).await
    }

    pub async fn wait(&self, id: &str) -> Result<i64, Error> {
        let sent = self.sent(Method::POST, &format!("/containers/{}/wait", escaped(id)));
        let waited: Waited = self.ask(sent, FOR_EVER).await?;
        Ok(waited.status_code)
    }

    /// Asks a container to end, and kills it when it has not after `grace`, in whole seconds.
    pub async fn stop(&self, id: &str, grace: Duration) -> Result<(), Error> {
        let path = format!("/containers/{}/stop?t={}", escaped(id), grace.as_secs());
        self.tell(Method::POST, &path, grace.saturating_add(PATIENCE)).await
    }

    /// Removes a container with its nameless volumes, and kills it before if need be. That it is not there any more is no error.
    pub async fn remove(&self, id: &str) -> Result<(), Error> {
        let path = format!("/containers/{}?force=true&v=true", escaped(id));
        match self.tell(Method::DELETE, &path, PATIENCE).await {
            Err(error) if error.is_missing() => Ok(()),
            removed => removed,
        }
    }

    pub async fn inspect(&self, id: &str) -> Result<Inspected, Error> {
        self.read(&format!("/containers/{}/json", escaped(id))).await
    }

    pub async fn image(&self, name: &str) -> Result<Image, Error> {
        self.read(&format!("/images/{}/json", utf8_percent_encode(name, SPECIAL_IN_IMAGES))).await
    }

    pub async fn pull(&self, name: &str, credentials: Option<&str>) -> Result<(), Error> {
        let path = format!("/images/create?fromImage={}", escaped(name));
        let sent = Sent { registry_auth: credentials.map(str::to_owned), ..self.sent(Method::POST, &path) };
        let mut answer = wire::send(&self.address, sent, FOR_EVER).await?;
        let mut line = Vec::new();
        while let Some(piece) = answer.piece().await? {
            for byte in piece {
                if byte == b'\n' {
                    complaint(&line)?;
                    line.clear();
                } else if line.len() < LONGEST_LINE {
                    line.push(byte);
                }
            }
        }
        complaint(&line)
    }

    fn sent(&self, method: Method, path: &str) -> Sent {
        Sent::to(method, &format!("/{}{path}", self.version))
    }

    async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.ask(self.sent(Method::GET, path), PATIENCE).await
    }

    async fn ask<T: DeserializeOwned>(&self, sent: Sent, patience: Duration) -> Result<T, Error> {
        let bytes = wire::send(&self.address, sent, patience).await?.bytes().await?;
        serde_json::from_slice(&bytes).map_err(|error| Error::Odd(error.to_string()))
    }

    async fn tell(&self, method: Method, path: &str, patience: Duration) -> Result<(), Error> {
        let answer = wire::send(&self.address, self.sent(method, path), patience).await?;
        answer.bytes().await.map(drop)
    }
}

/// The version that both sides speak, as paths have it.
fn version(of_engine: Option<&str>) -> String {
    let numbers = |text: &str| -> Option<(u32, u32)> {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let (major, minor) = of_engine.and_then(numbers).unwrap_or(NEWEST).min(NEWEST);
    format!("v{major}.{minor}")
}

const SPECIAL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The same for the name of an image.
const SPECIAL_IN_IMAGES: &AsciiSet = &SPECIAL.remove(b'/').remove(b':').remove(b'@');

fn escaped(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, SPECIAL)
}

fn complaint(line: &[u8]) -> Result<(), Error> {
    let said: Value = serde_json::from_slice(line).unwrap_or_default();
    let message = said["errorDetail"]["message"].as_str().or(said["error"].as_str());
    match message.filter(|message| !message.is_empty()) {
        Some(message) => Err(Error::Refused {
            status: StatusCode::INTERNAL_SERVER_ERROR.as_u16(),
            message: message.to_owned(),
        }),
        None => Ok(()),
    }
}

fn refusal(status: StatusCode, body: &[u8]) -> Error {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = String::from_utf8_lossy(body);
    let message = match said["message"].as_str().unwrap_or(text.trim()) {
        "" => format!("the container engine answers with {status}"),
        message => message.to_owned(),
    };
    Error::Refused { status: status.as_u16(), message }
}

/// Whether an answer is what was asked for. That something is so already is, too.
fn is_fine(answer: &Answer) -> bool {
    let status = answer.status();
    status.is_success() || status == StatusCode::NOT_MODIFIED || status == StatusCode::SWITCHING_PROTOCOLS
}

#[cfg(test)]
mod tests;
