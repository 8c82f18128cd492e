//! Secure parameters: what a task needs and nobody but its plugin may see, a password for instance.
//!
//! They are encrypted by whoever takes the submission, before they reach the database, and decrypted by the task's
//! runner right before the plugin starts. In between they are ciphertext: in the database, in its backups, and in
//! whatever reads tasks. [`concealed`] leaves not even that to those who look at tasks.
//!
//! The cipher is XChaCha20-Poly1305 with a random nonce. The ciphertext is bound to the task's queue: who may read the
//! database and submit tasks to another queue cannot have it decrypted there.
//!
//! Keys come from a file or from the environment, see [`Keys::load`]. The first one encrypts, all of them decrypt: a new
//! one is put before the others, and these stay until no task needs them any more.
//!
//! Keys, and parameters that are not encrypted, are overwritten in memory as soon as they are not needed any more. What
//! others have copied meanwhile is not, a parser of JSON for instance.

mod keys;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use disbatch_documents::{AWAITING, PluginName, QueueId, Task};
use serde_json::Value;

use crate::config::Config;
use keys::{NONCE_LENGTH, OF_OTHERS};

pub use disbatch_values::secure::SecureParams;
pub use keys::{KeyId, Keys, KeysError, VARIABLE, new_key};

/// The field of a task that has them, encrypted. The plugin finds them under the same name.
pub const FIELD: &str = "secure_params";

/// What tells of a task that it has some, in the place of that field.
pub const SHOWN: &str = "has_secure_params";

/// The task as everybody may see it: that it has secure parameters, and nothing of these, nor of links to answer it.
pub fn concealed(mut task: Document) -> Document {
    if task.remove(FIELD).is_some_and(|sealed| sealed != Bson::Null) {
        task.insert(SHOWN, true);
    }
    // What is stored of links by which a question may be answered is for nobody either.
    if let Ok(awaiting) = task.get_document_mut(AWAITING) {
        awaiting.remove("links");
    }
    task
}

/// Whether the path of a task's field leads to what is concealed.
pub fn is_concealed(path: &str) -> bool {
    path.split('.').next() == Some(FIELD)
}

/// They have so many bytes as JSON at most.
pub const LONGEST: usize = 64 * 1024;

/// What they are bound to begins so, before the id of the queue. Another release that binds them in another way
/// has another beginning.
const BOUND_TO: &[u8] = b"disbatch secure_params 1\0";

/// Secure parameters as a task has them: encrypted, and the name of the key.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    key: KeyId,
    /// The nonce, and after it what was written with it.
    data: Vec<u8>,
}

/// Parameters were not encrypted. It says nothing of them.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("there is no key for secure parameters")]
    NoKey,
    #[error("secure parameters have at most {longest} bytes as JSON, these have {0}", longest = LONGEST)]
    TooLong(usize),
    #[error("the system has no random numbers: {0}")]
    Random(getrandom::Error),
}

/// Parameters were not decrypted. It names the key, and says nothing of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The field of the task is not what [`Keys::seal`] made.
    #[error("they are not stored in a way that this release knows")]
    Unknown,
    #[error("they were encrypted with the key {0}, which is not among the keys of this host")]
    NoKey(KeyId),
    #[error(
        "the key {0} does not decrypt them: they have been changed, or belong to a task of another queue"
    )]
    Refused(KeyId),
}

impl Sealed {
    /// Those of a task. `None`: it has none.
    pub fn of(task: &Task) -> Result<Option<Self>, OpenError> {
        match task.rest.get(FIELD) {
            None | Some(Bson::Null) => Ok(None),
            Some(Bson::Document(field)) => Self::stored(field).map(Some),
            Some(_) => Err(OpenError::Unknown),
        }
    }

    pub fn stored(field: &Document) -> Result<Self, OpenError> {
        match (field.get("key"), field.get("data")) {
            (Some(Bson::String(key)), Some(Bson::Binary(data))) => {
                Ok(Self { key: KeyId::stored(key), data: data.bytes.clone() })
            }
            _ => Err(OpenError::Unknown), // Nothing else is ever stored.
        }
    }

    pub fn key(&self) -> &KeyId {
        &self.key
    }

    /// As tasks have it in [`FIELD`].
    pub fn field(&self) -> Bson {
        let data = Binary { subtype: BinarySubtype::Generic, bytes: self.data.clone() };
        Bson::Document(doc! { "key": self.key.as_str(), "data": data })
    }
}

disbatch_values::not_shown!(Sealed, this => "Sealed({} bytes with the key {})", this.data.len(), this.key);

impl Keys {
    /// Encrypts the parameters of tasks of `queue` with the first key.
    pub fn seal(&self, queue: QueueId, params: &SecureParams) -> Result<Sealed, SealError> {
        let key = self.first().ok_or(SealError::NoKey)?;
        let json = params.json();
        if json.len() > LONGEST {
            return Err(SealError::TooLong(json.len()));
        }
        let mut nonce = [0; NONCE_LENGTH];
        getrandom::fill(&mut nonce).map_err(SealError::Random)?;
        let written = key.encrypt(nonce, &json, &bound_to(queue));
        let written = written.ok_or(SealError::TooLong(json.len()))?;
        Ok(Sealed { key: key.id().clone(), data: [nonce.as_slice(), &written].concat() })
    }

    /// Decrypts the parameters of a task of `queue`, with whichever of the keys it was.
    pub fn open(&self, queue: QueueId, sealed: &Sealed) -> Result<SecureParams, OpenError> {
        let key = self.named(&sealed.key).ok_or_else(|| OpenError::NoKey(sealed.key.clone()))?;
        let (nonce, written) = sealed.data.split_first_chunk().ok_or(OpenError::Unknown)?;
        let refused = || OpenError::Refused(sealed.key.clone());
        let json = key.decrypt(*nonce, written, &bound_to(queue)).ok_or_else(refused)?;
        match serde_json::from_slice(&json) {
            Ok(Value::Object(object)) => SecureParams::new(object).ok_or(OpenError::Unknown),
            // Whoever has the key has written it.
            Ok(_) | Err(_) => Err(OpenError::Unknown),
        }
    }
}

fn bound_to(queue: QueueId) -> Vec<u8> {
    [BOUND_TO, &queue.0.bytes()].concat()
}

/// A secret has so many bytes at most: the system takes no variable of more than 128 KiB.
const LONGEST_NAMED: u64 = 64 * 1024;

/// The named secrets that a plugin gets: files on a node that its plugins find in variables. What is in which variable is configured.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NamedSecrets(Vec<Secret>);

#[derive(Clone, PartialEq, Eq)]
struct Secret {
    name: String,
    variable: String,
    value: String,
}

impl NamedSecrets {
    /// Those of `plugin`, as their files are now.
    ///
    /// # Errors
    /// A file cannot be read, is open to everybody, or has what no variable can have. Says which, and shows nothing of it.
    pub fn load(config: &Config, plugin: &PluginName) -> Result<Self, String> {
        let folder = config.secrets_folder().unwrap_or_default();
        let read = |secret: &crate::config::NamedSecret| match read(&folder.join(&secret.name)) {
            Ok(value) => Ok(Secret { name: secret.name.clone(), variable: secret.variable.clone(), value }),
            Err(error) => Err(format!("cannot read the secret {}: {error}", secret.name)),
        };
        config.secret_environment.of(plugin).map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Each variable and what it has. That is not to be written anywhere but to the plugin.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|secret| (secret.variable.as_str(), secret.value.as_str()))
    }

    /// Each name and what is in its file. That is not to be written anywhere but to the plugin.
    pub fn by_name(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|secret| (secret.name.as_str(), secret.value.as_str()))
    }
}

disbatch_values::not_shown!(NamedSecrets, this => "NamedSecrets({}, not shown)", this.0.len());

/// All of a file, without the line break at its end.
fn read(path: &Path) -> io::Result<String> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode() & 0o7777;
    if mode & OF_OTHERS != 0 {
        let path = path.display();
        return Err(invalid(format!(
            "{path} is open to others than its owner and group (mode {mode:04o}): chmod o-rwx {path}"
        )));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST_NAMED + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST_NAMED {
        return Err(invalid(format!("it has more than {LONGEST_NAMED} bytes")));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| invalid("it is no text".to_owned()))?;
    if text.contains('\0') {
        return Err(invalid("it has a byte that no variable can have".to_owned()));
    }
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use bson::doc;
    use bson::oid::ObjectId;
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn of_a_task_only_that_it_has_some_is_left() {
        let sealed = doc! { "key": "0011223344556677", "data": "x" };
        let task = doc! { "_id": 1, "secure_params": sealed, "params": { "secure_params": 1 } };
        let expected = doc! { "_id": 1, "params": { "secure_params": 1 }, "has_secure_params": true };
        assert_eq!(concealed(task), expected);
        let awaiting = doc! { "awaiting": { "title": "t", "links": [{ "token": "x" }] } };
        assert_eq!(concealed(awaiting), doc! { "awaiting": { "title": "t" } });
        for without in [doc! { "_id": 1 }, doc! { "_id": 1, "secure_params": null }] {
            assert_eq!(concealed(without), doc! { "_id": 1 });
        }
        assert!(is_concealed("secure_params") && is_concealed("secure_params.data.x"));
        for other in ["", "params.secure_params", "secure_params2", "has_secure_params", "secure"] {
            assert!(!is_concealed(other), "{other}");
        }
    }

    const SECRET: &str = "correct horse battery staple";

    fn queue() -> QueueId {
        QueueId(ObjectId::new())
    }

    fn params() -> SecureParams {
        let object =
            json!({ "password": SECRET, "list": [1, 2.5, null], "odd": { "$oid": "x", "a.b": "é" } });
        SecureParams::new(object.as_object().unwrap().clone()).unwrap()
    }

    fn keys(texts: &[&str]) -> Keys {
        Keys::of(Some(&texts.join(" ")), None).unwrap()
    }

    fn task(queue: QueueId, field: Bson) -> Task {
        let document = doc! { "_id": ObjectId::new(), "queue": queue, "status": 0, "secure_params": field };
        bson::deserialize_from_document(document).unwrap()
    }

    #[test]
    fn what_is_sealed_is_opened_again_from_a_task() {
        let (key, queue) = (new_key().unwrap(), queue());
        let keys = keys(&[&key]);
        let sealed = keys.seal(queue, &params()).unwrap();
        let stored = Sealed::of(&task(queue, sealed.field())).unwrap().unwrap();
        assert_eq!(stored, sealed);
        assert_eq!(keys.open(queue, &stored).unwrap(), params());
        let again = keys.seal(queue, &params()).unwrap();
        assert_ne!(again.data, sealed.data, "each has a nonce of its own");
        let none = Task { rest: Document::new(), ..task(queue, Bson::Null) };
        for without in [none, task(queue, Bson::Null)] {
            assert_eq!(Sealed::of(&without), Ok(None));
        }
    }

    #[test]
    fn nothing_that_is_stored_or_shown_tells_the_secret() {
        let key = new_key().unwrap();
        let sealed = keys(&[&key]).seal(queue(), &params()).unwrap();
        assert!(
            !sealed.data.windows(8).any(|part| SECRET.as_bytes().windows(8).any(|secret| secret == part))
        );
        let shown = format!("{sealed:?}");
        let length = sealed.data.len();
        assert_eq!(shown, format!("Sealed({length} bytes with the key {})", sealed.key));
        assert!(!shown.contains(key.as_str()) && !sealed.field().to_string().contains(SECRET));
    }

    #[test]
    fn after_a_rotation_the_new_key_writes_and_the_old_one_still_reads() {
        let (old, new, queue) = (new_key().unwrap(), new_key().unwrap(), queue());
        let before = keys(&[&old]).seal(queue, &params()).unwrap();
        let rotated = keys(&[&new, &old]);
        let after = rotated.seal(queue, &params()).unwrap();
        assert_ne!(before.key, after.key);
        for sealed in [&before, &after] {
            assert_eq!(rotated.open(queue, sealed).unwrap(), params());
        }
        let without = keys(&[&new]).open(queue, &before).unwrap_err();
        assert_eq!(without, OpenError::NoKey(before.key.clone()));
        assert!(without.to_string().contains(before.key.as_str()), "{without}");
    }

    #[test]
    fn what_was_changed_or_is_of_another_queue_is_refused() {
        let (key, of) = (new_key().unwrap(), queue());
        let keys = keys(&[&key]);
        let sealed = keys.seal(of, &params()).unwrap();
        let refused = OpenError::Refused(sealed.key.clone());
        assert_eq!(keys.open(queue(), &sealed).unwrap_err(), refused);
        for at in [0, NONCE_LENGTH - 1, NONCE_LENGTH, sealed.data.len() - 1] {
            let mut changed = sealed.clone();
            changed.data[at] ^= 1;
            let error = keys.open(of, &changed).unwrap_err();
            assert!(error == refused && !error.to_string().contains(SECRET), "{at}: {error}");
        }
        let mut short = sealed.clone();
        short.data.truncate(NONCE_LENGTH + 3);
        assert_eq!(keys.open(of, &short).unwrap_err(), refused);
        short.data.truncate(NONCE_LENGTH - 1);
        assert_eq!(keys.open(of, &short).unwrap_err(), OpenError::Unknown);
    }

    #[test]
    fn a_field_that_is_something_else_is_said_to_be_so() {
        let binary = Binary { subtype: BinarySubtype::Generic, bytes: vec![1] };
        for odd in [
            Bson::from("x"),
            Bson::from(doc! {}),
            Bson::from(doc! { "key": "k" }),
            Bson::from(doc! { "key": 1, "data": &binary }),
            Bson::from(doc! { "key": "k", "data": "x" }),
        ] {
            assert_eq!(Sealed::of(&task(queue(), odd.clone())), Err(OpenError::Unknown), "{odd}");
        }
    }

    #[test]
    fn there_must_be_a_key_and_not_too_much() {
        assert!(matches!(keys(&[]).seal(queue(), &params()), Err(SealError::NoKey)));
        let of_length = |length: usize| {
            let object: Map<_, _> = [("a".to_owned(), json!("x".repeat(length - 8)))].into_iter().collect();
            SecureParams::new(object).unwrap()
        };
        let key = new_key().unwrap();
        let keys = keys(&[&key]);
        assert!(keys.seal(queue(), &of_length(LONGEST)).is_ok());
        let error = keys.seal(queue(), &of_length(LONGEST + 1)).unwrap_err();
        assert_eq!(error.to_string(), "secure parameters have at most 65536 bytes as JSON, these have 65537");
    }

    #[test]
    fn fingerprints_are_those_of_each_key() {
        let (one, other, of) = (new_key().unwrap(), new_key().unwrap(), queue());
        let both = keys(&[&one, &other]).fingerprints(of, &params());
        assert_eq!(
            both,
            [keys(&[&one]), keys(&[&other])].map(|keys| keys.fingerprints(of, &params())).concat()
        );
        assert_ne!(both[0], both[1]);
        assert_ne!(both, keys(&[&one, &other]).fingerprints(queue(), &params()));
        assert_eq!(keys(&[]).fingerprints(of, &params()), Vec::<String>::new());
    }

    #[test]
    fn secrets_are_read_when_they_are_needed_and_shown_in_no_message() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("secrets/yl.env")).unwrap();
        let text = r#"{"mongohost":"h","database":"d","secrets_dir":"secrets",
            "secret_environment":{"yl.env/cloudant":"cloudant"}}"#;
        let config = Config::parse(text, &folder.path().join("config.json")).unwrap();
        let plugin = "Any".parse().unwrap();
        let load = || NamedSecrets::load(&config, &plugin);
        let path = folder.path().join("secrets/yl.env/cloudant");
        let write = |bytes: &[u8], mode| {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        let missing = load().unwrap_err();
        assert!(missing.starts_with("cannot read the secret yl.env/cloudant: No such file"), "{missing}");
        for (bytes, expected) in [("correct horse\n", "correct horse"), ("two\n\n", "two\n"), ("", "")] {
            write(bytes.as_bytes(), 0o600);
            let secrets = load().unwrap();
            assert_eq!(secrets.variables().collect::<Vec<_>>(), [("cloudant", expected)]);
            assert_eq!(secrets.by_name().collect::<Vec<_>>(), [("yl.env/cloudant", expected)]);
            assert_eq!(format!("{secrets:?}"), "NamedSecrets(1, not shown)");
        }
        let long = vec![b'x'; 65_537];
        for (bytes, why) in
            [(&b"\xffhorse"[..], "no text"), (&b"horse\0"[..], "no variable"), (&long[..], "65536 bytes")]
        {
            write(bytes, 0o640);
            let error = load().unwrap_err();
            assert!(error.contains(why) && !error.contains("horse") && error.len() < 200, "{error}");
        }
        write(b"horse", 0o644);
        let open = load().unwrap_err();
        assert!(open.contains("(mode 0644): chmod o-rwx ") && !open.contains("horse"), "{open}");
    }
}
