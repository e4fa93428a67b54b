//! Prints what a guest was refused, and the setting that allows it.

use std::fmt::Write as _;

use sandfork_egress::refusal::Refusal;

use crate::host::quoted;
use crate::outcome::{Denial, Layer, Outcome, Reporter};
use crate::plan::{DENIED_CALLS, RUNS_PROGRAMS, harmless};

/// How many denials a terminal shows after a run that did not end well.
const FIRST: usize = 3;

/// Which denials to show.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shown {
    /// The first denials, if the run did not end well.
    First,
    /// All denials of any run.
    All,
}

/// Returns one line per shown denial. `is_reported` tells whether another message has already named a denial.
pub fn lines(
    outcome: &Outcome,
    shown: Shown,
    is_reported: &dyn Fn(&Denial) -> bool,
) -> Vec<String> {
    let all: Vec<&Denial> = outcome
        .denied()
        .iter()
        .filter(|denial| !is_reported(denial))
        .collect();
    let most = match shown {
        Shown::All => all.len(),
        Shown::First if outcome.is_ok() => return Vec::new(),
        Shown::First => FIRST,
    };
    let mut lines: Vec<String> = all.iter().take(most).map(|denial| line(denial)).collect();
    let left = all.len().saturating_sub(most);
    match (shown, left, outcome.denied_omitted()) {
        (Shown::First, 1.., _) => lines.push(format!(
            "{left} more {} refused; `--explain` shows all",
            if left == 1 { "was" } else { "were" }
        )),
        (Shown::All, _, omitted @ 1..) => {
            lines.push(format!("{omitted} more were refused, and are not listed"));
        }
        _ => {}
    }
    lines
}

/// Describes a denial, who reported it, and the setting that allows it.
pub fn line(denial: &Denial) -> String {
    let prefix = match denial.reported_by {
        Reporter::Guest => "the guest says it was refused",
        Reporter::Kernel | Reporter::Supervisor => "refused",
    };
    format!("{prefix}: {}; {}", what(denial), remedy(denial))
}

/// Describes what was refused, where, by which layer, and how often.
pub fn what(denial: &Denial) -> String {
    let mut text = denial.operation.clone();
    if let Some(target) = &denial.target {
        // Writing to a string does not fail.
        _ = write!(text, " {}", harmless(target));
    }
    match (&denial.file, denial.line) {
        (Some(file), Some(line @ 1..)) if !file.is_empty() => {
            _ = write!(text, " ({}:{line})", harmless(file));
        }
        _ => {}
    }
    if let Some(layer) = denial.layer {
        _ = write!(text, " by {}", by(layer));
    }
    if denial.count > 1 {
        _ = write!(text, ", {} times", denial.count);
    }
    text
}

fn by(layer: Layer) -> String {
    match layer {
        Layer::Mounts => "the mounts".to_owned(),
        Layer::Namespaces => "the namespaces".to_owned(),
        Layer::Cgroup => "the cgroup".to_owned(),
        other => other.to_string(),
    }
}

fn remedy(denial: &Denial) -> String {
    if let (None, Some(refusal)) = (&denial.set, denial.reason.and_then(Refusal::named)) {
        return refusal.as_words().to_owned();
    }
    match (&denial.set, denial.key.as_deref()) {
        (Some(set), _) => {
            let doubt = match (denial.on_host, set.starts_with("filesystem.")) {
                (None, true) if denial.target.as_deref().is_some_and(|it| set.ends_with(it)) => {
                    ", if the host has it"
                }
                _ => "",
            };
            format!("`--set {}` allows it{doubt}", quoted(set))
        }
        (None, Some(DENIED_CALLS)) if denial.operation == "system call" => {
            format!("`{DENIED_CALLS}` of the policy lists it")
        }
        // The denied system call is `execve`.
        (None, Some(DENIED_CALLS)) => {
            format!("`{DENIED_CALLS}` of the policy lists `{RUNS_PROGRAMS}`")
        }
        // The path is listed in `filesystem.read`.
        (None, Some("filesystem.write")) => {
            "`filesystem.write` of the policy allows it, in place of `filesystem.read`".to_owned()
        }
        (None, Some(key)) => format!("`{key}` of the policy allows it"),
        (None, None) if denial.layer.is_none() && denial.target.is_none() => {
            "the exception does not name the call".to_owned()
        }
        (None, None) if denial.layer.is_none() => {
            "by the permissions of the file or of a directory above it, not by the policy"
                .to_owned()
        }
        (None, None) => "no key of a policy allows it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Ending, Enforced, Level, PolicyIdentity};

    fn outcome(ending: Ending, paths: usize, omitted: u64) -> Outcome {
        let enforced = Enforced {
            level: Level::Full,
            layers: Vec::new(),
        };
        let denials = (0..paths).map(|number| Denial {
            target: Some(format!("/srv/{number}")),
            layer: Some(Layer::Mounts),
            file: Some("a.py".to_owned()),
            line: Some(2),
            key: Some("filesystem.read".to_owned()),
            set: Some(format!("filesystem.read=/srv/{number}")),
            ..Denial::new("access", Reporter::Guest)
        });
        Outcome::new(ending, PolicyIdentity::default(), enforced).with_denied(denials, omitted)
    }

    #[test]
    fn terminal_shows_the_first_and_explain_shows_all() {
        let none = |_: &Denial| false;
        let failed = outcome(Ending::Exception, 5, 2);
        let first = lines(&failed, Shown::First, &none);
        assert_eq!(first.len(), FIRST + 1);
        assert_eq!(first[FIRST], "2 more were refused; `--explain` shows all");
        assert_eq!(
            first[0],
            "the guest says it was refused: access /srv/0 (a.py:2) by the mounts; \
             `--set filesystem.read=/srv/0` allows it, if the host has it"
        );
        let all = lines(&failed, Shown::All, &none);
        assert_eq!(all.len(), 6);
        assert_eq!(all[5], "2 more were refused, and are not listed");
        assert_eq!(lines(&failed, Shown::All, &|_| true).len(), 1);
        let fine = outcome(Ending::Ok, 2, 0);
        assert!(lines(&fine, Shown::First, &none).is_empty());
        assert_eq!(lines(&fine, Shown::All, &none).len(), 2);
    }

    #[test]
    fn remedy_matches_the_cause() {
        let of = |denial: Denial| remedy(&denial);
        let new = |operation| Denial::new(operation, Reporter::Guest);
        assert!(of(new("system call")).contains("does not name the call"));
        let target = Some("/work/x".to_owned());
        let own = Denial {
            target,
            ..new("access")
        };
        assert!(of(own.clone()).contains("permissions"));
        let layer = Some(Layer::Mounts);
        let never = Denial { layer, ..own };
        assert_eq!(of(never.clone()), "no key of a policy allows it");
        let key = Some("filesystem.write".to_owned());
        let unset = Denial { key, ..never };
        assert_eq!(
            of(unset),
            "`filesystem.write` of the policy allows it, in place of `filesystem.read`"
        );
        let key = Some(DENIED_CALLS.to_owned());
        let program = Denial {
            key: key.clone(),
            ..new("run")
        };
        assert_eq!(of(program), "`syscalls.deny` of the policy lists `execve`");
        let call = Denial {
            key,
            ..new("system call")
        };
        assert_eq!(of(call), "`syscalls.deny` of the policy lists it");
        let private = Denial {
            reason: Some("private-address"),
            key: Some("network.allow".to_owned()),
            ..new("connect")
        };
        assert!(of(private).contains("`private = true` in the policy's entry"));
    }
}
