//! Connections that no tenant uses: they sent no request yet, or none with a token, or their last one was answered. When
//! there is no place for another connection, the one that has been so for longest makes room: it costs a client nothing to
//! hold many.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::locked;

/// The connections that no tenant uses.
#[derive(Debug, Default)]
pub struct Unused(Mutex<InOrder>);

#[derive(Debug, Default)]
struct InOrder {
    next: u64,
    /// What closes each, the one that waits longest first.
    waiting: BTreeMap<u64, Arc<Notify>>,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    all: Arc<Unused>,
    close: Arc<Notify>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    requests: usize,
    /// Its number while there are none.
    number: u64,
}

/// A tenant uses the connection, until this is dropped.
#[derive(Debug)]
pub struct Used(Arc<Connection>);

impl Unused {
    fn add(&self, close: &Arc<Notify>) -> u64 {
        let mut all = locked(&self.0);
        let number = all.next;
        all.next += 1;
        all.waiting.insert(number, Arc::clone(close));
        number
    }

    fn remove(&self, number: u64) {
        locked(&self.0).waiting.remove(&number);
    }

    /// One more connection.
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

    /// Closes the one that has waited longest, if one waits.
    pub fn close_longest(&self) {
        if let Some((_, close)) = locked(&self.0).waiting.pop_first() {
            close.notify_one();
        }
    }
}

impl Connection {
    /// A tenant uses it.
    pub fn used(self: &Arc<Self>) -> Used {
        let mut state = locked(&self.state);
        state.requests += 1;
        self.all.remove(state.number);
        Used(Arc::clone(self))
    }

    /// Waits until it has to make room. A request that has come since its turn keeps it open.
    pub async fn is_to_close(&self) {
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
    fn the_connection_that_waits_longest_makes_room_and_none_that_is_used() {
        let all = Arc::new(Unused::default());
        let [first, second, third] = std::array::from_fn(|_| all.connection());
        let closes = |one: &Connection| one.is_to_close().now_or_never().is_some();
        let used = first.used();
        all.close_longest();
        assert_eq!(
            [&first, &second, &third].map(|one| closes(one)),
            [false, true, false]
        );
        // It waits since now.
        drop(used);
        all.close_longest();
        assert_eq!([&first, &third].map(|one| closes(one)), [false, true]);
        let both = (first.used(), first.used());
        drop(both.0);
        all.close_longest();
        assert!(!closes(&first));
        drop(both.1);
        all.close_longest();
        assert!(closes(&first));
        drop((first, second, third));
        assert!(locked(&all.0).waiting.is_empty());
    }

    #[test]
    fn a_request_that_comes_just_after_the_turn_of_its_connection_keeps_it_open() {
        let all = Arc::new(Unused::default());
        let connection = all.connection();
        let closes = || connection.is_to_close().now_or_never().is_some();
        all.close_longest();
        let used = connection.used();
        assert!(!closes());
        drop(used);
        assert!(!closes());
        all.close_longest();
        assert!(closes());
    }
}
