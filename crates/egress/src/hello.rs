//! Parses the TLS ClientHello and extracts the host that the client names (RFC 8446, 4.1.2; RFC 6066, 3).

use crate::host::Host;

/// The maximum number of bytes that a client may send before its ClientHello is complete.
pub const MAX_BYTES: usize = 32 * 1024;

/// The maximum number of records that the message may be split into. All are parsed again whenever bytes arrive.
const MAX_RECORDS: usize = 16;

/// The first byte of a TLS connection: the type of a handshake record.
pub const FIRST_BYTE: u8 = 22;

const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const ENCRYPTED_HELLO: u16 = 0xfe0d;

/// The result of parsing the start of a TLS connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Hello {
    /// More bytes are needed.
    Incomplete,
    /// The server name (SNI), or `None` if the client sends none.
    Names(Option<Host>),
    /// The ClientHello carries an encrypted ClientHello (ECH).
    Encrypted,
    /// The bytes violate the protocol, or are ambiguous.
    Malformed,
}

/// Parses the bytes that a client has sent so far.
pub fn read(bytes: &[u8]) -> Hello {
    let mut message = Vec::new();
    let mut rest = bytes;
    // One message may be split into several records.
    for _ in 0..=MAX_RECORDS {
        if let Some(length) = message_length(&message)
            && message.len() >= length
        {
            return body(&message[4..length]).unwrap_or(Hello::Malformed);
        }
        let header = rest.first_chunk::<5>();
        let Some([kind, 3, _, high, low]) = header else {
            let begins_well = rest.first().is_none_or(|it| *it == FIRST_BYTE)
                && rest.get(1).is_none_or(|it| *it == 3);
            return if header.is_none() && begins_well && bytes.len() < MAX_BYTES {
                Hello::Incomplete
            } else {
                Hello::Malformed
            };
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if *kind != FIRST_BYTE || length == 0 {
            return Hello::Malformed;
        }
        match rest[5..].split_at_checked(length) {
            Some((fragment, others)) => {
                message.extend(fragment);
                rest = others;
            }
            None if bytes.len() < MAX_BYTES => return Hello::Incomplete,
            None => return Hello::Malformed,
        }
        let is_another = message.first().is_some_and(|it| *it != CLIENT_HELLO);
        if is_another || message_length(&message).is_some_and(|length| length > MAX_BYTES) {
            return Hello::Malformed;
        }
    }
    Hello::Malformed
}

/// Returns the length of a handshake message including its header, once the header is complete.
fn message_length(message: &[u8]) -> Option<usize> {
    let [_, a, b, c] = *message.first_chunk()?;
    Some(4 + (usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)))
}

/// Parses the message without its header. Returns `None` if it is malformed.
fn body(message: &[u8]) -> Option<Hello> {
    let mut reader = Reader(message);
    // The version and the random.
    reader.take(2 + 32)?;
    let session = reader.u8()?;
    reader.take(session.into())?;
    let suites = reader.u16()?;
    reader.take(suites.into())?;
    let compressions = reader.u8()?;
    reader.take(compressions.into())?;
    if reader.0.is_empty() {
        return Some(Hello::Names(None));
    }
    let length = reader.u16()?;
    let mut extensions = Reader(reader.take(length.into())?);
    if !reader.0.is_empty() {
        return None;
    }
    let (mut named, mut encrypted) = (None, false);
    while !extensions.0.is_empty() {
        let (kind, length) = (extensions.u16()?, extensions.u16()?);
        let data = extensions.take(length.into())?;
        match kind {
            SERVER_NAME if named.is_some() => return None,
            SERVER_NAME => named = Some(server_name(data)?),
            ENCRYPTED_HELLO => encrypted = true,
            _ => {}
        }
    }
    Some(if encrypted {
        Hello::Encrypted
    } else {
        Hello::Names(named)
    })
}

/// Parses a list of exactly one name. Returns `None` for anything else, which servers could interpret differently.
fn server_name(data: &[u8]) -> Option<Host> {
    let mut list = Reader(data);
    let length = list.u16()?;
    let (kind, name_length) = (list.u8()?, list.u16()?);
    let name = list.take(name_length.into())?;
    let is_one_name = kind == 0 && usize::from(length) == 3 + name.len() && list.0.is_empty();
    let name = std::str::from_utf8(name).ok().filter(|_| is_one_name)?;
    name.parse().ok()
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)
            .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(data.len()).expect("short");
        [&kind.to_be_bytes()[..], &length.to_be_bytes(), data].concat()
    }

    fn name(name: &str) -> Vec<u8> {
        let length = u16::try_from(name.len()).expect("short");
        let list = (length + 3).to_be_bytes();
        let data = [&list[..], &[0], &length.to_be_bytes(), name.as_bytes()].concat();
        extension(SERVER_NAME, &data)
    }

    /// Builds a ClientHello with these extensions.
    fn hello(extensions: &[u8]) -> Vec<u8> {
        let length = u16::try_from(extensions.len()).expect("short");
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[1, 9],
            &[0, 2, 0x13, 1],
            &[1, 0],
            &length.to_be_bytes(),
            extensions,
        ]
        .concat();
        let length = u32::try_from(body.len()).expect("short").to_be_bytes();
        [&[CLIENT_HELLO][..], &length[1..], &body].concat()
    }

    fn record(fragment: &[u8]) -> Vec<u8> {
        let length = u16::try_from(fragment.len()).expect("short");
        [&[FIRST_BYTE, 3, 1], &length.to_be_bytes()[..], fragment].concat()
    }

    #[test]
    fn name_is_found_once_the_message_is_complete() {
        let message = hello(&[extension(10, &[1, 2]), name("A.example")].concat());
        let whole = record(&message);
        let named = Hello::Names(Some("a.example".parse().expect("a name")));
        assert_eq!(read(&whole), named);
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length]), Hello::Incomplete, "{length}");
        }
        let in_two = [record(&message[..3]), record(&message[3..])].concat();
        assert_eq!(read(&in_two), named);
        assert_eq!(read(&[whole, vec![1, 2, 3]].concat()), named);
        assert_eq!(read(&record(&hello(&[]))), Hello::Names(None));
    }

    #[test]
    fn message_split_into_too_many_records_is_malformed() {
        let message = hello(&name("a.example"));
        let split = |records: usize| {
            let (ends, rest) = message.split_at(records - 1);
            let ends = ends.iter().map(|byte| record(&[*byte]));
            ends.chain([record(rest)]).collect::<Vec<_>>().concat()
        };
        let named = Hello::Names(Some("a.example".parse().expect("a name")));
        assert_eq!(read(&split(MAX_RECORDS)), named);
        assert_eq!(read(&split(MAX_RECORDS + 2)), Hello::Malformed);
    }

    #[test]
    fn encrypted_hello_is_detected() {
        let both = [name("a.example"), extension(ENCRYPTED_HELLO, &[0; 9])].concat();
        assert_eq!(read(&record(&hello(&both))), Hello::Encrypted);
    }

    #[test]
    fn ambiguous_name_is_malformed() {
        let twice = [name("a.example"), name("b.example")].concat();
        let mut longer = name("a.example");
        longer.push(0);
        let mut two_in_list = name("a.example");
        two_in_list[5] -= 1;
        for extensions in [
            twice,
            longer,
            two_in_list,
            name("a b"),
            name(""),
            name("a\0.example"),
            name("2130706433"),
            extension(SERVER_NAME, &[0, 0]),
        ] {
            let bytes = record(&hello(&extensions));
            assert_eq!(read(&bytes), Hello::Malformed, "{extensions:?}");
        }
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            &[FIRST_BYTE, 2, 0, 0, 1],
            &[FIRST_BYTE, 3, 1, 0, 0],
            &record(&[2, 0, 0, 0]),
            &record(&[CLIENT_HELLO, 1, 0, 0]),
            &record(&[CLIENT_HELLO, 0, 0, 2, 3, 3]),
        ] {
            assert_eq!(read(bytes), Hello::Malformed, "{bytes:?}");
        }
        // A client that never completes its message.
        let record = record(&[&[CLIENT_HELLO, 0, 0xff, 0xff][..], &[0; 1000]].concat());
        assert_eq!(read(&record), Hello::Malformed);
        let mut slow = self::record(&[CLIENT_HELLO, 0, 0x7f, 0]);
        while slow.len() < MAX_BYTES {
            slow.extend(self::record(&[0]));
        }
        assert_eq!(read(&slow), Hello::Malformed);
    }
}
