//! The secure parameters of a task, which are decrypted right before its plugin is started.

use std::fmt::Display;

use disbatch_core::config::Config;
use disbatch_core::model::Task;
use disbatch_core::secrets::{Keys, Sealed, SecureParams};

/// Those of a task; none if it has none. Keys are read each time, so that a runner that has been there for long knows new
/// ones too.
///
/// # Errors
/// They cannot be decrypted here. Why, for the task's standard error: it names the key, and shows nothing of them.
pub fn of(task: &Task, config: &Config) -> Result<Option<SecureParams>, String> {
    let sealed = match Sealed::of(task) {
        Ok(Some(sealed)) => sealed,
        Ok(None) => return Ok(None),
        Err(error) => return Err(why(&error)),
    };
    let keys = Keys::load(config);
    let keys = keys
        .map_err(|error| why(&format!("they were encrypted with the key {}, and {error}", sealed.key())))?;
    keys.open(task.queue, &sealed).map(Some).map_err(|error| why(&error))
}

fn why(reason: &dyn Display) -> String {
    format!("cannot decrypt the secure parameters of the task: {reason}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bson::oid::ObjectId;
    use bson::{Bson, doc};
    use disbatch_core::model::QueueId;
    use disbatch_core::secrets::new_key;
    use serde_json::json;

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
}
