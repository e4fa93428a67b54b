//! Denials of files, directories and programs.

use super::*;

#[test]
fn file_permissions_have_no_layer_and_no_key() {
    let toml = "[filesystem]\nread = ['/srv/shown']";
    for errno in [Errno::EACCES, Errno::EPERM] {
        let denial = one(toml, claim("access", Some("/srv/shown/x"), errno)).unwrap();
        assert_eq!((denial.layer, denial.key, denial.set), (None, None, None));
    }
    // Landlock returns the same error, and the file's permissions would let the guest write to it.
    let changes = |changes: &str| Denied {
        changes: Some(changes.to_owned()),
        ..claim("access", Some("/srv/shown/x"), Errno::EACCES)
    };
    let denial = one(toml, changes("/srv/shown/x")).unwrap();
    assert_eq!(denial.set.as_deref(), Some("filesystem.write=/srv/shown/x"));
    // A guest may claim anything.
    for forged in ["/etc", "srv", "", "/srv/shown/x/y"] {
        let denial = one(toml, changes(forged)).unwrap();
        assert_eq!((denial.key, denial.set), (None, None), "{forged}");
    }
}

#[test]
fn new_file_needs_its_nearest_existing_directory() {
    let toml = "[filesystem]\nread = ['/srv/shown']";
    let set = |changes: &str| {
        let claim = Denied {
            changes: Some(changes.to_owned()),
            ..claim("access", Some("/srv/shown/a/b/new"), Errno::EROFS)
        };
        let denial = one(toml, claim).unwrap();
        assert_eq!(denial.key.as_deref(), Some("filesystem.write"));
        denial.set
    };
    let expected = Some("filesystem.write=/srv/shown/a".to_owned());
    assert_eq!(set("/srv/shown/a"), expected);
    // A path that `filesystem.read` lists cannot be in `filesystem.write` too.
    assert_eq!(set("/srv/shown"), None);
}

#[test]
fn new_file_in_a_hidden_directory_needs_the_hosts_directory() {
    let toml = "[filesystem]\nread = ['/srv/shown']";
    let made = |path: &str, errno, exists: &dyn Fn(&Path) -> Option<bool>| {
        let claim = Denied {
            changes: Some(path.to_owned()),
            ..claim("access", Some(path), errno)
        };
        let all = ended(toml, vec![claim], &Ending::Exception, None, exists);
        let denial = all.listed.into_iter().next()?;
        assert_eq!(denial.layer, Some(Layer::Mounts));
        Some((denial.set, denial.on_host))
    };
    let host = |path: &Path| {
        Some(
            ["/", "/srv", "/srv/d"]
                .iter()
                .any(|it| path == Path::new(it)),
        )
    };
    let set = |path: &str| Some(format!("filesystem.write={path}"));
    for (path, expected) in [
        ("/srv/d/new", Some((set("/srv/d"), Some(false)))),
        ("/srv/d/a/b/new", Some((set("/srv/d"), Some(false)))),
        ("/srv/d", Some((set("/srv/d"), Some(true)))),
        // No setting shows the host's root directory.
        ("/new", Some((None, Some(false)))),
        // The directory is missing, not hidden.
        ("/srv/shown/a/new", None),
        ("/work/a/new", None),
        ("/tmp/a/new", None),
    ] {
        assert_eq!(made(path, Errno::ENOENT, &host), expected, "{path}");
    }
    let unchecked = made("/srv/d/new", Errno::ENOENT, &|_| None);
    assert_eq!(unchecked, Some((set("/srv/d/new"), None)));
}

#[test]
fn guests_private_directory_hides_the_hosts() {
    let denial_of = |path: &str, errno, found: Option<bool>| {
        let claims = vec![claim("access", Some(path), errno)];
        let all = ended("", claims, &Ending::Exception, None, &|_| found);
        all.listed.into_iter().next()
    };
    for (path, set) in [
        ("/work/x", Some("filesystem.read=/work/x")),
        ("/tmp/d/x", Some("filesystem.read=/tmp/d/x")),
        ("/var/tmp/x", Some("filesystem.read=/var/tmp/x")),
        // No setting shows anything of the host there.
        ("/dev/shm/x", None),
    ] {
        let denial = denial_of(path, Errno::ENOENT, Some(true)).unwrap();
        assert_eq!(denial.layer, Some(Layer::Mounts), "{path}");
        assert_eq!((denial.set.as_deref(), denial.on_host), (set, Some(true)));
        for found in [Some(false), None] {
            assert_eq!(denial_of(path, Errno::ENOENT, found), None, "{path}");
        }
        // The guest's own file.
        let own = denial_of(path, Errno::EACCES, Some(true)).unwrap();
        assert_eq!((own.layer, own.key), (None, None), "{path}");
    }
}

#[test]
fn denied_execve_explains_refused_programs() {
    let libraries = "[filesystem]\nsystem = 'libraries'\n[syscalls]\ndeny = ['execve']";
    let programs = "[filesystem]\nsystem = 'programs'\n[syscalls]\ndeny = ['execve']";
    for toml in [libraries, programs] {
        for (operation, path) in [
            ("run", "/usr/bin/ls"),
            ("run", "/work/made"),
            // `os.posix_spawn` raises the same exception as an access to a file.
            ("access", "/usr/bin/ls"),
        ] {
            let denial = one(toml, claim(operation, Some(path), Errno::EPERM)).unwrap();
            assert_eq!(denial.layer, Some(Layer::Seccomp), "{operation} {path}");
            let advice = (denial.key.as_deref(), denial.set);
            assert_eq!(advice, (Some("syscalls.deny"), None), "{operation} {path}");
        }
        let file = one(toml, claim("access", Some("/work/x"), Errno::EPERM)).unwrap();
        assert_eq!((file.layer, file.key), (None, None));
    }
    // A check whether the program exists.
    let seen = one(
        libraries,
        claim("access", Some("/usr/bin/ls"), Errno::ENOENT),
    );
    let set = seen.unwrap().set;
    assert_eq!(set.as_deref(), Some("filesystem.system=programs"));
}

#[test]
fn hidden_paths_are_denials_and_missing_ones_are_not() {
    let exists = |path: &Path| Some(path == Path::new("/srv/there"));
    let claims = ["/srv/there", "/srv/missing"]
        .map(|path| claim("access", Some(path), Errno::ENOENT))
        .to_vec();
    let all = ended("", claims, &Ending::Exception, None, &exists);
    let [there] = all.listed.as_slice() else {
        panic!("{all:?}")
    };
    assert_eq!(
        (there.target.as_deref(), there.on_host),
        (Some("/srv/there"), Some(true))
    );
}
