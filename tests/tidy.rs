//! Checks rules of the source that can be read off its text; `ARCHITECTURE.md` has the reasons.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test program")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The maximum number of lines of a file. The aim is about 300.
const MAX_LINES: usize = 400;
/// The maximum number of lines of a function. The aim is about 60.
const MAX_LINES_OF_A_FUNCTION: usize = 80;

/// A file of the repository.
struct Text {
    /// The path relative to the root.
    path: String,
    text: String,
}

impl Text {
    /// Returns the numbered lines that are compiled into the product: no comments, no tests.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.text.find("\n#[cfg(test)]\nmod tests {");
        let code = &self.text[..end.unwrap_or(self.text.len())];
        let lines = code.lines().enumerate();
        lines
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
            .map(|(index, line)| (index + 1, line))
    }
}

/// Returns the files beneath a directory, or the file itself, with one of these extensions, except test files.
fn texts(start: &str, extensions: &[&str]) -> Vec<Text> {
    let mut paths = vec![Path::new(ROOT).join(start)];
    let mut found = Vec::new();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if path
            .extension()
            .is_some_and(|it| extensions.iter().any(|want| it == *want))
        {
            let text = fs::read_to_string(&path).unwrap();
            let path = path.strip_prefix(ROOT).unwrap().display().to_string();
            found.push(Text { path, text });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn rust(start: &str) -> Vec<Text> {
    let found = texts(start, &["rs"]);
    assert!(!found.is_empty(), "nothing in {start}");
    found
}

/// Returns all source files except tests.
fn sources() -> Vec<Text> {
    let mut texts = texts("src", &["rs", "py"]);
    texts.extend(self::texts("crates/worker/guest", &["py"]));
    texts.extend(
        [
            "crates/egress/src",
            "crates/jail/src",
            "crates/server/src",
            "crates/worker/src",
            "xtask/src",
            "fuzz/targets/src",
            "fuzz/fuzz_targets",
            "benches",
            "examples",
        ]
        .into_iter()
        .flat_map(rust),
    );
    for start in ["python/src", "python/benches", "fuzz/python"] {
        texts.extend(self::texts(start, &["py"]));
    }
    texts
}

fn is_test(text: &Text) -> bool {
    text.path.contains("/tests/") || text.path.ends_with("/tests.rs")
}

/// Returns each place where one of the words occurs in the code of these files.
fn uses<'a>(texts: &'a [Text], words: &[&str]) -> Vec<String> {
    let of = |text: &'a Text| {
        text.code()
            .filter(|(_, line)| words.iter().any(|word| line.contains(word)))
            .map(|(number, line)| format!("{}:{number}: {}", text.path, line.trim()))
    };
    texts
        .iter()
        .filter(|text| !is_test(text))
        .flat_map(of)
        .collect()
}

fn assert_none(found: &[String], rule: &str) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

#[test]
fn pure_modules_do_no_io() {
    let impure = [
        "nix::",
        "libc::",
        "std::env",
        "std::fs",
        "std::net",
        "std::os",
        "std::process",
        "std::thread",
        "std::time::Instant",
        "sandfork_jail::sys",
        "crate::supervisor",
        "println!",
    ];
    for module in ["src/policy", "src/plan", "src/protocol", "src/outcome"] {
        assert_none(&uses(&rust(module), &impure), "does I/O, or could");
    }
}

#[test]
fn sys_imports_nothing_of_the_crate() {
    let uses = uses(&rust("crates/jail/src/sys"), &["crate::"]);
    assert_none(&uses, "sys can be read alone");
}

/// Returns, for each top-level module of `src`, the other modules that its code names, directly or through the
/// exports of lib.rs.
fn imports(texts: &[Text]) -> BTreeMap<&str, BTreeSet<&str>> {
    let module = |text: &'_ Text| -> Range<usize> {
        let start = "src/".len();
        let end = text.path[start..].find(['/', '.']).expect("a file of src");
        start..start + end
    };
    let modules: BTreeSet<&str> = texts.iter().map(|text| &text.path[module(text)]).collect();
    let lib = texts.iter().find(|text| text.path == "src/lib.rs");
    let exports: BTreeMap<&str, &str> = lib
        .iter()
        .flat_map(|text| public(&text.text))
        .filter_map(|(path, name)| Some((name, words(path).next()?)))
        .collect();
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for text in texts.iter().filter(|text| !is_test(text)) {
        let from = &text.path[module(text)];
        for rest in text
            .code()
            .flat_map(|(_, line)| line.split("crate::").skip(1))
        {
            // `crate::{a, b::c}` names several.
            let several = rest.strip_prefix('{').map(|list| list.split(','));
            let paths = several.into_iter().flatten().chain([rest]);
            for first in paths.filter_map(|path| words(path).next()) {
                let to = exports.get(first).copied().unwrap_or(first);
                if to != from && modules.contains(to) {
                    found.entry(from).or_default().insert(to);
                }
            }
        }
    }
    for root in ["internals", "lib", "main"] {
        found.remove(root);
    }
    found
}

/// Returns the names that a file makes public at its top level, each with the path that it is exported from,
/// which is empty for an item of the file.
fn public(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let statements = text.split("\npub ").skip(1);
    statements.flat_map(|statement| {
        let end = statement.find([';', '(', '=']).expect("a statement");
        match statement[..end].strip_prefix("use ") {
            // `use path::{One, Another}`, `use path::One`
            Some(list) => {
                let (path, names) = list.rsplit_once("::").expect("a path and names");
                words(names).map(|name| (path, name)).collect()
            }
            // `struct One`, `mod one`
            None => vec![("", words(&statement[..end]).nth(1).expect("a name"))],
        }
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// Returns the modules that depend on themselves through other modules.
fn in_cycles<'a>(imports: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<&'a str> {
    let reached_from = |start: &'a str| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(module) = next.pop() {
            let new = imports.get(module).into_iter().flatten();
            next.extend(new.filter(|to| reached.insert(**to)));
        }
        reached
    };
    let modules = imports.keys().copied();
    modules
        .filter(|module| reached_from(module).contains(module))
        .collect()
}

#[test]
fn modules_of_src_form_no_cycle() {
    let texts = rust("src");
    let imports = imports(&texts);
    assert_eq!(in_cycles(&imports), [""; 0], "{imports:#?}");
    assert_eq!(imports.get("outcome"), None, "outcome stands on the ground");
}

/// The maximum number of items of the public API: each is a promise.
const MAX_ITEMS: usize = 71;

/// The crate root is the API, with its public modules. Elsewhere `pub` means: visible in the crate.
#[test]
fn public_api_matches_the_list() {
    let read = |path: &str| fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
    let internals = "#[cfg(feature = \"internals\")]\n#[doc(hidden)]\npub mod internals;\n";
    let root = read("src/lib.rs").replacen(internals, "", 1);
    let (modules, items): (Vec<_>, Vec<_>) = public(&root)
        .map(|(_, name)| name)
        .partition(|name| root.contains(&format!("\npub mod {name};")));
    let mut found: Vec<String> = items.into_iter().map(str::to_owned).collect();
    for module in modules {
        let text = read(&format!("src/{module}/mod.rs"));
        found.extend(public(&text).map(|(_, name)| format!("{module}::{name}")));
    }
    found.sort();
    assert_eq!(
        found,
        read("tests/public-api.txt").lines().collect::<Vec<_>>()
    );
    assert!(found.len() <= MAX_ITEMS, "{} items", found.len());
}

#[test]
fn unsafe_code_is_in_sys() {
    let mut texts = rust("src");
    texts.extend(
        ["crates", "xtask/src", "fuzz/targets", "build.rs"]
            .into_iter()
            .flat_map(rust),
    );
    texts.retain(|text| {
        let is_sys = text.path.starts_with("crates/jail/src/sys/");
        // The calls into CPython, which only the worker library may make.
        !is_sys && !text.path.starts_with("crates/worker/src/native/python/")
    });
    let found = uses(&texts, &["unsafe", "libc::syscall", "asm!"]);
    let exported = "crates/worker/src/native/module.rs:";
    let others: Vec<String> = found
        .into_iter()
        // CPython looks up the module's entry point by its name.
        .filter(|line| !(line.starts_with(exported) && line.contains("unsafe(no_mangle)")))
        .filter(|line| !(line.starts_with(exported) && line.contains("allow(unsafe_code)")))
        .collect();
    assert_none(
        &others,
        "unsafe code and raw system calls are in crates/jail/src/sys",
    );
}

/// The number of unsafe blocks and implementations in each file: one more must be added here deliberately. Clippy
/// checks that each has a SAFETY comment (`undocumented_unsafe_blocks`).
const UNSAFE: [(&str, usize); 32] = [
    // A stack and a mapping outlive their scope in the compiler's view: a copy of the process returns to them.
    ("crates/jail/src/sys/checkpoint.rs", 11),
    // The code that replaces all memory must not refer to any, so it cannot be compiled from Rust.
    ("crates/jail/src/sys/checkpoint_x86_64.rs", 6),
    // Runs from the loader before Rust's runtime, which would hide a closed descriptor.
    ("crates/jail/src/sys/closed_stdout.rs", 2),
    ("crates/jail/src/sys/descriptors.rs", 9),
    ("crates/jail/src/sys/eager_copy.rs", 2),
    ("crates/jail/src/sys/hold.rs", 2),
    ("crates/jail/src/sys/kernel_pointers.rs", 7),
    ("crates/jail/src/sys/kernel_state.rs", 7),
    ("crates/jail/src/sys/landlock.rs", 1),
    ("crates/jail/src/sys/lease.rs", 1),
    ("crates/jail/src/sys/memory.rs", 7),
    ("crates/jail/src/sys/mount.rs", 6),
    ("crates/jail/src/sys/namespace_init.rs", 8),
    ("crates/jail/src/sys/pagemap.rs", 1),
    ("crates/jail/src/sys/pidfd.rs", 3),
    ("crates/jail/src/sys/probe_child/chain.rs", 3),
    ("crates/jail/src/sys/probe_child/mod.rs", 7),
    ("crates/jail/src/sys/process.rs", 15),
    ("crates/jail/src/sys/procfs.rs", 1),
    ("crates/jail/src/sys/refused.rs", 3),
    ("crates/jail/src/sys/scheduling.rs", 6),
    ("crates/jail/src/sys/sealed.rs", 5),
    ("crates/jail/src/sys/seccomp.rs", 5),
    // A signal handler starts a program through two processes that share its memory.
    ("crates/jail/src/sys/starter.rs", 7),
    ("crates/jail/src/sys/support.rs", 2),
    ("crates/jail/src/sys/terminal.rs", 1),
    ("crates/jail/src/sys/write_signals.rs", 2),
    // The exported name by which CPython finds the module's entry point.
    ("crates/worker/src/native/module.rs", 1),
    ("crates/worker/src/native/python/allocators.rs", 5),
    ("crates/worker/src/native/python/arrays.rs", 2),
    ("crates/worker/src/native/python/mod.rs", 6),
    ("crates/worker/src/native/python/object.rs", 37),
];

#[test]
fn unsafe_code_is_counted() {
    let mut texts = rust("crates/jail/src/sys");
    texts.extend(rust("crates/worker/src"));
    let count = |text: &Text| -> usize {
        text.code()
            .flat_map(|(_, line)| line.split(|c: char| !c.is_alphanumeric() && c != '_'))
            .filter(|word| *word == "unsafe")
            .count()
    };
    let found: Vec<(&str, usize)> = texts
        .iter()
        .map(|text| (text.path.as_str(), count(text)))
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(found, UNSAFE);
}

#[test]
fn files_and_functions_stay_short() {
    for text in &sources() {
        let lines = text.text.lines().count();
        let path = &text.path;
        assert!(
            lines <= MAX_LINES,
            "{path} has {lines} lines, more than {MAX_LINES}"
        );
        for (name, lines) in functions(text) {
            assert!(
                lines <= MAX_LINES_OF_A_FUNCTION,
                "{path}: `{name}` has {lines} lines, more than {MAX_LINES_OF_A_FUNCTION}"
            );
        }
    }
}

/// Returns the functions of a Rust file as rustfmt formats it: up to the closing brace at the same indentation.
fn functions(text: &Text) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.text.lines().collect();
    let mut functions = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let is_function = line.trim_start().starts_with("fn ")
            || line.contains(") fn ")
            || [
                "pub fn ",
                "pub const fn ",
                "const fn ",
                "async fn ",
                "pub async fn ",
            ]
            .iter()
            .any(|start| line.trim_start().starts_with(start));
        if !is_function || line.ends_with(['}', ';']) {
            continue;
        }
        let end = lines[start..].iter().position(|line| {
            let at_indent = line.len() - line.trim_start().len() == indent;
            at_indent && (*line == format!("{:indent$}}}", "") || line.ends_with(';'))
        });
        functions.push((line.trim(), end.map_or(1, |length| length + 1)));
    }
    functions
}

/// Returns the Markdown documents.
fn documents() -> Vec<Text> {
    let mut documents: Vec<Text> = fs::read_dir(ROOT)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_file())
        .flat_map(|file| texts(&file.file_name().to_string_lossy(), &["md"]))
        .collect();
    for place in [
        "docs",
        "policies",
        "tests",
        "examples",
        "python/README.md",
        "fuzz/README.md",
    ] {
        documents.extend(texts(place, &["md"]));
    }
    documents
}

#[test]
fn links_and_file_names_resolve() {
    let mut dead = Vec::new();
    let mut checked = 0;
    for document in documents() {
        let here = Path::new(ROOT).join(&document.path);
        let here = here.parent().unwrap();
        let mut check = |target: &str, from: &Path| {
            checked += 1;
            if !from.join(target).exists() {
                dead.push(format!("{}: {target}", document.path));
            }
        };
        for target in links(&document.text) {
            check(target, here);
        }
        for name in named_files(&document.text) {
            check(name, Path::new(ROOT));
        }
    }
    assert_none(&dead, "leads nowhere");
    assert!(checked > 40, "only {checked} links and names");
}

/// Returns the targets of `[text](target)` in this repository, without their fragments.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.split('#').next().unwrap())
        .filter(|target| !target.is_empty() && !target.contains("://"))
}

/// Returns the files and directories named in backticks by their path from the root.
fn named_files(text: &str) -> impl Iterator<Item = &str> {
    let places = [
        "src/",
        "tests/",
        "docs/",
        "policies/",
        "examples/",
        "crates/",
        "benches/",
        "fuzz/",
        ".ci/",
    ];
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(move |name| places.iter().any(|place| name.starts_with(place)))
        .filter(|name| {
            name.chars()
                .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
        })
}

#[test]
fn no_todo_is_left() {
    let mut texts = sources();
    texts.extend(documents());
    let words = ["TODO", "FIXME", "XXX"];
    let found: Vec<String> = texts
        .iter()
        .filter(|text| words.iter().any(|word| text.text.contains(word)))
        .map(|text| text.path.clone())
        .collect();
    assert_none(&found, "unfinished");
}

/// A check that cannot find anything checks nothing.
#[test]
fn checks_detect_violations() {
    let text = Text {
        path: "src/made_up.rs".to_owned(),
        text: "use std::fs;\n// std::net\nfn long(\n    a: u8,\n) {\n    a;\n}\n\n#[cfg(test)]\nmod tests {\n    use std::env;\n}\n".to_owned(),
    };
    let file = |path: &str, text: &str| Text {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let circle = [
        file(
            "src/lib.rs",
            "//! Made up.\n\npub use b::{\n    Bee, Sting,\n};\n",
        ),
        file("src/a/mod.rs", "use crate::{d, Sting};\n"),
        file("src/b.rs", "fn f(_: crate::c::C) {}\n"),
        file("src/c/x.rs", "use crate::a;\n"),
        file("src/d.rs", "// crate::a\n"),
    ];
    assert_eq!(in_cycles(&imports(&circle)), ["a", "b", "c"]);
    assert_eq!(functions(&text), [("fn long(", 5)]);
    let found = uses(std::slice::from_ref(&text), &["std::"]);
    assert_eq!(found, ["src/made_up.rs:1: use std::fs;"]);
    assert_eq!(
        links("[a](b.md#c), [d](https://e)").collect::<Vec<_>>(),
        ["b.md"]
    );
    assert_eq!(
        named_files("`src/a.rs`, `--set src/`").collect::<Vec<_>>(),
        ["src/a.rs"]
    );
}
