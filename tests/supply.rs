//! Tests of the dependencies that cargo-deny does not cover: their features, their minimum Rust version, and the
//! versions that are fuzzed. `deny.toml` has the other rules, which `cargo xtask verify supply` checks.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test program")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Dependencies with default features beyond `std`, all of which are used.
const DEFAULTS_THAT_ARE_USED: &[(&str, &str)] = &[
    (
        "sandfork",
        "the egress process is embedded, and the tests start it",
    ),
    (
        "toml",
        "policies are parsed, printed, and read through serde",
    ),
];

/// The output of `cargo metadata` for the supported target systems: crates for other systems are never compiled and may
/// not be downloaded. It fails if Cargo.lock is missing or does not match Cargo.toml.
static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "metadata",
        "--format-version=1",
        "--locked",
        "--all-features",
    ]);
    for target in DENY["graph"]["targets"].as_array().unwrap() {
        cargo.args(["--filter-platform", target.as_str().unwrap()]);
    }
    let output = cargo.current_dir(ROOT).output().expect("cargo runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).expect("valid JSON")
});

static DENY: LazyLock<toml::Table> = LazyLock::new(|| {
    let text = std::fs::read_to_string(format!("{ROOT}/deny.toml")).unwrap();
    text.parse().expect("deny.toml is TOML")
});

fn packages() -> impl Iterator<Item = &'static Value> {
    METADATA["packages"].as_array().unwrap().iter()
}

/// Returns the project's own packages.
fn members() -> impl Iterator<Item = &'static Value> {
    packages().filter(|package| package["source"].is_null())
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Default features beyond `std` are either used or disabled.
#[test]
fn default_features_are_disabled_or_used() {
    let defaults: BTreeMap<&str, Vec<&str>> = packages()
        .map(|package| {
            let features = package["features"]["default"].as_array();
            let features = features.into_iter().flatten().filter_map(Value::as_str);
            (
                text(package, "name"),
                features.filter(|name| *name != "std").collect(),
            )
        })
        .collect();
    let mut taken = BTreeSet::new();
    for member in members() {
        for dependency in member["dependencies"].as_array().unwrap() {
            let name = text(dependency, "name");
            let all = dependency["uses_default_features"] == true;
            if all
                && defaults
                    .get(name)
                    .is_some_and(|features| !features.is_empty())
            {
                taken.insert(name);
            }
        }
    }
    let used: BTreeSet<&str> = DEFAULTS_THAT_ARE_USED
        .iter()
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(
        taken, used,
        "taken with default features; and those that are all used"
    );
}

/// Every dependency supports the oldest supported Rust version.
#[test]
fn oldest_rust_is_declared_and_sufficient() {
    let number = |version: &str| -> Vec<u32> {
        version
            .split('.')
            .map(|part| part.parse().unwrap())
            .collect()
    };
    let stated: BTreeSet<&str> = members()
        .map(|member| text(member, "rust_version"))
        .collect();
    let [stated] = stated.into_iter().collect::<Vec<_>>()[..] else {
        panic!("members state different versions");
    };
    for package in packages() {
        let needed = text(package, "rust_version");
        assert!(
            needed.is_empty() || number(needed)[..2] <= number(stated)[..2],
            "{} needs Rust {needed}, and {stated} is stated",
            text(package, "name")
        );
    }
}

/// cargo-fuzz has its own lock file, which must have the versions of the main one.
#[test]
fn fuzzed_versions_match_built_versions() {
    let lock = |path: &str| -> toml::Table {
        let text = std::fs::read_to_string(format!("{ROOT}/{path}")).unwrap();
        text.parse().expect("a lock file is TOML")
    };
    let built = lock("Cargo.lock");
    let fuzzed = lock("fuzz/Cargo.lock");
    let targets = closure(&fuzzed, "fuzz-targets");
    assert!(targets.len() > 20, "fuzz/Cargo.lock has only {targets:?}");
    let expected = closure(&built, "fuzz-targets");
    let other: Vec<_> = targets.difference(&expected).collect();
    assert!(
        other.is_empty(),
        "{other:?} are fuzzed and not built; run `cargo update` in fuzz/"
    );
}

/// Returns the names and versions of a crate and its dependencies.
fn closure(lock: &toml::Table, root: &str) -> BTreeSet<(String, String)> {
    let packages = lock["package"].as_array().unwrap();
    let mut found = BTreeSet::new();
    let mut wanted = vec![root.to_owned()];
    while let Some(next) = wanted.pop() {
        // `name`, or `name version` if there are several versions.
        let (name, version) = next.split_once(' ').unwrap_or((&next, ""));
        for package in packages {
            let field = |name: &str| package[name].as_str().unwrap().to_owned();
            let is_it = field("name") == name && field("version").starts_with(version);
            if is_it && found.insert((field("name"), field("version"))) {
                let inner = package.get("dependencies").and_then(toml::Value::as_array);
                let inner = inner.into_iter().flatten().filter_map(toml::Value::as_str);
                wanted.extend(inner.map(str::to_owned));
            }
        }
    }
    found
}
