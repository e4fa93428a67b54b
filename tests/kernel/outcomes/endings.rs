//! Tests of runs that the guest or the caller ends.

use std::time::Duration;

use sandfork::internals::plan::SandboxPlan as _;
use sandfork::{Cancel, Layer, Level, OutputSink, Request, Status};
use serde_json::json;

use crate::check::{ended, fine, shown};
use crate::need::Need;
use crate::recipe::{standard, strict};
use crate::test::{Test, needing, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    let mut tests = tests![
        value,
        all_layers_are_verified,
        exception_shows_guest_lines_only,
        exception_with_a_cause,
        syntax_error,
        empty_script,
        sys_exit,
        sys_exit_with_a_message,
        os_exit,
        segmentation_fault,
        own_signals,
        interrupted_by_the_caller,
        prints_before_a_kill_are_kept,
        atexit_handlers_run,
        variables_are_finalized,
        child_forked_at_exit_sends_no_result,
        threads_are_waited_for,
        a_program_exits_with_its_own_code,
        a_missing_program,
    ];
    tests.extend(needing(Need::X86_64, tests![killed_by_seccomp]));
    tests
}

fn value(world: &World) {
    world.with_shared(standard(), |sandbox| {
        let outcome = run(sandbox, "print('shown')\n6 * 7");
        fine(&outcome);
        let seen = serde_json::to_value(&outcome).expect("an outcome is JSON");
        assert_eq!(
            (&seen["value"], &seen["stdout"]),
            (&json!(42), &json!("shown\n"))
        );
        assert_eq!(outcome.exit_code(), 0);
    });
}

fn all_layers_are_verified(world: &World) {
    for recipe in [standard(), strict()] {
        let sandbox = world.build(recipe);
        let outcome = run(&sandbox, "pass");
        fine(&outcome);
        let (level, layers) = if Need::Cgroup.missing_on(world).is_none() {
            (Level::Full, &Layer::ALL[..])
        } else {
            (Level::Standard, &Layer::ALL[..6])
        };
        assert_eq!(sandbox.plan().level, level);
        assert_eq!(outcome.enforced().level, level);
        assert_eq!(outcome.enforced().layers, layers);
    }
}

fn exception_shows_guest_lines_only(world: &World) {
    let code =
        "def inner():\n    raise ValueError('no ✓')\n\ndef outer():\n    inner()\n\nouter()\n";
    let request = Request::python(code).filename("snippet.py");
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, request));
    ended(&outcome, Status::Exception);
    assert_eq!(outcome.exit_code(), 1);
    let error = outcome.error().expect("the outcome has an error");
    assert_eq!(
        (error.name.as_str(), error.message.as_str()),
        ("ValueError", "no ✓")
    );
    let places: Vec<&str> = error
        .traceback
        .lines()
        .filter(|line| line.trim_start().starts_with("File "))
        .map(str::trim)
        .collect();
    let expected = [
        "File \"snippet.py\", line 7, in <module>",
        "File \"snippet.py\", line 5, in outer",
        "File \"snippet.py\", line 2, in inner",
    ];
    assert_eq!(places, expected, "{}", error.traceback);
    assert!(
        error
            .traceback
            .starts_with("Traceback (most recent call last):\n")
    );
    assert!(
        error.traceback.contains("    raise ValueError('no ✓')\n"),
        "{}",
        error.traceback
    );
    assert!(
        error.traceback.ends_with("ValueError: no ✓\n"),
        "{}",
        error.traceback
    );
}

fn exception_with_a_cause(world: &World) {
    let code = "try:\n    {}['key']\nexcept KeyError as error:\n    raise RuntimeError('outer') from error\n";
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, code));
    ended(&outcome, Status::Exception);
    let traceback = &outcome.error().expect("the outcome has an error").traceback;
    assert!(traceback.contains("KeyError: 'key'"), "{traceback}");
    assert!(
        traceback.contains("direct cause of the following exception"),
        "{traceback}"
    );
    assert!(!traceback.contains("sandfork"), "{traceback}");
}

fn syntax_error(world: &World) {
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, "x = 1\ndef f(:\n"));
    ended(&outcome, Status::Exception);
    let error = outcome.error().expect("the outcome has an error");
    assert_eq!(error.name, "SyntaxError");
    assert!(error.traceback.contains("line 2"), "{}", error.traceback);
    assert!(!error.traceback.contains("sandfork"), "{}", error.traceback);
}

fn empty_script(world: &World) {
    world.with_shared(standard(), |sandbox| {
        for code in ["", "\n", "# nothing\n"] {
            fine(&run(sandbox, code));
        }
    });
}

fn sys_exit(world: &World) {
    world.with_shared(standard(), |sandbox| {
        for (code, exit_code) in [("3", 3), ("0", 0), ("", 0), ("True", 1), ("256 + 9", 9)] {
            let outcome = run(sandbox, format!("import sys\nsys.exit({code})"));
            ended(&outcome, Status::Exit);
            assert_eq!(outcome.exit_code(), exit_code, "{}", shown(&outcome));
        }
    });
}

fn sys_exit_with_a_message(world: &World) {
    let code = "import sys\nsys.exit('told why')";
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, code));
    ended(&outcome, Status::Exit);
    assert_eq!((outcome.exit_code(), &*outcome.stderr()), (1, "told why\n"));
}

fn os_exit(world: &World) {
    let code = "import os\nprint('before')\nos._exit(7)";
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, code));
    ended(&outcome, Status::Exit);
    assert_eq!((outcome.exit_code(), &*outcome.stdout()), (7, "before\n"));
}

fn segmentation_fault(world: &World) {
    let code = "import ctypes\nctypes.string_at(0)";
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, code));
    ended(&outcome, Status::Signal);
    assert_eq!(outcome.exit_code(), 139, "{}", shown(&outcome));
}

fn own_signals(world: &World) {
    world.with_shared(standard(), |sandbox| {
        for (act, exit_code) in [
            ("os.abort()", 134),
            ("os.kill(os.getpid(), signal.SIGKILL)", 137),
            ("os.kill(os.getpid(), signal.SIGTERM)", 143),
            ("os.kill(0, signal.SIGTERM)", 143),
            ("os.kill(os.getpid(), signal.SIGXCPU)", 152),
        ] {
            let outcome = run(
                sandbox,
                format!("import os, signal\n{act}\nprint('survived')"),
            );
            ended(&outcome, Status::Signal);
            assert_eq!(outcome.exit_code(), exit_code, "{}", shown(&outcome));
        }
        let handled = "import os, signal\n\
                       signal.signal(signal.SIGTERM, lambda *_: print('handled'))\n\
                       os.kill(os.getpid(), signal.SIGTERM)\n";
        let outcome = run(sandbox, handled);
        fine(&outcome);
        assert_eq!(outcome.stdout(), "handled\n");
    });
}

// A call through the 32-bit system call table (`int 0x80`, number 20: getpid) kills the guest.
fn killed_by_seccomp(world: &World) {
    let code = "import ctypes, mmap\n\
                print('before')\n\
                code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n\
                code.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\n\
                address = ctypes.addressof(ctypes.c_char.from_buffer(code))\n\
                print('survived', ctypes.CFUNCTYPE(ctypes.c_int)(address)())\n";
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, code));
    ended(&outcome, Status::Denied);
    assert_eq!((outcome.exit_code(), &*outcome.stdout()), (159, "before\n"));
}

/// Cancels a run at its first output.
pub struct AtFirstOutput<'a>(pub &'a Cancel);

impl OutputSink for AtFirstOutput<'_> {
    fn stdout(&mut self, _: &[u8]) {
        self.0.cancel();
    }

    fn stderr(&mut self, _: &[u8]) {
        self.0.cancel();
    }
}

fn interrupted_by_the_caller(world: &World) {
    let cancel = Cancel::new().expect("a descriptor is available");
    let request = Request::python("import time\nprint('waiting')\ntime.sleep(60)").cancel(&cancel);
    let outcome = world.with_shared(standard(), |sandbox| {
        let streamed = sandbox.run_streaming(request, &mut AtFirstOutput(&cancel));
        streamed.expect("the run completes")
    });
    ended(&outcome, Status::Interrupted);
    assert_eq!(
        (outcome.exit_code(), &*outcome.stdout()),
        (130, "waiting\n")
    );
    assert!(
        outcome.usage().wall < Duration::from_secs(25),
        "{}",
        shown(&outcome)
    );
}

fn prints_before_a_kill_are_kept(world: &World) {
    let code = "import os, sys\n\
                print('one')\n\
                sys.stderr.write('two\\n')\n\
                os.system('echo three')\n\
                os.kill(os.getpid(), 9)\n";
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, code));
    ended(&outcome, Status::Signal);
    assert_eq!(
        (&*outcome.stdout(), &*outcome.stderr()),
        ("one\nthree\n", "two\n")
    );
}

fn atexit_handlers_run(world: &World) {
    world.with_shared(standard(), |sandbox| {
        let outcome = run(
            sandbox,
            "import atexit\natexit.register(print, 'bye')\nprint('hello')",
        );
        fine(&outcome);
        assert_eq!(outcome.stdout(), "hello\nbye\n");
        let outcome = run(
            sandbox,
            "import atexit\natexit.register(print, 'bye')\n1 / 0",
        );
        ended(&outcome, Status::Exception);
        assert_eq!(outcome.stdout(), "bye\n");
    });
}

fn variables_are_finalized(world: &World) {
    let class = "class D:\n    def __del__(self): print('gone', name)\nd, name = D(), 'd'\n";
    world.with_shared(standard(), |sandbox| {
        for (end, status) in [("1", Status::Ok), ("1 / 0", Status::Exception)] {
            let outcome = run(sandbox, format!("{class}{end}"));
            ended(&outcome, status);
            assert_eq!(outcome.stdout(), "gone d\n", "{end}");
        }
    });
}

fn child_forked_at_exit_sends_no_result(world: &World) {
    let forks = "import atexit, os, sys\n\
                 def fork(*_, os=os):\n\
                 \x20   if os.fork(): os.wait()\n\
                 \x20   else: os.write(1, b'child\\n')\n";
    world.with_shared(standard(), |sandbox| {
        for end in [
            "atexit.register(fork)",
            "class D: __del__ = fork\nd = D()",
            "class S: closed, flush = False, fork\nsys.stderr = S()",
        ] {
            let outcome = run(sandbox, format!("{forks}{end}\n5"));
            fine(&outcome);
            let value = outcome.value().cloned().unwrap_or_default();
            assert_eq!(value.to_string(), "5", "{end}");
            assert!(outcome.stdout().starts_with("child\n"), "{end}");
        }
    });
}

fn threads_are_waited_for(world: &World) {
    let code = "import threading, time\n\
                threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()\n\
                threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n";
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, code));
    fine(&outcome);
    assert_eq!(outcome.stdout(), "late\n");
    assert!(
        outcome.usage().wall < Duration::from_secs(25),
        "{}",
        shown(&outcome)
    );
}

fn a_program_exits_with_its_own_code(world: &World) {
    let request = Request::program(["sh", "-c", "echo said; exit 9"].map(str::to_owned).into());
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, request));
    ended(&outcome, Status::Exit);
    assert_eq!((outcome.exit_code(), &*outcome.stdout()), (9, "said\n"));
}

fn a_missing_program(world: &World) {
    let request = Request::program(vec!["no-such-program".to_owned()]);
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, request));
    ended(&outcome, Status::Exception);
    assert_eq!(outcome.exit_code(), 127);
    let error = outcome.error().expect("the outcome has an error");
    assert_eq!(
        error.message,
        "[Errno 2] No such file or directory: 'no-such-program'"
    );
}
