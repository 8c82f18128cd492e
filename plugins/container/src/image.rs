//! Images: what they are called, having them there, and with what they are fetched from a registry that asks who one is.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use disbatch_adapter::sections::Pull;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::api::{Engine, Image};
use crate::channel::Channel;
use crate::input::ContainerInput;
use crate::request::Create;

/// Docker's own registry, which is meant where a name has none.
const DOCKER_HUB: &str = "docker.io";

/// The longest name of an image, with registry and digest.
const LONGEST: usize = 1024;

pub fn checked(name: &str) -> Result<&str, String> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/@+".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && name.len() <= LONGEST && name.bytes().all(is_legal) {
        Ok(name)
    } else {
        let shown: String = name.chars().take(100).collect();
        Err(format!("{shown:?} is not the name of an image"))
    }
}

/// The registry of an image: what comes before the first slash, if it looks like a host.
fn registry(name: &str) -> &str {
    match name.split_once('/') {
        Some((host, _)) if host == "localhost" || host.contains(['.', ':']) => host,
        _ => DOCKER_HUB,
    }
}

/// The name with its tag or digest: without one, an engine would fetch all that the registry has.
pub fn with_tag(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.contains([':', '@']) { name.to_owned() } else { format!("{name}:latest") }
}

/// The digest of an image: that by which its registry knows it, or else its own.
pub fn digest(name: &str, image: &Image) -> Option<String> {
    let repository = |name: &str| {
        let name = name.split_once('@').map_or(name, |(name, _)| name);
        let folders = name.rfind('/').map_or(0, |slash| slash + 1);
        let end = name[folders..].find(':').map_or(name.len(), |colon| folders + colon);
        name[..end].to_owned()
    };
    let wanted = repository(name);
    let is_wanted = |digest: &&String| {
        let found = repository(digest);
        found == wanted || found.ends_with(&format!("/{wanted}"))
    };
    let of_registry = image.repo_digests.iter().find(is_wanted).or(image.repo_digests.first());
    let of_registry =
        of_registry.and_then(|digest| digest.split_once('@')).map(|(_, digest)| digest.to_owned());
    of_registry.or_else(|| image.id.clone())
}

pub async fn ensure(
    engine: &Engine,
    told: &ContainerInput,
    create: &Create,
    channel: &mut Channel,
) -> Result<(), String> {
    let pull = told.worker.settings.pull;
    let name = create.image.as_str();
    if pull != Pull::Always {
        match engine.image(name).await {
            Ok(_) => return Ok(()),
            Err(error) if !error.is_missing() => return Err(error.to_string()),
            Err(_) if pull == Pull::Never => {
                return Err(format!(
                    "the image {name} is not on this host, and the plugin does not have it fetched"
                ));
            }
            Err(_) => {}
        }
    }
    let credentials = registry_auth(told, name)?;
    channel.say(&json!({ "progress": { "message": format!("fetching the image {name}") } })).await;
    let pulled = engine.pull(&with_tag(name), credentials.as_ref().map(|header| header.as_str())).await;
    pulled.map_err(|error| format!("cannot fetch the image {name}: {error}"))
}

const ALSO_DOCKER_HUB: [&str; 3] = ["index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"];

/// What Docker's interface takes as `X-Registry-Auth` when this image is fetched. `None`: nothing.
///
/// What names no registry is for that of the manifest's image alone. An image that a task brings may be anybody's.
/// An error shows nothing of the secret.
fn registry_auth(told: &ContainerInput, image: &str) -> Result<Option<Zeroizing<String>>, String> {
    let settings = &told.worker.settings;
    let Some(name) = &settings.registry_secret else { return Ok(None) };
    let of = |what: &str| format!("container.registry_secret: {what}");
    let secret = told.worker.secrets.get(name);
    let secret = secret.ok_or_else(|| of(&format!("the plugin has no secret '{name}' here")))?.trim();
    let wanted = registry(image);
    let is_own = settings.own_image().is_some_and(|own| registry(own) == wanted);
    let for_own = |account: Account| {
        if is_own { Ok(Some(account)) } else { Err(of(&format!("it is not for the registry {wanted}"))) }
    };
    let wrong = || of("expected user:password, or what Docker keeps in config.json");
    let account = if secret.starts_with('{') {
        let object: Map<String, Value> = serde_json::from_str(secret).map_err(|_| wrong())?;
        match object.get("auths") {
            Some(Value::Object(auths)) => of_registry(auths, wanted).ok_or_else(wrong)?,
            Some(_) => return Err(wrong()),
            None => for_own(Account::parse(&object).ok_or_else(wrong)?)?,
        }
    } else {
        for_own(Account::of_text(secret).ok_or_else(wrong)?)?
    };
    Ok(account.map(|account| account.header(wanted)))
}

/// The account for a registry, if there is one. `None`: it cannot be understood.
fn of_registry(auths: &Map<String, Value>, wanted: &str) -> Option<Option<Account>> {
    match auths.iter().find(|(name, _)| host(name) == wanted) {
        Some((_, entry)) => Account::parse(entry.as_object()?).map(Some),
        None => Some(None),
    }
}

/// The registry of an entry, which may be written as an address.
fn host(name: &str) -> &str {
    let name = name.split_once("://").map_or(name, |(_, name)| name);
    let host = name.split('/').next().unwrap_or(name);
    if ALSO_DOCKER_HUB.contains(&host) { DOCKER_HUB } else { host }
}

enum Account {
    Password { user: String, password: Zeroizing<String> },
    Token(Zeroizing<String>),
}

impl Account {
    fn of_text(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':').filter(|(user, _)| !user.is_empty())?;
        Some(Self::Password { user: user.to_owned(), password: Zeroizing::new(password.to_owned()) })
    }

    fn parse(entry: &Map<String, Value>) -> Option<Self> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(token) = text("identitytoken") {
            return Some(Self::Token(Zeroizing::new(token.to_owned())));
        }
        if let (Some(user), Some(password)) = (text("username"), text("password")) {
            return Some(Self::Password {
                user: user.to_owned(),
                password: Zeroizing::new(password.to_owned()),
            });
        }
        let both = Zeroizing::new(String::from_utf8(STANDARD.decode(text("auth")?).ok()?).ok()?);
        Self::of_text(&both)
    }

    fn header(&self, registry: &str) -> Zeroizing<String> {
        let account = match self {
            Self::Password { user, password } => {
                json!({ "username": user, "password": password.as_str(), "serveraddress": registry })
            }
            Self::Token(token) => json!({ "identitytoken": token.as_str(), "serveraddress": registry }),
        };
        Zeroizing::new(URL_SAFE.encode(Zeroizing::new(account.to_string()).as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::tests::told;

    #[test]
    fn names_have_registries_and_tags() {
        for (name, of, tagged) in [
            ("busybox", DOCKER_HUB, "busybox:latest"),
            ("library/busybox:1", DOCKER_HUB, "library/busybox:1"),
            ("quay.io/a/b", "quay.io", "quay.io/a/b:latest"),
            ("localhost/a", "localhost", "localhost/a:latest"),
            ("host:5000/a", "host:5000", "host:5000/a:latest"),
            ("host:5000/a:2", "host:5000", "host:5000/a:2"),
            ("a@sha256:00", DOCKER_HUB, "a@sha256:00"),
        ] {
            assert_eq!((checked(name), registry(name), with_tag(name)), (Ok(name), of, tagged.to_owned()));
        }
        let long = "a".repeat(LONGEST + 1);
        for name in ["", "-x", "/x", "a b", "a\n", "a?b", "a%2f", "\u{e9}", long.as_str()] {
            assert!(checked(name).unwrap_err().contains("is not the name of an image"), "{name}");
        }
    }

    #[test]
    fn a_digest_is_that_of_the_image_that_was_named() {
        let image = |digests: &[&str]| Image {
            id: Some("sha256:id".to_owned()),
            repo_digests: digests.iter().map(|digest| (*digest).to_owned()).collect(),
        };
        let two = image(&["quay.io/x/other@sha256:1", "docker.io/library/busybox@sha256:2"]);
        for (name, expected) in [
            ("busybox", "sha256:2"),
            ("busybox:1.37", "sha256:2"),
            ("docker.io/library/busybox@sha256:2", "sha256:2"),
            ("quay.io/x/other:5", "sha256:1"),
            ("host:5000/z", "sha256:1"),
        ] {
            assert_eq!(digest(name, &two).as_deref(), Some(expected), "{name}");
        }
        assert_eq!(digest("busybox", &image(&[])).as_deref(), Some("sha256:id"));
    }

    /// What is sent for `image`, where the manifest names `own`.
    fn sent(secret: &str, own: &str, image: &str) -> Result<Value, String> {
        let mut told = told(&json!({ "image": own, "registry_secret": "registry" }), &json!({}));
        told.worker.secrets.insert("registry".to_owned(), secret.to_owned());
        let header = registry_auth(&told, image)?;
        Ok(header.map_or(Value::Null, |header| {
            serde_json::from_slice(&URL_SAFE.decode(header.as_bytes()).unwrap()).unwrap()
        }))
    }

    #[test]
    fn a_password_goes_to_the_registry_of_the_manifest_only() {
        let expected = json!({ "username": "ann", "password": "a:?>~b", "serveraddress": "quay.io" });
        assert_eq!(sent("ann:a:?>~b\n", "quay.io/a", "quay.io/b:1"), Ok(expected));
        for image in ["evil.example/a", "busybox", "quay.io.evil.example/a"] {
            let why = sent("ann:horse", "quay.io/a", image).unwrap_err();
            assert!(why.starts_with("container.registry_secret: it is not for the registry "), "{why}");
        }
        assert!(sent("ann:horse", "", "quay.io/a").is_err(), "the manifest names none");
    }

    #[test]
    fn what_docker_keeps_names_its_registries() {
        let auth = STANDARD.encode("ann:horse");
        let file = json!({ "auths": {
            "https://index.docker.io/v1/": { "auth": auth },
            "quay.io": { "username": "bob", "password": "p" },
            "host:5000": { "identitytoken": "t" },
            "odd.example": { "auth": "?" },
        } })
        .to_string();
        let user = |image: &str| sent(&file, "busybox", image);
        let expected = json!({ "username": "ann", "password": "horse", "serveraddress": "docker.io" });
        assert_eq!(user("library/busybox"), Ok(expected));
        assert_eq!(user("quay.io/a").unwrap()["username"], "bob");
        assert_eq!(
            user("host:5000/a").unwrap(),
            json!({ "identitytoken": "t", "serveraddress": "host:5000" })
        );
        assert_eq!(user("ghcr.io/a"), Ok(Value::Null), "anybody may fetch from there");
        assert!(user("odd.example/a").is_err());
        let one = json!({ "auth": auth }).to_string();
        assert_eq!(sent(&one, "quay.io/a", "quay.io/a").unwrap()["username"], "ann");
        assert!(sent(&one, "quay.io/a", "busybox").is_err());
    }

    #[test]
    fn what_cannot_be_understood_is_said_and_not_shown() {
        for secret in ["horse", ":horse", "{horse", r#"{"auths":"horse"}"#, r#"{"auth":"horse!"}"#] {
            let why = sent(secret, "quay.io/a", "quay.io/a").unwrap_err();
            assert!(why.contains("expected user:password") && !why.contains("horse"), "{why}");
        }
        let mut told = told(&json!({ "image": "i", "registry_secret": "registry" }), &json!({}));
        let why = registry_auth(&told, "i").unwrap_err();
        assert_eq!(why, "container.registry_secret: the plugin has no secret 'registry' here");
        told.worker.settings.registry_secret = None;
        assert!(registry_auth(&told, "i").unwrap().is_none());
    }
}
