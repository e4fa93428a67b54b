//! Classifies IP addresses and decides which of them a connection may use.
//!
//! The owner of an allowed name decides what it resolves to and may change that at any time. Every address is therefore
//! classified by its value, in every notation that maps one address to another.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// The kind of network or host that an address belongs to.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressClass {
    /// The public Internet.
    Public,
    /// A private network (RFC 1918, RFC 4193) or carrier-grade NAT (RFC 6598). Also the ranges for benchmarks and
    /// documentation (RFC 2544, RFC 5737): no host of the Internet uses them, but some proxies map names to them.
    Private,
    /// This machine.
    Own,
    /// The metadata services from which machines in a cloud obtain credentials.
    Metadata,
    /// The local link of this machine.
    LinkLocal,
    /// Not a single host: unspecified, multicast, broadcast or reserved addresses, and tunnels (6to4, Teredo) whose far
    /// end is encoded in the address.
    Unusable,
}

/// Addresses of cloud metadata services outside the link-local ranges or inside private ranges.
const METADATA: [IpAddr; 7] = [
    // Amazon, Google, Azure, Oracle, DigitalOcean and others.
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    // Amazon: credentials of containers.
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    // Alibaba.
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    // Azure: the host of a virtual machine.
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // Oracle, and others that follow OpenStack.
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    // Amazon.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    // Google.
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// The addresses that a rule allows in addition to public ones.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// None.
    #[default]
    Public,
    /// Addresses of private networks and of this machine.
    Private,
}

impl AddressClass {
    /// Classifies an address. Only its value counts, not the interfaces of this machine.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            metadata if METADATA.contains(&metadata) => Self::Metadata,
            IpAddr::V4(address) => classify_ipv4(address),
            IpAddr::V6(address) => classify_ipv6(address),
        }
    }

    /// Returns whether a connection to an address of this class is allowed. `named` means that the policy contains the
    /// address itself rather than a name that resolves to it.
    pub fn is_allowed(self, reach: Reach, named: bool) -> bool {
        match self {
            Self::Public => true,
            Self::Private | Self::Own => reach == Reach::Private,
            // The owner of a name must not be able to choose these addresses.
            Self::Metadata | Self::LinkLocal => reach == Reach::Private && named,
            Self::Unusable => false,
        }
    }

    /// Returns the class as part of a sentence.
    pub fn as_words(self) -> &'static str {
        match self {
            Self::Public => "a public address",
            Self::Private => "an address of a private network",
            Self::Own => "an address of this machine",
            Self::Metadata => "the address of a cloud's metadata service",
            Self::LinkLocal => "a link-local address",
            Self::Unusable => "not the address of a single host",
        }
    }
}

/// The special-purpose IPv4 prefixes of the IANA registries. All other addresses are public.
const IPV4_PREFIXES: [([u8; 4], u32, AddressClass); 14] = [
    ([127, 0, 0, 0], 8, AddressClass::Own),
    ([169, 254, 0, 0], 16, AddressClass::LinkLocal),
    ([10, 0, 0, 0], 8, AddressClass::Private),
    ([172, 16, 0, 0], 12, AddressClass::Private),
    ([192, 168, 0, 0], 16, AddressClass::Private),
    ([100, 64, 0, 0], 10, AddressClass::Private),
    ([192, 0, 2, 0], 24, AddressClass::Private),
    ([198, 18, 0, 0], 15, AddressClass::Private),
    ([198, 51, 100, 0], 24, AddressClass::Private),
    ([203, 0, 113, 0], 24, AddressClass::Private),
    ([0, 0, 0, 0], 8, AddressClass::Unusable),
    ([192, 0, 0, 0], 24, AddressClass::Unusable),
    ([192, 88, 99, 0], 24, AddressClass::Unusable),
    ([224, 0, 0, 0], 3, AddressClass::Unusable),
];

/// The IPv6 prefixes of the IANA registries with their classes, by their first three segments. The first match decides;
/// other addresses are unusable.
const IPV6_PREFIXES: [([u16; 3], u32, AddressClass); 9] = [
    ([0xfe80, 0, 0], 10, AddressClass::LinkLocal),
    ([0xfc00, 0, 0], 7, AddressClass::Private),
    // Site-local, deprecated by RFC 3879.
    ([0xfec0, 0, 0], 10, AddressClass::Private),
    // Local-use translation to IPv4 (RFC 8215).
    ([0x64, 0xff9b, 1], 48, AddressClass::Private),
    ([0x2001, 0xdb8, 0], 32, AddressClass::Private),
    ([0x3fff, 0, 0], 20, AddressClass::Private),
    // Teredo and other IETF protocol assignments.
    ([0x2001, 0, 0], 23, AddressClass::Unusable),
    // 6to4.
    ([0x2002, 0, 0], 16, AddressClass::Unusable),
    ([0x2000, 0, 0], 3, AddressClass::Public),
];

fn classify_ipv4(address: Ipv4Addr) -> AddressClass {
    let mut found = IPV4_PREFIXES.iter().filter(|(prefix, length, _)| {
        let mask = u32::MAX << (32 - length);
        address.to_bits() & mask == u32::from_be_bytes(*prefix)
    });
    found
        .next()
        .map_or(AddressClass::Public, |(.., class)| *class)
}

fn classify_ipv6(address: Ipv6Addr) -> AddressClass {
    if address == Ipv6Addr::LOCALHOST {
        return AddressClass::Own;
    }
    if let [0x64, 0xff9b, 0, 0, 0, 0, _, _] = address.segments() {
        // The well-known prefix for translation to IPv4 (RFC 6052): the last four bytes hold the IPv4 address.
        let [.., a, b, c, d] = address.octets();
        return AddressClass::of(Ipv4Addr::new(a, b, c, d).into());
    }
    let mut found = IPV6_PREFIXES.iter().filter(|([a, b, c], length, _)| {
        let mask = u128::MAX << (128 - length);
        address.to_bits() & mask == Ipv6Addr::new(*a, *b, *c, 0, 0, 0, 0, 0).to_bits()
    });
    found
        .next()
        .map_or(AddressClass::Unusable, |(.., class)| *class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> AddressClass {
        AddressClass::of(text.parse().expect("an address"))
    }

    #[test]
    fn addresses_are_classified_in_every_notation() {
        let table = [
            (
                AddressClass::Public,
                "1.1.1.1 8.8.8.8 172.15.0.1 172.32.0.1 100.63.0.1 100.128.0.1 223.255.255.255",
            ),
            (
                AddressClass::Public,
                "2606:4700::1111 2a00:1450::1 64:ff9b::808:808 ::ffff:8.8.8.8",
            ),
            (
                AddressClass::Private,
                "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 100.127.255.255",
            ),
            (
                AddressClass::Private,
                "fc00::1 fd12::1 fec0::1 ::ffff:10.0.0.1 64:ff9b::a00:1 64:ff9b:1::808:808",
            ),
            (
                AddressClass::Own,
                "127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 64:ff9b::7f00:1",
            ),
            (
                AddressClass::LinkLocal,
                "169.254.1.1 fe80::1 febf::1 ::ffff:169.254.1.1 64:ff9b::a9fe:101",
            ),
            (
                AddressClass::Metadata,
                "169.254.169.254 169.254.170.2 100.100.100.200 168.63.129.16 192.0.0.192",
            ),
            (
                AddressClass::Metadata,
                "fd00:ec2::254 fd20:ce::254 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe",
            ),
            (
                AddressClass::Unusable,
                "0.0.0.0 0.1.2.3 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 192.0.0.1",
            ),
            (
                AddressClass::Private,
                "192.0.2.1 198.51.100.1 203.0.113.1 198.18.0.1 198.19.255.255 2001:db8::1 3fff::1",
            ),
            (
                AddressClass::Unusable,
                "192.88.99.1 :: ff02::1 2002:7f00:1:: 2002:808:808:: 2001::1",
            ),
            // Deprecated IPv4-compatible notation, and reserved ranges.
            (
                AddressClass::Unusable,
                "::127.0.0.1 ::8.8.8.8 100::1 5f00::1",
            ),
        ];
        for (expected, addresses) in table {
            for address in addresses.split(' ') {
                assert_eq!(class(address), expected, "{address}");
            }
        }
    }

    #[test]
    fn metadata_services_need_an_address_in_the_policy() {
        use AddressClass as C;
        let allowed = |reach, named| {
            let classes = [
                C::Public,
                C::Private,
                C::Own,
                C::LinkLocal,
                C::Metadata,
                C::Unusable,
            ];
            classes.map(|class| class.is_allowed(reach, named))
        };
        let public = [true, false, false, false, false, false];
        assert_eq!(allowed(Reach::Public, false), public);
        assert_eq!(allowed(Reach::Public, true), public);
        assert_eq!(
            allowed(Reach::Private, false),
            [true, true, true, false, false, false]
        );
        assert_eq!(
            allowed(Reach::Private, true),
            [true, true, true, true, true, false]
        );
    }
}
