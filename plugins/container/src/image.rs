//! Images: what they are called, and having them there.

use serde_json::json;

use crate::api::{Engine, Image};
use crate::channel::Channel;
use crate::credentials;
use crate::input::ContainerInput;
use crate::request::Create;
use crate::settings::Pull;

/// Docker's own registry, which is meant where a name has none.
pub const DOCKER_HUB: &str = "docker.io";

/// The longest name of an image, with registry and digest.
const LONGEST: usize = 1024;

/// The name of an image, if it can be one.
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
pub fn registry(name: &str) -> &str {
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

/// Makes sure that the image is there, as the manifest wants it.
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
    let credentials = credentials::header(told, name)?;
    channel.say(&json!({ "progress": { "message": format!("fetching the image {name}") } })).await;
    let pulled = engine.pull(&with_tag(name), credentials.as_ref().map(|header| header.as_str())).await;
    pulled.map_err(|error| format!("cannot fetch the image {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
