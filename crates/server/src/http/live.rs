//! Output of what runs, sent as it comes, and its result after it.

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

/// Items that wait for the client. A guest that writes faster than its client reads has to wait.
const WAITING: usize = 64;

/// How long an item for which there is no memory waits before it asks again.
const UNTIL_NEXT_TRY: Duration = Duration::from_millis(50);

/// An item, and its bytes.
pub type WithBytes<T> = (T, u64);

/// The bytes of the items that wait for the client, with their memory.
#[derive(Debug)]
struct Waiting {
    bytes: u64,
    /// As much as ever waited at once.
    held: Held,
}

impl Waiting {
    /// Adds an item, if there is memory for it.
    fn add(&mut self, bytes: u64) -> bool {
        let has_memory = self.held.grow(self.bytes + bytes).is_ok();
        if has_memory {
            self.bytes += bytes;
        }
        has_memory
    }
}

/// Where a run puts its output.
#[derive(Debug)]
pub struct LiveSender<T> {
    sender: Sender<WithBytes<T>>,
    waiting: Arc<Mutex<Waiting>>,
    patience: Duration,
    is_too_slow: Arc<AtomicBool>,
}

impl<T> LiveSender<T> {
    /// Sends an item. Waits while the client takes none or memory is missing, and sends nothing more once that took too long in all. A client
    /// that has gone is noticed by its connection, which stops what runs.
    pub fn send(&mut self, (item, bytes): WithBytes<T>) {
        if self.is_too_slow.load(Ordering::Relaxed) {
            return;
        }
        let mut sent = pin!(async {
            while !locked(&self.waiting).add(bytes) {
                sleep(UNTIL_NEXT_TRY).await;
            }
            _ = self.sender.send((item, bytes)).await;
        });
        if sent.as_mut().now_or_never().is_some() {
            return;
        }
        let begun = Instant::now();
        let sent = timeout(self.patience, sent);
        if Handle::current().block_on(sent).is_err() {
            self.is_too_slow.store(true, Ordering::Relaxed);
        }
        self.patience = self.patience.saturating_sub(begun.elapsed());
    }
}

/// What a run sends, and its result at the end. Dropping it stops the run.
pub struct Live<T> {
    first: Option<WithBytes<T>>,
    receiver: Receiver<WithBytes<T>>,
    waiting: Arc<Mutex<Waiting>>,
    /// The bytes of the item that the client was given last.
    taken: u64,
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
    /// Waits for the first item of what `begin` begins, whose result comes with its memory. A failure after that is the last
    /// item. What runs waits for its client for `patience` in all: others wait for its turn meanwhile.
    ///
    /// # Errors
    /// If it fails before any output.
    pub async fn begin<F>(
        held: Held,
        patience: Duration,
        fail: fn(&Failure) -> T,
        begin: impl FnOnce(LiveSender<T>) -> F,
    ) -> Result<Self, Failure>
    where
        F: Future<Output = Result<(T, Held), Failure>> + Send + 'static,
    {
        let (sender, receiver) = channel(WAITING);
        let is_too_slow = Arc::new(AtomicBool::new(false));
        let waiting = Arc::new(Mutex::new(Waiting {
            bytes: 0,
            held: held.budget.hold(0)?,
        }));
        let mut running: Running<T> = Box::pin(begin(LiveSender {
            sender,
            waiting: Arc::clone(&waiting),
            patience,
            is_too_slow: Arc::clone(&is_too_slow),
        }));
        let mut live = Self {
            first: None,
            receiver,
            waiting,
            taken: 0,
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

    /// Gives an item to the client, who asks for the next when it is sent.
    fn give(&mut self, (item, bytes): WithBytes<T>) -> T {
        let sent = mem::replace(&mut self.taken, bytes);
        locked(&self.waiting).bytes -= sent;
        item
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
            // All output has come, and the result is still on its way.
            None if self.running.is_some() => Poll::Pending,
            None => Poll::Ready(self.last.take()),
        }
    }
}

/// Output that is text, and goes to the client as it comes.
#[derive(Debug)]
pub struct LiveText<T> {
    sender: LiveSender<T>,
    /// Makes an item of the name of a stream and a text.
    item: fn(&str, &str) -> WithBytes<T>,
    stdout: TextDecoder,
    stderr: TextDecoder,
}

impl<T> LiveText<T> {
    /// Sends items that `item` makes of the name of a stream and a text.
    pub fn new(sender: LiveSender<T>, item: fn(&str, &str) -> WithBytes<T>) -> Self {
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

/// The end of the output: what is left of a character that has begun is sent too.
impl<T> Drop for LiveText<T> {
    fn drop(&mut self) {
        let (stdout, stderr) = (self.stdout.end(), self.stderr.end());
        self.send("stdout", &stdout);
        self.send("stderr", &stderr);
    }
}

/// Text of bytes that come in pieces: a character that two of them share comes with the second.
#[derive(Debug, Default)]
struct TextDecoder {
    rest: Vec<u8>,
}

impl TextDecoder {
    /// The text of one more piece. What is no UTF-8 becomes U+FFFD.
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

    /// The text of a character that has begun and does not end.
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

    fn sender<T>(most: usize) -> (LiveSender<T>, Receiver<WithBytes<T>>) {
        let (sender, receiver) = channel(most);
        let held = Budget::new(0).hold(0).expect("it is nothing");
        let sender = LiveSender {
            sender,
            waiting: Arc::new(Mutex::new(Waiting { bytes: 0, held })),
            patience: Duration::from_millis(10),
            is_too_slow: Arc::default(),
        };
        (sender, receiver)
    }

    #[test]
    fn output_that_ends_within_a_character_loses_nothing() {
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
    async fn a_client_that_takes_nothing_is_waited_for_no_longer() {
        let (mut sender, mut receiver) = sender(1);
        let is_too_slow = Arc::clone(&sender.is_too_slow);
        let send = move || (0..100).for_each(|number| sender.send((number, 0)));
        spawn_blocking(send).await.expect("it sends");
        assert!(is_too_slow.load(Ordering::Relaxed));
        assert_eq!(receiver.recv().await, Some((0, 0)));
        assert_eq!(receiver.recv().await, None);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_waits_for_a_client_has_its_memory() {
        const KIB: u64 = 1 << 10;
        let budget = Budget::new(1000 * KIB);
        let nothing = || budget.hold(0).expect("it is nothing");
        let result = nothing();
        let begin = |mut sender: LiveSender<u64>| async move {
            let send = move || (0..8).for_each(|number| sender.send((number, 300 * KIB)));
            spawn_blocking(send).await.expect("it sends");
            Ok((8, result))
        };
        let live = Live::begin(nothing(), Duration::from_secs(60), |_| 9, begin).await;
        let live = live.expect("it begins");
        // Three wait.
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
