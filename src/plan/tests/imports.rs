//! Tests the rejection of writable paths through which guests could replace the caller's modules.

use std::path::{Path, PathBuf};

use super::hosts::route;
use super::policy;
use crate::plan::check_imports;

/// Returns the error for a writable path of a caller that imports modules from these paths, on a host with these links.
fn imports_refused(write: &str, imports: &[&str], links: &[(&str, &str)]) -> Option<String> {
    let policy = policy(&format!("filesystem.write = [\"/srv/out\", \"{write}\"]"));
    let imports: Vec<PathBuf> = imports.iter().map(PathBuf::from).collect();
    let find = |path: &Path| route(path, links);
    let refused = check_imports(&policy, &imports, find, caller_module).err()?;
    Some(refused.to_string())
}

/// Returns the file of a caller's module.
fn caller_module(path: &Path) -> Option<PathBuf> {
    let files = [
        "/usr/lib/python3/code.py",
        "/home/ada/project/app/views.py",
        "/home/ada/project/pkg/__init__.py",
        "/old/first.py",
    ];
    let mut files = files.iter().map(PathBuf::from);
    files.find(|file| *file == path.with_extension("py") || *file == path.join("__init__.py"))
}

#[test]
fn writable_path_that_could_shadow_a_module_is_rejected() {
    let imports = ["/old", "/home/ada/project", "/usr/lib/python3"];
    let refused = |write: &str| imports_refused(write, &imports, &[]);
    insta::assert_snapshot!(refused("/home/ada/project/code").unwrap(), @"/srv/tenant.toml:1: /home/ada/project/code cannot be writable, because the caller imports modules from /home/ada/project, and guests could make it the module `code`, which would shadow /usr/lib/python3/code.py: rename it, or remove /home/ada/project from the caller's `sys.path`");
    insta::assert_snapshot!(refused("/home/ada/project/polars").unwrap(), @"/srv/tenant.toml:1: /home/ada/project/polars cannot be writable, because the caller imports modules from /home/ada/project, and guests could make it the module `polars`, with which Sandfork decodes values: rename it, or remove /home/ada/project from the caller's `sys.path`");
    for write in ["code.py", "app/views", "tzdata", "numpy.cpython-313.so"] {
        let message = refused(&format!("/home/ada/project/{write}"));
        assert!(
            message.is_some_and(|message| message.contains("rename it, or remove")),
            "{write}"
        );
    }
    // These shadow no module: they are in a package, have other suffixes, or follow the other module's entry.
    for write in [
        "app/code",
        "code.json",
        "pkg",
        "pkg/data",
        "polars.csv",
        "first",
        "2code",
    ] {
        assert_eq!(
            refused(&format!("/home/ada/project/{write}")),
            None,
            "{write}"
        );
    }
}

#[test]
fn writable_parent_of_imports_is_rejected() {
    let imports = ["/usr/lib/python3", "/home/ada/project"];
    let refused = imports_refused("/home/ada/project", &imports, &[]).unwrap();
    insta::assert_snapshot!(refused, @"/srv/tenant.toml:1: /home/ada/project cannot be writable, because guests could replace /home/ada/project, from which the caller imports modules: make only a data directory in it writable, or remove it from the caller's `sys.path`");
    for write in ["/home", "/home/ada/"] {
        let refused = imports_refused(write, &imports, &[]).unwrap();
        let is_named = refused.contains("could replace /home/ada/project, from which");
        assert!(is_named, "{refused}");
    }
    for write in ["/home/ada/project/data", "/home/ada/projects", "/home/bob"] {
        assert_eq!(imports_refused(write, &imports, &[]), None, "{write}");
    }
    let nothing = policy("limits.wall = \"2s\"");
    let find = |_: &Path| unreachable!("nothing is writable");
    check_imports(&nothing, &["/".into()], find, caller_module).unwrap();
}

#[test]
fn writable_link_to_imports_is_rejected() {
    let links = [
        ("/opt/lib", "../share/cur"),
        ("/share/cur", "/data/modules"),
        ("/home/link", "/share"),
    ];
    let imports = ["/opt/lib/app.zip"];
    for (write, entry) in [
        ("/opt", "/opt/lib"),
        ("/share", "/share/cur"),
        ("/home/link", "/share/cur"),
        ("/data", "/data/modules/app.zip"),
        ("/data/modules/app.zip", "/data/modules/app.zip"),
    ] {
        let refused = imports_refused(write, &imports, &links).unwrap();
        let is_named = refused.contains(&format!("could replace {entry}, from which"));
        assert!(is_named, "{refused}");
    }
    assert_eq!(imports_refused("/share/other", &imports, &links), None);
    // A `..` is resolved relative to the target of a link.
    let imports = ["/share/cur/../other"];
    let refused = imports_refused("/data", &imports, &links).unwrap();
    assert!(refused.contains("replace /data/other"), "{refused}");
}
