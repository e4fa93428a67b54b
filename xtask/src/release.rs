//! Builds the release files.
//!
//! The command and its embedded library are linked against glibc 2.28, which every distribution since
//! 2018 has; zig provides the older glibc's symbols. No file contains a path or the time of the build: two
//! builds of one commit have the same checksums.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::supply::{copy_sources, remap_flags};
use crate::{interpreters, package, shell, venv};

const TOOLS: &str = include_str!("../release-tools.txt");

/// The oldest glibc that a release runs with, as a wheel's tag (PEP 600).
const COMPATIBILITY: &str = "manylinux_2_28";

/// The release targets.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The targets to build for
    #[arg(
        long = "target",
        value_name = "TRIPLE",
        default_values = TARGETS
    )]
    targets: Vec<String>,
    /// Install the wheel in the root directory of an older system instead, and run code with it
    #[arg(long = "try", value_name = "ROOT")]
    root: Option<PathBuf>,
}

/// Makes the files below `target/release-files`, or tries an existing wheel.
pub fn run(options: &Options) -> Result<()> {
    let sh = shell()?;
    let files = sh.current_dir().join("target/release-files");
    if let Some(root) = &options.root {
        return try_wheel(&sh, &files, root);
    }
    for target in &options.targets {
        has_standard_library(&sh, target)?;
    }
    sh.remove_path(&files)?;
    sh.create_dir(&files)?;
    let place = tempfile::tempdir()?;
    let release = Release::prepare(sh, place.path(), &files)?;
    for target in &options.targets {
        release.build(target)?;
    }
    // The source distribution, from which pip builds if there is no wheel.
    let (sh, files) = (&release.sh, &files);
    cmd!(sh, "maturin sdist --out {files}").run()?;
    for tarball in package::tarballs(&release.sources, &place.path().join("packages"))? {
        sh.copy_file(&tarball, files)?;
    }
    release.write_checksums()?;
    println!("{}", files.display());
    Ok(())
}

/// Compiles everything, including tests, for each target.
pub fn compile() -> Result<()> {
    let sh = shell()?;
    for target in TARGETS {
        has_standard_library(&sh, target)?;
        // Some dependencies are in C, so the target's C compiler must be installed too.
        cmd!(
            sh,
            "cargo check --workspace --all-targets --locked --target {target}"
        )
        .run()?;
    }
    Ok(())
}

fn has_standard_library(sh: &Shell, target: &str) -> Result<()> {
    let directory = cmd!(sh, "rustc --print target-libdir --target {target}")
        .quiet()
        .read();
    ensure!(
        directory.is_ok_and(|directory| Path::new(&directory).is_dir()),
        "Rust's standard library for {target} is not installed: `rustup target add {target}`; a release for other \
         targets needs `--target`"
    );
    Ok(())
}

/// A release in progress.
struct Release<'a> {
    /// A shell in the directory of the Python package, with the tools on its `PATH`.
    sh: Shell,
    /// A copy of the tracked sources.
    sources: PathBuf,
    /// The directory for build output.
    place: &'a Path,
    files: &'a Path,
    /// The time of the commit, in seconds: <https://reproducible-builds.org/specs/source-date-epoch/>.
    date: String,
}

impl<'a> Release<'a> {
    fn prepare(sh: Shell, place: &'a Path, files: &'a Path) -> Result<Self> {
        let found = interpreters::find().supported;
        let newest = found
            .iter()
            .max_by_key(|it| it.version)
            .context("no interpreter")?;
        let tools = sh.current_dir().join("target/release-tools");
        venv::make(newest, &tools, TOOLS)?;
        let sources = place.join("sources");
        copy_sources(&sh, &sources)?;
        let date = cmd!(sh, "git log -1 --format=%ct").quiet().read()?;
        // maturin uses the zig package of the first `python3` on `PATH`.
        let path = env::var_os("PATH").unwrap_or_default();
        let path = [tools.join("bin")]
            .into_iter()
            .chain(env::split_paths(&path));
        sh.set_var("PATH", env::join_paths(path)?);
        sh.set_var("SOURCE_DATE_EPOCH", &date);
        sh.change_dir(sources.join("python"));
        Ok(Self {
            sh,
            sources,
            place,
            files,
            date,
        })
    }

    /// Makes the wheel, the archive and the SBOM.
    fn build(&self, target: &str) -> Result<()> {
        let (sh, place, files) = (&self.sh, self.place, self.files);
        let (built, unpacked) = (place.join(target), place.join(format!("{target}-unpacked")));
        cmd!(
            sh,
            "maturin build --quiet --release --locked --zig --compatibility {COMPATIBILITY}
             --target {target} --out {built}"
        )
        .env("CARGO_TARGET_DIR", place.join("target"))
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", remap_flags(&self.sources)?)
        .run()?;
        let wheel = self.only_entry(&built)?;
        cmd!(sh, "wheel unpack --dest {unpacked} {wheel}").run()?;
        let unpacked = self.only_entry(&unpacked)?;
        let name = unpacked.file_name().context("a wheel without a name")?;
        let name = name.to_string_lossy();
        let parts = unpacked.join(format!("{name}.dist-info/sboms/sandfork.cyclonedx.json"));
        // The SBOM contains the directory of the build.
        let sources = self.sources.display().to_string();
        let list = sh.read_file(&parts)?.replace(&sources, "/sandfork");
        sh.write_file(&parts, list)?;
        cmd!(sh, "wheel pack --dest-dir {files} {unpacked}").run()?;
        let release = format!("{name}-{target}");
        sh.copy_file(&parts, files.join(format!("{release}.cyclonedx.json")))?;
        self.archive(
            &release,
            &unpacked.join(format!("{name}.data/scripts/sandfork")),
        )
    }

    /// Makes an archive of the command alone, for users without Python's tools.
    fn archive(&self, release: &str, command: &Path) -> Result<()> {
        let (sh, place, files, date) = (&self.sh, self.place, self.files, &self.date);
        let directory = sh.create_dir(place.join(release))?;
        sh.copy_file(command, directory.join("sandfork"))?;
        for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            sh.copy_file(self.sources.join(name), &directory)?;
        }
        let compress = "--use-compress-program=gzip -n -9";
        let tar = cmd!(
            sh,
            "tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u+w,go-w --mtime=@{date}
             {compress} -cf {files}/{release}.tar.gz -C {place} {release}"
        );
        Ok(tar.run()?)
    }

    fn write_checksums(&self) -> Result<()> {
        let files = self.sh.read_dir(self.files)?;
        let line = |file: PathBuf| {
            let name = file.file_name().unwrap_or_default().display();
            Ok(format!("{}  {name}\n", package::sha256(&self.sh, &file)?))
        };
        let list = files.into_iter().map(line).collect::<Result<String>>()?;
        Ok(self.sh.write_file(self.files.join("SHA256SUMS"), list)?)
    }

    fn only_entry(&self, directory: &Path) -> Result<PathBuf> {
        let entry = self.sh.read_dir(directory)?.pop();
        entry.with_context(|| format!("{} is empty", directory.display()))
    }
}

/// Installs the wheel with the Python of another system, whose root directory is `$1`, and runs code, in a separate
/// mount namespace: the kernel refuses user namespaces to a process in a chroot.
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

fn try_wheel(sh: &Shell, files: &Path, root: &Path) -> Result<()> {
    let machine = format!("_{}.whl", env::consts::ARCH);
    let names = sh
        .read_dir(files)
        .context("make a release first: `cargo xtask release`")?;
    let wheel = names
        .iter()
        .find(|path| path.to_string_lossy().ends_with(&machine));
    let wheel = wheel.context("there is no wheel for this machine among the release's files")?;
    Ok(cmd!(sh, "unshare --mount sh -c {TRY} try {root} {wheel}")
        .quiet()
        .run()?)
}
