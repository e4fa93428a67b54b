//! Builds the packages as crates.io would have them, and tests that the command installs from there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;
use xshell::{Shell, cmd};

use crate::tally::Tally;
use crate::{shell, workspace};

/// The published packages.
const PUBLISHED: [&str; 5] = [
    "sandfork-jail",
    "sandfork-egress",
    "sandfork-worker",
    "sandfork",
    "sandfork-server",
];

/// The published packages that contain programs.
const PROGRAMS: [&str; 2] = ["sandfork", "sandfork-server"];

/// Makes the tarballs of the published packages below `target`. They are not built: [`install`]
/// does that.
pub fn tarballs(sources: &Path, target: &Path) -> Result<Vec<PathBuf>> {
    let sh = Shell::new()?;
    sh.change_dir(sources);
    let packages = PUBLISHED.map(|name| ["--package", name]).concat();
    cmd!(
        sh,
        "cargo package --quiet --locked --allow-dirty --no-verify --target-dir {target} {packages...}"
    )
    .quiet()
    .run()?;
    let mut made = sh.read_dir(target.join("package"))?;
    made.retain(|path| path.extension().is_some_and(|it| it == "crate"));
    Ok(made)
}

/// The installed programs and their directory.
pub struct Installed {
    directory: TempDir,
    /// Whether they could be installed and could run code.
    pub tally: Tally,
}

impl Installed {
    /// Returns the path of the command.
    pub fn command(&self) -> PathBuf {
        self.directory.path().join("installed/bin/sandfork")
    }
}

/// Installs the command and the server with `cargo install` from the tarballs alone, and runs code in a sandbox. No
/// file of the checkout is used.
///
/// Third-party packages come from the directories that builds of the checkout use. Cargo recompiles a package whose
/// directory has changed: with a copy, both this build and the next one of the checkout would compile them all.
pub fn install() -> Result<Installed> {
    let directory = tempfile::tempdir()?;
    let place = directory.path();
    println!("\n`cargo install` from the packages:");
    let sh = shell()?;
    for tarball in tarballs(&sh.current_dir(), &place.join("packages"))? {
        cmd!(sh, "tar -xzf {tarball} -C {place}").quiet().run()?;
    }
    // Above the packages, where the other cargo finds it that their build script starts. `cargo install` itself gets
    // the file by `--config`.
    let sources = place.join(".cargo/config.toml");
    sh.write_file(&sources, config(place))?;
    sh.change_dir(place);
    let mut tally = Tally::default();
    for name in PROGRAMS {
        let package = unpacked(place, name);
        let lock = package.join("Cargo.lock");
        sh.write_file(&lock, with_ours_from_here(&sh.read_file(&lock)?))?;
        // The environment of this process is that of a cargo command in the checkout.
        let install = cmd!(
            sh,
            "cargo --config {sources} install --quiet --locked --debug --path {package} --root installed"
        )
        .env("CARGO_TARGET_DIR", workspace().join("target"))
        // The programs are only started, and compile faster without debug information.
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .env_remove("CARGO_MANIFEST_DIR")
        .env_remove("CARGO_MANIFEST_PATH");
        tally.add(Tally::of_check(install)?);
    }
    let mut installed = Installed { directory, tally };
    if installed.tally.is_success() {
        // The level that most hosts support: the kernel tests cover the others.
        let (command, code) = (installed.command(), "print(6 * 7)");
        let first = cmd!(
            sh,
            "{command} run --set assurance.require=landlock -c {code}"
        );
        installed.tally.add(Tally::of_check(first)?);
    }
    Ok(installed)
}

/// Returns the directory of an unpacked package.
fn unpacked(place: &Path, name: &str) -> PathBuf {
    place.join(format!("{name}-{}", env!("CARGO_PKG_VERSION")))
}

/// Removes the registry of the published packages from a lock file, as if they were path dependencies.
fn with_ours_from_here(lock: &str) -> String {
    let mut is_ours = false;
    let mut lines = lock.lines().collect::<Vec<_>>();
    lines.retain(|line| {
        if let Some(name) = line.strip_prefix("name = ") {
            is_ours = PUBLISHED.contains(&name.trim_matches('"'));
        }
        let is_place = line.starts_with("source = ") || line.starts_with("checksum = ");
        !(is_ours && is_place)
    });
    lines.join("\n") + "\n"
}

/// Returns the cargo configuration that takes the published packages from here, as if crates.io had them.
fn config(place: &Path) -> String {
    let patch = |name| format!("{name}.path = \"{}\"\n", unpacked(place, name).display());
    let patches: String = PUBLISHED.into_iter().map(patch).collect();
    format!("[net]\noffline = true\n[patch.crates-io]\n{patches}")
}

/// Returns the SHA-256 checksum of a file in hexadecimal.
pub fn sha256(sh: &Shell, path: &Path) -> Result<String> {
    let printed = cmd!(sh, "sha256sum {path}").quiet().read()?;
    let sum = printed.split_whitespace().next();
    Ok(sum.context("sha256sum printed nothing")?.to_owned())
}
