//! Runs every corpus input through its target, so that fixed errors stay fixed.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fuzz_targets::TARGETS;

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus")
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
