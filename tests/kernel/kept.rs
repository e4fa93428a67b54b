//! Tests of what a guest with write access to the host could replace, so that a later start runs it outside the
//! sandbox or shows the guest more.
//!
//! Each control performs the same attack where nothing prevents it: a later start then uses the replacement.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandfork::{Request, Status};

use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    tests![
        a_symlink_in_the_interpreter_path,
        a_writable_directory_first_on_path,
        a_symlink_in_the_cache_path,
        a_directory_of_libraries,
        a_tree_below_a_symlinked_writable_directory,
        a_policy_file_and_its_base,
    ]
}

/// A host directory with a subdirectory that guests may write to.
struct Scene<'a> {
    world: &'a World,
    place: tempfile::TempDir,
    cache: tempfile::TempDir,
}

impl<'a> Scene<'a> {
    fn new(world: &'a World) -> Self {
        let [place, cache] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        let scene = Self {
            world,
            place,
            cache,
        };
        fs::create_dir(scene.at("share")).unwrap();
        scene
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().canonicalize().unwrap().join(name)
    }

    fn python(&self) -> &Path {
        &self.world.host.interpreter.executable
    }

    /// Returns the command, with this interpreter.
    fn command(&self, interpreter: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandfork"));
        let set = format!("python.interpreter={}", interpreter.display());
        command.args(["run", "--set", &set]);
        command.env("XDG_CACHE_HOME", self.cache.path());
        command
    }

    /// Runs code in a guest that may write to the directory, or as the host user if the guest has another uid.
    #[track_caller]
    fn act(&self, code: &str) {
        let mut command = self.command(self.python());
        command.args(["--set", &self.writable(), "-c", code]);
        let stderr = stderr_of(command);
        if stderr.contains("PermissionError") {
            // As root on a file system without id-mapped mounts.
            let done = Command::new(self.python()).args(["-c", code]).status();
            assert!(done.unwrap().success());
        } else {
            assert_eq!(stderr, "");
        }
    }

    fn writable(&self) -> String {
        format!("filesystem.write=[\"{}\"]", self.at("share").display())
    }

    /// Returns guest code that leaves a program at a path in the directory. The program records that it ran.
    fn leave_program(&self, path: &str) -> String {
        format!(
            "import os\npath = '{}'\nos.makedirs(os.path.dirname(path), exist_ok=True)\n\
             open(path, 'w').write('''#!/bin/sh\necho > {}\nexec {} \"$@\"\n''')\nos.chmod(path, 0o755)",
            self.at(path).display(),
            self.at("ran").display(),
            self.python().display()
        )
    }

    /// Returns whether the guest's program has run outside the sandbox.
    fn has_run(&self) -> bool {
        fs::remove_file(self.at("ran")).is_ok()
    }

    #[track_caller]
    fn refused(&self, mut command: Command, what: &str) {
        command.args(["--set", &self.writable(), "-c", "pass"]);
        let stderr = stderr_of(command);
        let expected = format!("{} cannot be writable", self.at("share").display());
        assert!(
            stderr.contains(&expected) && stderr.contains(what),
            "{stderr}"
        );
    }
}

fn stderr_of(mut command: Command) -> String {
    let output = command.output().expect("the command starts");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn a_symlink_in_the_interpreter_path(world: &World) {
    let scene = Scene::new(world);
    let home = scene.python().parent().expect("the path has a parent");
    fs::create_dir_all(scene.at("base/bin")).unwrap();
    let settings = format!("home = {}\n", home.display());
    fs::write(scene.at("base/pyvenv.cfg"), settings).unwrap();
    symlink(scene.python(), scene.at("base/bin/python3")).unwrap();
    symlink("../base", scene.at("share/cur")).unwrap();
    symlink("share/cur", scene.at("py")).unwrap();
    let named = scene.at("py/bin/python3");

    let exchange = format!(
        "import os\nos.rename('{0}', '{0}-old')\n{1}",
        scene.at("share/cur").display(),
        scene.leave_program("share/cur/bin/python3")
    );
    scene.act(&exchange);
    let mut start = scene.command(&named);
    start.args(["-c", "pass"]);
    assert_eq!(stderr_of(start), "");
    assert!(scene.has_run(), "the control");

    fs::remove_dir_all(scene.at("share/cur")).unwrap();
    fs::rename(scene.at("share/cur-old"), scene.at("share/cur")).unwrap();
    scene.refused(scene.command(&named), "later starts find the interpreter");
    assert!(!scene.has_run());
}

fn a_writable_directory_first_on_path(world: &World) {
    let scene = Scene::new(world);
    let home = scene.python().parent().expect("the path has a parent");
    let path = format!("{}:{}", scene.at("share/bin").display(), home.display());
    let name = scene.python().file_name().expect("a file name");
    let command = || {
        let mut command = scene.command(Path::new(name));
        command.env("PATH", &path);
        command
    };
    let program = format!("share/bin/{}", name.display());
    scene.act(&scene.leave_program(&program));
    let mut start = command();
    start.args(["-c", "pass"]);
    assert_eq!(stderr_of(start), "");
    assert!(scene.has_run(), "the control");

    fs::remove_dir_all(scene.at("share/bin")).unwrap();
    scene.refused(command(), "later starts find programs on `PATH`");
    fs::create_dir(scene.at("share/bin")).unwrap();
    scene.refused(command(), "later starts find programs on `PATH`");
}

fn a_symlink_in_the_cache_path(world: &World) {
    let scene = Scene::new(world);
    fs::create_dir(scene.at("real")).unwrap();
    symlink("../real", scene.at("share/mid")).unwrap();
    symlink("share/mid", scene.at("cache")).unwrap();
    let command = || {
        let mut command = scene.command(scene.python());
        command.env("XDG_CACHE_HOME", scene.at("cache"));
        command
    };
    let exchange = format!(
        "import os\nos.rename('{0}', '{0}-old')\nos.mkdir('{0}', 0o700)",
        scene.at("share/mid").display()
    );
    scene.act(&exchange);
    let mut start = command();
    start.args(["-c", "pass"]);
    assert_eq!(stderr_of(start), "");
    let is_used = scene.at("share/mid/sandfork").exists();
    assert!(is_used, "the control");

    fs::remove_dir_all(scene.at("share/mid")).unwrap();
    fs::rename(scene.at("share/mid-old"), scene.at("share/mid")).unwrap();
    scene.refused(command(), "later starts find Sandfork's cache");
}

// Like Debian's `dist-packages`, whose `.pth` files run in a zygote.
fn a_directory_of_libraries(world: &World) {
    let scene = Scene::new(world);
    let of_system = ["/usr/lib", "/usr/local/lib"].map(PathBuf::from);
    let directories = world.host.interpreter.libraries.iter().chain(&of_system);
    for directory in directories.filter(|path| path.is_dir()) {
        let mut command = scene.command(scene.python());
        let write = format!("filesystem.write=[\"{}\"]", directory.display());
        command.args(["--set", &write, "-c", "pass"]);
        let stderr = stderr_of(command);
        assert!(
            stderr.contains("cannot be writable"),
            "{}: {stderr}",
            directory.display()
        );
    }
}

// The policy shows the directory through a symlink to it, and a directory inside it by its own path.
fn a_tree_below_a_symlinked_writable_directory(world: &World) {
    let scene = Scene::new(world);
    fs::create_dir_all(scene.at("share/a/in")).unwrap();
    fs::create_dir(scene.at("secret")).unwrap();
    fs::write(scene.at("secret/file"), "secret").unwrap();
    symlink("share", scene.at("link")).unwrap();
    let inner = scene.at("share/a/in");
    let both = format!(
        "filesystem.write=[\"{}\", \"{}\"]",
        scene.at("link").display(),
        inner.display()
    );
    // Each session starts a new interpreter.
    let recipe = standard().set(both).set("python.fresh=true");
    let sandbox = world.build(recipe);
    let run = |code: &str| sandbox.run(Request::python(code));
    let listed = run(&format!(
        "import os; assert not os.listdir('{}')",
        inner.display()
    ));
    assert_eq!(listed.unwrap().status(), Status::Ok, "the control");
    let exchange = format!(
        "import os\nos.rename('{0}', '{0}-old')\nos.symlink('{1}', '{0}')",
        scene.at("link/a/in").display(),
        scene.at("secret").display()
    );
    let exchanged = run(&exchange).unwrap();
    if exchanged.status() != Status::Ok {
        fs::rename(&inner, scene.at("share/a/in-old")).unwrap();
        symlink(scene.at("secret"), &inner).unwrap();
    }
    let read = fs::read_to_string(inner.join("file"));
    assert_eq!(read.unwrap(), "secret", "the control");

    let refused = run("pass").unwrap_err().to_string();
    let expected = format!("{} has become a symbolic link", inner.display());
    assert!(refused.starts_with(&expected), "{refused}");
    let later = sandfork::Sandbox::builder().policy(sandbox_policy(&scene));
    let refused = later.build().unwrap_err().to_string();
    assert!(refused.contains("through a symbolic link"), "{refused}");
}

/// Loads the policy of the sandbox above again.
fn sandbox_policy(scene: &Scene) -> sandfork::Policy {
    let both = format!(
        "filesystem.write=[\"{}\", \"{}\"]",
        scene.at("link").display(),
        scene.at("share/a/in").display()
    );
    standard().set(both).policy()
}

fn a_policy_file_and_its_base(world: &World) {
    let scene = Scene::new(world);
    let (policy, base) = (scene.at("share/policy.toml"), scene.at("share/base.toml"));
    fs::write(scene.at("secret"), "secret").unwrap();
    fs::write(&base, "").unwrap();
    fs::write(&policy, "extends = \"base.toml\"\n").unwrap();
    let read = format!("print(open('{}').read())", scene.at("secret").display());
    let shown = |policy: &Path| {
        let mut command = scene.command(scene.python());
        command.arg("--policy").arg(policy).args(["-c", &read]);
        let output = command.output().expect("the command starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(shown(&policy), "");
    let widen = format!(
        "open('{}', 'w').write('filesystem.read = [\"{}\"]')",
        base.display(),
        scene.at("secret").display()
    );
    scene.act(&widen);
    assert_eq!(shown(&policy), "secret\n", "the control");

    let outer = scene.at("outer.toml");
    fs::write(&outer, "extends = \"share/base.toml\"\n").unwrap();
    for named in [&policy, &outer] {
        let mut command = scene.command(scene.python());
        command.arg("--policy").arg(named);
        scene.refused(command, "later starts find the policy");
    }
    let elsewhere = scene.at("share/out");
    fs::create_dir(&elsewhere).unwrap();
    let mut command = scene.command(scene.python());
    let write = format!("filesystem.write=[\"{}\"]", elsewhere.display());
    command.arg("--policy").arg(&policy);
    command.args(["--set", &write, "-c", "pass"]);
    assert_eq!(stderr_of(command), "");
}
