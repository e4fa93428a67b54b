//! Tests of `--set KEY=VALUE`.

use insta::assert_snapshot;
use sandfork::internals::policy::{PolicyOrigins as _, PolicySettings as _};
use sandfork::{LimitName, Override, Policy};

use crate::support::{Files, set};

fn refusal(overrides: &[&str]) -> String {
    set(overrides).expect_err("refused").to_string()
}

#[test]
fn a_text_needs_no_quotes() {
    for wall in [
        "limits.wall=2s",
        "limits.wall='2s'",
        "limits.wall=\"2s\"",
        " limits . wall =2s",
    ] {
        let policy = set(&[wall]).expect(wall);
        assert_eq!(policy.limits().wall().as_millis(), 2000, "{wall}");
    }
    assert_eq!(
        set(&["python.interpreter=python3.12"])
            .unwrap()
            .python()
            .interpreter
            .value,
        "python3.12"
    );
    assert_eq!(
        set(&["description=3 = three"]).unwrap().description(),
        "3 = three"
    );
}

#[test]
fn other_values_are_toml() {
    assert_eq!(
        set(&["limits.cores=2"]).unwrap().limits().millicores(),
        2000
    );
    assert_eq!(
        set(&["limits.cores=0.25"]).unwrap().limits().millicores(),
        250
    );
    assert_eq!(set(&["limits.pids=7"]).unwrap().limits().pids(), 7);
    let cold = set(&["python.fresh=true"]).unwrap().python().start;
    assert_eq!(cold, sandfork::internals::policy::Start::Cold);
}

#[test]
fn variable_value_is_taken_literally() {
    let policy = set(&[
        "env.set.DEBUG=1",
        "env.set.OPTS==a=b",
        "env.set.EMPTY=",
        "env.set.FLAG=true",
    ])
    .unwrap();
    let value = |name: &str| policy.env().set.get(name).map(String::as_str);
    assert_eq!(value("DEBUG"), Some("1"));
    assert_eq!(value("OPTS"), Some("=a=b"));
    assert_eq!(value("EMPTY"), Some(""));
    assert_eq!(value("FLAG"), Some("true"));
    assert_eq!(value("TZ"), Some("UTC"));
    let table = set(&["env.set={ A = '1' }"]).unwrap();
    assert_eq!(table.env().set.get("A").map(String::as_str), Some("1"));
}

#[test]
fn a_list_takes_one_item_or_more_and_appends() {
    let overrides = [
        "filesystem.read=/srv/a",
        "filesystem.read=['/srv/b', '/srv/c']",
        "filesystem.read='/srv/d'",
    ];
    let policy = set(&overrides).unwrap();
    let read: Vec<_> = policy
        .filesystem()
        .read
        .iter()
        .map(|item| item.value.to_str().unwrap())
        .collect();
    assert_eq!(read, ["/srv/a", "/srv/b", "/srv/c", "/srv/d"]);
}

#[test]
fn the_last_override_wins() {
    let policy = set(&["limits.wall=2s", "limits.wall=3s"]).unwrap();
    assert_eq!(policy.limits().wall().as_secs(), 3);
    assert_eq!(policy.limit_origin(LimitName::Wall).to_string(), "--set");
}

#[test]
fn paths_start_from_the_current_directory() {
    let files = Files::new([("tenants/a.toml", "python.path = ['lib']")]);
    let overrides: [Override; 1] = ["python.path=lib".parse().unwrap()];
    let policy = Policy::load("tenants/a.toml", &overrides, &files).unwrap();
    let path: Vec<_> = policy
        .python()
        .path
        .iter()
        .map(|item| item.value.to_str().unwrap())
        .collect();
    assert_eq!(path, ["/home/user/tenants/lib", "/home/user/lib"]);
}

#[test]
fn overrides_change_the_hash_and_not_the_name() {
    let policy = set(&["limits.wall=2s"]).unwrap();
    assert_eq!(policy.name(), "standard");
    assert_ne!(policy.sha256(), Policy::default().sha256());
}

#[test]
fn an_override_is_one_key() {
    for text in [
        "",
        "=",
        "limits.wall",
        "=2s",
        "limits.=2s",
        "[limits]\nwall=2s",
        "a\nb=1",
        "a#=1",
        "a b=1",
        "'a=b'=1",
    ] {
        let refused = text.parse::<Override>().expect_err(text).to_string();
        assert_eq!(
            refused,
            format!(
                "--set: \"{text}\" is not an override: write KEY=VALUE with a key of the policy file, such as limits.wall=2s"
            )
        );
    }
}

#[test]
fn a_value_cannot_bring_a_second_key() {
    let policy = set(&[
        "description=x\nlimits.pids = 1",
        "env.set.A='1'\n[limits]\npids = 1",
    ])
    .unwrap();
    assert_eq!(policy.limits(), Policy::default().limits());
    assert_eq!(policy.description(), "x\nlimits.pids = 1");
}

#[test]
fn overrides_are_written_back_as_given() {
    for text in [
        "limits.wall=2s",
        "filesystem.read=['/srv/a']",
        "env.set.A=b=c",
    ] {
        assert_eq!(text.parse::<Override>().unwrap().to_string(), text);
    }
}

#[test]
fn overrides_are_checked_like_files() {
    assert_snapshot!(refusal(&["limits.wal=2s"]), @"--set: limits.wal: unknown key: did you mean `limits.wall`?");
    assert_snapshot!(refusal(&["limits.wall=2"]), @r#"--set: limits.wall: "2" has no unit: write ms, s, m or h, such as "2s""#);
    assert_snapshot!(refusal(&["limits.wall=0s"]), @"--set: limits.wall: 0ms is out of range: write 1ms to 720h");
    assert_snapshot!(refusal(&["limits.cores=two"]), @r#"--set: limits.cores: string "two" is the wrong type: write a number of processors without quotes, such as 0.5 or 2"#);
    assert_snapshot!(refusal(&["limits.wall.x=2s"]), @r#"--set: limits.wall: a table is the wrong type: write a duration in quotes, such as "500ms" or "2s""#);
    assert_snapshot!(refusal(&["limits=5"]), @"--set: limits: integer `5` is the wrong type: write one of its keys, such as `limits.wall`");
    assert_snapshot!(refusal(&["filesystem.read=~/data"]), @r#"--set: filesystem.read: "~/data" starts with `~`, which only a shell expands: write out the home directory"#);
    assert_snapshot!(refusal(&["filesystem.proc=no"]), @r#"--set: filesystem.proc: string "no" is the wrong type: write true or false without quotes"#);
    assert_snapshot!(refusal(&["python.preload=numpy", "python.preload=numpy?"]), @r#"--set: python.preload: "numpy" is already in this list at --set: remove it here"#);
    assert_snapshot!(refusal(&["env.set.A-B=1"]), @r#"--set: env.set: "A-B" is not the name of a variable: use letters, digits and `_`, and no digit first"#);
    assert_snapshot!(refusal(&["extends=strict"]), @"--set: only a policy file can extend another: choose the policy with --policy");
}

#[test]
fn a_relative_path_starts_from_the_current_directory() {
    let policy = set(&[
        "filesystem.read=data",
        "filesystem.write=['../out', '/srv/own']",
        "filesystem.read={add = ['more']}",
    ])
    .unwrap();
    let paths =
        |paths: &[sandfork::internals::policy::Located<std::path::PathBuf>]| -> Vec<String> {
            paths
                .iter()
                .map(|path| path.value.display().to_string())
                .collect()
        };
    assert_eq!(
        paths(&policy.filesystem().read),
        ["/home/user/data", "/home/user/more"]
    );
    assert_eq!(paths(&policy.filesystem().write), ["/home/out", "/srv/own"]);
}
