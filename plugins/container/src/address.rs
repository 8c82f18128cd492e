//! Where the container engine is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::unistd::{AccessFlags, Uid, access};

/// Docker's port without TLS.
const PORT: u16 = 2375;

/// Where Docker and Podman listen for those who may use the engine of the whole machine.
const OF_MACHINE: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];

/// Where Podman listens for its own user, in the folder that such a user has for sockets.
const OF_USER: &str = "podman/podman.sock";

/// Where a container engine is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// A socket of this machine.
    Unix(PathBuf),
    /// A host with its port, without TLS.
    Tcp(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = text.strip_prefix("unix://").unwrap_or(text);
        if path.starts_with('/') {
            return Ok(Self::Unix(path.into()));
        }
        let host = text.strip_prefix("tcp://").or_else(|| text.strip_prefix("http://"));
        let host = host.map(|host| host.trim_end_matches('/')).filter(|host| !host.is_empty());
        match host {
            Some(host) if host.contains(['/', '@']) => Err(format!("'{text}' is no host with a port")),
            // The colons of a bare IPv6 address are in brackets.
            Some(host) if host.rsplit(']').next().is_some_and(|rest| rest.contains(':')) => {
                Ok(Self::Tcp(host.to_owned()))
            }
            Some(host) => Ok(Self::Tcp(format!("{host}:{PORT}"))),
            None => Err(format!(
                "'{text}' is no address of a container engine: expected an absolute path, unix:// or tcp://, which is \
                 without TLS"
            )),
        }
    }
}

/// What may say where it is.
#[derive(Debug, Clone, Default)]
pub struct Signposts {
    /// `DOCKER_HOST`.
    pub docker_host: Option<String>,
    /// Whether `DOCKER_TLS_VERIFY` asks for TLS.
    pub tls: bool,
    /// `XDG_RUNTIME_DIR`.
    pub runtime_folder: Option<PathBuf>,
    /// The user whose own engine it may be.
    pub user: u32,
}

impl Signposts {
    /// Those of this process; `user`: whose engine it may be in place of that of this process' own user.
    pub fn here(user: Option<u32>) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            docker_host: variable("DOCKER_HOST"),
            tls: variable("DOCKER_TLS_VERIFY").is_some(),
            runtime_folder: variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|_| user.is_none()),
            user: user.unwrap_or_else(|| Uid::effective().as_raw()),
        }
    }

    /// The first address of those that are `given`, named by the environment, or used by default.
    pub fn find<'a>(
        &self,
        given: impl IntoIterator<Item = Option<&'a str>>,
        is_usable: impl Fn(&Path) -> bool,
    ) -> Result<Address, String> {
        if let Some(address) = given.into_iter().flatten().find(|text| !text.is_empty()) {
            return address.parse();
        }
        if let Some(host) = &self.docker_host {
            let address: Address = host.parse().map_err(|why| format!("DOCKER_HOST: {why}"))?;
            return match address {
                Address::Tcp(_) if self.tls => {
                    Err("DOCKER_TLS_VERIFY: a container engine cannot be reached by TLS".to_owned())
                }
                address => Ok(address),
            };
        }
        let usual = self.usual();
        if let Some(path) = usual.iter().find(|path| is_usable(path)) {
            return Ok(Address::Unix(path.clone()));
        }
        let looked: Vec<String> = usual.iter().map(|path| path.display().to_string()).collect();
        Err(format!(
            "no container engine that may be used here was found at {}: name its socket in the configuration, as \
             engines.container.socket",
            looked.join(", ")
        ))
    }

    fn usual(&self) -> Vec<PathBuf> {
        let mut usual: Vec<PathBuf> = OF_MACHINE.map(PathBuf::from).to_vec();
        usual.extend(self.runtime_folder.iter().map(|folder| folder.join(OF_USER)));
        let own = Path::new("/run/user").join(self.user.to_string()).join(OF_USER);
        if !usual.contains(&own) {
            usual.push(own);
        }
        usual
    }
}

/// Whether this process may use a socket that is there.
pub fn is_usable(path: &Path) -> bool {
    access(path, AccessFlags::R_OK | AccessFlags::W_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &str) -> Address {
        Address::Unix(path.into())
    }

    #[test]
    fn addresses_are_paths_or_hosts() {
        let tcp = |host: &str| Ok(Address::Tcp(host.to_owned()));
        for (text, expected) in [
            ("/run/x.sock", Ok(unix("/run/x.sock"))),
            ("unix:///run/x.sock", Ok(unix("/run/x.sock"))),
            ("tcp://h:1234", tcp("h:1234")),
            ("http://h/", tcp("h:2375")),
            ("tcp://[::1]", tcp("[::1]:2375")),
            ("tcp://[::1]:99", tcp("[::1]:99")),
        ] {
            assert_eq!(text.parse::<Address>(), expected, "{text}");
        }
        for text in
            ["", "x.sock", "unix://x", "tcp://", "https://h", "ssh://h", "tcp://h/path", "tcp://u@h:1"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_named_comes_before_what_is_usual() {
        let usual = Signposts { runtime_folder: Some("/x".into()), user: 7, ..Signposts::default() };
        let find = |given: [Option<&str>; 2], posts: &Signposts, there: &'static str| {
            posts.find(given, |path| path == Path::new(there))
        };
        let docker = "/var/run/docker.sock";
        assert_eq!(find([Some("/a"), Some("/b")], &usual, docker), Ok(unix("/a")));
        assert_eq!(find([None, Some("/b")], &usual, docker), Ok(unix("/b")));
        let named = Signposts { docker_host: Some("unix:///c".to_owned()), ..usual.clone() };
        assert_eq!(find([Some(""), None], &named, docker), Ok(unix("/c")));
        assert_eq!(find([None, None], &usual, docker), Ok(unix(docker)));
        for there in ["/run/podman/podman.sock", "/x/podman/podman.sock", "/run/user/7/podman/podman.sock"] {
            assert_eq!(find([None, None], &usual, there), Ok(unix(there)));
        }
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        let usual = Signposts { user: 7, ..Signposts::default() };
        let why = usual.find([None], |_| false).unwrap_err();
        assert!(why.contains("/var/run/docker.sock, /run/podman/podman.sock, /run/user/7/podman"), "{why}");
        assert!(why.contains("engines.container.socket"), "{why}");
        let host = |host: &str| Signposts { docker_host: Some(host.to_owned()), tls: true, ..usual.clone() };
        let why = host("ssh://h").find([None], |_| true).unwrap_err();
        assert!(why.starts_with("DOCKER_HOST: 'ssh://h' is no address"), "{why}");
        let why = host("tcp://h:2376").find([None], |_| true).unwrap_err();
        assert!(why.contains("TLS"), "{why}");
    }
}
