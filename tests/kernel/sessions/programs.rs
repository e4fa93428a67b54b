//! Tests of programs that a caller runs in a session, beside its cells.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use sandfork::session::{
    Process, ProcessEvent, Program, ProgramEnd, ProgramReport, Programs, Session, SessionState,
};
use sandfork::{ErrorKind, Status};

use super::snapshots::{copy, fork};
use super::{assert_ended, open, run, session, value};
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, needing, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    let mut tests = tests![
        programs_run_between_cells_and_during_one,
        a_program_has_input_and_output_and_a_directory,
        program_is_confined_like_a_cells_child,
        failed_start_names_the_program,
        programs_are_limited_and_end_with_their_session,
        programs_are_invisible_to_wait_calls,
        killed_starter_is_replaced,
        forged_messages_affect_only_their_session,
        unread_links_block_nothing,
        process_limit_is_reported_at_once,
        blocked_signals_delay_a_start_until_its_timeout,
    ];
    let terminal = tests![program_has_its_own_terminal];
    tests.extend(terminal);
    let snapshots = tests![session_is_copied_after_its_programs_end];
    tests.extend(needing(Need::Snapshots, snapshots));
    tests
}

#[track_caller]
fn start(programs: &Programs, program: Program) -> Process {
    let started = programs.start(program);
    started.unwrap_or_else(|error| panic!("no program: {error}"))
}

/// Runs a shell line that must succeed and returns its stdout.
#[track_caller]
fn line(programs: &Programs, line: &str) -> String {
    let report = start(programs, Program::shell(line)).wait();
    assert_eq!(report.end, ProgramEnd::Exited(0), "{report:?}");
    String::from_utf8(report.stdout).expect("text")
}

/// Waits until a program has printed `expected`.
#[track_caller]
fn await_output(process: &Process, expected: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    let mut printed = String::new();
    while !printed.contains(expected) {
        match process.next_event(Some(until)) {
            Some(ProcessEvent::Stdout(bytes) | ProcessEvent::Stderr(bytes)) => {
                printed.push_str(&String::from_utf8_lossy(&bytes));
            }
            other => panic!("{other:?} instead of {expected:?} after {printed:?}"),
        }
    }
}

/// Types a line repeatedly until a shell has printed `expected`: a shell that handles a signal drops its input.
#[track_caller]
fn type_until(process: &Process, line: &[u8], expected: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    let mut printed = String::new();
    while !printed.contains(expected) {
        assert!(Instant::now() < end, "no {expected:?} in {printed:?}");
        process
            .write_stdin(line)
            .expect("the program reads its stdin");
        let until = Instant::now() + Duration::from_millis(200);
        while let Some(event) = process.next_event(Some(until)) {
            match event {
                ProcessEvent::Stdout(bytes) | ProcessEvent::Stderr(bytes) => {
                    printed.push_str(&String::from_utf8_lossy(&bytes));
                }
                other @ ProcessEvent::Ended(_) => {
                    panic!("{other:?} instead of {expected:?} after {printed:?}")
                }
            }
        }
    }
}

fn ended(process: &Process) -> ProgramEnd {
    let ProgramReport { end, .. } = process.wait();
    end
}

fn programs_run_between_cells_and_during_one(world: &World) {
    let mut session = open(world, standard());
    let programs = session.programs();
    run(&mut session, "open('made', 'w').write('by a cell')");
    assert_eq!(line(&programs, "cat made; pwd"), "by a cell/work\n");
    let beside = programs.clone();
    // The cell waits for a file that only a program makes, whichever of the two starts first.
    let helper = thread::spawn(move || line(&beside, "echo by a program > answer; echo done"));
    let cell = "import os, time\nwhile not os.path.exists('answer') or not open('answer').read():\n    \
                time.sleep(0.001)\nopen('answer').read()";
    assert_eq!(value(&mut session, cell), "'by a program\\n'");
    assert_eq!(helper.join().expect("the thread does not panic"), "done\n");
    // The first program of a session may start while a cell runs.
    let mut other = open(world, standard());
    let beside = other.programs();
    let helper = thread::spawn(move || line(&beside, "touch answer"));
    let cell = "import os\nwhile not os.path.exists('answer'): pass";
    run(&mut other, cell);
    helper.join().expect("the thread does not panic");
}

fn a_program_has_input_and_output_and_a_directory(world: &World) {
    let mut session = open(world, standard());
    let programs = session.programs();
    run(&mut session, "import os\nos.mkdir('below')");
    let wanted = Program::shell("cat /dev/stdin; echo $WORD > /dev/stderr; pwd; exit 3");
    let process = start(&programs, wanted.cwd("below").env("WORD", "a=b").stdin());
    assert_eq!(
        programs.connect(process.pid()).map(|it| it.pid()),
        Some(process.pid())
    );
    // More than a pipe holds: the writer waits for the reader.
    let writer = process.clone();
    let input = vec![b'x'; 300_000];
    let expected = [input.as_slice(), b"/work/below\n"].concat();
    let feeding = thread::spawn(move || {
        writer
            .write_stdin(&input)
            .expect("the program reads its stdin");
        writer.close_stdin();
    });
    let report = process.wait();
    feeding.join().expect("the thread does not panic");
    assert_eq!(report.end, ProgramEnd::Exited(3));
    assert!(report.stdout == expected, "{} bytes", report.stdout.len());
    assert_eq!(report.stderr, b"a=b\n");
    assert!(programs.running().is_empty());
    let closed = process
        .write_stdin(b"more")
        .expect_err("the session has ended");
    assert_eq!(closed.kind(), ErrorKind::Request);
    let process = start(&programs, Program::new(["sleep", "600"]));
    process.kill(libc::SIGTERM).expect("a signal");
    assert_eq!(ended(&process), ProgramEnd::Signal(libc::SIGTERM));
}

/// Prints the restrictions of a process as the kernel reports them, and the results of acts that the layers refuse.
const WALLS: &str = "grep -E '^(Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups|Umask|SigBlk|SigIgn)' /proc/self/status; \
     for name in user pid mnt net ipc uts cgroup; do readlink /proc/self/ns/$name; done; \
     cat /proc/self/cgroup /proc/self/limits; ls /proc/self/fd; \
     cat /proc/1/environ; cat /etc/shadow; echo x > /usr/x; mkdir /x; \
     unshare -U true; mount -t tmpfs none /tmp; cp /bin/true /work/own; /work/own; \
     ls /proc | grep -c '^[0-9]' > /dev/null; ls /sys; ulimit -n";

fn program_is_confined_like_a_cells_child(world: &World) {
    let mut session = open(world, standard());
    // glibc's posix_spawn(3), which `subprocess` may use since Python 3.13, leaves glibc's internal signals ignored.
    let as_cell = format!(
        "import subprocess; subprocess._USE_POSIX_SPAWN = False\nran = subprocess.run(['/bin/sh', '-c', {WALLS:?}], text=True, \
         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)\nprint(ran.stdout, end='')"
    );
    let expected = run(&mut session, as_cell).outcome().stdout().into_owned();
    assert!(expected.contains("Seccomp:\t2"), "{expected}");
    let program = Program::shell(format!("rm -f /work/own; exec 2>&1; {WALLS}"));
    let report = start(&session.programs(), program).wait();
    let found = String::from_utf8_lossy(&report.stdout);
    assert_eq!(found, expected);
}

fn failed_start_names_the_program(world: &World) {
    let session = open(world, standard());
    let programs = session.programs();
    let refused = |programs: &Programs, program: Program| {
        let error = programs.start(program).expect_err("it is refused");
        (error.errno(), error.to_string())
    };
    let missing = refused(&programs, Program::new(["no-such-program"]));
    assert_eq!(missing.0, Some(libc::ENOENT));
    assert!(missing.1.contains("`no-such-program`"), "{}", missing.1);
    let directory = refused(&programs, Program::new(["true"]).cwd("/no/where"));
    assert_eq!(directory.0, Some(libc::ENOENT));
    for wrong in [
        Program::new([""]),
        Program::new(Vec::<String>::new()),
        Program::new(["a\0b"]),
        Program::new(["true"]).env("A=B", "c"),
        Program::new(vec!["x".repeat(1000); 200]),
    ] {
        refused(&programs, wrong);
    }
    let strict = open(world, standard().set("filesystem.system=libraries"));
    let refusal = refused(&strict.programs(), Program::new(["true"]));
    assert!(refusal.1.contains("`filesystem.system`"), "{}", refusal.1);
}

fn programs_are_limited_and_end_with_their_session(world: &World) {
    let mut session = open(world, standard());
    let programs = session.programs();
    let second = Duration::from_millis(200);
    // Its background child holds its streams, and nothing waits for that child.
    let slow = Program::shell("sleep 600 & sleep 600").timeout(second);
    assert_eq!(ended(&start(&programs, slow)), ProgramEnd::Timeout);
    let loud = start(&programs, Program::new(["yes"]).output(100_000)).wait();
    assert_eq!(loud.end, ProgramEnd::OutputLimit);
    assert_eq!(loud.stdout.len(), 100_000);
    // The program has ended before its output is read.
    let brief = start(&programs, Program::new(["printf", "abcdef"]).output(3));
    while brief.end().is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    let brief = brief.wait();
    assert_eq!(
        (brief.end, brief.stdout.as_slice()),
        (ProgramEnd::OutputLimit, b"abc".as_slice())
    );
    let sleep = || Program::new(["sleep", "600"]);
    let running: Vec<_> = (0..32).map(|_| start(&programs, sleep())).collect();
    assert_eq!(programs.running().len(), 32);
    let error = programs.start(sleep()).expect_err("it is one too many");
    assert!(error.to_string().contains("32 programs"), "{error}");
    let report = run(&mut session, "1 + 1");
    assert_ended(&report, Status::Ok, SessionState::Live);
    session.restart().expect("the session restarts");
    for process in running {
        assert!(matches!(ended(&process), ProgramEnd::Lost(_)));
    }
    assert_eq!(line(&programs, "echo again"), "again\n");
    // A cell that ends its process ends the programs, and their handles report why.
    let process = start(&programs, sleep());
    run(&mut session, "import os\nos._exit(1)");
    assert!(matches!(ended(&process), ProgramEnd::Lost(_)));
    let error = programs.start(sleep()).expect_err("the session has ended");
    assert_eq!(error.kind(), ErrorKind::SessionEnded);
}

fn programs_are_invisible_to_wait_calls(world: &World) {
    let mut session = open(world, standard());
    let programs = session.programs();
    let process = start(&programs, Program::new(["sleep", "600"]));
    let cell = "import os, subprocess\ntry:\n    os.waitpid(-1, os.WNOHANG)\nexcept ChildProcessError:\n    \
                found = 'none'\nsubprocess.run(['true']).returncode, found";
    assert_eq!(value(&mut session, cell), "(0, 'none')");
    // An interrupt affects only the cell.
    let interrupter = session.interrupter();
    let helper = thread::spawn({
        let programs = programs.clone();
        move || {
            line(&programs, "while ! test -e begun; do sleep 0.01; done");
            interrupter.interrupt();
        }
    });
    let report = run(
        &mut session,
        "import time\nopen('begun', 'w').close()\ntime.sleep(600)",
    );
    helper.join().expect("the thread does not panic");
    assert_ended(&report, Status::Interrupted, SessionState::Live);
    assert_eq!(process.end(), None);
    process.kill(libc::SIGKILL).expect("a signal");
    assert_eq!(ended(&process), ProgramEnd::Signal(libc::SIGKILL));
}

/// Kills every process of the sandbox except the guest's own and the init.
const END_OTHERS: &str = "import os, signal\nfor name in os.listdir('/proc'):\n    \
     if name.isdigit() and int(name) not in (1, os.getpid()):\n        os.kill(int(name), signal.SIGKILL)";

fn killed_starter_is_replaced(world: &World) {
    let mut session = open(world, standard());
    let programs = session.programs();
    let process = start(&programs, Program::new(["sleep", "600"]));
    run(&mut session, END_OTHERS);
    assert!(matches!(
        ended(&process),
        ProgramEnd::Lost(_) | ProgramEnd::Signal(_)
    ));
    assert_eq!(line(&programs, "echo again"), "again\n");
}

fn forged_messages_affect_only_their_session(world: &World) {
    // The guest takes over from the starter process: it receives the link and sends false messages.
    let forge = |text: &str| {
        format!(
            "import os, signal, socket, threading\n\
             signal.signal(16, lambda *_: None)\n\
             summons = next(n for n in range(1022, 3, -1) if os.path.exists(f'/proc/self/fd/{{n}}'))\n\
             summons = socket.socket(fileno=os.dup(summons))\n\
             def act():\n    \
                 _, fds, _, _ = socket.recv_fds(summons, 1, 1)\n    \
                 link = socket.socket(fileno=fds[0])\n    \
                 header = {text}\n    \
                 link.send(len(header).to_bytes(8, 'little') + header)\n    \
                 link.recv(1 << 20)\n\
             threading.Thread(target=act, daemon=True).start()"
        )
    };
    for text in [
        r#"b'{"kind":"ended","id":77,"code":0}'"#,
        r#"b'{"kind":"started","id":1,"pid":-5}'"#,
        "b'x' * 1000",
        r#"b'{"kind":"ended","id":1,"code":0}'"#,
    ] {
        let mut session = open(world, standard());
        run(&mut session, forge(text));
        let programs = session.programs();
        let error = programs.start(Program::new(["true"]));
        let error = error.expect_err("nothing was started");
        assert_eq!(error.kind(), ErrorKind::SessionEnded, "{error}");
    }
    // A forged process id has no effect: a signal is sent through the starter's link.
    let mut session = open(world, standard());
    run(
        &mut session,
        forge(r#"b'{"kind":"started","id":1,"pid":1}'"#),
    );
    let programs = session.programs();
    let process = start(&programs, Program::new(["true"]));
    process.kill(libc::SIGKILL).expect("a signal");
    drop(session);
    assert!(matches!(ended(&process), ProgramEnd::Lost(_)));
}

fn unread_links_block_nothing(world: &World) {
    let mut session = open(world, standard());
    // The guest shuts down each starter's link and leaves the message in the queue: `SO_PEEK_OFF` is 42. It polls for
    // the next one instead of blocking, because Linux 6.1 would not wake it.
    run(
        &mut session,
        "import os, signal, socket, threading, time\n\
         signal.signal(16, lambda *_: None)\n\
         summons = next(n for n in range(1022, 3, -1) if os.path.exists(f'/proc/self/fd/{n}'))\n\
         summons = socket.socket(fileno=os.dup(summons))\n\
         summons.setsockopt(socket.SOL_SOCKET, 42, 0)\n\
         def act():\n    \
             while True:\n        \
                 time.sleep(0.001)\n        \
                 how = socket.MSG_PEEK | socket.MSG_DONTWAIT\n        \
                 try: _, passed, _, _ = summons.recvmsg(1, socket.CMSG_SPACE(4), how)\n        \
                 except BlockingIOError: continue\n        \
                 for _, _, fd in passed:\n            \
                     fd = int.from_bytes(fd, 'little')\n            \
                     socket.socket(fileno=fd).shutdown(socket.SHUT_RDWR)\n\
         threading.Thread(target=act, daemon=True).start()",
    );
    let programs = session.programs();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // More than the socket's buffer holds.
        let refused = (0..2000).find(|_| {
            let error = programs.start(Program::new(["true"]));
            let error = error.expect_err("nothing starts programs");
            error.to_string().contains("could not be reached")
        });
        sender.send(refused).expect("the test waits");
    });
    let refused = receiver.recv_timeout(Duration::from_secs(600));
    let refused = refused.expect("no start waits for the guest");
    assert!(refused.is_some_and(|start| start > 0), "{refused:?}");
    assert_eq!(value(&mut session, "1"), "1");
}

fn process_limit_is_reported_at_once(world: &World) {
    let mut session = open(world, standard().set("limits.pids=8"));
    let filled = "import os, time\n\
                  children = []\n\
                  try:\n    \
                      while True:\n        \
                          child = os.fork()\n        \
                          if child == 0: time.sleep(1000)\n        \
                          children.append(child)\n\
                  except BlockingIOError: pass";
    run(&mut session, filled);
    let programs = session.programs();
    let began = Instant::now();
    // More often than the socket can buffer what the worker leaves unread.
    for _ in 0..300 {
        let refused = programs.start(Program::new(["true"]));
        let refused = refused.expect_err("there is no process for it");
        let why = "as many processes as `limits.pids` lets it have";
        assert!(refused.to_string().contains(why), "{refused}");
        assert_eq!(refused.kind(), ErrorKind::Busy);
    }
    assert!(began.elapsed() < Duration::from_secs(25));
    let ended = "for child in children: os.kill(child, 9); os.waitpid(child, 0)";
    run(&mut session, ended);
    assert_eq!(line(&programs, "echo again"), "again\n");
}

fn blocked_signals_delay_a_start_until_its_timeout(world: &World) {
    let mut session = open(world, standard().set("limits.pids=8"));
    let masked = "import signal; mask = signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))";
    run(&mut session, masked);
    let programs = session.programs();
    let began = Instant::now();
    let program = Program::new(["true"]).timeout(Duration::from_secs(1));
    let refused = programs.start(program).expect_err("no signal arrives");
    assert!(refused.to_string().contains("does not answer"), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(25));
    run(
        &mut session,
        "signal.pthread_sigmask(signal.SIG_SETMASK, mask)",
    );
    assert_eq!(line(&programs, "echo again"), "again\n");
}

fn program_has_its_own_terminal(world: &World) {
    let session = open(world, standard());
    let programs = session.programs();
    let shell = Program::new(["/bin/sh"]).env("PS1", "").terminal(30, 100);
    let process = start(&programs, shell);
    process
        .write_stdin(b"stty size; test -t 1 && echo tty-$TERM\n")
        .expect("the peer reads");
    await_output(&process, "tty-xterm-256color");
    process.resize(40, 120);
    // The new size arrives before the typed text, or a moment later.
    process
        .write_stdin(b"until stty size | grep '^40 120'; do sleep 0.01; done\n")
        .expect("the peer reads");
    await_output(&process, "40 120\r\n");
    // Ctrl-C ends the foreground job, and the shell stays. The job is not a shell, which can miss the signal while it
    // starts a program. Python handles a signal that comes just before a sleep only after the sleep.
    process
        .write_stdin(b"python3 -uc 'import time; print(\"run-%d\" % 2); [time.sleep(.1) for _ in iter(int, 1)]'\n")
        .expect("the peer reads");
    await_output(&process, "run-2");
    process
        .write_stdin(b"\x03")
        .expect("the program reads its stdin");
    type_until(&process, b"\necho back-$((1 + 1))\n", "back-2");
    process
        .write_stdin(b"exit 5\n")
        .expect("the program reads its stdin");
    assert_eq!(ended(&process), ProgramEnd::Exited(5));
    let hanging = start(
        &programs,
        Program::shell("trap '' HUP; sleep 600; sleep 600").terminal(1, 1),
    );
    hanging.kill(libc::SIGKILL).expect("a signal");
    assert_eq!(ended(&hanging), ProgramEnd::Signal(libc::SIGKILL));
}

fn session_is_copied_after_its_programs_end(world: &World) {
    let sandbox = Arc::new(world.build(standard()));
    let mut session: Session = session(&sandbox);
    let programs = session.programs();
    run(&mut session, "kept = 1");
    let process = start(&programs, Program::new(["sleep", "600"]));
    let error = session.snapshot().expect_err("a program runs");
    assert!(error.to_string().contains("`sleep`"), "{error}");
    process.kill(libc::SIGKILL).expect("a signal");
    ended(&process);
    let snapshot = copy(&mut session);
    assert_eq!(line(&programs, "echo on"), "on\n");
    let mut forked = fork(&snapshot);
    assert_eq!(value(&mut forked, "kept"), "1");
    assert_eq!(line(&forked.programs(), "echo forked"), "forked\n");
    // A fork can be copied in turn.
    let again = copy(&mut forked);
    assert_eq!(value(&mut fork(&again), "kept"), "1");
    session.rollback(&snapshot).expect("the rollback succeeds");
    assert_eq!(line(&programs, "echo back"), "back\n");
}
