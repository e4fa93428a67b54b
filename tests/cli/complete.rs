//! Tests of shell completion, as bash requests it.

use std::path::Path;
use std::process::Command;

use libtest_mimic::Failed;

use super::trials;

trials! {
    bash_completes_policies,
    bash_completes_set_keys_and_values,
    bash_completes_commands_and_options,
}

/// Returns the completions that bash would offer for the last of these words. Bash has split them at `=`.
fn completions_for(words: &[&str]) -> Result<Vec<String>, Failed> {
    let binary = Path::new(env!("CARGO_BIN_EXE_sandfork"));
    let path = format!("{}:/usr/bin:/bin", binary.parent().unwrap().display());
    let script = r#"
        source <(sandfork completions bash)
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
        current=${COMP_WORDS[COMP_CWORD]}
        [ "$current" = "=" ] && current=
        _clap_complete_sandfork sandfork "$current" "" 2>/dev/null
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let output = Command::new("bash")
        .args(["--norc", "-c", script, "bash"])
        .args(words)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples"))
        .env("PATH", path)
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn bash_completes_policies() -> Result<(), Failed> {
    let all = completions_for(&["sandfork", "run", "--policy", ""])?;
    for policy in ["standard", "strict", "data-science", "tenant.toml"] {
        assert!(all.contains(&policy.to_owned()), "{policy}: {all:?}");
    }
    assert!(!all.iter().any(|name| name.contains("embedded")), "{all:?}");
    assert_eq!(
        completions_for(&["sandfork", "run", "-p", "str"])?,
        ["strict"]
    );
    assert_eq!(
        completions_for(&["sandfork", "plan", "--policy", "=", "str"])?,
        ["strict"]
    );
    assert_eq!(
        completions_for(&["sandfork", "policy", "show", "dat"])?,
        ["data-science"]
    );
    Ok(())
}

fn bash_completes_set_keys_and_values() -> Result<(), Failed> {
    let set = ["sandfork", "run", "--set"];
    let after = |rest: &[&'static str]| completions_for(&[&set[..], rest].concat());
    assert_eq!(after(&["limits.wa"])?, ["limits.wall="]);
    assert_eq!(
        after(&["session."])?,
        [
            "session.idle=",
            "session.age=",
            "session.pause_after=",
            "session.snapshots=",
            "session.snapshot_bytes="
        ]
    );
    assert_eq!(after(&["python.fresh", "="])?, ["true", "false"]);
    assert_eq!(after(&["assurance.require", "=", "st"])?, ["standard"]);
    assert_eq!(
        after(&["limits.wall", "=", "2s", "--set", "stdio.stdin", "=", "p"])?,
        ["pass"]
    );
    Ok(())
}

fn bash_completes_commands_and_options() -> Result<(), Failed> {
    assert_eq!(completions_for(&["sandfork", "comp"])?, ["completions"]);
    assert_eq!(completions_for(&["sandfork", "map", "--re"])?, ["--resume"]);
    assert_eq!(
        completions_for(&["sandfork", "run", "tenan"])?,
        ["tenant.toml"]
    );
    Ok(())
}
