//! Makes what users install.
//!
//! The command and its embedded library are linked against glibc 2.28, which every distribution since
//! 2018 has. zig brings the older glibc's symbols. Nothing names a path or the time of the build: two
//! releases of one commit have the same checksums.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::supply::{copy_sources, remap_flags, run as run_command};
use crate::venv::Venv;
use crate::{Error, interpreters, package, workspace};

const TOOLS: &str = include_str!("../release-tools.txt");

/// The oldest glibc that a release runs with, as a wheel's tag (PEP 600).
const COMPATIBILITY: &str = "manylinux_2_28";

/// What a release is built for.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Makes the files under `target/release-files`, or tries a wheel that is there.
pub fn run(mut arguments: impl Iterator<Item = String>) -> Result<ExitCode, Error> {
    let mut targets = Vec::new();
    let mut root = None;
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let missing = format!("{argument} needs a value");
            arguments.next().ok_or(missing)
        };
        match argument.as_str() {
            "--target" => targets.push(value()?),
            "--try" => root = Some(PathBuf::from(value()?)),
            other => return Err(format!("`release` has no option {other}").into()),
        }
    }
    let workspace = workspace();
    let files = workspace.join("target/release-files");
    if let Some(root) = root {
        return try_wheel(&files, &root);
    }
    if targets.is_empty() {
        targets = TARGETS.map(str::to_owned).to_vec();
    }
    targets
        .iter()
        .try_for_each(|target| has_standard_library(target))?;
    if files.exists() {
        fs::remove_dir_all(&files)?;
    }
    fs::create_dir_all(&files)?;
    let place = tempfile::tempdir()?;
    let release = Release::prepare(&workspace, place.path(), &files)?;
    for target in &targets {
        release.build(target)?;
    }
    release.build_sources()?;
    for tarball in package::tarballs(&release.sources, &place.path().join("packages"))? {
        let name = tarball.file_name().ok_or("a tarball without a name")?;
        fs::copy(&tarball, files.join(name))?;
    }
    write_checksums(&files)?;
    println!("{}", files.display());
    Ok(ExitCode::SUCCESS)
}

fn has_standard_library(target: &str) -> Result<(), Error> {
    let mut rustc = Command::new("rustc");
    let said = rustc
        .args(["--print", "target-libdir", "--target", target])
        .output()?;
    let directory = String::from_utf8(said.stdout)?;
    if said.status.success() && Path::new(directory.trim()).is_dir() {
        return Ok(());
    }
    Err(format!(
        "Rust's standard library for {target} is not installed: `rustup target add {target}`, or choose other \
         targets with `--target`"
    )
    .into())
}

/// A release that is being made.
struct Release<'a> {
    /// A copy of the sources, without what only this checkout has.
    sources: PathBuf,
    /// For what is built.
    place: &'a Path,
    files: &'a Path,
    /// The directory of the tools.
    tools: PathBuf,
    /// The time of the commit, in seconds: <https://reproducible-builds.org/specs/source-date-epoch/>.
    date: String,
}

impl<'a> Release<'a> {
    fn prepare(workspace: &Path, place: &'a Path, files: &'a Path) -> Result<Self, Error> {
        let found = interpreters::find().supported;
        let newest = found.iter().max_by_key(|it| it.version);
        let tools = Venv {
            interpreter: newest.ok_or("no interpreter")?,
            directory: &workspace.join("target/release-tools"),
            requirements: TOOLS,
        };
        tools.make()?;
        let sources = place.join("sources");
        copy_sources(workspace, &sources)?;
        let date = Command::new("git")
            .args(["log", "-1", "--format=%ct"])
            .current_dir(workspace)
            .output()?;
        Ok(Self {
            sources,
            place,
            files,
            tools: tools.directory.join("bin"),
            date: String::from_utf8(date.stdout)?.trim().to_owned(),
        })
    }

    /// Makes the wheel, the archive and the list of parts.
    fn build(&self, target: &str) -> Result<(), Error> {
        let built = self.place.join(target);
        let mut maturin = self.tool("maturin")?;
        maturin
            .args(["build", "--quiet", "--release", "--locked", "--zig"])
            .args([
                "--compatibility",
                COMPATIBILITY,
                "--target",
                target,
                "--out",
            ])
            .arg(&built)
            .current_dir(self.sources.join("python"))
            .env("CARGO_TARGET_DIR", self.place.join("target"))
            .env_remove("RUSTFLAGS")
            .env("CARGO_ENCODED_RUSTFLAGS", remap_flags(&self.sources)?);
        run_command(&mut maturin)?;
        let wheel = only_entry(&built)?;
        let unpacked = self.place.join(format!("{target}-unpacked"));
        run_command(
            self.tool("wheel")?
                .args(["unpack", "--dest"])
                .arg(&unpacked)
                .arg(wheel),
        )?;
        let unpacked = only_entry(&unpacked)?;
        let name = unpacked.file_name().ok_or("a wheel without a name")?;
        let name = name.to_string_lossy().into_owned();
        let parts = unpacked.join(format!("{name}.dist-info/sboms/sandfork.cyclonedx.json"));
        self.forget_place(&parts)?;
        run_command(
            self.tool("wheel")?
                .args(["pack", "--dest-dir"])
                .arg(self.files)
                .arg(&unpacked),
        )?;
        let release = format!("{name}-{target}");
        fs::copy(&parts, self.files.join(format!("{release}.cyclonedx.json")))?;
        let command = unpacked.join(format!("{name}.data/scripts/sandfork"));
        self.archive(&release, &command)
    }

    /// Makes the source distribution, from which pip builds where there is no wheel.
    fn build_sources(&self) -> Result<(), Error> {
        run_command(
            self.tool("maturin")?
                .args(["sdist", "--out"])
                .arg(self.files)
                .current_dir(self.sources.join("python")),
        )
    }

    /// The list of parts names the directory of the build.
    fn forget_place(&self, parts: &Path) -> Result<(), Error> {
        let text = fs::read_to_string(parts)?;
        let place = self.sources.display().to_string();
        Ok(fs::write(parts, text.replace(&place, "/sandfork"))?)
    }

    /// The command alone, for those without Python's tools.
    fn archive(&self, release: &str, command: &Path) -> Result<(), Error> {
        let directory = self.place.join(release);
        fs::create_dir(&directory)?;
        fs::copy(command, directory.join("sandfork"))?;
        for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            fs::copy(self.sources.join(name), directory.join(name))?;
        }
        let date = format!("--mtime=@{}", self.date);
        run_command(
            Command::new("tar")
                .args([
                    "--sort=name",
                    "--owner=0",
                    "--group=0",
                    "--numeric-owner",
                    "--mode=u+w,go-w",
                ])
                .arg(date)
                .args(["--use-compress-program=gzip -n -9", "-cf"])
                .arg(self.files.join(format!("{release}.tar.gz")))
                .arg("-C")
                .arg(self.place)
                .arg(release),
        )
    }

    fn tool(&self, name: &str) -> Result<Command, Error> {
        let found = env::var_os("PATH").unwrap_or_default();
        let own = std::iter::once(self.tools.clone());
        let mut tool = Command::new(self.tools.join(name));
        // maturin asks the first `python3` for zig's package.
        tool.env(
            "PATH",
            env::join_paths(own.chain(env::split_paths(&found)))?,
        )
        .env("SOURCE_DATE_EPOCH", &self.date);
        Ok(tool)
    }
}

fn only_entry(directory: &Path) -> Result<PathBuf, Error> {
    let entry = fs::read_dir(directory)?.next();
    Ok(entry
        .ok_or_else(|| format!("{} is empty", directory.display()))??
        .path())
}

fn write_checksums(files: &Path) -> Result<(), Error> {
    let names = fs::read_dir(files)?.map(|entry| Ok(entry?.file_name()));
    let mut names = names.collect::<Result<Vec<_>, Error>>()?;
    names.sort();
    let mut list = fs::File::create(files.join("SHA256SUMS"))?;
    for name in names {
        let sum = package::sha256(&files.join(&name))?;
        writeln!(list, "{sum}  {}", name.display())?;
    }
    Ok(())
}

/// Installs the wheel with the Python of another system, whose root directory is `$1`, and runs code.
/// A mount namespace of its own: the kernel gives no user namespace to a process in a chroot.
const TRY: &str = r#"
set -eu
mount --make-rprivate /
mount --rbind "$1" "$1"
for shown in /proc /sys /dev; do mount --rbind $shown "$1$shown"; done
mount -t tmpfs tmpfs "$1/mnt"
cp "$2" "$1/mnt"
mkdir "$1/mnt/host"
cd "$1"
pivot_root . mnt/host
umount -l /mnt/host
PATH=/usr/sbin:/usr/bin:/sbin:/bin
ldd --version | head -1
python3 -m pip install --quiet --no-index --target /mnt/installed /mnt/*.whl
PYTHONPATH=/mnt/installed PATH=/mnt/installed/bin:$PATH python3 -c '
import sandfork
result = sandfork.run("6 * 7")
assert result.value == 42, result
print(result.status, result.value, sorted(result.enforced.layers))'
"#;

fn try_wheel(files: &Path, root: &Path) -> Result<ExitCode, Error> {
    let machine = format!("_{}.whl", env::consts::ARCH);
    let names = fs::read_dir(files).map_err(|error| {
        format!(
            "{}: {error}: make a release first: `cargo xtask release`",
            files.display()
        )
    })?;
    let is_wheel = |path: &PathBuf| path.to_string_lossy().ends_with(&machine);
    let wheel = names
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(is_wheel);
    let wheel = wheel.ok_or("there is no wheel for this machine among the release's files")?;
    run_command(
        Command::new("unshare")
            .args(["--mount", "sh", "-c", TRY, "try"])
            .arg(root)
            .arg(wheel),
    )?;
    Ok(ExitCode::SUCCESS)
}
