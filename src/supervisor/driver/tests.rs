#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::sys::eventfd::EventFd;

use super::reactor::Reactor;
use super::tasks::drive;
use super::threads::{Inbox, Make};
use super::*;
use crate::supervisor::clock;

/// Serves these tasks on this thread until all are over.
fn serve(tasks: impl IntoIterator<Item = Make>) {
    let inbox = Arc::new(Inbox::new().unwrap());
    for task in tasks {
        inbox.begin(task);
    }
    let set = Reactor::set(&inbox).unwrap();
    drive(Reactor::new(set, inbox));
}

fn task<F: Future<Output = ()> + 'static>(make: impl FnOnce() -> F + Send + 'static) -> Make {
    Box::new(move || Box::pin(make()))
}

/// Waits for one descriptor.
async fn readable(fd: impl AsFd) -> PollFlags {
    let found = wait([Some((fd.as_fd(), PollFlags::POLLIN))], None).await;
    let [found] = found.unwrap();
    found
}

/// Has one turn more.
async fn turn() {
    wait([], Some(clock::now())).await.unwrap();
}

#[test]
fn a_task_that_can_always_go_on_has_one_turn_for_each_of_another() {
    const TURNS: usize = 1000;
    let (busy, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let always_readable = Arc::new(EventFd::from_value(1).unwrap());
    let (of_busy, of_most) = (Arc::clone(&busy), Arc::clone(&most));
    serve([
        task(move || async move {
            for _ in 0..10 * TURNS {
                of_busy.fetch_add(1, Ordering::Relaxed);
                turn().await;
            }
        }),
        task(move || async move {
            for _ in 0..TURNS {
                let before = busy.load(Ordering::Relaxed);
                readable(&always_readable).await;
                let meanwhile = busy.load(Ordering::Relaxed) - before;
                most.fetch_max(meanwhile, Ordering::Relaxed);
            }
        }),
    ]);
    assert_eq!(of_most.load(Ordering::Relaxed), 1);
}

#[test]
fn a_number_is_watched_again_if_its_descriptor_was_closed_before_the_watch_ended() {
    let again = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&again);
    serve([task(move || async move {
        // Another test may take the number.
        for _ in 0..1000 {
            let mut waits = Waits::<1>::default();
            let first = EventFd::from_value(1).unwrap();
            let number = first.as_fd().as_raw_fd();
            let source = Some((first.as_fd(), PollFlags::POLLIN));
            waits.any([source], None, None).await.unwrap();
            drop(first);
            drop(waits);
            let second = EventFd::from_value(1).unwrap();
            if second.as_fd().as_raw_fd() == number {
                let source = Some((second.as_fd(), PollFlags::POLLIN));
                let soon = clock::now() + Duration::from_secs(20);
                assert_eq!(wait([source], Some(soon)).await, Ok([PollFlags::POLLIN]));
                counted.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    })]);
    assert_eq!(again.load(Ordering::Relaxed), 1);
}

#[test]
fn tasks_may_wait_for_the_same_descriptor() {
    let bell = Arc::new(EventFd::new().unwrap());
    let woken = Arc::new(AtomicUsize::new(0));
    let sleeper = |_| {
        let (bell, woken) = (Arc::clone(&bell), Arc::clone(&woken));
        task(move || async move {
            assert_eq!(readable(&bell).await, PollFlags::POLLIN);
            woken.fetch_add(1, Ordering::Relaxed);
        })
    };
    let ringing = Arc::clone(&bell);
    let ring = task(move || async move {
        turn().await;
        ringing.write(1).unwrap();
    });
    serve((0..3).map(sleeper).chain([ring]));
    assert_eq!(woken.load(Ordering::Relaxed), 3);
}

#[test]
fn a_descriptor_is_not_looked_at_while_its_task_waits_for_something_else() {
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    serve([task(move || async move {
        let bell = EventFd::from_value(1).unwrap();
        let mut waits = Waits::default();
        let ready = [Some((bell.as_fd(), PollFlags::POLLIN))];
        waits.any(ready, None, None).await.unwrap();
        let mut work = std::pin::pin!(offload(|| thread::sleep(Duration::from_millis(50))));
        std::future::poll_fn(|context| {
            counted.fetch_add(1, Ordering::Relaxed);
            work.as_mut().poll(context)
        })
        .await;
        let [found] = waits.any(ready, None, None).await.unwrap();
        assert_eq!(found, PollFlags::POLLIN);
    })]);
    // Once for the event that was reported when the task no longer waited for it.
    assert!(turns.load(Ordering::Relaxed) <= 3, "{turns:?}");
}

#[test]
fn what_comes_is_found_at_its_time() {
    let waits = async || {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let mut waits = Waits::default();
        for awake in [None, Some(Duration::from_micros(200))] {
            let now = clock::now();
            let (awake, until) = (
                awake.map(|awake| now + awake),
                now + Duration::from_millis(20),
            );
            let source = Some((reader.as_fd(), PollFlags::POLLIN));
            let waited = waits.any([None, source], awake, Some(until)).await;
            assert_eq!(waited, Ok([PollFlags::empty(); 2]));
            assert!(clock::now() >= until);
        }
        nix::unistd::write(&writer, b"x").unwrap();
        let source = Some((reader.as_fd(), PollFlags::POLLIN));
        let found = waits.any([None, source], None, None).await;
        assert_eq!(found, Ok([PollFlags::empty(), PollFlags::POLLIN]));
        drop(writer);
        // Not asked for.
        let source = Some((reader.as_fd(), PollFlags::POLLHUP));
        let found = waits.any([source, None], None, None).await;
        assert_eq!(found, Ok([PollFlags::POLLHUP, PollFlags::empty()]));
    };
    block_on(waits());
    serve([task(waits)]);
}

#[test]
fn a_file_that_cannot_be_watched_is_looked_at() {
    let looks = async || {
        // epoll(7) refuses it, as it refuses all when the user has no watch left.
        let file = tempfile::tempfile().unwrap();
        assert_eq!(readable(&file).await, PollFlags::POLLIN);
    };
    block_on(looks());
    serve([task(looks)]);
}

#[test]
fn a_task_that_panics_ends_alone() {
    let others = Arc::new(AtomicUsize::new(0));
    let goes_on = Arc::clone(&others);
    serve([
        task(async || panic!("a task of this test panics")),
        task(move || async move {
            turn().await;
            goes_on.fetch_add(1, Ordering::Relaxed);
        }),
    ]);
    assert_eq!(others.load(Ordering::Relaxed), 1);
}

#[test]
fn work_is_done_elsewhere_and_its_panic_is_the_task_s() {
    thread_local!(static HERE: Cell<bool> = const { Cell::new(false) });
    HERE.set(true);
    assert!(
        block_on(offload(|| HERE.get())),
        "no other thread is needed"
    );
    let (told, tells) = mpsc::channel();
    let also = told.clone();
    serve([task(move || async move {
        let here = [
            offload(|| HERE.get()).await,
            offload_long(|| HERE.get()).await.unwrap(),
        ];
        told.send(here.contains(&true)).unwrap();
        let panics = async || offload(|| panic!("work of this test panics")).await;
        let panics = RefCell::new(Box::pin(panics()));
        let panicked = std::future::poll_fn(|context| {
            let poll = AssertUnwindSafe(|| panics.borrow_mut().as_mut().poll(context));
            match catch_unwind(poll) {
                Ok(Poll::Ready(())) => Poll::Ready(false),
                Ok(Poll::Pending) => Poll::Pending,
                Err(_) => Poll::Ready(true),
            }
        });
        also.send(!panicked.await).unwrap();
    })]);
    assert_eq!(tells.iter().collect::<Vec<_>>(), [false, false]);
}

#[test]
fn a_driver_can_wait_itself() {
    let waited = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&waited);
    serve([task(move || async move {
        let until = clock::now() + Duration::from_millis(5);
        // As the drop of a worker does that no code has ended before.
        block_on(wait([], Some(until))).unwrap();
        assert!(clock::now() >= until);
        turn().await;
        counts.fetch_add(1, Ordering::Relaxed);
    })]);
    assert_eq!(waited.load(Ordering::Relaxed), 1);
}

#[test]
fn drivers_come_and_go_with_their_tasks() {
    let drivers = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        tasks
            .filter_map(name)
            .filter(|name| name == "driver\n")
            .count()
    };
    let bell = Arc::new(EventFd::new().unwrap());
    let sleeper = || {
        let bell = Arc::clone(&bell);
        spawn(move || async move { _ = readable(&bell).await }).unwrap()
    };
    let spawned: Vec<Spawned> = (0..100).map(|_| sleeper()).collect();
    let most = crate::host::processors().get().div_ceil(4);
    // A thread takes its name when it begins to run.
    assert!(comes(|| (1..=most).contains(&drivers())));
    assert!(spawned.iter().all(|task| !task.is_over()));
    bell.write(1).unwrap();
    spawned.into_iter().for_each(Spawned::join);
    assert!(comes(|| drivers() == 0));
}

/// Whether something becomes true before this test gives up.
fn comes(happens: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !happens() {
        if began.elapsed() > Duration::from_secs(60) {
            return false;
        }
        thread::yield_now();
    }
    true
}
