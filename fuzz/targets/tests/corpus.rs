//! Runs every corpus input through its target, so that fixed errors stay fixed.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fuzz_targets::engine::read;
use fuzz_targets::{Behaviour, TARGETS};

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus")
}

#[test]
fn every_kept_input_holds() {
    for target in TARGETS {
        let kept = read(&corpora().join(target.name)).unwrap();
        let answers: BTreeSet<Behaviour> = kept
            .iter()
            .map(|input| {
                println!("{}", input.path.display());
                (target.run)(&input.bytes)
            })
            .collect();
        let name = target.name;
        let taken = answers.iter().filter(|answer| answer.is_taken()).count();
        // A corpus of which no input, or every input, is accepted is of little use.
        assert!(taken >= 2, "{name}: {taken} ways of being taken");
        assert!(answers.len() > taken, "{name}: nothing is refused");
    }
}

#[test]
fn each_corpus_and_each_entry_of_cargo_fuzz_has_a_target() {
    let names = |directory: PathBuf, end: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| name.strip_suffix(end).map(str::to_owned))
            .collect()
    };
    let targets: BTreeSet<String> = TARGETS.iter().map(|it| it.name.to_owned()).collect();
    assert_eq!(names(corpora(), ""), targets);
    assert_eq!(names(corpora().join("../fuzz_targets"), ".rs"), targets);
}

#[test]
fn the_corpus_is_small() {
    for target in TARGETS {
        let kept = read(&corpora().join(target.name)).unwrap();
        let bytes: usize = kept.iter().map(|input| input.bytes.len()).sum();
        assert!(
            kept.len() <= 120 && bytes < 200_000,
            "{}: {} inputs of {bytes} bytes",
            target.name,
            kept.len()
        );
    }
}
