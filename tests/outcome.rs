//! Tests of the JSON object of an outcome, on which every program that reads it relies.

use std::time::Duration;

use sandfork::{
    Denial, Ending, Enforced, ExceptionInfo, Layer, Level, LimitHit, LimitName, Mechanism, Outcome,
    PolicyIdentity, Reporter, Status, Usage, Value,
};

fn policy() -> PolicyIdentity {
    PolicyIdentity {
        name: "standard".into(),
        sha256: "5f2b".into(),
    }
}

fn enforced() -> Enforced {
    Enforced {
        level: Level::Landlock,
        layers: vec![Layer::Landlock, Layer::Seccomp],
    }
}

#[test]
fn a_run_that_ended_well() {
    let outcome = Outcome::new(Ending::Ok, policy(), enforced())
        .with_output(b"caf\xc3\xa9 \xff\n".to_vec(), Vec::new())
        .with_value(Some(Value::Int(42)))
        .with_usage(Usage {
            wall: Duration::from_nanos(912_345),
            cpu: Duration::from_micros(700),
            peak_memory_bytes: Some(7 << 20),
            output_bytes: 7,
            ..Usage::default()
        });

    assert!(outcome.is_ok());
    assert_eq!(outcome.stdout_bytes(), b"caf\xc3\xa9 \xff\n");
    assert_eq!(
        outcome.enforced().to_string(),
        "landlock: landlock, seccomp"
    );
    insta::assert_json_snapshot!("ok", outcome);
}

#[test]
fn a_run_that_a_limit_ended() {
    let outcome = Outcome::new(
        Ending::Limit(LimitHit {
            name: LimitName::Memory,
            by: Mechanism::Cgroup,
        }),
        policy(),
        enforced(),
    )
    .with_error(ExceptionInfo::new(
        "MemoryError",
        "",
        "Traceback ...\nMemoryError\n",
    ))
    .with_denied(
        [
            Denial::new("ptrace", Reporter::Kernel),
            Denial::new("import", Reporter::Guest),
        ],
        3,
    );

    assert!(!outcome.is_ok());
    insta::assert_json_snapshot!("memory_limit", outcome);
}

#[test]
fn a_protocol_violation_says_what_it_was() {
    let outcome = Outcome::new(
        Ending::ProtocolViolation("a header too long".into()),
        policy(),
        enforced(),
    );
    assert_eq!(
        outcome.error().map(|error| error.message.as_str()),
        Some("a header too long")
    );
    assert_eq!(outcome.status(), Status::ProtocolViolation);
}

#[test]
fn a_status_is_shown_as_it_is_written() {
    for status in [
        Status::Ok,
        Status::Exception,
        Status::Exit,
        Status::Timeout,
        Status::CpuLimit,
        Status::MemoryLimit,
        Status::PidsLimit,
        Status::OutputLimit,
        Status::FileLimit,
        Status::Denied,
        Status::Signal,
        Status::ProtocolViolation,
        Status::Interrupted,
    ] {
        let written = serde_json::to_value(status).expect("a status is a string");
        assert_eq!(written, status.to_string());
    }
}
