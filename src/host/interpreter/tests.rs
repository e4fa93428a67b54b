#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::OsString;
use std::os::unix::fs::symlink;

use super::*;
use crate::host::CallerEnvironment;

#[path = "../../../tests/common/programs.rs"]
mod programs;

fn on_path(dirs: &str) -> CallerEnvironment {
    CallerEnvironment::from_iter([(OsString::from("PATH"), OsString::from(dirs))])
}

/// Writes an executable script in place of an interpreter.
fn script(dir: &Path, name: &str, body: &str) -> PathBuf {
    let path = dir.join(name);
    programs::install(&path, 0o755, &format!("#!/bin/sh\n{body}\n"));
    path
}

/// Returns the error for the facts of Debian's CPython 3.11 with one field changed.
fn refused(field: usize, value: &str) -> String {
    let mut facts = [
        "/usr/bin/python3",
        "cpython",
        "3.11.2",
        "",
        "/usr",
        "/usr",
        "/usr",
        "/usr/lib/python3.11",
        "a70d0d0a",
    ];
    facts[field] = value;
    read(&facts.join("\0")).unwrap_err().to_string()
}

fn read(facts: &str) -> Result<Interpreter, Error> {
    Interpreter::from_facts(facts, Path::new("/opt/python"))
}

#[test]
fn system_python_is_probed() {
    let environment = CallerEnvironment::current();
    let path = resolve("python3", &environment).unwrap();
    let found = probe(&path, &environment).unwrap();
    assert!((found.version.0, found.version.1) >= OLDEST);
    assert!(found.stdlib.starts_with(&found.base_prefix), "{found:?}");
    assert_eq!(
        found.links.first().map_or(&found.binary, |link| &link.path),
        &found.executable
    );
    assert!(!fs::symlink_metadata(&found.binary).unwrap().is_symlink());
}

#[test]
fn virtual_environment_resolves_by_its_directory() {
    let environment = CallerEnvironment::current();
    let base = probe(&resolve("python3", &environment).unwrap(), &environment).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let venv = dir.path().join("env");
    fs::create_dir_all(venv.join("bin")).unwrap();
    let home = base.executable.parent().unwrap();
    fs::write(
        venv.join("pyvenv.cfg"),
        format!("home = {}\n", home.display()),
    )
    .unwrap();
    symlink(&base.executable, venv.join("bin/python")).unwrap();

    let path = resolve(venv.to_str().unwrap(), &environment).unwrap();
    let found = probe(&path, &environment).unwrap();
    assert_eq!(found.executable, venv.join("bin/python"));
    assert_eq!(found.venv.as_deref(), Some(venv.as_path()));
    assert_eq!(found.prefix, venv);
    assert_eq!(found.base_prefix, base.base_prefix);
    assert_eq!(found.binary, base.binary);
    assert_eq!(found.links[0].points_at, base.executable);
    // tempfile makes its directories accessible to their owner only, but the binary itself is
    // elsewhere.
    assert_eq!(found.closed, base.closed);
}

#[test]
fn missing_interpreter_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().to_str().unwrap();
    assert_eq!(
        resolve("python9", &on_path("/bin:/usr/bin"))
            .unwrap_err()
            .to_string(),
        "there is no `python9` on PATH (/bin:/usr/bin): install CPython 3.9 or later, or set \
         `python.interpreter` to the path of one"
    );
    assert_eq!(
        resolve("/nowhere/python", &on_path(""))
            .unwrap_err()
            .to_string(),
        "the interpreter /nowhere/python cannot be found (No such file or directory (os error 2)): \
         set `python.interpreter` to a program, a name on PATH or a virtual environment"
    );
    assert_eq!(
        resolve(empty, &on_path("")).unwrap_err().to_string(),
        format!(
            "{empty} has no bin/python, so it is not a virtual environment: make one with `python3 -m venv {empty}`"
        )
    );
}

#[test]
fn environment_with_a_removed_base_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let venv = dir.path().join("env");
    fs::create_dir_all(venv.join("bin")).unwrap();
    symlink("python3", venv.join("bin/python")).unwrap();
    symlink("/nowhere/python3", venv.join("bin/python3")).unwrap();
    for named in [venv.clone(), venv.join("bin/python")] {
        let error = resolve(named.to_str().unwrap(), &on_path("")).unwrap_err();
        let expected = format!(
            "the interpreter {} is a link to /nowhere/python3, which does not exist: make the virtual environment again, \
             because the Python that made it is gone",
            venv.join("bin/python").display()
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn environment_with_an_inaccessible_base_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let (home, venv) = (dir.path().join("home"), dir.path().join("env"));
    fs::create_dir_all(home.join("bin")).unwrap();
    fs::create_dir_all(venv.join("bin")).unwrap();
    let base = script(&home.join("bin"), "python3", "exit 0");
    symlink(&base, venv.join("bin/python")).unwrap();
    let assert_closed = |closed: &Path| {
        let error = resolve(venv.to_str().unwrap(), &on_path("")).unwrap_err();
        let uid = nix::unistd::geteuid().as_raw();
        let expected = format!(
            "the interpreter {} is a link to {}, which uid {uid} may not execute, because {closed} is closed to it: make the \
             virtual environment from an interpreter that this user can run, such as /usr/bin/python3, or open {closed}",
            venv.join("bin/python").display(),
            base.display(),
            closed = closed.display()
        );
        assert_eq!(error.to_string(), expected);
    };
    let close = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o0)).unwrap();
    close(&base);
    // Root may not execute it either, because no execute bit is set.
    assert_closed(&base);
    if !nix::unistd::geteuid().is_root() {
        close(&home);
        assert_closed(&home);
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn broken_interpreter_is_explained_with_its_output() {
    let dir = tempfile::tempdir().unwrap();
    let environment = on_path("/usr/bin:/bin");
    let ask = |path: &Path| probe(path, &environment).unwrap_err().to_string();

    let plain = dir.path().join("plain");
    fs::write(&plain, "x").unwrap();
    assert!(ask(&plain).contains("cannot be executed (Permission denied"));
    assert!(
        ask(&plain)
            .ends_with("make it executable (`chmod +x`) or name another with `python.interpreter`")
    );

    let orphaned = dir.path().join("orphaned");
    programs::install(&orphaned, 0o755, "#! /nowhere/python -s\n");
    assert_eq!(
        ask(&orphaned),
        format!(
            "the interpreter {} cannot be executed (No such file or directory (os error 2)): its first line names \
             `/nowhere/python`; install that, or name another with `python.interpreter`",
            orphaned.display()
        )
    );

    let empty = dir.path().join("empty");
    programs::install(&empty, 0o755, "");
    assert!(ask(&empty).ends_with("(os error 8)): name another with `python.interpreter`"));

    let crashing = script(
        dir.path(),
        "crashing",
        "echo 'libpython3.so: missing' >&2; exit 127",
    );
    assert!(ask(&crashing).contains("does not work (exit status 127: libpython3.so: missing)"));

    let killed = script(dir.path(), "killed", "kill -SEGV $$");
    assert!(ask(&killed).contains("does not work (killed by signal 11)"));

    let repeating = script(
        dir.path(),
        "repeating",
        "echo \"no such file: $*\" | tr '\\n' ' ' >&2; exit 2",
    );
    let error = ask(&repeating);
    assert!(
        error.contains("(exit status 2: it is not Python): check that"),
        "{error}"
    );

    let verbose = script(dir.path(), "verbose", "printf '%0999d' 0 >&2; exit 2");
    let error = ask(&verbose);
    assert!(error.contains("000...): check that"), "{error}");
    assert!(error.len() < 600, "{error}");

    let silent = script(dir.path(), "silent", "exit 0");
    assert!(ask(&silent).contains("its answer cannot be read"));

    let flood = script(dir.path(), "flood", "exec cat /dev/zero");
    assert!(ask(&flood).contains("its output is too long"));
}

#[test]
fn unsuitable_interpreter_is_explained() {
    let old = script(
        Path::new(tempfile::tempdir().unwrap().keep().as_path()),
        "python2",
        "[ \"$1\" = -I ] && exit 2; echo 2.7.18",
    );
    let error = probe(&old, &on_path("/usr/bin:/bin"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("is Python 2.7.18, and Sandfork needs CPython 3.9 or later"),
        "{error}"
    );
    fs::remove_dir_all(old.parent().unwrap()).unwrap();

    for (field, value, what) in [
        (1, "pypy", "/opt/python is not CPython but pypy,"),
        (2, "3.8.18", "/opt/python is Python 3.8.18,"),
        (3, "t", "/opt/python is a free-threaded build of CPython,"),
    ] {
        let error = refused(field, value);
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn malformed_facts_are_rejected() {
    for (field, value, what) in [
        (0, "", "it names the relative path ``"),
        (7, "lib", "it names the relative path `lib`"),
        (2, "3.x.1", "it has no version"),
        (2, "3.11", "it has no version"),
        (2, "3.11.1000", "it has no version"),
        (5, "/usr\0/usr", "it has 10 fields instead of 9"),
    ] {
        let error = refused(field, value);
        assert!(error.contains(what), "{error}");
    }
    assert!(
        read("")
            .unwrap_err()
            .to_string()
            .contains("it has 1 fields instead of 9")
    );
}

#[test]
fn links_are_followed_to_the_binary() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let installation = at("installation");
    for inside in ["bin", "lib/python3.11", "lib64"] {
        fs::create_dir_all(installation.join(inside)).unwrap();
    }
    fs::create_dir_all(at("env/bin")).unwrap();
    fs::write(at("env/pyvenv.cfg"), "").unwrap();
    fs::write(installation.join("bin/python3.11"), "").unwrap();
    let links = [
        ("env/bin/python", "./python3"),
        ("env/bin/python3", "../../installation/bin/python3"),
        ("installation/bin/python3", "python3.11"),
    ];
    for (link, target) in links {
        symlink(target, at(link)).unwrap();
    }
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let base = text(&installation);
    let facts = [
        text(&at("env/bin/python")),
        "cpython".into(),
        "3.11.2".into(),
        String::new(),
        base.clone(),
        base.clone(),
        base,
        text(&installation.join("lib/python3.11")),
        String::new(),
    ];
    let found = read(&facts.join("\0")).unwrap();
    let followed = links.map(|(path, points_at)| Link {
        path: at(path),
        points_at: points_at.into(),
    });
    assert_eq!(found.links, followed);
    assert_eq!(found.binary, installation.join("bin/python3.11"));
    assert_eq!(found.prefix, at("env"));
    assert_eq!(found.venv, Some(at("env")));
    assert_eq!(found.programs, [installation.join("bin")]);
    let headers = installation.join("include/python3.11");
    fs::create_dir_all(&headers).unwrap();
    let found_again = read(&facts.join("\0")).unwrap();
    assert_eq!(found_again.programs, [installation.join("bin"), headers]);
    let libraries = ["lib", "lib/python3.11", "lib64"].map(|name| installation.join(name));
    assert_eq!(found.libraries, libraries);
    fs::create_dir(installation.join("conda-meta")).unwrap();
    assert_eq!(read(&facts.join("\0")).unwrap().programs, [installation]);
}
