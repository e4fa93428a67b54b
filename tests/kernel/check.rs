//! What outcomes are compared with.

use sandfork::internals::outcome::limit_spec;
use sandfork::internals::plan::SandboxPlan as _;
use sandfork::{Level, LimitHit, LimitName, Mechanism, Outcome, Sandbox, Status};

/// That it ended so.
#[track_caller]
pub fn ended(outcome: &Outcome, status: Status) {
    assert_eq!(outcome.status(), status, "{}", shown(outcome));
}

/// That it ran to its end.
#[track_caller]
pub fn fine(outcome: &Outcome) {
    ended(outcome, Status::Ok);
}

/// That this limit ended it, held by this.
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

/// What holds where there is a cgroup, or else what holds where there is none.
pub fn by(sandbox: &Sandbox, with_cgroup: Mechanism, without: Mechanism) -> Mechanism {
    match sandbox.plan().level {
        Level::Full => with_cgroup,
        _ => without,
    }
}

/// All of it, for a person.
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
