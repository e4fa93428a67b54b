//! Builds the two files that the library embeds, because the installed program is one file that looks up no part of
//! itself on disk: the native half of the zygote (`sandfork-worker`, a `cdylib`), and the egress process
//! (`sandfork-egress`, a program). Neither's dependencies become those of the library.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

/// A profile of cargo's with its settings. Cargo takes profiles from the workspace alone, and a package from its registry
/// has none.
struct Profile {
    name: &'static str,
    /// The directory of what it builds.
    directory: &'static str,
    settings: &'static [&'static str],
}

/// The worker library that users run. Each interpreter that starts waits until it is copied and loaded, and most of its
/// time passes in the kernel: it is built to be small.
const SMALL: Profile = Profile {
    name: "release",
    directory: "release",
    settings: &[
        "lto=\"fat\"",
        "codegen-units=1",
        "opt-level=\"s\"",
        "strip=\"symbols\"",
    ],
};

/// The egress process that users run.
const FAST: Profile = Profile {
    name: "release",
    directory: "release",
    settings: &["lto=\"thin\"", "codegen-units=4", "strip=\"symbols\""],
};

/// For the egress process in builds that are not optimized: its dependencies take two minutes of processor time less.
const DEV: Profile = Profile {
    name: "dev",
    directory: "debug",
    settings: &["debug=false", "strip=\"debuginfo\""],
};

/// A panic ends the worker in any case. With this, an exception of C++ that no code of the guest catches passes our
/// frames, and ends the guest with the words that it has outside.
const WORKER_PANIC: &str = "panic=\"abort\"";

/// A panic ends one guest's connection, and not those of the others.
const EGRESS_PANIC: &str = "panic=\"unwind\"";

fn main() {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let worker = &sources(&package, "worker", sandfork_worker::SOURCES);
    let egress = &sources(&package, "egress", sandfork_egress::SOURCES);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // In a checkout the jail and the lock file are beside the worker.
    let crates = worker.parent().unwrap_or(worker);
    let inputs = [
        worker.to_owned(),
        egress.to_owned(),
        crates.join("jail"),
        crates.join("../Cargo.lock"),
    ];
    for input in inputs.iter().filter(|input| input.exists()) {
        // Within the package, so that another checkout with this target directory looks at its own.
        let input = input.strip_prefix(&package).unwrap_or(input);
        println!("cargo::rerun-if-changed={}", input.display());
    }
    let library = build(
        worker,
        &out,
        "libsandfork_worker.so",
        // Asked for here, because files of shared libraries have no hash in their names: those of two configurations of
        // one workspace would take turns, and each build would make one of them anew.
        &["rustc", "--lib", "--crate-type", "cdylib"],
        // Optimized in each build: guests wait for it.
        &SMALL,
        WORKER_PANIC,
    );
    println!("cargo::rustc-env=SANDFORK_WORKER={}", library.display());
    if env::var_os("CARGO_FEATURE_EGRESS").is_some() {
        let is_optimized = env::var("OPT_LEVEL").is_ok_and(|level| level != "0");
        let profile = if is_optimized { &FAST } else { &DEV };
        let program = "sandfork-egress";
        let program = build(egress, &out, program, &["build"], profile, EGRESS_PANIC);
        println!("cargo::rustc-env=SANDFORK_EGRESS={}", program.display());
    }
    println!(
        "cargo::rustc-env=SANDFORK_GUEST={}",
        worker.join("guest").display()
    );
    println!(
        "cargo::rustc-env=SANDFORK_SOURCES_SHA256={}",
        digest(&worker.join("guest"))
    );
}

/// The sources of a package: of this checkout or, for a package from a registry, where that was compiled. Cargo compiles a
/// package of a checkout that was moved, or that shares a target directory with another checkout, only once.
fn sources(package: &Path, name: &str, compiled: &str) -> PathBuf {
    let here = package.join("crates").join(name);
    if here.exists() { here } else { compiled.into() }
}

/// Of the guest's Python code: byte code that is kept from one start to the next belongs to these sources.
fn digest(guest: &Path) -> String {
    let (mut directories, mut files) = (vec![guest.to_owned()], Vec::new());
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("the guest's sources are there") {
            let path = entry.expect("the directory can be read").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "py") {
                files.push(path);
            }
        }
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let name = file.strip_prefix(guest).expect("it lies there");
        let text = fs::read(&file).expect("the guest's sources can be read");
        hash.update(format!("{} {}\n", name.display(), text.len()));
        hash.update(text);
    }
    let mut text = String::new();
    for byte in hash.finalize() {
        _ = write!(text, "{byte:02x}");
    }
    text
}

/// Builds a package and returns the file that it makes.
fn build(
    sources: &Path,
    out: &Path,
    file: &str,
    command: &[&str],
    profile: &Profile,
    panic: &str,
) -> PathBuf {
    // Shared by all profiles of this checkout. Its own directory, because the outer cargo holds the lock of the usual
    // one.
    let target_dir = out.ancestors().nth(4).unwrap_or(out).join("embedded");
    let triple = env::var("TARGET").expect("cargo sets it");
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets it"));
    cargo
        .current_dir(sources)
        .args(command)
        .args(["--profile", profile.name, "--target", &triple])
        .args(profile.settings.iter().chain([&panic]).flat_map(|setting| {
            let setting = format!("profile.{}.{setting}", profile.name);
            ["--config".to_owned(), setting]
        }))
        .arg("--target-dir")
        .arg(&target_dir)
        // The library takes CPython's symbols from whichever interpreter loads it.
        .env("PYO3_NO_PYTHON", "1")
        .env("PYO3_BUILD_EXTENSION_MODULE", "1");
    // What the outer cargo sets for its own compiler (clippy's driver, coverage flags) is not meant
    // for what runs in other processes. What it sets for this script would have dependencies whose own scripts look at
    // such variables built anew for each of the features and profiles that this script runs for.
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_this_script(name)) {
        cargo.env_remove(name);
    }
    // Guests can read the library: it is the same wherever it was built, and names no path of there.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", remapped(sources).join("\x1f"));
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "building {file} failed: {status}");
    let built = target_dir.join(triple).join(profile.directory).join(file);
    let path = built.display();
    assert!(built.is_file(), "{path} is missing after its build");
    built
}

/// Whether cargo has set a variable for this script or its compiler
/// (<https://doc.rust-lang.org/cargo/reference/environment-variables.html>).
fn is_of_this_script(name: &OsStr) -> bool {
    const NAMES: [&str; 10] = [
        "DEBUG",
        "HOST",
        "NUM_JOBS",
        "OPT_LEVEL",
        "OUT_DIR",
        "PROFILE",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "RUSTFLAGS",
        "TARGET",
    ];
    const BEGINNINGS: [&str; 4] = [
        "CARGO_CFG_",
        "CARGO_FEATURE_",
        "CARGO_MANIFEST_",
        "CARGO_PKG_",
    ];
    name.to_str().is_some_and(|name| {
        NAMES.contains(&name) || BEGINNINGS.iter().any(|it| name.starts_with(it))
    })
}

/// Flags by which the places of sources are the same everywhere: the checkout, and cargo's registry.
fn remapped(sources: &Path) -> Vec<String> {
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(env::home_dir()?.join(".cargo")));
    let checkout = sources.ancestors().nth(2).map(Path::to_owned);
    let places = [(checkout, "/sandfork"), (cargo_home, "/cargo")];
    let flag = |(place, name): (Option<PathBuf>, &str)| {
        place.map(|place| format!("--remap-path-prefix={}={name}", place.display()))
    };
    places.into_iter().filter_map(flag).collect()
}
