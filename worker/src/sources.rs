//! The Python that runs inside, without what the zygote's bootstrap begins with.

/// Files of `src/guest`, each with its text.
macro_rules! guest_sources {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../src/guest/", $name, ".py")))),*]
    };
}

/// Each is imported when it is first needed, by the name that it has here.
const SOURCES: &[(&str, &str)] = &guest_sources![
    "cell",
    "ending",
    "imports",
    "process",
    "report",
    "session/__init__",
    "session/awaiting",
    "session/display",
    "session/evaluate",
    "session/interrupts",
    "session/link",
    "session/plots",
    "session/shared",
    "session/statement",
    "session/stdin",
    "session/tools",
    "values/__init__",
    "values/arrays",
    "values/blob",
    "values/bounds",
    "values/decode",
    "values/encode",
    "values/kinds",
    "values/standard",
    "values/tables",
    "worker",
    "zygote",
];

/// The text of a file, by its path without the extension.
pub fn find(name: &str) -> Option<&'static str> {
    SOURCES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// What stands in the text of `-c` instead.
    const OF_THE_BOOTSTRAP: [&str; 3] = ["bootstrap", "sources", "wire"];

    #[test]
    fn every_file_is_known() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/guest");
        let mut found = BTreeSet::new();
        for directory in ["", "session", "values"] {
            for file in fs::read_dir(root.join(directory)).expect("it is read") {
                let path = file.expect("it is read").path();
                if path.extension().is_some_and(|extension| extension == "py") {
                    let path = path.strip_prefix(&root).expect("it is below");
                    found.insert(path.with_extension("").display().to_string());
                }
            }
        }
        for name in OF_THE_BOOTSTRAP {
            assert!(found.remove(name), "{name}");
        }
        let known: BTreeSet<String> = SOURCES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(known, found);
    }
}
