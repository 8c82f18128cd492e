//! The secure parameters of a task, which are decrypted right before its plugin is started; and bytes that may have
//! secrets: of these nothing is left in memory when they are not needed any more.

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::ops::{Deref, DerefMut};

use disbatch_core::config::Config;
use disbatch_core::model::Task;
use disbatch_core::secrets::{FIELD, Keys, Sealed, SecureParams};
use serde::Serialize;
use zeroize::{Zeroize, Zeroizing};

use crate::plugin::Worker;

/// The field in which an adapter is told what it has to know besides the task.
const WORKER: &str = "worker";

/// Those of a task; none if it has none. Keys are read each time, so that a runner that has been there for long knows new
/// ones too.
pub fn of(task: &Task, config: &Config) -> Result<Option<SecureParams>, String> {
    let Some(sealed) = Sealed::of(task).map_err(|error| why(&error))? else { return Ok(None) };
    let keys = Keys::load(config);
    let keys = keys
        .map_err(|error| why(&format!("they were encrypted with the key {}, and {error}", sealed.key())))?;
    keys.open(task.queue, &sealed).map(Some).map_err(|error| why(&error))
}

/// Appends a JSON object, with secure parameters in it, and with what an adapter is told, if there are any.
pub fn append_within(
    line: &mut Wiped,
    object: &str,
    params: Option<&SecureParams>,
    worker: Option<&Worker<'_>>,
) -> io::Result<()> {
    let fields = object.strip_suffix('}').ok_or_else(|| io::Error::other("a task is an object"))?;
    // And for the end of the line.
    line.reserve(object.len() + 1);
    line.extend(fields.as_bytes());
    if let Some(params) = params {
        append(line, FIELD, params.value())?;
    }
    if let Some(worker) = worker {
        append(line, WORKER, worker)?;
    }
    line.extend(b"}");
    Ok(())
}

/// Appends one more field of an object.
fn append(line: &mut Wiped, name: &str, value: &impl Serialize) -> io::Result<()> {
    let comma = if line.ends_with(b"{") { "" } else { "," };
    write!(line, "{comma}\"{name}\":")?;
    Ok(serde_json::to_writer(line, value)?)
}

fn why(reason: &dyn Display) -> String {
    format!("cannot decrypt the secure parameters of the task: {reason}")
}

/// Bytes that are overwritten when they are left out or dropped, and where they have been when they move to where there is
/// more room.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Wiped(Zeroizing<Vec<u8>>);

impl Wiped {
    pub fn extend(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// Has room for so many more.
    pub fn reserve(&mut self, more: usize) {
        let needed = self.0.len().saturating_add(more);
        if needed > self.0.capacity() {
            // A vector that grows by itself leaves a copy behind.
            let mut larger: Vec<u8> = Vec::with_capacity(needed.max(self.0.capacity().saturating_mul(2)));
            larger.extend_from_slice(&self.0);
            self.0 = larger.into();
        }
    }

    /// Leaves out so many at the beginning, or all if there are fewer.
    pub fn leave_out(&mut self, first: usize) {
        let first = first.min(self.0.len());
        let left = self.0.len() - first;
        self.0.copy_within(first.., 0);
        self.0[left..].zeroize();
        self.0.truncate(left);
    }
}

impl Deref for Wiped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Wiped {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl From<Vec<u8>> for Wiped {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl io::Write for Wiped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Wiped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wiped({} bytes, not shown)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bson::oid::ObjectId;
    use bson::{Bson, doc};
    use disbatch_core::model::QueueId;
    use disbatch_core::secrets::new_key;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn task(queue: QueueId, field: Bson) -> Task {
        let document = doc! { "_id": ObjectId::new(), "queue": queue, "status": 0, "secure_params": field };
        bson::deserialize_from_document(document).unwrap()
    }

    fn config(key_file: &Path) -> Config {
        let text = json!({ "mongohost": "h", "database": "d", "secrets": { "key_file": key_file } });
        Config::parse(&text.to_string(), Path::new("/etc/disbatch/config.json")).unwrap()
    }

    #[test]
    fn they_are_put_into_an_object() {
        let secret = json!({ "password": "correct \"horse\"\n", "list": [1, null, { "é": "\u{1}" }] });
        let params = SecureParams::new(secret.as_object().unwrap().clone()).unwrap();
        for object in [json!({}), json!({ "a": { "b": "}" } }), json!({ "_id": { "$oid": "x" }, "z": "{" })] {
            let mut line = Wiped::default();
            append_within(&mut line, &object.to_string(), Some(&params), None).unwrap();
            let read: Value = serde_json::from_slice(&line).unwrap();
            let mut expected = object.clone();
            expected["secure_params"] = secret.clone();
            assert_eq!(read, expected);
            let mut without = Wiped::default();
            append_within(&mut without, &object.to_string(), None, None).unwrap();
            assert_eq!(&*without, object.to_string().as_bytes());
        }
        assert!(append_within(&mut Wiped::default(), "null", Some(&params), None).is_err());
    }

    #[test]
    fn keys_are_looked_for_when_they_are_needed() {
        let (folder, queue) = (tempfile::tempdir().unwrap(), QueueId(ObjectId::new()));
        let path = folder.path().join("secrets.key");
        let config = config(&path);
        assert_eq!(of(&task(queue, Bson::Null), &config), Ok(None), "no key is needed");

        let key = new_key().unwrap();
        let keys = Keys::of(Some(&key), None).unwrap();
        let secret = json!({ "password": "correct horse" });
        let params = SecureParams::new(secret.as_object().unwrap().clone()).unwrap();
        let sealed = keys.seal(queue, &params).unwrap();
        let task = task(queue, sealed.field());
        let missing = of(&task, &config).unwrap_err();
        let expected = format!("they were encrypted with the key {}, and cannot read", sealed.key());
        assert!(missing.contains(&expected) && missing.contains("No such file"), "{missing}");

        let write = |text: &str| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        let other = new_key().unwrap();
        write(&other);
        let unknown = of(&task, &config).unwrap_err();
        assert!(unknown.contains(sealed.key().as_str()) && !unknown.contains("horse"), "{unknown}");
        write(&format!("{}\n{}\n", *other, *key));
        assert_eq!(of(&task, &config), Ok(Some(params)));
    }

    #[test]
    fn what_is_left_out_is_gone_and_nothing_is_shown() {
        let mut bytes = Wiped::from(b"correct horse battery".to_vec());
        let room = bytes.0.capacity();
        bytes.leave_out(8);
        assert_eq!(&*bytes, b"horse battery");
        bytes.leave_out(99);
        assert!(bytes.is_empty() && bytes.0.capacity() == room, "its room is kept, to be overwritten");
        assert_eq!(format!("{:?}", Wiped::from(b"horse".to_vec())), "Wiped(5 bytes, not shown)");
    }

    #[test]
    fn it_moves_only_to_where_there_is_room_for_much_more() {
        let mut bytes = Wiped::default();
        for _ in 0..1_000 {
            let before = bytes.0.capacity();
            bytes.extend(b"0123456789abc");
            let after = bytes.0.capacity();
            assert!(after == before || after >= 2 * before, "{before} {after}");
        }
    }

    proptest! {
        #[test]
        fn it_has_what_a_vector_has(steps in prop::collection::vec((any::<Vec<u8>>(), 0usize..40), 0..20)) {
            let (mut bytes, mut expected) = (Wiped::default(), Vec::new());
            for (more, first) in steps {
                bytes.extend(&more);
                expected.extend_from_slice(&more);
                bytes.leave_out(first);
                expected.drain(..first.min(expected.len()));
                prop_assert_eq!(&*bytes, expected.as_slice());
            }
        }
    }
}
