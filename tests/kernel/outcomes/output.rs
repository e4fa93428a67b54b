//! Tests of the guest's output and its limit.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use sandfork::{LimitName, Mechanism, OutputSink, Request, Status};
use tempfile::TempDir;

use crate::check::{ended, fine, limited, shown};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        a_gibibyte_on_both_streams,
        exactly_as_much_as_allowed,
        output_is_streamed,
        not_utf8,
        huge_integers,
        closed_streams,
        nothing_to_read,
        streams_can_be_reopened,
    ]
}

fn a_gibibyte_on_both_streams(world: &World) {
    let code = "import os, threading\n\
                def flood(number):\n    \
                    block = bytes([64 + number]) * (1 << 16)\n    \
                    for _ in range(1 << 14): os.write(number, block)\n\
                threading.Thread(target=flood, args=(1,)).start()\n\
                flood(2)\n";
    let outcome = world.run(standard().set("limits.output=1MiB"), code);
    limited(&outcome, LimitName::Output, Mechanism::Supervisor);
    assert_eq!(outcome.exit_code(), 123);
    let (stdout, stderr) = (outcome.stdout_bytes(), outcome.stderr_bytes());
    assert_eq!(stdout.len() + stderr.len(), 1 << 20);
    assert!(stdout.iter().all(|byte| *byte == 65) && stderr.iter().all(|byte| *byte == 66));
}

// Programs open their own streams by path, such as `tee /dev/stderr`. The pipe is opened with the guest's rights.
fn streams_can_be_reopened(world: &World) {
    let code = "import sys
for name in '/dev/stdout', '/proc/self/fd/2':
    with open(name, 'w') as stream: stream.write(name)";
    let outcome = world.run(standard(), code);
    fine(&outcome);
    assert_eq!(
        (outcome.stdout(), outcome.stderr()),
        ("/dev/stdout".into(), "/proc/self/fd/2".into())
    );
}

fn exactly_as_much_as_allowed(world: &World) {
    let sandbox = world.build(standard().set("limits.output=1000B"));
    let outcome = run(&sandbox, "print('x' * 999)");
    fine(&outcome);
    assert_eq!(outcome.usage().output_bytes, 1000);
    let outcome = run(&sandbox, "print('x' * 1000)");
    limited(&outcome, LimitName::Output, Mechanism::Supervisor);
    assert_eq!(outcome.stdout(), "x".repeat(1000));
}

/// Keeps the output, and creates a file named after the number of bytes so far.
struct Kept {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    directory: TempDir,
}

impl Kept {
    fn note(&self) {
        let count = self.stdout.len() + self.stderr.len();
        std::fs::write(self.directory.path().join(count.to_string()), "")
            .expect("the file is written");
    }
}

impl OutputSink for Kept {
    fn stdout(&mut self, bytes: &[u8]) {
        self.stdout.extend_from_slice(bytes);
        self.note();
    }

    fn stderr(&mut self, bytes: &[u8]) {
        self.stderr.extend_from_slice(bytes);
        self.note();
    }
}

fn output_is_streamed(world: &World) {
    let directory = tempfile::tempdir_in("/var/tmp").expect("a temporary directory");
    let seen_by_all = Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), seen_by_all).expect("the test owns it");
    let (stdout, stderr) = (Vec::new(), Vec::new());
    let mut kept = Kept {
        stdout,
        stderr,
        directory,
    };
    let place = kept.directory.path().display();
    // The guest continues once everything that it printed has arrived.
    let code = format!(
        "import os, sys, time\n\
         for number in range(3):\n    \
             for stream, part in (sys.stdout, 2 * number + 1), (sys.stderr, 2 * number + 2):\n        \
                 print(number, file=stream)\n        \
                 while not os.path.exists(f'{place}/{{2 * part}}'): time.sleep(0.01)\n"
    );
    let sandbox = world.build(standard().set(format!("filesystem.read={place}")));
    let outcome = sandbox.run_streaming(Request::python(code), &mut kept);
    let outcome = outcome.expect("the run completes");
    fine(&outcome);
    assert_eq!(kept.stdout, outcome.stdout_bytes());
    assert_eq!(kept.stderr, outcome.stderr_bytes());
    assert_eq!(outcome.stdout(), "0\n1\n2\n");
}

fn not_utf8(world: &World) {
    let code = "import os, sys\nos.write(1, b'a\\xff\\xfeb\\n')\nprint('\\udcff')";
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, code));
    fine(&outcome);
    assert_eq!(outcome.stdout_bytes(), b"a\xff\xfeb\n\xff\n");
    assert_eq!(outcome.stdout(), "a\u{fffd}\u{fffd}b\n\u{fffd}\n");
}

fn huge_integers(world: &World) {
    world.with_shared(standard(), |sandbox| {
        for code in [
            "2 ** 63",
            "-2 ** 200",
            "10 ** 4000",
            "10 ** 20000",
            "float('nan')",
            "[2 ** 100] * 9",
        ] {
            let outcome = run(sandbox, code);
            fine(&outcome);
            assert!(outcome.value().is_some(), "{}", shown(&outcome));
        }
    });
}

fn closed_streams(world: &World) {
    world.with_shared(standard(), |sandbox| {
        let outcome = run(
            sandbox,
            "import os\nprint('before')\nos.close(1)\nos.close(2)\nos.close(0)",
        );
        fine(&outcome);
        assert_eq!(outcome.stdout(), "before\n");
        let outcome = run(sandbox, "import os\nos.close(1)\nprint('lost')");
        ended(&outcome, Status::Exception);
        assert_eq!(
            outcome.error().map(|error| error.name.as_str()),
            Some("OSError")
        );
        let outcome = run(
            sandbox,
            "import sys\nsys.stdout.close()\nsys.stderr.close()",
        );
        fine(&outcome);
    });
}

fn nothing_to_read(world: &World) {
    world.with_shared(standard(), |sandbox| {
        let outcome = run(sandbox, "import sys\nprint(repr(sys.stdin.read()))");
        fine(&outcome);
        assert_eq!(outcome.stdout(), "''\n");
        let outcome = run(sandbox, "input('name? ')");
        ended(&outcome, Status::Exception);
        assert_eq!(
            outcome.error().map(|error| error.name.as_str()),
            Some("EOFError")
        );
    });
}
