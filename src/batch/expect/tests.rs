#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;
use crate::outcome::value::Value;
use crate::outcome::{Ending, Enforced, PolicyIdentity};
use crate::policy::Level;

fn outcome(ending: Ending, stdout: &str, value: &str) -> Outcome {
    let enforced = Enforced {
        level: Level::Full,
        layers: vec![],
    };
    let value: Value = serde_json::from_str(value).unwrap();
    Outcome::new(ending, PolicyIdentity::default(), enforced)
        .with_output(stdout.into(), vec![])
        .with_value(Some(value))
}

fn stdout(expected: &str, found: &str, rule: &str, tolerance: Option<f64>) -> Verdict {
    let expect = Expect {
        stdout: Some(expected.to_owned()),
        whitespace: rule.parse().unwrap(),
        tolerance,
        ..Expect::default()
    };
    expect.judge(&outcome(Ending::Ok, found, "null")).unwrap()
}

fn value(expected: &Json, found: &str, tolerance: Option<f64>) -> Verdict {
    value_of(&expected.to_string(), found, tolerance)
}

fn value_of(expected: &str, found: &str, tolerance: Option<f64>) -> Verdict {
    let expect = Expect {
        value: Some(ExactJson::parse(expected.as_bytes()).unwrap()),
        tolerance,
        ..Expect::default()
    };
    expect.judge(&outcome(Ending::Ok, "", found)).unwrap()
}

#[track_caller]
fn assert_wrong(verdict: &Verdict, message: &str) {
    assert_eq!(*verdict, Verdict::Wrong(message.to_owned()));
}

#[test]
fn whitespace_follows_the_rule() {
    for (expected, found, rules) in [
        ("a b\nc", "a b\nc", "trailing any exact"),
        ("a b\nc", "a b \r\nc\n\n", "trailing any"),
        ("a b\nc\n\n", "a b\nc", "trailing any"),
        ("a b c", "a\n b\t c", "any"),
        ("", " \n", "trailing any"),
        (" a", "a", "any"),
        ("a\n\nb", "a\nb", "any"),
        ("1", "1.0", ""),
        ("a", "", ""),
    ] {
        for rule in ["trailing", "any", "exact"] {
            let passes = stdout(expected, found, rule, None) == Verdict::Pass;
            assert_eq!(
                passes,
                rules.contains(rule),
                "{expected:?} {found:?} {rule}"
            );
        }
    }
}

#[test]
fn numbers_may_differ_by_the_tolerance() {
    for (expected, found, tolerance, passes) in [
        ("0.5", "0.5000001", 1e-6, true),
        ("0.5", "0.51", 1e-6, false),
        ("1000000", "1000000.5", 1e-6, true),
        ("1 2", "1.0 2e0", 0.0, true),
        ("x = 1.0", "x = 1.00001", 1e-3, true),
        ("x = 1.0", "y = 1.0", 1e-3, false),
        ("1 2", "1", 1.0, false),
        ("1", "1 2", 1.0, false),
        ("nan", "0", 1e9, false),
        ("1", "inf", 1e9, false),
        ("9007199254740993", "9007199254740992", 0.0, false),
        (&"9".repeat(60), &("9".repeat(59) + "8"), 0.0, false),
        (&"9".repeat(60), &("9".repeat(59) + "8"), 1e-9, true),
        (&"9".repeat(60), &("9".repeat(59) + ".0"), 1e-9, false),
    ] {
        for rule in ["trailing", "any"] {
            let verdict = stdout(expected, found, rule, Some(tolerance));
            assert_eq!(
                verdict == Verdict::Pass,
                passes,
                "{expected} {found} {rule}"
            );
        }
    }
}

#[test]
fn tolerance_does_not_relax_whitespace() {
    for (expected, found, rules) in [
        (" 1  2", " 1.0  2.0 \n\n", "trailing any"),
        ("1 2", "1.0  2.0", "any"),
        ("1 2", "1.0\t2.0", "any"),
        ("1", " 1.0", "any"),
        (" 1", "1.0", "any"),
    ] {
        for rule in ["trailing", "any"] {
            let passes = stdout(expected, found, rule, Some(0.0)) == Verdict::Pass;
            let should = rules.contains(rule);
            assert_eq!(passes, should, "{expected:?} {found:?} {rule}");
        }
    }
}

/// Each expected result is that of Python's `==`.
#[test]
fn integers_of_any_size_are_compared_exactly() {
    let int = |hex: &str| format!(r#"{{"type": "int", "hex": "{hex}"}}"#);
    let (factorial, hex) = (
        "815915283247897734345611269596115894272000000000",
        int("8eeae81b84c7f27e080fde64ff05254000000000"),
    );
    let after = int("8eeae81b84c7f27e080fde64ff05254000000001");
    let (ten_to_400, ten_to_22) = (
        &format!("1{}", "0".repeat(400)),
        &int("21e19e0c9bab2400000"),
    );
    for (expected, found, passes) in [
        (
            "15511210043330985984000000",
            &int("cd4a0619fb0907bc00000"),
            true,
        ),
        (
            "15511210043330985984000000",
            &int("cd4a0619fb0907bc00001"),
            false,
        ),
        (factorial, &hex, true),
        (factorial, &after, false),
        (&format!("-{factorial}"), &hex, false),
        ("18446744073709551616", &int("10000000000000000"), true),
        ("9007199254740993", &"9007199254740993".to_owned(), true),
        ("9007199254740992.0", &"9007199254740993".to_owned(), false),
        ("9007199254740992.0", &"9007199254740992".to_owned(), true),
        ("9007199254740993", &"9007199254740992.0".to_owned(), false),
        ("10000000000000000000000", &"1e22".to_owned(), true),
        ("1e22", ten_to_22, true),
        ("1e23", &int("152d02c7e14af6800000"), false),
        ("1e23", &int("152d02c7e14af6000000"), true),
        ("0.5", &int("0"), false),
        (ten_to_400, &"1e300".to_owned(), false),
        (ten_to_400, &"0.5".to_owned(), false),
        ("99999999999999999999", &"true".to_owned(), false),
    ] {
        let passed = value_of(expected, found, None) == Verdict::Pass;
        assert_eq!(passed, passes, "{expected} {found}");
        // A small tolerance never rejects equal numbers.
        let near = value_of(expected, found, Some(1e-9)) == Verdict::Pass;
        assert!(near || !passes, "{expected} {found}");
    }
    let near = value_of(factorial, &after, Some(1e-9));
    assert_eq!(near, Verdict::Pass);
    let far = value_of(ten_to_400, &int(&"f".repeat(400)), Some(1e-9));
    assert_ne!(far, Verdict::Pass);
}

#[test]
fn long_numbers_are_quoted_around_the_difference() {
    let int = |hex: &str| format!(r#"{{"type": "int", "hex": "{hex}"}}"#);
    assert_wrong(
        &value_of("18446744073709551617", &int("10000000000000000"), None),
        "value: expected 18446744073709551617, found 18446744073709551616",
    );
    assert_wrong(
        &value_of("\"x\"", &int("10000000000000000"), None),
        "value: expected \"x\", found 18446744073709551616",
    );
    let long = "1".repeat(100);
    let after =
        int("2082faed7a3f16f73046415de0153f2fa78f35902f1684cb21d68052c571c71c71c71c71c71c71c71c8");
    let shared = "1".repeat(20);
    let message = format!("value: expected ...{shared}1, found ...{shared}2");
    assert_wrong(&value_of(&long, &after, None), &message);
}

#[test]
fn comparing_a_million_digits_is_fast() {
    let long = "7".repeat(1 << 20);
    for found in [
        "1",
        "1e300",
        r#"{"type": "int", "hex": "ffffffffffffffffffffffffffffffffffffffff"}"#,
    ] {
        assert_ne!(value_of(&long, found, None), Verdict::Pass);
        assert_ne!(value_of(&long, found, Some(1e-9)), Verdict::Pass);
    }
}

#[test]
fn first_difference_is_quoted_and_truncated() {
    let verdict = stdout("a\nb\nc", "a\nx\"\nc", "trailing", None);
    assert_wrong(&verdict, r#"stdout, line 2: expected "b", found "x\"""#);
    let verdict = stdout("a b", "a", "any", None);
    assert_wrong(&verdict, r#"stdout, word 2: expected "b", found the end"#);
    let verdict = stdout("a", "a\nb", "trailing", None);
    assert_wrong(&verdict, r#"stdout, line 2: expected the end, found "b""#);
    let (one, other) = ("x".repeat(500) + "1", "x".repeat(500) + "2");
    let verdict = stdout(&one, &other, "exact", None);
    let near = "x".repeat(20);
    let message = format!(r#"stdout, line 1: expected ..."{near}1", found ..."{near}2""#);
    assert_wrong(&verdict, &message);
    let long = stdout("", &"é".repeat(1 << 20), "trailing", None);
    assert!(matches!(long, Verdict::Wrong(message) if message.len() < 300));
}

#[test]
fn values_are_compared_as_json() {
    for (expected, found, passes) in [
        (json!(null), "null", true),
        (json!(1), "1.0", true),
        (json!(1), "true", false),
        (json!("1"), "1", false),
        (
            json!([1, [2]]),
            r#"[1, {"type": "tuple", "items": [2]}]"#,
            true,
        ),
        (
            json!([1, [2]]),
            r#"{"type": "namedtuple", "name": "P", "fields": [["x", 1], ["y", [2]]]}"#,
            true,
        ),
        (
            json!([1, 2]),
            r#"{"type": "namedtuple", "name": "P", "fields": [["x", 1]]}"#,
            false,
        ),
        (json!([1]), "[1, 2]", false),
        (json!([]), r#"{"type": "set", "items": []}"#, false),
        (
            json!(u64::MAX),
            r#"{"type": "int", "hex": "ffffffffffffffff"}"#,
            true,
        ),
        (
            json!(1.5),
            r#"{"type": "numpy", "dtype": "<f8", "value": 1.5}"#,
            true,
        ),
        (
            json!({"repr": "x"}),
            r#"{"type": "opaque", "repr": "x"}"#,
            false,
        ),
        (json!(null), r#"{"type": "float", "text": "nan"}"#, false),
    ] {
        let passed = value(&expected, found, None) == Verdict::Pass;
        assert_eq!(passed, passes, "{expected} {found}");
    }
}

#[test]
fn object_equals_a_dict_with_string_keys() {
    let dict = |items: &str| format!(r#"{{"type": "dict", "items": {items}}}"#);
    for (expected, items, passes) in [
        (json!({"a": 1}), r#"[["a", 1]]"#, true),
        (json!({"b": 1, "a": 2}), r#"[["a", 2], ["b", 1]]"#, true),
        (json!({"a": 1}), r#"[["a", 1], ["b", 1]]"#, false),
        (json!({"a": 1}), "[]", false),
        (json!({"1": 1}), "[[1, 1]]", false),
        (json!({"type": "x"}), r#"[["type", "x"]]"#, true),
    ] {
        let passed = value(&expected, &dict(items), None) == Verdict::Pass;
        assert_eq!(passed, passes, "{expected} {items}");
    }
    let near = value(
        &json!({"a": [0.1]}),
        &dict(r#"[["a", [0.100001]]]"#),
        Some(1e-3),
    );
    assert_eq!(near, Verdict::Pass);
    let far = value(
        &json!({"a": [1, 2]}),
        &dict(r#"[["a", [1, 3]]]"#),
        Some(1e-3),
    );
    assert_wrong(&far, r#"value["a"][1]: expected 2, found 3"#);
}

#[test]
fn failed_program_is_not_compared() {
    let expect = Expect {
        stdout: Some("right".to_owned()),
        ..Expect::default()
    };
    let judge = |ending| expect.judge(&outcome(ending, "right", "null"));
    assert_eq!(judge(Ending::Ok), Some(Verdict::Pass));
    assert_eq!(judge(Ending::Exit(0)), Some(Verdict::Pass));
    assert_eq!(judge(Ending::Exit(1)), Some(Verdict::Failed));
    assert_eq!(judge(Ending::Exception), Some(Verdict::Failed));
    assert_eq!(judge(Ending::Interrupted), None);
}
