//! Runs CPython under both filters, without the rest of the jail.

use libtest_mimic::Failed;
use sandfork::internals::plan::seccomp::Surroundings;

use crate::helper::{self, Stage};
use crate::helper_command;

/// Standard library only, so that it runs with any CPython; numpy if it is installed.
const SCRIPT: &str = include_str!("workload.py");

pub fn runs_under_both_filters() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let python = std::env::var("SANDFORK_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = directory.path().join("workload.py");
    std::fs::write(&script, SCRIPT)?;
    let output = helper_command(Stage::Worker, Surroundings::Namespaces)
        .args([helper::EXEC, &python, "-I"])
        .arg(&script)
        .current_dir(directory.path())
        .env("TMPDIR", directory.path())
        .output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && stdout.trim_end().ends_with("done") {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}\n{stdout}\n{stderr}", output.status).into())
}
