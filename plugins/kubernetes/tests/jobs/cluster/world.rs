//! What is in the cluster, and what its controllers do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Job,
    Pod,
    Secret,
}

impl Kind {
    /// Its name and version.
    pub fn title(self) -> (&'static str, &'static str) {
        match self {
            Self::Job => ("Job", "batch/v1"),
            Self::Pod => ("Pod", "v1"),
            Self::Secret => ("Secret", "v1"),
        }
    }
}

/// Where something is: its kind, namespace and name.
pub type Key = (Kind, String, String);

pub struct Event {
    pub version: u64,
    pub kind: Kind,
    pub what: &'static str,
    pub object: Value,
}

pub struct Line {
    /// The second, and a fraction with nine digits.
    pub at: String,
    pub text: String,
}

/// An answer that is not the right one.
#[derive(Clone)]
pub struct Refusal {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
}

impl Refusal {
    pub fn new(code: u16, reason: &'static str, message: &str) -> Self {
        Self { code, reason, message: message.to_owned() }
    }

    /// As the API has it.
    pub fn status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            "reason": self.reason, "code": self.code,
        })
    }
}

/// What goes wrong with the next requests of a kind.
#[derive(Clone)]
pub enum Trouble {
    /// They are refused, and whoever asks is told to come back at once.
    Refused(Refusal),
    /// They are carried out, and the connection breaks before the answer.
    Unanswered,
    /// They get lost, and the connection stays open.
    Silent,
}

#[derive(Default)]
pub struct World {
    pub version: u64,
    pub objects: BTreeMap<Key, Value>,
    pub events: Vec<Event>,
    /// Who asks for older events is told that they are gone.
    pub oldest: u64,
    /// By the name of the pod.
    pub logs: BTreeMap<String, Vec<Line>>,
    /// The method, a part of the path, and what happens.
    pub troubles: VecDeque<(&'static str, &'static str, Trouble)>,
    /// After so many bytes the next logs break off.
    pub cuts: VecDeque<usize>,
    /// Changes when all streams break off.
    pub epoch: u64,
    /// Methods and paths of all requests.
    pub asked: Vec<String>,
    /// The names of all pods that there ever were.
    pub pods: BTreeSet<String>,
    /// Whether pods go on when they are to end.
    pub is_stubborn: bool,
    /// Whether no pods are made, as where a quota is used up.
    pub makes_no_pods: bool,
}

impl World {
    pub fn create(&mut self, kind: Kind, namespace: &str, mut object: Value) -> Result<Value, Refusal> {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let key = (kind, namespace.to_owned(), name.clone());
        if self.objects.contains_key(&key) {
            let message = format!("{} \"{name}\" already exists", kind.title().0);
            return Err(Refusal::new(409, "AlreadyExists", &message));
        }
        object["metadata"]["namespace"] = namespace.into();
        object["metadata"]["uid"] = format!("uid-{}", self.version + 1).into();
        self.put(key.clone(), object, "ADDED");
        let made = self.objects[&key].clone();
        self.settle();
        Ok(made)
    }

    /// Merges something over an object that is as it was seen.
    pub fn patch(&mut self, key: &Key, patch: &Value) -> Result<Value, Refusal> {
        let mut object = self.objects.get(key).cloned().ok_or_else(|| missing(key))?;
        for condition in ["resourceVersion", "uid"] {
            let wanted = &patch["metadata"][condition];
            if !wanted.is_null() && *wanted != object["metadata"][condition] {
                return Err(Refusal::new(409, "Conflict", "the object has been modified"));
            }
        }
        merge(&mut object, patch);
        self.put(key.clone(), object, "MODIFIED");
        self.settle();
        Ok(self.objects[key].clone())
    }

    /// Removes an object, as the options say.
    pub fn delete(&mut self, key: &Key, options: &Value) -> Result<(), Refusal> {
        let object = self.objects.get(key).cloned().ok_or_else(|| missing(key))?;
        for condition in ["resourceVersion", "uid"] {
            let wanted = &options["preconditions"][condition];
            if !wanted.is_null() && *wanted != object["metadata"][condition] {
                return Err(Refusal::new(409, "Conflict", "the precondition does not hold"));
            }
        }
        if options["propagationPolicy"] == "Foreground" {
            self.mark_deleted(key);
        } else {
            self.remove(key);
        }
        self.settle();
        Ok(())
    }

    /// The objects of a kind in a namespace that are selected.
    pub fn select(&self, kind: Kind, namespace: &str, query: &BTreeMap<String, String>) -> Vec<Value> {
        let of_kind = self.objects.iter().filter(|(key, _)| key.0 == kind && key.1 == namespace);
        of_kind.map(|(_, object)| object).filter(|object| is_selected(object, query)).cloned().collect()
    }

    /// Whether the container of a pod has ended.
    pub fn is_over(&self, key: &Key) -> bool {
        let pod = self.objects.get(key);
        pod.is_none_or(|pod| !pod["status"]["containerStatuses"][0]["state"]["terminated"].is_null())
    }

    pub fn set_status(&mut self, key: &Key, status: Value) {
        let mut pod = self.objects[key].clone();
        pod["status"] = status;
        self.put(key.clone(), pod, "MODIFIED");
    }

    /// What controllers do, until there is nothing to do.
    pub fn settle(&mut self) {
        let jobs = |world: &Self| -> Vec<Key> {
            world.objects.keys().filter(|key| key.0 == Kind::Job).cloned().collect()
        };
        while jobs(self).into_iter().any(|key| self.look_after(&key)) {}
        let orphans: Vec<Key> = self
            .objects
            .iter()
            .filter(|(_, object)| self.is_orphan(object))
            .map(|(key, _)| key.clone())
            .collect();
        for key in orphans {
            self.remove(&key);
        }
    }

    fn is_orphan(&self, object: &Value) -> bool {
        let owner = &object["metadata"]["ownerReferences"][0]["uid"];
        !owner.is_null() && !self.objects.values().any(|other| other["metadata"]["uid"] == *owner)
    }

    /// Does the next thing for a job. Tells whether there was something.
    fn look_after(&mut self, key: &Key) -> bool {
        let Some(job) = self.objects.get(key).cloned() else { return false };
        let pods: Vec<Key> = self.owned(Kind::Pod, &job);
        if !job["metadata"]["deletionTimestamp"].is_null() {
            return self.remove_pods(key, &pods);
        }
        if job["spec"]["suspend"] == true {
            let condition = json!([{ "type": "Suspended", "status": "True" }]);
            return self.set_job_status(key, json!({ "conditions": condition }));
        }
        if job["status"]["startTime"].is_null() {
            if self.makes_no_pods {
                return false;
            }
            self.make_pod(key, &job);
            return self.set_job_status(key, json!({ "startTime": "2026-11-20T08:00:00Z", "active": 1 }));
        }
        if !job["status"]["conditions"].is_null() {
            return false;
        }
        let of_pod = |key: &Key| {
            let pod = &self.objects[key];
            let phase = pod["status"]["phase"].as_str().unwrap_or_default();
            // One that is to go has failed at once, though its container may run on.
            if phase == "Succeeded" || pod["metadata"]["deletionTimestamp"].is_null() {
                phase
            } else {
                "Failed"
            }
        };
        let (kind, reason) = match pods.first().map(of_pod) {
            Some("Succeeded") => ("Complete", "CompletionsReached"),
            Some("Failed") | None => ("Failed", "BackoffLimitExceeded"),
            Some(_) => return false,
        };
        let conditions = json!([{ "type": kind, "status": "True", "reason": reason, "message": "m" }]);
        self.set_job_status(key, json!({ "startTime": job["status"]["startTime"], "conditions": conditions }))
    }

    fn make_pod(&mut self, key: &Key, job: &Value) {
        let (name, uid) = (&job["metadata"]["name"], &job["metadata"]["uid"]);
        let pod = format!("{}-{}", key.2, self.version);
        let owner =
            json!({ "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true });
        let template = &job["spec"]["template"];
        let metadata = json!({
            "name": pod, "namespace": key.1, "uid": format!("uid-{}", self.version + 1),
            "labels": template["metadata"]["labels"], "ownerReferences": [owner],
        });
        let object =
            json!({ "metadata": metadata, "spec": template["spec"], "status": { "phase": "Pending" } });
        self.pods.insert(pod.clone());
        self.put((Kind::Pod, key.1.clone(), pod), object, "ADDED");
    }

    /// Has pods end, then go, and then their job.
    fn remove_pods(&mut self, key: &Key, pods: &[Key]) -> bool {
        for pod in pods {
            if self.objects[pod]["metadata"]["deletionTimestamp"].is_null() {
                self.mark_deleted(pod);
                return true;
            }
            let is_running = self.objects[pod]["status"]["phase"] == "Running";
            if !is_running || self.is_over(pod) {
                self.remove(pod);
                return true;
            }
            if !self.is_stubborn {
                let status = terminated(&self.objects[pod], 143, "Error");
                self.set_status(pod, status);
                return true;
            }
        }
        if !pods.is_empty() {
            return false;
        }
        self.remove(key);
        true
    }

    fn owned(&self, kind: Kind, job: &Value) -> Vec<Key> {
        let uid = &job["metadata"]["uid"];
        let is_owned = |object: &Value| object["metadata"]["ownerReferences"][0]["uid"] == *uid;
        let owned = self.objects.iter().filter(|(key, object)| key.0 == kind && is_owned(object));
        owned.map(|(key, _)| key.clone()).collect()
    }

    /// Tells whether that is another one.
    fn set_job_status(&mut self, key: &Key, status: Value) -> bool {
        let mut job = self.objects[key].clone();
        if job["status"] == status {
            return false;
        }
        job["status"] = status;
        self.put(key.clone(), job, "MODIFIED");
        true
    }

    pub fn mark_deleted(&mut self, key: &Key) {
        let mut object = self.objects[key].clone();
        object["metadata"]["deletionTimestamp"] = "2026-11-20T08:00:00Z".into();
        self.put(key.clone(), object, "MODIFIED");
    }

    fn put(&mut self, key: Key, mut object: Value, what: &'static str) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.events.push(Event { version: self.version, kind: key.0, what, object: object.clone() });
        self.objects.insert(key, object);
    }

    /// Takes an object away at once.
    pub fn remove(&mut self, key: &Key) {
        let Some(mut object) = self.objects.remove(key) else { return };
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.events.push(Event { version: self.version, kind: key.0, what: "DELETED", object });
    }
}

/// The status of a pod whose container has ended.
pub fn terminated(pod: &Value, code: i32, reason: &str) -> Value {
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let times = ("2026-11-20T08:00:00Z", "2026-11-20T08:01:00Z");
    let state = json!({ "exitCode": code, "reason": reason, "startedAt": times.0, "finishedAt": times.1 });
    json!({ "phase": phase, "containerStatuses": [container(pod, json!({ "terminated": state }))] })
}

/// The status of the first container of a pod.
pub fn container(pod: &Value, state: Value) -> Value {
    let container = &pod["spec"]["containers"][0];
    json!({ "name": container["name"], "image": container["image"], "imageID": "r/i@sha256:1", "state": state })
}

/// Whether the labels and fields of an object are those that are asked for.
pub fn is_selected(object: &Value, query: &BTreeMap<String, String>) -> bool {
    let all = |selector: Option<&String>, holds: &dyn Fn(&str, &str) -> bool| {
        let selector = selector.map(String::as_str).unwrap_or_default();
        let mut parts = selector.split(',').filter(|part| !part.is_empty());
        parts.all(|part| part.split_once('=').is_some_and(|(key, value)| holds(key, value)))
    };
    all(query.get("labelSelector"), &|key, value| object["metadata"]["labels"][key] == value)
        && all(query.get("fieldSelector"), &|key, value| {
            key == "metadata.name" && object["metadata"]["name"] == value
        })
}

fn missing(key: &Key) -> Refusal {
    Refusal::new(404, "NotFound", &format!("{} \"{}\" not found", key.0.title().0, key.2))
}

fn merge(base: &mut Value, over: &Value) {
    let Value::Object(over) = over else {
        *base = over.clone();
        return;
    };
    if !base.is_object() {
        *base = Value::Object(Map::new());
    }
    for (key, value) in over {
        merge(&mut base[key], value);
    }
}
