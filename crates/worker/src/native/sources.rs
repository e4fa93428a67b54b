//! The Python code that runs inside, without the part with which the zygote's bootstrap starts.

/// Lists files of `guest`, each with its text.
macro_rules! guest_sources {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../guest/", $name, ".py")))),*]
    };
}

/// Each file is imported on first use, by the name listed here.
const SOURCES: &[(&str, &str)] = &guest_sources![
    "cell",
    "ending",
    "importers",
    "imports",
    "process",
    "program",
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
