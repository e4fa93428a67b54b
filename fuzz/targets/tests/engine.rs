//! The engine finds a planted error, and the comparison of filters detects a wrong filter.
#![allow(clippy::unwrap_used)]

use std::fs;

use fuzz_targets::engine::{Failure, Session, Tried, Until, read};
use fuzz_targets::{Behaviour, Target, difference};
use sandfork::plan::seccomp::Filters;

/// Fails on a word of its dictionary followed by a boundary number.
const PLANTED: Target = Target {
    name: "planted",
    about: "",
    run: |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Some((_, number)) = text.split_once("length=") else {
            return Behaviour::refused("no length");
        };
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        assert_ne!(digits, "4294967296", "the length is one too many");
        Behaviour::taken("a length")
    },
    words: &["length="],
    inputs: 0,
};

fn session(
    target: &Target,
    inputs: u64,
    files: &[&[u8]],
) -> (tempfile::TempDir, Result<Tried, Failure>) {
    let place = tempfile::tempdir().unwrap();
    let corpus = place.path().join("corpus");
    fs::create_dir(&corpus).unwrap();
    for (number, bytes) in files.iter().enumerate() {
        fs::write(corpus.join(number.to_string()), bytes).unwrap();
    }
    let done = Session {
        target,
        seed: 1,
        until: Until::Inputs(inputs),
        corpus: &corpus,
        artifacts: &place.path().join("artifacts"),
        keep: None,
    }
    .run();
    (place, done)
}

#[test]
fn a_planted_fault_is_found_and_its_input_kept() {
    let (_place, done) = session(&PLANTED, 200_000, &[b"number 7"]);
    let Err(Failure::Broken(path)) = done else {
        panic!("it was not found: {done:?}");
    };
    let input = fs::read(path).unwrap();
    let again = std::panic::catch_unwind(|| (PLANTED.run)(&input));
    assert!(
        again.is_err(),
        "the file does not hold the input that broke it"
    );
}

#[test]
fn a_seed_decides_every_input() {
    let run = || {
        session(
            Target::find("tasks").unwrap(),
            300,
            &[br#"{"id": 1, "code": "x"}"#],
        )
        .1
    };
    assert_eq!(run().unwrap(), run().unwrap());
}

#[test]
fn nothing_stays_where_nothing_broke() {
    let (place, done) = session(Target::find("blobs").unwrap(), 100, &[]);
    assert_eq!(done.unwrap().made, 100);
    assert_eq!(read(&place.path().join("artifacts")).unwrap(), []);
}

/// Inverts the nth branch.
fn spoil(filters: &mut Filters, nth: usize) -> bool {
    let programs = filters.zygote.iter_mut().chain(&mut filters.worker);
    let branches = programs
        .flatten()
        .filter(|it| matches!(it.0, 0x15 | 0x35) && it.1 != it.2);
    branches
        .skip(nth)
        .take(1)
        .map(|it| std::mem::swap(&mut it.1, &mut it.2))
        .count()
        == 1
}

/// Every inverted branch of the filters is detected by some of the calls that these bytes stand
/// for.
#[test]
fn a_wrong_filter_is_seen() {
    let mut state = 1u32;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    })
    .take(600_000)
    .collect();
    let honest = difference(bytes.chunks(1500), |_| {});
    assert!(honest.is_none(), "{honest:?}");
    let mut nth = 0;
    loop {
        let mut spoiled = true;
        let seen = difference(bytes.chunks(1500), |filters| spoiled = spoil(filters, nth));
        if !spoiled {
            break;
        }
        assert!(seen.is_some(), "branch {nth} turned round is not seen");
        nth += 1;
    }
    assert!(nth > 100, "only {nth} branches");
}
