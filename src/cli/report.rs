//! The command's message about an outcome whose status alone is not clear to a person.

use crate::outcome::{Denial, Ending, LimitName, Limits, Outcome, Reporter};
use crate::policy::Policy;
use nix::errno::Errno;
use nix::sys::signal::Signal;

/// One sentence, or `None` if the guest's output explains its end. `guest` is the name of the
/// script or program.
pub fn sentence(outcome: &Outcome, policy: &Policy, guest: &str) -> Option<String> {
    match outcome.ending() {
        Ending::Ok | Ending::Exception | Ending::Exit(_) => None,
        Ending::Limit(hit) => Some(limit(hit.name, policy.limits())),
        Ending::NotStarted(errno) => Some(format!(
            "`{guest}` could not be started: {}; the guest has the host's system programs, and \
             what `--set filesystem.read=PATH` shows it",
            Errno::from_raw(*errno).desc()
        )),
        Ending::Denied => Some(denied(outcome)),
        Ending::Signal(number) => Some(format!("the run was ended by {}", signal(*number))),
        Ending::ProtocolViolation(how) => Some(format!(
            "the run was ended, for it tampered with its link to the supervisor: {how}"
        )),
        Ending::Interrupted => Some("the run was interrupted".to_owned()),
    }
}

fn limit(name: LimitName, limits: &Limits) -> String {
    let reached = format!(
        "the run reached its limit of {} {}",
        limits.text(name),
        name.spec().noun
    );
    match limits.raised_text(name) {
        Some(raised) => format!("{reached}; `--set {}={raised}` allows more", name.key()),
        None => format!("{reached}; `{}` cannot be higher", name.key()),
    }
}

fn denied(outcome: &Outcome) -> String {
    let by_kernel = |denial: &&Denial| denial.reported_by == Reporter::Kernel;
    match outcome.denied().iter().find(by_kernel) {
        Some(denial) => format!(
            "the run was killed by seccomp for the system call `{}`, which the policy does not allow",
            denial.operation
        ),
        None => "the run was killed by seccomp for a system call that the policy does not allow"
            .to_owned(),
    }
}

/// `signal 11 (SIGSEGV)`; real-time signals have no name.
fn signal(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => format!("signal {number} ({signal})"),
        Err(_) => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::outcome::{Enforced, LimitHit, Mechanism, PolicyIdentity};

    use crate::plan::Layer;
    use crate::policy::Level;

    use super::*;

    fn outcome(ending: Ending) -> Outcome {
        let enforced = Enforced {
            level: Level::Full,
            layers: Layer::ALL.to_vec(),
        };
        Outcome::new(ending, PolicyIdentity::default(), enforced)
    }

    fn said(ending: Ending) -> Option<String> {
        let outcome = outcome(ending);
        sentence(&outcome, &Policy::default(), "hello")
    }

    fn limit(name: LimitName) -> Ending {
        Ending::Limit(LimitHit {
            name,
            by: Mechanism::Supervisor,
        })
    }

    #[test]
    fn a_guest_that_ended_by_itself_is_not_talked_over() {
        for ending in [Ending::Ok, Ending::Exception, Ending::Exit(3)] {
            assert_eq!(said(ending), None);
        }
    }

    #[test]
    fn a_limit_is_named_with_what_raises_it() {
        let sentences = [
            LimitName::Wall,
            LimitName::Cpu,
            LimitName::Memory,
            LimitName::Pids,
            LimitName::Output,
            LimitName::FileSize,
            LimitName::OpenFiles,
            LimitName::WorkSize,
            LimitName::WorkInodes,
            LimitName::TmpSize,
            LimitName::TmpInodes,
        ]
        .map(|name| said(limit(name)).unwrap_or_default());
        insta::assert_snapshot!("limits", sentences.join("\n"));
    }

    #[test]
    fn other_ends_are_named() {
        let sentences = [
            Ending::NotStarted(2),
            Ending::NotStarted(13),
            Ending::Denied,
            Ending::Signal(11),
            Ending::Signal(40),
            Ending::ProtocolViolation("the header of a frame is empty".into()),
            Ending::Interrupted,
        ]
        .map(|ending| said(ending).unwrap_or_default());
        insta::assert_snapshot!("ends", sentences.join("\n"));
    }

    #[test]
    fn a_denied_call_is_named_where_the_kernel_told() {
        let outcome =
            outcome(Ending::Denied).with_denied([Denial::new("ptrace", Reporter::Kernel)], 0);
        let sentence = sentence(&outcome, &Policy::default(), "hello");
        assert!(sentence.is_some_and(|sentence| sentence.contains("`ptrace`")));
    }
}
