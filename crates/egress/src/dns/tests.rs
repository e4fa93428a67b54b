use super::*;

#[test]
fn query_gets_each_kind_of_reply() {
    let message = question(7, "Files.PyPI.org", RecordKind::A).expect("a name");
    let query = Query::read(&message).expect("a query");
    assert_eq!(query.name.as_deref(), Some("files.pypi.org"));
    assert!(query.asks_address);
    let address = Ipv4Addr::new(127, 1, 0, 9);
    let reply = query.answer(Reply::Address(address));
    let expected = Answer::Addresses(vec![address.into()]);
    assert_eq!(answer(&message, &reply), Some(expected));
    for (reply, expected) in [
        (Reply::Nothing, Answer::Addresses(vec![])),
        (Reply::NoName, Answer::NoName),
        (Reply::Failure, Answer::Failure),
    ] {
        assert_eq!(answer(&message, &query.answer(reply)), Some(expected));
    }
    let other = question(7, "a.b", RecordKind::Aaaa).expect("a name");
    assert!(!Query::read(&other).expect("a query").asks_address);
}

#[test]
fn malformed_query_gets_no_reply() {
    let good = question(7, "a.example", RecordKind::A).expect("a name");
    for length in 0..good.len() {
        assert_eq!(Query::read(&good[..length]), None, "{length}");
    }
    let changed = |position: usize, value: u8| {
        let mut message = good.clone();
        message[position] = value;
        message
    };
    // A response, another opcode, two questions, a pointer, a reserved length.
    for (position, value) in [(2, 0x80), (2, 0x10), (5, 2), (12, 0xc0), (12, 0x40)] {
        assert_eq!(Query::read(&changed(position, value)), None, "{position}");
    }
    // A label with a dot in it must not pass for a name of two labels.
    let dotted = Query::read(&changed(13, b'.')).map(|query| query.name);
    assert_eq!(dotted, Some(None));
    // Another class.
    let chaos = changed(good.len() - 1, 3);
    assert_eq!(Query::read(&chaos).map(|query| query.name), Some(None));
}

/// Builds a response: the question, then records of name, type and data.
fn response(asked: &[u8], records: &[(&[u8], u16, &[u8])]) -> Vec<u8> {
    let mut message = asked.to_vec();
    message[2] = 0x81;
    let count = u16::try_from(records.len()).expect("few").to_be_bytes();
    message[6..8].copy_from_slice(&count);
    for (name, kind, data) in records {
        message.extend(*name);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1, 0, 0, 0, 9]);
        message.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
        message.extend(*data);
    }
    message
}

#[test]
fn addresses_of_aliases_are_returned_and_no_others() {
    let asked = question(9, "a.example", RecordKind::A).expect("a name");
    let (own, alias) = (b"\xc0\x0c".as_slice(), b"\x01b\xc0\x0e".as_slice());
    let first = Ipv4Addr::new(192, 0, 2, 1);
    let second = Ipv4Addr::new(192, 0, 2, 2);
    let records = [
        (own, ALIAS, alias),
        (alias, 1, &first.octets()),
        // Ignored: a record of the alias's owner, one of another type, one of another name.
        (own, 1, &second.octets()),
        (alias, 28, &[0; 16]),
        (b"\x01c\xc0\x0e", 1, &second.octets()),
    ];
    let expected = Answer::Addresses(vec![first.into()]);
    assert_eq!(answer(&asked, &response(&asked, &records)), Some(expected));
}

/// The owner of a name chooses how many records a reply has.
#[test]
fn only_the_first_records_of_a_reply_are_parsed() {
    let asked = question(9, "a.example", RecordKind::A).expect("a name");
    let own = b"\xc0\x0c".as_slice();
    let most = usize::from(MAX_RECORDS);
    let mut records = vec![(own, 1, &[192, 0, 2, 1][..]); 4000];
    let read = |records: &[(&[u8], u16, &[u8])]| answer(&asked, &response(&asked, records));
    let first: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
    let expected = Answer::Addresses(vec![first; most]);
    assert_eq!(read(&records), Some(expected.clone()));
    // The records after the limit are not parsed.
    records[most] = (&[0xff], 1, &[]);
    assert_eq!(read(&records), Some(expected));
    records[most - 1] = (&[0xff], 1, &[]);
    assert_eq!(read(&records), Some(Answer::Failure));
    // Records of other types count towards the limit.
    let mut others = vec![(own, 16, &[][..]); most];
    others.push((own, 1, &[192, 0, 2, 1]));
    assert_eq!(read(&others), Some(Answer::Addresses(vec![])));
    assert_eq!(read(&others[1..]), Some(Answer::Addresses(vec![first])));
}

#[test]
fn forged_answer_is_ignored() {
    let asked = question(9, "a.example", RecordKind::A).expect("a name");
    let good = response(&asked, &[(b"\xc0\x0c", 1, &[1, 2, 3, 4])]);
    assert!(matches!(answer(&asked, &good), Some(Answer::Addresses(_))));
    let other_id = question(8, "a.example", RecordKind::A).expect("a name");
    let other_name = question(9, "b.example", RecordKind::A).expect("a name");
    let other_kind = question(9, "a.example", RecordKind::Aaaa).expect("a name");
    for other in [other_id, other_name, other_kind] {
        assert_eq!(answer(&other, &good), None);
    }
    // The query itself is not a reply.
    assert_eq!(answer(&asked, &asked), None);
}

#[test]
fn truncated_or_looping_answer_is_rejected() {
    let asked = question(9, "a.example", RecordKind::A).expect("a name");
    let good = response(&asked, &[(b"\xc0\x0c", 1, &[1, 2, 3, 4])]);
    for length in 0..good.len() {
        let cut = answer(&asked, &good[..length]);
        assert!(matches!(cut, None | Some(Answer::Failure)), "{length}");
    }
    // A pointer to itself.
    let position = u8::try_from(asked.len()).expect("short");
    let looping = response(&asked, &[(&[0xc0, position], 1, &[1, 2, 3, 4])]);
    assert_eq!(answer(&asked, &looping), Some(Answer::Failure));
    let mut truncated = good;
    truncated[2] |= 0x02;
    assert_eq!(answer(&asked, &truncated), Some(Answer::Truncated));
}
