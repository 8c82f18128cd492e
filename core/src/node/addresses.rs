//! Where the host of a node is to be reached.

use std::net::IpAddr;

use bson::{Bson, Document, doc};

/// So many of each kind are told: hosts of containers have hundreds.
const MOST: usize = 16;

/// Addresses of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Those of its own network.
    pub private: Vec<String>,
    /// All others, and names.
    pub public: Vec<String>,
}

impl Addresses {
    /// Sorts addresses and names by whom they are for. Those by which only the host itself is reached are left out.
    pub fn sorted<'a>(all: impl IntoIterator<Item = &'a str>) -> Self {
        let mut addresses = Self::default();
        for address in all {
            let of = match address.parse::<IpAddr>() {
                Ok(ip) if is_local(ip) => continue,
                Ok(ip) if is_private(ip) => &mut addresses.private,
                Ok(_) | Err(_) => &mut addresses.public,
            };
            if of.len() < MOST && !of.iter().any(|known| known == address) {
                of.push(address.to_owned());
            }
        }
        addresses
    }

    /// Those that the document of a node has.
    pub fn of_node(node: &Document) -> Self {
        let of = |kind: &str| {
            let listed = node.get_document("addresses").ok().and_then(|all| all.get_array(kind).ok());
            listed.into_iter().flatten().filter_map(Bson::as_str).map(str::to_owned).collect()
        };
        Self { private: of("private"), public: of("public") }
    }

    /// All of them, those of its own network first.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.private.iter().chain(&self.public).map(String::as_str)
    }

    /// As a node has them.
    pub fn document(&self) -> Document {
        doc! { "private": &self.private, "public": &self.public }
    }
}

fn is_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local() || ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unspecified() || ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_private(ip: IpAddr) -> bool {
    match ip {
        // Also those that providers share between customers.
        IpAddr::V4(ip) => ip.is_private() || (ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64),
        IpAddr::V6(ip) => ip.segments()[0] & 0xfe00 == 0xfc00,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_private_public_or_of_the_host_alone() {
        let all = [
            "127.0.0.1",
            "::1",
            "fe80::1",
            "169.254.3.4",
            "10.1.2.3",
            "192.168.0.7",
            "100.64.0.1",
            "fd00::5",
            "203.0.113.9",
            "2001:db8::1",
            "node1.example.com",
            "10.1.2.3",
        ];
        let addresses = Addresses::sorted(all);
        assert_eq!(addresses.private, ["10.1.2.3", "192.168.0.7", "100.64.0.1", "fd00::5"]);
        assert_eq!(addresses.public, ["203.0.113.9", "2001:db8::1", "node1.example.com"]);
        assert_eq!(Addresses::of_node(&doc! { "addresses": addresses.document() }), addresses);
        assert_eq!(Addresses::of_node(&doc! { "addresses": ["10.0.0.1"] }), Addresses::default());
    }
}
