#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::panic::catch_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use super::*;

fn jobs(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

/// Counts the threads between `enter` and `leave`, and their maximum.
#[derive(Default)]
struct Gauge {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

#[test]
fn every_item_has_one_result() {
    for (order, number) in [
        (Order::AsFinished, 1),
        (Order::AsFinished, 7),
        (Order::AsGiven, 7),
    ] {
        let results = work(0..5000_u32, jobs(number), order, |item, _| item * 2).unwrap();
        let found: Vec<u32> = results.collect();
        assert_eq!(found.len(), 5000);
        let all: HashSet<u32> = found.iter().copied().collect();
        assert_eq!(all, (0..5000).map(|item| item * 2).collect());
        if order == Order::AsGiven {
            assert!(found.is_sorted());
        }
    }
}

#[test]
fn empty_input_yields_no_results() {
    let mut results = work(
        std::iter::empty::<()>(),
        jobs(3),
        Order::AsGiven,
        |(), _| (),
    )
    .unwrap();
    assert_eq!(results.next(), None);
    assert_eq!(results.next(), None);
}

#[test]
fn jobs_bound_the_concurrency() {
    let gauge = Arc::new(Gauge::default());
    let (inner, barrier) = (Arc::clone(&gauge), Arc::new(Barrier::new(4)));
    // The barrier needs four threads: fewer would block on the first items forever.
    let results = work(0..400, jobs(4), Order::AsFinished, move |_, _| {
        inner.enter();
        barrier.wait();
        inner.leave();
    });
    assert_eq!(results.unwrap().count(), 400);
    assert!(gauge.most() <= 4, "{}", gauge.most());
}

/// Waits until a count reaches `expected`, and returns the count a moment later.
fn settled(count: impl Fn() -> usize, expected: usize) -> usize {
    let until = Instant::now() + Duration::from_secs(60);
    while count() < expected && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(50));
    count()
}

#[test]
fn idle_consumer_bounds_the_read_ahead() {
    for order in [Order::AsFinished, Order::AsGiven] {
        let read = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&read);
        let items = std::iter::repeat_with(move || counted.fetch_add(1, Ordering::SeqCst));
        let mut results = work(items, jobs(3), order, |item, _| item).unwrap();
        let count = || read.load(Ordering::SeqCst);
        let most = 3 * WINDOW;
        assert_eq!(settled(count, most), most);
        for _ in 0..100 {
            results.next();
        }
        assert_eq!(settled(count, most + 100), most + 100);
    }
}

#[test]
fn slow_item_holds_up_a_bounded_number_of_others() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let finished = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&finished);
    let mut results = work(0..1000, jobs(2), Order::AsGiven, move |item, _| {
        if item == 0 {
            _ = held.lock().unwrap().recv();
        }
        counted.fetch_add(1, Ordering::SeqCst);
        item
    })
    .unwrap();
    // Declared after `results`, so dropped before it: a failed assertion must not hang.
    let release = release;
    let most = 2 * WINDOW - 1;
    assert_eq!(settled(|| finished.load(Ordering::SeqCst), most), most);
    release.send(()).unwrap();
    assert!((0..1000).eq(results.by_ref()));
}

#[test]
fn results_arrive_while_the_input_blocks() {
    let (give, items) = mpsc::channel();
    let mut results = work(items.into_iter(), jobs(2), Order::AsFinished, |item, _| {
        item
    })
    .unwrap();
    for item in 0..10 {
        give.send(item).unwrap();
        assert_eq!(results.next(), Some(item));
    }
    drop(give);
    assert_eq!(results.next(), None);
}

#[test]
fn stop_ends_the_results_while_the_input_blocks() {
    let (give, items) = mpsc::channel();
    let mut results = work(items.into_iter(), jobs(2), Order::AsGiven, |item, _| item).unwrap();
    give.send(1).unwrap();
    assert_eq!(results.next(), Some(1));
    results.stopper().stop();
    assert_eq!(results.next(), None);
    drop(results);
    drop(give);
}

#[test]
fn items_started_before_a_stop_are_finished() {
    let (begun_sender, begun) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let (begun_sender, held) = (Mutex::new(begun_sender), Mutex::new(held));
    let mut results = work(0..100, jobs(2), Order::AsGiven, move |item, _| {
        begun_sender.lock().unwrap().send(item).unwrap();
        _ = held.lock().unwrap().recv();
        item
    })
    .unwrap();
    let mut both = [begun.recv().unwrap(), begun.recv().unwrap()];
    both.sort_unstable();
    assert_eq!(both, [0, 1]);
    results.stopper().stop();
    drop(release);
    assert_eq!(results.by_ref().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn pause_ends_on_timeout_or_stop() {
    let short = Duration::from_millis(1);
    let mut results = work(0..1, jobs(1), Order::AsGiven, move |_, stopping| {
        stopping.pause(short)
    })
    .unwrap();
    assert_eq!(results.next(), Some(Paused::Elapsed));
    let (begun_sender, begun) = mpsc::channel();
    let begun_sender = Mutex::new(begun_sender);
    let mut results = work(0..1, jobs(1), Order::AsGiven, move |_, stopping| {
        begun_sender.lock().unwrap().send(()).unwrap();
        stopping.pause(Duration::from_secs(600))
    })
    .unwrap();
    begun.recv().unwrap();
    let stopped_at = Instant::now();
    results.stopper().stop();
    assert_eq!(results.next(), Some(Paused::Stopped));
    assert!(stopped_at.elapsed() < Duration::from_secs(60));
}

#[test]
fn dropped_results_end_the_workers() {
    let gauge = Arc::new(Gauge::default());
    let inner = Arc::clone(&gauge);
    let mut results = work(0.., jobs(3), Order::AsFinished, move |_: u32, stopping| {
        inner.enter();
        stopping.pause(Duration::from_millis(5));
        inner.leave();
    })
    .unwrap();
    results.next();
    drop(results);
    assert_eq!(gauge.now.load(Ordering::SeqCst), 0);
}

#[test]
fn panic_reaches_the_consumer() {
    let items = work(0..3, jobs(1), Order::AsGiven, |item, _| {
        assert!(item != 1, "item one");
        item
    });
    let mut results = items.unwrap();
    assert_eq!(results.next(), Some(0));
    let panic = catch_unwind(AssertUnwindSafe(|| results.next())).unwrap_err();
    assert!(
        panic
            .downcast_ref::<&str>()
            .is_some_and(|message| message.contains("item one"))
    );
    assert_eq!(results.next(), Some(2));
    assert_eq!(results.next(), None);

    let items = (0..3).map(|item| if item == 2 { panic!("the input") } else { item });
    let mut results = work(items, jobs(2), Order::AsGiven, |item, _| item).unwrap();
    assert_eq!([results.next(), results.next()], [Some(0), Some(1)]);
    catch_unwind(AssertUnwindSafe(|| results.next())).unwrap_err();
    assert_eq!(results.next(), None);
}
