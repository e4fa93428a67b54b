//! Checks the supply chain: dependencies, the oldest Rust, a reproducible release.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::tally::Tally;
use crate::test::cargo;
use crate::{Error, workspace};

/// The tools that check for advisories, with their arguments.
const TOOLS: [(&str, &[&str]); 2] = [
    ("deny", &["--all-features", "check"]),
    ("audit", &["--deny", "warnings"]),
];

/// Runs the checks that need only cargo, then cargo-deny and cargo-audit.
pub fn check() -> Result<ExitCode, Error> {
    let workspace = workspace();
    run(cargo(&workspace).args(["test", "--quiet", "--test", "supply", "--test", "tidy"]))?;
    for (tool, arguments) in TOOLS {
        let found = cargo(&workspace).args([tool, "--version"]).output()?;
        if !found.status.success() {
            return Err(format!(
                "cargo-{tool} is not installed, so advisories were not looked up: `cargo install \
                 --locked cargo-{tool}`"
            )
            .into());
        }
        run(cargo(&workspace).arg(tool).args(arguments))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What cargo-deny checks without asking for advisories: a part of `cargo xtask test`, where it is installed.
pub fn test() -> Result<Tally, Error> {
    let mut deny = cargo(&workspace());
    if !deny.args(["deny", "--version"]).output()?.status.success() {
        return Ok(Tally::skipped("cargo-deny is not installed"));
    }
    println!("\nlicences, sources and versions of the dependencies:");
    let mut deny = cargo(&workspace());
    deny.args([
        "deny",
        "--all-features",
        "check",
        "bans",
        "licenses",
        "sources",
    ]);
    Tally::of_check(&mut deny)
}

/// Builds everything, including tests, with the oldest Rust that Cargo.toml allows.
pub fn oldest_rust() -> Result<ExitCode, Error> {
    let workspace = workspace();
    let version = stated_version(&workspace)?;
    // The environment of this process selects the newer compiler.
    let rustup = |command: &mut Command| {
        for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN"] {
            command.env_remove(name);
        }
    };
    let mut found = Command::new("rustup");
    rustup(found.args(["run", &version, "cargo", "--version"]));
    if !found.output()?.status.success() {
        return Err(format!(
            "Rust {version} is not installed: `rustup toolchain install {version} --profile minimal`"
        )
        .into());
    }
    let mut check = Command::new("rustup");
    check
        .args([
            "run",
            &version,
            "cargo",
            "check",
            "--workspace",
            "--all-targets",
            "--locked",
        ])
        .arg("--target-dir")
        .arg(workspace.join("target/oldest-rust"))
        .current_dir(&workspace);
    rustup(&mut check);
    run(&mut check)?;
    println!("Rust {version} builds it");
    Ok(ExitCode::SUCCESS)
}

fn stated_version(workspace: &Path) -> Result<String, Error> {
    let mut metadata = cargo(workspace);
    metadata.args(["metadata", "--format-version=1", "--locked", "--no-deps"]);
    let metadata: Value = serde_json::from_slice(&metadata.output()?.stdout)?;
    let version = metadata["packages"][0]["rust_version"].as_str();
    let version = version.ok_or("Cargo.toml has no rust-version")?;
    // The first release of that version, without its later fixes.
    Ok(match version.matches('.').count() {
        1 => format!("{version}.0"),
        _ => version.to_owned(),
    })
}

/// Builds the release twice, in two places with names of different length, and compares.
pub fn reproducible() -> Result<ExitCode, Error> {
    let workspace = workspace();
    let place = tempfile::tempdir()?;
    let mut built = Vec::new();
    for name in ["one", "another-place/deeper"] {
        let copy = place.path().join(name);
        copy_sources(&workspace, &copy)?;
        let binary = build_release(&copy)?;
        println!("{name}: {} bytes", fs::metadata(&binary)?.len());
        built.push(binary);
    }
    let kept = workspace.join("target/reproducible");
    fs::create_dir_all(&kept)?;
    let contents = [fs::read(&built[0])?, fs::read(&built[1])?];
    fs::write(kept.join("one"), &contents[0])?;
    fs::write(kept.join("another"), &contents[1])?;
    let kept = kept.display();
    if contents[0] != contents[1] {
        let first = contents[0]
            .iter()
            .zip(&contents[1])
            .position(|(a, b)| a != b);
        return Err(format!(
            "the two releases differ, first at byte {first:?}: compare {kept}/one with {kept}/another"
        )
        .into());
    }
    let home = cargo_home()?.display().to_string();
    for foreign in [place.path().display().to_string(), home] {
        if contains(&contents[0], foreign.as_bytes()) {
            return Err(format!("the release names a path of its builder: {foreign}").into());
        }
    }
    println!("two builds in two places are one release: {kept}/one");
    Ok(ExitCode::SUCCESS)
}

/// Copies the files that git tracks, in their current state.
pub fn copy_sources(workspace: &Path, copy: &Path) -> Result<(), Error> {
    let mut list = Command::new("git");
    list.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let list = list.current_dir(workspace).output()?;
    if !list.status.success() {
        return Err("the list of sources comes from git: run it in a checkout".into());
    }
    let names = String::from_utf8(list.stdout)?;
    for name in names.split_terminator('\0') {
        let (from, to) = (workspace.join(name), copy.join(name));
        // git also lists files whose deletion is not committed yet.
        if from.is_file() {
            fs::create_dir_all(to.parent().ok_or("a file without a directory")?)?;
            fs::copy(from, to)?;
        }
    }
    Ok(())
}

/// Compiler flags without which a binary names paths of the machine that built it.
pub fn remap_flags(copy: &Path) -> Result<String, Error> {
    let remap = |place: &Path, name: &str| {
        let place = place.display();
        format!("--remap-path-prefix={place}={name}")
    };
    let flags = [remap(copy, "/sandfork"), remap(&cargo_home()?, "/cargo")];
    Ok(flags.join("\x1f"))
}

/// Builds the release as a packager should, without paths of this machine in it.
fn build_release(copy: &Path) -> Result<PathBuf, Error> {
    run(cargo(copy)
        .args([
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--bin",
            "sandfork",
        ])
        .arg("--target-dir")
        .arg(copy.join("target"))
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", remap_flags(copy)?))?;
    Ok(copy.join("target/release/sandfork"))
}

pub fn cargo_home() -> Result<PathBuf, Error> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo")));
    Ok(home.ok_or("HOME is not set")?)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

pub fn run(command: &mut Command) -> Result<(), Error> {
    let status = command.status()?;
    if status.success() {
        return Ok(());
    }
    let shown: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect();
    Err(format!("`{}` ended with {status}", shown.join(" ")).into())
}
