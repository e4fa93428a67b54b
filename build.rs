//! Builds the two files that the library embeds: the native half of the zygote (`sandfork-worker`, a `cdylib`), and the
//! egress process (`sandfork-egress`, a program). They are embedded so that the installed program is a single file.
//! Their dependencies do not become dependencies of the library.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

/// A cargo profile with its settings. Cargo reads profiles only from the workspace, and a package from the registry has
/// none.
struct Profile {
    name: &'static str,
    /// The directory of the profile's output.
    directory: &'static str,
    settings: &'static [&'static str],
}

/// The profile of the worker library. Every starting interpreter waits until the library is copied and loaded, mostly
/// in the kernel, so it is optimized for size.
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

/// The profile of the egress process in optimized builds.
const FAST: Profile = Profile {
    name: "release",
    directory: "release",
    settings: &["lto=\"thin\"", "codegen-units=4", "strip=\"symbols\""],
};

/// The profile of the egress process in unoptimized builds. It saves two minutes of CPU time for its dependencies.
const DEV: Profile = Profile {
    name: "dev",
    directory: "debug",
    settings: &["debug=false", "strip=\"debuginfo\""],
};

/// A panic ends the worker in any case. With `abort`, a C++ exception that no guest code catches passes through our
/// frames and terminates the guest with the same message as outside a sandbox.
const WORKER_PANIC: &str = "panic=\"abort\"";

/// A panic ends one guest's connection, but not the others'.
const EGRESS_PANIC: &str = "panic=\"unwind\"";

fn main() {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let worker = &sources(&package, "worker", sandfork_worker::SOURCES);
    let egress = &sources(&package, "egress", sandfork_egress::SOURCES);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // In a checkout, the jail and the lock file are next to the worker.
    let crates = worker.parent().unwrap_or(worker);
    let inputs = [
        worker.to_owned(),
        egress.to_owned(),
        crates.join("jail"),
        crates.join("../Cargo.lock"),
    ];
    for input in inputs.iter().filter(|input| input.exists()) {
        // Relative to the package, so that another checkout with the same target directory checks its own files.
        let input = input.strip_prefix(&package).unwrap_or(input);
        println!("cargo::rerun-if-changed={}", input.display());
    }
    let library = build(
        worker,
        &out,
        "libsandfork_worker.so",
        // Set on the command line, because the file names of shared libraries have no hash: two configurations in one
        // workspace would overwrite each other's file, and each build would rebuild one of them.
        &["rustc", "--lib", "--crate-type", "cdylib"],
        // Optimized in every build, because guests wait for it.
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

/// Returns the source directory of a package: that of this checkout, or for a package from a registry the directory in
/// which it was compiled. `compiled` alone may be stale, because cargo does not recompile a package whose checkout was
/// moved or shares its target directory with another checkout.
fn sources(package: &Path, name: &str, compiled: &str) -> PathBuf {
    let here = package.join("crates").join(name);
    if here.exists() { here } else { compiled.into() }
}

/// Returns the digest of the guest's Python code. Cached bytecode is valid only for the same sources.
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

/// Builds a package, and returns the built file.
fn build(
    sources: &Path,
    out: &Path,
    file: &str,
    command: &[&str],
    profile: &Profile,
    panic: &str,
) -> PathBuf {
    // Shared by all profiles of this checkout. A separate directory, because the outer cargo holds the lock of the
    // usual one.
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
        // The library uses the CPython symbols of whichever interpreter loads it.
        .env("PYO3_NO_PYTHON", "1")
        .env("PYO3_BUILD_EXTENSION_MODULE", "1");
    // Variables that the outer cargo sets for its own compiler (clippy's driver, coverage flags) are not meant for
    // embedded code. Variables that it sets for this script would make cargo rebuild dependencies whose build scripts
    // read them, for each feature set and profile.
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_this_script(name)) {
        cargo.env_remove(name);
    }
    // Guests can read the library, so it must contain no path of the build machine.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", remapped(sources).join("\x1f"));
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "building {file} failed: {status}");
    let built = target_dir.join(triple).join(profile.directory).join(file);
    let path = built.display();
    assert!(built.is_file(), "{path} is missing after its build");
    built
}

/// Returns whether cargo sets this variable for build scripts or the compiler
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
    const PREFIXES: [&str; 4] = [
        "CARGO_CFG_",
        "CARGO_FEATURE_",
        "CARGO_MANIFEST_",
        "CARGO_PKG_",
    ];
    name.to_str()
        .is_some_and(|name| NAMES.contains(&name) || PREFIXES.iter().any(|it| name.starts_with(it)))
}

/// Returns the flags that replace the paths of the checkout and of cargo's registry by fixed ones.
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
