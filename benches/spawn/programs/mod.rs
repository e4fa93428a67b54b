//! Compares the same programs inside and outside a sandbox, in pairs.
//!
//! Inside is a live session under the default policy; outside is a plain process of the same
//! interpreter. Both stay alive, so that start-up does not count, and both run `programs.py`, which
//! measures its own times. The two runs of a pair follow each other directly, in alternating order.
//! After some rounds both are restarted, so that hash seed and address layout vary: they make some
//! programs a few per cent faster or slower.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sandfork::Sandbox;
use sandfork::internals::protocol::Value;
use sandfork::session::Session;
use sandfork_measure::{Overhead, Programs};

use crate::Options;
use crate::common::{Conversation, policy};
use crate::ground::Ground;

const SOURCE: &str = include_str!("programs.py");

/// Reads the source, then one request per line.
const OUTSIDE: &str = "
import sys
for line in iter(sys.stdin.readline, ''):
    try:
        print(eval(line), flush=True)
    except Exception as error:
        print(type(error).__name__ + ':', *str(error).split(), flush=True)
";

/// Returns all pairs, and one line for each program that did not run.
pub fn measure(ground: &Ground, options: &Options) -> Result<(Programs, Vec<String>)> {
    let (generations, rounds) = options.full_or_quick((8, 6), (2, 3));
    let pyperformance = ground.environments.pyperformance.as_deref();
    let python = pyperformance.unwrap_or(&ground.python);
    let mut left_out = Vec::new();
    if pyperformance.is_none() {
        left_out.push(
            "pyperformance's programs: not installed; `cargo xtask bench` makes an environment"
                .to_owned(),
        );
    }
    let mut plan = Plan::new(&mut Side::outside(python)?, &mut left_out)?;
    for _ in 0..generations {
        let (mut inside, mut outside) = (Side::inside(python)?, Side::outside(python)?);
        plan.warm_up(&mut inside, &mut outside, &mut left_out)?;
        for round in 0..rounds {
            plan.round(round, &mut inside, &mut outside)?;
        }
    }
    Ok((plan.programs, left_out))
}

/// A process that has loaded `programs.py`.
enum Side {
    /// A live session. It returns values, so that nothing is printed.
    Inside(Session),
    /// A plain process.
    Outside(Conversation),
}

impl Side {
    fn inside(python: &Path) -> Result<Self> {
        let policy = policy(python, &[])?;
        let sandbox = Sandbox::builder().policy(policy).ready(0).build()?;
        let mut session = Arc::new(sandbox).session()?;
        let report = session.run(SOURCE)?;
        ensure!(
            report.outcome().is_ok(),
            "programs.py ended with {:?}",
            report.outcome()
        );
        Ok(Self::Inside(session))
    }

    fn outside(python: &Path) -> Result<Self> {
        let mut command = Command::new(python);
        command.args(["-I", "-c", &format!("{SOURCE}{OUTSIDE}")]);
        Ok(Self::Outside(Conversation::start(command)?))
    }

    fn evaluate(&mut self, expression: &str) -> Result<String> {
        match self {
            Self::Outside(process) => {
                process.send(expression)?;
                process.receive()
            }
            Self::Inside(session) => {
                let report = session.run(expression)?;
                match report.outcome().value() {
                    Some(Value::Int(number)) => Ok(number.to_string()),
                    _ => bail!("it ended with {:?}", report.outcome()),
                }
            }
        }
    }

    /// Runs a program `loops` times and returns how long that took.
    fn run(&mut self, program: &str, loops: u32) -> Result<Duration> {
        let answer = self.evaluate(&format!("run({program:?}, {loops})"))?;
        let nanoseconds = answer.trim().parse();
        Ok(Duration::from_nanos(nanoseconds.context(answer)?))
    }
}

/// The programs, and how often each runs in one turn.
struct Plan {
    programs: Programs,
    loops: Vec<u32>,
}

/// The minimum length of a turn: a brief disturbance of the machine must be small in comparison.
const TURN: Duration = Duration::from_millis(60);

impl Plan {
    /// Queries the programs, and calibrates how often each runs in a turn.
    fn new(outside: &mut Side, left_out: &mut Vec<String>) -> Result<Self> {
        let mut plan = Self {
            programs: Programs {
                set: outside.evaluate("version()")?.trim().to_owned(),
                each: Vec::new(),
            },
            loops: Vec::new(),
        };
        for name in outside.evaluate("names()")?.split_ascii_whitespace() {
            match calibrate(outside, name) {
                Ok(loops) => {
                    plan.loops.push(loops);
                    plan.programs.each.push(Overhead {
                        program: name.to_owned(),
                        is_cpu_bound: !name.starts_with("kernel:"),
                        pairs: Vec::new(),
                    });
                }
                Err(why) => left_out.push(format!("the program {name}: {why}")),
            }
        }
        Ok(plan)
    }

    /// Runs each program once on both sides. Drops those that do not run inside.
    fn warm_up(
        &mut self,
        inside: &mut Side,
        outside: &mut Side,
        left_out: &mut Vec<String>,
    ) -> Result<()> {
        let mut index = 0;
        while let Some(program) = self.programs.each.get(index) {
            outside.run(&program.program, self.loops[index])?;
            if let Err(why) = inside.run(&program.program, self.loops[index]) {
                left_out.push(format!("the program {}, inside: {why}", program.program));
                self.programs.each.remove(index);
                self.loops.remove(index);
            } else {
                index += 1;
            }
        }
        Ok(())
    }

    fn round(&mut self, round: usize, inside: &mut Side, outside: &mut Side) -> Result<()> {
        for (index, program) in self.programs.each.iter_mut().enumerate() {
            let run = |side: &mut Side| side.run(&program.program, self.loops[index]);
            let pair = if (round + index).is_multiple_of(2) {
                (run(inside)?, run(outside)?)
            } else {
                let without = run(outside)?;
                (run(inside)?, without)
            };
            program.pairs.push(pair);
        }
        Ok(())
    }
}

/// Returns how often a program runs in a turn. The first run, which loads modules, does not count.
fn calibrate(outside: &mut Side, program: &str) -> Result<u32> {
    outside.run(program, 1)?;
    let mut loops = 1;
    loop {
        let time = outside.run(program, loops)?;
        if time >= TURN {
            return Ok(loops);
        }
        let missing = TURN.as_secs_f64() / time.as_secs_f64().max(1e-6);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at most a hundred-fold
        let factor = missing.ceil().clamp(2.0, 100.0) as u32;
        loops = loops.saturating_mul(factor);
    }
}
