//! Decides whether a run contained the attempt: a pure function with its own tests.

use serde::Deserialize;

/// One accepted failure of the attempt. A run must match one expectation with all its lines.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    #[serde(default = "ok")]
    pub status: Vec<String>,
    /// Names such as `EPERM`, in the line as a word or as Python's `[Errno 1]`.
    #[serde(default)]
    errno: Vec<String>,
    /// Exceptions that the attempt caught.
    #[serde(default)]
    exception: Vec<String>,
    /// The probe's own text; `*` matches anything.
    #[serde(default)]
    text: Vec<String>,
    /// The policies under which this failure is accepted; empty means all.
    #[serde(default)]
    policies: Vec<String>,
    /// Why this is containment, where it is not obvious.
    #[serde(default, rename = "why")]
    _why: String,
}

/// The result of a run in the sandbox.
pub struct Observed<'a> {
    pub status: &'a str,
    /// Both streams of the guest, and the launcher's stderr.
    pub output: &'a str,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Contained,
    Escaped(String),
    /// Neither contained nor escaped: a crash of the probe, or a reason that no expectation allows.
    Unexplained(String),
}

fn ok() -> Vec<String> {
    vec!["ok".to_owned()]
}

/// Returns the lines with which attempts and naive hosts report success.
pub fn escapes(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter(|line| line.starts_with("ESCAPED"))
}

pub fn judge(expect: &[Expectation], policy: &str, observed: &Observed) -> Verdict {
    if let Some(line) = escapes(observed.output).next() {
        return Verdict::Escaped(line.to_owned());
    }
    let reasons: Vec<&str> = observed
        .output
        .lines()
        .filter_map(|line| line.strip_prefix("CONTAINED"))
        .map(str::trim)
        .collect();
    let allowed = |expectation: &&Expectation| {
        expectation.policies.is_empty() || expectation.policies.iter().any(|name| name == policy)
    };
    if expect
        .iter()
        .filter(allowed)
        .any(|expectation| expectation.fits(observed.status, &reasons))
    {
        Verdict::Contained
    } else {
        Verdict::Unexplained(format!("status {}, reasons {reasons:?}", observed.status))
    }
}

impl Expectation {
    fn fits(&self, status: &str, reasons: &[&str]) -> bool {
        // A run that ended by itself must have printed why the attempt failed; a killed run need not.
        let explained = status != "ok" || !reasons.is_empty();
        explained
            && self.status.iter().any(|allowed| allowed == status)
            && reasons.iter().all(|reason| self.allows(reason))
    }

    fn allows(&self, reason: &str) -> bool {
        self.errno.iter().any(|name| names_errno(reason, name))
            || self
                .exception
                .iter()
                .any(|name| names_exception(reason, name))
            || self.text.iter().any(|pattern| glob(pattern, reason))
    }
}

fn names_errno(reason: &str, name: &str) -> bool {
    let word = reason
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| word == name);
    word || errno(name).is_some_and(|code| reason.contains(&format!("[Errno {code}]")))
}

fn names_exception(reason: &str, name: &str) -> bool {
    reason
        .split(':')
        .next()
        .is_some_and(|exception| exception.trim() == name)
}

fn errno(name: &str) -> Option<i32> {
    Some(match name {
        "EACCES" => libc::EACCES,
        "EADDRNOTAVAIL" => libc::EADDRNOTAVAIL,
        "EAFNOSUPPORT" => libc::EAFNOSUPPORT,
        "ECONNREFUSED" => libc::ECONNREFUSED,
        "EAGAIN" => libc::EAGAIN,
        "EFBIG" => libc::EFBIG,
        "EINVAL" => libc::EINVAL,
        "EMFILE" => libc::EMFILE,
        "ENETUNREACH" => libc::ENETUNREACH,
        "ENOENT" => libc::ENOENT,
        "ENOLCK" => libc::ENOLCK,
        "ENOMEM" => libc::ENOMEM,
        "ENOSYS" => libc::ENOSYS,
        "ENOTTY" => libc::ENOTTY,
        "ENXIO" => libc::ENXIO,
        "EOPNOTSUPP" => libc::EOPNOTSUPP,
        "EPERM" => libc::EPERM,
        "EROFS" => libc::EROFS,
        "ESRCH" => libc::ESRCH,
        "EXDEV" => libc::EXDEV,
        _ => return None,
    })
}

fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// A test and its name.
type SelfTest = (&'static str, fn() -> Result<(), String>);

/// Tests of `judge`: made-up runs whose verdicts are known.
pub fn self_tests() -> Vec<SelfTest> {
    vec![
        ("escape_wins_over_all_else", || {
            assert_verdict("timeout", "CONTAINED early\nESCAPED late\n", "escaped")
        }),
        ("escape_within_a_line_is_no_escape", || {
            assert_verdict("ok", "say ESCAPED\nCONTAINED ENOENT\n", "contained")
        }),
        ("errno_by_number", || {
            assert_verdict(
                "ok",
                "CONTAINED FileNotFoundError: [Errno 2] No such\n",
                "contained",
            )
        }),
        ("errno_by_name", || {
            assert_verdict("ok", "CONTAINED open ENOENT\n", "contained")
        }),
        ("another_errno", || {
            assert_verdict("ok", "CONTAINED OSError: [Errno 22]\n", "unexplained")
        }),
        ("longer_errno_number", || {
            assert_verdict("ok", "CONTAINED [Errno 28]\n", "unexplained")
        }),
        ("own_words", || {
            assert_verdict("ok", "CONTAINED stopped at 63 nicely\n", "contained")
        }),
        ("other_words", || {
            assert_verdict("ok", "CONTAINED stopped at 63\n", "unexplained")
        }),
        ("crash_that_was_caught", || {
            assert_verdict(
                "ok",
                "CONTAINED NameError: name 'x' is not defined\n",
                "unexplained",
            )
        }),
        ("crash_that_was_not", || {
            assert_verdict("exception", "", "unexplained")
        }),
        ("silence", || assert_verdict("ok", "", "unexplained")),
        ("killed_in_silence", || {
            assert_verdict("timeout", "", "contained")
        }),
        ("interrupted", || {
            assert_verdict("timeout", "CONTAINED KeyboardInterrupt:\n", "contained")
        }),
        ("interrupted_yet_ok", || {
            assert_verdict("ok", "CONTAINED KeyboardInterrupt:\n", "unexplained")
        }),
        ("one_reason_of_two_is_wrong", || {
            assert_verdict("ok", "CONTAINED ENOENT\nCONTAINED EINVAL\n", "unexplained")
        }),
        ("killed_for_another_reason", || {
            assert_verdict("signal", "", "unexplained")
        }),
        ("allowed_under_another_policy", || {
            assert_verdict("ok", "CONTAINED ESRCH\n", "unexplained")
        }),
    ]
}

fn assert_verdict(status: &str, output: &str, wanted: &str) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Header {
        expect: Vec<Expectation>,
    }
    let header: Header = toml::from_str(
        r#"
        [[expect]]
        errno = ["ENOENT"]
        text = ["stopped at * nicely"]
        [[expect]]
        policies = ["strict"]
        errno = ["ESRCH"]
        [[expect]]
        status = ["timeout"]
        exception = ["KeyboardInterrupt"]
        "#,
    )
    .expect("a valid header");
    let verdict = judge(&header.expect, "standard", &Observed { status, output });
    let name = match verdict {
        Verdict::Contained => "contained",
        Verdict::Escaped(_) => "escaped",
        Verdict::Unexplained(_) => "unexplained",
    };
    if name == wanted {
        Ok(())
    } else {
        Err(format!("{name} instead of {wanted}"))
    }
}
