//! Work that may block, such as making a zygote or removing a tree of files, is done by other threads than
//! the drivers'.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use super::reactor;

/// The most threads. Each task has at most one piece of such work at a time.
const MOST: usize = 32;

/// How long a thread waits for more work before it ends.
const IDLE: Duration = Duration::from_millis(500);

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Offloaded {
    work: VecDeque<Work>,
    idle: usize,
    threads: usize,
}

static OFFLOADED: Mutex<Offloaded> = Mutex::new(Offloaded {
    work: VecDeque::new(),
    idle: 0,
    threads: 0,
});
static MORE: Condvar = Condvar::new();

/// Does work that may block for a moment: on another thread if this one is a driver, and otherwise here.
pub async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if reactor().is_none() {
        return work();
    }
    let (work, result) = apart(work);
    begin(work);
    result.await
}

/// Does work that may take as long as it will: on a thread of its own if this one is a driver, and otherwise
/// here.
///
/// # Errors
///
/// When the process has no thread left.
pub async fn offload_long<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    if reactor().is_none() {
        return Ok(work());
    }
    let (work, result) = apart(work);
    thread::Builder::new().name("offload".into()).spawn(work)?;
    Ok(result.await)
}

/// Splits work into what does it and what waits for its result.
fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> (Work, impl Future<Output = T>) {
    let result: Arc<Mutex<Pending<T>>> = Arc::default();
    let theirs = Arc::clone(&result);
    let work = move || {
        let done = catch_unwind(AssertUnwindSafe(work));
        let waker = {
            let mut pending = lock(&theirs);
            pending.done = Some(done);
            pending.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    };
    let done = poll_fn(move |context| {
        let mut pending = lock(&result);
        if let Some(done) = pending.done.take() {
            return Poll::Ready(done);
        }
        pending.waker = Some(context.waker().clone());
        Poll::Pending
    });
    let done = async move { done.await.unwrap_or_else(|panic| resume_unwind(panic)) };
    (Box::new(work), done)
}

struct Pending<T> {
    done: Option<thread::Result<T>>,
    waker: Option<Waker>,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self {
            done: None,
            waker: None,
        }
    }
}

fn begin(work: Work) {
    let mut offloaded = lock(&OFFLOADED);
    offloaded.work.push_back(work);
    if offloaded.idle >= offloaded.work.len() {
        MORE.notify_one();
        return;
    }
    if offloaded.threads == MOST {
        return;
    }
    let builder = thread::Builder::new().name("offload".into());
    match builder.spawn(serve) {
        Ok(_) => offloaded.threads += 1,
        Err(_) if offloaded.threads > 0 => {}
        // The host has no thread to spare: the driver waits for the work.
        Err(_) => {
            let work = offloaded.work.pop_back();
            drop(offloaded);
            if let Some(work) = work {
                work();
            }
        }
    }
}

fn serve() {
    let mut offloaded = lock(&OFFLOADED);
    loop {
        if let Some(work) = offloaded.work.pop_front() {
            drop(offloaded);
            work();
            offloaded = lock(&OFFLOADED);
            continue;
        }
        offloaded.idle += 1;
        let (woken, waited) = MORE
            .wait_timeout_while(offloaded, IDLE, |offloaded| offloaded.work.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        offloaded = woken;
        offloaded.idle -= 1;
        if waited.timed_out() && offloaded.work.is_empty() {
            offloaded.threads -= 1;
            return;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
