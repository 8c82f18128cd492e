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

mod key;
mod keys;
mod named;
mod sealed;

use bson::{Bson, Document};
use disbatch_documents::AWAITING;

pub use disbatch_values::secure::SecureParams;
pub use key::{KeyId, new_key};
pub use keys::{Keys, KeysError, VARIABLE};
pub use named::NamedSecrets;
pub use sealed::{LONGEST, OpenError, SealError, Sealed};

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

#[cfg(test)]
mod tests {
    use bson::doc;

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
}
