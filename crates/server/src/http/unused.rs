//! Connections that no tenant uses: those that have sent no request yet or none with a valid token, and idle ones. When
//! the connection limit is reached, the connection that has been unused for longest is closed, because holding many
//! connections costs a client nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::locked;

/// The unused connections.
#[derive(Debug, Default)]
pub struct Unused(Mutex<InOrder>);

#[derive(Debug, Default)]
struct InOrder {
    next: u64,
    /// The close signals, longest unused first.
    by_age: BTreeMap<u64, Arc<Notify>>,
}

/// A connection, used or unused.
#[derive(Debug)]
pub struct Connection {
    all: Arc<Unused>,
    close: Arc<Notify>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    requests: usize,
    /// The position among the unused connections, valid while there are no requests.
    number: u64,
}

/// Marks a connection as used by a tenant, until this is dropped.
#[derive(Debug)]
pub struct Used(Arc<Connection>);

impl Unused {
    fn add(&self, close: &Arc<Notify>) -> u64 {
        let mut all = locked(&self.0);
        let number = all.next;
        all.next += 1;
        all.by_age.insert(number, Arc::clone(close));
        number
    }

    fn remove(&self, number: u64) {
        locked(&self.0).by_age.remove(&number);
    }

    /// Registers a connection, which is unused at first.
    pub fn connection(self: &Arc<Self>) -> Arc<Connection> {
        let close = Arc::default();
        let number = self.add(&close);
        Arc::new(Connection {
            all: Arc::clone(self),
            close,
            state: Mutex::new(State {
                requests: 0,
                number,
            }),
        })
    }

    /// Closes the connection that has been unused for longest, if there is one.
    pub fn close_longest_unused(&self) {
        if let Some((_, close)) = locked(&self.0).by_age.pop_first() {
            close.notify_one();
        }
    }
}

impl Connection {
    /// Marks the connection as used.
    pub fn used(self: &Arc<Self>) -> Used {
        let mut state = locked(&self.state);
        state.requests += 1;
        self.all.remove(state.number);
        Used(Arc::clone(self))
    }

    /// Waits until the connection must be closed. A request that arrived after the close signal keeps it open.
    pub async fn wait_for_close(&self) {
        loop {
            self.close.notified().await;
            if locked(&self.state).requests == 0 {
                return;
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.remove(locked(&self.state).number);
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        let Self(connection) = self;
        let mut state = locked(&connection.state);
        state.requests -= 1;
        if state.requests == 0 {
            state.number = connection.all.add(&connection.close);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn longest_unused_connection_is_closed_first() {
        let all = Arc::new(Unused::default());
        let [first, second, third] = std::array::from_fn(|_| all.connection());
        let closes = |one: &Connection| one.wait_for_close().now_or_never().is_some();
        let used = first.used();
        all.close_longest_unused();
        assert_eq!(
            [&first, &second, &third].map(|one| closes(one)),
            [false, true, false]
        );
        // From now on it counts as unused.
        drop(used);
        all.close_longest_unused();
        assert_eq!([&first, &third].map(|one| closes(one)), [false, true]);
        let both = (first.used(), first.used());
        drop(both.0);
        all.close_longest_unused();
        assert!(!closes(&first));
        drop(both.1);
        all.close_longest_unused();
        assert!(closes(&first));
        drop((first, second, third));
        assert!(locked(&all.0).by_age.is_empty());
    }

    #[test]
    fn request_after_the_close_signal_keeps_the_connection() {
        let all = Arc::new(Unused::default());
        let connection = all.connection();
        let closes = || connection.wait_for_close().now_or_never().is_some();
        all.close_longest_unused();
        let used = connection.used();
        assert!(!closes());
        drop(used);
        assert!(!closes());
        all.close_longest_unused();
        assert!(closes());
    }
}
