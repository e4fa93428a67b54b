#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;
use crate::batch::exact_json::ExactJson;
use crate::batch::expect::Whitespace;
use crate::outcome::LimitName;
use crate::policy::BuiltInsOnly;

fn parse(line: &str) -> TaskLine {
    TaskLine::parse(line.as_bytes()).unwrap()
}

#[track_caller]
fn refusal(line: &str) -> String {
    TaskLine::parse(line.as_bytes()).unwrap_err().to_string()
}

/// Returns a valid task with additional members.
fn with(members: &str) -> String {
    format!(r#"{{"id": 1, "code": "pass", {members}}}"#)
}

#[test]
fn null_program_counts_as_absent() {
    for kind in ["code", "file", "program"] {
        let refused = refusal(&format!(r#"{{"{kind}": null, "expect": ""}}"#));
        assert!(refused.contains("nothing to run"), "{refused}");
    }
    let task = parse(r#"{"code": "1", "file": null, "program": null}"#);
    assert!(matches!(task.program, TaskProgram::Code { .. }));
}

#[test]
fn every_key_is_parsed() {
    let line = json!({
        "id": "a",
        "code": "print(1)",
        "args": ["x", "y"],
        "files": {"data/in.csv": "é\n", "raw": {"base64": "AP8="}},
        "stdin": "in",
        "limits": {"wall": "2s", "cpu": "500ms", "output": "64KiB"},
        "policy": "strict",
        "expect": {"stdout": "1\n", "value": null, "whitespace": "any", "tolerance": 1e-3},
    });
    let path = |text| GuestPath::of_file(text).unwrap();
    let mut limits = LimitOverrides::default();
    limits.set(LimitName::Wall, 2000);
    limits.set(LimitName::Cpu, 500);
    limits.set(LimitName::Output, 65_536);
    let task = TaskLine {
        id: Some(TaskId::from("a")),
        program: TaskProgram::Code {
            source: "print(1)".into(),
            args: vec!["x".into(), "y".into()],
        },
        policy: Some("strict".into()),
        files: vec![
            (path("data/in.csv"), "é\n".into()),
            (path("raw"), vec![0, 255]),
        ],
        stdin: Some("in".into()),
        limits,
        expect: Some(Expect {
            stdout: Some("1\n".into()),
            value: Some(ExactJson::Null),
            whitespace: Whitespace::Any,
            tolerance: Some(1e-3),
        }),
    };
    assert_eq!(parse(&line.to_string()), task);
    let mut numbers = line;
    numbers["limits"] = json!({"wall": 2, "cpu": 0.4991, "output": 65536});
    assert_eq!(parse(&numbers.to_string()), task);
}

#[test]
fn program_alone_is_enough() {
    let file = parse(r#"{"id": 7, "file": "a/b.py", "args": null, "limits": {}}"#);
    assert_eq!(file.id, Some(TaskId::from(7)));
    let (path, args) = ("a/b.py".into(), vec![]);
    assert_eq!(file.program, TaskProgram::File { path, args });
    let program = parse(r#"{"program": ["sh", "-c", "id"], "id": 7}"#).program;
    let words = ["sh", "-c", "id"].map(str::to_owned).to_vec();
    assert_eq!(program, TaskProgram::Program(words));
}

#[test]
fn invalid_json_is_reported_with_its_column() {
    assert_eq!(
        refusal(r#"{"id": 1, code: "pass"}"#),
        "it is not JSON: key must be a string at column 11"
    );
    assert!(refusal(r#"{"id": 1, "code": "pass"} {"#).contains("trailing characters at column 27"));
    assert!(
        refusal("{\"id\": 1, \"code\": \"\u{0}\"}")
            .starts_with("it is not JSON: control character")
    );
    for cut in [
        "",
        "{",
        r#"{"id": 1, "code": "pa"#,
        r#"{"id": 1, "code": "pass""#,
    ] {
        assert_eq!(
            refusal(cut),
            "it is cut off: the line ends before its JSON object does"
        );
    }
    for other in ["1", "[]", "null", "\"a\"", "true"] {
        assert!(
            refusal(other).starts_with("it is not a JSON object"),
            "{other}"
        );
    }
    let not_text = TaskLine::parse(b"{\"id\": 1, \"code\": \"\xff\"}").unwrap_err();
    assert!(
        not_text
            .to_string()
            .starts_with("it is not JSON: invalid unicode"),
        "{not_text}"
    );
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    assert!(refusal(&with(&format!("\"stdin\": {deep}"))).contains("recursion limit"));
}

#[test]
fn unknown_and_duplicate_keys_are_rejected() {
    assert_eq!(
        refusal(&with(r#""polcy": "x""#)),
        "unknown key `polcy`: did you mean `policy`?"
    );
    assert_eq!(
        refusal(&with(r#""timeout": 3"#)),
        "unknown key `timeout`: did you mean `limits.wall`?"
    );
    assert_eq!(
        refusal(&with(r#""tests": []"#)),
        "unknown key `tests`: it is none of id, code, file, program, args, files, stdin, limits, policy, expect"
    );
    assert_eq!(refusal(&with(r#""id": 2"#)), "the key `id` appears twice");
    for (members, key) in [
        (r#""files": {"a": "1", "a": "2"}"#, "a"),
        (r#""expect": {"stdout": "1", "stdout": "2"}"#, "stdout"),
        (r#""expect": {"value": [{"k": 1, "k": 1}]}"#, "k"),
        (r#""stdin": {"base64": "", "base64": ""}"#, "base64"),
    ] {
        let prefix = format!("the key `{key}` appears twice");
        assert_eq!(refusal(&with(members)), prefix);
    }
    assert_eq!(
        refusal(&with(r#""limits": {"wal": "1s"}"#)),
        "unknown key `limits.wal`: did you mean `limits.wall`?"
    );
}

#[test]
fn missing_program_and_invalid_id_are_rejected() {
    for none in [r#"{"code": "pass"}"#, r#"{"id": null, "code": "pass"}"#] {
        assert_eq!(parse(none).id, None);
    }
    for id in ["\"\"", "1.5", "[]", "99999999999999999999"] {
        assert!(refusal(&format!(r#"{{"id": {id}, "code": "pass"}}"#)).starts_with("`id` must be"));
    }
    for nothing in [r#""stdin": "x""#, r#""file": """#, r#""program": []"#] {
        assert!(
            refusal(&format!(r#"{{"id": 1, {nothing}}}"#)).starts_with("there is nothing to run")
        );
    }
    assert!(refusal(&with(r#""file": "a.py""#)).starts_with("it has both `code` and `file`"));
    let args = refusal(r#"{"id": 1, "program": ["a"], "args": ["b"]}"#);
    assert!(args.starts_with("`args` belongs to `code`"), "{args}");
    let long = "#".repeat((16 << 20) + 1);
    assert!(refusal(&format!(r#"{{"id": 1, "code": "{long}"}}"#)).contains("over the 16 MiB"));
}

#[test]
fn values_of_wrong_types_are_rejected() {
    for (members, prefix) in [
        (r#""args": "x""#, "`args` must be a list of texts"),
        (r#""args": [1]"#, "`args` must be a list of texts"),
        (r#""policy": 1"#, "`policy` must be a text"),
        (
            r#""stdin": 1"#,
            "`stdin` must be a text, or {\"base64\": \"...\"}",
        ),
        (
            r#""stdin": {"base64": "AA==", "x": 1}"#,
            "`stdin` must be a text",
        ),
        (r#""stdin": {"base64": "A"}"#, "`stdin` is not base64"),
        (r#""files": ["a"]"#, "`files` must be a JSON object"),
        (r#""files": {"a": 1}"#, "`files.a` must be a text"),
        (
            r#""files": {"../a": ""}"#,
            "`files`: `../a` is not in the session's work directory",
        ),
        (r#""limits": 1"#, "`limits` must be a JSON object"),
        (
            r#""limits": {"wall": [2]}"#,
            "`limits.wall` must be a text with a unit",
        ),
        (
            r#""limits": {"wall": -2}"#,
            "`limits.wall`: -2 is not a number of seconds or bytes",
        ),
        (
            r#""limits": {"output": 1.5}"#,
            "`limits.output`: 1.5 is not a number of seconds or bytes",
        ),
        (
            r#""limits": {"wall": "2"}"#,
            "`limits.wall`: \"2\" has no unit",
        ),
        (
            r#""limits": {"output": "2s"}"#,
            "`limits.output`: \"2s\" has an unknown unit",
        ),
        (r#""limits": {"cpu": "0s"}"#, "`limits.cpu` is zero"),
        (
            r#""limits": {"memory": "1GiB"}"#,
            "`limits.memory` is part of the jail",
        ),
        (
            r#""expect": 1"#,
            "`expect` must be a text, or a JSON object",
        ),
        (r#""expect": {}"#, "`expect` compares nothing"),
        (r#""expect": {"tolerance": 1}"#, "`expect` compares nothing"),
        (
            r#""expect": {"stdout": 1}"#,
            "`expect.stdout` must be a text",
        ),
        (
            r#""expect": {"stdot": ""}"#,
            "unknown key `expect.stdot`: did you mean `expect.stdout`?",
        ),
        (
            r#""expect": {"stdout": "", "tolerance": -1}"#,
            "`expect.tolerance` must be a number that is not negative",
        ),
        (
            r#""expect": {"stdout": "", "whitespace": "none"}"#,
            "`expect.whitespace` must be \"trailing\"",
        ),
        (
            r#""expect": {"stdout": "", "whitespace": "exact", "tolerance": 1}"#,
            "`expect.tolerance` compares words",
        ),
    ] {
        let error = refusal(&with(members));
        assert!(error.starts_with(prefix), "{members}: {error}");
    }
}

#[test]
fn task_beyond_its_policy_is_rejected() {
    let policy = |sets: &[&str]| {
        let sets: Vec<_> = sets.iter().map(|set| set.parse().unwrap()).collect();
        Policy::load("standard", &sets, &BuiltInsOnly).unwrap()
    };
    let strict = policy(&["limits.wall=2s", "limits.cpu=1s", "limits.output=1KiB"]);
    for (members, prefix) in [
        (
            r#""limits": {"wall": "2001ms"}"#,
            "`limits.wall` is above the policy's 2s",
        ),
        (
            r#""limits": {"cpu": "2s"}"#,
            "`limits.cpu` is above the policy's 1s",
        ),
        (
            r#""limits": {"output": "2KiB"}"#,
            "`limits.output` is above the policy's 1KiB",
        ),
        (
            r#""stdin": """#,
            "it has `stdin`, which the policy does not let tasks read",
        ),
    ] {
        let error = parse(&with(members))
            .check(&strict)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(prefix), "{members}: {error}");
    }
    let open = policy(&["stdio.stdin=pass"]);
    let all = r#""stdin": "x", "limits": {"wall": "1s", "cpu": "1s", "output": "1KiB"}"#;
    parse(&with(all)).check(&open).unwrap();
    parse(&with(
        r#""limits": {"wall": "2s", "cpu": "1s", "output": "1KiB"}"#,
    ))
    .check(&strict)
    .unwrap();
}
