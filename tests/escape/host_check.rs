//! Checks of the host after an attempt, or while the attempt runs once more.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::left_over;
use crate::one_sandbox::PREVIOUS;
use crate::probe::HostCheck;
use crate::sandboxed::{Attempt, Outcome, parse};
use crate::verdict::escapes;

impl Attempt<'_> {
    pub fn check_host(&self, check: HostCheck, outcome: &Outcome) -> Result<(), String> {
        match check {
            HostCheck::NextRunServed | HostCheck::FrameRefused => self.next_run_served(),
            HostCheck::OutputDecoded => {
                let replaced = outcome.stdout.contains('\u{fffd}');
                replaced
                    .then_some(())
                    .ok_or("the invalid bytes were not replaced".to_owned())
            }
            HostCheck::NoCanaryCollected => {
                if outcome.stdout.contains("CANARY-") || outcome.stderr.contains("CANARY-") {
                    return Err("the outcome holds the canary".to_owned());
                }
                nothing_in(&self.directory.work)
            }
            HostCheck::UploadStaysInside => {
                let marker = Path::new(&self.party.bait.variables["MARKER_DIR"]);
                if marker.join("x").exists() {
                    return Err("the upload landed on the host".to_owned());
                }
                nothing_in(&self.directory.work)
            }
            HostCheck::NothingSurvives => left_over::none(),
            HostCheck::TerminalUnmoved => self.terminal_unmoved(),
            HostCheck::LogUnforged => self.log_unforged(),
        }
    }

    fn next_run_served(&self) -> Result<(), String> {
        let program = self.directory.programs.join("next.py");
        fs::write(&program, "print('served')").map_err(|error| error.to_string())?;
        let captured = self.launch(&self.world.sandfork, &[], &[program])?;
        let outcome = parse(&captured.stdout, &captured)?;
        if outcome.status == "ok" && outcome.stdout == "served\n" {
            Ok(())
        } else {
            Err(format!(
                "the next run ended {} with {:?}",
                outcome.status, outcome.stdout
            ))
        }
    }

    /// Runs the program again with a terminal as its output.
    fn terminal_unmoved(&self) -> Result<(), String> {
        let python = self.party.account.python.clone();
        let words = [
            python,
            self.world.script("terminal.py"),
            self.world.sandfork.clone(),
        ];
        let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        words.push("run".into());
        let shown = self.start(words, &[self.program(1, PREVIOUS)?])?.output();
        match escapes(&shown).next() {
            Some(moved) => Err(moved.to_owned()),
            None if shown.contains("CONTAINED shown as text") => Ok(()),
            None => Err(format!("the terminal showed nothing: {shown:?}")),
        }
    }

    /// Runs the program again while the launcher logs to a stream that the guest does not have.
    fn log_unforged(&self) -> Result<(), String> {
        let mut words: Vec<OsString> = ["env", "SANDFORK_LOG=trace"].map(OsString::from).into();
        words.push(self.world.sandfork.clone().into());
        words.extend(["run", "--json"].map(OsString::from));
        let captured = self.start(words, &[self.program(1, PREVIOUS)?])?;
        let mut lines = captured.stderr.lines();
        let forged = |line: &&str| {
            !line.starts_with("sandfork: ")
                || line.starts_with("sandfork: forged")
                || line.contains(char::is_control)
        };
        match lines.find(forged) {
            Some(line) => Err(format!("the log has the line {line:?}")),
            None if captured.stderr.is_empty() => Err("nothing was logged".to_owned()),
            None => Ok(()),
        }
    }
}

fn nothing_in(directory: &Path) -> Result<(), String> {
    let wrap = |error| format!("{}: {error}", directory.display());
    match fs::read_dir(directory).map_err(wrap)?.next() {
        None => Ok(()),
        Some(entry) => Err(format!(
            "{} appeared",
            entry.map_err(wrap)?.path().display()
        )),
    }
}
