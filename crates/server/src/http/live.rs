//! Streams the output of a run as it arrives, followed by the result.

use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use sandfork::OutputSink;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};
use tokio_stream::Stream;

use super::Held;
use crate::failure::Failure;
use crate::locked;

/// The capacity of the queue of items. A guest that writes faster than its client reads is blocked.
const QUEUE_LENGTH: usize = 64;

/// The retry interval while there is no memory for an item.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// An item and its size in bytes.
pub type SizedItem<T> = (T, u64);

/// The size of the queued items, and the memory reserved for them.
#[derive(Debug)]
struct Queued {
    bytes: u64,
    /// The reservation, which grows to the largest size that was ever queued.
    held: Held,
}

impl Queued {
    /// Accounts for an item. Returns `false` if there is no memory for it.
    fn add(&mut self, bytes: u64) -> bool {
        let has_memory = self.held.grow(self.bytes + bytes).is_ok();
        if has_memory {
            self.bytes += bytes;
        }
        has_memory
    }
}

/// The producer side of a stream.
#[derive(Debug)]
pub struct LiveSender<T> {
    sender: Sender<SizedItem<T>>,
    waiting: Arc<Mutex<Queued>>,
    timeout_left: Duration,
    is_too_slow: Arc<AtomicBool>,
}

impl<T> LiveSender<T> {
    /// Sends an item. Blocks while the queue is full or memory is missing. Once the total wait exceeds the timeout,
    /// this and all later items are discarded. A disconnected client is noticed by its connection, which cancels the
    /// run.
    pub fn send(&mut self, (item, bytes): SizedItem<T>) {
        if self.is_too_slow.load(Ordering::Relaxed) {
            return;
        }
        let mut sent = pin!(async {
            while !locked(&self.waiting).add(bytes) {
                sleep(RETRY_INTERVAL).await;
            }
            _ = self.sender.send((item, bytes)).await;
        });
        if sent.as_mut().now_or_never().is_some() {
            return;
        }
        let begun = Instant::now();
        let sent = timeout(self.timeout_left, sent);
        if Handle::current().block_on(sent).is_err() {
            self.is_too_slow.store(true, Ordering::Relaxed);
        }
        self.timeout_left = self.timeout_left.saturating_sub(begun.elapsed());
    }
}

/// The output of a run as a stream, followed by its result. Dropping it cancels the run.
pub struct Live<T> {
    first: Option<SizedItem<T>>,
    receiver: Receiver<SizedItem<T>>,
    waiting: Arc<Mutex<Queued>>,
    /// The size of the item that the client received last.
    last_size: u64,
    running: Option<Running<T>>,
    /// The last item, sent once all output was sent.
    last: Option<T>,
    fail: fn(&Failure) -> T,
    is_too_slow: Arc<AtomicBool>,
    /// The reserved memory: of the request first, then of the result.
    held: Held,
}

type Running<T> = Pin<Box<dyn Future<Output = Result<(T, Held), Failure>> + Send>>;

impl<T> Live<T> {
    /// Starts a run with `begin`, and waits for its first item. The result of the run comes with its reserved memory. A
    /// failure after the first item becomes the last item. `timeout_left` limits the total time for which the run waits
    /// for its client, because other runs wait for its turn.
    ///
    /// # Errors
    /// Returns the failure if the run fails before any output.
    pub async fn begin<F>(
        held: Held,
        timeout_left: Duration,
        fail: fn(&Failure) -> T,
        begin: impl FnOnce(LiveSender<T>) -> F,
    ) -> Result<Self, Failure>
    where
        F: Future<Output = Result<(T, Held), Failure>> + Send + 'static,
    {
        let (sender, receiver) = channel(QUEUE_LENGTH);
        let is_too_slow = Arc::new(AtomicBool::new(false));
        let waiting = Arc::new(Mutex::new(Queued {
            bytes: 0,
            held: held.budget.hold(0)?,
        }));
        let mut running: Running<T> = Box::pin(begin(LiveSender {
            sender,
            waiting: Arc::clone(&waiting),
            timeout_left,
            is_too_slow: Arc::clone(&is_too_slow),
        }));
        let mut live = Self {
            first: None,
            receiver,
            waiting,
            last_size: 0,
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

    /// Hands an item to the client. The client's request for it means that the previous item was sent.
    fn give(&mut self, (item, bytes): SizedItem<T>) -> T {
        let sent = mem::replace(&mut self.last_size, bytes);
        locked(&self.waiting).bytes -= sent;
        item
    }

    fn end(&mut self, result: Result<(T, Held), Failure>) {
        self.last = Some(match result {
            // Some output was discarded.
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
            return Poll::Ready(Some(self.give(first)));
        }
        if let Some(running) = &mut self.running
            && let Poll::Ready(result) = running.as_mut().poll(context)
        {
            self.running = None;
            self.end(result);
        }
        match ready!(self.receiver.poll_recv(context)) {
            Some(output) => Poll::Ready(Some(self.give(output))),
            // All output was sent, but the result is still pending.
            None if self.running.is_some() => Poll::Pending,
            None => Poll::Ready(self.last.take()),
        }
    }
}

/// An output sink that streams text.
#[derive(Debug)]
pub struct LiveText<T> {
    sender: LiveSender<T>,
    /// Builds an item from the name of a stream and a text.
    item: fn(&str, &str) -> SizedItem<T>,
    stdout: TextDecoder,
    stderr: TextDecoder,
}

impl<T> LiveText<T> {
    /// Creates a sink that sends the items that `item` builds from the name of a stream and a text.
    pub fn new(sender: LiveSender<T>, item: fn(&str, &str) -> SizedItem<T>) -> Self {
        Self {
            sender,
            item,
            stdout: TextDecoder::default(),
            stderr: TextDecoder::default(),
        }
    }

    fn send(&mut self, stream: &str, text: &str) {
        if !text.is_empty() {
            self.sender.send((self.item)(stream, text));
        }
    }
}

impl<T> OutputSink for LiveText<T> {
    fn stdout(&mut self, bytes: &[u8]) {
        let text = self.stdout.text(bytes);
        self.send("stdout", &text);
    }

    fn stderr(&mut self, bytes: &[u8]) {
        let text = self.stderr.text(bytes);
        self.send("stderr", &text);
    }
}

/// Flushes incomplete characters at the end of the output.
impl<T> Drop for LiveText<T> {
    fn drop(&mut self) {
        let (stdout, stderr) = (self.stdout.end(), self.stderr.end());
        self.send("stdout", &stdout);
        self.send("stderr", &stderr);
    }
}

/// Decodes UTF-8 in chunks. A character that spans two chunks is returned with the second one.
#[derive(Debug, Default)]
struct TextDecoder {
    rest: Vec<u8>,
}

impl TextDecoder {
    /// Decodes a chunk. Invalid UTF-8 becomes U+FFFD.
    fn text(&mut self, piece: &[u8]) -> String {
        self.rest.extend_from_slice(piece);
        let last = self
            .rest
            .utf8_chunks()
            .last()
            .map_or(&[][..], |chunk| chunk.invalid());
        let is_begun = std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
        let begun = if is_begun { last.len() } else { 0 };
        let rest = self.rest.split_off(self.rest.len() - begun);
        let whole = mem::replace(&mut self.rest, rest);
        String::from_utf8_lossy(&whole).into_owned()
    }

    /// Flushes an incomplete character.
    fn end(&mut self) -> String {
        String::from_utf8_lossy(&mem::take(&mut self.rest)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::spawn_blocking;
    use tokio_stream::StreamExt;

    use super::*;
    use crate::http::Budget;

    fn sender<T>(capacity: usize) -> (LiveSender<T>, Receiver<SizedItem<T>>) {
        let (sender, receiver) = channel(capacity);
        let held = Budget::new(0).hold(0).expect("an empty reservation");
        let sender = LiveSender {
            sender,
            waiting: Arc::new(Mutex::new(Queued { bytes: 0, held })),
            timeout_left: Duration::from_millis(10),
            is_too_slow: Arc::default(),
        };
        (sender, receiver)
    }

    #[test]
    fn incomplete_character_is_flushed_at_the_end() {
        let (sender, mut receiver) = sender(8);
        let mut text = LiveText::new(sender, |stream, text| (format!("{stream} {text}"), 0));
        text.stdout(b"a\xe2\x82");
        text.stderr(b"\xe2");
        text.stderr(b"\x82\xacb");
        drop(text);
        let items = std::iter::from_fn(|| receiver.blocking_recv());
        let items: Vec<String> = items.map(|(item, _)| item).collect();
        assert_eq!(items, ["stdout a", "stderr \u{20ac}b", "stdout \u{fffd}"]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unresponsive_client_stops_blocking_the_run() {
        let (mut sender, mut receiver) = sender(1);
        let is_too_slow = Arc::clone(&sender.is_too_slow);
        let send = move || (0..100).for_each(|number| sender.send((number, 0)));
        spawn_blocking(send).await.expect("the peer sends");
        assert!(is_too_slow.load(Ordering::Relaxed));
        assert_eq!(receiver.recv().await, Some((0, 0)));
        assert_eq!(receiver.recv().await, None);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn memory_of_queued_items_is_reserved() {
        const KIB: u64 = 1 << 10;
        let budget = Budget::new(1000 * KIB);
        let nothing = || budget.hold(0).expect("an empty reservation");
        let result = nothing();
        let begin = |mut sender: LiveSender<u64>| async move {
            let send = move || (0..8).for_each(|number| sender.send((number, 300 * KIB)));
            spawn_blocking(send).await.expect("the peer sends");
            Ok((8, result))
        };
        let live = Live::begin(nothing(), Duration::from_secs(60), |_| 9, begin).await;
        let live = live.expect("it begins");
        // Three items fit into the memory.
        let is_full = async {
            while budget.hold(200 * KIB).is_ok() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(60), is_full)
            .await
            .expect("memory is held");
        assert!(budget.hold(90 * KIB).is_ok());
        let items: Vec<u64> = live.collect().await;
        assert_eq!(items, (0..=8).collect::<Vec<_>>());
        assert!(budget.hold(1000 * KIB).is_ok());
    }

    #[test]
    fn character_split_across_chunks_is_decoded() {
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
