//! Parses and encodes DNS messages (RFC 1035) of guests and of the host's resolvers.
//!
//! Both peers are hostile. A message is parsed in one forward pass, and only as far as the fields that are needed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::host::Host;

/// The maximum size in bytes of a UDP message without EDNS.
pub const MAX_BYTES: usize = 512;

/// The TTL of replies to guests, in seconds. The address belongs to the name for the lifetime of the guest.
const TIME_TO_LIVE: u32 = 60;

const HEADER: usize = 12;
/// A compression pointer to the name in the question section.
const NAME_OF_QUESTION: [u8; 2] = [0xc0, 12];
const CLASS_INTERNET: u16 = 1;
/// The maximum number of compression pointers in a row.
const MAX_POINTERS: usize = 16;
/// The maximum number of aliases (CNAME) from a name to its addresses.
const MAX_ALIASES: usize = 16;
/// The maximum number of answer records that are parsed: the aliases, and more addresses than any host needs. A reply
/// over TCP has room for thousands of records, each with a name of many labels.
const MAX_RECORDS: u16 = 80;

// Header flags, in the third and fourth byte.
const RESPONSE: u16 = 1 << 15;
const OPCODE: u16 = 0xf << 11;
const TRUNCATED: u16 = 1 << 9;
const RECURSION_DESIRED: u16 = 1 << 8;
const RECURSION_AVAILABLE: u16 = 1 << 7;
const CODE: u16 = 0xf;

/// The type of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u16)]
pub enum RecordKind {
    /// An IPv4 address.
    A = 1,
    /// An IPv6 address.
    Aaaa = 28,
}

const ALIAS: u16 = 5;

/// A query from a guest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Query<'a> {
    /// The queried name, or `None` if it is not a host name.
    pub name: Option<String>,
    /// Whether the query is for an IPv4 address.
    pub asks_address: bool,
    id: u16,
    flags: u16,
    /// The question section, as received.
    question: &'a [u8],
}

/// A reply to a guest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reply {
    /// The name has this address.
    Address(Ipv4Addr),
    /// The name exists but has no record of the queried type.
    Nothing,
    /// The name does not exist.
    NoName,
    /// The resolver cannot answer.
    Failure,
}

impl<'a> Query<'a> {
    /// Parses a query with one question. Returns `None` for everything else, which gets no reply.
    pub fn read(message: &'a [u8]) -> Option<Self> {
        let mut reader = Reader {
            message,
            position: 0,
        };
        let (id, flags) = (reader.u16()?, reader.u16()?);
        let questions = reader.u16()?;
        if flags & (RESPONSE | OPCODE) != 0 || questions != 1 {
            return None;
        }
        reader.skip(HEADER - 6)?;
        let name = reader.name(Pointers::Refused)?;
        let (kind, class) = (reader.u16()?, reader.u16()?);
        let is_internet = class == CLASS_INTERNET;
        let host = name.parse::<Host>().ok().filter(|_| is_internet);
        Some(Self {
            name: match host {
                Some(Host::Name(name)) => Some(name),
                _ => None,
            },
            asks_address: kind == RecordKind::A as u16,
            id,
            flags,
            question: &message[HEADER..reader.position],
        })
    }

    /// Encodes the reply message.
    pub fn answer(&self, reply: Reply) -> Vec<u8> {
        let (code, address) = match reply {
            Reply::Address(address) => (0, Some(address)),
            Reply::Nothing => (0, None),
            Reply::NoName => (3, None),
            Reply::Failure => (2, None),
        };
        let flags = RESPONSE | RECURSION_AVAILABLE | (self.flags & RECURSION_DESIRED) | code;
        let mut message = Vec::with_capacity(HEADER + self.question.len() + 16);
        for number in [self.id, flags, 1, u16::from(address.is_some()), 0, 0] {
            message.extend(number.to_be_bytes());
        }
        message.extend(self.question);
        if let Some(address) = address {
            message.extend(NAME_OF_QUESTION);
            message.extend((RecordKind::A as u16).to_be_bytes());
            message.extend(CLASS_INTERNET.to_be_bytes());
            message.extend(TIME_TO_LIVE.to_be_bytes());
            message.extend(4_u16.to_be_bytes());
            message.extend(address.octets());
        }
        message
    }
}

/// Encodes a query to a resolver. Returns `None` if the name cannot be encoded.
pub fn question(id: u16, name: &str, kind: RecordKind) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(HEADER + name.len() + 6);
    for number in [id, RECURSION_DESIRED, 1, 0, 0, 0] {
        message.extend(number.to_be_bytes());
    }
    for label in name.split('.') {
        let length = u8::try_from(label.len())
            .ok()
            .filter(|it| (1..64).contains(it))?;
        message.push(length);
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend((kind as u16).to_be_bytes());
    message.extend(CLASS_INTERNET.to_be_bytes());
    Some(message)
}

/// The reply of a resolver.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// The addresses of the name; empty if it has no record of the queried type.
    Addresses(Vec<IpAddr>),
    /// The name does not exist.
    NoName,
    /// The reply was truncated: retry over TCP.
    Truncated,
    /// The resolver reported a failure, or its reply is malformed.
    Failure,
}

/// Parses the reply to a query that [`question`] encoded. Returns `None` if the message answers a different query.
pub fn answer(asked: &[u8], message: &[u8]) -> Option<Answer> {
    let mut reader = Reader {
        message,
        position: 0,
    };
    let (id, flags) = (reader.u16()?, reader.u16()?);
    let (questions, answers) = (reader.u16()?, reader.u16()?);
    reader.skip(4)?;
    let is_ours = asked.get(..2) == Some(&id.to_be_bytes()) && flags & RESPONSE != 0;
    if !is_ours || questions != 1 {
        return None;
    }
    let name = reader.name(Pointers::Followed)?.to_ascii_lowercase();
    let mut own = Reader {
        message: asked,
        position: HEADER,
    };
    let asked_name = own.name(Pointers::Refused)?.to_ascii_lowercase();
    let kind = own.u16()?;
    if name != asked_name || reader.u16()? != kind || reader.u16()? != CLASS_INTERNET {
        return None;
    }
    Some(match flags & CODE {
        _ if flags & TRUNCATED != 0 => Answer::Truncated,
        0 => match addresses(&mut reader, answers, name, kind) {
            Some(addresses) => Answer::Addresses(addresses),
            None => Answer::Failure,
        },
        3 => Answer::NoName,
        _ => Answer::Failure,
    })
}

/// Returns the addresses of a name or of the names that it is an alias of, from the first records of a reply. Only
/// aliases that precede their target are followed.
fn addresses(
    reader: &mut Reader,
    answers: u16,
    mut name: String,
    wanted: u16,
) -> Option<Vec<IpAddr>> {
    let mut found = Vec::new();
    let mut aliases = 0;
    for _ in 0..answers.min(MAX_RECORDS) {
        let owner = reader.name(Pointers::Followed)?.to_ascii_lowercase();
        let (kind, class) = (reader.u16()?, reader.u16()?);
        reader.skip(4)?;
        let length = usize::from(reader.u16()?);
        let data = reader.position..reader.position.checked_add(length)?;
        let bytes = reader.message.get(data.clone())?;
        if owner == name && class == CLASS_INTERNET {
            if kind == ALIAS {
                let mut target = Reader {
                    message: reader.message,
                    position: data.start,
                };
                name = target.name(Pointers::Followed)?.to_ascii_lowercase();
                aliases += 1;
                if aliases > MAX_ALIASES {
                    return None;
                }
            } else if kind == wanted {
                found.push(match *bytes {
                    [a, b, c, d] => Ipv4Addr::new(a, b, c, d).into(),
                    _ => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into(),
                });
            }
        }
        reader.position = data.end;
    }
    Some(found)
}

/// Whether a name may contain compression pointers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Pointers {
    Followed,
    Refused,
}

/// Reads a message forward from a position.
struct Reader<'a> {
    message: &'a [u8],
    position: usize,
}

impl Reader<'_> {
    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.position = self.position.checked_add(bytes)?;
        (self.position <= self.message.len()).then_some(())
    }

    fn u8(&mut self) -> Option<u8> {
        let byte = *self.message.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    /// Reads the name at the current position and joins its labels with dots. Within a label, dots and bytes that
    /// are not printable ASCII become `?`, which no host name contains.
    fn name(&mut self, pointers: Pointers) -> Option<String> {
        let mut name = String::new();
        let mut end = None;
        let mut followed = 0;
        loop {
            let length = self.u8()?;
            match length {
                0 => break,
                1..=63 => {
                    let start = self.position;
                    self.skip(usize::from(length))?;
                    if name.len() + usize::from(length) > 255 {
                        return None;
                    }
                    if !name.is_empty() {
                        name.push('.');
                    }
                    let plain = |byte: &u8| match byte {
                        b'!'..=b'-' | b'/'..=b'~' => char::from(*byte),
                        _ => '?',
                    };
                    name.extend(self.message[start..self.position].iter().map(plain));
                }
                0xc0.. if pointers == Pointers::Followed && followed < MAX_POINTERS => {
                    let target = usize::from(length & 0x3f) << 8 | usize::from(self.u8()?);
                    end.get_or_insert(self.position);
                    self.position = target;
                    followed += 1;
                }
                _ => return None,
            }
        }
        if let Some(end) = end {
            self.position = end;
        }
        Some(name)
    }
}

#[cfg(test)]
mod tests;
