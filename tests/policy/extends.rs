//! Tests of what `extends` reads, and in which order.

use insta::assert_snapshot;
use sandfork::internals::policy::{BuiltInsOnly, PolicyOrigins as _, PolicySettings as _};
use sandfork::{LimitName, Policy, PolicyError};

use crate::support::{Files, load};

fn load_first(files: &[(&str, &str)]) -> Result<Policy, PolicyError> {
    let (first, _) = files[0];
    Policy::load(first, &[], &Files::new(files.iter().copied()))
}

fn refusal(files: &[(&str, &str)]) -> String {
    load_first(files).expect_err("refused").to_string()
}

#[test]
fn a_file_without_extends_builds_on_standard() {
    let empty = load("").unwrap();
    assert_eq!(empty.sha256(), Policy::default().sha256());
    let explicit = load("extends = 'standard'").unwrap();
    assert_eq!(explicit.sha256(), empty.sha256());
    let other = load("extends = 'strict'").unwrap();
    assert_ne!(other.sha256(), empty.sha256());
}

#[test]
fn a_path_starts_from_the_directory_of_its_file() {
    let policy = load_first(&[
        ("tenants/a.toml", "extends = '../bases/b.toml'"),
        (
            "tenants/../bases/b.toml",
            "extends = 'c.toml'\npython.path = ['lib']",
        ),
        (
            "tenants/../bases/c.toml",
            "limits.pids = 7\npython.path = ['../lib']",
        ),
        ("c.toml", "limits.pids = 8"),
    ])
    .unwrap();
    assert_eq!(policy.limits().pids(), 7);
    let path: Vec<_> = policy
        .python()
        .path
        .iter()
        .map(|item| item.value.to_str().unwrap())
        .collect();
    assert_eq!(path, ["/home/user/lib", "/home/user/bases/lib"]);
}

#[test]
fn an_absolute_path_is_taken_as_it_is() {
    let policy = load_first(&[
        ("tenants/a.toml", "extends = '/etc/sandfork/b.toml'"),
        ("/etc/sandfork/b.toml", "python.interpreter = '../venv'"),
    ])
    .unwrap();
    assert_eq!(policy.python().interpreter.value, "/etc/venv");
}

#[test]
fn a_built_in_name_wins_over_a_file() {
    let files = [
        ("a.toml", "extends = 'strict'"),
        ("strict", "limits.pids = 9"),
    ];
    assert_eq!(
        load_first(&files).unwrap().sha256(),
        Policy::builtin("strict").unwrap().sha256()
    );
    let files = [
        ("a.toml", "extends = './strict'"),
        ("./strict", "limits.pids = 9"),
    ];
    assert_eq!(load_first(&files).unwrap().limits().pids(), 9);
}

#[test]
fn each_value_keeps_its_origin() {
    let policy = load_first(&[
        (
            "a.toml",
            "extends = 'b.toml'\nfilesystem.read = ['/srv/a']\n\nlimits.wall = '1s'",
        ),
        (
            "b.toml",
            "\nlimits = { wall = '2s', cpu = '2s' }\n\n[filesystem]\nread = [\n  '/srv/b',\n]",
        ),
    ])
    .unwrap();
    let read: Vec<String> = policy
        .filesystem()
        .read
        .iter()
        .map(|item| format!("{} {}", item.value.display(), item.origin))
        .collect();
    assert_eq!(read, ["/srv/b b.toml:6", "/srv/a a.toml:2"]);
    assert_eq!(policy.limit_origin(LimitName::Wall).to_string(), "a.toml:4");
    assert_eq!(policy.limit_origin(LimitName::Cpu).to_string(), "b.toml:2");
    assert_eq!(
        policy.limit_origin(LimitName::Memory).file,
        "built-in standard"
    );
    assert_eq!(policy.require_origin().file, "built-in standard");
}

#[test]
fn cycles_are_rejected() {
    assert_snapshot!(refusal(&[("a.toml", "extends = 'a.toml'")]), @"a.toml:1: extends: a.toml -> a.toml is a cycle: remove one `extends`");
    assert_snapshot!(refusal(&[
        ("a.toml", "extends = 'b.toml'"),
        ("b.toml", "\nextends = './c.toml'"),
        ("./c.toml", "extends = 'sub/../b.toml'"),
    ]), @"./c.toml:1: extends: b.toml -> ./c.toml -> ./sub/../b.toml is a cycle: remove one `extends`");
}

#[test]
fn sixteen_policies_may_extend_each_other() {
    // The built-in `standard` is the last of the chain.
    let chain = |length: usize| {
        let name = |index: usize| format!("{index}.toml");
        let files = (1..length).map(|index| {
            let last = index + 1 == length;
            let base = if last {
                "standard".to_owned()
            } else {
                name(index + 1)
            };
            (name(index), format!("extends = '{base}'"))
        });
        Policy::load("1.toml", &[], &Files::new(files)).map_err(|error| error.to_string())
    };
    assert!(chain(16).is_ok());
    assert_snapshot!(chain(17).expect_err("too long"), @"16.toml:1: extends: the chain of `extends` has more than 16 policies: merge some of them into one file");
}

#[test]
fn endless_chain_is_rejected() {
    // As a symlink to its own directory would produce it: every path is new.
    let files: Vec<(String, &str)> = (0..40)
        .map(|depth| {
            (
                format!("{}a.toml", "link/".repeat(depth)),
                "extends = 'link/a.toml'",
            )
        })
        .collect();
    let refused = Policy::load("a.toml", &[], &Files::new(files)).expect_err("no end");
    assert!(
        refused.to_string().contains("more than 16 policies"),
        "{refused}"
    );
}

#[test]
fn missing_policy_is_named() {
    assert_snapshot!(refusal(&[("a.toml", "extends = 'strct'")]), @r#"a.toml:1: extends: no built-in policy and no file is called "strct": did you mean `strict`? The built-in policies are standard, strict, data-science"#);
    assert_snapshot!(refusal(&[("a.toml", "\nextends = 'base.toml'")]), @"a.toml:2: extends: base.toml cannot be read: No such file or directory (os error 2); check the path and its permissions");
    let missing = |name| {
        Policy::load(name, &[], &Files::new([("", "")]))
            .expect_err(name)
            .to_string()
    };
    assert_snapshot!(missing("standrd"), @r#"policy: no built-in policy and no file is called "standrd": did you mean `standard`? The built-in policies are standard, strict, data-science"#);
    assert_snapshot!(missing("nothing"), @r#"policy: no built-in policy and no file is called "nothing": write the path of a file or one of standard, strict, data-science"#);
    assert_snapshot!(missing("nothing.toml"), @"policy: nothing.toml cannot be read: No such file or directory (os error 2); check the path and its permissions");
    assert_snapshot!(missing("./standard"), @"policy: ./standard cannot be read: No such file or directory (os error 2); check the path and its permissions");
}

#[test]
fn an_error_of_a_base_is_reported_at_the_base() {
    assert_snapshot!(refusal(&[
        ("tenants/a.toml", "extends = '../base.toml'"),
        ("tenants/../base.toml", "\n\nlimits.wal = '1s'"),
    ]), @"tenants/../base.toml:3: limits.wal: unknown key: did you mean `limits.wall`?");
}

#[test]
fn duplicates_across_files_are_refused() {
    assert_snapshot!(refusal(&[
        ("a.toml", "extends = 'b.toml'\n[filesystem]\nread = ['/srv/data/.']"),
        ("b.toml", "[filesystem]\nread = ['/srv/data']"),
    ]), @r#"a.toml:3: filesystem.read: "/srv/data" is already in this list at b.toml:2: remove it here"#);
    assert_snapshot!(refusal(&[
        ("a.toml", "extends = 'data-science'\npython.preload = ['numpy']"),
    ]), @r#"a.toml:2: python.preload: "numpy" is already in this list at built-in data-science:11: remove it here"#);
    assert_snapshot!(refusal(&[
        ("a.toml", "extends = 'b.toml'\nimports.allow = ['*']"),
        ("b.toml", "imports.allow = ['math']"),
    ]), @r#"a.toml:2: imports.allow: "*" allows every module and b.toml:1 allows "math": remove one of the two"#);
}

#[test]
fn built_in_policies_need_no_files() {
    assert!(Policy::load("strict", &[], &BuiltInsOnly).is_ok());
    let refused = Policy::load("strct", &[], &BuiltInsOnly).expect_err("no files");
    assert!(
        refused.to_string().contains("did you mean `strict`?"),
        "{refused}"
    );
}
