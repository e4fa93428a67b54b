//! Tests with a session in which no program can be started.

use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::*;
use crate::error::ErrorKind;
use crate::supervisor::clock;
use crate::supervisor::wait::wait_readable;

fn server(programs: &Programs) -> ProgramServer<'_> {
    let terms = Terms {
        work: "/work".to_owned(),
        files: None,
        has_programs: true,
        has_terminals: false,
    };
    ProgramServer::new(programs.queue(), terms)
}

#[test]
fn start_without_a_starter_socket_is_refused() {
    let programs = Programs::new(1000).expect("a queue is made");
    let mut server = server(&programs);
    let (answer, answers) = channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            _ = answer.send(programs.start(Program::new(["true"])).map(drop));
            drop(answer);
        });
        let started = loop {
            let soon = clock::now() + Duration::from_millis(10);
            if wait_readable(server.queue.bell(), soon).expect("the bell is there") {
                assert!(!server.on_bell(None, other_process().as_fd(), clock::now(), false));
            }
            if let Ok(started) = answers.try_recv() {
                break started;
            }
        };
        let error = started.expect_err("there is no starter");
        assert_eq!(error.kind(), ErrorKind::System, "{error}");
        assert!(
            error.to_string().contains("could not be reached"),
            "{error}"
        );
    });
    let past = clock::now();
    let rings = wait_readable(server.queue.bell(), past).expect("the bell is there");
    assert!(!rings && !server.is_busy());
}

#[test]
fn start_times_out_if_the_worker_is_never_ready() {
    let programs = Programs::new(1000).expect("a queue is made");
    let mut server = server(&programs);
    let (mut starter_socket, _theirs) = StarterSocket::new().expect("a socket is made");
    let (started, now) = thread::scope(|scope| {
        let started = scope.spawn(|| programs.start(Program::new(["true"])).map(drop));
        let soon = clock::now() + Duration::from_secs(60);
        assert_eq!(wait_readable(server.queue.bell(), soon), Ok(true));
        let now = clock::now();
        assert!(server.on_bell(
            Some(&mut starter_socket),
            other_process().as_fd(),
            now,
            false
        ));
        let until = server.next_event().expect("it waits");
        assert!(until <= now + Duration::from_secs(30));
        server.on_time(until).expect("it breaks no protocol");
        (started.join().expect("it does not panic"), until)
    });
    let error = started.expect_err("there is no starter");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.to_string().contains("does not answer"), "{error}");
    assert!(
        !server.is_busy() && server.next_event().is_none(),
        "{now:?}"
    );
}

/// Returns a descriptor to stand in for the worker's pidfd. Nothing is sent to it.
fn other_process() -> std::fs::File {
    std::fs::File::open("/dev/null").expect("it is opened")
}
