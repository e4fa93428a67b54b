//! Assertions about outcomes.

use sandfork::internals::outcome::limit_spec;
use sandfork::internals::plan::SandboxPlan as _;
use sandfork::{Level, LimitHit, LimitName, Mechanism, Outcome, Sandbox, Status};

/// Asserts the status of the run.
#[track_caller]
pub fn ended(outcome: &Outcome, status: Status) {
    assert_eq!(outcome.status(), status, "{}", shown(outcome));
}

/// Asserts that the run succeeded.
#[track_caller]
pub fn fine(outcome: &Outcome) {
    ended(outcome, Status::Ok);
}

/// Asserts that this limit ended the run, enforced by this mechanism.
#[track_caller]
pub fn limited(outcome: &Outcome, name: LimitName, by: Mechanism) {
    assert_eq!(
        outcome.limit(),
        Some(LimitHit { name, by }),
        "{}",
        shown(outcome)
    );
    let status = limit_spec(name).status;
    assert_eq!(outcome.status(), status, "{}", shown(outcome));
}

/// Returns the mechanism that enforces a limit at the sandbox's level: `with_cgroup` at `full`, else `without`.
pub fn by(sandbox: &Sandbox, with_cgroup: Mechanism, without: Mechanism) -> Mechanism {
    match sandbox.plan().level {
        Level::Full => with_cgroup,
        _ => without,
    }
}

/// Formats the whole outcome for an assertion message.
pub fn shown(outcome: &Outcome) -> String {
    let mut json = serde_json::to_value(outcome).expect("an outcome is JSON");
    for stream in ["stdout", "stderr"] {
        let text = json[stream].as_str().unwrap_or_default();
        if text.len() > 4000 {
            json[stream] = text.chars().take(2000).collect::<String>().into();
        }
    }
    format!("{json:#}")
}
