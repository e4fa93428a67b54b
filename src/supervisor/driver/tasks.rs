//! The tasks of one driver, each in its turn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::enter;
use super::reactor::{Reactor, TaskNumber};
use super::threads::{Inbox, Message, New};

/// The future of a task. It never leaves its thread.
pub type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    future: TaskFuture,
    waker: Waker,
    new: New,
}

/// Wakes a task from any thread. Its number may already be another's, which has a turn more then.
struct TaskWaker {
    inbox: Arc<Inbox>,
    number: TaskNumber,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.inbox.send(Message::Wake(self.number));
    }
}

/// Serves the tasks that arrive in the reactor's inbox until none is left.
pub fn drive(reactor: Reactor) {
    // Dropped last: when the end of the last task is noted, nothing is left of the driver either.
    let mut ended = Vec::new();
    let reactor = Rc::new(reactor);
    let _entered = enter(Some(Rc::clone(&reactor)));
    let mut tasks = Tasks::default();
    loop {
        tasks.receive(&reactor);
        if tasks.live == 0 && reactor.inbox.end() {
            return;
        }
        ended.clear();
        ended.extend(reactor.turns().filter_map(|number| tasks.turn(number)));
        if tasks.live > 0
            && let Err(errno) = reactor.wait()
        {
            // The set or a descriptor of this process's own is gone, so that no task can go on.
            return reactor.inbox.fail(errno);
        }
    }
}

#[derive(Default)]
struct Tasks {
    slots: Vec<Option<Task>>,
    free: Vec<TaskNumber>,
    live: usize,
}

impl Tasks {
    fn receive(&mut self, reactor: &Rc<Reactor>) {
        for message in reactor.inbox.receive() {
            match message {
                Message::Wake(number) => reactor.wake(number),
                Message::Begin(make, new) => {
                    let number = self.free.pop().unwrap_or_else(|| {
                        self.slots.push(None);
                        self.slots.len() - 1
                    });
                    let inbox = Arc::clone(&reactor.inbox);
                    self.slots[number] = Some(Task {
                        future: make(),
                        waker: Arc::new(TaskWaker { inbox, number }).into(),
                        new,
                    });
                    self.live += 1;
                    reactor.wake(number);
                }
            }
        }
    }

    /// Gives a task its turn. Returns what notes its end if it is over.
    fn turn(&mut self, number: TaskNumber) -> Option<New> {
        let task = self.slots.get_mut(number)?.as_mut()?;
        let mut context = Context::from_waker(&task.waker);
        let future = task.future.as_mut();
        let polled = catch_unwind(AssertUnwindSafe(|| future.poll(&mut context)));
        if matches!(polled, Ok(Poll::Pending)) {
            return None;
        }
        // One that panicked has said so. The others go on.
        self.free.push(number);
        self.live -= 1;
        self.slots[number].take().map(|task| task.new)
    }
}
