//! Runs every fault and every kill, not only the sample that the tests take: `tests/faults`, in as
//! many shares as there are processors. The results become a table in docs/threat-model.md.

mod table;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::available_parallelism;

use self::table::Table;
use crate::test::built;
use crate::{Error, document, workspace};

const COMMAND: &str = "cargo xtask verify faults";

/// The last results of each test, which the document shows for tests that are not run again.
const FOUND: &str = "docs/data/faults.jsonl";

/// Runs all tests, or those whose name contains the filter. The others keep their earlier results,
/// and the document names those without any.
pub fn run(filter: Option<&str>) -> Result<ExitCode, Error> {
    let workspace = workspace();
    let program = [
        "test",
        "--no-run",
        "--profile",
        "faults",
        "--test",
        "faults",
    ];
    let program = built(&workspace, &program, |message| {
        message["target"]["name"] == "faults" && message["profile"]["test"] == true
    })?;
    let tests = tests(&program)?;
    let is_asked_for = |name: &String| filter.is_none_or(|filter| name.contains(filter));
    if !tests.iter().any(is_asked_for) {
        let filter = filter.unwrap_or_default();
        return Err(format!("no test has `{filter}` in its name: {}", tests.join(", ")).into());
    }
    let shares = available_parallelism()?.get();
    let here = document::here_and_now()?;
    let (found, all_passed) = in_shares(&program, shares, filter)?;
    let file = workspace.join(FOUND);
    let mut table = Table::read(&fs::read_to_string(&file)?, &tests)?;
    table.renew(&found, shares, &here)?;
    fs::write(&file, table.to_json()?)?;
    println!("{table}");
    document::replace(
        &workspace.join("docs/threat-model.md"),
        COMMAND,
        &table.to_string(),
    )?;
    Ok(if all_passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The names of the tests that count something, in order.
fn tests(program: &Path) -> Result<Vec<String>, Error> {
    let mut list = Command::new(program);
    let list = list.arg("--list").env("SANDFORK_FAULTS", "full").output()?;
    let list = String::from_utf8(list.stdout)?;
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let counting = names.filter(|name| !name.starts_with("lost::"));
    Ok(counting.map(str::to_owned).collect())
}

/// Runs an equal share of each test on every processor. Returns a line of JSON for each share of
/// each test, and whether all of them passed. Prints errors immediately.
fn in_shares(program: &Path, shares: usize, filter: Option<&str>) -> Result<(String, bool), Error> {
    let files = tempfile::tempdir()?;
    let found = files.path().join("found");
    let log = |share: usize| files.path().join(share.to_string());
    let start = |share| -> Result<Child, Error> {
        let mut command = Command::new(program);
        command.args(filter).stdin(Stdio::null());
        command.stdout(File::create(log(share))?);
        command.env("SANDFORK_FAULTS", format!("{share}/{shares}"));
        command.env("SANDFORK_FAULTS_FOUND", &found);
        Ok(command.spawn()?)
    };
    let running: Result<Vec<Child>, Error> = (0..shares).map(start).collect();
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
