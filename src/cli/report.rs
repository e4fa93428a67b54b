//! Explains an outcome to a person where its status alone is not clear.

use crate::outcome::{Denial, Ending, LimitName, Limits, Outcome, Reporter};
use crate::plan::harmless;
use crate::policy::{Policy, SystemFiles};
use crate::supervisor::NO_PROGRAMS;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use sandfork_egress::refusal::Failure;

use super::denials::{self, Shown};
use super::failure::say;

/// The maximum number of failed connections that are named.
const MAX_CONNECTIONS: usize = 3;

/// Returns one sentence about the outcome, or `None` if the guest's output explains it. `guest` is the name of the
/// script or program.
pub fn sentence(outcome: &Outcome, policy: &Policy, guest: &str) -> Option<String> {
    match outcome.ending() {
        Ending::Ok | Ending::Exit(0) => None,
        Ending::Exception | Ending::Exit(_) => no_memory(outcome, &policy.limits),
        Ending::Limit(hit) => Some(limit(hit.name, &policy.limits)),
        Ending::NotStarted(_) if policy.filesystem.system == SystemFiles::Libraries => Some(
            format!("`{guest}` could not be started: {NO_PROGRAMS}"),
        ),
        Ending::NotStarted(errno) => Some(format!(
            "`{guest}` could not be started: {}; the guest has the host's system programs, and \
             those in paths that `--set filesystem.read=PATH` shows it",
            Errno::from_raw(*errno).desc()
        )),
        Ending::Denied => Some(
            "the run was killed by SIGSYS, which seccomp sends for a system call that the policy does not allow"
                .to_owned(),
        ),
        Ending::Signal(number) => Some(format!("the run was ended by {}", signal(*number))),
        Ending::ProtocolViolation(how) => Some(format!(
            "the run was killed because it tampered with its link to the supervisor: {how}"
        )),
        Ending::Interrupted => Some("the run was interrupted".to_owned()),
    }
}

/// Prints an explanation of the outcome: the sentence about its ending or else the hint about its exception, and the
/// refusals that neither names.
pub fn explain(
    outcome: &Outcome,
    sentence: Option<&String>,
    hint: Option<&String>,
    denials: Option<Shown>,
) {
    let hint = hint.filter(|_| sentence.is_none());
    let names = |sentence: &String, denial: &Denial| {
        let is_in = |text: &Option<String>| text.as_ref().is_some_and(|it| sentence.contains(it));
        is_in(&denial.set) || denial.operation == "limit" && is_in(&denial.key)
    };
    let is_reported = |denial: &Denial| {
        sentence.is_some_and(|sentence| names(sentence, denial))
            || hint.is_some() && denial.reported_by == Reporter::Guest
    };
    let mut refused = Vec::new();
    if let Some(shown) = denials {
        refused = denials::lines(outcome, shown, &is_reported);
        if shown == Shown::All || !outcome.is_ok() {
            refused.extend(failed_connections(outcome));
        }
    }
    for line in sentence.into_iter().chain(hint).chain(&refused) {
        say(line);
    }
}

/// Explains why allowed connections failed: the guest may have seen only an HTTP status.
fn failed_connections(outcome: &Outcome) -> impl Iterator<Item = String> {
    let failed = outcome.network().iter().filter_map(|connection| {
        let why = Failure::named(connection.reason?)?.as_words();
        let host = harmless(&connection.host);
        let port = connection.port.map(|port| format!(":{port}"));
        let port = port.unwrap_or_default();
        Some(format!("the connection to {host}{port} failed: {why}"))
    });
    failed.take(MAX_CONNECTIONS)
}

fn limit(name: LimitName, limits: &Limits) -> String {
    let reached = format!("the run reached its limit of {}", limits.named(name));
    match limits.raised_text(name) {
        Some(raised) => format!("{reached}; `--set {}={raised}` allows more", name.key()),
        None => format!("{reached}; `{}` cannot be higher", name.key()),
    }
}

/// Returns a sentence if a process of the guest ran out of memory, which may explain why the guest failed.
fn no_memory(outcome: &Outcome, limits: &Limits) -> Option<String> {
    let is_memory = |denial: &&Denial| denial.operation == Denial::MEMORY;
    let what = match outcome.denied().iter().find(is_memory)?.reported_by {
        Reporter::Kernel => "the kernel killed a process of the run at the limit",
        _ => "a process of the run found no memory within the limit",
    };
    let name = LimitName::Memory;
    let raised = limits.raised_text(name)?;
    Some(format!(
        "{what} of {}; `--set {}={raised}` allows more",
        limits.named(name),
        name.key()
    ))
}

/// Formats a signal as `signal 11 (SIGSEGV)`. Real-time signals have no name.
pub fn signal(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => format!("signal {number} ({signal})"),
        Err(_) => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::outcome::{Connection, Enforced, LimitHit, Mechanism, PolicyIdentity};

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

    fn sentence_for(ending: Ending) -> Option<String> {
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
    fn guest_that_ended_by_itself_gets_no_sentence() {
        for ending in [Ending::Ok, Ending::Exception, Ending::Exit(3)] {
            assert_eq!(sentence_for(ending), None);
        }
    }

    #[test]
    fn limit_is_named_with_its_override() {
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
        .map(|name| sentence_for(limit(name)).unwrap_or_default());
        insta::assert_snapshot!("limits", sentences.join("\n"));
    }

    #[test]
    fn other_endings_are_named() {
        let sentences = [
            Ending::NotStarted(2),
            Ending::NotStarted(13),
            Ending::Denied,
            Ending::Signal(11),
            Ending::Signal(40),
            Ending::ProtocolViolation("the header of a frame is empty".into()),
            Ending::Interrupted,
        ]
        .map(|ending| sentence_for(ending).unwrap_or_default());
        insta::assert_snapshot!("ends", sentences.join("\n"));
    }

    #[test]
    fn failed_connection_is_named_with_its_reason() {
        let connection = |reason| Connection {
            host: "api.example.org".to_owned(),
            port: Some(443),
            address: None,
            request: None,
            sent: 0,
            received: 0,
            verdict: "failed",
            reason,
            open: false,
            count: 1,
        };
        let connections = [Some("unresolved"), Some("host"), None].map(connection);
        let outcome = outcome(Ending::Exception).with_network(connections.into());
        assert_eq!(
            failed_connections(&outcome).collect::<Vec<_>>(),
            ["the connection to api.example.org:443 failed: the name does not exist"]
        );
    }

    #[test]
    fn memory_exhaustion_is_named_if_the_guest_failed() {
        let after_exhaustion = |ending, reporter| {
            let memory = Denial::new(Denial::MEMORY, reporter);
            let outcome = outcome(ending).with_denied([memory], 0);
            sentence(&outcome, &Policy::default(), "hello")
        };
        for ending in [Ending::Exception, Ending::Exit(137)] {
            for reporter in [Reporter::Kernel, Reporter::Guest] {
                let message = after_exhaustion(ending.clone(), reporter).unwrap_or_default();
                assert!(message.contains("`--set limits.memory=1GiB`"), "{message}");
            }
        }
        assert_eq!(after_exhaustion(Ending::Exit(0), Reporter::Kernel), None);
        assert_eq!(
            sentence(&outcome(Ending::Exit(1)), &Policy::default(), ""),
            None
        );
    }
}
