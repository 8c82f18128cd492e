//! Where messages may go: to public addresses, and to those private ones that the node's configuration names. Whoever makes
//! subscriptions would otherwise choose what of the node's network is written to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use disbatch_adapter::hosts;
use disbatch_plugin::Error;
use ipnet::IpNet;

#[derive(Debug)]
pub struct Allowed {
    hosts: Vec<String>,
    networks: Vec<IpNet>,
}

impl Allowed {
    /// Reads hosts and networks with commas between them.
    pub fn parse(text: &str) -> Self {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let (networks, hosts): (Vec<&str>, Vec<&str>) = parts.partition(|part| part.parse::<IpNet>().is_ok());
        Self {
            hosts: hosts.into_iter().map(str::to_owned).collect(),
            networks: networks.into_iter().filter_map(|network| network.parse().ok()).collect(),
        }
    }

    /// The addresses of a host that may be written to. A connection goes to one of them and asks for no name again, which might
    /// have another address by then.
    pub fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let found = (bare, port)
            .to_socket_addrs()
            .map_err(|error| Error::failed(format_args!("'{host}' has no address: {error}")))?
            .collect::<Vec<_>>();
        let is_named = hosts::fits_any(host, Some(port), &self.hosts);
        let (allowed, refused): (Vec<SocketAddr>, Vec<SocketAddr>) =
            found.into_iter().partition(|address| is_named || self.may(address.ip()));
        match (allowed.is_empty(), refused.first()) {
            (true, Some(address)) => Err(Error::failed(format_args!(
                "'{host}' has the address {}, which is not public: notifications.allow of this node's configuration must name \
                 the host or its network",
                address.ip()
            ))),
            (true, None) => Err(Error::failed(format_args!("'{host}' has no address"))),
            (false, _) => Ok(allowed),
        }
    }

    fn may(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        is_public(ip) || self.networks.iter().any(|network| network.contains(&ip))
    }
}

/// Whether an address is one of the Internet, by the registries of IANA (RFC 6890).
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    !(a == 0
        || ip.is_loopback()
        || ip.is_private()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_documentation()
        // Shared addresses of carriers, protocol assignments, benchmarks, and what is reserved, with the broadcast.
        || (a == 100 && b & 0xc0 == 64)
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && b & 0xfe == 18)
        || a >= 240)
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    match segments {
        // Translated (NAT64) and 6to4 addresses lead to the one that they have in them.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            is_public_v4(Ipv4Addr::new(a, b, c, d))
        }
        // Documentation, and Teredo with the other protocol assignments.
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x2001, 0..=0x1ff, ..] => false,
        // Global unicast is what begins so; all else is local, multicast or reserved.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_of_the_internet_is_told_apart() {
        for text in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.8",
            "192.168.1.1",
            "198.18.0.1",
            "203.0.113.5",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "::127.0.0.1",
        ] {
            let ip: IpAddr = text.parse().unwrap();
            assert!(!is_public(ip.to_canonical()), "{text}");
        }
        for text in
            ["1.1.1.1", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "64:ff9b::101:101", "::ffff:8.8.8.8"]
        {
            let ip: IpAddr = text.parse().unwrap();
            assert!(is_public(ip.to_canonical()), "{text}");
        }
    }

    #[test]
    fn private_addresses_are_for_who_is_named() {
        let none = Allowed::parse("");
        for host in ["127.0.0.1", "localhost", "[::1]", "::1", "0", "2130706433", "0x7f.1", "169.254.169.254"]
        {
            let error = none.resolve(host, 80).unwrap_err().to_string();
            assert!(error.contains("notifications.allow") || error.contains("no address"), "{host}: {error}");
        }
        assert_eq!(none.resolve("1.1.1.1", 443).unwrap(), ["1.1.1.1:443".parse().unwrap()]);
        for allowed in ["127.0.0.1", "127.0.0.0/8", " 10.0.0.0/8 , 127.0.0.1:80,x"] {
            assert_eq!(Allowed::parse(allowed).resolve("127.0.0.1", 80).unwrap().len(), 1, "{allowed}");
        }
        for other in ["127.0.0.1:81", "10.0.0.0/8", "localhost"] {
            assert!(Allowed::parse(other).resolve("127.0.0.1", 80).is_err(), "{other}");
        }
        assert!(!Allowed::parse("localhost").resolve("localhost", 80).unwrap().is_empty());
        assert!(
            none.resolve("nobody.invalid", 80)
                .unwrap_err()
                .to_string()
                .contains("'nobody.invalid' has no address")
        );
    }
}
