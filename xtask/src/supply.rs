//! Checks the supply chain: dependencies, the oldest Rust, a reproducible release.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::shell;
use crate::tally::Tally;

/// Runs the checks that need only cargo, then cargo-deny and cargo-audit.
pub fn check() -> Result<()> {
    let sh = shell()?;
    cmd!(sh, "cargo test --quiet --test supply --test tidy").run()?;
    for tool in ["deny", "audit"] {
        ensure!(
            is_installed(&sh, tool)?,
            "cargo-{tool} is not installed, so advisories were not looked up: `cargo install --locked \
             cargo-{tool}`"
        );
    }
    cmd!(sh, "cargo deny --all-features check").run()?;
    Ok(cmd!(sh, "cargo audit --deny warnings").run()?)
}

/// Runs the checks of cargo-deny that need no advisories, as part of `cargo xtask test`, if cargo-deny is
/// installed.
pub fn test() -> Result<Tally> {
    let sh = shell()?;
    if !is_installed(&sh, "deny")? {
        return Ok(Tally::skipped("cargo-deny is not installed"));
    }
    println!("\nlicences, sources and versions of the dependencies:");
    Tally::of_check(cmd!(
        sh,
        "cargo deny --all-features check bans licenses sources"
    ))
}

fn is_installed(sh: &Shell, tool: &str) -> Result<bool> {
    let version = cmd!(sh, "cargo {tool} --version").quiet().ignore_status();
    Ok(version.output()?.status.success())
}

/// Builds everything, including tests, with the oldest Rust that Cargo.toml allows.
pub fn oldest_rust() -> Result<()> {
    let sh = shell()?;
    let metadata = cmd!(sh, "cargo metadata --format-version=1 --locked --no-deps")
        .quiet()
        .read()?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let stated = metadata["packages"][0]["rust_version"].as_str();
    let mut version = stated.context("Cargo.toml has no rust-version")?.to_owned();
    // The first release of that version, without its later fixes.
    if version.matches('.').count() == 1 {
        version.push_str(".0");
    }
    let rustup = |arguments: &[&str]| {
        // The environment of this process selects the newer compiler.
        cmd!(sh, "rustup run {version} cargo {arguments...}")
            .env_remove("CARGO")
            .env_remove("RUSTC")
            .env_remove("RUSTUP_TOOLCHAIN")
    };
    rustup(&["--version"]).run().with_context(|| {
        format!("Rust {version} is not installed: `rustup toolchain install {version} --profile minimal`")
    })?;
    let everything = ["--workspace", "--all-targets", "--locked"];
    let apart = ["--target-dir", "target/oldest-rust"];
    rustup(&[&["check"], &everything[..], &apart].concat()).run()?;
    println!("Rust {version} builds it");
    Ok(())
}

/// Builds the release twice, in two directories with names of different length, and compares.
pub fn reproducible() -> Result<()> {
    let sh = shell()?;
    let place = tempfile::tempdir()?;
    let mut built = Vec::new();
    for name in ["one", "another-place/deeper"] {
        let copy = place.path().join(name);
        copy_sources(&sh, &copy)?;
        let _in_copy = sh.push_dir(&copy);
        // Like a packager: the binary must not contain paths of this machine.
        cmd!(
            sh,
            "cargo build --quiet --release --locked --bin sandfork --target-dir target"
        )
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", remap_flags(&copy)?)
        .run()?;
        built.push(sh.read_binary_file("target/release/sandfork")?);
        println!("{name}: {} bytes", built.last().map_or(0, Vec::len));
    }
    let kept = sh.create_dir("target/reproducible")?;
    let (one, another) = (&built[0], &built[1]);
    fs::write(kept.join("one"), one)?;
    fs::write(kept.join("another"), another)?;
    let kept = kept.display();
    if one != another {
        let first = one.iter().zip(another).position(|(a, b)| a != b);
        bail!(
            "the two releases differ, first at byte {first:?}: compare {kept}/one with {kept}/another"
        );
    }
    for foreign in [place.path(), &cargo_home()?] {
        let foreign = foreign.display().to_string();
        ensure!(
            !one.windows(foreign.len())
                .any(|part| part == foreign.as_bytes()),
            "the release names a path of its builder: {foreign}"
        );
    }
    println!("two builds in two places are one release: {kept}/one");
    Ok(())
}

/// Copies the files that git tracks, in their current state.
pub fn copy_sources(sh: &Shell, copy: &Path) -> Result<()> {
    let list = cmd!(sh, "git ls-files -z --cached --others --exclude-standard").quiet();
    let names = list.read().context("the list of sources comes from git")?;
    for name in names.split_terminator('\0') {
        let (from, to) = (sh.current_dir().join(name), copy.join(name));
        // git also lists files whose deletion is not committed yet.
        if from.is_file() {
            fs::create_dir_all(to.parent().context("a file without a directory")?)?;
            fs::copy(from, to)?;
        }
    }
    Ok(())
}

/// Returns the compiler flags without which a binary contains paths of the build machine.
pub fn remap_flags(copy: &Path) -> Result<String> {
    let (copy, home) = (copy.display(), cargo_home()?);
    Ok(format!(
        "--remap-path-prefix={copy}=/sandfork\x1f--remap-path-prefix={}=/cargo",
        home.display()
    ))
}

fn cargo_home() -> Result<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo")));
    home.context("HOME is not set")
}
