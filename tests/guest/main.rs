//! Tests of the guest's Python code without a jail: `harness.py` acts as the supervisor, and each test
//! file next to it runs with each interpreter that `cargo xtask test envs` found.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde::Deserialize;

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guest");

#[derive(Deserialize)]
struct Manifest {
    interpreters: Vec<Interpreter>,
}

#[derive(Clone, Deserialize)]
struct Interpreter {
    version: [u8; 3],
    venv: PathBuf,
}

fn main() {
    let interpreters = interpreters();
    let mut trials = vec![Trial::test("sources_are_embedded", || {
        every_source_is_embedded()
    })];
    for file in files() {
        if interpreters.is_empty() {
            trials.push(missing(&file));
        }
        trials.extend(interpreters.iter().map(|python| trial(&file, python)));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn interpreters() -> Vec<Interpreter> {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-envs");
    let environments = env::var_os("SANDFORK_TEST_ENVS").map_or_else(usual, PathBuf::from);
    let manifest = fs::read_to_string(environments.join("manifest.json"));
    manifest.map_or_else(
        |_| Vec::new(),
        |text| {
            let manifest: Manifest = serde_json::from_str(&text).expect("the manifest is JSON");
            manifest.interpreters
        },
    )
}

fn files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(HERE)
        .expect("the directory is read")
        .map(|entry| entry.expect("the directory is read").path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("test_"))
        })
        .collect();
    files.sort();
    files
}

fn trial(file: &Path, python: &Interpreter) -> Trial {
    let [major, minor, micro] = python.version;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let (file, python) = (file.to_owned(), python.clone());
    Trial::test(format!("{name}::{major}.{minor}.{micro}"), move || {
        run(&file, &python)
    })
}

fn run(file: &Path, python: &Interpreter) -> Result<(), Failed> {
    let output = Command::new(python.venv.join("bin/python"))
        .arg(file)
        .current_dir(HERE)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SANDFORK_WORKER", env!("SANDFORK_WORKER"))
        // Caches matplotlib's font list outside the home directory.
        .env("MPLCONFIGDIR", python.venv.join("matplotlib"))
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    Err(format!("{}\n{}{}", output.status, text[0], text[1]).into())
}

fn missing(file: &Path) -> Trial {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    Trial::ignorable_test(name, || {
        let reason = "no test environments: run `cargo xtask test envs`";
        if env::var_os("SANDFORK_FORBID_SKIPS").is_some_and(|value| !value.is_empty()) {
            return Err(format!("may not be skipped here: {reason}").into());
        }
        Ok(Completion::ignored_with(reason))
    })
}

/// Checks that crates/worker/src/native/sources.rs lists every source file: a missing one fails only when imported.
fn every_source_is_embedded() -> Result<(), Failed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed = fs::read_to_string(root.join("crates/worker/src/native/sources.rs"))?;
    let guest = root.join("crates/worker/guest");
    let mut directories = vec![guest.clone()];
    let mut seen = 0;
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.strip_prefix(&guest)?.with_extension("");
            let name = name.to_string_lossy();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "py") {
                seen += 1;
                let of_the_bootstrap = name == "bootstrap";
                if listed.contains(&format!("\"{name}\",")) == of_the_bootstrap {
                    return Err(format!("crates/worker/src/native/sources.rs and {name}.py").into());
                }
            }
        }
    }
    if seen < 20 {
        return Err(format!("only {seen} files").into());
    }
    Ok(())
}
