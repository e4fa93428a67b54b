//! The packages as crates.io would have them, and whether the command installs from there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;
use xshell::{Shell, cmd};

use crate::tally::Tally;
use crate::{shell, workspace};

/// Makes the tarballs of the published packages under `target`. They are not built: [`install`]
/// does that.
pub fn tarballs(sources: &Path, target: &Path) -> Result<Vec<PathBuf>> {
    let sh = Shell::new()?;
    sh.change_dir(sources);
    cmd!(
        sh,
        "cargo package --quiet --locked --allow-dirty --no-verify --target-dir {target}
         --package sandfork-jail --package sandfork-egress --package sandfork-worker --package sandfork
         --package sandfork-server"
    )
    .quiet()
    .run()?;
    let mut made = sh.read_dir(target.join("package"))?;
    made.retain(|path| path.extension().is_some_and(|it| it == "crate"));
    Ok(made)
}

/// The programs that were installed, and their directory.
pub struct Installed {
    directory: TempDir,
    /// Whether they could be installed, and run code.
    pub tally: Tally,
}

impl Installed {
    /// The path of the command.
    pub fn command(&self) -> PathBuf {
        self.directory.path().join("installed/bin/sandfork")
    }
}

/// Installs the command and the server as `cargo install` does, from the tarballs alone, and runs code in a
/// sandbox. No file of the checkout is in reach. What the checkout's own builds made of other projects' packages is used
/// again.
pub fn install() -> Result<Installed> {
    let directory = tempfile::tempdir()?;
    let place = directory.path();
    let registry = place.join("registry");
    println!("\n`cargo install` from the packages:");
    let sh = shell()?;
    let vendor = cmd!(
        sh,
        "cargo vendor --quiet --locked --versioned-dirs {registry}"
    );
    vendor.quiet().ignore_stdout().run()?;
    for tarball in tarballs(&sh.current_dir(), &place.join("packages"))? {
        publish(&sh, &tarball, &registry)?;
    }
    // Above the packages, because their build script starts another cargo. `cargo install` looks at no directory.
    let sources = place.join(".cargo/config.toml");
    sh.write_file(&sources, config(&registry))?;
    sh.change_dir(place);
    // The environment of this process is that of a cargo command in the checkout.
    let install = cmd!(
        sh,
        "cargo --config {sources} install --quiet --locked --debug sandfork sandfork-server --root installed"
    )
    .env("CARGO_TARGET_DIR", workspace().join("target"))
    // The programs are only started, and build faster without.
    .env("CARGO_PROFILE_DEV_DEBUG", "false")
    .env_remove("CARGO_MANIFEST_DIR")
    .env_remove("CARGO_MANIFEST_PATH");
    let tally = Tally::of_check(install)?;
    let mut installed = Installed { directory, tally };
    if installed.tally.is_success() {
        // The level that most hosts give: the kernel tests judge the others.
        let (command, code) = (installed.command(), "print(6 * 7)");
        let first = cmd!(
            sh,
            "{command} run --set assurance.require=landlock -c {code}"
        );
        installed.tally.add(Tally::of_check(first)?);
    }
    Ok(installed)
}

/// Adds a package to a registry that is a directory
/// (<https://doc.rust-lang.org/cargo/reference/source-replacement.html>).
fn publish(sh: &Shell, tarball: &Path, registry: &Path) -> Result<()> {
    cmd!(sh, "tar -xzf {tarball} -C {registry}").quiet().run()?;
    let name = tarball.file_stem().context("a tarball without a name")?;
    let sum = sha256(sh, tarball)?;
    let checksum = format!("{{\"files\":{{}},\"package\":\"{sum}\"}}");
    Ok(fs::write(
        registry.join(name).join(".cargo-checksum.json"),
        checksum,
    )?)
}

fn config(registry: &Path) -> String {
    let registry = registry.display();
    format!(
        "[source.crates-io]\nreplace-with = \"packages\"\n[source.packages]\ndirectory = \"{registry}\"\n\
         [net]\noffline = true\n"
    )
}

/// The checksum of a file, in hexadecimal.
pub fn sha256(sh: &Shell, path: &Path) -> Result<String> {
    let said = cmd!(sh, "sha256sum {path}").quiet().read()?;
    let sum = said.split_whitespace().next();
    Ok(sum.context("sha256sum printed nothing")?.to_owned())
}
