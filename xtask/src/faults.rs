//! Every fault and every kill, not the part of them that the tests take.

use std::process::ExitCode;

use crate::test::cargo;
use crate::{Error, workspace};

/// Runs them; `filter` takes those whose name contains it. It takes about two hours, and says what came
/// of each.
pub fn run(filter: Option<String>) -> Result<ExitCode, Error> {
    let mut faults = cargo(&workspace());
    faults.args(["test", "--test", "faults", "--"]).args(filter);
    let status = faults.env("SANDFORK_FAULTS", "full").status()?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
