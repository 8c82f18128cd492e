//! Where this host is to be reached: as configured, else by the addresses of its interfaces.

use disbatch_core::config::Config;
use disbatch_core::node::Addresses;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

pub fn of(config: &Config) -> Addresses {
    match &config.addresses {
        Some(configured) => Addresses::sorted(configured.iter().map(String::as_str)),
        None => {
            let found: Vec<String> =
                getifaddrs().into_iter().flatten().filter_map(|one| text(&one.address?)).collect();
            Addresses::sorted(found.iter().map(String::as_str))
        }
    }
}

fn text(address: &SockaddrStorage) -> Option<String> {
    let v4 = address.as_sockaddr_in().map(|address| address.ip().to_string());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().to_string()))
}
