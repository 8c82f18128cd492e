//! The line that brings a task to a warm plugin.

use std::io;

use zeroize::Zeroizing;

use crate::plugin::{Job, secret_variable, task_json, variables};
use crate::secret_bytes::Wiped;

/// What the line begins with, before the task.
const START: &[u8] = b"{\"task\":";

/// The line, with its line break. It has no other one. It is overwritten when it is dropped, and its buffer never grows. So
/// is all that it is made of.
pub fn of(job: &Job<'_>) -> io::Result<Zeroizing<Vec<u8>>> {
    let task = task_json(job, job.secure_params)?;
    let rest = rest(job)?;
    let mut line = Zeroizing::new(Vec::<u8>::with_capacity(START.len() + task.len() + rest.len()));
    line.extend_from_slice(START);
    line.extend_from_slice(task.trim_ascii_end());
    line.extend_from_slice(&rest);
    Ok(line)
}

/// What follows the task.
fn rest(job: &Job<'_>) -> io::Result<Wiped> {
    let mut line = Wiped::default();
    for (index, (name, value)) in variables(job).into_iter().enumerate() {
        line.extend(if index == 0 { b",\"env\":{" } else { b"," });
        entry(&mut line, name, &value)?;
    }
    if let Some((name, value)) = secret_variable(job) {
        line.extend(b",");
        entry(&mut line, name, std::str::from_utf8(&value).map_err(io::Error::other)?)?;
    }
    line.extend(b"}");
    if let Some(folder) = job.private_folder() {
        line.extend(b",\"work_dir\":");
        append(&mut line, &folder.to_string_lossy())?;
    }
    line.extend(b"}\n");
    Ok(line)
}

fn entry(line: &mut Wiped, name: &str, value: &str) -> io::Result<()> {
    append(line, name)?;
    line.extend(b":");
    append(line, value)
}

fn append(line: &mut Wiped, value: &str) -> io::Result<()> {
    Ok(serde_json::to_writer(line, value)?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use bson::oid::ObjectId;
    use bson::{Document, doc};
    use disbatch_core::model::{NodeName, Queue, Task, TaskId};
    use disbatch_core::secrets::SecureParams;
    use disbatch_core::task::Run;
    use serde_json::{Value, json};

    use super::*;
    use crate::plugin::About;

    fn read<T: serde::de::DeserializeOwned>(document: Document) -> T {
        bson::deserialize_from_document(document).unwrap()
    }

    #[test]
    fn secure_parameters_are_in_the_task_and_in_no_variable() {
        let (id, queue) = (ObjectId::new(), ObjectId::new());
        let sealed = doc! { "key": "k", "data": "sealed" };
        let task: Task = read(doc! {
            "_id": id, "queue": queue, "status": 0, "params": { "a": 1 }, "secure_params": sealed,
        });
        let queue: Queue = read(doc! { "_id": queue, "name": "q", "plugin": "Test" });
        let secret = json!({ "password": "correct horse", "odd": { "$oid": "x" } });
        let params = SecureParams::new(secret.as_object().unwrap().clone()).unwrap();
        let name = "Test".parse().unwrap();
        let run =
            Run { task: TaskId(id), queue: queue.id, node: NodeName::new("n1"), attempt: 1, instance: None };
        let job = Job {
            task: &task,
            json: None,
            secure_params: Some(&params),
            queue: &queue,
            name: &name,
            run: &run,
            folder: Path::new("/tmp"),
            until: Duration::ZERO,
            about: &About::default(),
        };
        assert!(!format!("{job:?}").contains("horse"));
        let line = of(&job).unwrap();
        assert_eq!(line.last(), Some(&b'\n'));
        assert!(line.capacity() <= line.len() + 8, "it has not grown: {} of {}", line.len(), line.capacity());
        let text = String::from_utf8(line.to_vec()).unwrap();
        assert_eq!(text.lines().count(), 1);
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["task"]["secure_params"], secret);
        assert!(!line["env"].to_string().contains("horse") && !text.contains("sealed"), "{text}");
        let without = of(&Job { secure_params: None, ..job }).unwrap();
        let without = String::from_utf8(without.to_vec()).unwrap();
        assert!(!without.contains("secure_params"), "what is stored of them is of no use: {without}");
        let bare = of(&Job { folder: Path::new("/"), ..job }).unwrap();
        let bare: Value = serde_json::from_slice(&bare).unwrap();
        assert!(bare.get("work_dir").is_none() && bare["env"].get("DISBATCH_WORK_DIR").is_none(), "{bare}");
        assert_eq!(line["work_dir"], "/tmp");
        let about = About { secure_params_in_environment: true, ..About::default() };
        let asked = of(&Job { about: &about, ..job }).unwrap();
        let line: Value = serde_json::from_slice(&asked).unwrap();
        assert_eq!(line["env"]["JOB_SECURE_PARAMS"], secret.to_string());
    }
}
