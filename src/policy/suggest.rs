//! "Did you mean": the nearest of the valid words.

/// The similarity (Jaro-Winkler, 0 to 1) that two words need before one is suggested for the other.
/// clap uses 0.7; policy words are short and share letters, so this is a little higher.
const ALIKE: f64 = 0.78;

/// The candidate nearest to `word`, if one is near enough.
pub(crate) fn closest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let lower = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| {
            let likeness = strsim::jaro_winkler(&lower, &candidate.to_lowercase());
            (likeness, candidate)
        })
        .filter(|(likeness, _)| *likeness >= ALIKE)
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
    fn slips_are_recognised() {
        for (slip, meant) in [
            ("wal", "wall"),
            ("mem", "memory"),
            ("Memory", "memory"),
            ("open-files", "open_files"),
            ("filesize", "file_size"),
            ("core", "cores"),
            ("ouput", "output"),
        ] {
            assert_eq!(closest(slip, KEYS), Some(meant), "{slip}");
        }
    }

    #[test]
    fn other_words_are_not_forced_onto_a_key() {
        for word in ["timeout", "zzz", "network", ""] {
            assert_eq!(closest(word, KEYS), None, "{word}");
        }
    }
}
