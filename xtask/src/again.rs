//! A second look at a few tests that failed: the machines that this runs on stand still for seconds at times,
//! and a test of what takes time then fails for no fault of what it tests.
//!
//! Such a test is run again, alone. If it passes it is told of as unsteady, by name and with what it said, and
//! is no failure; of a defect that is always there nothing is forgiven. Nor is an escape, ever: one that
//! succeeds once of twice has succeeded.

use std::process::Command;

use crate::Error;
use crate::tally::Tally;

/// Where more fail it is not by chance.
const FEW: usize = 3;

/// Runs again what failed, each by the command that is made of its name, which prints what `read` reads.
pub fn look_again(
    mut tally: Tally,
    command: impl Fn(&str) -> Result<Command, Error>,
    read: impl Fn(&mut Command) -> Result<Tally, Error>,
) -> Result<Tally, Error> {
    let Some(names) = tally.failed_by_name() else {
        return Ok(tally);
    };
    if names.len() > FEW || names.iter().any(|name| is_of_the_jail(name)) {
        return Ok(tally);
    }
    for name in names {
        println!("\n{name} failed; again, alone:");
        if read(&mut command(&name)?)?.has_passed() {
            tally.forgive(&name);
        }
    }
    Ok(tally)
}

/// Of the tests of escapes, and of a jail with something taken out of it: their names begin with a level or
/// the word for what is taken.
fn is_of_the_jail(name: &str) -> bool {
    let starts = ["[", "caught::", "off::", "left_out::", "fails::"];
    starts.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn failed(names: &[&str]) -> Tally {
        let mut tally = Tally::default();
        for name in names {
            tally.read(&format!("test {name} ... FAILED"));
        }
        let counts = format!(
            "test result: FAILED. 9 passed; {} failed; 0 ignored",
            names.len()
        );
        tally.read(&counts);
        tally
    }

    /// What comes of these failures, and what was run again, when it ends so then.
    fn looked_again(names: &[&str], result: &str) -> (String, Vec<String>) {
        let asked = RefCell::new(Vec::new());
        let command = |name: &str| {
            asked.borrow_mut().push(name.to_owned());
            Ok(Command::new("true"))
        };
        let read = |_: &mut Command| {
            let mut second = Tally::default();
            second.read(result);
            Ok(second)
        };
        let tally = look_again(failed(names), command, read).expect("nothing is run");
        (tally.counts(), asked.into_inner())
    }

    const PASSES: &str = "test result: ok. 1 passed; 0 failed; 0 ignored";

    #[test]
    fn one_that_passes_then_is_no_failure() {
        let (counts, asked) = looked_again(&["a::b", "c"], PASSES);
        assert_eq!(counts, "11 passed, 0 failed, 0 skipped");
        assert_eq!(asked, ["a::b", "c"]);
    }

    #[test]
    fn one_that_fails_again_or_is_not_found_has_failed() {
        for result in [
            "test result: FAILED. 0 passed; 1 failed; 0 ignored",
            "test result: ok. 0 passed; 0 failed; 0 ignored",
        ] {
            assert_eq!(
                looked_again(&["a"], result).0,
                "9 passed, 1 failed, 0 skipped"
            );
        }
    }

    #[test]
    fn neither_many_nor_an_escape_are_run_again() {
        for names in [
            &["a", "b", "c", "d"][..],
            &["[full] process::PR-001"],
            &["caught::seccomp"],
        ] {
            let (counts, asked) = looked_again(names, PASSES);
            assert_eq!(
                counts,
                format!("9 passed, {} failed, 0 skipped", names.len())
            );
            assert!(asked.is_empty());
        }
    }
}
