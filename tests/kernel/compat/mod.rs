//! Tests of what Python programs rely on, with each CPython that the set-up found.

mod copies;
mod reseeding;

use crate::check::{fine, shown};
use crate::need::Need;
use crate::recipe::{Recipe, data_science, standard, strict};
use crate::test::Test;
use crate::world::{Python, World, run};

/// The minor versions that Sandfork supports. Each is tested where it is installed.
const MINORS: std::ops::RangeInclusive<u8> = 9..=14;

macro_rules! guests {
    ($($name:literal),+ $(,)?) => { [$(($name, include_str!(concat!($name, ".py")))),+] };
}

/// Programs that succeed, or print why they fail.
const GUESTS: [(&str, &str); 22] = guests![
    "asyncio",
    "concurrent_futures",
    "crypto",
    "ctypes",
    "file_locks",
    "joblib",
    "language",
    "multiprocessing_fork",
    "multiprocessing_shared",
    "multiprocessing_spawn",
    "newer",
    "numbers",
    "numpy",
    "pandas",
    "signals",
    "sockets",
    "sqlite3",
    "subprocess",
    "tempfile",
    "threads",
    "time_and_place",
    "unicode_names",
];

/// The programs that also run under `strict`, which allows no subprocesses and has no /proc.
const COMPUTING: [&str; 8] = [
    "crypto",
    "ctypes",
    "file_locks",
    "numbers",
    "numpy",
    "sqlite3",
    "tempfile",
    "unicode_names",
];

pub fn tests(world: &World) -> Vec<Test> {
    let mut tests = Vec::new();
    for minor in MINORS {
        if !world.pythons.iter().any(|python| python.minor() == minor) {
            let name = format!("compat::cpython-3.{minor}");
            tests.push(
                Test::new(name, |_| {})
                    .needs(Need::Packages)
                    .needs(Need::Python(minor)),
            );
        }
    }
    for python in &world.pythons {
        tests.extend(tests_with(python));
    }
    tests
}

fn tests_with(python: &Python) -> Vec<Test> {
    let name = |test: &str| format!("compat::cpython-{}::{test}", python.version_text());
    let venv = |recipe: Recipe| recipe.python(&python.venv);
    let mut tests = Vec::new();
    for (guest, code) in GUESTS {
        tests.push(program(name(guest), venv(standard()), code));
        if COMPUTING.contains(&guest) {
            tests.push(program(
                name(&format!("strict::{guest}")),
                venv(strict()),
                code,
            ));
        }
    }
    let bare = standard().python(&python.executable);
    tests.push(program(
        name("without_environment"),
        bare,
        WITHOUT_ENVIRONMENT,
    ));
    tests.push(program(name("preloaded"), venv(data_science()), PRELOADED));
    let preloaded = venv(standard()).set("python.preload=matplotlib");
    for (test, recipe) in [
        ("figure", venv(standard())),
        ("figure_preloaded", preloaded),
    ] {
        tests.push(figure(name(test), recipe));
    }
    tests.push(reseeding::bare(name("reseeding"), venv(standard())));
    tests.push(reseeding::preloaded(
        name("reseeding_preloaded"),
        venv(data_science()),
    ));
    for (suffix, recipe) in [("", venv(standard())), ("_preloaded", venv(data_science()))] {
        let recipe = recipe.patient();
        tests.push(copies::state(
            name(&format!("copies{suffix}")),
            recipe.clone(),
        ));
        tests.push(copies::draws(
            name(&format!("draws_of_copies{suffix}")),
            recipe,
        ));
    }
    tests
}

/// Tests a program. On a slow machine, importing pandas exceeds the CPU limit of the policies.
fn program(name: String, recipe: Recipe, code: &'static str) -> Test {
    let recipe = recipe.patient();
    Test::new(name, move |world: &World| {
        world.with_shared(recipe, |sandbox| fine(&run(sandbox, code)));
    })
}

/// The notice that matplotlib prints after it has searched fonts for five seconds.
const LOOKS_LONG: &str = "Matplotlib is building the font cache; this may take a moment.\n";

/// Tests that a figure is drawn with an empty stderr, which fontconfig would use to report configuration errors. A
/// preloaded matplotlib has its font list and a directory that the guest may write to.
fn figure(name: String, recipe: Recipe) -> Test {
    const FIGURE: &str = "\
import sys
print('matplotlib.font_manager' in sys.modules)
import matplotlib, os, subprocess
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.savefig('figure.png')
assert open('figure.png', 'rb').read(4) == b'\\x89PNG'
for place in (matplotlib.get_cachedir(), matplotlib.get_configdir()):
    open(os.path.join(place, 'mine'), 'w').close()
code = 'import matplotlib; print(matplotlib.get_cachedir())'
said = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
assert said.stdout.startswith('/work/') and not said.stderr, said
";
    let recipe = recipe.patient();
    let preloads = name.ends_with("preloaded");
    Test::new(name, move |world: &World| {
        world.with_shared(recipe, |sandbox| {
            let outcome = run(sandbox, FIGURE);
            fine(&outcome);
            // Only a guest that builds the font list itself may take that long.
            let notice = if preloads { "" } else { LOOKS_LONG };
            assert_eq!(outcome.stderr().replacen(notice, "", 1), "");
            let loaded = if preloads { "True\n" } else { "False\n" };
            assert_eq!(outcome.stdout(), loaded);
        });
    })
}

/// Checks the interpreter without a virtual environment, which may be in a home directory only its owner can enter.
const WITHOUT_ENVIRONMENT: &str = "\
import os, sqlite3, ssl, sys
assert sys.prefix == sys.base_prefix
assert os.path.samefile(sys.executable, '/proc/self/exe')
import importlib.util
assert importlib.util.find_spec('json').origin.startswith(sys.prefix)
";

const PRELOADED: &str = "\
import sys
assert {'numpy', 'pandas'} <= set(sys.modules)
import numpy, pandas, threading, os
assert pandas.DataFrame({'a': numpy.arange(1000)}).a.sum() == 499500
assert 'JE_ARROW_MALLOC_CONF' not in os.environ
assert threading.active_count() == 1
assert (numpy.ones((300, 300)) @ numpy.ones((300, 300)))[0, 0] == 300
";

/// Returns the draws that a worker printed, by source.
fn lines(outcome: &sandfork::Outcome) -> Vec<(String, String)> {
    fine(outcome);
    lines_of(&outcome.stdout())
}

fn lines_of(stdout: &str) -> Vec<(String, String)> {
    let pairs = stdout.lines().map(|line| {
        let (source, draw) = line.split_once('\t').unwrap_or_else(|| panic!("{stdout}"));
        (source.to_owned(), draw.to_owned())
    });
    pairs.collect()
}
