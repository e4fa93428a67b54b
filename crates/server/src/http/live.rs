//! Output of what runs, sent as it comes, and its result after it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;
use tokio_stream::Stream;

use super::Held;
use crate::failure::Failure;

/// Items that wait for the client. A guest that writes faster than its client reads has to wait.
const WAITING: usize = 64;

/// How long a run waits for its client in all. Others wait for its turn meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a run puts its output.
#[derive(Debug)]
pub struct LiveSender<T> {
    sender: Sender<T>,
    patience: Duration,
    is_too_slow: Arc<AtomicBool>,
}

impl<T> LiveSender<T> {
    /// Sends an item. Waits while the client takes none, and sends nothing more once that took too long in all. A client
    /// that has gone is noticed by its connection, which stops what runs.
    pub fn send(&mut self, item: T) {
        if self.is_too_slow.load(Ordering::Relaxed) {
            return;
        }
        let Err(TrySendError::Full(item)) = self.sender.try_send(item) else {
            return;
        };
        let begun = Instant::now();
        let sent = timeout(self.patience, self.sender.send(item));
        if Handle::current().block_on(sent).is_err() {
            self.is_too_slow.store(true, Ordering::Relaxed);
        }
        self.patience = self.patience.saturating_sub(begun.elapsed());
    }
}

/// What a run sends, and its result at the end. Dropping it stops the run.
pub struct Live<T> {
    first: Option<T>,
    receiver: Receiver<T>,
    running: Option<Running<T>>,
    /// Comes when all output has.
    last: Option<T>,
    fail: fn(&Failure) -> T,
    is_too_slow: Arc<AtomicBool>,
    /// The memory of the request, and then that of the result.
    held: Held,
}

type Running<T> = Pin<Box<dyn Future<Output = Result<(T, Held), Failure>> + Send>>;

impl<T> Live<T> {
    /// Waits for the first item of what `begin` begins, whose result comes with its memory. A failure after that is the last item.
    ///
    /// # Errors
    /// If it fails before any output.
    pub async fn begin<F>(
        held: Held,
        fail: fn(&Failure) -> T,
        begin: impl FnOnce(LiveSender<T>) -> F,
    ) -> Result<Self, Failure>
    where
        F: Future<Output = Result<(T, Held), Failure>> + Send + 'static,
    {
        let (sender, receiver) = channel(WAITING);
        let is_too_slow = Arc::new(AtomicBool::new(false));
        let mut running: Running<T> = Box::pin(begin(LiveSender {
            sender,
            patience: PATIENCE,
            is_too_slow: Arc::clone(&is_too_slow),
        }));
        let mut live = Self {
            first: None,
            receiver,
            running: None,
            last: None,
            fail,
            is_too_slow,
            held,
        };
        tokio::select! {
            Some(first) = live.receiver.recv() => {
                live.first = Some(first);
                live.running = Some(running);
            }
            result = &mut running => {
                let (last, held) = result?;
                (live.last, live.held) = (Some(last), held);
            }
        }
        Ok(live)
    }

    fn end(&mut self, result: Result<(T, Held), Failure>) {
        self.last = Some(match result {
            // Some of its output is missing.
            Ok(_) if self.is_too_slow.load(Ordering::Relaxed) => (self.fail)(&Failure::TooSlow),
            Ok((last, held)) => {
                self.held = held;
                last
            }
            Err(failure) => (self.fail)(&failure),
        });
    }
}

impl<T: Unpin> Stream for Live<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        if let Some(running) = &mut self.running
            && let Poll::Ready(result) = running.as_mut().poll(context)
        {
            self.running = None;
            self.end(result);
        }
        match ready!(self.receiver.poll_recv(context)) {
            Some(output) => Poll::Ready(Some(output)),
            // All output has come, and the result is still on its way.
            None if self.running.is_some() => Poll::Pending,
            None => Poll::Ready(self.last.take()),
        }
    }
}

/// Text of bytes that come in pieces: a character that two of them share comes with the second.
#[derive(Debug, Default)]
pub struct TextDecoder {
    rest: Vec<u8>,
}

impl TextDecoder {
    /// The text of one more piece. What is no UTF-8 becomes U+FFFD.
    pub fn text(&mut self, piece: &[u8]) -> String {
        self.rest.extend_from_slice(piece);
        let last = self
            .rest
            .utf8_chunks()
            .last()
            .map_or(&[][..], |chunk| chunk.invalid());
        let is_begun = std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
        let begun = if is_begun { last.len() } else { 0 };
        let rest = self.rest.split_off(self.rest.len() - begun);
        let whole = std::mem::replace(&mut self.rest, rest);
        String::from_utf8_lossy(&whole).into_owned()
    }

    /// The text of a character that has begun and does not end.
    pub fn end(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_that_takes_nothing_is_waited_for_no_longer() {
        let (sender, mut receiver) = channel(1);
        let mut sender = LiveSender {
            sender,
            patience: Duration::from_millis(10),
            is_too_slow: Arc::default(),
        };
        let is_too_slow = Arc::clone(&sender.is_too_slow);
        let send = move || (0..100).for_each(|number| sender.send(number));
        tokio::task::spawn_blocking(send).await.expect("it sends");
        assert!(is_too_slow.load(Ordering::Relaxed));
        assert_eq!(receiver.recv().await, Some(0));
        assert_eq!(receiver.recv().await, None);
    }

    #[test]
    fn a_character_in_two_pieces_is_one() {
        let mut decoder = TextDecoder::default();
        let pieces = "a\u{20ac}b".as_bytes().chunks(1);
        let text: String = pieces.map(|piece| decoder.text(piece)).collect();
        assert_eq!(text, "a\u{20ac}b");
        assert_eq!(decoder.text(b"\xffa\xe2\x82"), "\u{fffd}a");
        assert_eq!(decoder.text(b"a\xf0"), "\u{fffd}a");
        assert_eq!(
            (decoder.end(), decoder.end()),
            ("\u{fffd}".to_owned(), String::new())
        );
    }
}
