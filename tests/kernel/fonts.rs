//! Tests of the cached font list, which matplotlib builds at import: it is built once per environment and policy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bad_input::interpreters::file;
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    tests![
        later_start_reuses_the_font_list,
        damaged_or_stale_font_list_is_rebuilt,
        without_a_cache_the_font_list_is_rebuilt,
    ]
}

/// Mimics matplotlib's handling of its font list.
const PACKAGE: &str = "import os\n\
    path = os.environ['MPLCONFIGDIR'] + '/fontlist-v1.json'\n\
    if os.path.exists(path):\n    how = 'kept ' + open(path).read()\nelse:\n    how = 'made'\n    \
    try:\n        open(path, 'w').write('[\"fonts\"]')\n    except OSError:\n        pass\n";

/// A fake matplotlib package, run by a new process of the command that prints whether the list was cached.
struct Started<'a> {
    world: &'a World,
    packages: &'a Path,
    home: &'a Path,
}

impl Started<'_> {
    fn run(&self, set: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandfork"));
        command.args(["run", "--set"]);
        let interpreter = &self.world.host.interpreter.executable;
        command.arg(format!("python.interpreter={}", interpreter.display()));
        command.args(["--set", &format!("python.path={}", self.packages.display())]);
        for set in ["python.preload=matplotlib"].iter().chain(set) {
            command.args(["--set", set]);
        }
        let code = "import matplotlib.font_manager as f, os\nprint(f.how, os.path.exists(f.path))";
        let output = command
            .args(["-c", code])
            .env("XDG_CACHE_HOME", self.home)
            .output();
        let output = output.expect("the command runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text.trim().to_owned()
    }
}

fn with_package(world: &World, test: impl FnOnce(&Started, &Path)) {
    let host = file("ignored", 0o644, "");
    let package = host.path().join("matplotlib");
    fs::create_dir_all(package.join("mpl-data/fonts")).expect("the test owns the file");
    fs::write(package.join("__init__.py"), "").expect("the test owns the file");
    fs::write(package.join("font_manager.py"), PACKAGE).expect("the test owns the file");
    let home = tempfile::tempdir().expect("a temporary directory");
    let started = Started {
        world,
        packages: host.path(),
        home: home.path(),
    };
    test(&started, &package);
}

fn later_start_reuses_the_font_list(world: &World) {
    with_package(world, |started, _| {
        assert_eq!(started.run(&[]), "made False");
        // The guest does not find the file: what the zygote writes is invisible to workers.
        assert_eq!(started.run(&[]), "kept [\"fonts\"] False");
        // Another policy may load other packages.
        assert_eq!(started.run(&["limits.wall=7s"]), "made False");
    });
}

fn damaged_or_stale_font_list_is_rebuilt(world: &World) {
    with_package(world, |started, package| {
        assert_eq!(started.run(&[]), "made False");
        fs::create_dir(package.join("mpl-data/fonts/new")).expect("the test owns the file");
        assert_eq!(started.run(&[]), "made False");
        assert_eq!(started.run(&[]), "kept [\"fonts\"] False");
        let directory = started.home.join("sandfork");
        let entries = fs::read_dir(directory).expect("it was made");
        let mut paths = entries.map(|entry| entry.expect("the file is readable").path());
        let is_list = |path: &PathBuf| path.display().to_string().contains("/fonts-");
        let kept = paths.find(is_list).expect("the file is cached");
        let text = fs::read_to_string(&kept).expect("the test owns the file");
        let nested = "[".repeat(100_000);
        let escapes = text.replace("fontlist-v1.json", "fontlist-/../../../work/x.json");
        assert_ne!(text, escapes);
        for hostile in [&text[..text.len() / 2], "\0\0\0", "[]", &nested, &escapes] {
            fs::write(&kept, hostile).expect("the test owns the file");
            assert_eq!(started.run(&[]), "made False", "{hostile:.40}");
            assert_eq!(started.run(&[]), "kept [\"fonts\"] False");
        }
    });
}

fn without_a_cache_the_font_list_is_rebuilt(world: &World) {
    with_package(world, |started, _| {
        let file = started.home.join("file");
        fs::write(&file, "").expect("the test owns the file");
        let started = Started {
            home: &file,
            ..*started
        };
        for _ in 0..2 {
            assert_eq!(started.run(&[]), "made False");
        }
    });
}
