//! Many threads, one sandbox: every outcome belongs to its run.

use std::thread;

use serde_json::json;

use crate::check::{fine, shown};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

const THREADS: usize = 16;
const RUNS: usize = 20;

pub fn tests() -> Vec<Test> {
    tests![outputs_are_not_mixed]
}

fn outputs_are_not_mixed(world: &World) {
    let sandbox = world.build(standard());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let sandbox = &sandbox;
            scope.spawn(move || {
                for number in 0..RUNS {
                    let token = format!("{thread}-{number}");
                    let code = format!(
                        "import os, sys\n\
                         assert os.listdir('/work') == os.listdir('/tmp') == []\n\
                         open('/work/mine', 'w').write('{token}')\n\
                         for _ in range(50): print('{token}')\n\
                         print('{token}', file=sys.stderr)\n\
                         open('/work/mine').read()\n"
                    );
                    let outcome = run(sandbox, code);
                    fine(&outcome);
                    assert_eq!(outcome.stdout(), format!("{token}\n").repeat(50));
                    assert_eq!(outcome.stderr(), format!("{token}\n"));
                    let seen = serde_json::to_value(&outcome).expect("an outcome is JSON");
                    assert_eq!(seen["value"], json!(token), "{}", shown(&outcome));
                }
            });
        }
    });
}
