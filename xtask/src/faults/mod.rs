//! Injects every fault and every kill of `tests/faults`, not only the sample of the tests, in as
//! many shares as there are CPUs. The results become a table in docs/threat-model.md.

mod table;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::available_parallelism;

use anyhow::{Result, ensure};
use xshell::cmd;

use self::table::Table;
use crate::test::test_program;
use crate::{document, shell};

/// The last results of each test, which the document shows for tests that are not run again.
const FOUND: &str = "docs/data/faults.jsonl";

/// Runs all tests, or those whose name contains the filter. The others keep their earlier results,
/// and the document names those without any.
pub fn run(filter: Option<&str>) -> Result<()> {
    let sh = shell()?;
    let program = test_program("faults", "faults")?;
    let tests = tests(&program)?;
    let filtered = filter.unwrap_or_default();
    ensure!(
        tests.iter().any(|name| name.contains(filtered)),
        "no test has `{filtered}` in its name: {}",
        tests.join(", ")
    );
    let shares = available_parallelism()?.get();
    let here = document::here_and_now()?;
    let (found, all_passed) = in_shares(&program, shares, filter)?;
    let mut table = Table::read(&sh.read_file(FOUND)?, &tests)?;
    table.renew(&found, shares, &here)?;
    sh.write_file(FOUND, table.to_json()?)?;
    println!("{table}");
    document::replace(
        "threat-model.md",
        "cargo xtask verify faults",
        &table.to_string(),
    )?;
    ensure!(all_passed, "not every fault was handled");
    Ok(())
}

/// Returns the names of the tests that count something, in order.
fn tests(program: &Path) -> Result<Vec<String>> {
    let sh = shell()?;
    let list = cmd!(sh, "{program} --list").env("SANDFORK_FAULTS", "full");
    let list = list.quiet().read()?;
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let counting = names.filter(|name| !name.starts_with("lost::"));
    Ok(counting.map(str::to_owned).collect())
}

/// Runs an equal share of each test on every CPU. Returns one JSON line for each share of
/// each test, and whether all of them passed. Prints errors immediately.
fn in_shares(program: &Path, shares: usize, filter: Option<&str>) -> Result<(String, bool)> {
    let files = tempfile::tempdir()?;
    let found = files.path().join("found");
    let log = |share: usize| files.path().join(share.to_string());
    let start = |share| -> Result<Child> {
        let mut command = Command::new(program);
        command.args(filter).stdin(Stdio::null());
        command.stdout(File::create(log(share))?);
        command.env("SANDFORK_FAULTS", format!("{share}/{shares}"));
        command.env("SANDFORK_FAULTS_FOUND", &found);
        Ok(command.spawn()?)
    };
    let running: Result<Vec<Child>> = (0..shares).map(start).collect();
    let mut all_passed = true;
    for (share, mut child) in running?.into_iter().enumerate() {
        if !child.wait()?.success() {
            all_passed = false;
            println!("{}", fs::read_to_string(log(share))?);
        }
    }
    // A test whose set-up failed has no results.
    Ok((fs::read_to_string(found).unwrap_or_default(), all_passed))
}
