//! Tests of what a request contains: files, standard input, limits.

use std::time::Duration;

use sandfork::{ErrorKind, GuestPath, LimitName, Mechanism, Request, Sandbox};
use serde_json::json;

use crate::check::{by, fine, limited, shown};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        files_belong_to_the_guest,
        files_of_one_run_are_not_in_the_next,
        files_that_do_not_fit,
        conflicting_files,
        bytes_on_stdin,
        bytes_on_stdin_that_nobody_reads,
        limits_below_the_policy,
        limits_above_the_policy
    ]
}

fn path(text: &str) -> GuestPath {
    GuestPath::of_file(text).expect("a path below the work directory")
}

#[track_caller]
fn refused(sandbox: &Sandbox, request: Request) -> String {
    let error = sandbox.run(request).expect_err("it cannot be run");
    assert_eq!(error.kind(), ErrorKind::Request, "{error}");
    error.to_string()
}

fn files_belong_to_the_guest(world: &World) {
    let code = "import os, lib.answer\n\
                assert os.stat('lib').st_uid == os.stat('data.bin').st_uid == os.getuid()\n\
                os.chmod('data.bin', 0o600)\n\
                with open('data.bin', 'ab') as file: file.write(b'!')\n\
                os.rename('lib/answer.py', 'lib/question.py')\n\
                [lib.answer.ANSWER, open('data.bin', 'rb').read().hex(), sorted(os.listdir())]\n";
    let request = Request::python(format!("{code}str(_)").replace("[lib", "_ = [lib"))
        .file(path("lib/answer.py"), "ANSWER = 42")
        .file(path("/work/data.bin"), vec![0, 255]);
    world.with_shared(standard(), |sandbox| {
        // A request may run again, with the same files.
        for _ in 0..2 {
            let outcome = run(sandbox, &request);
            fine(&outcome);
            let seen = serde_json::to_value(&outcome).expect("an outcome is JSON");
            assert_eq!(seen["value"], json!("[42, '00ff21', ['data.bin', 'lib']]"));
            assert!(
                outcome.usage().written_bytes >= Some(4096),
                "{}",
                shown(&outcome)
            );
        }
    });
}

fn files_of_one_run_are_not_in_the_next(world: &World) {
    world.with_shared(standard(), |sandbox| {
        let list = "import os\nprint(os.listdir())";
        let outcome = run(sandbox, Request::python(list).file(path("mine"), "1"));
        assert_eq!(outcome.stdout(), "['mine']\n");
        assert_eq!(run(sandbox, list).stdout(), "[]\n");
    });
}

fn files_that_do_not_fit(world: &World) {
    let small = standard()
        .set("filesystem.work_size=1MiB")
        .set("filesystem.work_inodes=20");
    let sandbox = world.build(small);
    let large = Request::python("pass").file(path("large"), vec![0; (1 << 20) + 1]);
    assert!(refused(&sandbox, large).contains("take 1052672 bytes in whole pages"));
    let many = |count: usize| {
        (0..count).fold(
            Request::python("import os\nlen(os.listdir())"),
            |request, number| request.file(path(&number.to_string()), "x"),
        )
    };
    assert!(refused(&sandbox, many(30)).contains("filesystem.work_inodes="));
    // A refused request leaves nothing behind.
    fine(&run(&sandbox, many(10)));
    let most = Request::python("pass").file(path("most"), vec![0; 1 << 20]);
    fine(&run(&sandbox, most));
    // Files that pass the check fit: the directory itself takes the twentieth inode.
    fine(&run(&sandbox, many(19)));
    assert!(refused(&sandbox, many(20)).contains("filesystem.work_inodes="));
}

fn conflicting_files(world: &World) {
    world.with_shared(standard(), |sandbox| {
        let put = |path_of_a: &str, path_of_b: &str| {
            Request::python("open('a').read()")
                .file(path(path_of_a), "1")
                .file(path(path_of_b), "2")
        };
        let twice = run(sandbox, put("a", "b/../a"));
        let seen = serde_json::to_value(&twice).expect("an outcome is JSON");
        assert_eq!(seen["value"], json!("2"), "the later of two stays");
        let beneath = refused(sandbox, put("a", "a/b"));
        assert!(
            beneath.contains("`a` is a file, and `a/b` needs a directory"),
            "{beneath}"
        );
        let above = refused(sandbox, put("a/b", "a"));
        assert_eq!(above, beneath);
    });
}

fn bytes_on_stdin(world: &World) {
    let sandbox = world.build(standard().set("stdio.stdin=pass"));
    for length in [0, 5, 100_000, 3 << 20] {
        let request = Request::python("import sys\nlen(sys.stdin.buffer.read())")
            .stdin_bytes(vec![b'x'; length]);
        for _ in 0..2 {
            let outcome = run(&sandbox, &request);
            fine(&outcome);
            let seen = serde_json::to_value(&outcome).expect("an outcome is JSON");
            assert_eq!(seen["value"], json!(length));
        }
    }
    let closed = world.build(standard());
    let refusal = refused(&closed, Request::python("pass").stdin_bytes("x"));
    assert!(refusal.contains("stdio.stdin"), "{refusal}");
}

fn bytes_on_stdin_that_nobody_reads(world: &World) {
    let sandbox = world.build(standard().set("stdio.stdin=pass"));
    let request = Request::python("pass").stdin_bytes(vec![b'x'; 1 << 20]);
    fine(&run(&sandbox, request));
}

fn limits_below_the_policy(world: &World) {
    let sandbox = world.build(standard());
    let busy = Request::python("while True: pass");
    let outcome = run(&sandbox, busy.clone().wall(Duration::from_millis(200)));
    limited(&outcome, LimitName::Wall, Mechanism::Deadline);
    let outcome = run(&sandbox, busy.cpu(Duration::from_millis(300)));
    let counted = by(&sandbox, Mechanism::Cgroup, Mechanism::Watchdog);
    limited(&outcome, LimitName::Cpu, counted);
    assert!(
        outcome.usage().cpu < Duration::from_secs(10),
        "{}",
        shown(&outcome)
    );
    let outcome = run(&sandbox, Request::python("print('x' * 5000)").output(100));
    limited(&outcome, LimitName::Output, Mechanism::Supervisor);
    assert_eq!(outcome.usage().output_bytes, 100);
    // The next run has the policy's limit again.
    fine(&run(&sandbox, "print('x' * 5000)"));
}

fn limits_above_the_policy(world: &World) {
    let sandbox = world.build(standard().set("limits.wall=2s"));
    let long = Request::python("pass").wall(Duration::from_secs(3));
    assert!(refused(&sandbox, long).contains("`limits.wall` to 3s"));
}
