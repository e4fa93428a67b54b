//! Tests that every file is accepted or rejected with a location, and that none causes a panic.

use proptest::prelude::*;
use proptest::sample::Index;
use sandfork::Override;

use crate::support::{load, set};

const STANDARD: &str = include_str!("../../policies/standard.toml");

/// Checks that a rejection points into the file.
fn read_or_refused(text: &str) {
    if let Err(error) = load(text) {
        let lines = u32::try_from(text.lines().count()).unwrap() + 1;
        let in_file = error
            .origin()
            .line
            .is_none_or(|line| (1..=lines).contains(&line));
        assert!(in_file && !error.to_string().is_empty(), "{error:?}");
    }
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("[", "]"), ("{a=", "}")] {
        let depth = 100_000;
        let text = format!("limits = {}1{}", open.repeat(depth), close.repeat(depth));
        assert!(load(&text).is_err());
        let keys = format!("limits{} = 1", ".a".repeat(depth));
        assert!(load(&keys).is_err());
        assert!(keys.replace(" = ", "=").parse::<Override>().is_err());
    }
}

proptest! {
    #[test]
    fn any_text(text in any::<String>()) {
        read_or_refused(&text);
    }

    #[test]
    fn a_policy_with_a_part_cut_out_or_put_in(
        from in any::<Index>(),
        length in 0_usize..40,
        inserted in "[\\[\\]{}=\".,#\n a-z0-9-]{0,8}",
    ) {
        let from = from.index(STANDARD.len());
        let to = (from + length).min(STANDARD.len());
        // The file is ASCII, so any offset is a character boundary.
        prop_assert!(STANDARD.is_ascii());
        read_or_refused(&format!("{}{inserted}{}", &STANDARD[..from], &STANDARD[to..]));
    }

    #[test]
    fn any_override(key in "[a-z_.\"' =#\n]{0,20}", value in any::<String>()) {
        let _ = set(&[&format!("{key}={value}")]);
        let _ = set(&[&format!("limits.wall={value}")]);
        let _ = set(&[&format!("filesystem.read={value}")]);
    }
}
