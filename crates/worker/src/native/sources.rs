//! Embeds the Python code that runs in the sandbox, except the bootstrap, which runs before it.

/// Expands file names of `guest` into pairs of name and text.
macro_rules! guest_sources {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../guest/", $name, ".py")))),*]
    };
}

/// The embedded files. Each is imported on first use, by the name listed here.
const SOURCES: &[(&str, &str)] = &guest_sources![
    "awaiting",
    "cell",
    "claims",
    "editable",
    "ending",
    "fonts",
    "importers",
    "imports",
    "network",
    "patches",
    "process",
    "program",
    "programs",
    "terminal",
    "threads",
    "report",
    "runner",
    "session/__init__",
    "session/charts",
    "session/display",
    "session/interrupts",
    "session/link",
    "session/magics",
    "session/plots",
    "session/prompt",
    "session/shared",
    "session/shell",
    "session/source",
    "session/statement",
    "session/stdin",
    "session/timing",
    "session/tools",
    "sources",
    "spawned",
    "values/__init__",
    "values/arrays",
    "values/arrow_tables",
    "values/blob",
    "values/bounds",
    "values/columns",
    "values/decode",
    "values/encode",
    "values/frames",
    "values/kinds",
    "values/pandas_columns",
    "values/polars_frames",
    "values/standard",
    "values/table",
    "values/tables",
    "wire",
    "worker",
    "zygote",
];

/// Returns the text of a file, by its path without the extension.
pub fn find(name: &str) -> Option<&'static str> {
    SOURCES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
}
