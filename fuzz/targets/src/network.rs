//! What guests, hosts and resolvers send to the egress process: one byte more or less does not change what was
//! parsed, and a name has one form. The first byte selects the parser.

use std::str;

use sandfork_egress::dns::{self, Answer, Query, RecordKind, Reply};
use sandfork_egress::hello::{self, Hello};
use sandfork_egress::host::{Authority, Host, HostPattern};
use sandfork_egress::path::{PathPattern, plain};
use sandfork_egress::socks::{self, Read};

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "network",
    run,
    inputs: 80_000,
};

fn run(bytes: &[u8]) -> bool {
    let Some((&reader, bytes)) = bytes.split_first() else {
        return false;
    };
    match reader % 6 {
        0 => query(bytes),
        1 => answer(bytes),
        2 => hello(bytes),
        3 => socks(bytes),
        4 => str::from_utf8(bytes).is_ok_and(host),
        _ => str::from_utf8(bytes).is_ok_and(path),
    }
}

/// The reply to a guest answers its query, as another parser reads it.
fn query(bytes: &[u8]) -> bool {
    let Some(query) = Query::read(bytes) else {
        return false;
    };
    if let Some(name) = &query.name {
        assert_eq!(name.parse(), Ok(Host::Name(name.clone())));
        let answered = query.answer(Reply::NoName);
        let kind = if query.asks_address {
            RecordKind::A
        } else {
            RecordKind::Aaaa
        };
        let id = u16::from_be_bytes([bytes[0], bytes[1]]);
        let asked = dns::question(id, name, kind).expect("a name");
        if query.asks_address {
            assert_eq!(dns::answer(&asked, &answered), Some(Answer::NoName));
        }
    }
    true
}

/// The reply to one query contains no more addresses than fit into it.
fn answer(bytes: &[u8]) -> bool {
    let asked = dns::question(0x6162, "a.example", RecordKind::A).expect("a name");
    match dns::answer(&asked, bytes) {
        Some(Answer::Addresses(addresses)) => {
            assert!(addresses.len() * 15 <= bytes.len());
            true
        }
        other => other.is_some(),
    }
}

/// A complete message keeps its meaning with more bytes, and is incomplete with fewer.
fn hello(bytes: &[u8]) -> bool {
    let whole = hello::read(bytes);
    let is_whole = matches!(whole, Hello::Names(_) | Hello::Encrypted);
    if is_whole {
        let longer = [bytes, &[22, 3, 3, 0, 1]].concat();
        assert_eq!(hello::read(&longer), whole);
        let shorter = (0..bytes.len()).map(|end| hello::read(&bytes[..end]));
        let mut changes = shorter.skip_while(|it| *it == Hello::Incomplete);
        assert!(changes.all(|it| it == whole), "a prefix means another host");
    }
    is_whole
}

/// The same for SOCKS messages.
fn socks(bytes: &[u8]) -> bool {
    fn check<T: PartialEq>(bytes: &[u8], read: fn(&[u8]) -> Read<T>) -> bool {
        let Read::Message(message, length) = read(bytes) else {
            return false;
        };
        assert!(length <= bytes.len() && length <= socks::MAX_BYTES);
        assert!(read(&bytes[..length]) == Read::Message(message, length));
        let mut shorter = (0..length).map(|end| read(&bytes[..end]));
        assert!(shorter.all(|it| it == Read::Incomplete));
        true
    }
    check(bytes, socks::greeting) | check(bytes, socks::request)
}

/// A host, an authority or a pattern is formatted such that it parses to the same value.
fn host(text: &str) -> bool {
    let host: Option<Host> = text.parse().ok();
    if let Some(host) = &host {
        assert_eq!(host.to_string().parse().as_ref(), Ok(host));
        assert!(HostPattern::Exactly(host.clone()).matches(host));
    }
    if let Ok(Authority { host: own, port }) = text.parse() {
        let suffix = port.map_or_else(String::new, |_| {
            text[text.rfind(':').expect("a colon")..].to_owned()
        });
        let before = text.strip_suffix(&suffix).expect("it ends in its port");
        assert_eq!(before.parse(), Ok(own));
    }
    if let Ok(pattern) = text.parse::<HostPattern>() {
        assert_eq!(pattern.to_string().parse(), Ok(pattern));
    }
    host.is_some()
}

/// A plain path has no `.` or `..` segment, and matches itself as a pattern.
fn path(text: &str) -> bool {
    if let Ok(pattern) = text.parse::<PathPattern>() {
        assert!(pattern.matches(&pattern.to_string()));
    }
    let Ok(path) = plain(text) else { return false };
    assert!(path.split('/').all(|it| it != ".." && it != "."));
    assert!(!path.contains(['\\', '\0', '\r', '\n']) && !path.contains("//"));
    true
}
