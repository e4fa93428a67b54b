//! Every fault and every kill, not the part of them that the tests take: `tests/faults`, in as many shares as
//! there are processors, and what came of all of them as a table in docs/threat-model.md.

mod table;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::available_parallelism;

use serde_json::Value;

use self::table::Table;
use crate::test::built;
use crate::{Error, document, workspace};

/// Runs them, or with a filter those whose name contains it: the others stay as they were found before, and the
/// document says which were not found at all.
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
    let found = program.with_file_name("faults-found.jsonl");
    forget(&found, filter)?;
    let all_passed = in_shares(&program, &found, filter)?;
    let table = Table::read(&fs::read_to_string(&found).unwrap_or_default(), &tests)?;
    println!("{table}");
    let here = document::here_and_now()?;
    let mut text = format!("Found {here}:\n\n{table}");
    let missing = table.missing(&tests);
    if !missing.is_empty() {
        write!(
            text,
            "\nNot run since the last change: `{}`.",
            missing.join("`, `")
        )?;
    }
    let page = workspace.join("docs/threat-model.md");
    document::replace(&page, "cargo xtask faults", &text)?;
    Ok(if all_passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The tests that count something, in their order.
fn tests(program: &Path) -> Result<Vec<String>, Error> {
    let mut list = Command::new(program);
    let list = list.arg("--list").env("SANDFORK_FAULTS", "full").output()?;
    let list = String::from_utf8(list.stdout)?;
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let counting = names.filter(|name| !name.starts_with("lost::"));
    Ok(counting.map(str::to_owned).collect())
}

/// Takes out what was found by those that are run anew.
fn forget(found: &Path, filter: Option<&str>) -> Result<(), Error> {
    let Ok(text) = fs::read_to_string(found) else {
        return Ok(());
    };
    let mut kept = String::new();
    for line in text.lines() {
        let of: Value = serde_json::from_str(line)?;
        let name = of["test"].as_str().unwrap_or_default();
        if filter.is_some_and(|filter| !name.contains(filter)) {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    Ok(fs::write(found, kept)?)
}

/// Runs an equal share of each test on every processor; whether all of them passed. What is wrong is said as
/// soon as it is seen.
fn in_shares(program: &Path, found: &Path, filter: Option<&str>) -> Result<bool, Error> {
    let logs = tempfile::tempdir()?;
    let log = |share: usize| logs.path().join(share.to_string());
    let shares = available_parallelism()?.get();
    let start = |share| -> Result<Child, Error> {
        let mut command = Command::new(program);
        command.args(filter).stdin(Stdio::null());
        command.stdout(File::create(log(share))?);
        command.env("SANDFORK_FAULTS", format!("{share}/{shares}"));
        command.env("SANDFORK_FAULTS_FOUND", found);
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
    Ok(all_passed)
}
