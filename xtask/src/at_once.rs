//! Runs two jobs at a time, for jobs that spend half of their time waiting.

use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Result, anyhow};

/// Calls `act` with each item, two at a time. The results have the order of the items.
pub fn two_at_a_time<T: Send, R: Send>(
    items: impl IntoIterator<Item = T, IntoIter: Send>,
    act: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let items = Mutex::new(items.into_iter().enumerate());
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let some = || -> Result<Vec<(usize, R)>> {
        let mut done = Vec::new();
        while let Some((place, item)) = next() {
            done.push((place, act(item)?));
        }
        Ok(done)
    };
    let mut done = thread::scope(|scope| {
        let other = scope.spawn(some);
        let mut done = some()?;
        done.extend(other.join().map_err(|_| anyhow!("a thread panicked"))??);
        anyhow::Ok(done)
    })?;
    done.sort_by_key(|(place, _)| *place);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_order_of_the_items() {
        let doubled = two_at_a_time(0..9, |item| Ok(2 * item)).expect("all succeed");
        assert_eq!(doubled, [0, 2, 4, 6, 8, 10, 12, 14, 16]);
        let failed = two_at_a_time(0..9, |item| Err::<(), _>(anyhow!("{item}")));
        assert!(failed.is_err());
    }
}
