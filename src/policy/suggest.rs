//! Finds the word for "did you mean".

/// The minimum similarity (Jaro-Winkler, 0 to 1) of a suggestion. clap uses 0.7. Policy words are short and
/// share letters, so this threshold is a little higher.
const MIN_SIMILARITY: f64 = 0.78;

/// Returns the candidate that is most similar to `word`, if one is similar enough.
pub(crate) fn closest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let lower = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| {
            let similarity = strsim::jaro_winkler(&lower, &candidate.to_lowercase());
            (similarity, candidate)
        })
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 8] = [
        "wall",
        "cpu",
        "memory",
        "pids",
        "open_files",
        "file_size",
        "output",
        "cores",
    ];

    #[test]
    fn typos_are_recognised() {
        for (typo, meant) in [
            ("wal", "wall"),
            ("mem", "memory"),
            ("Memory", "memory"),
            ("open-files", "open_files"),
            ("filesize", "file_size"),
            ("core", "cores"),
            ("ouput", "output"),
        ] {
            assert_eq!(closest(typo, KEYS), Some(meant), "{typo}");
        }
    }

    #[test]
    fn unrelated_words_match_no_key() {
        for word in ["timeout", "zzz", "network", ""] {
            assert_eq!(closest(word, KEYS), None, "{word}");
        }
    }
}
