//! Makes the guest's root file system: a disk image with this machine's Python and programs, and
//! the tests.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::unistd::geteuid;
use walkdir::WalkDir;
use xshell::{Shell, cmd};

use super::libraries;
use super::stage::Stage;
use crate::test_envs::{TestEnv, TestEnvs};

/// The programs that the tests start, including their controls without a sandbox.
const PROGRAMS: &[&str] = &[
    "cat", "chmod", "cp", "cut", "date", "dd", "dirname", "echo", "env", "false", "find", "getent",
    "grep", "head", "hostname", "id", "install", "kill", "ln", "ls", "mkdir", "mount", "mv",
    "nice", "nproc", "printf", "ps", "pwd", "readlink", "rm", "rmdir", "sed", "seq", "setpriv",
    "sh", "sleep", "sort", "stat", "stty", "su", "tail", "taskset", "tee", "test", "touch", "tr",
    "true", "tty", "umount", "uname", "unshare", "wc", "whoami", "yes",
];

/// The interpreter that every user can run, and that the tests request by name.
pub const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// The size of the image, enough for its contents and the tests' own files. The image is sparse on the
/// host.
const SIZE: u64 = 3 << 30;

/// The contents of the image.
#[derive(Clone, Debug)]
pub struct Contents<'a> {
    /// The checkout. The guest gets its probes and its manifest of environments.
    pub workspace: &'a Path,
    /// Test programs, and the programs that they start.
    pub programs: &'a [PathBuf],
    /// The system's interpreter with its environment.
    pub python: &'a TestEnv,
    /// The environment of the Python package's tests, if they are run.
    pub client: Option<&'a Path>,
}

/// Makes the image at `image` from a directory next to it.
pub fn make(contents: &Contents, image: &Path) -> Result<()> {
    let directory = image.with_extension("stage");
    let stage = Stage::begin(&directory)?;
    skeleton(&stage)?;
    python(&stage, contents)?;
    let mut programs = contents.programs.to_vec();
    programs.extend(PROGRAMS.iter().filter_map(|name| on_the_system(name)));
    for program in &programs {
        stage.take(program)?;
    }
    for scripts in ["tests/escape/probes", "tests/kernel/ordinary"] {
        stage.take_tree(&contents.workspace.join(scripts), &|_| true)?;
    }
    programs.push(contents.python.interpreter.executable.clone());
    // Shared objects need libraries of their own.
    for entry in WalkDir::new(&directory) {
        let entry = entry?;
        if entry.file_type().is_file() && entry.path().extension().is_some_and(|it| it == "so") {
            programs.push(entry.into_path());
        }
    }
    for library in libraries::of(&programs)? {
        // A library inside the tree is staged with its extension.
        if !library.starts_with(&directory) {
            stage.take(&library)?;
        }
    }
    format(&directory, image)?;
    fs::remove_dir_all(&directory)?;
    Ok(())
}

fn on_the_system(name: &str) -> Option<PathBuf> {
    let places = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    let mut candidates = places.iter().map(|place| Path::new(place).join(name));
    candidates.find(|candidate| candidate.exists())
}

fn skeleton(stage: &Stage) -> Result<()> {
    for directory in [
        "/dev", "/proc", "/sys", "/run", "/root", "/home", "/etc", "/var",
    ] {
        stage.directory(directory, 0o755)?;
    }
    for directory in ["/tmp", "/var/tmp"] {
        stage.directory(directory, 0o1777)?;
    }
    for (path, text) in [
        ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        ("/etc/group", "root:x:0:\n"),
        ("/etc/shadow", "root:*:20000:0:99999:7:::\n"),
        ("/etc/hostname", "sandfork-vm\n"),
        ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ] {
        stage.write(path, text)?;
    }
    let is_there = |path: &&Path| path.exists();
    // The first ones are symlinks if /usr has been merged.
    let taken = [
        "/bin",
        "/sbin",
        "/lib",
        "/lib64",
        "/etc/localtime",
        "/etc/ld.so.cache",
    ];
    for path in taken.map(Path::new).iter().copied().filter(is_there) {
        stage.take(path)?;
    }
    let trees = [
        "/usr/share/zoneinfo",
        "/usr/lib/locale/C.utf8",
        "/usr/lib/ssl",
        "/etc/ssl",
    ];
    for tree in trees.map(Path::new).iter().copied().filter(is_there) {
        stage.take_tree(tree, &|name| name != "private")?;
    }
    Ok(())
}

fn python(stage: &Stage, contents: &Contents) -> Result<()> {
    let executable = &contents.python.interpreter.executable;
    stage.take(executable)?;
    stage.take(Path::new(SYSTEM_PYTHON))?;
    let ask = "import sysconfig; paths = sysconfig.get_paths(); \
               print(paths['stdlib']); print(paths['platstdlib'])";
    let sh = Shell::new()?;
    let answer = cmd!(sh, "{executable} -I -c {ask}").quiet().read()?;
    for library in answer.lines() {
        let installed = ["site-packages", "dist-packages", "test", "idlelib"];
        stage.take_tree(Path::new(library), &|name| !installed.contains(&name))?;
    }
    stage.take_tree(&contents.python.directory, &|name| name != "pip")?;
    if let Some(client) = contents.client {
        stage.take_tree(client, &|_| true)?;
        // The pip with which environments of packages are made, where Debian keeps it.
        let pip = Path::new("/usr/share/python-wheels");
        if pip.exists() {
            stage.take_tree(pip, &|_| true)?;
        }
        let package = contents.workspace.join("python");
        // The package links to the value codec in the guest's sources.
        let codec = contents.workspace.join("crates/worker/guest/values");
        for tree in [package.join("src"), package.join("tests"), codec] {
            stage.take_tree(&tree, &|name| name != "__pycache__")?;
        }
        let index = contents.workspace.join("tests/cli/index.py");
        for file in [package.join("pyproject.toml"), index] {
            stage.take(&file)?;
        }
    }
    let manifest = contents.workspace.join("target/test-envs");
    let only = TestEnvs {
        envs: vec![contents.python.clone()],
        too_old: Vec::new(),
        client: None,
    };
    only.write_manifest(&stage.inside(&manifest))
}

fn format(directory: &Path, image: &Path) -> Result<()> {
    let sh = Shell::new()?;
    // A guest that still runs keeps the old file.
    sh.remove_path(image)?;
    File::create(image)?.set_len(SIZE)?;
    // Root owns the user's files in a user namespace.
    let unshare = (!geteuid().is_root()).then_some(["unshare", "--map-root-user"]);
    let mut words = unshare.into_iter().flatten().chain(["mkfs.ext4"]);
    let first = words.next().unwrap_or_default();
    let search = std::env::var("PATH").unwrap_or_default();
    cmd!(
        sh,
        "{first} {words...} -q -F -O ^has_journal -d {directory} {image}"
    )
    .env("PATH", format!("{search}:/usr/sbin:/sbin"))
    .quiet()
    .run()
    .context("the image could not be made: install e2fsprogs")
}
