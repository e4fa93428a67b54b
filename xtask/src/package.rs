//! The packages as crates.io would have them, and whether the command installs from there.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::supply::run;
use crate::tally::Tally;
use crate::test::cargo;
use crate::{Error, workspace};

/// The published packages, each after those that it depends on.
const PUBLISHED: [&str; 3] = ["sandfork-jail", "sandfork-worker", "sandfork"];

/// Makes the tarballs of the packages under `target`. They are not built: [`test_install`] does that.
pub fn tarballs(sources: &Path, target: &Path) -> Result<Vec<PathBuf>, Error> {
    let packages = PUBLISHED.iter().flat_map(|name| ["--package", name]);
    run(cargo(sources)
        .args([
            "package",
            "--quiet",
            "--locked",
            "--allow-dirty",
            "--no-verify",
        ])
        .args(packages)
        .arg("--target-dir")
        .arg(target))?;
    let made = fs::read_dir(target.join("package"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>, Error>>()?;
    let is_tarball = |path: &PathBuf| path.extension().is_some_and(|it| it == "crate");
    let mut made: Vec<PathBuf> = made.into_iter().filter(is_tarball).collect();
    made.sort();
    Ok(made)
}

/// Installs the command as `cargo install sandfork` does, from the tarballs alone, and runs code in a
/// sandbox with it. No file of the checkout is in reach.
pub fn test_install() -> Result<Tally, Error> {
    let workspace = workspace();
    let place = tempfile::tempdir()?;
    let registry = place.path().join("registry");
    println!("\n`cargo install` from the packages:");
    run(cargo(&workspace)
        .args(["vendor", "--quiet", "--locked", "--versioned-dirs"])
        .arg(&registry)
        .stdout(std::process::Stdio::null()))?;
    for tarball in tarballs(&workspace, &place.path().join("packages"))? {
        publish(&tarball, &registry)?;
    }
    let home = place.path().join("cargo-home");
    fs::create_dir(&home)?;
    fs::write(home.join("config.toml"), config(&registry))?;
    let root = place.path().join("installed");
    // The environment of this process is that of a cargo command in the checkout.
    let mut install = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    install
        .args(["install", "--quiet", "--locked", "--debug", "sandfork"])
        .arg("--root")
        .arg(&root)
        .current_dir(place.path())
        .env("CARGO_HOME", &home)
        .env("CARGO_TARGET_DIR", place.path().join("target"))
        .env_remove("CARGO_MANIFEST_DIR")
        .env_remove("CARGO_MANIFEST_PATH");
    let mut tally = Tally::of_check(&mut install)?;
    if tally.is_success() {
        let mut first = Command::new(root.join("bin/sandfork"));
        // The level that most hosts give: the kernel tests judge the others.
        first.args([
            "run",
            "--set",
            "assurance.require=landlock",
            "-c",
            "print(6 * 7)",
        ]);
        tally.add(Tally::of_check(&mut first)?);
    }
    Ok(tally)
}

/// Adds a package to a registry that is a directory
/// (<https://doc.rust-lang.org/cargo/reference/source-replacement.html>).
fn publish(tarball: &Path, registry: &Path) -> Result<(), Error> {
    run(Command::new("tar")
        .arg("-xzf")
        .arg(tarball)
        .arg("-C")
        .arg(registry))?;
    let name = tarball.file_stem().ok_or("a tarball without a name")?;
    let checksum = sha256(tarball)?;
    fs::write(
        registry.join(name).join(".cargo-checksum.json"),
        format!("{{\"files\":{{}},\"package\":\"{checksum}\"}}"),
    )?;
    Ok(())
}

fn config(registry: &Path) -> String {
    let registry = registry.display();
    format!(
        "[source.crates-io]\nreplace-with = \"packages\"\n[source.packages]\ndirectory = \"{registry}\"\n\
         [net]\noffline = true\n"
    )
}

/// The checksum of a file, in hexadecimal.
pub fn sha256(path: &Path) -> Result<String, Error> {
    let said = Command::new("sha256sum").arg(path).output()?;
    let text = String::from_utf8(said.stdout)?;
    let sum = text.split_whitespace().next();
    Ok(sum.ok_or("sha256sum printed nothing")?.to_owned())
}
