//! Who may use the web server, under which names and with which files of TLS, and how long they stay logged in; and who may submit tasks by
//! the inbox, and whose these are.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use disbatch_documents::Queue;
use ipnet::IpNet;
use serde::Deserialize;

use super::sections::within;

const IDLE: Duration = Duration::from_secs(12 * 3600);

const WHOLE: Duration = Duration::from_secs(7 * 24 * 3600);

/// In seconds.
const TEN_YEARS: u32 = 315_360_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    pub idle: Duration,
    pub whole: Duration,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Access {
    #[serde(deserialize_with = "within::<_, 1, TEN_YEARS>")]
    session_idle: Option<Duration>,
    #[serde(deserialize_with = "within::<_, 1, TEN_YEARS>")]
    session_lifetime: Option<Duration>,
    pub proxy: Option<Proxy>,
}

impl Access {
    /// How long sessions last: 12 hours idle and a week in all unless configured otherwise.
    pub fn session_limits(&self) -> SessionLimits {
        let (idle, whole) = (self.session_idle.unwrap_or(IDLE), self.session_lifetime.unwrap_or(WHOLE));
        SessionLimits { idle, whole }
    }
}

/// A web server that requests come through, and is believed.
#[derive(Debug, Clone, Deserialize)]
pub struct Proxy {
    /// Where it is. What comes from anywhere else is not believed.
    pub addresses: Vec<Network>,
    /// The header that it puts the name of the user into whom it has let in. Unset: it asks nobody.
    pub user_header: Option<String>,
}

impl Proxy {
    pub fn is_at(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|network| network.0.contains(&address.to_canonical()))
    }
}

/// An address, or all that begin with the same bits: `10.0.0.0/8`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Network(IpNet);

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

read_from!(Network, text: String => {
    let network = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    let expected = || format!("expected an address such as 10.0.0.1 or 10.0.0.0/8, got {text:?}");
    network.map(Network).ok_or_else(expected)
});

/// The names and addresses that requests may use for the DCI, without port, besides those of its own host for itself.
/// At least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNames(pub Vec<String>);

read_from!(HostNames, names: Vec<HostName> => {
    if names.is_empty() {
        return Err("expected at least one name; without this key there is no such list".to_owned());
    }
    Ok(HostNames(names.into_iter().map(|name| name.0).collect()))
});

struct HostName(String);

read_from!(HostName, text: String => {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_name = !text.is_empty() && text.bytes().all(is_of_name);
    if is_name || text.parse::<IpAddr>().is_ok() {
        return Ok(HostName(text));
    }
    Err(format!("expected a name or an address without scheme and port, got {text:?}"))
});

/// The files with which the DCI speaks TLS. Without them it speaks plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Tls {
    /// PEM file with the server's certificate first, and then those of the authorities between it and one that clients
    /// trust.
    pub certificate: PathBuf,
    /// PEM file with the private key of the first certificate.
    pub key: PathBuf,
}

impl Tls {
    /// The same files, where relative paths are seen from `folder`.
    pub(super) fn within(&self, folder: &Path) -> Self {
        Self { certificate: folder.join(&self.certificate), key: folder.join(&self.key) }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Inbox {
    /// By the name that documents have as `by`. When unset, whoever can write to the inbox may submit to any queue.
    producers: Option<BTreeMap<String, Producer>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Producer {
    /// Who its tasks say has submitted them.
    pub owner: Option<String>,
    /// For whom its tasks are, in queues that are nobody's.
    pub tenant: Option<String>,
    /// The only queues that it may submit to, by name or id.
    queues: Option<Vec<String>>,
    /// Nothing is configured.
    #[serde(skip)]
    is_anybody: bool,
}

impl Inbox {
    /// Whoever `by` is. `None`: nobody who may submit anything.
    pub fn producer(&self, by: Option<&str>) -> Option<Producer> {
        match &self.producers {
            None => Some(Producer { is_anybody: true, ..Producer::default() }),
            Some(producers) => producers.get(by?).cloned(),
        }
    }
}

impl Producer {
    /// Whether it may submit to a queue, and have its tasks come after those of the queue: to those of other tenants never.
    pub fn may(&self, queue: &Queue) -> bool {
        let is_named = |name: &String| *name == queue.display_name() || *name == queue.id.to_string();
        let is_listed = self.queues.as_ref().is_none_or(|queues| queues.iter().any(is_named));
        let is_own = queue.tenant().is_none_or(|tenant| self.tenant.as_deref() == Some(tenant));
        self.is_anybody || (is_listed && is_own)
    }

    /// Whether its tasks may have file sets of no tenant, which those of all queues share.
    pub fn may_use_files_of_nobody(&self) -> bool {
        self.queues.is_none()
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Document, doc};

    use super::*;
    use crate::config::Config;

    fn access(text: &str) -> Result<Access, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn sessions_last_as_configured() {
        let limits = access("{}").unwrap().session_limits();
        assert_eq!((limits.idle, limits.whole), (IDLE, WHOLE));
        let limits = access(r#"{"session_idle": 600, "session_lifetime": 3600.5}"#).unwrap().session_limits();
        assert_eq!((limits.idle.as_secs(), limits.whole.as_millis()), (600, 3_600_500));
        assert!(access(r#"{"session_idle": 0}"#).unwrap_err().contains("expected a number of seconds"));
    }

    #[test]
    fn a_proxy_is_where_it_is() {
        let text = r#"{"proxy": {"addresses": ["10.0.0.0/8", "::1"], "user_header": "X-Remote-User"}}"#;
        let proxy = access(text).unwrap().proxy.unwrap();
        for (address, expected) in
            [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("::1", true), ("127.0.0.1", false)]
        {
            assert_eq!(proxy.is_at(address.parse().unwrap()), expected, "{address}");
        }
        let error = access(r#"{"proxy": {"addresses": ["nowhere"]}}"#).unwrap_err();
        assert!(error.contains("expected an address such as"), "{error}");
        assert!(access(r#"{"proxy": {}}"#).unwrap_err().contains("addresses"));
    }

    fn names(text: &str) -> Result<Vec<String>, String> {
        serde_json::from_str::<HostNames>(text).map(|names| names.0).map_err(|error| error.to_string())
    }

    #[test]
    fn names_and_addresses_are_taken_as_they_are() {
        let text = r#"["disbatch.example.com", "den_1", "10.0.0.5", "2001:db8::5", "xn--caf-dma.example"]"#;
        assert_eq!(names(text).unwrap().len(), 5);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for odd in ["https://a.example", "a.example:443", "[::1]", "*.example", "a b", ""] {
            let error = names(&serde_json::json!([odd]).to_string()).unwrap_err();
            assert!(error.contains("expected a name or an address"), "{odd}: {error}");
        }
        assert!(names("[]").unwrap_err().contains("at least one name"));
        assert!(names(r#""a.example""#).is_err());
    }

    #[test]
    fn both_files_have_to_be_there() {
        let parse = |text: &str| serde_json::from_str::<Tls>(text).map_err(|error| error.to_string());
        let tls = parse(r#"{"certificate": "/etc/disbatch/chain.pem", "key": "/etc/disbatch/key.pem"}"#);
        let expected =
            Tls { certificate: "/etc/disbatch/chain.pem".into(), key: "/etc/disbatch/key.pem".into() };
        assert_eq!(tls, Ok(expected));
        for (text, missing) in [(r#"{"certificate": "a"}"#, "`key`"), (r#"{"key": "a"}"#, "`certificate`")] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("missing field") && error.contains(missing), "{error}");
        }
    }

    #[test]
    fn relative_paths_are_seen_from_the_configuration() {
        let text = r#"{"mongohost": "h", "database": "d",
            "tls": {"certificate": "chain.pem", "key": "/run/key.pem"}}"#;
        let config = Config::parse(text, Path::new("/etc/disbatch/config.json")).unwrap();
        let expected = Tls { certificate: "/etc/disbatch/chain.pem".into(), key: "/run/key.pem".into() };
        assert_eq!(config.tls_files(), Some(expected));
        assert!(config.unknown_keys.is_empty(), "{:?}", config.unknown_keys);
    }

    fn queue(name: &str, fields: Document) -> Queue {
        let mut queue = doc! { "_id": ObjectId::from_bytes([1; 12]), "name": name };
        queue.extend(fields);
        bson::deserialize_from_document(queue).unwrap()
    }

    #[test]
    fn a_producer_is_one_of_the_table_and_has_its_queues() {
        let text = r#"{"producers": {"shop": {"owner": "shop", "tenant": "acme", "queues": ["mail", "bills"]}, "any": {}}}"#;
        let inbox: Inbox = serde_json::from_str(text).unwrap();
        let (nobodys, own, others) = (
            queue("mail", doc! {}),
            queue("bills", doc! { "tenant": "acme" }),
            queue("mail", doc! { "tenant": "other" }),
        );
        let shop = inbox.producer(Some("shop")).unwrap();
        assert_eq!((shop.owner.as_deref(), shop.tenant.as_deref()), (Some("shop"), Some("acme")));
        assert!(shop.may(&nobodys) && shop.may(&own) && !shop.may(&others));
        assert!(!shop.may(&queue("else", doc! {})));
        let any = inbox.producer(Some("any")).unwrap();
        assert!(any.may(&nobodys) && !any.may(&own));
        assert_eq!((inbox.producer(Some("nobody")), inbox.producer(None)), (None, None));
    }

    #[test]
    fn without_a_table_nobody_owns_anything() {
        let anybody = Inbox::default().producer(Some("shop")).unwrap();
        assert_eq!((&anybody.owner, &anybody.tenant), (&None, &None));
        assert!(anybody.may(&queue("mail", doc! { "tenant": "acme" })));
        let none: Inbox = serde_json::from_str(r#"{"producers": {}}"#).unwrap();
        assert_eq!(none.producer(Some("shop")), None);
    }
}
