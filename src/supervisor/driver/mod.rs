//! Serves many workers and callers on few threads.
//!
//! What attends to a worker is a future that waits for descriptors ([`Waits`]), for a time, and for work that
//! may block ([`offload()`]). There are two ways to poll it:
//!
//! - [`block_on`] completes it on the calling thread: each wait is one poll(2), and work that may block is
//!   done on the spot. This is how a run is served, by the thread that asked for it.
//! - [`spawn`] makes it a task of a *driver*: a thread that owns many tasks and waits for all of them in
//!   epoll(7). A task stays with its driver. There is one driver for each few processors while there is a
//!   task, and none without.
//!
//! A task has its turn when something that it waits for has happened. Tasks that can go on have one turn
//! each before any has another. So a turn must do a bounded amount of work, and whatever the other side of a
//! descriptor can make larger, or wait, is bounded or offloaded.

mod offload;
mod reactor;
mod tasks;
mod threads;
mod wait;

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub use self::offload::{offload, offload_long};
pub use self::threads::{Spawned, spawn};
pub use self::wait::{Waits, is_readable, wait};

use self::reactor::Reactor;

thread_local! {
    /// What the futures that this thread polls wait with. `None` where each wait blocks the thread.
    static REACTOR: RefCell<Option<Rc<Reactor>>> = const { RefCell::new(None) };
}

fn reactor() -> Option<Rc<Reactor>> {
    REACTOR.with_borrow(Option::clone)
}

/// Sets the reactor of this thread, until the value is dropped.
struct Entered(Option<Rc<Reactor>>);

fn enter(reactor: Option<Rc<Reactor>>) -> Entered {
    Entered(REACTOR.replace(reactor))
}

impl Drop for Entered {
    fn drop(&mut self) {
        REACTOR.set(self.0.take());
    }
}

/// Completes a future on this thread, which it blocks meanwhile, even if the thread is a driver.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let _entered = enter(None);
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}

/// Drops a value where that may block. The drop of a sandbox, for example, waits for its processes.
pub async fn discard<T: Send + 'static>(value: T) {
    offload(move || drop(value)).await;
}

/// Drops a reference to a shared value, and if it is the last one, the value as [`discard`] does.
pub async fn discard_shared<T: Send + Sync + 'static>(value: Arc<T>) {
    if let Some(last) = Arc::into_inner(value) {
        discard(last).await;
    }
}

#[cfg(test)]
mod tests;
