//! A cluster whose pods do what a test says.

mod http;
mod world;

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use actix_web::{App, HttpServer};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use http::Shared;
pub use world::{Key, Kind, Refusal, Trouble, World};
use world::{Line, container, terminated};

/// The longest time that anything may take here.
pub const LONGEST: Duration = Duration::from_secs(100);

/// The namespace that the node is configured with.
pub const NAMESPACE: &str = "work";

pub struct Cluster {
    shared: Arc<Shared>,
    folder: TempDir,
}

impl Cluster {
    /// One that is reached without TLS.
    pub fn start() -> Self {
        Self::of("http")
    }

    pub fn start_with_tls() -> Self {
        Self::of("https")
    }

    fn of(scheme: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (tick, _) = watch::channel(0);
        let shared = Arc::new(Shared { world: Mutex::new(World::default()), tick, changed: Condvar::new() });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let cluster = Self { shared, folder };
        let tls = cluster.certificates();
        cluster.write_kubeconfig(scheme, address);
        let shared = Arc::clone(&cluster.shared);
        let is_plain = scheme == "http";
        thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let app = move || App::new().configure(http::configure(Arc::clone(&shared)));
                let server = HttpServer::new(app).workers(1).disable_signals();
                let server =
                    if is_plain { server.listen(listener) } else { server.listen_rustls_0_23(listener, tls) };
                server.unwrap().run().await.unwrap();
            });
        });
        cluster
    }

    /// An authority of its own, which the kubeconfig names, and a certificate of it.
    fn certificates(&self) -> ServerConfig {
        // Fails when a provider is installed already, which is as good.
        let _already_installed = rustls::crypto::ring::default_provider().install_default();
        let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        fs::write(self.folder.path().join("ca.pem"), authority.pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &authority).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config = ServerConfig::builder().with_no_client_auth();
        config.with_single_cert(vec![certificate.der().clone()], key).unwrap()
    }

    fn write_kubeconfig(&self, scheme: &str, address: SocketAddr) {
        // A relative path is seen from the file.
        let cluster = json!({ "server": format!("{scheme}://{address}"), "certificate-authority": "ca.pem" });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": cluster }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
            "users": [{ "name": "test", "user": { "token": "t" } }],
        });
        fs::write(self.kubeconfig(), kubeconfig.to_string()).unwrap();
    }

    /// The file with which it is reached.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Does something in it.
    pub fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        self.shared.with(act)
    }

    /// Waits until something is so.
    pub fn until(&self, what: &str, is_so: impl Fn(&World) -> bool) {
        let world = self.shared.world.lock().unwrap();
        let (world, waited) =
            self.shared.changed.wait_timeout_while(world, LONGEST, |world| !is_so(world)).unwrap();
        assert!(!waited.timed_out(), "waited for: {what}; asked: {:#?}", world.asked);
    }

    /// What goes wrong with the next request by that method to a path with that part.
    pub fn trouble(&self, method: &'static str, part: &'static str, trouble: Trouble) {
        self.with(|world| world.troubles.push_back((method, part, trouble)));
    }

    pub fn break_streams(&self) {
        self.with(|world| world.epoch += 1);
    }

    /// All streams break off, and what has happened until now cannot be told again.
    pub fn forget(&self) {
        self.with(|world| {
            world.epoch += 1;
            world.events.clear();
            // Some things have happened meanwhile.
            world.version += 10;
            world.oldest = world.version;
        });
    }

    pub fn count(&self, kind: Kind) -> usize {
        self.with(|world| world.objects.keys().filter(|key| key.0 == kind).count())
    }

    /// How often something was asked for.
    pub fn asked(&self, method: &str, part: &str) -> usize {
        let is_it = |asked: &&String| asked.starts_with(method) && asked.contains(part);
        self.with(|world| world.asked.iter().filter(is_it).count())
    }

    pub fn object(&self, kind: Kind, namespace: &str, name: &str) -> Value {
        self.with(|world| world.objects[&(kind, namespace.to_owned(), name.to_owned())].clone())
    }

    /// The pod of a job, once there is one.
    pub fn pod_of(&self, job: &str) -> Pod<'_> {
        let is_of_it = |key: &Key| key.0 == Kind::Pod && key.2.starts_with(&format!("{job}-"));
        self.until("a pod", |world| world.objects.keys().any(is_of_it));
        let key = self.with(|world| world.objects.keys().find(|key| is_of_it(key)).cloned());
        Pod { cluster: self, key: key.unwrap(), second: 0 }
    }
}

pub struct Pod<'a> {
    cluster: &'a Cluster,
    key: Key,
    /// The time of its next line.
    second: u32,
}

impl Pod<'_> {
    /// Says what becomes of it.
    pub fn set(&self, status: Value) {
        self.cluster.with(|world| {
            world.set_status(&self.key, status);
            world.settle();
        });
    }

    /// As it is in the cluster.
    pub fn object(&self) -> Value {
        self.cluster.object(Kind::Pod, &self.key.1, &self.key.2)
    }

    pub fn name(&self) -> &str {
        &self.key.2
    }

    /// Its container waits.
    pub fn waits(&self, reason: &str) {
        let state = json!({ "waiting": { "reason": reason, "message": "m" } });
        self.set(json!({ "phase": "Pending", "containerStatuses": [container(&self.object(), state)] }));
    }

    /// Its container runs, on a node.
    pub fn runs(&self) {
        self.cluster.with(|world| {
            if let Some(pod) = world.objects.get_mut(&self.key) {
                pod["spec"]["nodeName"] = "worker-1".into();
            }
        });
        let state = json!({ "running": { "startedAt": "2026-11-20T08:00:00Z" } });
        self.set(json!({ "phase": "Running", "containerStatuses": [container(&self.object(), state)] }));
    }

    /// Its container writes a line, a second after the one before.
    pub fn writes(&mut self, text: &str) {
        self.second += 1;
        let at = format!("2026-11-20T08:{:02}:{:02}.000000007", self.second / 60, self.second % 60);
        let line = Line { at, text: text.to_owned() };
        self.cluster.with(|world| world.logs.entry(self.key.2.clone()).or_default().push(line));
    }

    /// Its container ends.
    pub fn ends(&self, code: i32, reason: &str) {
        self.set(terminated(&self.object(), code, reason));
    }

    /// Its container ends, and has left a last word.
    pub fn ends_saying(&self, code: i32, last: &str) {
        let mut status = terminated(&self.object(), code, "Completed");
        status["containerStatuses"][0]["state"]["terminated"]["message"] = last.into();
        self.set(status);
    }

    /// It is told to end, as where its node is drained.
    pub fn is_drained(&self) {
        self.cluster.with(|world| {
            world.mark_deleted(&self.key);
            world.settle();
        });
    }

    /// Somebody deletes it.
    pub fn is_deleted(&self) {
        self.cluster.with(|world| {
            world.remove(&self.key);
            world.settle();
        });
    }
}
