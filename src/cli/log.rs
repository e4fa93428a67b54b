//! `SANDFORK_LOG`: prints the library's `tracing` output on stderr, one line for each span that
//! ends and for each event.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use thiserror::Error;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::failure::say;

const VARIABLE: &str = "SANDFORK_LOG";

/// The value is not a level.
#[derive(Debug, Error)]
#[error("{VARIABLE} is {0:?}: give off, error, warn, info, debug or trace")]
pub struct LogError(String);

/// Starts logging at the level that the variable sets.
pub fn begin() -> Result<(), LogError> {
    let Some(wanted) = std::env::var_os(VARIABLE).filter(|wanted| !wanted.is_empty()) else {
        return Ok(());
    };
    let wanted = wanted.to_string_lossy().into_owned();
    // `tracing` also accepts numbers as levels; this command does not.
    let is_word = wanted.chars().all(|c| c.is_ascii_alphabetic());
    match wanted.parse::<LevelFilter>() {
        Ok(LevelFilter::OFF) => Ok(()),
        Ok(level) if is_word => {
            // Succeeds: it is the first and only one of this process.
            _ = tracing::subscriber::set_global_default(Log::new(level));
            Ok(())
        }
        _ => Err(LogError(wanted)),
    }
}

/// Prints spans and events.
struct Log {
    level: LevelFilter,
    next: AtomicU64,
    spans: Mutex<HashMap<u64, Span>>,
}

/// An open span.
struct Span {
    name: &'static str,
    begun: Instant,
    fields: Fields,
    handles: usize,
}

impl Log {
    fn new(level: LevelFilter) -> Self {
        Self {
            level,
            next: AtomicU64::new(1),
            spans: Mutex::default(),
        }
    }

    fn spans(&self) -> MutexGuard<'_, HashMap<u64, Span>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= &self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut fields = Fields::default();
        span.record(&mut fields);
        let begun = Span {
            name: span.metadata().name(),
            begun: Instant::now(),
            fields,
            handles: 1,
        };
        self.spans().insert(id, begun);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        if let Some(span) = self.spans().get_mut(&span.into_u64()) {
            values.record(&mut span.fields);
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        say(&format!("{}{fields}", event.metadata().name()));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn clone_span(&self, id: &Id) -> Id {
        if let Some(span) = self.spans().get_mut(&id.into_u64()) {
            span.handles += 1;
        }
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut spans = self.spans();
        let Some(span) = spans.get_mut(&id.into_u64()) else {
            return false;
        };
        span.handles -= 1;
        if span.handles > 0 {
            return false;
        }
        let ended = spans.remove(&id.into_u64());
        drop(spans);
        if let Some(Span {
            name,
            begun,
            fields,
            ..
        }) = ended
        {
            let took = begun.elapsed().as_micros();
            say(&format!("{name} took {took} us{fields}"));
        }
        true
    }
}

/// ` name=value name=value`.
#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        // Writing to a String does not fail.
        _ = write!(self.0, " {field}={value}");
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        _ = write!(self.0, " {field}={value:?}");
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "" } else { ":" })?;
        f.write_str(&self.0)
    }
}
