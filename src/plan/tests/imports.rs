//! Refusals of what would let guests exchange the caller's modules.

use std::path::{Path, PathBuf};

use super::hosts::route;
use super::policy;
use crate::plan::check_imports;

/// Says why a path cannot be writable for a caller that imports modules from these, which are found by links.
fn imports_refused(write: &str, imports: &[&str], links: &[(&str, &str)]) -> Option<String> {
    let policy = policy(&format!("filesystem.write = [\"/srv/out\", \"{write}\"]"));
    let imports: Vec<PathBuf> = imports.iter().map(PathBuf::from).collect();
    let find = |path: &Path| route(path, links);
    let refused = check_imports(&policy, &imports, find, caller_module).err()?;
    Some(refused.to_string())
}

/// The files of the caller's modules.
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
fn a_writable_directory_that_could_be_a_module_before_one_that_the_caller_imports() {
    let imports = ["/old", "/home/ada/project", "/usr/lib/python3"];
    let refused = |write: &str| imports_refused(write, &imports, &[]);
    insta::assert_snapshot!(refused("/home/ada/project/code").unwrap(), @"/srv/tenant.toml:1: /home/ada/project/code cannot be writable, because the caller imports modules from /home/ada/project, and guests could make it the module `code` in place of /usr/lib/python3/code.py: give it another name, or take /home/ada/project out of the caller's `sys.path`");
    insta::assert_snapshot!(refused("/home/ada/project/polars").unwrap(), @"/srv/tenant.toml:1: /home/ada/project/polars cannot be writable, because the caller imports modules from /home/ada/project, and guests could make it the module `polars` with which Sandfork reads values: give it another name, or take /home/ada/project out of the caller's `sys.path`");
    for write in ["code.py", "app/views", "tzdata", "numpy.cpython-313.so"] {
        let said = refused(&format!("/home/ada/project/{write}"));
        assert!(
            said.is_some_and(|said| said.contains("give it another name")),
            "{write}"
        );
    }
    // No module precedes another one: neither in a package, nor with other suffixes, nor behind the other's entry.
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
fn a_writable_directory_with_what_the_caller_imports() {
    let imports = ["/usr/lib/python3", "/home/ada/project"];
    let refused = imports_refused("/home/ada/project", &imports, &[]).unwrap();
    insta::assert_snapshot!(refused, @"/srv/tenant.toml:1: /home/ada/project cannot be writable, because guests could exchange /home/ada/project, from which the caller imports modules: make only a directory of data in it writable, or take it out of the caller's `sys.path`");
    for write in ["/home", "/home/ada/"] {
        let refused = imports_refused(write, &imports, &[]).unwrap();
        let said = refused.contains("could exchange /home/ada/project, from which");
        assert!(said, "{refused}");
    }
    for write in ["/home/ada/project/data", "/home/ada/projects", "/home/bob"] {
        assert_eq!(imports_refused(write, &imports, &[]), None, "{write}");
    }
    let nothing = policy("limits.wall = \"2s\"");
    let find = |_: &Path| unreachable!("nothing is writable");
    check_imports(&nothing, &["/".into()], find, caller_module).unwrap();
}

#[test]
fn a_writable_directory_with_a_link_to_what_the_caller_imports() {
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
        let said = refused.contains(&format!("could exchange {entry}, from which"));
        assert!(said, "{refused}");
    }
    assert_eq!(imports_refused("/share/other", &imports, &links), None);
    // A `..` leads on from where a link leads.
    let imports = ["/share/cur/../other"];
    let refused = imports_refused("/data", &imports, &links).unwrap();
    assert!(refused.contains("exchange /data/other"), "{refused}");
}
